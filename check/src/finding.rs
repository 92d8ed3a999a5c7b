//! Findings, as the emulated device writes them.

use serde::{Deserialize, Serialize};

/// One frame of a call stack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frame {
    /// The function.
    pub function: String,
    /// The file; empty when unknown.
    pub file: String,
    /// The line; 0 when unknown.
    pub line: u32,
}

/// One access of a finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Access {
    /// What it does, for example `atomic read`.
    pub operation: String,
    /// The block.
    pub block: [u32; 3],
    /// The thread in its block.
    pub thread: [u32; 3],
    /// Which of the frames to show first.
    pub place: usize,
    /// The call stack, innermost first, up to the kernel.
    pub frames: Vec<Frame>,
}

impl Access {
    /// The frame to show first.
    pub fn frame(&self) -> Option<&Frame> {
        self.frames.get(self.place)
    }
}

/// Something wrong that a kernel did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// A short name, for example `race`.
    pub kind: String,
    /// The kernel.
    pub kernel: String,
    /// The memory.
    pub memory: String,
    /// What would be right.
    pub advice: String,
    /// All of it, as the launch's error says it.
    pub text: String,
    /// The access that showed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access: Option<Access>,
    /// The access before, of a race.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other: Option<Access>,
}

impl Finding {
    /// Whether two are of the same kind and the same places.
    pub fn is_same(&self, other: &Finding) -> bool {
        let places = |finding: &Finding| {
            [&finding.access, &finding.other].map(|access| access.as_ref().and_then(Access::frame).cloned())
        };
        let ([a, b], theirs) = (places(self), places(other));
        let known = a.is_some() || self.kernel == other.kernel;
        self.kind == other.kind && known && (theirs == [a.clone(), b.clone()] || theirs == [b, a])
    }
}
