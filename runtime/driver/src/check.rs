//! Findings of `warpsmith check`, which the emulated device performs.

pub use gpu_spec::finding::{Access, Finding, FindingKind, Findings, Frame};

/// Collects the findings of launches that the creating thread enqueues, until dropped. Created by
/// [`Driver::collect_findings`](crate::Driver::collect_findings).
pub trait FindingScope {
    /// Returns the findings since the last call.
    fn take(&self) -> Findings;
}
