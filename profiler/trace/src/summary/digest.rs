//! [`Digest`]: tables of traces of any size, in bounded memory.

use std::io;
use std::path::Path;

use super::{Summary, Tally};
use crate::definitions::Definitions;
use crate::error::{Damage, Result};
use crate::record::Record;
use crate::sink::Sink;
use crate::trace::{Trace, read_into};

/// Digest of a trace of any size, with the totals of all records, and the first records themselves. It receives records
/// as a [`Sink`].
///
/// ```
/// use warpsmith_trace::summary::Digest;
/// use warpsmith_trace::{Kernel, Record, Sink};
///
/// let mut digest = Digest::new(2);
/// for start in 0..5 {
///     digest.record(&Record::Kernel(Kernel { start, end: start + 1, ..Kernel::default() }))?;
/// }
/// let summary = digest.summary();
/// assert_eq!((summary.kernels[0].count, summary.records, summary.related), (5, 5, 2));
/// # std::io::Result::Ok(())
/// ```
#[derive(Debug, Default)]
pub struct Digest {
    most: usize,
    trace: Trace,
    tally: Tally,
    damage: Option<Damage>,
}

impl Digest {
    /// Number of records that [`Self::read`] keeps. They need 600 MiB to 1 GiB, with 56 bytes per call and 104 per
    /// kernel. While tables are computed, up to one and a half times this memory is needed in addition.
    pub const MAX: usize = 4_000_000;

    /// Creates a digest that keeps the first `most` records.
    pub fn new(most: usize) -> Self {
        Digest { most, ..Digest::default() }
    }

    /// Reads a file, and keeps its first [`Self::MAX`] records. The readable part of a damaged file is kept.
    ///
    /// # Errors
    /// The errors of [`Trace::read`].
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        Self::read_by(|sink| read_into(path, sink))
    }

    /// Reads like [`Self::read`], through a function that reads into a sink.
    pub(crate) fn read_by(read: impl FnOnce(&mut dyn Sink) -> Result<Option<Damage>>) -> Result<Self> {
        let mut digest = Digest::new(Self::MAX);
        digest.damage = read(&mut digest)?;
        Ok(digest)
    }

    /// Returns the damage at which reading stopped, or `None` for an intact file.
    pub fn damage(&self) -> Option<&Damage> {
        self.damage.as_ref()
    }

    /// Returns the first records, which were kept.
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// Returns the tables.
    pub fn summary(&self) -> Summary {
        super::summary(&self.trace, &self.tally)
    }
}

impl Sink for Digest {
    fn definitions(&mut self) -> &mut Definitions {
        &mut self.trace.definitions
    }

    fn record(&mut self, record: &Record) -> io::Result<()> {
        self.tally.add(record, &self.trace.definitions);
        if self.tally.records <= self.most {
            self.trace.push(*record);
        }
        Ok(())
    }
}
