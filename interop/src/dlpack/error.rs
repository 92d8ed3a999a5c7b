//! [`DlpackError`]: tensors that cannot be exchanged.

use warpsmith_runtime::{DeviceId, Error};

use super::{DLDataType, DLDevice};

/// A tensor that cannot be imported or exported, or a request that does not fit it.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum DlpackError {
    /// The pointer to the tensor is null.
    #[error(
        "the DLPack tensor is null; a capsule that was consumed has no tensor: ask the producer for a new one"
    )]
    NoTensor,

    /// The tensor has another layout.
    #[error(
        "the tensor has version {major}.{minor} of DLPack, and this library reads version 1; pass \
         `max_version=(1, 3)` to `__dlpack__`"
    )]
    Version {
        /// The tensor's major version.
        major: u32,
        /// The tensor's minor version.
        minor: u32,
    },

    /// The number of dimensions is negative or too large.
    #[error("the tensor has {ndim} dimensions; it must have 0 to 64: reshape it")]
    Dimensions {
        /// Number of dimensions.
        ndim: i64,
    },

    /// The shape is missing.
    #[error("the tensor has {ndim} dimensions and no shape; the producer must set `shape`")]
    NoShape {
        /// Number of dimensions.
        ndim: i32,
    },

    /// An extent is negative.
    #[error("dimension {dimension} has {extent} elements; an extent cannot be negative")]
    NegativeExtent {
        /// Index of the dimension.
        dimension: usize,
        /// Its extent.
        extent: i64,
    },

    /// A stride is negative.
    #[error(
        "dimension {dimension} has stride {stride}; make the tensor contiguous, or flip it after the import"
    )]
    NegativeStride {
        /// Index of the dimension.
        dimension: usize,
        /// Its stride, in elements.
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
        /// Its extent.
        extent: i64,
    },

    /// Several indices have the same element.
    #[error("strides {strides:?} make elements of shape {shape:?} overlap; make the tensor contiguous")]
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

    /// The tensor has elements and no memory.
    #[error("the tensor has {elements} elements and its data is null; the producer must set `data`")]
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

    /// The address does not fit the elements.
    #[error(
        "the tensor is at {address:#x}, not a multiple of {align}, as its elements need; copy it (`clone`)"
    )]
    Misaligned {
        /// Address of the first element.
        address: u64,
        /// Alignment of the elements, in bytes.
        align: usize,
    },

    /// The elements are vectors.
    #[error(
        "the elements are vectors ({found}); a tensor of scalars with one more dimension has the same memory"
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

    /// The elements have another type.
    #[error(
        "the elements are {found}, not {expected}; import them as that type, or convert the tensor first"
    )]
    DataType {
        /// Type of the elements.
        found: DLDataType,
        /// Type that was asked for.
        expected: DLDataType,
    },

    /// The memory is on another kind of device.
    #[error(
        "the tensor is on DLPack device {}:{}, and the stream on {stream}; a CUDA stream takes tensors of CUDA (2), \
         CUDA host (3) and managed memory (13), an emulated one those of the CPU (1): copy it there first",
        found.device_type, found.device_id
    )]
    Device {
        /// Device of the tensor.
        found: DLDevice,
        /// Device of the stream.
        stream: DeviceId,
    },

    /// The tensor may not be written.
    #[error(
        "the tensor is read-only; use `Imported::into_tensor` and read it, or pass `copy=True` to `__dlpack__`"
    )]
    ReadOnly,

    /// The form cannot express that the tensor is read-only.
    #[error(
        "the unversioned form cannot say that the tensor is read-only; export it with `Export::into_raw`"
    )]
    ReadOnlyUnversioned,

    /// The elements are not in one piece.
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

    /// The tensor has another number of dimensions than the view.
    #[error("a {expected}-D view of a tensor with {found} dimensions; reshape it, or take another view")]
    Rank {
        /// Dimensions of the tensor.
        found: usize,
        /// Dimensions of the view.
        expected: usize,
    },

    /// The elements of a row are not adjacent.
    #[error(
        "the last dimension has stride {stride}; a view needs adjacent elements: make the tensor contiguous"
    )]
    ColumnStride {
        /// Stride of the last dimension, in elements.
        stride: usize,
    },

    /// The shape does not fit the buffer.
    #[error(
        "a tensor of shape {shape:?} needs {needed} elements from element {offset} on, and the buffer has {len}; \
         take a shape within it"
    )]
    Shape {
        /// The shape.
        shape: Vec<usize>,
        /// Index of the first element.
        offset: usize,
        /// Elements from the first to the last of the tensor.
        needed: usize,
        /// Length of the buffer.
        len: usize,
    },

    /// Shape and strides have different lengths.
    #[error("{shape} extents and {strides} strides; pass one stride per dimension")]
    Strides {
        /// Number of extents.
        shape: usize,
        /// Number of strides.
        strides: usize,
    },

    /// The protocol does not know the stream.
    #[error(
        "{stream} is no stream: the protocol has 1 for CUDA's legacy default stream, 2 for the per-thread one, -1 \
         for no order, and handles"
    )]
    Stream {
        /// Value of the argument.
        stream: i64,
    },

    /// A tensor in host memory has no streams.
    #[error("the tensor is in host memory, which has no streams; pass `stream=None`, not {stream}")]
    HostStream {
        /// Value of the argument.
        stream: i64,
    },

    /// A type has no code in `__cuda_array_interface__`.
    #[error("`__cuda_array_interface__` has no type {found}; use DLPack")]
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
