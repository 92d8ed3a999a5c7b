//! The processes that this one has started, and all that these have started, on Linux.
//!
//! Guarantees: once [`adopt`] was called, a process whose parent has ended is a child of this one, in whatever process group
//! or session it is; so none of them escapes [`send`] and [`end`]. On other systems they find no process.

#[cfg(target_os = "linux")]
pub use self::system::{adopt, are_left, end, reap, send};

#[cfg(target_os = "linux")]
mod system {
    use std::collections::HashMap;
    use std::io;
    use std::time::{Duration, Instant};

    use libc::pid_t;

    /// How long killed processes have to end: one that waits for a device ends later.
    const END: Duration = Duration::from_secs(2);

    /// Makes this process the parent of those that its descendants leave behind.
    pub fn adopt() -> io::Result<()> {
        // SAFETY: the call touches no memory.
        match unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// All of them that have not ended.
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

    /// The parent of a process; `None` for one that has ended.
    fn parent_of(process: pid_t) -> Option<pid_t> {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        // The name, in brackets, may hold anything.
        let mut fields = stat.rsplit_once(") ")?.1.split(' ');
        let has_ended = matches!(fields.next()?, "Z" | "X");
        fields.next()?.parse().ok().filter(|_| !has_ended)
    }

    /// Whether there is one.
    pub fn are_left() -> bool {
        !all().is_empty()
    }

    /// Sends a signal to all of them.
    pub fn send(signal: i32) {
        for process in all() {
            // SAFETY: `kill` touches no memory.
            unsafe { libc::kill(process, signal) };
        }
    }

    /// Waits for adopted processes that have ended, so that they are not listed for good. `is_own` says which children
    /// are waited for elsewhere.
    pub fn reap(is_own: impl Fn(u32) -> bool) {
        loop {
            // SAFETY: zeros are such a value.
            let mut about: libc::siginfo_t = unsafe { std::mem::zeroed() };
            let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
            // SAFETY: the pointer is to a local variable.
            let found = unsafe { libc::waitid(libc::P_ALL, 0, &raw mut about, options) };
            // SAFETY: the call has filled it, or left zeros.
            let process = unsafe { about.si_pid() };
            if found != 0 || process == 0 || is_own(process as u32) {
                return;
            }
            // SAFETY: it is a child that has ended, and its result is not asked for.
            unsafe { libc::waitpid(process, std::ptr::null_mut(), libc::WNOHANG) };
        }
    }

    /// Kills all of them, and those that they start meanwhile. Whether none is left.
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
