//! [`Module`]: a loaded PTX, cubin or fatbin module.

use std::ffi::CStr;
use std::path::Path;

use warpsmith_runtime::{Code, Error, LoadError};

use crate::context;
use crate::error::{CudaError, CudaResult, DropResult, explained};
use crate::function::Function;
use crate::host_kernels::HostKernels;
use crate::memory::DeviceCopy;
pub use crate::symbol::Symbol;

/// Options of the PTX compiler. These options have no effect; the defaults of the driver apply.
#[allow(missing_docs, reason = "each is CUDA's option of that name")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ModuleJitOption {
    MaxRegisters(u32),
    GenenerateDebugInfo(bool),
    GenerateLineInfo(bool),
}

/// Module loaded on the current device of the thread.
///
/// On the emulated device, PTX selects those kernels of the program that have the same names. They run from their Rust
/// source, provided that the host crate depends on the kernel crate and uses it (`use kernels as _;`).
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
    /// Returns [`CudaError::InvalidPtx`] if the driver cannot compile the PTX. Returns [`CudaError::InvalidImage`] if
    /// the text is not PTX, or [`CudaError::NotSupported`] on the emulated device if the program contains none of the
    /// kernels. [`error::explanation`](crate::error::explanation) returns the compiler's message.
    pub fn from_ptx<T: AsRef<str>>(ptx: T, _: &[ModuleJitOption]) -> CudaResult<Module> {
        let ptx = ptx.as_ref();
        // cuda_builder writes this message if there was no device toolchain.
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

    /// Loads PTX from a C string.
    ///
    /// # Errors
    /// Returns the same errors as [`Self::from_ptx`].
    pub fn from_ptx_cstr(ptx: &CStr, options: &[ModuleJitOption]) -> CudaResult<Module> {
        let text = ptx
            .to_str()
            .map_err(|error| explained(CudaError::InvalidImage, format!("the PTX is not UTF-8: {error}")))?;
        Self::from_ptx(text, options)
    }

    /// Loads PTX from a file.
    ///
    /// # Errors
    /// Returns [`CudaError::FileNotFound`], or the same errors as [`Self::from_ptx`].
    pub fn from_ptx_file<P: AsRef<Path>>(path: P, options: &[ModuleJitOption]) -> CudaResult<Module> {
        let path = path.as_ref();
        let text = std::fs::read_to_string(path).map_err(|error| {
            explained(CudaError::FileNotFound, format!("cannot read {}: {error}", path.display()))
        })?;
        Self::from_ptx(text, options)
    }

    /// Loads a cubin, after checking its length.
    ///
    /// # Errors
    /// Returns [`CudaError::NoBinaryForGpu`] if the code was compiled for another architecture, or the same errors as
    /// [`Self::from_ptx`].
    pub fn from_cubin<T: AsRef<[u8]>>(bytes: T, _: &[ModuleJitOption]) -> CudaResult<Module> {
        Self::load(bytes.as_ref())
    }

    /// Loads a fatbin, after checking its length.
    ///
    /// # Errors
    /// Returns [`CudaError::NoBinaryForGpu`] if the code was compiled for another architecture, or the same errors as
    /// [`Self::from_ptx`].
    pub fn from_fatbin<T: AsRef<[u8]>>(bytes: T, _: &[ModuleJitOption]) -> CudaResult<Module> {
        Self::load(bytes.as_ref())
    }

    /// Loads PTX, a cubin or a fatbin from a file.
    ///
    /// # Errors
    /// Returns [`CudaError::FileNotFound`], or the same errors as [`Self::from_ptx`].
    pub fn from_file<P: AsRef<Path>>(path: P) -> CudaResult<Module> {
        // SAFETY: see `load`.
        match unsafe { context::current()?.load_code_file(&path) } {
            Err(Error::Load(LoadError::Emulated { .. })) => Self::from_ptx_file(path, &[]),
            loaded => Ok(Module { code: Loaded::Code(loaded?) }),
        }
    }

    fn load(bytes: &[u8]) -> CudaResult<Module> {
        let device = context::current()?;
        // SAFETY: as in Rust-CUDA, the function is safe, because the caller of the unsafe launch guarantees that a
        // compiler has produced the code. The runtime checks that the bytes have one of the supported formats and are
        // complete.
        let loaded = unsafe { device.load_code(bytes) };
        let code = match (loaded, std::str::from_utf8(bytes)) {
            (Err(Error::Load(LoadError::Emulated { .. })), Ok(ptx)) => {
                Loaded::Host(HostKernels::new(device, Some(ptx))?)
            }
            (loaded, _) => Loaded::Code(loaded?),
        };
        Ok(Module { code })
    }

    /// Finds a kernel by name.
    ///
    /// # Errors
    /// Returns [`CudaError::NotFound`], whose explanation lists the names that exist.
    pub fn get_function<T: AsRef<str>>(&self, name: T) -> CudaResult<Function<'_>> {
        let name = name.as_ref();
        Ok(Function::new(match &self.code {
            Loaded::Code(code) => code.kernel(name)?,
            Loaded::Host(kernels) => kernels.function(name)?,
        }))
    }

    /// Finds a global variable by its name in the PTX, in order to copy data to or from it. Statics with
    /// `#[address_space(constant)]` or `#[address_space(global)]` have a predictable name only with `#[no_mangle]`.
    ///
    /// ```no_run
    /// use cust::prelude::*;
    ///
    /// # let _context = cust::quick_init()?;
    /// let module = Module::from_ptx(std::fs::read_to_string("kernels.ptx")?, &[])?;
    /// let mut weights = module.get_global::<[f32; 5]>(c"WEIGHTS")?;
    /// weights.copy_from(&[0.1, 0.2, 0.4, 0.2, 0.1])?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`CudaError::NotFound`]; [`CudaError::InvalidValue`] if the size of the variable differs;
    /// [`CudaError::NotSupported`] on the emulated device, on which the variable is a static of the kernel crate.
    pub fn get_global<'a, T: DeviceCopy>(&'a self, name: &CStr) -> CudaResult<Symbol<'a, T>> {
        let name = name.to_string_lossy();
        let Loaded::Code(code) = &self.code else {
            let text = format!(
                "on the emulated device the global `{name}` is a static of the kernel crate, which the host cannot \
                 access by name: pass a buffer to the kernel"
            );
            return Err(explained(CudaError::NotSupported, text));
        };
        let (address, bytes) = code.global(&name)?;
        if bytes != size_of::<T>() {
            let (ty, size) = (std::any::type_name::<T>(), size_of::<T>());
            let text = format!(
                "the global `{name}` has {bytes} bytes, but {ty} has {size}: use the type of its declaration"
            );
            return Err(explained(CudaError::InvalidValue, text));
        }
        Ok(Symbol::new(address.0))
    }

    /// Returns the corresponding code of the runtime, or `None` on the emulated device, on which kernels run from their
    /// Rust source.
    pub fn runtime(&self) -> Option<&Code> {
        match &self.code {
            Loaded::Code(code) => Some(code),
            Loaded::Host(_) => None,
        }
    }

    /// Drops the module after the work that uses it.
    ///
    /// # Errors
    /// Never returns an error.
    pub fn drop(module: Module) -> DropResult<Module> {
        std::mem::drop(module);
        Ok(())
    }
}
