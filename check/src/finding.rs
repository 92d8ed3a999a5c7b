//! Findings, in the format that the emulated device writes.

use serde::{Deserialize, Serialize};

/// Frame of a call stack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frame {
    /// Function name.
    pub function: String,
    /// File; empty if unknown.
    pub file: String,
    /// Line number; 0 if unknown.
    pub line: u32,
}

/// Memory access that is part of a finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Access {
    /// Operation of the access, for example `atomic read`.
    pub operation: String,
    /// Block index.
    pub block: [u32; 3],
    /// Thread index in its block.
    pub thread: [u32; 3],
    /// Index of the frame that is displayed first.
    pub place: usize,
    /// Call stack from the innermost frame up to the kernel.
    pub frames: Vec<Frame>,
}

impl Access {
    /// Returns the frame that is displayed first.
    pub fn frame(&self) -> Option<&Frame> {
        self.frames.get(self.place)
    }
}

/// An error that was detected in a kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Short name of the error kind, for example `race`.
    pub kind: String,
    /// Kernel name.
    pub kernel: String,
    /// Description of the memory.
    pub memory: String,
    /// Remedy.
    pub advice: String,
    /// Full message, as in the error that the launch returns.
    pub text: String,
    /// Access that revealed the error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access: Option<Access>,
    /// Earlier access, for a race.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other: Option<Access>,
}

impl Finding {
    /// Returns true if two findings have the same kind and the same locations.
    pub fn is_same(&self, other: &Finding) -> bool {
        let places = |finding: &Finding| {
            [&finding.access, &finding.other].map(|access| access.as_ref().and_then(Access::frame).cloned())
        };
        let ([a, b], theirs) = (places(self), places(other));
        let known = a.is_some() || self.kernel == other.kernel;
        self.kind == other.kind && known && (theirs == [a.clone(), b.clone()] || theirs == [b, a])
    }
}
