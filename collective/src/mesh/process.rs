//! [`Process`]: which process a rank is, and whether it still lives.

use std::fmt;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::machine;
use crate::store::Token;

/// A process of any host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Process {
    /// The host's name, for people.
    host: String,
    /// What two processes have in common that see each other's number: the host's identity and the PID namespace.
    place: String,
    pid: u32,
    /// When it was started, in ticks since the boot: another process may get the number.
    started: u64,
    /// Random: no other process has it, whatever its host says of the rest.
    nonce: String,
}

/// The state and the start time of a process of this place; `None` if there is none. Linux alone tells.
fn stat(pid: &str) -> Option<(char, u64)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in brackets, may hold anything.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    Some((fields.next()?.chars().next()?, fields.nth(18)?.parse().ok()?))
}

impl Process {
    /// This one.
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
            started: stat("self").map_or(0, |(_, started)| started),
            nonce: nonce.clone(),
        })
    }

    /// Whether it has ended, as far as this process, `this`, can see.
    pub fn has_ended(&self, this: &Self) -> bool {
        if self.started == 0 || self.place != this.place {
            return false;
        }
        match stat(&self.pid.to_string()) {
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
        let started = stat(&child.id().to_string()).expect("it lives").1;
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
