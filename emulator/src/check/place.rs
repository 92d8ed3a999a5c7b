//! Source locations of instrumented accesses, stored as indices in shadow memory and as call stacks in findings.
//!
//! The first access at a return address captures the call stack without resolving names; the names are resolved for a
//! finding. The standard library reads the debug information, so no other reader is required.

use std::backtrace::Backtrace;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gpu_spec::finding::Frame;

/// Maximum number of source locations per kernel. The last index represents all further locations.
pub(super) const MAX: usize = 1 << 15;

const CACHED: usize = 1024;

/// Source locations of one kernel.
pub(super) struct Places {
    /// Indices of recent locations, keyed by return address.
    cache: Box<[(usize, u16); CACHED]>,
    numbers: HashMap<usize, u16>,
    stacks: Vec<Arc<Backtrace>>,
}

impl Default for Places {
    fn default() -> Self {
        Self { cache: Box::new([(0, 0); CACHED]), numbers: HashMap::new(), stacks: Vec::new() }
    }
}

impl Places {
    /// Returns the index of the location with return address `pc`, if it was used recently.
    #[inline(always)]
    pub fn recent(&self, pc: usize) -> Option<u16> {
        let (cached, number) = self.cache[(pc ^ (pc >> 10)) % CACHED];
        (cached == pc).then_some(number)
    }

    /// Returns the index of the location with return address `pc`. The call with this return address must be on the
    /// stack.
    pub fn number(&mut self, pc: usize) -> u16 {
        if let Some(number) = self.recent(pc) {
            return number;
        }
        let number = match self.numbers.get(&pc) {
            Some(number) => *number,
            None => {
                let number = self.stacks.len().min(MAX - 1);
                if number == self.stacks.len() {
                    self.stacks.push(Arc::new(Backtrace::force_capture()));
                }
                self.numbers.insert(pc, number as u16);
                number as u16
            }
        };
        self.cache[(pc ^ (pc >> 10)) % CACHED] = (pc, number);
        number
    }

    /// Returns the frames of a location, innermost first, up to the kernel. Paths of files below `root` are relative to
    /// `root`.
    pub fn frames(&self, number: u16, root: &Path) -> Vec<Frame> {
        self.stacks.get(number as usize).map_or_else(Vec::new, |stack| frames_of(stack, root))
    }

    /// Returns the call stack of a location.
    pub fn stack(&self, number: u16) -> Option<Arc<Backtrace>> {
        self.stacks.get(number as usize).cloned()
    }
}

/// Returns the frames of a call stack, in the form of [`Places::frames`].
pub(super) fn frames_of(stack: &Backtrace, root: &Path) -> Vec<Frame> {
    let mut frames = kernel_frames(&format!("{stack:?}"));
    for frame in frames.iter_mut().filter(|frame| !frame.file.is_empty()) {
        frame.file = from_root(&frame.file, root);
    }
    frames
}

/// Returns the frames of an interrupted kernel, innermost first, from the signal handler's stack.
pub(crate) fn interrupted_frames(stack: &Backtrace) -> Vec<Frame> {
    let text = format!("{stack:?}");
    let frames: Vec<Frame> = text.split("{ fn: ").skip(1).map(frame).collect();
    let handler = frames.iter().position(is_own).unwrap_or(0);
    // The system's frame between the signal handler and the kernel has no file, and the kernel may have been
    // interrupted in a call of the checker.
    let is_kernel = |frame: &&Frame| !frame.file.is_empty() && !is_own(frame) && !is_of_std(frame);
    frames[handler..].iter().filter(is_kernel).cloned().collect()
}

/// Parses the kernel's frames from a call stack in the format of the standard library's `Debug` output.
fn kernel_frames(stack: &str) -> Vec<Frame> {
    let frames: Vec<Frame> = stack.split("{ fn: ").skip(1).map(frame).collect();
    // If symbols are missing, the start of the kernel's frames is unknown.
    let Some(start) = frames.iter().position(is_own) else { return Vec::new() };
    let start = start + frames[start..].iter().take_while(|frame| is_own(frame)).count();
    let rest = &frames[start..];
    // The kernel's caller is the entry function that the kernel macro generates. The emulator calls this function.
    let is_entry = |frame: &Frame| frame.function.rsplit("::").next() == Some("__entry");
    let end = rest.iter().position(|frame| is_own(frame) || is_entry(frame)).unwrap_or(rest.len());
    rest[..end].iter().filter(|frame| !is_of_std(frame)).cloned().collect()
}

/// Returns true if a frame belongs to the standard library. The library's files are in `/rustc/…/library` or, for a
/// distribution's compiler, in a directory such as `/usr/src/rustc-1.96.0/library`.
fn is_of_std(frame: &Frame) -> bool {
    let of_crate = |name| frame.file.contains(&format!("/library/{name}/src/"));
    frame.file.starts_with("/rustc/")
        || frame.function.starts_with("core::")
        || ["core", "alloc", "std"].into_iter().any(of_crate)
}

/// Returns the path of a file relative to `root`, if the file is below `root`. The standard library prints paths below
/// the current directory relative to that directory.
fn from_root(file: &str, root: &Path) -> String {
    let absolute = match file.strip_prefix("./") {
        Some(rest) => std::env::current_dir().unwrap_or_default().join(rest),
        None => PathBuf::from(file),
    };
    match absolute.strip_prefix(root) {
        Ok(below) if !root.as_os_str().is_empty() => below.display().to_string(),
        _ => file.to_owned(),
    }
}

/// Returns true if a frame belongs to this crate. The path may be missing in the names of inlined functions.
fn is_own(frame: &Frame) -> bool {
    let folder = file!().strip_suffix("check/place.rs").unwrap_or("emulator/src/");
    frame.function.contains("warpsmith_emulator::") || frame.file.contains(folder)
}

/// Parses a frame, for example `"name", file: "path", line: 7 }`. Everything except the name may be missing.
fn frame(text: &str) -> Frame {
    let text = text.split(" }").next().unwrap_or(text);
    let quoted =
        |from: &str| from.trim_start().strip_prefix('"').and_then(|t| t.split('"').next()).map(str::to_owned);
    let after = |key: &str| text.split_once(key).map(|(_, rest)| rest);
    Frame {
        function: quoted(text).unwrap_or_else(|| "an unknown function".to_owned()),
        file: after(", file: ").and_then(quoted).unwrap_or_default(),
        line: after(", line: ").and_then(|t| t.split([',', ' ']).next()?.parse().ok()).unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_those_of_the_kernel() {
        let text = r#"Backtrace [{ fn: "std::backtrace::Backtrace::create", file: "/rustc/x/b.rs", line: 331 }, { fn: "find", file: "/x/emulator/src/check/place.rs", line: 7 }, { fn: "core::ptr::read", file: "/rustc/x/ptr.rs", line: 9 }, { fn: "write<u32>", file: "/usr/src/rustc-1.96.0/library/core/src/ptr/mod.rs", line: 1921 }, { fn: "kernels::smooth", file: "src/lib.rs", line: 12 }, { fn: "gone" }, { fn: "kernels::_::__entry", file: "src/lib.rs", line: 8 }, { fn: "warpsmith_emulator::set::BlockSet::run_threads", file: "s.rs", line: 1 }, { fn: "main" }]"#;
        let frames = kernel_frames(text);
        assert_eq!(frames.len(), 2, "{frames:?}");
        assert_eq!(frames[0].to_string(), "src/lib.rs:12 in kernels::smooth");
        assert_eq!(frames[1].to_string(), "in gone (no line information)");
        assert!(kernel_frames("").is_empty());
        let stripped = r#"Backtrace [{ fn: "<unknown>" }, { fn: "start_thread", file: "./nptl/pthread_create.c", line: 442 }]"#;
        assert!(kernel_frames(stripped).is_empty());
    }
}
