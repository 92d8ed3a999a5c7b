//! [`SharedPages`]: memory of emulated devices that several processes map, stored in anonymous files.
//!
//! The length of a file is fixed by a seal, which an import checks, so accesses to a mapping of the file cannot fault.

pub(super) use self::system::SharedPages;

#[cfg(target_os = "linux")]
mod system {
    use std::ffi::c_int;
    use std::io::{Error, ErrorKind, Result};
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

    use warpsmith_driver::ExportedMemory;

    /// Seals that fix the length and the seals themselves.
    const SEALS: c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

    /// An anonymous file.
    #[derive(Debug)]
    pub(crate) struct SharedPages(OwnedFd);

    fn checked(result: c_int) -> Result<c_int> {
        if result < 0 { Err(Error::last_os_error()) } else { Ok(result) }
    }

    impl SharedPages {
        /// Creates a file of `bytes` bytes and fills it with `0xFF`, like new device memory.
        pub fn create(bytes: usize) -> Result<Self> {
            let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
            // SAFETY: the name is a C string; the result is checked and owned only by this value.
            let file = unsafe {
                let descriptor = libc::memfd_create(c"warpsmith-device-memory".as_ptr(), flags);
                OwnedFd::from_raw_fd(checked(descriptor)?)
            };
            let length = libc::off_t::try_from(bytes).map_err(|_| Error::from(ErrorKind::OutOfMemory))?;
            // SAFETY: these are calls on an open file.
            unsafe {
                checked(libc::ftruncate(file.as_raw_fd(), length))?;
                checked(libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, SEALS))?;
                let flags = libc::MAP_SHARED;
                let protection = libc::PROT_READ | libc::PROT_WRITE;
                let pages = libc::mmap(std::ptr::null_mut(), bytes, protection, flags, file.as_raw_fd(), 0);
                if pages == libc::MAP_FAILED {
                    return Err(Error::last_os_error());
                }
                pages.cast::<u8>().write_bytes(0xFF, bytes);
                libc::munmap(pages, bytes);
            }
            Ok(Self(file))
        }

        pub fn export(&self) -> Result<ExportedMemory> {
            self.0.try_clone().map(ExportedMemory)
        }

        /// Imports exported memory. The memory must have `bytes` bytes, and its length must be sealed.
        pub fn import(memory: &ExportedMemory, bytes: usize) -> Result<Self> {
            let refused = |text: String| Err(Error::new(ErrorKind::InvalidInput, text));
            let descriptor = memory.0.as_raw_fd();
            // SAFETY: this is a call on an open file.
            let seals = unsafe { libc::fcntl(descriptor, libc::F_GET_SEALS) };
            if seals < 0 || seals & SEALS != SEALS {
                return refused(
                    "the file descriptor does not refer to an emulated device's memory".to_owned(),
                );
            }
            // SAFETY: zeros are a valid value, which the call overwrites.
            let mut status: libc::stat = unsafe { std::mem::zeroed() };
            // SAFETY: the file is open; the pointer is to a local variable.
            checked(unsafe { libc::fstat(descriptor, &mut status) })?;
            if u64::try_from(status.st_size).ok() != Some(bytes as u64) {
                return refused(format!("the memory has {} bytes, not {bytes}", status.st_size));
            }
            memory.0.try_clone().map(Self)
        }

        /// Maps the memory at an address. Returns false if the system call fails.
        ///
        /// # Safety
        /// The range must be reserved, and no code may use it; `bytes` must be the file's length.
        pub unsafe fn map(&self, address: u64, bytes: usize) -> bool {
            let pointer = std::ptr::with_exposed_provenance_mut(address as usize);
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_SHARED | libc::MAP_FIXED;
            // SAFETY: the call replaces unused addresses of a reservation; the file has the same length.
            let mapped = unsafe { libc::mmap(pointer, bytes, protection, flags, self.0.as_raw_fd(), 0) };
            mapped != libc::MAP_FAILED
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use std::io::{Error, ErrorKind, Result};

    use warpsmith_driver::ExportedMemory;

    /// Placeholder for shared pages, which are not supported on this system.
    #[derive(Debug)]
    pub(crate) enum SharedPages {}

    fn unsupported<T>() -> Result<T> {
        let text = "emulated devices share memory between processes only on Linux";
        Err(Error::new(ErrorKind::Unsupported, text))
    }

    impl SharedPages {
        pub fn create(_bytes: usize) -> Result<Self> {
            unsupported()
        }

        pub fn export(&self) -> Result<ExportedMemory> {
            match *self {}
        }

        pub fn import(_memory: &ExportedMemory, _bytes: usize) -> Result<Self> {
            unsupported()
        }

        /// # Safety
        /// There are no requirements, because there are no shared pages on this system.
        pub unsafe fn map(&self, _address: u64, _bytes: usize) -> bool {
            match *self {}
        }
    }
}
