//! cuFFT's functions, with errors that say what failed.
//!
//! Those of `cufftXt.h`, which know half precision, are not in the bindings; and cuFFT's codes differ between its versions.
//! So all are found here by name, and give numbers.

use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

use cudarc::cufft::sys;

use super::element::Precision;
use super::shape::Key;
use super::{Call, Direction, Kind};
use crate::Vendor;
use crate::error::LibraryError;
use warpsmith_core::driver::{DevicePtr, StreamHandle};
use warpsmith_core::error::{Error, Result};

/// A plan's number.
pub(super) type Handle = c_int;

/// A type of CUDA's `library_types.h`.
type DataType = u32;

type MakePlanMany = unsafe extern "C" fn(
    Handle,
    c_int,
    *mut i64,
    *mut i64,
    i64,
    i64,
    DataType,
    *mut i64,
    i64,
    i64,
    DataType,
    i64,
    *mut usize,
    DataType,
) -> c_int;

pub(super) struct Functions {
    create: unsafe extern "C" fn(*mut Handle) -> c_int,
    destroy: unsafe extern "C" fn(Handle) -> c_int,
    set_auto_allocation: unsafe extern "C" fn(Handle, c_int) -> c_int,
    set_stream: unsafe extern "C" fn(Handle, *mut c_void) -> c_int,
    set_work_area: unsafe extern "C" fn(Handle, *mut c_void) -> c_int,
    make_plan_many: MakePlanMany,
    execute: unsafe extern "C" fn(Handle, *mut c_void, *mut c_void, c_int) -> c_int,
}

impl Functions {
    /// The functions of the library that is there.
    pub fn get(operation: &'static str) -> Result<&'static Self> {
        static FUNCTIONS: OnceLock<Option<Functions>> = OnceLock::new();
        Vendor::Cufft.version()?;
        FUNCTIONS.get_or_init(Self::load).as_ref().ok_or_else(|| {
            LibraryError::Unsupported {
                operation,
                what: "this version of cuFFT".to_owned(),
                needs: Some("one of CUDA 12.0 or newer".to_owned()),
            }
            .into()
        })
    }

    /// The library is loaded.
    fn load() -> Option<Self> {
        macro_rules! find {
            ($name:literal) => {
                // SAFETY: the library is loaded, and the field's type is that of the function of this name.
                unsafe { *sys::culib().get($name).ok()? }
            };
        }
        Some(Self {
            create: find!(b"cufftCreate\0"),
            destroy: find!(b"cufftDestroy\0"),
            set_auto_allocation: find!(b"cufftSetAutoAllocation\0"),
            set_stream: find!(b"cufftSetStream\0"),
            set_work_area: find!(b"cufftSetWorkArea\0"),
            make_plan_many: find!(b"cufftXtMakePlanMany\0"),
            execute: find!(b"cufftXtExec\0"),
        })
    }

    /// A plan that is not made yet. A context is current, as in what follows.
    pub fn create(&self) -> Result<Handle> {
        let mut handle = 0;
        // SAFETY: the pointer is to a local variable.
        check("cufftCreate", unsafe { (self.create)(&mut handle) })?;
        Ok(handle)
    }

    /// Makes a plan without a work area; gives the bytes that it needs.
    pub fn make(&self, operation: &'static str, handle: Handle, key: &Key) -> Result<usize> {
        // SAFETY: the handle is a plan's.
        check("cufftSetAutoAllocation", unsafe { (self.set_auto_allocation)(handle, 0) })?;
        let mut sizes = [1i64; 3];
        let rank = key.sizes().len();
        for (to, from) in sizes.iter_mut().zip(key.sizes()) {
            *to = i64::try_from(*from).unwrap_or(i64::MAX);
        }
        let (real, complex) = match key.precision {
            Precision::Single => (0, 4),
            Precision::Double => (1, 5),
            Precision::Half => (2, 6),
        };
        let (input, output) = match key.kind {
            Kind::Complex => (complex, complex),
            Kind::FromReal => (real, complex),
            Kind::ToReal => (complex, real),
        };
        let batch = i64::try_from(key.batch).unwrap_or(i64::MAX);
        let (none, mut bytes) = (std::ptr::null_mut(), 0);
        // SAFETY: `sizes` has `rank` elements; without embeddings the data is contiguous; the last pointer is to a local
        // variable.
        let status = unsafe {
            (self.make_plan_many)(
                handle,
                rank as c_int,
                sizes.as_mut_ptr(),
                none,
                1,
                1,
                input,
                none,
                1,
                1,
                output,
                batch,
                &mut bytes,
                complex,
            )
        };
        let made = check("cufftXtMakePlanMany", status);
        made.map_err(|error| with_context(error, || format!("{operation}, {}", key.describe())))?;
        Ok(bytes)
    }

    pub fn set_stream(&self, handle: Handle, stream: StreamHandle) -> Result<()> {
        // SAFETY: both handles are alive.
        check("cufftSetStream", unsafe { (self.set_stream)(handle, stream.0 as *mut c_void) })
    }

    /// Enqueues a transform.
    ///
    /// # Safety
    /// The three ranges are as the plan wants them; nobody else uses the plan meanwhile.
    pub unsafe fn execute(
        &self,
        call: Call,
        handle: Handle,
        area: DevicePtr,
        input: DevicePtr,
        output: DevicePtr,
    ) -> Result<()> {
        let pointer = |ptr: DevicePtr| ptr.0 as *mut c_void;
        if area != DevicePtr::NULL {
            // SAFETY: passed on from the caller.
            check("cufftSetWorkArea", unsafe { (self.set_work_area)(handle, pointer(area)) })?;
        }
        let direction = match call.direction {
            Direction::Forward => -1,
            Direction::Inverse => 1,
        };
        // SAFETY: passed on from the caller.
        check("cufftXtExec", unsafe { (self.execute)(handle, pointer(input), pointer(output), direction) })
    }

    /// Frees a plan, which nobody uses any more.
    pub fn destroy(&self, handle: Handle) {
        // SAFETY: the handle is a plan's and goes away.
        unsafe { (self.destroy)(handle) };
    }
}

fn check(call: &'static str, status: c_int) -> Result<()> {
    let name = match status {
        0 => return Ok(()),
        1 => "CUFFT_INVALID_PLAN",
        2 => "CUFFT_ALLOC_FAILED",
        3 => "CUFFT_INVALID_TYPE",
        4 => "CUFFT_INVALID_VALUE",
        5 => "CUFFT_INTERNAL_ERROR",
        6 => "CUFFT_EXEC_FAILED",
        7 => "CUFFT_SETUP_FAILED",
        8 => "CUFFT_INVALID_SIZE",
        9 => "CUFFT_UNALIGNED_DATA",
        10 => "CUFFT_INCOMPLETE_PARAMETER_LIST",
        11 => "CUFFT_INVALID_DEVICE",
        12 => "CUFFT_PARSE_ERROR",
        13 => "CUFFT_NO_WORKSPACE",
        14 => "CUFFT_NOT_IMPLEMENTED",
        15 => "CUFFT_LICENSE_ERROR",
        16 => "CUFFT_NOT_SUPPORTED",
        17 => "CUFFT_MISSING_DEPENDENCY",
        18 => "CUFFT_NVRTC_FAILURE",
        19 => "CUFFT_NVJITLINK_FAILURE",
        20 => "CUFFT_NVSHMEM_FAILURE",
        _ => "an unknown error",
    };
    let status = if name.starts_with('C') { name.to_owned() } else { format!("{name}, {status}") };
    Err(LibraryError::Call { library: "cuFFT", call, status, context: None }.into())
}

/// The error with what was asked for.
pub(super) fn with_context(error: Error, context: impl FnOnce() -> String) -> Error {
    match error.downcast_ref() {
        Some(LibraryError::Call { library, call, status, context: None }) => {
            LibraryError::Call { library, call, status: status.clone(), context: Some(context()) }.into()
        }
        _ => error,
    }
}
