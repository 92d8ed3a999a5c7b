//! [`Case`]: a kernel and its host reference function.

use difftest_support::{ATOMICS, Input, State, WORDS};
use warpsmith_runtime::{Device, DeviceBuffer, Error, GpuImage, Launch, Module, Stream};

use crate::plain;

/// A part of a generated kernel, as a function.
#[derive(Clone, Copy)]
pub enum Step {
    /// A step that each thread executes alone.
    Own(fn(&Input, &mut State)),
    /// A step in which the threads of a block compute one value each, and exchange the values by an operation with a
    /// number.
    Collective(fn(&Input, &mut State) -> u64, fn(&[u64], u32) -> Vec<u64>, u32),
}

/// A device with the data that the cases share.
pub struct Session {
    device: Device,
    stream: Stream,
    image: &'static GpuImage,
    data: DeviceBuffer<u64>,
}

impl Session {
    /// Opens a device by its name.
    ///
    /// # Errors
    /// If the device cannot be opened.
    pub fn open(name: &str, image: &'static GpuImage) -> Result<Self, Error> {
        Self::new(Device::open(name)?, image)
    }

    /// Creates a session on a device.
    ///
    /// # Errors
    /// If the device is out of memory.
    pub fn new(device: Device, image: &'static GpuImage) -> Result<Self, Error> {
        let stream = device.default_stream();
        let data = DeviceBuffer::from_host(&stream, &crate::data())?;
        Ok(Session { device, stream, image, data })
    }

    /// Stream on which all work runs.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Module of the generated kernels.
    ///
    /// # Errors
    /// If the device cannot load their code.
    pub fn module(&self) -> Result<Module, Error> {
        self.device.load(self.image)
    }
}

/// Arguments of a generated kernel.
pub struct Arguments<'a> {
    /// Input words.
    pub data: &'a DeviceBuffer<u64>,
    /// Atomics shared by all threads.
    pub atomics: DeviceBuffer<u64>,
    /// Output words of each thread.
    pub out: DeviceBuffer<u64>,
}

type Run = fn(&Session, Launch, &mut Arguments) -> Result<(), Error>;

/// A kernel with its equivalent host function.
pub struct Case {
    /// Name of the kernel.
    pub name: &'static str,
    /// Source text of the kernel.
    pub source: &'static str,
    threads: u32,
    grid: u32,
    steps: Vec<Step>,
    run: Run,
}

impl Case {
    /// Creates the case of a generated kernel; see [`generated!`](crate::generated!).
    pub fn generated(
        name: &'static str,
        source: &'static str,
        [threads, grid]: [u32; 2],
        steps: Vec<Step>,
        run: Run,
    ) -> Self {
        Case { name, source, threads, grid, steps, run }
    }

    /// Expected output words, computed in plain Rust.
    pub fn expected(&self) -> Vec<u64> {
        plain::run(self.threads as usize, self.grid as usize, &self.steps)
    }

    /// Output words of the kernel on the device.
    ///
    /// # Errors
    /// Returns any error of the device.
    pub fn found(&self, session: &Session) -> Result<Vec<u64>, Error> {
        let words = vec![0xBAD; (self.threads * self.grid) as usize * WORDS];
        let mut arguments = Arguments {
            data: &session.data,
            atomics: DeviceBuffer::from_host(&session.stream, &crate::atomics())?,
            out: DeviceBuffer::from_host(&session.stream, &words)?,
        };
        (self.run)(session, Launch::grid_block(self.grid, self.threads), &mut arguments)?;
        let mut found = arguments.out.to_host()?;
        found.extend(arguments.atomics.to_host()?);
        Ok(found)
    }

    /// Description of word `index`.
    pub fn word(&self, index: usize, words: usize) -> String {
        if index + ATOMICS >= words {
            return format!("atomic {}", index + ATOMICS - words);
        }
        format!("thread {}, step {} of {}", index / WORDS, index % WORDS, self.steps.len())
    }

    /// Index of the step that writes a word; `None` for the atomics.
    pub(crate) fn step(&self, index: usize, words: usize) -> Option<usize> {
        (index + ATOMICS < words).then_some(index % WORDS)
    }
}

/// Creates a [`Case`] of a generated kernel: its module, name, threads per block, blocks, text, and steps.
#[macro_export]
macro_rules! generated {
    ($($module:ident)::+, $name:ident, $threads:literal, $grid:literal, $source:expr, $steps:expr) => {
        $crate::Case::generated(
            stringify!($name),
            $source,
            [$threads, $grid],
            Vec::from($steps),
            |session, launch, arguments| {
                let kernel = session.module()?.kernel::<$($module)::+::$name>()?;
                kernel.launch(
                    session.stream(),
                    launch,
                    (arguments.data, &mut arguments.atomics, 0u64, &mut arguments.out),
                )
            },
        )
    };
}
