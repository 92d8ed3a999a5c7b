//! Findings of `warpsmith check`, with their text and JSON output. This module is not compiled for the GPU.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt::{self, Write};

/// The kind of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FindingKind {
    /// Two threads access the same memory, at least one of them writes, and nothing orders the accesses.
    Race,
    /// Atomic operations from different blocks race because their scope is only one block.
    NarrowScope,
    /// Two launches, or a launch and a copy, access the same memory on streams that are not ordered, and at least one
    /// of them writes.
    StreamRace,
    /// An access outside a buffer or a shared array.
    OutOfBounds,
    /// An access to a buffer that has been freed.
    Freed,
    /// A read of memory that nothing has written.
    Uninitialized,
    /// An access at an address that is not a multiple of its size.
    Misaligned,
    /// A kernel was compiled without instrumentation, so it was not checked.
    NotInstrumented,
}

impl FindingKind {
    /// Returns a short name without spaces, which the JSON output uses.
    pub fn name(self) -> &'static str {
        match self {
            FindingKind::Race => "race",
            FindingKind::NarrowScope => "narrow-scope",
            FindingKind::StreamRace => "stream-race",
            FindingKind::OutOfBounds => "out-of-bounds",
            FindingKind::Freed => "freed",
            FindingKind::Uninitialized => "uninitialized",
            FindingKind::Misaligned => "misaligned",
            FindingKind::NotInstrumented => "not-instrumented",
        }
    }

    fn title(self) -> &'static str {
        match self {
            FindingKind::Race => "data race",
            FindingKind::NarrowScope => "race between atomics with too narrow a scope",
            FindingKind::StreamRace => "race between streams",
            FindingKind::OutOfBounds => "access out of bounds",
            FindingKind::Freed => "access to freed memory",
            FindingKind::Uninitialized => "read of uninitialized memory",
            FindingKind::Misaligned => "misaligned access",
            FindingKind::NotInstrumented => "not checked",
        }
    }
}

/// One of the accesses in a finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    /// The operation: `read`, `write`, `atomic read` or `atomic update`.
    pub operation: String,
    /// Index of the block.
    pub block: [u32; 3],
    /// Index of the thread in its block.
    pub thread: [u32; 3],
    /// The call stack in the source, from the innermost function to the kernel.
    pub frames: Vec<Frame>,
}

impl Access {
    /// Returns the frame to show first, which is the innermost frame outside the device library.
    pub fn place(&self) -> Option<&Frame> {
        let library =
            |frame: &&Frame| frame.function.contains("gpu_std::") || frame.file.contains("gpu-std/src/");
        self.frames.iter().find(|frame| !library(frame) && frame.line != 0).or(self.frames.first())
    }
}

/// One frame of a call stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Function name from the debug information.
    pub function: String,
    /// Source file, or an empty string without debug information.
    pub file: String,
    /// Line number, or 0 without debug information.
    pub line: u32,
}

impl fmt::Display for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.file.is_empty() {
            return write!(f, "in {} (no line information)", self.function);
        }
        if self.line == 0 {
            return write!(
                f,
                "{} in {} (the compiler has moved or merged the access)",
                self.file, self.function
            );
        }
        write!(f, "{}:{} in {}", self.file, self.line, self.function)
    }
}

/// An error in a kernel, which is reported once per pair of source locations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Kind of the finding.
    pub kind: FindingKind,
    /// Name of the kernel.
    pub kernel: &'static str,
    /// The affected memory: a parameter and element, or a shared array and byte.
    pub memory: String,
    /// The access that revealed the error.
    pub access: Option<Access>,
    /// For a race, the earlier access.
    pub other: Option<Access>,
    /// Advice on how to fix the error.
    pub advice: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.kind.title())?;
        if !self.memory.is_empty() {
            write!(f, ": {}", self.memory)?;
        }
        for (access, before) in [(&self.access, ""), (&self.other, "earlier ")] {
            let Some(access) = access else { continue };
            let Access { operation, block, thread, .. } = access;
            write!(f, "\n  {before}{operation} by thread {} of block {}", Index(thread), Index(block))?;
            frames(f, access)?;
        }
        write!(f, "\n  help: {}", self.advice)
    }
}

/// Writes the location first, followed by the enclosing functions up to the kernel.
fn frames(f: &mut fmt::Formatter<'_>, access: &Access) -> fmt::Result {
    let Some(place) = access.place() else {
        return write!(f, "\n    at an unknown location: the program has no line information");
    };
    write!(f, "\n    at {place}")?;
    let outer = access.frames.iter().skip_while(|frame| *frame != place).skip(1);
    for frame in outer.filter(|frame| frame.line != 0).take(6) {
        write!(f, "\n    called at {frame}")?;
    }
    Ok(())
}

impl Finding {
    /// Returns the finding as one line of JSON.
    pub fn json(&self) -> String {
        let mut out = String::new();
        let _ = write!(out, r#"{{"kind":"{}","kernel":{}"#, self.kind.name(), Quoted(self.kernel));
        let _ = write!(out, r#","memory":{},"advice":{}"#, Quoted(&self.memory), Quoted(&self.advice));
        let _ = write!(out, r#","text":{}"#, Quoted(&self.to_string()));
        for (name, access) in [("access", &self.access), ("other", &self.other)] {
            let Some(access) = access else { continue };
            let Access { operation, block, thread, frames } = access;
            let _ = write!(
                out,
                r#","{name}":{{"operation":{},"block":{block:?},"thread":{thread:?},"place":{},"frames":["#,
                Quoted(operation),
                access.place().and_then(|place| frames.iter().position(|f| f == place)).unwrap_or(0)
            );
            for (i, Frame { function, file, line }) in frames.iter().enumerate() {
                let comma = if i == 0 { "" } else { "," };
                let (function, file) = (Quoted(function), Quoted(file));
                let _ = write!(out, r#"{comma}{{"function":{function},"file":{file},"line":{line}}}"#);
            }
            out.push_str("]}");
        }
        out.push('}');
        out
    }
}

/// The findings of one or more launches. In the text output, each finding starts with its kernel.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Findings {
    /// Findings in order of occurrence. Each pair of source locations occurs once per launch.
    pub findings: Vec<Finding>,
    /// Number of findings that were dropped because they exceeded the limit.
    pub more: u64,
}

impl Findings {
    /// Returns true if there are no findings.
    pub fn is_empty(&self) -> bool {
        self.findings.is_empty() && self.more == 0
    }

    /// Appends other findings.
    pub fn add(&mut self, other: Findings) {
        self.findings.extend(other.findings);
        self.more += other.more;
    }
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, finding) in self.findings.iter().enumerate() {
            write!(f, "{}kernel `{}`: {finding}", if i == 0 { "" } else { "\n" }, finding.kernel)?;
        }
        match self.more {
            0 => Ok(()),
            more => write!(f, "\nand {more} more findings beyond the limit"),
        }
    }
}

/// Formats a three-dimensional index as text, such as `[3,0,0]`.
pub struct Index<'a>(pub &'a [u32; 3]);

impl fmt::Display for Index<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [x, y, z] = self.0;
        write!(f, "[{x},{y},{z}]")
    }
}

/// A JSON string.
struct Quoted<'a>(&'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for c in self.0.chars() {
            match c {
                '"' => f.write_str("\\\"")?,
                '\\' => f.write_str("\\\\")?,
                c if (c as u32) < 0x20 => write!(f, "\\u{:04x}", c as u32)?,
                c => f.write_char(c)?,
            }
        }
        f.write_char('"')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_escapes_what_it_must() {
        assert_eq!(Quoted("a\"\\\n\u{e9}").to_string(), "\"a\\\"\\\\\\u000a\u{e9}\"");
    }
}
