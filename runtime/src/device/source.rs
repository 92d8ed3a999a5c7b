//! [`Source`]: what a launch says to observers of its configuration.

/// Where a configuration comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Source {
    /// Block and grid were given, at most a number of blocks was computed.
    Given,
    /// It was chosen from the properties of device and kernel.
    Heuristic,
    /// It was the fastest when it was measured, by another process or by a tuner, and was kept in the store.
    Tuned,
    /// It was the fastest when it was measured in this process.
    Measured,
}

impl Source {
    pub(crate) const ALL: [Source; 4] = [Source::Given, Source::Heuristic, Source::Tuned, Source::Measured];
}
