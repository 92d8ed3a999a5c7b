//! [`Sink`]: destination of records.

use std::io;

use crate::definitions::Definitions;
use crate::record::Record;

/// Destination of records: a [`Trace`](crate::Trace) or a file writer.
pub trait Sink {
    /// Returns the definitions to which the records refer. A definition must be added before a record refers to it.
    fn definitions(&mut self) -> &mut Definitions;

    /// Adds a record.
    ///
    /// # Errors
    /// Fails if the record cannot be written.
    fn record(&mut self, record: &Record) -> io::Result<()>;
}
