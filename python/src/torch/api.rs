//! [`Api`]: functions of PyTorch's stable C ABI.

use std::ffi::{c_char, c_void};
use std::sync::OnceLock;

use libloading::Library;

use super::Boxed;
use crate::error::{Error, Result};
use crate::library::loaded;

/// `AtenTensorHandle`.
pub type Raw = *mut c_void;

/// Version 2.10.0 in PyTorch's encoding, the oldest version that exports all functions. With this value, newer versions
/// convert arguments as version 2.10 does.
pub const BUILD_VERSION: u64 = 2 << 56 | 10 << 48;

/// Functions of the PyTorch library in the process. They return 0 on success, and another value after an exception.
pub struct Api {
    pub library_init_def: unsafe extern "C" fn(*const c_char, *const c_char, u32, *mut Raw) -> i32,
    pub library_init_impl:
        unsafe extern "C" fn(*const c_char, *const c_char, *const c_char, u32, *mut Raw) -> i32,
    pub library_def: unsafe extern "C" fn(Raw, *const c_char) -> i32,
    pub library_impl: unsafe extern "C" fn(Raw, *const c_char, Boxed, u64) -> i32,
    pub get_dim: unsafe extern "C" fn(Raw, *mut i64) -> i32,
    pub get_sizes: unsafe extern "C" fn(Raw, *mut *mut i64) -> i32,
    pub get_strides: unsafe extern "C" fn(Raw, *mut *mut i64) -> i32,
    pub get_dtype: unsafe extern "C" fn(Raw, *mut i32) -> i32,
    pub get_device_type: unsafe extern "C" fn(Raw, *mut i32) -> i32,
    pub get_device_index: unsafe extern "C" fn(Raw, *mut i32) -> i32,
    pub get_data_ptr: unsafe extern "C" fn(Raw, *mut *mut c_void) -> i32,
    pub empty_strided: unsafe extern "C" fn(i64, *const i64, *const i64, i32, i32, i32, *mut Raw) -> i32,
    pub new_tensor_handle: unsafe extern "C" fn(Raw, *mut Raw) -> i32,
    pub delete_tensor_object: unsafe extern "C" fn(Raw) -> i32,
    /// `aoti_torch_check`, which throws a C++ exception if the condition is false.
    pub check_failed: unsafe extern "C-unwind" fn(bool, *const c_char, *const c_char, u32, *const c_char),
    /// `operator delete` of C++.
    pub operator_delete: unsafe extern "C" fn(*mut c_void),
    get_current_cuda_stream: Option<unsafe extern "C" fn(i32, *mut *mut c_void) -> i32>,
}

const LIBRARIES: [&str; 2] = match () {
    () if cfg!(windows) => ["torch_cpu.dll", "torch_cuda.dll"],
    () if cfg!(target_os = "macos") => ["libtorch_cpu.dylib", "libtorch_cuda.dylib"],
    () => ["libtorch_cpu.so", "libtorch_cuda.so"],
};

/// Looks up a function of PyTorch.
///
/// # Safety
/// The symbol must be a function of type `T`.
unsafe fn symbol<T: Copy>(library: &Library, name: &str) -> Result<T> {
    // SAFETY: guaranteed by the caller.
    let found = unsafe { library.get::<T>(name.as_bytes()) };
    found.map(|symbol| *symbol).map_err(|_| {
        Error::Torch(format!("the loaded version does not export `{name}`; install version 2.10 or later"))
    })
}

impl Api {
    /// Returns the functions, or an error if PyTorch has not been imported.
    pub fn get() -> Result<&'static Self> {
        static API: OnceLock<Api> = OnceLock::new();
        match API.get() {
            Some(api) => Ok(api),
            None => Self::load().map(|api| API.get_or_init(|| api)),
        }
    }

    #[cold]
    fn load() -> Result<Self> {
        let not_loaded = || Error::Torch("the library is not loaded; import torch first".to_owned());
        let library = loaded(LIBRARIES[0]).ok_or_else(not_loaded)?;
        // SAFETY: the types match the declarations in PyTorch's headers `shim.h`.
        unsafe {
            Ok(Self {
                library_init_def: symbol(library, "aoti_torch_library_init_def")?,
                library_init_impl: symbol(library, "aoti_torch_library_init_impl")?,
                library_def: symbol(library, "aoti_torch_library_def")?,
                library_impl: symbol(library, "torch_library_impl")?,
                get_dim: symbol(library, "aoti_torch_get_dim")?,
                get_sizes: symbol(library, "aoti_torch_get_sizes")?,
                get_strides: symbol(library, "aoti_torch_get_strides")?,
                get_dtype: symbol(library, "aoti_torch_get_dtype")?,
                get_device_type: symbol(library, "aoti_torch_get_device_type")?,
                get_device_index: symbol(library, "aoti_torch_get_device_index")?,
                get_data_ptr: symbol(library, "aoti_torch_get_data_ptr")?,
                empty_strided: symbol(library, "aoti_torch_empty_strided")?,
                new_tensor_handle: symbol(library, "aoti_torch_new_tensor_handle")?,
                delete_tensor_object: symbol(library, "aoti_torch_delete_tensor_object")?,
                check_failed: symbol(library, "aoti_torch_check")?,
                operator_delete: symbol(library, if cfg!(windows) { "free" } else { "_ZdlPv" })?,
                get_current_cuda_stream: loaded(LIBRARIES[1])
                    .and_then(|library| symbol(library, "aoti_torch_get_current_cuda_stream").ok()),
            })
        }
    }

    /// Returns an error for a nonzero status. PyTorch prints the exception to standard error.
    pub fn check(&self, what: &str, status: i32) -> Result<()> {
        match status {
            0 => Ok(()),
            _ => Err(Error::Torch(format!("{what} failed; PyTorch printed the reason to standard error"))),
        }
    }

    /// Returns the current stream of a CUDA device.
    pub fn current_stream(&self, device: i32) -> Result<*mut c_void> {
        let missing = || {
            Error::Torch(
                "an argument is a CUDA tensor, but PyTorch was built without CUDA; install a CUDA build"
                    .to_owned(),
            )
        };
        let current = self.get_current_cuda_stream.ok_or_else(missing)?;
        let mut stream = std::ptr::null_mut();
        // SAFETY: the function writes one value.
        self.check("aoti_torch_get_current_cuda_stream", unsafe { current(device, &mut stream) })?;
        Ok(stream)
    }
}
