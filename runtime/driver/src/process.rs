//! Operating system services for a process and its threads. Only Unix systems have `fork` and set-user-ID programs.

/// Returns true if the program has privileges that its user lacks, for example because it is set-user-ID. The
/// environment must then not determine which code the program loads or which files it writes.
#[cfg(target_os = "linux")]
pub fn is_privileged() -> bool {
    // SAFETY: the call only reads a number that the operating system passed to the process.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// Returns true if the program has privileges that its user lacks, as on Linux.
#[cfg(all(unix, not(target_os = "linux")))]
pub fn is_privileged() -> bool {
    // SAFETY: these calls only read the process's IDs and cannot fail.
    unsafe { libc::getuid() != libc::geteuid() || libc::getgid() != libc::getegid() }
}

/// Returns false, because this system has no set-user-ID programs.
#[cfg(not(unix))]
pub fn is_privileged() -> bool {
    false
}

/// Returns the system's ID of the calling thread.
#[cfg(target_os = "linux")]
pub fn thread_id() -> u64 {
    // SAFETY: the call takes no arguments and cannot fail.
    unsafe { libc::gettid() as u64 }
}

/// Returns a number that identifies the calling thread, on systems whose thread IDs profilers do not show.
#[cfg(not(target_os = "linux"))]
pub fn thread_id() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local!(static NUMBER: u64 = NEXT.fetch_add(1, Ordering::Relaxed));
    NUMBER.with(|number| *number)
}

/// Registers a function that the system calls in each forked child before the child starts threads. Returns true on
/// success. Registration fails only if the system is out of memory.
///
/// # Safety
/// The function must be async-signal-safe, because locks may be held by threads that do not exist in the child.
#[cfg(unix)]
pub unsafe fn after_fork(function: extern "C" fn()) -> bool {
    // SAFETY: guaranteed by the caller.
    unsafe { libc::pthread_atfork(None, None, Some(function)) == 0 }
}

/// Returns true without registering the function, because this system has no `fork`.
///
/// # Safety
/// There are no requirements, because the function is not called.
#[cfg(not(unix))]
pub unsafe fn after_fork(_function: extern "C" fn()) -> bool {
    true
}

/// Registers a function that the C library calls when the program exits. Returns true on success. On Windows, the
/// function is not called if the program calls [`std::process::exit`].
pub fn at_exit(function: extern "C" fn()) -> bool {
    // SAFETY: the function has no parameters and exists until the program exits.
    unsafe { libc::atexit(function) == 0 }
}
