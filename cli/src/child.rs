//! Child programs. They share the terminal and receive this process's signals, and their exit code becomes this
//! process's exit code.

use std::io;
use std::process::{Command, ExitStatus};

#[cfg(feature = "collective")]
pub use self::signals::name_of;
pub use self::signals::{PAUSE, Signals, send};

/// Runs a program to completion. Meanwhile, termination signals are forwarded to it instead of ending this process.
/// Signals that the terminal generates (Ctrl-C, Ctrl-\) reach the program directly.
pub fn run(command: &mut Command) -> io::Result<ExitStatus> {
    let signals = Signals::catch()?;
    let mut child = command.spawn()?;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        for signal in signals.take() {
            if !signals.reached_all(signal) {
                send(&child, signal);
            }
        }
        std::thread::sleep(PAUSE);
    }
}

/// Makes the operating system kill a process when this process exits for any reason.
#[cfg(target_os = "linux")]
pub fn end_with_this_process(command: &mut Command) {
    use std::os::unix::process::CommandExt;

    let parent = std::process::id();
    let ask = move || {
        // SAFETY: these calls do not access memory.
        let (asked, parent_now) =
            unsafe { (libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL), libc::getppid()) };
        match asked {
            0 if u32::try_from(parent_now) == Ok(parent) => Ok(()),
            // The parent process exited before this request was made.
            0 => Err(io::Error::from_raw_os_error(libc::ESRCH)),
            _ => Err(io::Error::last_os_error()),
        }
    };
    // SAFETY: between `fork` and `exec` the closure makes system calls only, and allocates nothing.
    unsafe { command.pre_exec(ask) };
}

#[cfg(not(target_os = "linux"))]
pub fn end_with_this_process(_: &mut Command) {}

/// Returns true if the parent of this process has this ID.
#[cfg(all(unix, feature = "collective"))]
pub fn is_child_of(process: u32) -> bool {
    std::os::unix::process::parent_id() == process
}

/// Returns true, because only Unix assigns a new parent to a process.
#[cfg(all(not(unix), feature = "collective"))]
pub fn is_child_of(_: u32) -> bool {
    true
}

/// Returns the exit code of a program by the shell's convention: 128 plus the signal number if a signal terminated the
/// program.
pub fn code(status: ExitStatus) -> u8 {
    let code = status.code().unwrap_or_else(|| 128 + signals::of(status));
    u8::try_from(code & 0xff).unwrap_or(1)
}

#[cfg(unix)]
#[cfg_attr(not(feature = "collective"), allow(dead_code, reason = "`launch` uses all of it"))]
mod signals {
    use std::io::{self, IsTerminal};
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Child, ExitStatus};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use signal_hook::consts::{SIGHUP, SIGINT, SIGKILL, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
    use signal_hook::flag;

    const PASSED_ON: [i32; 6] = [SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2];
    /// Interval at which signals and the end of a program are polled.
    pub const PAUSE: Duration = Duration::from_millis(5);

    /// Signals that this process has received. They do not end the process until this value is dropped.
    pub struct Signals {
        came: Vec<(i32, Arc<AtomicBool>)>,
        has_terminal: bool,
        /// True once the default signal handlers are restored.
        are_released: Arc<AtomicBool>,
    }

    impl Drop for Signals {
        fn drop(&mut self) {
            self.are_released.store(true, Ordering::SeqCst);
        }
    }

    impl Signals {
        /// Starts catching signals.
        pub fn catch() -> io::Result<Self> {
            let (mut came, are_released) = (Vec::new(), Arc::new(AtomicBool::new(false)));
            for signal in PASSED_ON {
                flag::register_conditional_default(signal, are_released.clone())?;
                let flag = Arc::new(AtomicBool::new(false));
                flag::register(signal, flag.clone())?;
                came.push((signal, flag));
            }
            let has_terminal = io::stdin().is_terminal() || io::stderr().is_terminal();
            Ok(Self { came, has_terminal, are_released })
        }

        /// Returns the signals received since the last call.
        pub fn take(&self) -> Vec<i32> {
            let came = self.came.iter().filter(|(_, came)| came.swap(false, Ordering::Relaxed));
            came.map(|(signal, _)| *signal).collect()
        }

        /// Returns true for a signal that the child programs received too, because the terminal sends it to the whole
        /// process group.
        pub fn reached_all(&self, signal: i32) -> bool {
            self.has_terminal && matches!(signal, SIGINT | SIGQUIT)
        }

        /// Returns true if a signal requests the termination of a program.
        pub fn is_end(signal: i32) -> bool {
            !matches!(signal, SIGUSR1 | SIGUSR2)
        }

        /// Signal that requests the termination of a program.
        pub const END: i32 = SIGTERM;
        /// Signal that kills any program.
        pub const KILL: i32 = SIGKILL;
    }

    /// Sends a signal to a program that has not been waited for.
    pub fn send(child: &Child, signal: i32) {
        let Ok(process) = libc::pid_t::try_from(child.id()) else { return };
        // SAFETY: `kill` does not access memory. The process has not been waited for, so its ID has not been reused.
        unsafe { libc::kill(process, signal) };
    }

    pub fn of(status: ExitStatus) -> i32 {
        status.signal().unwrap_or(0)
    }

    /// Returns the name of the signal that terminated a program, if any.
    pub fn name_of(status: ExitStatus) -> Option<String> {
        let signal = status.signal()?;
        let by_whom = if signal == SIGKILL { ", for example by the system when memory ran out" } else { "" };
        Some(match signal_hook::low_level::signal_name(signal) {
            Some(name) => format!("{name}{by_whom}"),
            None => format!("signal {signal}"),
        })
    }
}

#[cfg(not(unix))]
#[cfg_attr(not(feature = "collective"), allow(dead_code, reason = "`launch` uses all of it"))]
mod signals {
    use std::io;
    use std::process::{Child, ExitStatus};
    use std::time::Duration;

    pub const PAUSE: Duration = Duration::from_millis(5);

    /// Placeholder for operating systems that do not have signals.
    pub struct Signals;

    impl Signals {
        pub const END: i32 = 0;
        pub const KILL: i32 = 0;

        pub fn catch() -> io::Result<Self> {
            Ok(Self)
        }

        pub fn take(&self) -> Vec<i32> {
            Vec::new()
        }

        pub fn reached_all(&self, _: i32) -> bool {
            true
        }

        pub fn is_end(_: i32) -> bool {
            false
        }
    }

    /// Does nothing, since there are no signals.
    pub fn send(_: &Child, _: i32) {}

    pub fn of(_: ExitStatus) -> i32 {
        0
    }

    pub fn name_of(_: ExitStatus) -> Option<String> {
        None
    }
}
