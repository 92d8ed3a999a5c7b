//! Items for pipelines, and a gate at which a stream can be made to stand still.
#![allow(dead_code, reason = "each test uses some of it")]

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use gpu_spec::param::Value;
use gpu_spec::{Kernel, KernelSpec, ParamKind, ParamSpec, SafeKernel};
use warpsmith_runtime::emulated::EmulatedDriver;
use warpsmith_runtime::transfer::pipeline::{Failure, Pipeline, PipelineError, Strategy};
use warpsmith_runtime::{Device, DeviceSlice, DeviceSliceMut, Launch, PinnedBuffer, Stream};

use crate::common::*;

pub const STRATEGIES: [Strategy; 3] = [Strategy::InOrder, Strategy::StreamPerItem, Strategy::StreamPerStage];
pub const LEN: usize = 100;

/// How long a kernel stalls that is never released. Only a failing test waits this long.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Keeps a stream from going on until it is opened.
#[derive(Default)]
pub struct Gate {
    open: AtomicBool,
    /// It was not opened in time.
    forced: AtomicBool,
}

impl Gate {
    /// One that kernels can name for as long as they like.
    pub fn new() -> &'static Self {
        Box::leak(Box::default())
    }

    pub fn open(&self) {
        self.open.store(true, Ordering::Release);
    }

    pub fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }

    pub fn close_stream(&'static self, stream: &Stream) {
        let kernel = module(stream.device()).kernel::<WaitAtGate>().unwrap();
        let address = std::ptr::from_ref(self).expose_provenance() as u64;
        kernel.launch(stream, Launch::grid_block(1, 1), (address,)).unwrap();
    }

    pub fn wait(&self) {
        let start = Instant::now();
        while !self.is_open() {
            if start.elapsed() > PATIENCE {
                self.forced.store(true, Ordering::Release);
                return;
            }
            std::thread::yield_now();
        }
    }

    pub fn was_forced(&self) -> bool {
        self.forced.load(Ordering::Acquire)
    }
}

/// Waits at the gate with this address.
struct WaitAtGate;

unsafe fn wait_at_gate(args: *const *const c_void) {
    // SAFETY: the one parameter is the address of a gate that lives as long as the process.
    let gate = unsafe {
        let address = (*args).cast::<u64>().read();
        &*std::ptr::with_exposed_provenance::<Gate>(address as usize)
    };
    gate.wait();
}

// SAFETY: the entry reads the one parameter that the spec lists, and `Params` lists the same.
unsafe impl Kernel for WaitAtGate {
    type Params = (Value<u64>,);

    fn spec() -> &'static KernelSpec {
        static PARAMS: [ParamSpec; 1] = [ParamSpec {
            name: "gate",
            kind: ParamKind::Value,
            type_name: "u64",
            size: 8,
            align: 8,
            signature: 0,
        }];
        static SPEC: KernelSpec =
            KernelSpec::new("test-kernels", "0.0.0", "wait_at_gate", &PARAMS, wait_at_gate);
        &SPEC
    }
}

// SAFETY: within this file it is launched with addresses of gates only.
unsafe impl SafeKernel for WaitAtGate {}

/// `output = 2 * input`, and zeros beyond the input.
pub fn double(
    stream: &Stream,
    input: DeviceSlice<'_, f32>,
    mut output: DeviceSliceMut<'_, f32>,
) -> Result<(), Failure> {
    let kernel = module(stream.device()).kernel::<Axpy>()?;
    output.memset(0)?;
    let n = output.len();
    Ok(kernel.launch(stream, Launch::auto(n), (2.0, input, output))?)
}

pub fn pinned(device: &Device, item: usize, len: usize) -> Result<PinnedBuffer<f32>, Failure> {
    let elements: Vec<f32> = (0..len).map(|i| (item * 1000 + i) as f32).collect();
    Ok(PinnedBuffer::from_slice(device, &elements)?)
}

pub fn inputs(device: &Device, items: usize) -> impl Iterator<Item = Result<PinnedBuffer<f32>, Failure>> {
    (0..items).map(|item| pinned(device, item, LEN))
}

/// Runs items of one length and checks that every result comes, in order.
pub fn run_and_check(pipeline: &mut Pipeline, items: usize) -> Result<(), PipelineError> {
    let device = pipeline.device().clone();
    let mut taken = 0;
    pipeline.run(
        inputs(&device, items),
        |len| len,
        double,
        |item, input, output| {
            assert_eq!(item, taken);
            taken += 1;
            assert!(input.iter().copied().eq((0..LEN).map(|i| (item * 1000 + i) as f32)));
            assert!(output.iter().copied().eq(input.iter().map(|x| 2.0 * x)), "item {item}");
            Ok(())
        },
    )?;
    assert_eq!(taken, items);
    Ok(())
}

pub fn each_pipeline(depths: &[usize], mut test: impl FnMut(Arc<EmulatedDriver>, Pipeline)) {
    for strategy in STRATEGIES {
        for &depth in depths {
            let (driver, device) = device();
            let pipeline = Pipeline::new(&device, strategy, depth).unwrap();
            test(driver, pipeline);
        }
    }
}
