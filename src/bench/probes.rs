//! Probes that measure the device's peaks with a copy, a read and FMAs. They are interleaved with the kernels under
//! test.
//!
//! The copy and the read are this crate's own operations in their default configurations, over arrays that are much
//! larger than the cache. The FMAs access only registers.

use gpu_kernels::probe::{FLOPS_PER_ROUND, fma_probe};
use warpsmith_runtime::{Device, DeviceBuffer, Launch, PreparedLaunch, Stream};
use warpsmith_tuner::benchmark::{Benchmark, Probe, Setup, Work};
use warpsmith_tuner::case::Case;
use warpsmith_tuner::error::{Error, Result};
use warpsmith_tuner::value::Configuration;
use warpsmith_tuner::verify::Check;

use super::operations::{OPERATIONS, Operation};

/// Number of multiplication rounds per thread.
const ROUNDS: u32 = 4096;

/// Creates the probes: `copy`, `read` and, on a real device, `fma`. On the emulated device, `fma` is omitted because
/// its time would have no meaning.
///
/// # Errors
/// Returns the [enqueue errors](crate::Error#enqueue-errors), including out-of-memory errors.
pub fn probes(stream: &Stream) -> Result<Vec<Probe>> {
    let mut probes = vec![operation("copy", "copy", stream)?, operation("read", "reduce_sum", stream)?];
    if !stream.device().is_emulated() {
        probes.push(multiply(stream)?);
    }
    Ok(probes)
}

/// Returns the number of elements for a bandwidth probe: enough to make a launch's ramp-up and tail negligible, but at
/// most an eighth of the memory.
fn elements(device: &Device) -> Result<u64> {
    let wanted = if device.is_emulated() { 1 << 16 } else { 1 << 28 };
    Ok((device.memory().available()? / 64).clamp(1, wanted))
}

fn operation(probe: &'static str, name: &str, stream: &Stream) -> Result<Probe> {
    let known = OPERATIONS.iter().find(|operation| operation.name() == name);
    let operation: &Operation =
        known.ok_or_else(|| Error::UnknownKernel { name: name.to_owned(), hint: String::new() })?;
    let n = elements(stream.device())?;
    let setup = Setup { stream, dtype: "f32", n: n as usize, copies: 1, seed: 1 };
    Ok(Probe {
        name: probe,
        // The additions of the read are hidden behind its loads, so they do not count as compute work.
        work: Work { flops: 0, ..operation.work("f32", n) },
        configuration: operation.default_configuration("f32", n, stream.device()),
        case: operation.prepare(&setup)?,
    })
}

/// FMAs in registers, in one wave of resident threads.
struct Multiply {
    stream: Stream,
    launch: PreparedLaunch<fma_probe>,
    out: DeviceBuffer<f32>,
}

fn multiply(stream: &Stream) -> Result<Probe> {
    let properties = stream.device().properties();
    let threads = properties.multiprocessors * properties.max_threads_per_multiprocessor;
    let kernel = stream.device().load(&crate::IMAGE)?.kernel::<fma_probe>()?;
    let launch = kernel.prepare(Launch::linear(threads as usize, 256))?;
    let out = DeviceBuffer::zeros(stream, 1)?;
    let flops = u64::from(threads) * u64::from(ROUNDS) * FLOPS_PER_ROUND;
    Ok(Probe {
        name: "fma",
        work: Work { flops, ..Work::default() },
        configuration: Configuration::default().with("rounds", ROUNDS),
        case: Box::new(Multiply { stream: stream.clone(), launch, out }),
    })
}

impl Case for Multiply {
    fn copies(&self) -> usize {
        1
    }

    fn select(&mut self, _: &Configuration) -> Result<()> {
        Ok(())
    }

    fn launch(&mut self, _: usize) -> Result<()> {
        Ok(self.launch.launch(&self.stream, (ROUNDS, &mut self.out))?)
    }

    fn check(&mut self) -> Result<Check> {
        self.launch(0)?;
        let found = self.out.to_host()?;
        Ok(warpsmith_tuner::verify::compare(&found, warpsmith_tuner::verify::Tolerance::EXACT, |_| 0.0))
    }
}
