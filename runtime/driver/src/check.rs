//! Findings of a kernel check (`warpsmith check`), which the emulated device performs.

pub use gpu_spec::finding::{Access, Finding, FindingKind, Findings, Frame};

/// Collects the findings of launches that its thread enqueues, until it is dropped. See
/// [`Driver::collect_findings`](crate::Driver::collect_findings).
pub trait FindingScope {
    /// Takes the findings since the last call.
    fn take(&self) -> Findings;
}
