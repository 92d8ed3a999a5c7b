//! Links code: with NVIDIA's device runtime at load time, or several files into one.

use std::ffi::{CStr, c_void};
use std::sync::Arc;

use cudarc::driver::sys;

use super::call::{check, invalid};
use super::module::{LOG_BYTES, terminated};
use crate::ModuleSource;
use crate::error::{DriverError, Result};

/// A link in progress, with the memory that the driver uses until the link is destroyed: the options, their values, and
/// the log to which one value points.
struct Link {
    state: sys::CUlinkState,
    log: Vec<u8>,
    _options: Vec<sys::CUjit_option>,
    _values: Vec<*mut c_void>,
}

/// Links `code` with `library` and calls `load` with the resulting machine code.
pub(super) fn with_linked<R>(
    code: &CStr,
    library: &[u8],
    load: impl FnOnce(*const c_void) -> Result<R>,
) -> Result<R> {
    with_linked_input(sys::CUjitInputType::CU_JIT_INPUT_PTX, code.to_bytes_with_nul(), library, load)
}

/// Like [`with_linked`], but for relocatable machine code.
pub(super) fn with_linked_cubin<R>(
    code: &[u8],
    library: &[u8],
    load: impl FnOnce(*const c_void) -> Result<R>,
) -> Result<R> {
    with_linked_input(sys::CUjitInputType::CU_JIT_INPUT_CUBIN, code, library, load)
}

/// Links several code files into one cubin.
pub(super) fn link(parts: &[ModuleSource<'_>]) -> Result<Vec<u8>> {
    const FATBIN: [u8; 4] = 0xba55_ed50_u32.to_le_bytes();
    use sys::CUjitInputType as Kind;
    let mut link = Link::new()?;
    for part in parts {
        match *part {
            ModuleSource::Ptx(text) => {
                let text = terminated(text)?;
                link.add(Kind::CU_JIT_INPUT_PTX, text.to_bytes_with_nul(), c"PTX")?;
            }
            ModuleSource::Cubin(code) if code.starts_with(&FATBIN) => {
                link.add(Kind::CU_JIT_INPUT_FATBINARY, code, c"fatbin")?;
            }
            ModuleSource::Cubin(code) => link.add(Kind::CU_JIT_INPUT_CUBIN, code, c"cubin")?,
            ModuleSource::Linked { .. } | ModuleSource::HostEntries => {
                return Err(invalid(
                    "cuLinkAddData",
                    "only PTX, cubins and fatbins can be linked".to_owned(),
                ));
            }
        }
    }
    let (image, bytes) = link.complete()?;
    // SAFETY: the driver returned an image of this size, which lives until the link is dropped.
    Ok(unsafe { std::slice::from_raw_parts(image.cast::<u8>(), bytes) }.to_vec())
}

fn with_linked_input<R>(
    kind: sys::CUjitInputType,
    code: &[u8],
    library: &[u8],
    load: impl FnOnce(*const c_void) -> Result<R>,
) -> Result<R> {
    let mut link = Link::new()?;
    link.add(kind, code, c"kernels")?;
    link.add(sys::CUjitInputType::CU_JIT_INPUT_LIBRARY, library, c"libcudadevrt.a")?;
    load(link.complete()?.0)
}

impl Link {
    fn new() -> Result<Self> {
        let mut log = vec![0u8; LOG_BYTES];
        let mut options = vec![
            sys::CUjit_option::CU_JIT_ERROR_LOG_BUFFER,
            sys::CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
        ];
        // The driver expects the size itself in place of a pointer.
        let mut values = vec![log.as_mut_ptr().cast::<c_void>(), std::ptr::without_provenance_mut(LOG_BYTES)];
        let mut state = std::ptr::null_mut();
        // SAFETY: the option count matches, and each option has a value of its type; the log has the given size. All
        // three outlive the state, which `Drop` destroys first.
        let result = unsafe {
            sys::cuLinkCreate_v2(options.len() as u32, options.as_mut_ptr(), values.as_mut_ptr(), &mut state)
        };
        check("cuLinkCreate", result)?;
        Ok(Self { state, log, _options: options, _values: values })
    }

    fn add(&mut self, kind: sys::CUjitInputType, data: &[u8], name: &CStr) -> Result<()> {
        // Machine code must be aligned, but embedded bytes may not be.
        let mut aligned = vec![0u64; data.len().div_ceil(8)];
        // SAFETY: the words are large enough for the bytes and do not overlap them.
        unsafe { aligned.as_mut_ptr().cast::<u8>().copy_from_nonoverlapping(data.as_ptr(), data.len()) };
        // SAFETY: the state is alive. The driver copies what it needs of the data, which has this many bytes; the name
        // is a C string.
        let result = unsafe {
            sys::cuLinkAddData_v2(
                self.state,
                kind,
                aligned.as_mut_ptr().cast(),
                data.len(),
                name.as_ptr(),
                0,
                std::ptr::null_mut(),
                std::ptr::null_mut(),
            )
        };
        check("cuLinkAddData", result).map_err(|error| self.rejected(error))
    }

    /// Returns the linked machine code, owned by the link, and its size in bytes.
    fn complete(&mut self) -> Result<(*const c_void, usize)> {
        let (mut image, mut bytes) = (std::ptr::null_mut(), 0);
        // SAFETY: the state is alive; the pointers are to local variables.
        let result = unsafe { sys::cuLinkComplete(self.state, &mut image, &mut bytes) };
        check("cuLinkComplete", result).map_err(|error| self.rejected(error))?;
        Ok((image, bytes))
    }

    fn rejected(&self, error: DriverError) -> DriverError {
        let used = self.log.iter().position(|byte| *byte == 0).unwrap_or(self.log.len());
        let log = String::from_utf8_lossy(&self.log[..used]).trim().to_owned();
        DriverError::ImageRejected { source_error: Arc::new(error), log }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // SAFETY: the state was created in `new` and is not used again. An error cannot be reported here.
        let _ = unsafe { sys::cuLinkDestroy(self.state) };
    }
}
