//! [`Output`]: where joined records go, a trace in memory or a file.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use warpsmith_trace::{ChromeWriter, PerfettoWriter, Record, Sink, Trace};

use crate::error::{ProfilerError, Result};

/// See the [module's documentation](self).
pub(crate) enum Output {
    Memory(Box<Trace>),
    Perfetto(Box<PerfettoWriter<BufWriter<File>>>),
    Chrome(Box<ChromeWriter<BufWriter<File>>>),
    Compressed(Box<ChromeWriter<GzEncoder<BufWriter<File>>>>),
}

impl Output {
    /// Begins a file, in the format that its name says: JSON for `.json` and `.json.gz`, else Perfetto's.
    pub(crate) fn file(path: &Path) -> Result<Output> {
        let file = File::create(path).map_err(|error| ProfilerError::file(path, &error))?;
        let file = BufWriter::with_capacity(1 << 16, file);
        let name = path.file_name().map(|name| name.to_string_lossy().to_lowercase()).unwrap_or_default();
        Ok(if name.ends_with(".json.gz") {
            Output::Compressed(Box::new(ChromeWriter::new(GzEncoder::new(file, Compression::fast()))))
        } else if name.ends_with(".json") {
            Output::Chrome(Box::new(ChromeWriter::new(file)))
        } else {
            Output::Perfetto(Box::new(PerfettoWriter::new(file)))
        })
    }

    pub(crate) fn sink(&mut self) -> &mut dyn Sink {
        match self {
            Output::Memory(trace) => &mut **trace,
            Output::Perfetto(writer) => &mut **writer,
            Output::Chrome(writer) => &mut **writer,
            Output::Compressed(writer) => &mut **writer,
        }
    }

    /// Adds a record.
    pub(crate) fn record(&mut self, record: &Record) -> io::Result<()> {
        self.sink().record(record)
    }

    /// Writes what it holds to the file, so that it can be read if the program ends here.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        match self {
            Output::Memory(_) | Output::Chrome(_) | Output::Compressed(_) => Ok(()),
            Output::Perfetto(writer) => writer.flush(),
        }
    }

    /// Ends the file. The trace, if it is in memory.
    pub(crate) fn finish(self) -> io::Result<Option<Trace>> {
        match self {
            Output::Memory(trace) => return Ok(Some(*trace)),
            Output::Perfetto(writer) => writer.finish()?.flush()?,
            Output::Chrome(writer) => writer.finish()?.flush()?,
            Output::Compressed(writer) => writer.finish()?.finish()?.flush()?,
        }
        Ok(None)
    }
}
