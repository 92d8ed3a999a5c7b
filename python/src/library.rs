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
