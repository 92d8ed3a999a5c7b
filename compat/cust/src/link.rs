//! [`Linker`]: links several code files into one.

use warpsmith_runtime::{Error, LoadError};

use crate::context;
use crate::error::CudaResult;

/// Links PTX, cubins and fatbins into one cubin.
///
/// The inputs are read only when [`complete`](Self::complete) is called. On the emulated device, the result of linking
/// PTX is the PTX of all inputs, from which [`Module::from_cubin`](crate::module::Module::from_cubin) reads the kernel
/// names.
///
/// ```no_run
/// use cust::link::Linker;
/// use cust::module::Module;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let _context = cust::quick_init()?;
/// let mut linker = Linker::new()?;
/// linker.add_ptx(std::fs::read_to_string("kernels.ptx")?)?;
/// linker.add_cubin(std::fs::read("functions.cubin")?)?;
/// let module = Module::from_cubin(linker.complete()?, &[])?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Linker {
    parts: Vec<Vec<u8>>,
}

impl Linker {
    /// Creates a linker for the current device of the thread.
    ///
    /// # Errors
    ///
    /// Returns [`CudaError::InvalidContext`](crate::error::CudaError::InvalidContext) if there is no current context.
    pub fn new() -> CudaResult<Self> {
        context::current()?;
        Ok(Self { parts: Vec::new() })
    }

    /// Adds PTX.
    ///
    /// # Errors
    ///
    /// Never returns an error; see [`Self::complete`].
    pub fn add_ptx(&mut self, ptx: impl AsRef<str>) -> CudaResult<()> {
        self.add(ptx.as_ref().as_bytes())
    }

    /// Adds a cubin.
    ///
    /// # Errors
    ///
    /// Never returns an error; see [`Self::complete`].
    pub fn add_cubin(&mut self, cubin: impl AsRef<[u8]>) -> CudaResult<()> {
        self.add(cubin.as_ref())
    }

    /// Adds a fatbin.
    ///
    /// # Errors
    ///
    /// Never returns an error; see [`Self::complete`].
    pub fn add_fatbin(&mut self, fatbin: impl AsRef<[u8]>) -> CudaResult<()> {
        self.add(fatbin.as_ref())
    }

    fn add(&mut self, part: &[u8]) -> CudaResult<()> {
        self.parts.push(part.to_vec());
        Ok(())
    }

    /// Links all inputs into a cubin for the current device of the thread.
    ///
    /// # Errors
    ///
    /// Returns [`CudaError::InvalidImage`](crate::error::CudaError::InvalidImage) if the format of an input is unknown,
    /// or if there are no inputs. Returns [`CudaError::InvalidPtx`](crate::error::CudaError::InvalidPtx) and other
    /// codes for linker errors; [`error::explanation`](crate::error::explanation) returns the linker's message.
    pub fn complete(self) -> CudaResult<Vec<u8>> {
        let device = context::current()?;
        // SAFETY: as for `Module`, the caller that launches the kernels guarantees that a compiler has produced the
        // code.
        let linked = unsafe { device.link_code(&self.parts) };
        match (linked, self.parts.iter().map(|part| str::from_utf8(part)).collect::<Result<Vec<_>, _>>()) {
            (Err(Error::Load(LoadError::Emulated { .. })), Ok(ptx)) => Ok(ptx.join("\n").into_bytes()),
            (linked, _) => Ok(linked?),
        }
    }
}
