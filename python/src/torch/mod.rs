//! PyTorch operators. They use the C functions of PyTorch's stable ABI, which are looked up in the process.
//!
//! An operator is registered with its schema and with a boxed function for the dispatch keys `CPU` and `CUDA`. The
//! function receives 64-bit values: numbers, and tensor handles, which it owns. Errors are thrown as C++ exceptions of
//! PyTorch.

mod api;

use std::ffi::{CString, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;

use warpsmith_interop::dlpack::{DLDataType, DLDevice, DLTensor, Imported, Tensor as Untyped};
use warpsmith_runtime::Stream;

use self::api::{Api, Raw};
use crate::call::{Allocator, Frame};
use crate::error::{Error, Result};
use crate::library::ContextGuard;
use crate::operator::{Function, Operator};
use crate::tensor::{Origin, TensorMut};

/// Boxed function that PyTorch calls with its stack, the number of arguments, and the number of results.
pub(crate) type Boxed = unsafe extern "C-unwind" fn(*mut u64, u64, u64);

/// Owned handle of a PyTorch tensor. Dropping it releases the handle.
#[derive(Debug)]
pub(crate) struct Handle(Raw);

// SAFETY: PyTorch's reference counts are atomic, and a handle is used by one thread at a time.
unsafe impl Send for Handle {}
// SAFETY: shared references only read the handle.
unsafe impl Sync for Handle {}

impl Handle {
    /// Returns another handle to the same tensor.
    fn duplicate(&self) -> Result<Self> {
        let api = Api::get()?;
        let mut raw = null_mut();
        // SAFETY: the handle is alive.
        api.check("aoti_torch_new_tensor_handle", unsafe { (api.new_tensor_handle)(self.0, &mut raw) })?;
        Ok(Self(raw))
    }

    /// Returns the raw handle for PyTorch's stack and transfers ownership.
    fn into_raw(self) -> Raw {
        let raw = self.0;
        std::mem::forget(self);
        raw
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if let Ok(api) = Api::get() {
            // SAFETY: the handle is owned. The function does not fail for a valid handle.
            unsafe { (api.delete_tensor_object)(self.0) };
        }
    }
}

/// Values of PyTorch's `ScalarType`, each with the type code and bits in DLPack.
const TYPES: [(i32, u8, u8); 17] = [
    (0, DLDataType::UINT, 8),
    (1, DLDataType::INT, 8),
    (2, DLDataType::INT, 16),
    (3, DLDataType::INT, 32),
    (4, DLDataType::INT, 64),
    (5, DLDataType::FLOAT, 16),
    (6, DLDataType::FLOAT, 32),
    (7, DLDataType::FLOAT, 64),
    (9, DLDataType::COMPLEX, 64),
    (10, DLDataType::COMPLEX, 128),
    (11, DLDataType::BOOL, 8),
    (15, DLDataType::BFLOAT, 16),
    (23, DLDataType::FLOAT8_E5M2, 8),
    (24, DLDataType::FLOAT8_E4M3FN, 8),
    (27, DLDataType::UINT, 16),
    (28, DLDataType::UINT, 32),
    (29, DLDataType::UINT, 64),
];

/// Values of PyTorch's `DeviceType`, each with the device type in DLPack.
const DEVICES: [(i32, i32); 2] = [(0, DLDevice::CPU), (1, DLDevice::CUDA)];

/// Returns the description of a tensor. It is valid as long as the handle is alive.
fn describe(api: &Api, Handle(raw): &Handle) -> Result<DLTensor> {
    let (mut dtype, mut kind, mut index, mut ndim) = (0, 0, 0, 0);
    let (mut shape, mut strides, mut data) = (null_mut(), null_mut(), null_mut());
    // SAFETY: the handle is alive, and each function writes one value.
    unsafe {
        api.check("aoti_torch_get_dtype", (api.get_dtype)(*raw, &mut dtype))?;
        api.check("aoti_torch_get_device_type", (api.get_device_type)(*raw, &mut kind))?;
        api.check("aoti_torch_get_device_index", (api.get_device_index)(*raw, &mut index))?;
        api.check("aoti_torch_get_dim", (api.get_dim)(*raw, &mut ndim))?;
        api.check("aoti_torch_get_sizes", (api.get_sizes)(*raw, &mut shape))?;
        api.check("aoti_torch_get_strides", (api.get_strides)(*raw, &mut strides))?;
        api.check("aoti_torch_get_data_ptr", (api.get_data_ptr)(*raw, &mut data))?;
    }
    let unknown =
        || Error::Torch(format!("tensors of scalar type {dtype} are not supported; convert the tensor"));
    let (_, code, bits) = TYPES.into_iter().find(|(scalar, ..)| *scalar == dtype).ok_or_else(unknown)?;
    let unknown = || {
        Error::Torch(format!(
            "tensors of device type {kind} are not supported; move the tensor to the CPU or to a CUDA device"
        ))
    };
    let (_, device_type) = DEVICES.into_iter().find(|(torch, _)| *torch == kind).ok_or_else(unknown)?;
    let device = DLDevice { device_type, device_id: index.max(0) };
    let dtype = DLDataType { code, bits, lanes: 1 };
    Ok(DLTensor { data, device, ndim: ndim as i32, dtype, shape, strides, byte_offset: 0 })
}

/// Imports a tensor that owns its handle. PyTorch's allocator reuses memory in stream order on the current stream.
fn imported(handle: Handle, tensor: DLTensor) -> Result<Imported> {
    // SAFETY: the handle keeps the tensor's memory, shape and strides alive. PyTorch orders other work on the tensor
    // with the current stream.
    Ok(unsafe { Imported::from_tensor(tensor, 0, handle)?.stream_ordered() })
}

/// Imports a tensor argument.
///
/// # Safety
/// `value` must be a tensor handle that the caller owns. The function takes ownership of the handle.
pub(crate) unsafe fn import(value: u64, frame: &mut Frame) -> Result<(Imported, Stream)> {
    let handle = Handle(std::ptr::with_exposed_provenance_mut(value as usize));
    let api = Api::get()?;
    let tensor = describe(api, &handle)?;
    let current = || api.current_stream(tensor.device.device_id).map(Some);
    let stream = frame.stream(tensor.device, current, || Ok(Allocator::Torch))?;
    Ok((imported(handle, tensor)?, stream))
}

/// Returns the value of an optional argument and frees the heap allocation that contained it.
///
/// # Safety
/// `value` must be null or point to a value that the caller owns.
pub(crate) unsafe fn unwrap(value: u64) -> Option<u64> {
    let boxed = std::ptr::with_exposed_provenance_mut::<u64>(value as usize);
    if boxed.is_null() {
        return None;
    }
    // SAFETY: guaranteed by the caller. PyTorch allocates the value with `new` of C++.
    unsafe {
        let value = boxed.read();
        if let Ok(api) = Api::get() {
            (api.operator_delete)(boxed.cast());
        }
        Some(value)
    }
}

/// Allocates a contiguous tensor.
pub(crate) fn empty(
    stream: &Stream,
    device: DLDevice,
    data_type: DLDataType,
    shape: &[usize],
) -> Result<(Untyped, Handle)> {
    let api = Api::get()?;
    let found = TYPES.into_iter().find(|(_, code, bits)| (*code, *bits) == (data_type.code, data_type.bits));
    let (dtype, ..) =
        found.ok_or_else(|| Error::Torch(format!("there is no scalar type for {data_type}")))?;
    let (kind, _) = DEVICES[usize::from(device.device_type == DLDevice::CUDA)];
    let shape: Vec<i64> = shape.iter().map(|extent| i64::try_from(*extent).unwrap_or(i64::MAX)).collect();
    let mut strides = vec![1i64; shape.len()];
    for at in (1..shape.len()).rev() {
        strides[at - 1] = strides[at].saturating_mul(shape[at].max(1));
    }
    let mut raw = null_mut();
    // SAFETY: both arrays have one element per dimension.
    let status = unsafe {
        let (numbers, strides) = (shape.as_ptr(), strides.as_ptr());
        let index = device.device_id;
        (api.empty_strided)(shape.len() as i64, numbers, strides, dtype, kind, index, &mut raw)
    };
    api.check("aoti_torch_empty_strided", status)?;
    let handle = Handle(raw);
    let tensor = describe(api, &handle)?;
    let returned = handle.duplicate()?;
    Ok((imported(handle, tensor)?.into_tensor(stream)?, returned))
}

/// Calls an operator for PyTorch and replaces the arguments on the stack with the results.
///
/// # Safety
/// `stack` must contain the argument values that the operator's schema specifies. The function takes ownership of them.
pub unsafe fn call<A, F: Function<A>>(
    names: &'static [&'static str],
    function: &F,
    stack: *mut u64,
    arguments: u64,
    results: u64,
) {
    let context = ContextGuard::new();
    let called = catch_unwind(AssertUnwindSafe(|| {
        if arguments != F::ARGUMENTS.len() as u64 {
            return Err(Error::Torch(format!(
                "the call has {arguments} values for {} arguments",
                F::ARGUMENTS.len()
            )));
        }
        // SAFETY: guaranteed by the caller.
        let tensors = unsafe { function.call_torch(stack, Frame::new(names)) }?;
        let handle = |TensorMut { origin, .. }| match origin {
            Origin::Torch(handle) => Ok(handle),
            _ => Err(Error::ReturnedArgument),
        };
        let handles: Vec<Handle> = tensors.into_iter().map(handle).collect::<Result<_>>()?;
        if handles.len() as u64 != results {
            return Err(Error::Torch(format!(
                "the operator returned {} tensors, but the schema has {results} results",
                handles.len()
            )));
        }
        for (at, handle) in handles.into_iter().enumerate() {
            let value = handle.into_raw().expose_provenance() as u64;
            // SAFETY: the stack has space for the arguments and for the results.
            unsafe { stack.add(at).write(value) };
        }
        Ok(())
    }));
    drop(context);
    let text = match called {
        Ok(Ok(())) => return,
        Ok(Err(error)) => error.to_string(),
        Err(panic) => Error::Panic(crate::error::panic_text(&*panic)).to_string(),
    };
    throw(text);
}

/// Throws a C++ exception of PyTorch, which Python receives as `RuntimeError`. Call this function only from a
/// `C-unwind` function that PyTorch calls, so that PyTorch catches the exception. If PyTorch is not loaded, the
/// function returns.
pub fn throw(text: String) {
    let Ok(api) = Api::get() else { return };
    // PyTorch copies the message before it throws. Unwinding then frees the string in this frame.
    let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
    // SAFETY: the strings are alive during the call. The exception unwinds through this function, whose callers permit
    // unwinding.
    unsafe { (api.check_failed)(false, c"warpsmith".as_ptr(), c"operator".as_ptr(), 0, text.as_ptr()) };
}

/// Registers operators in a namespace for CPU and CUDA tensors.
pub(crate) fn register(namespace: &str, operators: &'static [Operator]) -> Result<()> {
    let api = Api::get()?;
    let text = |text: &str| CString::new(text).map_err(|_| Error::value("a name contains a NUL byte"));
    let namespace = text(namespace)?;
    let mut library: *mut c_void = null_mut();
    // SAFETY: the strings are alive during the calls. The library is never deleted, because its deletion would
    // unregister the operators.
    unsafe {
        let defined = (api.library_init_def)(namespace.as_ptr(), c"warpsmith".as_ptr(), 0, &mut library);
        api.check("aoti_torch_library_init_def", defined)?;
        for operator in operators {
            let defined = (api.library_def)(library, text(&operator.schema)?.as_ptr());
            api.check(&format!("the definition of `{}`", operator.schema), defined)?;
        }
        for key in [c"CPU", c"CUDA"] {
            let (file, mut library) = (c"warpsmith".as_ptr(), null_mut());
            let made = (api.library_init_impl)(namespace.as_ptr(), key.as_ptr(), file, 0, &mut library);
            api.check("aoti_torch_library_init_impl", made)?;
            for operator in operators {
                let name = text(operator.name)?;
                let made = (api.library_impl)(library, name.as_ptr(), operator.boxed, api::BUILD_VERSION);
                api.check(&format!("the registration of `{}`", operator.name), made)?;
            }
        }
    }
    Ok(())
}
