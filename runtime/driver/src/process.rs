//! Services of the operating system for a process and its threads. Systems other than Unix do not fork processes and
//! have no set-user-ID programs.

/// Returns true if the program has privileges that its user does not have, for example because its file is set-user-ID.
/// In that case, the environment must not determine which code the program loads or which files it writes.
#[cfg(target_os = "linux")]
pub fn is_privileged() -> bool {
    // SAFETY: the call reads a number that the operating system passed to the process.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// Returns true if the program has privileges that its user does not have, as on Linux.
#[cfg(all(unix, not(target_os = "linux")))]
pub fn is_privileged() -> bool {
    // SAFETY: these calls only read the process's IDs and cannot fail.
    unsafe { libc::getuid() != libc::geteuid() || libc::getgid() != libc::getegid() }
}

/// Returns false, because this system does not have set-user-ID programs.
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

/// Returns a number of the calling thread, on systems whose thread IDs profilers do not show.
#[cfg(not(target_os = "linux"))]
pub fn thread_id() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local!(static NUMBER: u64 = NEXT.fetch_add(1, Ordering::Relaxed));
    NUMBER.with(|number| *number)
}

/// Registers a function that the system calls in each forked child, while the child has one thread. Returns true on
/// success. Registration fails only if the system is out of memory.
///
/// # Safety
/// The function may perform only async-signal-safe operations, because locks may be held by threads that do not exist in
/// the child.
#[cfg(unix)]
pub unsafe fn after_fork(function: extern "C" fn()) -> bool {
    // SAFETY: guaranteed by the caller.
    unsafe { libc::pthread_atfork(None, None, Some(function)) == 0 }
}

/// Returns true without registering the function, because this system does not fork processes.
///
/// # Safety
/// There are no requirements, because the function is not called.
#[cfg(not(unix))]
pub unsafe fn after_fork(_function: extern "C" fn()) -> bool {
    true
}

/// Registers a function that the C library calls at the end of the program. Returns true on success. On Windows, the
/// function is not called if the program calls [`std::process::exit`].
pub fn at_exit(function: extern "C" fn()) -> bool {
    // SAFETY: the function has no parameters and exists until the end of the program.
    unsafe { libc::atexit(function) == 0 }
}
