//! Access to shared libraries that are already loaded in the process.

use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

use libloading::Library;

/// Opens a library that is already loaded in the process, or returns `None`. The handle is never closed, because
/// frameworks are never unloaded.
pub(crate) fn loaded(name: &str) -> Option<&'static Library> {
    #[cfg(unix)]
    let library = {
        use libloading::os::unix;
        // The value of `RTLD_NOLOAD`, which `libloading` does not define.
        let no_load = if cfg!(target_os = "macos") { 0x10 } else { 0x4 };
        // SAFETY: no library is loaded, so no initializer runs.
        unsafe { unix::Library::open(Some(name), unix::RTLD_NOW | no_load) }.ok().map(Library::from)
    };
    #[cfg(windows)]
    let library = libloading::os::windows::Library::open_already_loaded(name).ok().map(Library::from);
    library.map(|library| &*Box::leak(Box::new(library)))
}

/// Looks up a function in the program itself, or in a library whose symbols are visible to the whole process.
///
/// # Safety
/// `F` must be the type of a pointer to the function with that name.
pub(crate) unsafe fn this_process<F: Copy>(name: &str) -> Option<F> {
    #[cfg(unix)]
    let library = libloading::os::unix::Library::this();
    #[cfg(windows)]
    let library = libloading::os::windows::Library::open_already_loaded("python3.dll").ok()?;
    // SAFETY: guaranteed by the caller.
    unsafe { library.get::<F>(name.as_bytes()).ok().map(|function| *function) }
}

type GetContext = unsafe extern "C" fn(*mut *mut c_void) -> c_int;
type SetContext = unsafe extern "C" fn(*mut c_void) -> c_int;

/// Restores the thread's current CUDA context when it is dropped. The runtime makes the context of a tensor's device
/// current, and frameworks treat the current context as the current device.
#[derive(Debug)]
pub struct ContextGuard(*mut c_void);

impl ContextGuard {
    /// Saves the current context.
    #[expect(clippy::new_without_default, reason = "a guard is not a value")]
    pub fn new() -> Self {
        Self(Self::functions().map_or(std::ptr::null_mut(), |(get, _)| Self::current(get)))
    }

    /// Returns the driver's functions, once the driver is loaded.
    fn functions() -> Option<(GetContext, SetContext)> {
        static FUNCTIONS: OnceLock<(GetContext, SetContext)> = OnceLock::new();
        if let Some(functions) = FUNCTIONS.get() {
            return Some(*functions);
        }
        let library = loaded(if cfg!(windows) { "nvcuda.dll" } else { "libcuda.so.1" })?;
        // SAFETY: the functions have these types.
        let found = unsafe {
            let get = library.get::<GetContext>("cuCtxGetCurrent").ok()?;
            (*get, *library.get::<SetContext>("cuCtxSetCurrent").ok()?)
        };
        Some(*FUNCTIONS.get_or_init(|| found))
    }

    fn current(get: GetContext) -> *mut c_void {
        let mut context = std::ptr::null_mut();
        // SAFETY: the function writes one value. If it fails, no context is current.
        unsafe { get(&mut context) };
        context
    }
}

impl Drop for ContextGuard {
    fn drop(&mut self) {
        if let Some((get, set)) = Self::functions()
            && Self::current(get) != self.0
        {
            // SAFETY: the context was current on this thread before. If it has been destroyed, the call fails.
            unsafe { set(self.0) };
        }
    }
}
