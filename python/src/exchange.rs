//! Python objects as tensors, and tensors as Python objects: DLPack's exchange table, `__dlpack__`, and
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
use warpsmith_runtime::{Device, Stream};

use crate::call::{Allocator, Call, Frame};
use crate::error::{Error, Result, fetch};
use crate::tensor::{Origin, TensorMut};

const TABLE: &CStr = c"dlpack_exchange_api";
const VERSIONED: &CStr = c"dltensor_versioned";
const USED_VERSIONED: &CStr = c"used_dltensor_versioned";
const UNVERSIONED: &CStr = c"dltensor";
const USED_UNVERSIONED: &CStr = c"used_dltensor";

/// The exchange table of a Python type, with the functions that conversions need.
pub(crate) struct Table {
    api: &'static DLPackExchangeAPI,
}

impl Table {
    /// Returns the table of an object's type, if it has one of a known version. Types that were looked up are kept.
    fn of(object: &Bound<'_, PyAny>) -> Result<Option<&'static Self>> {
        /// Address of a type, and its table.
        type Known = (usize, Option<&'static Table>);
        static KNOWN: Mutex<Vec<Known>> = Mutex::new(Vec::new());
        let kind = object.get_type();
        let address = kind.as_ptr().addr();
        let find = |known: &[Known]| known.iter().find(|(of, _)| *of == address).map(|(_, table)| *table);
        if let Some(table) = find(&KNOWN.lock().unwrap_or_else(|poisoned| poisoned.into_inner())) {
            return Ok(table);
        }
        let table = Self::read(&kind)?.map(|table| &*Box::leak(Box::new(table)));
        // The type stays alive, so that no other type has its address.
        std::mem::forget(kind.unbind());
        KNOWN.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push((address, table));
        Ok(table)
    }

    fn read(kind: &Bound<'_, PyType>) -> Result<Option<Self>> {
        let Some(capsule) = kind.getattr_opt(intern!(kind.py(), "__dlpack_c_exchange_api__"))? else {
            return Ok(None);
        };
        // Before version 1.3, the attribute was a number.
        let Ok(capsule) = capsule.cast::<PyCapsule>() else { return Ok(None) };
        // SAFETY: the name is compared; an exception is cleared.
        let pointer = unsafe { ffi::PyCapsule_GetPointer(capsule.as_ptr(), TABLE.as_ptr()) };
        let Some(pointer) = NonNull::new(pointer.cast::<DLPackExchangeAPI>()) else {
            return Err(fetch(kind.py()));
        };
        // SAFETY: the protocol says that the table is static and has this type.
        let api = unsafe { pointer.as_ref() };
        let is_complete = api.header.version.major == DLPACK_MAJOR_VERSION
            && api.managed_tensor_allocator.is_some()
            && api.managed_tensor_from_py_object_no_sync.is_some()
            && api.managed_tensor_to_py_object_no_sync.is_some()
            && api.current_work_stream.is_some();
        Ok(is_complete.then_some(Self { api }))
    }

    /// Imports a tensor of the type, without ordering: its work is on the current stream.
    fn import(&self, py: Python<'_>, object: *mut ffi::PyObject) -> Result<Imported> {
        let mut managed = null_mut();
        let function = self.api.managed_tensor_from_py_object_no_sync.ok_or(Error::NoDevice)?;
        // SAFETY: the object has the table's type, and the interpreter is attached.
        if unsafe { function(object.cast(), &mut managed) } != 0 {
            return Err(fetch(py));
        }
        // SAFETY: the tensor is owned now. Its memory is used, and reused by the framework, in the order of the current
        // stream.
        Ok(unsafe { Imported::from_raw(managed)?.stream_ordered() })
    }

    /// Returns the current stream of a device.
    fn current_stream(&self, py: Python<'_>, device: DLDevice) -> Result<*mut c_void> {
        let mut stream = null_mut();
        let function = self.api.current_work_stream.ok_or(Error::NoDevice)?;
        // SAFETY: it writes one value.
        match unsafe { function(device.device_type, device.device_id, &mut stream) } {
            0 => Ok(stream),
            _ => Err(fetch(py)),
        }
    }

    /// Allocates a tensor of the type, and imports it.
    pub fn allocate(
        &self,
        device: DLDevice,
        dtype: DLDataType,
        shape: &[usize],
    ) -> Result<(Imported, Py<PyAny>)> {
        let function = self.api.managed_tensor_allocator.ok_or(Error::NoDevice)?;
        let convert = self.api.managed_tensor_to_py_object_no_sync.ok_or(Error::NoDevice)?;
        // SAFETY: the function is the table's.
        let managed = unsafe { allocate(function, device, dtype, shape) }?;
        Python::attach(|py| {
            let mut object = null_mut();
            // SAFETY: the object takes the tensor over.
            let status = unsafe { convert(managed, &mut object) };
            if status != 0 {
                return Err(fetch(py));
            }
            // SAFETY: a new reference was written.
            let object = unsafe { Bound::from_owned_ptr(py, object.cast()) };
            Ok((self.import(py, object.as_ptr())?, object.unbind()))
        })
    }
}

/// An allocator of DLPack's exchange table.
pub(crate) type Allocate = unsafe extern "C" fn(
    *mut DLTensor,
    *mut *mut DLManagedTensorVersioned,
    *mut c_void,
    Option<DLPackSetError>,
) -> c_int;

/// Allocates a tensor, which the caller owns.
///
/// # Safety
/// `function` allocates as DLPack says.
pub(crate) unsafe fn allocate(
    function: Allocate,
    device: DLDevice,
    dtype: DLDataType,
    shape: &[usize],
) -> Result<*mut DLManagedTensorVersioned> {
    /// Writes the text of an error.
    unsafe extern "C" fn set_error(text: *mut c_void, kind: *const c_char, message: *const c_char) {
        // SAFETY: the pointer is that of the call below, and both are strings.
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
    // SAFETY: the prototype is complete, and the context is a string.
    let status = unsafe { function(&mut prototype, &mut managed, (&raw mut text).cast(), Some(set_error)) };
    match status {
        0 => Ok(managed),
        _ if text.is_empty() => Err(Python::attach(fetch)),
        _ => Err(Error::Value(text)),
    }
}

/// Imports an object that is a tensor argument.
pub(crate) fn import(object: &Bound<'_, PyAny>, frame: &mut Frame) -> Result<(Imported, Stream)> {
    let py = object.py();
    if let Some(table) = Table::of(object)? {
        let imported = table.import(py, object.as_ptr())?;
        let device = imported.device();
        let current = || match device.device_type {
            DLDevice::CUDA => table.current_stream(py, device).map(Some),
            _ => Ok(None),
        };
        let stream = frame.stream(device, current, || Ok(Allocator::Exchange(table)))?;
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
        let device_id = Device::current()?.id().ordinal() as i32;
        let device = DLDevice { device_type: DLDevice::CUDA, device_id };
        let stream = frame.stream(device, || Ok(None), namespace)?;
        // SAFETY: the object keeps the memory, and describes it, as the protocol says.
        let imported = unsafe { interface.import(&stream, object.clone().unbind()) }?;
        return Ok((imported, stream));
    }
    let found = object.get_type().name()?.to_string();
    Err(Error::NoTensor { argument: frame.argument(), found })
}

/// Calls `__dlpack__`, and takes the tensor out of the capsule.
fn from_capsule(function: &Bound<'_, PyAny>, stream: &Stream) -> Result<Imported> {
    let py = function.py();
    let arguments = PyDict::new(py);
    arguments.set_item("stream", stream_argument(stream))?;
    arguments.set_item("max_version", (DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION))?;
    let capsule = match function.call((), Some(&arguments)) {
        // A producer of a version before 1.0 does not know the second argument.
        Err(error) if error.is_instance_of::<PyTypeError>(py) => {
            arguments.del_item("max_version")?;
            function.call((), Some(&arguments))?
        }
        called => called?,
    };
    for (name, used) in [(VERSIONED, USED_VERSIONED), (UNVERSIONED, USED_UNVERSIONED)] {
        // SAFETY: the object is alive.
        if unsafe { ffi::PyCapsule_IsValid(capsule.as_ptr(), name.as_ptr()) } == 0 {
            continue;
        }
        // SAFETY: the capsule has this name, so its pointer is a tensor of this form, which is owned once the capsule is
        // renamed. The stream was passed to the producer.
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
        "`__dlpack__` returned no capsule `dltensor_versioned` or `dltensor`, or one that was used",
    ))
}

/// Reads the dictionary of `__cuda_array_interface__`.
fn cuda_array(interface: &Bound<'_, PyAny>) -> Result<CudaArrayInterface> {
    let item = |name: &str| interface.get_item(name);
    let optional = |name: &str| match interface.get_item(name) {
        Ok(value) if value.is_none() => Ok(None),
        Ok(value) => Ok(Some(value)),
        Err(error) if error.is_instance_of::<pyo3::exceptions::PyKeyError>(interface.py()) => Ok(None),
        Err(error) => Err(error),
    };
    if optional("mask")?.is_some() {
        return Err(Error::value("an array with a mask; pass its data and its mask as two arrays"));
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

/// Converts a result to the caller's object.
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

/// A result in the runtime's own memory, which one framework can take over: `numpy.from_dlpack(tensor)`.
#[pyclass(name = "Tensor", module = "warpsmith")]
struct Exported {
    export: Option<Export>,
}

#[pymethods]
impl Exported {
    /// The device's type and index.
    fn __dlpack_device__(&self) -> Result<(i32, i32)> {
        let export = self.export.as_ref().ok_or_else(taken)?;
        let DLDevice { device_type, device_id } = export.device();
        Ok((device_type, device_id))
    }

    /// The tensor as a capsule, once.
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
                "the tensor is exported in place; copy it afterwards, with the framework's own function";
            return Err(pyo3::exceptions::PyBufferError::new_err(text).into());
        }
        let mut export = self.export.take().ok_or_else(taken)?;
        // SAFETY: the consumer keeps its stream until it has deleted the tensor, as the protocol says.
        py.detach(|| unsafe { export.ready_for(stream) })?;
        let is_versioned = max_version.is_some_and(|(major, _)| major >= DLPACK_MAJOR_VERSION);
        let (pointer, name, destructor): (*mut c_void, _, ffi::PyCapsule_Destructor) = match is_versioned {
            true => (export.into_raw().as_ptr().cast(), VERSIONED, delete_versioned),
            false => (export.into_raw_unversioned()?.as_ptr().cast(), UNVERSIONED, delete_unversioned),
        };
        // SAFETY: the pointer is not null, and the name is static.
        let capsule = unsafe { ffi::PyCapsule_New(pointer, name.as_ptr(), Some(destructor)) };
        // SAFETY: a new reference, or null with an exception.
        Ok(unsafe { Bound::from_owned_ptr_or_err(py, capsule) }?.unbind())
    }
}

fn taken() -> Error {
    Error::value("the tensor was taken over by another framework; use its object")
}

/// Destructor of a capsule that nobody has used.
unsafe extern "C" fn delete_versioned(capsule: *mut ffi::PyObject) {
    // SAFETY: the capsule is alive, and owns its tensor while it has the first name.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, VERSIONED.as_ptr()) == c_int::from(true) {
            let tensor =
                ffi::PyCapsule_GetPointer(capsule, VERSIONED.as_ptr()).cast::<DLManagedTensorVersioned>();
            (*tensor).deleter.into_iter().for_each(|delete| delete(tensor));
        }
    }
}

/// As [`delete_versioned`].
unsafe extern "C" fn delete_unversioned(capsule: *mut ffi::PyObject) {
    // SAFETY: as above.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, UNVERSIONED.as_ptr()) == c_int::from(true) {
            let tensor = ffi::PyCapsule_GetPointer(capsule, UNVERSIONED.as_ptr()).cast::<DLManagedTensor>();
            (*tensor).deleter.into_iter().for_each(|delete| delete(tensor));
        }
    }
}

/// Arguments of a function as a list, by position and by name.
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
            return wrong(format!("has no argument `{key}`; its arguments are {}", names.join(", ")));
        };
        if values[at].replace(value).is_some() {
            return wrong(format!("got the argument `{key}` twice"));
        }
    }
    let mut complete = Vec::with_capacity(names.len());
    for (at, value) in values.into_iter().enumerate() {
        match value.or_else(|| defaults[at].as_ref().map(|default| default.bind(py).clone())) {
            Some(value) => complete.push(value),
            None => return wrong(format!("lacks the argument `{}`", names[at])),
        }
    }
    Ok(complete)
}
