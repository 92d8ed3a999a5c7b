//! Decides from a hash of all inputs whether the link step must run again.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};

use crate::error::Error;

/// Hash of everything that the outputs depend on.
pub struct Fingerprint {
    // Two SipHash values with fixed keys, for 128 bits. All runs of one build of the builder compute the same hash.
    hashers: [DefaultHasher; 2],
}

impl Fingerprint {
    /// Creates a fingerprint that includes the builder's own version.
    pub fn new() -> Fingerprint {
        let mut fingerprint = Fingerprint { hashers: [DefaultHasher::new(), DefaultHasher::new()] };
        fingerprint.hashers[1].write_u8(1);
        fingerprint.value(&env!("CARGO_PKG_VERSION"));
        fingerprint
    }

    /// Adds `value`.
    pub fn value(&mut self, value: &impl Hash) {
        self.hashers.iter_mut().for_each(|hasher| value.hash(hasher));
    }

    /// Adds the contents of `path`.
    pub fn contents(&mut self, path: &Path) -> Result<(), Error> {
        let bytes = std::fs::read(path).map_err(Error::io("cannot read", path))?;
        self.value(&bytes);
        Ok(())
    }

    /// Adds a tool's path, length and modification time.
    pub fn tool(&mut self, path: &Path) {
        self.value(&path);
        if let Ok(about) = std::fs::metadata(path) {
            self.value(&about.len());
            self.value(&about.modified().ok());
        }
    }

    /// Returns the fingerprint as text.
    pub fn finish(self) -> String {
        self.hashers.iter().map(|hasher| format!("{:016x}", hasher.finish())).collect()
    }
}

/// Record of a finished link step: its fingerprint, the files that it wrote, and its warnings.
#[derive(Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Record {
    /// Fingerprint of the inputs.
    pub fingerprint: String,
    /// Output files that must still exist.
    pub files: Vec<PathBuf>,
    /// Warnings to show again.
    pub warnings: Vec<String>,
    /// Kernels to return again.
    pub kernels: Vec<crate::KernelReport>,
}

impl Record {
    /// Returns the record at `path` if its fingerprint matches and its files exist.
    pub fn reuse(path: &Path, fingerprint: &str) -> Option<Record> {
        let record: Record = serde_json::from_str(&std::fs::read_to_string(path).ok()?).ok()?;
        let fits = record.fingerprint == fingerprint && record.files.iter().all(|file| file.is_file());
        fits.then_some(record)
    }

    /// Writes the record.
    pub fn save(&self, path: &Path) -> Result<(), Error> {
        let text = serde_json::to_string(self).unwrap_or_default();
        std::fs::write(path, text).map_err(Error::io("cannot write", path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_reused_only_when_it_fits() {
        let folder = std::env::temp_dir().join(format!("warpsmith-record-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (path, output) = (folder.join("record"), folder.join("out.ptx"));
        std::fs::write(&output, "x").unwrap();
        let record = Record { fingerprint: "a".to_owned(), files: vec![output.clone()], ..Record::default() };
        record.save(&path).unwrap();
        assert_eq!(Record::reuse(&path, "a").as_ref(), Some(&record));
        assert_eq!(Record::reuse(&path, "b"), None);
        std::fs::remove_file(&output).unwrap();
        assert_eq!(Record::reuse(&path, "a"), None);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn contents_decide() {
        let hash = |value: &str| {
            let mut fingerprint = Fingerprint::new();
            fingerprint.value(&value);
            fingerprint.finish()
        };
        assert_eq!(hash("a"), hash("a"));
        assert_ne!(hash("a"), hash("b"));
    }
}
