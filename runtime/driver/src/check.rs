//! What a check of kernels finds (`warpsmith check`): the emulated device makes it.

pub use gpu_spec::finding::{Access, Finding, FindingKind, Findings, Frame};

/// Collects the findings of launches that its thread enqueues, until it is dropped. See
/// [`Driver::collect_findings`](crate::Driver::collect_findings).
pub trait FindingScope {
    /// Takes what was found since the last call.
    fn take(&self) -> Findings;
}
