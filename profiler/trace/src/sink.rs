//! [`Sink`]: destination of records.

use std::io;

use crate::definitions::Definitions;
use crate::record::Record;

/// A destination of records: a [`Trace`](crate::Trace), or a file writer.
pub trait Sink {
    /// Returns the definitions that the records refer to. Add a definition before a record refers to it.
    fn definitions(&mut self) -> &mut Definitions;

    /// Adds a record.
    ///
    /// # Errors
    /// The record cannot be written.
    fn record(&mut self, record: &Record) -> io::Result<()>;
}
