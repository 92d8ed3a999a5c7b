//! A program that this one runs: it has the terminal and gets the signals, and its exit code is passed on.

use std::io;
use std::process::{Command, ExitStatus};

/// Runs a program to its end. Signals that end programs are passed on to it instead of ending this one. Those that keys of a
/// terminal send reach it without that.
pub fn run(command: &mut Command) -> io::Result<ExitStatus> {
    signals::run(command)
}

/// The exit code of a program, as a shell has it: 128 and the signal for one that a signal ended.
pub fn code(status: ExitStatus) -> u8 {
    let code = status.code().unwrap_or_else(|| 128 + signals::of(status));
    u8::try_from(code & 0xff).unwrap_or(1)
}

#[cfg(unix)]
mod signals {
    use std::io::{self, IsTerminal};
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, ExitStatus};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
    use signal_hook::flag;

    const PASSED_ON: [i32; 6] = [SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2];
    /// How long a signal and the end of the program may wait.
    const PAUSE: Duration = Duration::from_millis(5);

    pub fn run(command: &mut Command) -> io::Result<ExitStatus> {
        let mut came = Vec::new();
        for signal in PASSED_ON {
            let flag = Arc::new(AtomicBool::new(false));
            flag::register(signal, flag.clone())?;
            came.push((signal, flag));
        }
        // The program has the same process group: keys of the terminal signal both.
        let has_terminal = io::stdin().is_terminal() || io::stderr().is_terminal();
        let mut child = command.spawn()?;
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(status);
            }
            for (signal, came) in &came {
                let is_key = matches!(*signal, SIGINT | SIGQUIT);
                if came.swap(false, Ordering::Relaxed) && !(is_key && has_terminal) {
                    let process = libc::pid_t::try_from(child.id()).map_err(io::Error::other)?;
                    // SAFETY: `kill` touches no memory. The process has not been waited for, so that the number is its own.
                    unsafe { libc::kill(process, *signal) };
                }
            }
            std::thread::sleep(PAUSE);
        }
    }

    pub fn of(status: ExitStatus) -> i32 {
        status.signal().unwrap_or(0)
    }
}

#[cfg(not(unix))]
mod signals {
    use std::io;
    use std::process::{Command, ExitStatus};

    pub fn run(command: &mut Command) -> io::Result<ExitStatus> {
        command.status()
    }

    pub fn of(_: ExitStatus) -> i32 {
        0
    }
}
