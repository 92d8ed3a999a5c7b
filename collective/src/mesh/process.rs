//! [`Process`]: the identity of a rank's process, and a check of whether the process has exited.

use std::fmt;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::machine;
use crate::store::Token;

/// Process on any host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Process {
    /// Name of the host, for error messages.
    host: String,
    /// Identifies the PID namespace by the host's identity and the namespace. Processes with the same value can look
    /// each other up by PID.
    place: String,
    pid: u32,
    /// Start time in clock ticks since boot, needed because the system reuses PIDs.
    started: u64,
    /// Random number that distinguishes this process from others whose remaining fields are equal.
    nonce: String,
}

/// Returns the state and the start time of a process in this PID namespace, or `None` if no such process exists. Linux
/// only.
fn stat(pid: u32) -> Option<(char, u64)> {
    // The file of the main thread. For the current process, QEMU generates `/proc/PID/stat` with another start time.
    let stat = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/stat")).ok()?;
    // The command name, which is in parentheses, can contain any characters.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    Some((fields.next()?.chars().next()?, fields.nth(18)?.parse().ok()?))
}

impl Process {
    /// Returns the identity of this process.
    pub fn this() -> Result<Self> {
        static NONCE: OnceLock<String> = OnceLock::new();
        let nonce = match NONCE.get() {
            Some(nonce) => nonce,
            None => {
                let new = Token::generate()?;
                NONCE.get_or_init(|| new.secret().to_owned())
            }
        };
        let namespace = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
        Ok(Self {
            host: machine::name().to_owned(),
            place: format!("{} {}", machine::identity(), namespace.display()),
            pid: std::process::id(),
            started: stat(std::process::id()).map_or(0, |(_, started)| started),
            nonce: nonce.clone(),
        })
    }

    /// Returns whether the process has exited, as far as the current process (`this`) can tell.
    pub fn has_ended(&self, this: &Self) -> bool {
        if self.started == 0 || self.place != this.place {
            return false;
        }
        match stat(self.pid) {
            None => true,
            Some((state, started)) => started != self.started || matches!(state, 'Z' | 'X'),
        }
    }
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} on {}", self.pid, self.host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn an_ended_process_is_known_before_its_parent_waits() {
        let this = Process::this().expect("random numbers");
        assert!(!this.has_ended(&this));
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("a process");
        let started = stat(child.id()).expect("it lives").1;
        let process = Process { pid: child.id(), started, ..this.clone() };
        assert!(!process.has_ended(&this));
        child.kill().expect("killed");
        let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while !process.has_ended(&this) {
            assert!(std::time::Instant::now() < end, "{process} is not seen to have ended");
            std::thread::yield_now();
        }
        child.wait().expect("it has ended");
        assert!(process.has_ended(&this));
    }
}
