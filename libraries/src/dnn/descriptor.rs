//! [`Descriptor`]: descriptors of cuDNN's graph API and legacy API, destroyed on drop.
//!
//! The library is loaded whenever a handle exists, and everything in this module requires a handle.

use std::ffi::{CStr, c_char, c_void};
use std::marker::PhantomData;

use cudarc::cudnn::sys::{
    self, cudnnBackendAttributeName_t as Name, cudnnBackendAttributeType_t as Type, cudnnBackendDescriptor_t,
    cudnnBackendDescriptorType_t as Kind, cudnnDataType_t, cudnnHandle_t,
};

use super::functions::{self, Status};
use super::tensor::Shape;
use crate::error::LibraryError;
use crate::handles::LibraryHandle;
use warpsmith_runtime::driver::StreamHandle;
use warpsmith_runtime::error::Result;

/// Converts the status of a call to a `Result`. The error's context is the library's own message.
pub(super) fn check(call: &'static str, status: Status) -> Result<()> {
    if status == Status::SUCCESS {
        return Ok(());
    }
    let mut message = [0 as c_char; 1024];
    // SAFETY: cuDNN 9 has this function, which writes at most this number of characters, including a terminating zero.
    unsafe { sys::cudnnGetLastErrorString(message.as_mut_ptr(), message.len()) };
    if let Some(last) = message.last_mut() {
        *last = 0;
    }
    // SAFETY: the string is zero-terminated.
    let message = unsafe { CStr::from_ptr(message.as_ptr()) }.to_string_lossy();
    Err(LibraryError::of_call("cuDNN", call, status, message.trim()))
}

/// A library handle, used by one thread at a time.
#[derive(Debug)]
pub(super) struct RawHandle(cudnnHandle_t);

// SAFETY: the library allows any thread to use a handle, but only one at a time.
unsafe impl Send for RawHandle {}

impl RawHandle {
    pub fn get(&self) -> cudnnHandle_t {
        self.0
    }
}

impl LibraryHandle for RawHandle {
    fn create() -> Result<Self> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: the library is loaded (callers have queried its version), and the device's context is current.
        check("cudnnCreate", unsafe { functions::cudnnCreate(&mut handle) })?;
        Ok(Self(handle))
    }

    fn set_stream(&mut self, stream: StreamHandle) -> Result<()> {
        let stream = stream.0 as usize as sys::cudaStream_t;
        // SAFETY: the handle is alive, and the stream belongs to its context.
        check("cudnnSetStream", unsafe { functions::cudnnSetStream(self.0, stream) })
    }
}

impl Drop for RawHandle {
    fn drop(&mut self) {
        // SAFETY: this value owns the handle and is being dropped. The status is ignored because there is no remedy.
        unsafe { functions::cudnnDestroy(self.0) };
    }
}

pub(super) trait Attribute {
    const KIND: Type;
}

macro_rules! attributes {
    ($($type:ty, $kind:ident;)*) => { $(impl Attribute for $type {
        const KIND: Type = Type::$kind;
    })* };
}

attributes! {
    i64, CUDNN_TYPE_INT64;
    bool, CUDNN_TYPE_BOOLEAN;
    f32, CUDNN_TYPE_FLOAT;
    f64, CUDNN_TYPE_DOUBLE;
    cudnnDataType_t, CUDNN_TYPE_DATA_TYPE;
    cudnnHandle_t, CUDNN_TYPE_HANDLE;
    sys::cudnnPointwiseMode_t, CUDNN_TYPE_POINTWISE_MODE;
    sys::cudnnNanPropagation_t, CUDNN_TYPE_NAN_PROPOGATION;
    sys::cudnnConvolutionMode_t, CUDNN_TYPE_CONVOLUTION_MODE;
    sys::cudnnBackendHeurMode_t, CUDNN_TYPE_HEUR_MODE;
}

/// A descriptor of the graph API.
#[derive(Debug)]
pub(super) struct Descriptor(cudnnBackendDescriptor_t);

// SAFETY: a descriptor is plain memory of the library, which any thread may use, but only one at a time.
unsafe impl Send for Descriptor {}

impl Descriptor {
    pub fn new(kind: Kind) -> Result<Self> {
        let mut descriptor = std::ptr::null_mut();
        // SAFETY: the pointer refers to a local variable.
        check("cudnnBackendCreateDescriptor", unsafe {
            functions::cudnnBackendCreateDescriptor(kind, &mut descriptor)
        })?;
        Ok(Self(descriptor))
    }

    pub fn get(&self) -> cudnnBackendDescriptor_t {
        self.0
    }

    /// # Safety
    /// The values must have the type that `kind` denotes.
    unsafe fn set_as<V>(&mut self, name: Name, kind: Type, values: &[V]) -> Result<()> {
        let (count, values) = (values.len() as i64, values.as_ptr().cast::<c_void>());
        // SAFETY: the descriptor is alive, and the caller guarantees `count` values of this type.
        check("cudnnBackendSetAttribute", unsafe {
            functions::cudnnBackendSetAttribute(self.0, name, kind, count, values)
        })
    }

    pub fn set<V: Attribute>(&mut self, name: Name, values: &[V]) -> Result<()> {
        // SAFETY: the kind matches the values.
        unsafe { self.set_as(name, V::KIND, values) }
    }

    /// Sets a scalar, in the type that the library requires for this compute type.
    pub fn set_factor(&mut self, name: Name, compute: cudnnDataType_t, value: f64) -> Result<()> {
        match compute {
            cudnnDataType_t::CUDNN_DATA_DOUBLE => self.set(name, &[value]),
            _ => self.set(name, &[value as f32]),
        }
    }

    /// Sets an attribute that refers to other descriptors, which must outlive this one.
    pub fn set_descriptors(&mut self, name: Name, descriptors: &[&Descriptor]) -> Result<()> {
        let raw: Vec<_> = descriptors.iter().map(|descriptor| descriptor.0).collect();
        // SAFETY: the type matches the values.
        unsafe { self.set_as(name, Type::CUDNN_TYPE_BACKEND_DESCRIPTOR, &raw) }
    }

    /// # Safety
    /// An execution with this descriptor must be allowed to access the memory at these addresses.
    pub unsafe fn set_pointers(&mut self, name: Name, pointers: &[*mut c_void]) -> Result<()> {
        // SAFETY: the type matches the values.
        unsafe { self.set_as(name, Type::CUDNN_TYPE_VOID_PTR, pointers) }
    }

    pub fn finalize(self) -> Result<Self> {
        // SAFETY: the descriptor is alive.
        check("cudnnBackendFinalize", unsafe { functions::cudnnBackendFinalize(self.0) })?;
        Ok(self)
    }

    pub fn int(&self, name: Name) -> Result<i64> {
        let (mut value, mut count) = (0i64, 0i64);
        // SAFETY: the descriptor is alive, and there is space for the one requested value.
        check("cudnnBackendGetAttribute", unsafe {
            let into = (&raw mut value).cast();
            functions::cudnnBackendGetAttribute(self.0, name, Type::CUDNN_TYPE_INT64, 1, &mut count, into)
        })?;
        Ok(value)
    }

    /// Returns the number of values of an attribute.
    pub fn count(&self, name: Name, kind: Type) -> Result<usize> {
        let mut count = 0i64;
        // SAFETY: the descriptor is alive, and no value is requested.
        check("cudnnBackendGetAttribute", unsafe {
            functions::cudnnBackendGetAttribute(self.0, name, kind, 0, &mut count, std::ptr::null_mut())
        })?;
        Ok(usize::try_from(count).unwrap_or(0))
    }

    /// Fills descriptors with the values of an attribute in order. Returns the number of filled descriptors.
    pub fn fill(&self, name: Name, into: &mut [Descriptor]) -> Result<usize> {
        let mut raw: Vec<_> = into.iter().map(|descriptor| descriptor.0).collect();
        let mut count = 0i64;
        // SAFETY: the descriptor is alive, and `raw` has space for the requested number of values.
        check("cudnnBackendGetAttribute", unsafe {
            let (room, into) = (raw.len() as i64, raw.as_mut_ptr().cast());
            let kind = Type::CUDNN_TYPE_BACKEND_DESCRIPTOR;
            functions::cudnnBackendGetAttribute(self.0, name, kind, room, &mut count, into)
        })?;
        Ok(usize::try_from(count).unwrap_or(0).min(into.len()))
    }

    /// Returns the numerical notes of an engine. They are plain integers because a library that is newer than the
    /// bindings may define additional notes.
    pub fn numerical_notes(&self) -> Result<Vec<u32>> {
        let mut notes = [u32::MAX; NOTES];
        let mut count = 0i64;
        // SAFETY: the descriptor is alive, and a note is a C enumeration of the size of `u32`.
        check("cudnnBackendGetAttribute", unsafe {
            let (name, kind) = (Name::CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, Type::CUDNN_TYPE_NUMERICAL_NOTE);
            let into = notes.as_mut_ptr().cast();
            functions::cudnnBackendGetAttribute(self.0, name, kind, NOTES as i64, &mut count, into)
        })?;
        let count = usize::try_from(count).unwrap_or(0).min(NOTES);
        Ok(notes[..count].to_vec())
    }
}

/// Number of numerical note types that cuDNN defines.
const NOTES: usize = sys::cudnnBackendNumericalNote_t::CUDNN_NUMERICAL_NOTE_TYPE_COUNT as usize;

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: this value owns the descriptor and is being dropped.
        unsafe { functions::cudnnBackendDestroyDescriptor(self.0) };
    }
}

/// A kind of descriptor of the legacy API.
pub(super) trait Old {
    type Raw: Copy;
    const NAME: &'static str;
    fn create(into: &mut Self::Raw) -> Status;
    fn destroy(raw: Self::Raw);
    const NULL: Self::Raw;
}

macro_rules! old {
    ($name:ident, $raw:ident, $create:ident, $destroy:ident) => {
        #[derive(Debug)]
        pub(super) enum $name {}

        impl Old for $name {
            type Raw = sys::$raw;
            const NAME: &'static str = stringify!($create);
            const NULL: Self::Raw = std::ptr::null_mut();

            fn create(into: &mut Self::Raw) -> Status {
                // SAFETY: the pointer refers to a variable.
                unsafe { functions::$create(into) }
            }

            fn destroy(raw: Self::Raw) {
                // SAFETY: the descriptor was created and is destroyed only once.
                unsafe { functions::$destroy(raw) };
            }
        }
    };
}

old!(TensorKind, cudnnTensorDescriptor_t, cudnnCreateTensorDescriptor, cudnnDestroyTensorDescriptor);
old!(PoolingKind, cudnnPoolingDescriptor_t, cudnnCreatePoolingDescriptor, cudnnDestroyPoolingDescriptor);
old!(
    ActivationKind,
    cudnnActivationDescriptor_t,
    cudnnCreateActivationDescriptor,
    cudnnDestroyActivationDescriptor
);

/// A descriptor of the legacy API.
#[derive(Debug)]
pub(super) struct OldDescriptor<K: Old> {
    raw: K::Raw,
    kind: PhantomData<K>,
}

impl<K: Old> OldDescriptor<K> {
    pub fn new() -> Result<Self> {
        let mut raw = K::NULL;
        check(K::NAME, K::create(&mut raw))?;
        Ok(Self { raw, kind: PhantomData })
    }

    pub fn get(&self) -> K::Raw {
        self.raw
    }
}

impl<K: Old> Drop for OldDescriptor<K> {
    fn drop(&mut self) {
        K::destroy(self.raw);
    }
}

/// Creates the legacy API's descriptor for a tensor.
pub(super) fn tensor(
    operation: &'static str,
    shape: &Shape,
    data: cudnnDataType_t,
) -> Result<OldDescriptor<TensorKind>> {
    let rank = shape.rank();
    let narrow = |values: [i64; 5]| {
        let mut narrow = [0i32; 5];
        for (to, from) in narrow.iter_mut().zip(values) {
            *to = i32::try_from(from).ok()?;
        }
        Some(narrow)
    };
    let arrays = (narrow(shape.of_library(shape.dims)), narrow(shape.of_library(shape.strides())));
    let (Some(dims), Some(strides), true) =
        (arrays.0, arrays.1, shape.elements().is_some_and(|n| n < 1 << 31))
    else {
        let what = format!("a tensor of shape {:?}", shape.shown());
        return Err(LibraryError::unsupported(operation, what, "fewer than 2^31 elements; split the batch"));
    };
    let descriptor = OldDescriptor::<TensorKind>::new()?;
    // SAFETY: the descriptor is alive, and both arrays have `rank` values.
    check("cudnnSetTensorNdDescriptor", unsafe {
        let (rank, dims, strides) = (rank as i32, dims.as_ptr(), strides.as_ptr());
        functions::cudnnSetTensorNdDescriptor(descriptor.get(), data, rank, dims, strides)
    })?;
    Ok(descriptor)
}
