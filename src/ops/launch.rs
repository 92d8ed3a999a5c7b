//! [`Operation`]: turns a kernel's name, element type, length and configuration into a checked launch.
//!
//! Instances are looked up by name or provided by a user-defined function or operator. Configurations from a file or a
//! tuner therefore need no code of their own.

use std::borrow::Cow;

use gpu_spec::KernelSpec;
use gpu_std::family::Variant;
use gpu_std::scalar::Scalar;
use warpsmith_runtime::store::LaunchStore;
use warpsmith_runtime::{Arguments, DevicePtr, Function, GpuImage, Launch, Module, Result, Stream};

use super::config::{self, Config, Instances};
use super::tuned;
use crate::IMAGE;
use crate::op_error::OpError;

/// Returns an error if two arrays of an operation have different lengths.
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

/// The source of a kernel's instances.
enum Code {
    /// This crate's image. The value contains the kernel's type arguments, joined by commas.
    Own(Cow<'static, str>),
    /// The image of a user-defined function or operator.
    Family { image: &'static GpuImage, variants: &'static [Variant], is_reduction: bool },
}

/// A launch of a kernel over `n` elements, before an instance is selected.
pub(crate) struct Operation<'a> {
    stream: &'a Stream,
    kernel: &'static str,
    code: Code,
    element_bytes: usize,
    n: usize,
    /// Common alignment of all arrays, in bytes, up to 16.
    alignment: u32,
    /// Configuration of this launch unless the caller forces another one.
    default: Option<Config>,
    /// Number of threads per row of blocks, if the grid has rows.
    row: Option<u32>,
}

impl<'a> Operation<'a> {
    /// Creates an operation for a kernel that has one element type. The operation covers `n` elements of the arrays at
    /// these addresses.
    pub fn new<T: Scalar>(stream: &'a Stream, kernel: &'static str, n: usize, arrays: &[DevicePtr]) -> Self {
        let (code, alignment) = (Code::Own(Cow::Borrowed(T::NAME)), tuned::alignment(arrays));
        Self { stream, kernel, code, element_bytes: size_of::<T>(), n, alignment, default: None, row: None }
    }

    /// Creates an operation for a kernel that converts from one element type to another.
    pub fn between<T: Scalar, U: Scalar>(
        stream: &'a Stream,
        kernel: &'static str,
        n: usize,
        arrays: &[DevicePtr],
    ) -> Self {
        let code = Code::Own(Cow::Owned(format!("{},{}", T::NAME, U::NAME)));
        let element_bytes = size_of::<T>().max(size_of::<U>());
        let alignment = tuned::alignment(arrays);
        Self { stream, kernel, code, element_bytes, n, alignment, default: None, row: None }
    }

    /// Creates an operation for a kernel that moves elements of type `T` according to indices of type `I`.
    pub fn by_indices<T: Scalar, I: Scalar>(
        stream: &'a Stream,
        kernel: &'static str,
        n: usize,
        arrays: &[DevicePtr],
    ) -> Self {
        Self { element_bytes: size_of::<T>(), ..Self::between::<T, I>(stream, kernel, n, arrays) }
    }

    /// Creates an operation for a user-defined function or operator whose code is in `image`. `element_bytes` is the
    /// size of the operation's largest elements.
    pub fn of_family(
        stream: &'a Stream,
        image: &'static GpuImage,
        (variants, is_reduction): (&'static [Variant], bool),
        element_bytes: usize,
        n: usize,
        arrays: &[DevicePtr],
    ) -> Self {
        let kernel = variants.first().map_or("", |variant| (variant.spec)().name);
        let (code, alignment) = (Code::Family { image, variants, is_reduction }, tuned::alignment(arrays));
        Self { stream, kernel, code, element_bytes, n, alignment, default: None, row: None }
    }

    /// Uses this configuration instead of the tuned or the default one, unless the caller forces another one.
    #[cfg(feature = "scan")]
    pub fn with_default(self, default: Option<Config>) -> Self {
        Self { default, ..self }
    }

    /// Selects a 2-D grid whose blocks form rows along y, each with `threads` threads. The number of blocks is rounded
    /// up to whole rows.
    pub fn in_rows_of(self, threads: u32) -> Self {
        Self { row: Some(threads), ..self }
    }

    /// Selects the instance and the number of blocks.
    pub fn plan(&self) -> Result<Plan<'a>> {
        let device = self.stream.device();
        let (image, instances) = match self.code {
            Code::Own(_) => (&IMAGE, Instances::own(self.kernel)),
            Code::Family { image, variants, is_reduction } => {
                (image, Instances::Family { variants, is_reduction })
            }
        };
        let module = device.load(image)?;
        let config = config::take_forced()
            .or(self.default)
            .or_else(|| self.tuned(&module))
            .unwrap_or_else(|| config::default_of(instances, self.element_bytes, self.n, device));
        let spec = self.instance(&config)?;
        let function = module.function(spec)?;
        let resident = || {
            // `Function` caches this configuration. Its grid size is the number of blocks in one wave.
            let most = device.properties().max_grid[0] as usize;
            let all =
                Launch::linear(most.saturating_mul(config.block as usize).max(1), config.block).waves(1);
            Ok(function.configure(all)?.map_or(1, |all| all.grid[0]))
        };
        let blocks = config::blocks(
            &config,
            instances.is_reduction(),
            self.element_bytes,
            self.n,
            device.properties(),
            resident,
        )?;
        let rows = self.row.map_or(1, |threads| {
            let of_row = threads.div_ceil(config.block.max(1)).max(1);
            blocks.div_ceil(of_row).clamp(1, device.properties().max_grid[1].max(1))
        });
        Ok(Plan { stream: self.stream, function, grid: [blocks.div_ceil(rows), rows], config })
    }

    /// Returns the tuned configuration for this operation from the device's store.
    fn tuned(&self, module: &Module) -> Option<Config> {
        let store = LaunchStore::of(module.device());
        if !store.has_tuned() {
            return None;
        }
        match &self.code {
            Code::Own(dtype) => tuned::find_own(&store, module, self.kernel, dtype, self.n, self.alignment),
            Code::Family { variants, is_reduction, .. } => {
                let (spec, types) = ((variants.first()?.spec)(), family_types(variants));
                let known = tuned::Known {
                    package: spec.package,
                    kernel: spec.name,
                    types: &types,
                    is_reduction: *is_reduction,
                };
                let instance = |config: &Config| of_config(variants, config);
                tuned::find(&store, module, &known, instance, self.n, self.alignment)
            }
        }
    }

    /// Returns the instance that a configuration specifies.
    fn instance(&self, config: &Config) -> Result<&'static KernelSpec> {
        match &self.code {
            Code::Own(dtype) => config::instance(self.kernel, dtype, config),
            Code::Family { variants, .. } => of_config(variants, config).ok_or_else(|| {
                let available = variants.iter().map(|variant| (variant.items, variant.vector)).collect();
                let types = match family_types(variants) {
                    none if none.is_empty() => "its types".to_owned(),
                    types => types,
                };
                config::no_such_variant(self.kernel, types, config, available)
            }),
        }
    }

    /// Enqueues the launch. Does nothing if there are no elements.
    ///
    /// # Safety
    /// The caller must uphold the safety contract of [`Plan::launch`].
    pub unsafe fn launch<P, A: Arguments<P>>(&self, arguments: A) -> Result<()> {
        if self.n == 0 {
            return Ok(());
        }
        // SAFETY: guaranteed by the caller.
        unsafe { self.plan()?.launch::<P, A>(arguments) }
    }
}

/// Returns the instance that a configuration specifies, for a user-defined function or operator.
fn of_config(variants: &[Variant], config: &Config) -> Option<&'static KernelSpec> {
    let is_it = |variant: &&Variant| (variant.items, variant.vector) == (config.items, config.vector);
    variants.iter().find(is_it).map(|variant| (variant.spec)())
}

/// Returns the type arguments of a user-defined function or operator, joined by commas.
fn family_types(variants: &[Variant]) -> String {
    let types = variants.first().map_or(&[][..], |variant| (variant.spec)().types);
    types.iter().map(|argument| argument.name).collect::<Vec<_>>().join(",")
}

/// An operation whose instance and grid have been selected.
pub(crate) struct Plan<'a> {
    stream: &'a Stream,
    function: Function,
    grid: [u32; 2],
    config: Config,
}

impl Plan<'_> {
    /// Returns the number of blocks in the grid.
    pub fn blocks(&self) -> u32 {
        self.grid[0] * self.grid[1]
    }

    /// Returns the selected configuration.
    #[cfg(feature = "scan")]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Enqueues the launch.
    ///
    /// # Safety
    /// `P` must be the markers of the kernel's parameters. If the kernel is unsafe, its conditions must hold for a
    /// launch of [`Self::blocks`] blocks with these arguments. The grid is one-dimensional, unless the operation is [in
    /// rows](Operation::in_rows_of).
    pub unsafe fn launch<P, A: Arguments<P>>(&self, arguments: A) -> Result<()> {
        let launch = Launch::grid_block((self.grid[0], self.grid[1]), self.config.block);
        // SAFETY: guaranteed by the caller.
        unsafe { self.function.launch_as::<P, A>(self.stream, launch, &arguments)? };
        Ok(())
    }
}
