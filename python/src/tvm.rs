//! Implements the calling convention of TVM FFI. The functions of `libtvm_ffi` are looked up in the process.
//!
//! A function borrows its arguments and writes one result that the caller owns. Errors are stored per thread.

use std::ffi::{CString, c_char, c_void};
use std::mem::{offset_of, size_of};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{null_mut, with_exposed_provenance_mut};
use std::sync::OnceLock;

use warpsmith_interop::dlpack::{DLDataType, DLDevice, DLManagedTensorVersioned, DLTensor, Export, Imported};
use warpsmith_runtime::Stream;

use crate::call::{Allocator, Call, Frame};
use crate::error::{Error, Result, panic_text};
use crate::exchange::{Allocate, allocate};
use crate::library::{ContextGuard, loaded};
use crate::operator::Function;
use crate::tensor::{Origin, TensorMut};

/// `TVMFFIObjectHandle`.
type Raw = *mut c_void;

/// `TVMFFIAny`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Any {
    type_index: i32,
    padding: u32,
    value: u64,
}

/// `TVMFFIObject`, the header of each object. In a tensor object, a `DLTensor` follows the header.
#[repr(C)]
struct Object {
    references: u64,
    type_index: i32,
    padding: u32,
    deleter: *mut c_void,
}

const _: () = assert!(size_of::<Any>() == 16 && offset_of!(Any, value) == 8 && size_of::<Object>() == 24);

// `TVMFFITypeIndex`.
const NONE: i32 = 0;
const INT: i32 = 1;
const BOOL: i32 = 2;
const FLOAT: i32 = 3;
const BORROWED: i32 = 7;
const TENSOR: i32 = 70;

impl Any {
    fn new(type_index: i32, value: u64) -> Self {
        Self { type_index, padding: 0, value }
    }

    pub(crate) fn is_none(&self) -> bool {
        self.type_index == NONE
    }

    pub(crate) fn int(&self) -> Option<i64> {
        matches!(self.type_index, INT | BOOL).then_some(self.value as i64)
    }

    pub(crate) fn bool(&self) -> Option<bool> {
        self.int().map(|value| value != 0)
    }

    pub(crate) fn float(&self) -> Option<f64> {
        let is_float = self.type_index == FLOAT;
        if is_float { Some(f64::from_bits(self.value)) } else { self.int().map(|value| value as f64) }
    }

    /// Returns the name of the type, for error messages.
    pub(crate) fn name(&self) -> String {
        match self.type_index {
            NONE => "None".to_owned(),
            INT => "an int".to_owned(),
            BOOL => "a bool".to_owned(),
            FLOAT => "a float".to_owned(),
            8 | 11 | 65 => "a str".to_owned(),
            BORROWED | TENSOR => "a tensor".to_owned(),
            other => format!("a value of TVM FFI's type index {other}"),
        }
    }

    /// Parses a number, a bool or `None` in Python syntax.
    fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "None" => Self::new(NONE, 0),
            "True" | "False" => Self::new(BOOL, (text == "True").into()),
            _ => match text.parse::<i64>() {
                Ok(value) => Self::new(INT, value as u64),
                Err(_) => Self::new(FLOAT, text.parse::<f64>().ok()?.to_bits()),
            },
        })
    }
}

/// Functions of the TVM FFI library in the process. Functions with a status return 0 on success, and another value
/// after an error.
struct Api {
    retain: unsafe extern "C" fn(Raw) -> i32,
    release: unsafe extern "C" fn(Raw) -> i32,
    set_error: unsafe extern "C" fn(*const c_char, *const c_char),
    take: unsafe extern "C" fn(*mut DLManagedTensorVersioned, i32, i32, *mut Raw) -> i32,
    current_stream: unsafe extern "C" fn(i32, i32) -> *mut c_void,
    allocator: unsafe extern "C" fn() -> Option<Allocate>,
    call: unsafe extern "C" fn(Raw, *const Any, i32, *mut Any) -> i32,
    /// Handle of the global function `ffi.Array`, which creates an array from its arguments.
    array: usize,
}

const LIBRARY: &str = match () {
    () if cfg!(windows) => "tvm_ffi.dll",
    () if cfg!(target_os = "macos") => "libtvm_ffi.dylib",
    () => "libtvm_ffi.so",
};

/// `TVMFFIByteArray`.
#[repr(C)]
struct Bytes {
    data: *const u8,
    len: usize,
}

impl Api {
    fn get() -> Result<&'static Self> {
        static API: OnceLock<Option<Api>> = OnceLock::new();
        API.get_or_init(Self::load).as_ref().ok_or(Error::Tvm(LIBRARY))
    }

    #[cold]
    fn load() -> Option<Self> {
        let library = loaded(LIBRARY)?;
        // SAFETY: the types match the declarations in TVM FFI's headers `c_api.h` and `c_env_api.h`. The name has 9
        // bytes.
        unsafe {
            let get_global =
                library.get::<unsafe extern "C" fn(*const Bytes, *mut Raw) -> i32>("TVMFFIFunctionGetGlobal");
            let mut array = null_mut();
            let status = get_global.ok()?(&Bytes { data: b"ffi.Array".as_ptr(), len: 9 }, &mut array);
            if status != 0 || array.is_null() {
                return None;
            }
            Some(Self {
                retain: *library.get("TVMFFIObjectIncRef").ok()?,
                release: *library.get("TVMFFIObjectDecRef").ok()?,
                set_error: *library.get("TVMFFIErrorSetRaisedFromCStr").ok()?,
                take: *library.get("TVMFFITensorFromDLPackVersioned").ok()?,
                current_stream: *library.get("TVMFFIEnvGetStream").ok()?,
                allocator: *library.get("TVMFFIEnvGetDLPackManagedTensorAllocator").ok()?,
                call: *library.get("TVMFFIFunctionCall").ok()?,
                array: array.expose_provenance(),
            })
        }
    }
}

/// Owned reference to a tensor object. Dropping it releases the reference.
#[derive(Debug)]
pub(crate) struct Handle(Raw);

// SAFETY: TVM FFI's reference counts are atomic, and the object is not modified.
unsafe impl Send for Handle {}
// SAFETY: shared references only read the object.
unsafe impl Sync for Handle {}

impl Handle {
    /// Creates a tensor object from a DLPack tensor.
    ///
    /// # Safety
    /// The caller must own `managed` and must not use it afterwards.
    unsafe fn new(managed: *mut DLManagedTensorVersioned) -> Result<Self> {
        let mut raw = null_mut();
        // SAFETY: guaranteed by the caller. The two zeros request no specific alignment or contiguity.
        match unsafe { (Api::get()?.take)(managed, 0, 0, &mut raw) } {
            0 => Ok(Self(raw)),
            _ => Err(Error::Tvm("TVMFFITensorFromDLPackVersioned")),
        }
    }

    /// Returns another reference to an object.
    ///
    /// # Safety
    /// The object must be alive.
    unsafe fn duplicate(raw: Raw) -> Result<Self> {
        // SAFETY: guaranteed by the caller.
        match unsafe { (Api::get()?.retain)(raw) } {
            0 => Ok(Self(raw)),
            _ => Err(Error::Tvm("TVMFFIObjectIncRef")),
        }
    }

    fn tensor(&self) -> DLTensor {
        // SAFETY: the object is alive and is a tensor.
        unsafe { self.0.byte_add(size_of::<Object>()).cast::<DLTensor>().read() }
    }

    /// Imports the tensor. Callers of TVM FFI reuse memory in stream order on their current stream.
    fn imported(self) -> Result<Imported> {
        // SAFETY: the handle keeps the memory, shape and strides alive.
        Ok(unsafe { Imported::from_tensor(self.tensor(), 0, self)?.stream_ordered() })
    }

    fn as_any(&self) -> Any {
        Any::new(TENSOR, self.0.expose_provenance() as u64)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if let Ok(api) = Api::get() {
            // SAFETY: the reference is owned.
            unsafe { (api.release)(self.0) };
        }
    }
}

/// Imports a tensor argument.
///
/// # Safety
/// The value must be valid during the call.
pub(crate) unsafe fn import(value: &Any, frame: &mut Frame) -> Result<(Imported, Stream)> {
    let raw: Raw = with_exposed_provenance_mut(value.value as usize);
    // SAFETY: the caller guarantees that the tensor or object is alive.
    let imported = unsafe {
        match value.type_index {
            TENSOR => Handle::duplicate(raw)?.imported()?,
            BORROWED => Imported::from_tensor(raw.cast::<DLTensor>().read(), 0, ())?.stream_ordered(),
            _ => return Err(Error::NoTensor { argument: frame.argument(), found: value.name() }),
        }
    };
    let (api, device) = (Api::get()?, imported.device());
    // SAFETY: the function only returns the stream that the caller has set.
    let current = || Ok(Some(unsafe { (api.current_stream)(device.device_type, device.device_id) }));
    // SAFETY: the function only returns the allocator that the caller has set.
    let allocator = || Ok(unsafe { (api.allocator)() }.map_or(Allocator::Own(None), Allocator::Tvm));
    let stream = frame.stream(device, current, allocator)?;
    Ok((imported, stream))
}

/// Allocates a contiguous tensor.
pub(crate) fn empty(
    function: Allocate,
    device: DLDevice,
    data_type: DLDataType,
    shape: &[usize],
) -> Result<(Imported, Handle)> {
    // SAFETY: the caller of TVM FFI has set the allocator. The new object owns the tensor.
    unsafe {
        let returned = Handle::new(allocate(function, device, data_type, shape)?)?;
        Ok((Handle::duplicate(returned.0)?.imported()?, returned))
    }
}

/// Converts results to a value that the caller owns: `None`, a tensor, or an array of tensors.
pub(crate) fn export(tensors: Vec<TensorMut>, call: &Call) -> Result<Any> {
    let handle = |TensorMut { tensor, origin }| match origin {
        Origin::Tvm(handle) => Ok(handle),
        Origin::Own => {
            let mut export = Export::from_tensor(tensor.into_inner());
            export.ready_on(call.stream())?;
            // SAFETY: the tensor was just created and is owned here.
            unsafe { Handle::new(export.into_raw().as_ptr()) }
        }
        _ => Err(Error::ReturnedArgument),
    };
    let handles: Vec<Handle> = tensors.into_iter().map(handle).collect::<Result<_>>()?;
    let values: Vec<Any> = handles.iter().map(Handle::as_any).collect();
    match *values {
        [] => Ok(Any::new(NONE, 0)),
        [value] => {
            handles.into_iter().for_each(std::mem::forget);
            Ok(value)
        }
        _ => {
            let (api, mut result) = (Api::get()?, Any::new(NONE, 0));
            let array = with_exposed_provenance_mut(api.array);
            // SAFETY: the function is never released. The array holds its own references to the tensors.
            match unsafe { (api.call)(array, values.as_ptr(), values.len() as i32, &mut result) } {
                0 => Ok(result),
                _ => Err(Error::Tvm("ffi.Array")),
            }
        }
    }
}

/// Calls an operator for TVM FFI. Omitted arguments have their default values.
///
/// # Safety
/// `arguments` must point to `count` valid values, and `result` must be valid for writes.
pub unsafe fn call<A, F: Function<A>>(
    names: &'static [&'static str],
    defaults: &[Option<&str>],
    function: &F,
    arguments: *const Any,
    count: i32,
    result: *mut Any,
) -> i32 {
    let _context = ContextGuard::new();
    let called = catch_unwind(AssertUnwindSafe(|| {
        let given = match count {
            // The pointer may be null.
            ..=0 => &[],
            // SAFETY: guaranteed by the caller.
            _ => unsafe { std::slice::from_raw_parts(arguments, count as usize) },
        };
        let left_out = defaults.get(given.len()..).unwrap_or_default();
        let left_out = left_out.iter().map_while(|default| default.and_then(Any::parse));
        let values: Vec<Any> = given.iter().copied().chain(left_out).collect();
        if values.len() != names.len() {
            let text = format!("got {count} arguments for ({})", names.join(", "));
            return Err(Error::Arguments(text));
        }
        // SAFETY: guaranteed by the caller.
        unsafe { function.call_tvm(&values, Frame::new(names)) }
    }));
    let error = match called {
        Ok(Ok(value)) => {
            // SAFETY: guaranteed by the caller.
            unsafe { result.write(value) };
            return 0;
        }
        Ok(Err(error)) => error,
        Err(panic) => Error::Panic(panic_text(&*panic)),
    };
    if let Ok(api) = Api::get() {
        let text = |text: &str| CString::new(text.replace('\0', " ")).unwrap_or_default();
        let (kind, text) = (text(error.kind()), text(&error.to_string()));
        // SAFETY: the strings are alive during the call.
        unsafe { (api.set_error)(kind.as_ptr(), text.as_ptr()) };
    }
    -1
}
