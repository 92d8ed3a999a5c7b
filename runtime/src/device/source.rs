//! [`Source`]: the origin of a launch configuration, for observers.

/// The origin of a launch configuration.
///
/// See the example of [`Explanation`](crate::launch::Explanation).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Source {
    /// The caller specified the block and grid size. The number of blocks may have been computed.
    Given,
    /// The configuration was derived from properties of the device and the kernel.
    Heuristic,
    /// The configuration is the fastest one that a tuner measured, read from the store.
    Tuned,
}

impl Source {
    pub(crate) const ALL: [Source; 3] = [Source::Given, Source::Heuristic, Source::Tuned];
}
