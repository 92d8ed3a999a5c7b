//! [`DlpackError`]: tensors that cannot be exchanged.

use warpsmith_runtime::{DeviceId, Error};

use super::{DLDataType, DLDevice};

/// A tensor that cannot be imported or exported, or an invalid request for a tensor.
///
/// ```
/// use warpsmith_interop::dlpack::{DlpackError, Imported};
///
/// // SAFETY: a null pointer is allowed.
/// let error = unsafe { Imported::from_raw(std::ptr::null_mut()) }.err().expect("there is no tensor");
/// assert_eq!(error.downcast_ref(), Some(&DlpackError::NoTensor));
/// ```
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum DlpackError {
    /// The pointer to the tensor is null.
    #[error(
        "the DLPack tensor is null because the capsule was already consumed; request a new capsule from the producer"
    )]
    NoTensor,

    /// The tensor has an unsupported DLPack version.
    #[error(
        "the tensor has DLPack version {major}.{minor}, but this library reads version 1; pass `max_version=(1, 3)` \
         to `__dlpack__`"
    )]
    Version {
        /// The tensor's major version.
        major: u32,
        /// The tensor's minor version.
        minor: u32,
    },

    /// The number of dimensions is negative or too large.
    #[error("the tensor has {ndim} dimensions, but can have at most 64; reshape it")]
    Dimensions {
        /// Number of dimensions.
        ndim: i64,
    },

    /// The shape is missing.
    #[error("the tensor has {ndim} dimensions but a null shape; the producer must set `shape`")]
    NoShape {
        /// Number of dimensions.
        ndim: i32,
    },

    /// An extent is negative.
    #[error("dimension {dimension} has {extent} elements; an extent cannot be negative")]
    NegativeExtent {
        /// Index of the dimension.
        dimension: usize,
        /// Extent of the dimension.
        extent: i64,
    },

    /// A stride is negative.
    #[error(
        "dimension {dimension} has the negative stride {stride}; make the tensor contiguous, or flip it after the \
         import"
    )]
    NegativeStride {
        /// Index of the dimension.
        dimension: usize,
        /// Stride of the dimension, in elements.
        stride: i64,
    },

    /// A dimension repeats its elements.
    #[error(
        "dimension {dimension} repeats one element {extent} times (stride 0); make the tensor contiguous, or \
         broadcast it after the import"
    )]
    Broadcast {
        /// Index of the dimension.
        dimension: usize,
        /// Extent of the dimension.
        extent: i64,
    },

    /// Several indices refer to the same element.
    #[error("with strides {strides:?}, elements of shape {shape:?} overlap; make the tensor contiguous")]
    Overlap {
        /// The shape.
        shape: Vec<i64>,
        /// The strides, in elements.
        strides: Vec<i64>,
    },

    /// The size overflows.
    #[error("a tensor of shape {shape:?} and strides {strides:?} is larger than the address space")]
    TooLarge {
        /// The shape.
        shape: Vec<i64>,
        /// The strides, in elements; empty if there are none.
        strides: Vec<i64>,
    },

    /// The tensor has elements but no memory.
    #[error("the tensor has {elements} elements but a null data pointer; the producer must set `data`")]
    NoData {
        /// Number of elements.
        elements: usize,
    },

    /// The address of the first element overflows.
    #[error("the tensor starts {byte_offset} bytes after {address:#x}, beyond the last address")]
    Offset {
        /// Value of `data`.
        address: u64,
        /// Value of `byte_offset`.
        byte_offset: u64,
    },

    /// The address is not aligned for the element type.
    #[error(
        "the tensor's address {address:#x} is not a multiple of {align} bytes, the alignment of its elements; copy \
         the tensor (`clone`)"
    )]
    Misaligned {
        /// Address of the first element.
        address: u64,
        /// Alignment of the elements, in bytes.
        align: usize,
    },

    /// The elements are vectors.
    #[error(
        "the elements are vectors ({found}); export the same memory as a tensor of scalars with one more dimension"
    )]
    Lanes {
        /// Type of the elements.
        found: DLDataType,
    },

    /// The elements are smaller than a byte.
    #[error("the elements have {} bits ({found}); view them as `uint8`", found.bits)]
    SubByte {
        /// Type of the elements.
        found: DLDataType,
    },

    /// The element type differs from the requested type.
    #[error(
        "the elements are {found}, not {expected}; import them with their own type, or convert the tensor first"
    )]
    DataType {
        /// Type of the elements.
        found: DLDataType,
        /// Requested type.
        expected: DLDataType,
    },

    /// The tensor and the stream are on different kinds of devices.
    #[error(
        "the tensor is on DLPack device {}:{}, but the stream is on {stream}; a CUDA stream accepts CUDA (2), CUDA \
         host (3) and managed memory (13), and an emulated stream CPU memory (1): copy the tensor there first",
        found.device_type, found.device_id
    )]
    Device {
        /// Device of the tensor.
        found: DLDevice,
        /// Device of the stream.
        stream: DeviceId,
    },

    /// The tensor is read-only.
    #[error(
        "the tensor is read-only; read it with `Imported::into_tensor`, or pass `copy=True` to `__dlpack__`"
    )]
    ReadOnly,

    /// The unversioned form cannot express that the tensor is read-only.
    #[error(
        "the unversioned DLPack form cannot mark the tensor as read-only; export it with `Export::into_raw`"
    )]
    ReadOnlyUnversioned,

    /// The elements are not contiguous.
    #[error(
        "a tensor of shape {shape:?} and strides {strides:?} is not contiguous; use `Tensor::as_2d` or \
         `Tensor::as_3d`, or make it contiguous"
    )]
    NotContiguous {
        /// The shape.
        shape: Vec<i64>,
        /// The strides, in elements.
        strides: Vec<i64>,
    },

    /// The tensor and the view have different numbers of dimensions.
    #[error(
        "a {expected}-D view was requested of a tensor with {found} dimensions; reshape the tensor, or use another \
         view"
    )]
    Rank {
        /// Number of dimensions of the tensor.
        found: usize,
        /// Number of dimensions of the view.
        expected: usize,
    },

    /// The elements of a row are not adjacent.
    #[error(
        "the last dimension has stride {stride}, but a view requires stride 1; make the tensor contiguous"
    )]
    ColumnStride {
        /// Stride of the last dimension, in elements.
        stride: usize,
    },

    /// The shape does not match the buffer.
    #[error(
        "a tensor of shape {shape:?} needs {needed} elements starting at element {offset}, but the buffer has {len}; \
         use a smaller shape"
    )]
    Shape {
        /// The shape.
        shape: Vec<usize>,
        /// Index of the first element.
        offset: usize,
        /// Number of elements from the first to the last element of the tensor.
        needed: usize,
        /// Length of the buffer.
        len: usize,
    },

    /// Shape and strides have different lengths.
    #[error(
        "the shape has {shape} dimensions, but there are {strides} strides; pass one stride per dimension"
    )]
    Strides {
        /// Number of extents.
        shape: usize,
        /// Number of strides.
        strides: usize,
    },

    /// The stream argument is invalid.
    #[error(
        "{stream} is not a stream; pass 1 for CUDA's legacy default stream, 2 for the per-thread default stream, -1 \
         for no synchronization, or a stream handle"
    )]
    Stream {
        /// Value of the argument.
        stream: i64,
    },

    /// A tensor in host memory has no streams.
    #[error(
        "the tensor is in host memory, which has no streams, but the stream is {stream}; pass `stream=None`"
    )]
    HostStream {
        /// Value of the argument.
        stream: i64,
    },

    /// A type has no code in `__cuda_array_interface__`.
    #[error("`__cuda_array_interface__` does not support the type {found}; use DLPack")]
    NoTypestr {
        /// Type of the elements.
        found: DLDataType,
    },

    /// An object's `__cuda_array_interface__` cannot be read.
    #[error("`__cuda_array_interface__` has {what}; use DLPack, or copy the array to a supported form")]
    CudaArray {
        /// The problem.
        what: String,
    },
}

impl From<DlpackError> for Error {
    #[cold]
    fn from(error: DlpackError) -> Self {
        Error::extension(error)
    }
}
