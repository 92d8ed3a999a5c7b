//! Descendants of this process, on Linux.
//!
//! After a call of [`adopt`], a descendant whose parent has exited becomes a child of this process, in any process
//! group or session. Therefore, no descendant escapes [`send`] and [`end`]. On systems other than Linux, no processes
//! are found.

#[cfg(target_os = "linux")]
pub use self::system::{adopt, are_left, end, reap, send};

#[cfg(target_os = "linux")]
mod system {
    use std::collections::HashMap;
    use std::io;
    use std::time::{Duration, Instant};

    use libc::pid_t;

    /// Time limit for killed processes to end. A process that waits for a device may take a while.
    const END: Duration = Duration::from_secs(2);

    /// Makes this process the parent of descendants whose parents exit.
    pub fn adopt() -> io::Result<()> {
        // SAFETY: the call does not access memory.
        match unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn all() -> Vec<pid_t> {
        let mut children: HashMap<pid_t, Vec<pid_t>> = HashMap::new();
        let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
        for entry in entries.flatten() {
            let process = entry.file_name().to_str().and_then(|name| name.parse().ok());
            let parent = process.and_then(parent_of);
            if let Some((process, parent)) = process.zip(parent) {
                children.entry(parent).or_default().push(process);
            }
        }
        let mut found = children.remove(&(std::process::id() as pid_t)).unwrap_or_default();
        let mut at = 0;
        while let Some(process) = found.get(at) {
            let more = children.remove(process).unwrap_or_default();
            found.extend(more);
            at += 1;
        }
        found
    }

    /// Returns the parent of a process, or `None` if it has exited.
    fn parent_of(process: pid_t) -> Option<pid_t> {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        // The name, which is in parentheses, may contain any characters.
        let mut fields = stat.rsplit_once(") ")?.1.split(' ');
        let has_ended = matches!(fields.next()?, "Z" | "X");
        fields.next()?.parse().ok().filter(|_| !has_ended)
    }

    /// Returns true if this process has descendants.
    pub fn are_left() -> bool {
        !all().is_empty()
    }

    /// Sends a signal to all descendants.
    pub fn send(signal: i32) {
        for process in all() {
            // SAFETY: `kill` does not access memory.
            unsafe { libc::kill(process, signal) };
        }
    }

    /// Reaps adopted processes that have exited, so that they do not remain as zombies. `is_own` returns true for
    /// children that other code waits for.
    pub fn reap(is_own: impl Fn(u32) -> bool) {
        loop {
            // SAFETY: all zeros is a valid value.
            let mut about: libc::siginfo_t = unsafe { std::mem::zeroed() };
            let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
            // SAFETY: the pointer is to a local variable.
            let found = unsafe { libc::waitid(libc::P_ALL, 0, &raw mut about, options) };
            // SAFETY: the call has filled it, or left zeros.
            let process = unsafe { about.si_pid() };
            if found != 0 || process == 0 || is_own(process as u32) {
                return;
            }
            // SAFETY: it is a child that has exited, and its status is not requested.
            unsafe { libc::waitpid(process, std::ptr::null_mut(), libc::WNOHANG) };
        }
    }

    /// Kills all descendants, including descendants that are started in the meantime. Returns true if no descendant
    /// remains.
    pub fn end() -> bool {
        let until = Instant::now() + END;
        loop {
            send(libc::SIGKILL);
            reap(|_| false);
            if !are_left() {
                return true;
            }
            if Instant::now() >= until {
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod elsewhere {
    pub fn adopt() -> std::io::Result<()> {
        Ok(())
    }

    pub fn are_left() -> bool {
        false
    }

    pub fn send(_: i32) {}

    pub fn reap(_: impl Fn(u32) -> bool) {}

    pub fn end() -> bool {
        true
    }
}

#[cfg(not(target_os = "linux"))]
pub use self::elsewhere::{adopt, are_left, end, reap, send};
