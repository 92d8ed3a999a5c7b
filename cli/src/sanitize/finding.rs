//! Findings with the same fields and text as the findings of `warpsmith check`.

use serde::Serialize;
use warpsmith_check::Frame;

/// Kind of a finding, from the first line of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    OutOfBounds,
    Misaligned,
    Uninitialized,
    Race,
    Barrier,
    Leak,
    ApiError,
    DeviceHeap,
    Other,
}

impl Kind {
    fn title(self) -> &'static str {
        match self {
            Kind::OutOfBounds => "access out of bounds",
            Kind::Misaligned => "misaligned access",
            Kind::Uninitialized => "read of uninitialized memory",
            Kind::Race => "data race",
            Kind::Barrier => "invalid barrier",
            Kind::Leak => "leaked memory",
            Kind::ApiError => "failed CUDA call",
            Kind::DeviceHeap => "invalid use of the device heap",
            Kind::Other => "error",
        }
    }

    fn advice(self) -> Option<&'static str> {
        Some(match self {
            Kind::OutOfBounds => {
                "compare the index with the length before the access, or use a slice or a view"
            }
            Kind::Misaligned => "the address must be a multiple of the access size",
            Kind::Uninitialized => "write the memory first, or create the buffer with DeviceBuffer::zeros",
            Kind::Race => {
                "the threads of a warp do not run in lockstep: call warp::sync_warp or thread::sync_threads between \
                 the accesses"
            }
            Kind::Barrier => {
                "every thread that takes part in the barrier or is in the mask must reach the call"
            }
            Kind::Leak => "drop the buffer, or leak it on purpose",
            Kind::DeviceHeap => "free each allocation once",
            Kind::ApiError | Kind::Other => return None,
        })
    }
}

/// One access of a finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Access {
    /// Operation: `read`, `write`, `barrier`, `call`.
    pub operation: String,
    /// Index of the block, if the report has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block: Option<[u32; 3]>,
    /// Index of the thread in its block, if the report has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread: Option<[u32; 3]>,
    /// Index of the frame to show first.
    pub place: usize,
    /// Call stack, from the innermost frame to the kernel.
    pub frames: Vec<Frame>,
}

/// A group of reports with the same kind and source locations.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub kind: Kind,
    /// Name of the kernel, or an empty string for a finding in host code.
    pub kernel: String,
    /// The affected memory, or the failed call with its error.
    pub memory: String,
    /// The access in the first report.
    pub access: Option<Access>,
    /// The other access of a race.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub other: Option<Access>,
    /// Number of compute-sanitizer reports that this finding combines. For a race, the number of hazards that racecheck
    /// counts.
    pub count: u64,
    /// Full message.
    pub text: String,
}

impl Finding {
    /// Returns true if two findings differ only in addresses and threads.
    pub fn is_same(&self, other: &Finding) -> bool {
        let places = |finding: &Finding| {
            let access = [&finding.access, &finding.other];
            access
                .map(|access| access.as_ref().map(|access| (access.operation.clone(), access.frames.clone())))
        };
        let is_on_host = self.kernel.is_empty() && self.kind != Kind::Race;
        (self.kind, &self.kernel) == (other.kind, &other.kernel)
            && places(self) == places(other)
            && (!is_on_host || self.memory == other.memory)
    }

    /// Generates [`Self::text`] from the other fields.
    pub fn describe(&mut self) {
        let mut text = self.kind.title().to_owned();
        if !self.memory.is_empty() {
            text += &format!(": {}", self.memory);
        }
        for (access, before) in [(&self.access, ""), (&self.other, "other ")] {
            let Some(access) = access else { continue };
            text += &format!("\n  {before}{}", access.operation);
            if let Some([x, y, z]) = access.thread {
                text += &format!(" by thread [{x},{y},{z}]");
            }
            if let Some([x, y, z]) = access.block {
                text += &format!(" of block [{x},{y},{z}]");
            }
            let shown = access.frames.get(access.place..).unwrap_or_default();
            for (i, frame) in shown.iter().enumerate().take(7) {
                text += &format!("\n    {} {}", if i == 0 { "at" } else { "called at" }, place(frame));
            }
        }
        match (self.count, self.kind) {
            (0 | 1, _) => {}
            (count, Kind::Race) => text += &format!("\n  at {count} bytes"),
            (count, _) => text += &format!("\n  {count} times; this is the first"),
        }
        if let Some(advice) = self.kind.advice() {
            text += &format!("\n  help: {advice}");
        }
        self.text = text;
    }

    /// Returns the finding and its kernel as one paragraph.
    pub fn paragraph(&self) -> String {
        if self.kernel.is_empty() {
            return format!("{}\n\n", self.text);
        }
        format!("kernel `{}`: {}\n\n", self.kernel, self.text)
    }
}

fn place(frame: &Frame) -> String {
    match frame.line {
        0 => format!("{} (no line information)", frame.function),
        line => format!("{}:{line} in {}", frame.file, frame.function),
    }
}
