//! Access to shared libraries that are already loaded in the process.

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

/// Looks up a function of the program itself, or of a library that all libraries of the process see.
///
/// # Safety
/// `F` is the type of a pointer to the function with that name.
pub(crate) unsafe fn this_process<F: Copy>(name: &str) -> Option<F> {
    #[cfg(unix)]
    let library = libloading::os::unix::Library::this();
    #[cfg(windows)]
    let library = libloading::os::windows::Library::open_already_loaded("python3.dll").ok()?;
    // SAFETY: guaranteed by the caller.
    unsafe { library.get::<F>(name.as_bytes()).ok().map(|function| *function) }
}
