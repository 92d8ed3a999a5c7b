//! [`Source`]: the origin of a launch configuration, for observers.

/// The origin of a launch configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Source {
    /// Block and grid were given; at most a number of blocks was computed.
    Given,
    /// The configuration was chosen from the properties of the device and the kernel.
    Heuristic,
    /// The configuration was the fastest in a measurement by another process or a tuner, and was read from the store.
    Tuned,
    /// The configuration was the fastest in a measurement in this process.
    Measured,
}

impl Source {
    pub(crate) const ALL: [Source; 4] = [Source::Given, Source::Heuristic, Source::Tuned, Source::Measured];
}
