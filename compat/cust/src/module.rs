//! [`Module`]: PTX, a cubin or a fatbin, loaded.

use std::path::Path;

use warpsmith_runtime::{Code, Error, LoadError};

use crate::context;
use crate::error::{CudaError, CudaResult, DropResult, explained};
use crate::function::Function;
use crate::host_kernels::HostKernels;

/// Options of the PTX compiler. They have no effect: the driver's own settings are used.
#[allow(missing_docs, reason = "each is CUDA's option of that name")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ModuleJitOption {
    MaxRegisters(u32),
    OptLevel(OptLevel),
    DetermineTargetFromContext,
    Target(JitTarget),
    Fallback(JitFallback),
    GenenerateDebugInfo(bool),
    GenerateLineInfo(bool),
}

/// A level of optimisation.
#[allow(missing_docs, reason = "each is named by its number")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OptLevel {
    O0,
    O1,
    O2,
    O3,
    O4,
}

/// A compute capability.
#[allow(missing_docs, reason = "each is named by its number")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum JitTarget {
    Compute70,
    Compute75,
    Compute80,
    Compute86,
    Compute89,
    Compute90,
}

/// What to do when there is no matching machine code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum JitFallback {
    /// Compile the PTX.
    PreferPtx,
    /// Use compatible machine code.
    PreferCompatibleBinary,
}

/// Code on the thread's device.
///
/// On the emulated device, PTX stands for the kernels of its names in the program: they run from their Rust source, when the
/// host crate depends on the kernel crate and uses it (`use kernels as _;`).
#[derive(Debug)]
pub struct Module {
    code: Loaded,
}

#[derive(Debug)]
enum Loaded {
    Code(Code),
    Host(HostKernels),
}

impl Module {
    /// Loads PTX.
    ///
    /// # Errors
    ///
    /// [`CudaError::InvalidPtx`] for what the driver cannot compile, [`CudaError::InvalidImage`] for text that is no PTX,
    /// [`CudaError::NotSupported`] on the emulated device when the program has none of its kernels;
    /// [`error::explanation`](crate::error::explanation) has the compiler's text.
    pub fn from_ptx<T: AsRef<str>>(ptx: T, _: &[ModuleJitOption]) -> CudaResult<Module> {
        let ptx = ptx.as_ref();
        // What cuda_builder writes when it had no compiler.
        if let Some(reason) = ptx.trim().strip_prefix("// No GPU code: ") {
            let device = context::current()?;
            if device.is_emulated() {
                return Ok(Module { code: Loaded::Host(HostKernels::new(device, None)?) });
            }
            return Err(explained(
                CudaError::InvalidImage,
                format!("the PTX is empty: {reason}. Install it, and build the program again"),
            ));
        }
        Self::load(ptx.as_bytes())
    }

    /// Loads PTX from a file.
    ///
    /// # Errors
    ///
    /// [`CudaError::FileNotFound`]; as [`Self::from_ptx`].
    pub fn from_ptx_file<P: AsRef<Path>>(path: P, options: &[ModuleJitOption]) -> CudaResult<Module> {
        let path = path.as_ref();
        let text = std::fs::read_to_string(path).map_err(|error| {
            explained(CudaError::FileNotFound, format!("cannot read {}: {error}", path.display()))
        })?;
        Self::from_ptx(text, options)
    }

    /// Loads a cubin.
    ///
    /// # Errors
    ///
    /// [`CudaError::NoBinaryForGpu`] for one of another architecture; as [`Self::from_ptx`].
    ///
    /// # Safety
    ///
    /// It is the unmodified output of a compiler.
    pub unsafe fn from_cubin_unchecked<T: AsRef<[u8]>>(
        bytes: T,
        _: &[ModuleJitOption],
    ) -> CudaResult<Module> {
        Self::load(bytes.as_ref())
    }

    /// Loads a cubin: its length is checked.
    ///
    /// # Errors
    ///
    /// As [`Self::from_cubin_unchecked`].
    pub fn from_cubin<T: AsRef<[u8]>>(bytes: T, _: &[ModuleJitOption]) -> CudaResult<Module> {
        Self::load(bytes.as_ref())
    }

    /// Loads a fatbin: its length is checked.
    ///
    /// # Errors
    ///
    /// As [`Self::from_cubin_unchecked`].
    pub fn from_fatbin<T: AsRef<[u8]>>(bytes: T, _: &[ModuleJitOption]) -> CudaResult<Module> {
        Self::load(bytes.as_ref())
    }

    /// Loads a fatbin.
    ///
    /// # Errors
    ///
    /// As [`Self::from_cubin_unchecked`].
    ///
    /// # Safety
    ///
    /// It is the unmodified output of a compiler.
    pub unsafe fn from_fatbin_unchecked<T: AsRef<[u8]>>(
        bytes: T,
        _: &[ModuleJitOption],
    ) -> CudaResult<Module> {
        Self::load(bytes.as_ref())
    }

    /// Loads code of any of these forms from a file.
    ///
    /// # Errors
    ///
    /// [`CudaError::FileNotFound`]; as [`Self::from_ptx`].
    pub fn from_file<P: AsRef<Path>>(path: P) -> CudaResult<Module> {
        // SAFETY: see `load`.
        match unsafe { context::current()?.load_code_file(&path) } {
            Err(Error::Load(LoadError::Emulated { .. })) => Self::from_ptx_file(path, &[]),
            loaded => Ok(Module { code: Loaded::Code(loaded?) }),
        }
    }

    fn load(bytes: &[u8]) -> CudaResult<Module> {
        let device = context::current()?;
        // SAFETY: Rust-CUDA's functions are safe: that the code is a compiler's is promised by whoever launches its kernels,
        // which is unsafe. The runtime checks that the bytes are one of the forms and whole.
        let loaded = unsafe { device.load_code(bytes) };
        let code = match (loaded, std::str::from_utf8(bytes)) {
            (Err(Error::Load(LoadError::Emulated { .. })), Ok(ptx)) => {
                Loaded::Host(HostKernels::new(device, Some(ptx))?)
            }
            (loaded, _) => Loaded::Code(loaded?),
        };
        Ok(Module { code })
    }

    /// A kernel by its name.
    ///
    /// # Errors
    ///
    /// [`CudaError::NotFound`]; the explanation lists the names that there are.
    pub fn get_function<T: AsRef<str>>(&self, name: T) -> CudaResult<Function<'_>> {
        let name = name.as_ref();
        Ok(Function::new(match &self.code {
            Loaded::Code(code) => code.kernel(name)?,
            Loaded::Host(kernels) => kernels.function(name)?,
        }))
    }

    /// The runtime's code; `None` on the emulated device, where kernels run from their Rust source.
    pub fn runtime(&self) -> Option<&Code> {
        match &self.code {
            Loaded::Code(code) => Some(code),
            Loaded::Host(_) => None,
        }
    }

    /// Drops the module, after work that uses it.
    ///
    /// # Errors
    ///
    /// None.
    pub fn drop(module: Module) -> DropResult<Module> {
        std::mem::drop(module);
        Ok(())
    }
}
