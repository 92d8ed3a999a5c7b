//! Interrupts a kernel in a loop that never calls the emulator.
//!
//! # Soundness
//! The host thread receives a signal, whose handler runs on the stack of the kernel's coroutine. The handler then
//! suspends the coroutine, as other operations do, except that the coroutine is never resumed. The coroutine's stack is
//! leaked, so its data is neither used after being freed nor dropped. The interrupted code must not hold a resource on
//! which other threads wait, such as an allocator lock. The following conditions ensure this:
//!
//! - The set has been late for a while. The thread is therefore not in an emulator function that keeps state, because
//!   each of these functions ends a late set when it is called.
//! - The thread's next instruction is in the program's own code, which contains the kernels, and not in the C library,
//!   in which locks of the allocator may be held. If this is not the case, the signal has no effect and is sent again.
//! - In a checked launch, the only user of the checker is code that records a memory access, into plain data that only
//!   this launch reads.
//!
//! If a kernel stays in other code, or runs on a system without this mechanism, the process is terminated with a
//! message.

use std::backtrace::Backtrace;
use std::time::Duration;

/// Backtrace of an interrupted kernel.
pub(crate) type Interrupted = Box<Backtrace>;

/// Time that the watcher attempts to interrupt a kernel before it terminates the process.
const PATIENCE: Duration = Duration::from_secs(20);

fn give_up() -> ! {
    eprintln!(
        "a kernel on the emulated device has not ended within WARPSMITH_EMULATOR_TIME_LIMIT, and cannot be interrupted: \
         the process ends"
    );
    std::process::abort()
}

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod implementation {
    use std::backtrace::Backtrace;
    use std::ffi::{c_int, c_void};
    use std::mem::MaybeUninit;
    use std::ptr;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use std::time::Duration;

    use super::{PATIENCE, give_up};
    use crate::registers::registers;

    /// Signal that interrupts a host thread. It is ignored by default and rarely used by programs.
    const SIGNAL: c_int = libc::SIGURG;

    /// Address range of the program's code.
    static CODE: [AtomicUsize; 2] = [AtomicUsize::new(0), AtomicUsize::new(0)];
    /// The program's own action for the signal, which is stored while the emulator uses the signal.
    static BEFORE: Mutex<Option<libc::sigaction>> = Mutex::new(None);

    pub(crate) fn this_thread() -> u64 {
        // SAFETY: the call takes no arguments.
        unsafe { libc::pthread_self() as u64 }
    }

    /// Interrupts a host thread that is late. The thread must exist; `since` is the time since the first attempt to
    /// interrupt it.
    pub(crate) fn interrupt(thread: u64, since: Duration) {
        if since > PATIENCE || !prepare() {
            give_up();
        }
        // SAFETY: the thread exists.
        unsafe { libc::pthread_kill(thread as libc::pthread_t, SIGNAL) };
    }

    /// Restores the signal action as soon as no thread is late.
    pub(crate) fn rest() {
        if let Some(before) = BEFORE.lock().ok().and_then(|mut before| before.take()) {
            // SAFETY: the call restores the previous action.
            unsafe { libc::sigaction(SIGNAL, &before, ptr::null_mut()) };
        }
    }

    fn prepare() -> bool {
        let Ok(mut before) = BEFORE.lock() else { return false };
        if before.is_some() {
            return true;
        }
        let Some([start, end]) = code() else { return false };
        CODE[0].store(start, Relaxed);
        CODE[1].store(end, Relaxed);
        // SAFETY: all zeros represent no handler, no flags and no mask.
        let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
        let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = handle;
        action.sa_sigaction = handler as usize;
        // Without `SA_ONSTACK`, the handler runs on the coroutine's stack. With `SA_NODEFER`, the signal stays
        // unblocked although the handler never returns.
        action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER | libc::SA_RESTART;
        // SAFETY: all zeros, as above.
        let mut old: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
        // SAFETY: the handler has the signature that the flags require.
        let installed = unsafe { libc::sigaction(SIGNAL, &action, &mut old) } == 0;
        *before = installed.then_some(old);
        installed
    }

    /// Returns the address range of the code that contains this function, as mapped by the system.
    fn code() -> Option<[usize; 2]> {
        let own = code as fn() -> Option<[usize; 2]> as usize;
        let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
        maps.lines().find_map(|line| {
            let (start, end) = line.split_once(' ')?.0.split_once('-')?;
            let range = [start, end].map(|number| usize::from_str_radix(number, 16).unwrap_or(0));
            (range[0] <= own && own < range[1]).then_some(range)
        })
    }

    /// Returns the address of the interrupted instruction.
    fn interrupted_at(context: *mut c_void) -> usize {
        let context: *const libc::ucontext_t = context.cast();
        // SAFETY: the system passes this pointer to handlers that are installed with `SA_SIGINFO`.
        unsafe {
            #[cfg(target_arch = "x86_64")]
            return (*context).uc_mcontext.gregs[libc::REG_RIP as usize] as usize;
            #[cfg(target_arch = "aarch64")]
            return (*context).uc_mcontext.pc as usize;
        }
    }

    extern "C" fn handle(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
        let registers = registers();
        let at = interrupted_at(context);
        if !registers.in_kernel() || !(CODE[0].load(Relaxed)..CODE[1].load(Relaxed)).contains(&at) {
            return;
        }
        let set = registers.set();
        // The checker pointer is null while the checker is in use.
        let is_busy = set.grid.is_checked && registers.checker.get().is_null();
        if !set.is_late() || is_busy || std::thread::panicking() {
            return;
        }
        set.abandon(registers, Box::new(Backtrace::force_capture()));
    }
}

#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
mod implementation {
    use std::time::Duration;

    use super::{PATIENCE, give_up};

    pub(crate) fn this_thread() -> u64 {
        0
    }

    pub(crate) fn interrupt(_thread: u64, since: Duration) {
        if since > PATIENCE {
            give_up();
        }
    }

    pub(crate) fn rest() {}
}

pub(super) use implementation::{interrupt, rest, this_thread};
