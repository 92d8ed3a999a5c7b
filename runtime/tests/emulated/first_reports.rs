//! Tests that the first call that returns an error after a fault reports the fault itself, even if other code detected
//! the fault earlier.

use std::future::IntoFuture;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use crate::awaiting::block_on;
use crate::common::*;
use warpsmith_runtime::driver::{Fault, FaultKind};
use warpsmith_runtime::graph::CaptureMode;
use warpsmith_runtime::transfer::collective::gather;
use warpsmith_runtime::{
    Capture, Device, DeviceBuffer, Error, Event, Graph, GraphExec, Launch, MappedBuffer, MemoryPool, Pending,
    PinnedBuffer, Result, Stream, TypedKernel,
};

/// Number of runs per test. Many runs are necessary because the call that first detects a fault differs from run to
/// run.
const RUNS: usize = 50;

/// Objects of a program whose kernel panics.
struct Program {
    device: Device,
    stream: Stream,
    other: Stream,
    kernel: TypedKernel<PanicAt>,
    buffer: DeviceBuffer<u32>,
    mapped: MappedBuffer<u32>,
    exec: GraphExec,
    event: Event,
    pending: Option<Pending<Vec<u32>>>,
    /// Buffers used on both streams, so that their drop records an event.
    spare: Vec<DeviceBuffer<u8>>,
}

impl Program {
    fn new(device: &Device) -> Result<Self> {
        let [stream, other] = [Stream::new(device)?, Stream::new(device)?];
        let kernel = module(device).kernel::<PanicAt>()?;
        let mut buffer = DeviceBuffer::from_host(&stream, &[1u32; 64])?;
        let mapped = PinnedBuffer::from_slice(device, &[1u32; 64])?.into_mapped(&stream)?;
        let graph = Graph::capture(&stream, || stream.copy(mapped.as_slice(), &mut buffer))?;
        let exec = graph.instantiate()?;
        stream.synchronize()?;
        let event = Event::timed(device)?;
        let spare = |_| {
            let mut spare = DeviceBuffer::uninit(&stream, 1)?;
            other.memset(&mut spare, 0)?;
            Ok(spare)
        };
        let spare = (0..16).map(spare).collect::<Result<_>>()?;
        Ok(Self {
            device: device.clone(),
            stream,
            other,
            kernel,
            buffer,
            mapped,
            exec,
            event,
            pending: None,
            spare,
        })
    }

    /// Enqueues the kernel, followed by work that uses everything.
    fn panic(&mut self) -> Result<()> {
        self.exec.launch(&self.stream)?;
        self.stream.copy(&self.buffer, self.mapped.as_mut_slice())?;
        self.kernel.launch(&self.stream, Launch::grid_block(1, 32), (7u32,))
    }

    /// Drops objects until a drop has detected the fault.
    fn find_by_drops(&mut self) {
        for round in 0..16 {
            std::thread::sleep(Duration::from_micros(50 << round));
            drop(self.spare.pop());
            if self.device.is_lost() {
                return;
            }
        }
        panic!("no drop has found the fault");
    }

    /// Enqueues work after the kernel. These calls may detect the fault, which is then returned here.
    fn follow(&mut self) -> Result<()> {
        self.event.record(&self.stream)?;
        self.pending = Some(self.stream.copy_to_host_async(&self.buffer, vec![0; 64])?);
        Ok(())
    }
}

/// Repeats a call until it returns an error.
fn until_error<T>(mut call: impl FnMut() -> Result<T>) -> Error {
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(30) {
        if let Err(error) = call() {
            return error;
        }
        std::thread::sleep(Duration::from_micros(20));
    }
    panic!("the fault was not found");
}

type Call = (&'static str, fn(&mut Program) -> Error);

/// Calls that do not wait for the stream, so that they may not detect a fault themselves.
const PASSIVE: &[&str] = &[
    "uninit",
    "synchronize another",
    "Device::check",
    "memory_info",
    "Stream::new",
    "Event::new",
    "Graph::capture",
    "MemoryPool::new",
    "PinnedBuffer",
];
/// Calls that are made in additional runs.
const USUAL: &[&str] = &["to_host", "synchronize", "completed", "copy_to_host_async, wait"];

const CALLS: &[Call] = &[
    ("to_host", |p| until_error(|| p.buffer.to_host())),
    ("copy_to_host", |p| until_error(|| p.buffer.as_slice().copy_to_host(&mut [0; 64]))),
    ("copy_from_host", |p| until_error(|| p.buffer.copy_from_host(&[0; 64]))),
    ("from_host", |p| until_error(|| DeviceBuffer::from_host(&p.stream, &[1u8; 9]))),
    ("zeros", |p| until_error(|| DeviceBuffer::<u8>::zeros(&p.stream, 9))),
    ("uninit", |p| until_error(|| DeviceBuffer::<u8>::uninit(&p.stream, 9))),
    ("synchronize", |p| until_error(|| p.stream.synchronize())),
    ("synchronize another", |p| until_error(|| p.other.synchronize())),
    ("synchronize_timeout", |p| until_error(|| p.stream.synchronize_timeout(Duration::from_secs(60)))),
    ("query", |p| until_error(|| p.stream.query())),
    ("Device::synchronize", |p| until_error(|| p.device.synchronize())),
    ("Device::check", |p| until_error(|| p.device.check())),
    ("memory_info", |p| until_error(|| p.device.memory_info())),
    ("Stream::new", |p| until_error(|| Stream::new(&p.device))),
    ("Event::new", |p| until_error(|| Event::new(&p.device).and_then(|event| event.record(&p.stream)))),
    ("Event::synchronize", |p| {
        until_error(|| p.event.record(&p.stream).and_then(|()| p.event.synchronize()))
    }),
    ("Event::query", |p| until_error(|| p.event.record(&p.stream).and_then(|()| p.event.query()))),
    ("an event awaited", |p| until_error(|| p.event.record(&p.stream).and_then(|()| block_on(&p.event)))),
    ("completed", |p| until_error(|| block_on(p.stream.completed()))),
    ("copy_to_host_async, wait", |p| {
        until_error(|| Ok(p.stream.copy_to_host_async(&p.buffer, vec![0; 64])?.wait().map(drop)?))
    }),
    ("copy_to_host_async, awaited", |p| {
        until_error(|| {
            Ok(block_on(p.stream.copy_to_host_async(&p.buffer, vec![0; 64])?.into_future()).map(drop)?)
        })
    }),
    ("copy_to_host_async of much", |p| {
        until_error(|| {
            let large = DeviceBuffer::<u8>::zeros(&p.stream, 9 << 20)?;
            Ok(p.stream.copy_to_host_async(&large, vec![0; 9 << 20])?.wait().map(drop)?)
        })
    }),
    ("copy_from_host_async", |p| {
        until_error(|| Ok(p.stream.copy_from_host_async(vec![0; 64], &mut p.buffer)?.wait().map(drop)?))
    }),
    ("memset", |p| until_error(|| p.other.memset(&mut p.buffer, 0))),
    ("launch", |p| until_error(|| p.kernel.launch(&p.stream, Launch::auto(1), (9u32,)))),
    ("GraphExec::launch", |p| until_error(|| p.exec.launch(&p.stream))),
    ("Graph::capture", |p| until_error(|| Graph::capture(&p.other, || p.other.memset(&mut p.buffer, 0)))),
    ("Capture::begin", |p| until_error(|| Capture::begin(&p.stream, CaptureMode::Relaxed))),
    ("MappedBuffer::lock", |p| {
        until_error(|| p.mapped.lock().map(drop).and_then(|()| p.exec.launch(&p.stream)))
    }),
    ("wait_stream", |p| until_error(|| p.other.wait_stream(&p.stream))),
    ("host_function", |p| until_error(|| p.stream.host_function(|| ()))),
    ("MemoryPool::new", |p| until_error(|| MemoryPool::new(&p.device))),
    ("gather", |p| until_error(|| gather([p.buffer.as_slice()], &p.other))),
    ("PinnedBuffer", |p| until_error(|| PinnedBuffer::<u8>::zeroed(&p.device, 1 << 20))),
];

#[track_caller]
fn is_the_fault(error: &Error, what: &str) {
    let is_fault =
        matches!(error, Error::KernelPanic { .. } | Error::Deadlock { .. } | Error::KernelFault { .. });
    assert!(is_fault && !error.to_string().contains("earlier fault"), "{what}: {error}");
}

#[track_caller]
fn is_a_later_one(error: &Error, what: &str) {
    assert!(matches!(error, Error::DeviceLost { .. }), "{what}: {error}");
}

#[test]
fn whatever_a_program_calls_first() {
    for (name, call) in CALLS {
        let runs = if USUAL.contains(name) { RUNS } else { 6 };
        for run in 0..runs {
            let (_, device) = device();
            let mut program = Program::new(&device).unwrap();
            program.panic().unwrap();
            if run % 2 == 1 || PASSIVE.contains(name) {
                program.find_by_drops();
            }
            is_the_fault(&call(&mut program), name);
            is_a_later_one(&call(&mut program), name);
            is_a_later_one(&program.stream.synchronize().unwrap_err(), name);
            assert!(device.take_drop_error().is_none(), "{name}");
        }
    }
}

/// Work that was enqueued before the fault was detected must report the fault in the first call that the program makes.
#[test]
fn what_was_enqueued_before_reports_it() {
    for run in 0..RUNS {
        let (_, device) = device();
        let mut program = Program::new(&device).unwrap();
        program.panic().unwrap();
        let first = match (program.follow(), program.pending.take()) {
            (Err(error), _) => error,
            (Ok(()), Some(pending)) if run % 3 == 0 => pending.wait().unwrap_err().error,
            (Ok(()), Some(pending)) if run % 3 == 1 => block_on(pending).unwrap_err().error,
            (Ok(()), _) => program.event.synchronize().unwrap_err(),
        };
        is_the_fault(&first, "work behind the kernel");
        is_a_later_one(&program.stream.synchronize().unwrap_err(), "the second call");
    }
}

/// Drops detect the fault but cannot report it, because they return no result.
#[test]
fn drops_are_no_reports() {
    for _ in 0..RUNS {
        let (_, device) = device();
        let mut program = Program::new(&device).unwrap();
        program.panic().unwrap();
        program.find_by_drops();
        let stream = program.stream.clone();
        drop(program);
        is_the_fault(&until_error(|| stream.synchronize()), "the first call after drops");
        is_a_later_one(&device.check().unwrap_err(), "the second call");
        assert!(device.take_drop_error().is_none());
    }
}

#[test]
fn of_many_threads_one_reports_it() {
    for _ in 0..RUNS {
        let (_, device) = device();
        let mut program = Program::new(&device).unwrap();
        program.panic().unwrap();
        let start = Barrier::new(4);
        let errors: Vec<Error> = std::thread::scope(|scope| {
            let (device, stream, start) = (&program.device, &program.stream, &start);
            let threads = [0, 1, 2, 3].map(|thread| {
                scope.spawn(move || {
                    start.wait();
                    match thread {
                        0 => until_error(|| stream.synchronize()),
                        1 => until_error(|| device.memory_info()),
                        2 => until_error(|| stream.query()),
                        _ => until_error(|| DeviceBuffer::from_host(stream, &[1u8; 3])?.to_host()),
                    }
                })
            });
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let faults = errors.iter().filter(|error| !matches!(error, Error::DeviceLost { .. })).count();
        assert_eq!(faults, 1, "{errors:?}");
    }
}

#[test]
fn faults_of_each_kind_are_reported_once() {
    for kind in [FaultKind::Panic, FaultKind::Deadlock, FaultKind::Other] {
        let (driver, device) = device();
        let mut program = Program::new(&device).unwrap();
        let (message, location) = ("a test".to_owned(), None);
        driver.poison(0, Fault { kind, message, location, kernel: None, block: None, thread: None });
        is_the_fault(&program.buffer.to_host().unwrap_err(), "the first call");
        is_a_later_one(&program.buffer.to_host().unwrap_err(), "the second call");
        is_a_later_one(&program.panic().unwrap_err(), "the third call");
    }
}
