//! Conversions between Python objects and tensors, through the DLPack C exchange API, `__dlpack__` and
//! `__cuda_array_interface__`.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::{NonNull, null_mut};
use std::sync::Mutex;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyTuple, PyType};
use pyo3::{ffi, intern};
use warpsmith_interop::cuda_array::CudaArrayInterface;
use warpsmith_interop::dlpack::{
    DLDataType, DLDevice, DLManagedTensor, DLManagedTensorVersioned, DLPACK_MAJOR_VERSION,
    DLPACK_MINOR_VERSION, DLPackExchangeAPI, DLPackSetError, DLTensor, Export, Imported, stream_argument,
};
use warpsmith_runtime::{Device, DevicePtr, Stream};

use crate::call::{Allocator, Call, Frame};
use crate::error::{Error, Result, fetch};
use crate::tensor::{Origin, TensorMut};

const TABLE: &CStr = c"dlpack_exchange_api";
const VERSIONED: &CStr = c"dltensor_versioned";
const USED_VERSIONED: &CStr = c"used_dltensor_versioned";
const UNVERSIONED: &CStr = c"dltensor";
const USED_UNVERSIONED: &CStr = c"used_dltensor";

/// DLPack C exchange API of a Python type. It has all functions that conversions need.
pub(crate) struct Table {
    api: &'static DLPackExchangeAPI,
    /// True if the type has PyTorch's lazy conjugation and negation, which DLPack cannot express.
    is_lazy: bool,
}

impl Table {
    /// Returns the exchange API of an object's type, or `None` if the type has none or has an unknown version. The
    /// result is cached per type.
    fn of(object: &Bound<'_, PyAny>) -> Result<Option<&'static Self>> {
        /// Address of a type and its exchange API.
        type Known = (usize, Option<&'static Table>);
        static KNOWN: Mutex<Vec<Known>> = Mutex::new(Vec::new());
        let kind = object.get_type();
        let address = kind.as_ptr().addr();
        let find = |known: &[Known]| known.iter().find(|(of, _)| *of == address).map(|(_, table)| *table);
        if let Some(table) = find(&KNOWN.lock().unwrap_or_else(|poisoned| poisoned.into_inner())) {
            return Ok(table);
        }
        let table = Self::read(&kind)?.map(|table| &*Box::leak(Box::new(table)));
        // Keep the type alive, so that no other type can have the same address.
        std::mem::forget(kind.unbind());
        KNOWN.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push((address, table));
        Ok(table)
    }

    fn read(kind: &Bound<'_, PyType>) -> Result<Option<Self>> {
        let Some(capsule) = kind.getattr_opt(intern!(kind.py(), "__dlpack_c_exchange_api__"))? else {
            return Ok(None);
        };
        // Before DLPack 1.3, the attribute was an integer.
        let Ok(capsule) = capsule.cast::<PyCapsule>() else { return Ok(None) };
        // SAFETY: the object is a live capsule. Python checks its name, and `fetch` clears an exception.
        let pointer = unsafe { ffi::PyCapsule_GetPointer(capsule.as_ptr(), TABLE.as_ptr()) };
        let Some(pointer) = NonNull::new(pointer.cast::<DLPackExchangeAPI>()) else {
            return Err(fetch(kind.py()));
        };
        // SAFETY: the protocol guarantees that the table is static and has this type.
        let api = unsafe { pointer.as_ref() };
        let is_complete = api.header.version.major == DLPACK_MAJOR_VERSION
            && api.managed_tensor_allocator.is_some()
            && api.managed_tensor_from_py_object_no_sync.is_some()
            && api.managed_tensor_to_py_object_no_sync.is_some()
            && api.current_work_stream.is_some();
        let is_lazy =
            kind.hasattr(intern!(kind.py(), "is_neg"))? && kind.hasattr(intern!(kind.py(), "is_conj"))?;
        Ok(is_complete.then_some(Self { api, is_lazy }))
    }

    /// Returns an error for a tensor whose memory does not contain its values.
    fn check(&self, object: &Bound<'_, PyAny>) -> Result<()> {
        let py = object.py();
        let is_set = |name| object.call_method0(name)?.is_truthy();
        if self.is_lazy && (is_set(intern!(py, "is_neg"))? || is_set(intern!(py, "is_conj"))?) {
            return Err(Error::value(
                "the tensor is a lazy conjugate or negative; pass `x.resolve_conj().resolve_neg()`",
            ));
        }
        Ok(())
    }

    /// Imports an object of the type without synchronization. Work on the tensor must run on the current stream.
    fn import(&self, py: Python<'_>, object: *mut ffi::PyObject) -> Result<Imported> {
        let mut managed = null_mut();
        let function = self.api.managed_tensor_from_py_object_no_sync.ok_or(Error::NoDevice)?;
        // SAFETY: the object has the type of this exchange API, and the thread is attached to the interpreter.
        if unsafe { function(object.cast(), &mut managed) } != 0 {
            return Err(fetch(py));
        }
        // SAFETY: the tensor is now owned here. Operators use its memory, and the framework reuses it, in stream order
        // on the current stream.
        Ok(unsafe { Imported::from_raw(managed)?.stream_ordered() })
    }

    /// Returns the current stream of a device.
    fn current_stream(&self, py: Python<'_>, device: DLDevice) -> Result<*mut c_void> {
        let mut stream = null_mut();
        let function = self.api.current_work_stream.ok_or(Error::NoDevice)?;
        // SAFETY: the function writes one value.
        match unsafe { function(device.device_type, device.device_id, &mut stream) } {
            0 => Ok(stream),
            _ => Err(fetch(py)),
        }
    }

    /// Allocates a tensor of the type and imports it.
    pub fn allocate(
        &self,
        device: DLDevice,
        dtype: DLDataType,
        shape: &[usize],
    ) -> Result<(Imported, Py<PyAny>)> {
        let function = self.api.managed_tensor_allocator.ok_or(Error::NoDevice)?;
        let convert = self.api.managed_tensor_to_py_object_no_sync.ok_or(Error::NoDevice)?;
        // SAFETY: the function is the allocator of the exchange API.
        let managed = unsafe { allocate(function, device, dtype, shape) }?;
        Python::attach(|py| {
            let mut object = null_mut();
            // SAFETY: the new object takes ownership of the tensor.
            let status = unsafe { convert(managed, &mut object) };
            if status != 0 {
                return Err(fetch(py));
            }
            // SAFETY: the function has written a new reference.
            let object = unsafe { Bound::from_owned_ptr(py, object.cast()) };
            Ok((self.import(py, object.as_ptr())?, object.unbind()))
        })
    }
}

/// Allocator function of the DLPack C exchange API.
pub(crate) type Allocate = unsafe extern "C" fn(
    *mut DLTensor,
    *mut *mut DLManagedTensorVersioned,
    *mut c_void,
    Option<DLPackSetError>,
) -> c_int;

/// Allocates a tensor that the caller owns.
///
/// # Safety
/// `function` must conform to the DLPack C exchange API.
pub(crate) unsafe fn allocate(
    function: Allocate,
    device: DLDevice,
    dtype: DLDataType,
    shape: &[usize],
) -> Result<*mut DLManagedTensorVersioned> {
    /// Writes an error message to the string at `text`.
    unsafe extern "C" fn set_error(text: *mut c_void, kind: *const c_char, message: *const c_char) {
        // SAFETY: `text` is the context pointer of the call below, and `kind` and `message` are C strings.
        unsafe {
            let [kind, message] = [kind, message].map(|text| CStr::from_ptr(text).to_string_lossy());
            *text.cast::<String>() = format!("{kind}: {message}");
        }
    }
    let mut shape: Vec<i64> = shape.iter().map(|extent| i64::try_from(*extent).unwrap_or(i64::MAX)).collect();
    let mut prototype = DLTensor {
        data: null_mut(),
        device,
        ndim: shape.len() as i32,
        dtype,
        shape: shape.as_mut_ptr(),
        strides: null_mut(),
        byte_offset: 0,
    };
    let (mut managed, mut text) = (null_mut(), String::new());
    // SAFETY: the prototype is complete, and the context points to a `String`, which `set_error` expects.
    let status = unsafe { function(&mut prototype, &mut managed, (&raw mut text).cast(), Some(set_error)) };
    match status {
        0 => Ok(managed),
        _ if text.is_empty() => Err(Python::attach(fetch)),
        _ => Err(Error::Allocation(text)),
    }
}

/// Imports an object passed for a tensor argument.
pub(crate) fn import(object: &Bound<'_, PyAny>, frame: &mut Frame) -> Result<(Imported, Stream)> {
    let py = object.py();
    if let Some(table) = Table::of(object)? {
        let imported = table.import(py, object.as_ptr())?;
        let device = imported.device();
        let current = match device.device_type {
            DLDevice::CUDA => Some(table.current_stream(py, device)?),
            _ => None,
        };
        table.check(object)?;
        let stream = frame.stream(device, || Ok(current), || Ok(Allocator::Exchange(table)))?;
        // The null handle is the legacy default stream, which also has the handle 1.
        if current.is_some_and(|current| current.addr().max(1) as u64 != stream.handle().0) {
            // The call runs on the stream of another framework's tensor. `__dlpack__` makes that stream wait.
            drop(imported);
            let function = object.getattr(intern!(py, "__dlpack__"))?;
            return Ok((from_capsule(&function, &stream)?, stream));
        }
        return Ok((imported, stream));
    }
    let namespace = || -> Result<Allocator> {
        let function = object.getattr_opt(intern!(py, "__array_namespace__"))?;
        Ok(Allocator::Own(function.map(|function| function.call0()).transpose()?.map(Bound::unbind)))
    };
    if let Some(function) = object.getattr_opt(intern!(py, "__dlpack__"))? {
        let (device_type, device_id) =
            object.call_method0(intern!(py, "__dlpack_device__"))?.extract::<(i32, i32)>()?;
        let stream = frame.stream(DLDevice { device_type, device_id }, || Ok(None), namespace)?;
        return Ok((from_capsule(&function, &stream)?, stream));
    }
    if let Some(interface) = object.getattr_opt(intern!(py, "__cuda_array_interface__"))? {
        let interface = cuda_array(&interface)?;
        let device_id = ordinal(interface.address)?;
        let device = DLDevice { device_type: DLDevice::CUDA, device_id };
        let stream = frame.stream(device, || Ok(None), namespace)?;
        // SAFETY: the protocol guarantees that the object keeps the memory alive and describes it correctly.
        let imported = unsafe { interface.import(&stream, object.clone().unbind()) }?;
        return Ok((imported, stream));
    }
    let found = object.get_type().name()?.to_string();
    Err(Error::NoTensor { argument: frame.argument(), found })
}

/// Returns the ordinal of the CUDA device that owns the memory at an address.
fn ordinal(address: u64) -> Result<i32> {
    let device = Device::current()?;
    // SAFETY: the driver only looks up the address.
    let (driver, context) = unsafe { device.driver() };
    let found = match address {
        0 => None,
        // The import reports an address that the driver does not know and the device cannot access.
        _ => driver.memory_device(context, DevicePtr(address)).unwrap_or(None),
    };
    Ok(found.unwrap_or(device.id().ordinal()) as i32)
}

/// Calls `__dlpack__` and takes the tensor out of the capsule.
fn from_capsule(function: &Bound<'_, PyAny>, stream: &Stream) -> Result<Imported> {
    let py = function.py();
    let arguments = PyDict::new(py);
    arguments.set_item("stream", stream_argument(stream))?;
    arguments.set_item("max_version", (DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION))?;
    let capsule = match function.call((), Some(&arguments)) {
        // Producers before DLPack 1.0 do not accept `max_version`.
        Err(error) if error.is_instance_of::<PyTypeError>(py) => {
            arguments.del_item("max_version")?;
            function.call((), Some(&arguments))?
        }
        called => called?,
    };
    for (name, used) in [(VERSIONED, USED_VERSIONED), (UNVERSIONED, USED_UNVERSIONED)] {
        // SAFETY: the capsule is alive.
        if unsafe { ffi::PyCapsule_IsValid(capsule.as_ptr(), name.as_ptr()) } == 0 {
            continue;
        }
        // SAFETY: the capsule has this name, so it contains a tensor of this form. Renaming the capsule transfers the
        // ownership. The producer has received the stream.
        return unsafe {
            let pointer = ffi::PyCapsule_GetPointer(capsule.as_ptr(), name.as_ptr());
            if ffi::PyCapsule_SetName(capsule.as_ptr(), used.as_ptr()) != 0 {
                return Err(fetch(py));
            }
            Ok(match name == VERSIONED {
                true => Imported::from_raw(pointer.cast::<DLManagedTensorVersioned>())?,
                false => Imported::from_raw_unversioned(pointer.cast::<DLManagedTensor>())?,
            })
        };
    }
    Err(Error::value(
        "`__dlpack__` did not return a capsule named `dltensor_versioned` or `dltensor`, or it was already consumed",
    ))
}

/// Reads the dictionary `__cuda_array_interface__`.
fn cuda_array(interface: &Bound<'_, PyAny>) -> Result<CudaArrayInterface> {
    let item = |name: &str| interface.get_item(name);
    let optional = |name: &str| match interface.get_item(name) {
        Ok(value) if value.is_none() => Ok(None),
        Ok(value) => Ok(Some(value)),
        Err(error) if error.is_instance_of::<pyo3::exceptions::PyKeyError>(interface.py()) => Ok(None),
        Err(error) => Err(error),
    };
    if optional("mask")?.is_some() {
        return Err(Error::value(
            "masked arrays are not supported; pass the data and the mask as two arrays",
        ));
    }
    let (address, is_read_only) = item("data")?.extract::<(u64, bool)>()?;
    Ok(CudaArrayInterface {
        shape: item("shape")?.extract()?,
        typestr: item("typestr")?.extract()?,
        address,
        is_read_only,
        strides: optional("strides")?.map(|strides| strides.extract()).transpose()?,
        stream: optional("stream")?.map(|stream| stream.extract()).transpose()?,
    })
}

/// Converts a result to the Python object to return to the caller.
pub(crate) fn export(py: Python<'_>, tensor: TensorMut, call: &Call) -> Result<Py<PyAny>> {
    match tensor.origin {
        Origin::Python(object) => Ok(object),
        Origin::Own => {
            let exported =
                Bound::new(py, Exported { export: Some(Export::from_tensor(tensor.tensor.into_inner())) })?;
            match call.namespace() {
                None => Ok(exported.into_any().unbind()),
                Some(namespace) => {
                    Ok(namespace.bind(py).call_method1(intern!(py, "from_dlpack"), (exported,))?.unbind())
                }
            }
        }
        Origin::Argument | Origin::Torch(_) | Origin::Tvm(_) => Err(Error::ReturnedArgument),
    }
}

/// Result in memory that Warpsmith allocated. One framework can import it, for example with
/// `numpy.from_dlpack(tensor)`.
#[pyclass(name = "Tensor", module = "warpsmith")]
struct Exported {
    export: Option<Export>,
}

#[pymethods]
impl Exported {
    /// Returns the DLPack device type and the device index.
    fn __dlpack_device__(&self) -> Result<(i32, i32)> {
        let export = self.export.as_ref().ok_or_else(taken)?;
        let DLDevice { device_type, device_id } = export.device();
        Ok((device_type, device_id))
    }

    /// Returns the tensor as a DLPack capsule. The method can be called only once.
    #[pyo3(signature = (*, stream = None, max_version = None, dl_device = None, copy = None))]
    fn __dlpack__(
        &mut self,
        py: Python<'_>,
        stream: Option<i64>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> Result<Py<PyAny>> {
        if copy == Some(true)
            || dl_device.is_some_and(|device| Ok(device) != self.__dlpack_device__().map_err(|_| ()))
        {
            let text =
                "the tensor can only be exported without a copy, on its own device; copy it after the import";
            return Err(pyo3::exceptions::PyBufferError::new_err(text).into());
        }
        let export = self.export.as_mut().ok_or_else(taken)?;
        // SAFETY: the protocol requires that the consumer keeps its stream alive until it has deleted the tensor.
        unsafe { export.ready_for(stream) }?;
        let export = self.export.take().ok_or_else(taken)?;
        let is_versioned = max_version.is_some_and(|(major, _)| major >= DLPACK_MAJOR_VERSION);
        let (pointer, name, destructor): (*mut c_void, _, ffi::PyCapsule_Destructor) = match is_versioned {
            true => (export.into_raw().as_ptr().cast(), VERSIONED, delete_versioned),
            false => (export.into_raw_unversioned()?.as_ptr().cast(), UNVERSIONED, delete_unversioned),
        };
        // SAFETY: the pointer is not null, and the name is static.
        let capsule = unsafe { ffi::PyCapsule_New(pointer, name.as_ptr(), Some(destructor)) };
        // SAFETY: the pointer is a new reference, or null with an exception set.
        Ok(unsafe { Bound::from_owned_ptr_or_err(py, capsule) }?.unbind())
    }
}

fn taken() -> Error {
    Error::value("the tensor was already consumed; use the object that the consumer returned")
}

/// Destructor of a capsule with a versioned tensor. Deletes the tensor if the capsule was not consumed.
unsafe extern "C" fn delete_versioned(capsule: *mut ffi::PyObject) {
    // SAFETY: the capsule is alive. It owns its tensor as long as it has its original name.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, VERSIONED.as_ptr()) == c_int::from(true) {
            let tensor =
                ffi::PyCapsule_GetPointer(capsule, VERSIONED.as_ptr()).cast::<DLManagedTensorVersioned>();
            (*tensor).deleter.into_iter().for_each(|delete| delete(tensor));
        }
    }
}

/// Destructor of a capsule with an unversioned tensor. Deletes the tensor if the capsule was not consumed.
unsafe extern "C" fn delete_unversioned(capsule: *mut ffi::PyObject) {
    // SAFETY: the capsule is alive. It owns its tensor as long as it has its original name.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, UNVERSIONED.as_ptr()) == c_int::from(true) {
            let tensor = ffi::PyCapsule_GetPointer(capsule, UNVERSIONED.as_ptr()).cast::<DLManagedTensor>();
            (*tensor).deleter.into_iter().for_each(|delete| delete(tensor));
        }
    }
}

/// Returns the arguments of a call in the order of `names`, from its positional and keyword arguments and the defaults.
pub(crate) fn arguments<'py>(
    name: &str,
    names: &[&'static str],
    defaults: &[Option<Py<PyAny>>],
    positional: &Bound<'py, PyTuple>,
    named: Option<&Bound<'py, PyDict>>,
) -> Result<Vec<Bound<'py, PyAny>>> {
    let wrong = |text: String| Err(Error::Arguments(format!("{name}() {text}")));
    let py = positional.py();
    if positional.len() > names.len() {
        return wrong(format!("takes {} arguments, but {} were given", names.len(), positional.len()));
    }
    let mut values: Vec<Option<Bound<'py, PyAny>>> = positional.iter().map(Some).collect();
    values.resize(names.len(), None);
    for (key, value) in named.into_iter().flatten() {
        let key = key.extract::<String>()?;
        let Some(at) = names.iter().position(|known| *known == key) else {
            return wrong(format!(
                "got an unexpected keyword argument `{key}`; its arguments are {}",
                names.join(", ")
            ));
        };
        if values[at].replace(value).is_some() {
            return wrong(format!("got multiple values for argument `{key}`"));
        }
    }
    let mut complete = Vec::with_capacity(names.len());
    for (at, value) in values.into_iter().enumerate() {
        match value.or_else(|| defaults[at].as_ref().map(|default| default.bind(py).clone())) {
            Some(value) => complete.push(value),
            None => return wrong(format!("is missing the required argument `{}`", names[at])),
        }
    }
    Ok(complete)
}
