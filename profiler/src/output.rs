//! [`Output`]: destination of joined records, which is a trace in memory or a file.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use warpsmith_trace::{ChromeWriter, Record, Sink, Trace, check_name};

use crate::error::{ProfilerError, Result};

/// Destination of joined records. See the [module documentation](self).
pub(crate) enum Output {
    Memory(Box<Trace>),
    Chrome(Box<ChromeWriter<BufWriter<File>>>),
    Compressed(Box<ChromeWriter<GzEncoder<BufWriter<File>>>>),
}

impl Output {
    /// Creates a JSON file. The file is compressed if its name ends in `.gz`.
    pub(crate) fn file(path: &Path) -> Result<Output> {
        check_name(path)
            .map_err(|reason| ProfilerError::File { path: path.to_path_buf(), reason: reason.to_owned() })?;
        let file = File::create(path).map_err(|error| ProfilerError::file(path, &error))?;
        let file = BufWriter::with_capacity(1 << 16, file);
        Ok(if path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gz")) {
            Output::Compressed(Box::new(ChromeWriter::new(GzEncoder::new(file, Compression::fast()))))
        } else {
            Output::Chrome(Box::new(ChromeWriter::new(file)))
        })
    }

    pub(crate) fn sink(&mut self) -> &mut dyn Sink {
        match self {
            Output::Memory(trace) => &mut **trace,
            Output::Chrome(writer) => &mut **writer,
            Output::Compressed(writer) => &mut **writer,
        }
    }

    /// Adds a record.
    pub(crate) fn record(&mut self, record: &Record) -> io::Result<()> {
        self.sink().record(record)
    }

    /// Writes buffered data to the file. Afterwards, the file is readable even if the program ends here.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        match self {
            Output::Memory(_) => Ok(()),
            Output::Chrome(writer) => writer.flush(),
            Output::Compressed(writer) => writer.flush(),
        }
    }

    /// Ends the file. Returns the trace, provided that it is in memory.
    pub(crate) fn finish(self) -> io::Result<Option<Trace>> {
        match self {
            Output::Memory(trace) => return Ok(Some(*trace)),
            Output::Chrome(writer) => writer.finish()?.flush()?,
            Output::Compressed(writer) => writer.finish()?.finish()?.flush()?,
        }
        Ok(None)
    }
}
