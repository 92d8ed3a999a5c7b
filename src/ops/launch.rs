//! [`Operation`]: from a kernel's name, element type, length and configuration to a checked launch.
//!
//! Instances are found by name in the registry, so that a configuration read from a file or swept by a tuner
//! needs no code of its own.

use std::borrow::Cow;

use gpu_std::scalar::Scalar;
use warpsmith_runtime::{Arguments, DevicePtr, Function, Launch, Module, Stream};
use warpsmith_store::LaunchStore;

use super::config::{self, Config};
use super::tuned;
use crate::IMAGE;
use crate::op_error::OpError;
use warpsmith_runtime::Result;

/// Fails when two arrays of an operation differ in length.
pub(crate) fn same_length(
    operation: &'static str,
    (first_name, first): (&'static str, usize),
    (second_name, second): (&'static str, usize),
) -> Result<()> {
    if first == second {
        return Ok(());
    }
    Err(OpError::LengthMismatch { operation, first_name, first, second_name, second }.into())
}

/// A kernel to be launched over `n` elements.
pub(crate) struct Operation<'a> {
    stream: &'a Stream,
    kernel: &'static str,
    /// The kernel's type arguments, joined with commas.
    dtype: Cow<'static, str>,
    element_bytes: usize,
    n: usize,
    /// Of all arrays, in bytes, at most 16.
    alignment: u32,
    config: Option<Config>,
    /// Threads for a row of blocks, where the blocks form rows.
    row: Option<u32>,
}

impl<'a> Operation<'a> {
    /// Of a kernel with one element type, over `n` elements of the arrays at these addresses.
    pub fn new<T: Scalar>(
        stream: &'a Stream,
        kernel: &'static str,
        n: usize,
        arrays: &[DevicePtr],
        config: Option<Config>,
    ) -> Self {
        let (dtype, alignment) = (Cow::Borrowed(T::NAME), tuned::alignment(arrays));
        Self { stream, kernel, dtype, element_bytes: size_of::<T>(), n, alignment, config, row: None }
    }

    /// Of a kernel from one element type to another.
    pub fn between<T: Scalar, U: Scalar>(
        stream: &'a Stream,
        kernel: &'static str,
        n: usize,
        arrays: &[DevicePtr],
        config: Option<Config>,
    ) -> Self {
        let dtype = Cow::Owned(format!("{},{}", T::NAME, U::NAME));
        let element_bytes = size_of::<T>().max(size_of::<U>());
        let alignment = tuned::alignment(arrays);
        Self { stream, kernel, dtype, element_bytes, n, alignment, config, row: None }
    }

    /// Launches rows of blocks (in y), each of `threads` threads, instead of one row; rounded up to whole rows.
    pub fn in_rows_of(self, threads: u32) -> Self {
        Self { row: Some(threads), ..self }
    }

    /// Finds the instance and the number of blocks.
    pub fn plan(&self) -> Result<Plan<'a>> {
        let device = self.stream.device();
        let module = device.load(&IMAGE)?;
        let config = self
            .config
            .or_else(|| self.tuned(&module))
            .unwrap_or_else(|| config::default_config(self.kernel, self.element_bytes, self.n, device));
        let spec = config::instance(self.kernel, &self.dtype, &config)?;
        let function = module.function(spec)?;
        let resident = || {
            // The number that fits on the device at once, which the function caches.
            let most = device.properties().max_grid[0] as usize;
            let all =
                Launch::linear(most.saturating_mul(config.block as usize).max(1), config.block).waves(1);
            Ok(function.configure(all)?.map_or(1, |all| all.grid[0]))
        };
        let blocks = config::blocks(
            &config,
            self.kernel.starts_with("reduce_"),
            self.element_bytes,
            self.n,
            device.properties(),
            resident,
        )?;
        let rows = self.row.map_or(1, |threads| {
            let of_row = threads.div_ceil(config.block.max(1)).max(1);
            blocks.div_ceil(of_row).clamp(1, device.properties().max_grid[1].max(1))
        });
        Ok(Plan { stream: self.stream, function, grid: [blocks.div_ceil(rows), rows], block: config.block })
    }

    /// The configuration that the device's store has for it.
    fn tuned(&self, module: &Module) -> Option<Config> {
        let store = LaunchStore::of(module.device());
        let found = || tuned::find(&store, module, self.kernel, &self.dtype, self.n, self.alignment);
        if store.has_tuned() { found() } else { None }
    }

    /// Enqueues the launch; nothing when there are no elements.
    ///
    /// # Safety
    /// As for [`Plan::launch`].
    pub unsafe fn launch<P, A: Arguments<P>>(&self, arguments: A) -> Result<()> {
        if self.n == 0 {
            return Ok(());
        }
        // SAFETY: passed on from the caller.
        unsafe { self.plan()?.launch::<P, A>(arguments) }
    }
}

/// An operation with its instance and its grid.
pub(crate) struct Plan<'a> {
    stream: &'a Stream,
    function: Function,
    grid: [u32; 2],
    block: u32,
}

impl Plan<'_> {
    /// The grid's number of blocks.
    pub fn blocks(&self) -> u32 {
        self.grid[0] * self.grid[1]
    }

    /// Enqueues the launch.
    ///
    /// # Safety
    /// `P` are the kernel's parameters; if the kernel is unsafe, its conditions hold for a launch of [`Self::blocks`] blocks
    /// with these arguments: one-dimensional, but for an operation [in rows](Operation::in_rows_of).
    pub unsafe fn launch<P, A: Arguments<P>>(&self, arguments: A) -> Result<()> {
        let launch = Launch::grid_block((self.grid[0], self.grid[1]), self.block);
        // SAFETY: passed on from the caller.
        unsafe { self.function.launch_as::<P, A>(self.stream, launch, &arguments)? };
        Ok(())
    }
}
