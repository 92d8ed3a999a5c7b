//! Launches operations with the random numbers reserved for them.

use gpu_kernels::random::COLUMNS;
use gpu_std::scalar::Scalar;
use warpsmith_runtime::{DeviceBuffer, DeviceSlice, DeviceSliceMut, Result, Stream};

use super::generator::{Generator, Numbers};
use super::layout::{Layout, parts};
use crate::ops::launch::Operation;
use crate::ops::{take_forced, with_config};

/// Start position of a launch, in the form that its kernel takes.
pub(super) struct Begin<'a> {
    pub seed: u64,
    pub offset: u64,
    /// Seed and offset in device memory for a captured operation. Otherwise, the slice is empty.
    pub base: DeviceSlice<'a, u64>,
    /// Number of virtual threads.
    pub threads: u32,
}

/// An operation that takes one number per element, in PyTorch's order.
pub(super) struct Draw<'a> {
    /// The operation's name.
    pub call: &'static str,
    pub kernel: &'static str,
    /// Number of results per block of words.
    pub lanes: usize,
    pub stream: &'a Stream,
}

impl Draw<'_> {
    /// Takes numbers for all of `out` and launches the kernel, once per part if the array is too large for one launch.
    pub fn run<T: Scalar>(
        &self,
        generator: &Generator,
        out: DeviceSliceMut<'_, T>,
        launch: impl Fn(&Operation<'_>, Begin<'_>, DeviceSliceMut<'_, T>) -> Result<()>,
    ) -> Result<()> {
        if out.is_empty() {
            return Ok(());
        }
        let n = out.len();
        let increment = |layout: &Layout| {
            let of_parts = parts(n, size_of::<T>());
            let whole = if of_parts.len() > 1 { layout.increment(n, self.lanes) } else { 0 };
            whole + of_parts.into_iter().map(|part| layout.increment(part, self.lanes)).sum::<u64>()
        };
        generator
            .with_numbers(self.stream, self.call, increment, |numbers| self.run_with(numbers, out, launch))
    }

    /// Like [`Self::run`], but with numbers that have already been taken.
    pub fn run_with<T: Scalar>(
        &self,
        numbers: &Numbers,
        mut out: DeviceSliceMut<'_, T>,
        launch: impl Fn(&Operation<'_>, Begin<'_>, DeviceSliceMut<'_, T>) -> Result<()>,
    ) -> Result<()> {
        let Numbers { seed, mut offset, layout, .. } = *numbers;
        let parts = parts(out.len(), size_of::<T>());
        if parts.len() > 1 {
            // PyTorch takes numbers for the whole array before it divides the array, and leaves those numbers unused.
            offset += layout.increment(out.len(), self.lanes);
        }
        let config = take_forced();
        with_base(numbers, self.stream, |base| {
            for part in parts {
                let (now, later) = out.split_at_mut(part);
                let address = now.as_device_ptr();
                let threads = layout.threads(part);
                let operation = Operation::new::<T>(self.stream, self.kernel, part, &[address])
                    .in_rows_of(threads / COLUMNS as u32);
                let begin = Begin { seed, offset, base, threads };
                with_config(config, || launch(&operation, begin, now))?;
                offset += layout.increment(part, self.lanes);
                out = later;
            }
            Ok(())
        })
    }
}

/// Calls `launch` with the kernel's `base` argument.
pub(crate) fn with_base<R>(
    numbers: &Numbers,
    stream: &Stream,
    launch: impl FnOnce(DeviceSlice<'_, u64>) -> Result<R>,
) -> Result<R> {
    match &numbers.replay {
        Some(replay) => launch(replay.base().as_slice()),
        None => launch(DeviceBuffer::uninit(stream, 0)?.as_slice()),
    }
}
