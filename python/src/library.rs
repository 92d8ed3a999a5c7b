//! Libraries that are in the process.

use libloading::Library;

/// Opens a library that is in the process. It is never closed, because frameworks are never unloaded.
pub(crate) fn loaded(name: &str) -> Option<&'static Library> {
    #[cfg(unix)]
    let library = {
        use libloading::os::unix;
        // `RTLD_NOLOAD`, which `libloading` does not name.
        let no_load = if cfg!(target_os = "macos") { 0x10 } else { 0x4 };
        // SAFETY: nothing is loaded.
        unsafe { unix::Library::open(Some(name), unix::RTLD_NOW | no_load) }.ok().map(Library::from)
    };
    #[cfg(windows)]
    let library = libloading::os::windows::Library::open_already_loaded(name).ok().map(Library::from);
    library.map(|library| &*Box::leak(Box::new(library)))
}
