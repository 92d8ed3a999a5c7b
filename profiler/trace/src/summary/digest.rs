//! [`Digest`]: computes the tables of a trace of any size in bounded memory.

use std::io;
use std::path::Path;

use super::{Summary, Tally};
use crate::definitions::Definitions;
use crate::error::{Damage, Result};
use crate::record::Record;
use crate::sink::Sink;
use crate::trace::{Trace, read_into};

/// Digest of a trace of any size: the totals of all records, and the first records. Add records as to any [`Sink`].
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
    /// Maximum number of records that [`Self::read`] keeps. That many records occupy 600 MiB to 1 GiB; a call occupies
    /// 56 bytes and a kernel 104 bytes. While tables are computed, up to one and a half times this memory is required
    /// in addition.
    pub const MAX: usize = 4_000_000;

    /// Creates a digest that keeps the first `most` records.
    pub fn new(most: usize) -> Self {
        Digest { most, ..Digest::default() }
    }

    /// Reads a file and keeps its first [`Self::MAX`] records. The readable part of a damaged file is kept.
    ///
    /// # Errors
    /// Returns the same errors as [`Trace::read`].
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        let mut digest = Digest::new(Self::MAX);
        digest.damage = read_into(path, &mut digest)?;
        Ok(digest)
    }

    /// Returns the damage at which reading stopped, or `None` if the file is intact.
    pub fn damage(&self) -> Option<&Damage> {
        self.damage.as_ref()
    }

    /// Returns a trace of the first records, which the digest has kept.
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
