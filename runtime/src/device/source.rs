//! [`Source`]: the origin of a launch configuration, for observers.

/// The origin of a launch configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Source {
    /// The caller specified the block and grid size. Only the number of blocks may have been computed.
    Given,
    /// The configuration was chosen from the properties of the device and the kernel.
    Heuristic,
    /// The configuration was the fastest one that a tuner measured, and was read from the store.
    Tuned,
}

impl Source {
    pub(crate) const ALL: [Source; 3] = [Source::Given, Source::Heuristic, Source::Tuned];
}
