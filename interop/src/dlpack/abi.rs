//! The C types of DLPack 1.3, with the names of `dlpack.h`.

use std::ffi::{c_char, c_int, c_void};

/// Major version of the layout. If a tensor has a different major version, only its deleter may be used.
pub const DLPACK_MAJOR_VERSION: u32 = 1;
/// Minor version.
pub const DLPACK_MINOR_VERSION: u32 = 3;

/// The consumer must not write to the tensor.
pub const DLPACK_FLAG_READ_ONLY: u64 = 1;
/// The producer made a copy for the consumer.
pub const DLPACK_FLAG_IS_COPIED: u64 = 2;
/// Elements of fewer than eight bits occupy one byte each. Without this flag, they are packed.
pub const DLPACK_FLAG_IS_SUBBYTE_TYPE_PADDED: u64 = 4;

/// Version of the structs.
///
/// ```
/// use warpsmith_interop::dlpack::{DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION, DLPackVersion};
///
/// let ours = DLPackVersion { major: DLPACK_MAJOR_VERSION, minor: DLPACK_MINOR_VERSION };
/// assert_eq!((ours.major, ours.minor), (1, 3));
/// ```
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DLPackVersion {
    /// Incremented when the layout changes.
    pub major: u32,
    /// Incremented when codes are added.
    pub minor: u32,
}

/// A device.
///
/// The example of [`Imported::from_tensor`](super::Imported::from_tensor) describes host memory.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DLDevice {
    /// `DLDeviceType`: one of the constants, or a device that this library does not use.
    pub device_type: i32,
    /// Index of the device; 0 for host and managed memory.
    pub device_id: i32,
}

impl DLDevice {
    /// `kDLCPU`: host memory.
    pub const CPU: i32 = 1;
    /// `kDLCUDA`: memory of a CUDA device.
    pub const CUDA: i32 = 2;
    /// `kDLCUDAHost`: page-locked host memory.
    pub const CUDA_HOST: i32 = 3;
    /// `kDLCUDAManaged`: managed (unified) memory.
    pub const CUDA_MANAGED: i32 = 13;
}

/// The type of the elements.
///
/// ```
/// use warpsmith_interop::dlpack::{DLDataType, Element};
///
/// assert_eq!(f32::DATA_TYPE, DLDataType { code: DLDataType::FLOAT, bits: 32, lanes: 1 });
/// assert_eq!(f32::DATA_TYPE.to_string(), "float32");
/// ```
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DLDataType {
    /// `DLDataTypeCode`.
    pub code: u8,
    /// Number of bits per lane.
    pub bits: u8,
    /// Number of lanes of a vector; 1 for a scalar.
    pub lanes: u16,
}

impl DLDataType {
    /// `kDLInt`: signed integer.
    pub const INT: u8 = 0;
    /// `kDLUInt`: unsigned integer.
    pub const UINT: u8 = 1;
    /// `kDLFloat`: IEEE floating point.
    pub const FLOAT: u8 = 2;
    /// `kDLBfloat`: `bfloat16`.
    pub const BFLOAT: u8 = 4;
    /// `kDLComplex`: complex number.
    pub const COMPLEX: u8 = 5;
    /// `kDLBool`: a byte that is 0 or 1.
    pub const BOOL: u8 = 6;
    /// `kDLFloat8_e4m3fn`.
    pub const FLOAT8_E4M3FN: u8 = 10;
    /// `kDLFloat8_e5m2`.
    pub const FLOAT8_E5M2: u8 = 12;
}

/// A tensor that does not own its memory.
///
/// See the example of [`Imported::from_tensor`](super::Imported::from_tensor).
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct DLTensor {
    /// Start of the memory; null for a tensor without elements.
    pub data: *mut c_void,
    /// Device of the memory.
    pub device: DLDevice,
    /// Number of dimensions.
    pub ndim: i32,
    /// Type of the elements.
    pub dtype: DLDataType,
    /// Sizes of the `ndim` dimensions.
    pub shape: *mut i64,
    /// Strides of the `ndim` dimensions, in elements. Null means contiguous row-major order; producers of version 1.2
    /// and later always set the strides.
    pub strides: *mut i64,
    /// Distance from `data` to the first element, in bytes.
    pub byte_offset: u64,
}

/// A tensor with its owner, in the format before version 1.0 (capsule `dltensor`).
///
/// See the example of [`Imported::from_raw_unversioned`](super::Imported::from_raw_unversioned).
#[repr(C)]
#[derive(Debug)]
pub struct DLManagedTensor {
    /// The tensor.
    pub dl_tensor: DLTensor,
    /// Pointer for the producer's use.
    pub manager_ctx: *mut c_void,
    /// Frees the tensor and this struct.
    pub deleter: Option<unsafe extern "C" fn(*mut DLManagedTensor)>,
}

/// A tensor with its owner (capsule `dltensor_versioned`).
///
/// See the [example](super), in which an export creates one and an import consumes it.
#[repr(C)]
#[derive(Debug)]
pub struct DLManagedTensorVersioned {
    /// Version of this struct.
    pub version: DLPackVersion,
    /// Pointer for the producer's use.
    pub manager_ctx: *mut c_void,
    /// Frees the tensor and this struct.
    pub deleter: Option<unsafe extern "C" fn(*mut DLManagedTensorVersioned)>,
    /// `DLPACK_FLAG_…`.
    pub flags: u64,
    /// The tensor.
    pub dl_tensor: DLTensor,
}

/// Reports an error of an allocator. The arguments are the context pointer that the allocator received, the kind of the
/// error, and its message.
pub type DLPackSetError = unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char);

/// First fields of every version of the C exchange API.
///
/// See the example of [`DLPackExchangeAPI`].
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct DLPackExchangeAPIHeader {
    /// Version of the table.
    pub version: DLPackVersion,
    /// Table of an older major version, or null if there is none.
    pub prev_api: *mut DLPackExchangeAPIHeader,
}

/// C exchange API of a producer's tensor type: a table of functions. The attribute `__dlpack_c_exchange_api__` of the
/// type is a capsule named `dlpack_exchange_api`, which contains a pointer to the table. The functions do not
/// synchronize streams: enqueue work on the stream that `current_work_stream` returns. They return 0, or -1 with a
/// Python exception set.
///
/// ```
/// use warpsmith_interop::dlpack::{DLPackExchangeAPI, DLPackExchangeAPIHeader, DLPackVersion};
///
/// /// Reports that all devices have the same current stream, the default stream.
/// unsafe extern "C" fn current(_: i32, _: i32, stream: *mut *mut std::ffi::c_void) -> i32 {
///     // SAFETY: the caller passes a valid pointer.
///     unsafe { stream.write(std::ptr::null_mut()) };
///     0
/// }
///
/// static TABLE: DLPackExchangeAPI = DLPackExchangeAPI {
///     header: DLPackExchangeAPIHeader {
///         version: DLPackVersion { major: 1, minor: 3 },
///         prev_api: std::ptr::null_mut(),
///     },
///     managed_tensor_allocator: None,
///     managed_tensor_from_py_object_no_sync: None,
///     managed_tensor_to_py_object_no_sync: None,
///     dltensor_from_py_object_no_sync: None,
///     current_work_stream: Some(current),
/// };
/// assert!(TABLE.current_work_stream.is_some());
/// ```
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct DLPackExchangeAPI {
    /// The version and a pointer to an older table.
    pub header: DLPackExchangeAPIHeader,
    /// Allocates a tensor with the type, shape and device of a prototype. The last two arguments are the context and
    /// the function to report an error.
    pub managed_tensor_allocator: Option<
        unsafe extern "C" fn(
            *mut DLTensor,
            *mut *mut DLManagedTensorVersioned,
            *mut c_void,
            Option<DLPackSetError>,
        ) -> c_int,
    >,
    /// Exports a Python tensor.
    pub managed_tensor_from_py_object_no_sync:
        Option<unsafe extern "C" fn(*mut c_void, *mut *mut DLManagedTensorVersioned) -> c_int>,
    /// Converts a tensor to a Python object, which takes ownership of the tensor.
    pub managed_tensor_to_py_object_no_sync:
        Option<unsafe extern "C" fn(*mut DLManagedTensorVersioned, *mut *mut c_void) -> c_int>,
    /// Describes a Python tensor without a change of ownership. This function is optional.
    pub dltensor_from_py_object_no_sync: Option<unsafe extern "C" fn(*mut c_void, *mut DLTensor) -> c_int>,
    /// Returns the current stream of the device with this type and index.
    pub current_work_stream: Option<unsafe extern "C" fn(i32, i32, *mut *mut c_void) -> c_int>,
}

// SAFETY: a table is constant, and its functions can be called on any thread.
unsafe impl Sync for DLPackExchangeAPI {}
// SAFETY: as above.
unsafe impl Send for DLPackExchangeAPI {}

#[cfg(all(test, target_pointer_width = "64"))]
mod tests {
    use std::mem::{offset_of, size_of};

    use super::*;

    #[test]
    fn layouts_are_those_of_the_header() {
        assert_eq!([size_of::<DLDevice>(), size_of::<DLDataType>(), size_of::<DLTensor>()], [8, 4, 48]);
        assert_eq!(
            [offset_of!(DLTensor, ndim), offset_of!(DLTensor, dtype), offset_of!(DLTensor, shape)],
            [16, 20, 24]
        );
        assert_eq!([size_of::<DLManagedTensor>(), size_of::<DLManagedTensorVersioned>()], [64, 80]);
        assert_eq!(
            [
                offset_of!(DLManagedTensorVersioned, manager_ctx),
                offset_of!(DLManagedTensorVersioned, deleter),
                offset_of!(DLManagedTensorVersioned, flags),
                offset_of!(DLManagedTensorVersioned, dl_tensor),
            ],
            [8, 16, 24, 32]
        );
        assert_eq!([size_of::<DLPackExchangeAPIHeader>(), size_of::<DLPackExchangeAPI>()], [16, 56]);
        assert_eq!(offset_of!(DLPackExchangeAPI, current_work_stream), 48);
    }
}
