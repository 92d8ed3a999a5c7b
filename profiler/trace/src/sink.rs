//! What takes records.

use std::io;

use crate::definitions::Definitions;
use crate::record::Record;

/// Takes records: a [`Trace`](crate::Trace), or a writer of a file.
pub trait Sink {
    /// What the records refer to; define it before a record refers to it.
    fn definitions(&mut self) -> &mut Definitions;

    /// Takes a record.
    ///
    /// # Errors
    /// When it cannot be written.
    fn record(&mut self, record: &Record) -> io::Result<()>;
}
