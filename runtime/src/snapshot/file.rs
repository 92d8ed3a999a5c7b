//! Snapshot files: JSON and pickles.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use super::{Snapshot, write};
use crate::error::{Result, SnapshotError};

impl Snapshot {
    /// Returns the snapshot as one JSON document.
    pub fn to_json(&self) -> String {
        // Keys are strings and numbers are finite or null, so serialization cannot fail.
        serde_json::to_string(&self.for_files()).unwrap_or_default()
    }

    /// Writes the snapshot as JSON.
    ///
    /// # Errors
    /// Returns a [`SnapshotError`] if the file cannot be written.
    pub fn write_json(&self, path: impl AsRef<Path>) -> Result<()> {
        to_file(path.as_ref(), |file| serde_json::to_writer(file, &self.for_files()).map_err(io::Error::from))
    }

    /// Writes the snapshot as a pickle, which PyTorch's viewers can read.
    ///
    /// # Errors
    /// Returns a [`SnapshotError`] if the file cannot be written.
    pub fn write_pickle(&self, path: impl AsRef<Path>) -> Result<()> {
        to_file(path.as_ref(), |file| write::write(&self.for_files(), file))
    }

    /// Returns the snapshot with a history, possibly empty, for every device with segments, because viewers take the
    /// list of devices from the histories.
    fn for_files(&self) -> Cow<'_, Snapshot> {
        let devices = self.segments.iter().map(|segment| segment.device as usize + 1).max().unwrap_or(0);
        if self.device_traces.len() >= devices {
            return Cow::Borrowed(self);
        }
        let mut padded = self.clone();
        padded.device_traces.resize_with(devices, Vec::new);
        Cow::Owned(padded)
    }
}

fn to_file(path: &Path, content: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> Result<()> {
    let written = File::create(path).and_then(|file| {
        let mut file = BufWriter::new(file);
        content(&mut file)?;
        file.flush()
    });
    written.map_err(|error| SnapshotError { path: path.to_path_buf(), reason: error.to_string() }.into())
}
