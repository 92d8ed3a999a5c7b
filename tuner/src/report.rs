//! The result document, and where it is kept.
//!
//! Guarantees: what [`Document::write`] leaves behind is either the whole new document or what was there
//! before. Fields are only ever added while [`SCHEMA`] stays the same.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use warpsmith::ops::Config;

use crate::error::{Error, Result};

/// Version of the document's form.
pub const SCHEMA: u32 = 1;

/// All results of one run on one device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Document {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Where it was measured.
    pub device: DeviceInfo,
    /// One record per kernel, type, size and configuration.
    pub results: Vec<Record>,
}

/// The device of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeviceInfo {
    /// As given to `--device`: `cuda:0`, `cpu:0`.
    pub id: String,
    /// The product's name.
    pub name: String,
    /// Whether it is a CPU that plays a GPU. Its times say nothing about a GPU.
    pub emulated: bool,
    /// Compute capability, `9.0`.
    pub capability: String,
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Memory in bytes.
    pub memory: u64,
    /// L2 cache in bytes.
    pub l2_cache: u64,
    /// Memory bandwidth of the data sheet in GB/s (10^9 bytes a second); absent on an emulated device.
    pub memory_gbps: Option<f64>,
    /// Version of the driver.
    pub driver: String,
}

/// One measured and checked configuration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The kernel's name.
    pub kernel: String,
    /// The element type.
    pub dtype: String,
    /// Elements.
    pub n: u64,
    /// How it was launched.
    pub config: Config,
    /// Timed samples.
    pub samples: usize,
    /// Launches between the two events of a sample; times are already divided by it.
    pub launches_per_sample: u32,
    /// Median time of a launch in microseconds.
    pub median_us: f64,
    /// A tenth of the samples were faster.
    pub p10_us: f64,
    /// A tenth of the samples were slower.
    pub p90_us: f64,
    /// Bytes the kernel must read and write.
    pub bytes: u64,
    /// `bytes` over the median time, in GB/s (10^9 bytes a second).
    pub gbps: f64,
    /// `gbps` over the data sheet's memory bandwidth (1 is all of it); `null` on an emulated device.
    pub roofline: Option<f64>,
    /// Whether the whole output agreed with the float64 reference.
    pub correct: bool,
    /// The largest difference from it; `null` when the output held something that is no number.
    pub max_error: Option<f64>,
}

impl Document {
    /// Whether every configuration was correct.
    pub fn all_correct(&self) -> bool {
        self.results.iter().all(|r| r.correct)
    }

    /// The fastest correct configuration of each kernel, type and size, in the order they were measured.
    pub fn best(&self) -> Vec<&Record> {
        let mut best: Vec<&Record> = Vec::new();
        for record in self.results.iter().filter(|r| r.correct) {
            let same =
                |b: &&mut &Record| (&b.kernel, &b.dtype, b.n) == (&record.kernel, &record.dtype, record.n);
            match best.iter_mut().find(same) {
                Some(known) if known.median_us <= record.median_us => {}
                Some(known) => *known = record,
                None => best.push(record),
            }
        }
        best
    }

    /// The document as JSON text, ending in a line feed.
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("plain data always becomes JSON");
        text.push('\n');
        text
    }

    /// Writes the document to `path`, creating the folders above it.
    ///
    /// # Errors
    /// [`Error::Write`] with the path and the system's reason.
    pub fn write(&self, path: &Path) -> Result<()> {
        write_partial(path, &self.to_json(), |partial| fs::rename(partial, path))
    }
}

/// Finds out whether [`Document::write`] can write `path`, before there is anything to lose. Creates the
/// folders above it.
///
/// # Errors
/// [`Error::Write`] with the path and the system's reason.
pub fn check_writable(path: &Path) -> Result<()> {
    if path.is_dir() {
        let source = std::io::Error::from(std::io::ErrorKind::IsADirectory);
        return Err(Error::Write { path: path.to_path_buf(), source });
    }
    write_partial(path, "", |partial| fs::remove_file(partial))
}

/// Writes a file beside `path` and hands it to `finish`; removes it when that fails.
fn write_partial(path: &Path, text: &str, finish: impl FnOnce(&Path) -> std::io::Result<()>) -> Result<()> {
    let fail = |source| Error::Write { path: path.to_path_buf(), source };
    if let Some(parent) = path.parent().filter(|p| !p.as_os_str().is_empty()) {
        fs::create_dir_all(parent).map_err(fail)?;
    }
    let mut partial = path.as_os_str().to_os_string();
    partial.push(format!(".{}.partial", std::process::id()));
    let partial = PathBuf::from(partial);
    fs::write(&partial, text).and_then(|()| finish(&partial)).map_err(|source| {
        // The message is about the first failure; a leftover partial file is only untidy.
        let _ = fs::remove_file(&partial);
        fail(source)
    })
}

/// Where results go when nobody says: `target/warpsmith/` in a cargo project (a `Cargo.toml` in the current
/// folder), else `warpsmith/` in the user's cache folder (`$XDG_CACHE_HOME`, else `$HOME/.cache`), else in the
/// folder for temporary files. The file is named for the command, the time in seconds since 1970 and the process.
pub fn default_path(command: &str) -> PathBuf {
    let cache = || {
        let set = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")))
    };
    let folder = if Path::new("Cargo.toml").is_file() {
        PathBuf::from("target")
    } else {
        cache().unwrap_or_else(std::env::temp_dir)
    };
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    folder.join("warpsmith").join(format!("{command}-{seconds}-{}.json", std::process::id()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpsmith::ops::GridRule;

    fn record(kernel: &str, block: u32, median_us: f64, correct: bool) -> Record {
        Record {
            kernel: kernel.to_string(),
            dtype: "f32".to_string(),
            n: 65536,
            config: Config { block, grid: GridRule::Waves(4), items: 2, vector: 16 },
            samples: 20,
            launches_per_sample: 8,
            median_us,
            p10_us: median_us * 0.9,
            p90_us: median_us * 1.1,
            bytes: 524288,
            gbps: 524288.0 / median_us / 1e3,
            roofline: Some(0.5),
            correct,
            max_error: correct.then_some(0.0),
        }
    }

    fn document(results: Vec<Record>) -> Document {
        let device = DeviceInfo {
            id: "cpu:0".to_string(),
            name: "emulated".to_string(),
            emulated: true,
            capability: "9.0".to_string(),
            multiprocessors: 2,
            memory: 1 << 30,
            l2_cache: 1 << 20,
            memory_gbps: None,
            driver: "none".to_string(),
        };
        Document { schema: SCHEMA, device, results }
    }

    #[test]
    fn the_json_has_the_promised_shape() {
        let document = document(vec![record("copy", 256, 10.0, true), record("copy", 512, 9.0, false)]);
        let value: serde_json::Value = serde_json::from_str(&document.to_json()).unwrap();
        assert_eq!(value["schema"], 1);
        assert!(value["device"]["memory_gbps"].is_null());
        let first = value["results"][0].as_object().unwrap();
        let keys =
            "kernel dtype n config samples median_us p10_us p90_us bytes gbps roofline correct max_error";
        for key in keys.split(' ') {
            assert!(first.contains_key(key), "{key}");
        }
        let config = serde_json::json!({"block": 256, "grid": "waves:4", "items": 2, "vector": 16});
        assert_eq!(first["config"], config);
        assert!(value["results"][1]["max_error"].is_null());
        assert_eq!(serde_json::from_value::<Document>(value).unwrap(), document);
    }

    #[test]
    fn a_wrong_configuration_is_never_the_best() {
        let all = [
            record("copy", 128, 10.0, true),
            record("copy", 256, 1.0, false),
            record("copy", 512, 9.0, true),
            record("axpy", 128, 5.0, true),
        ];
        let document = document(all.to_vec());
        let best: Vec<_> = document.best().iter().map(|r| (r.kernel.as_str(), r.config.block)).collect();
        assert_eq!(best, [("copy", 512), ("axpy", 128)]);
        assert!(!document.all_correct());
    }

    #[test]
    fn writing_creates_folders_and_replaces_whole_files() {
        let folder = std::env::temp_dir().join(format!("warpsmith-report-{}", std::process::id()));
        let path = folder.join("a/b/results.json");
        document(vec![record("copy", 128, 10.0, true)]).write(&path).unwrap();
        document(vec![]).write(&path).unwrap();
        let read: Document = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        assert!(read.results.is_empty());
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
        check_writable(&folder.join("c/new.json")).unwrap();
        assert_eq!(fs::read_dir(folder.join("c")).unwrap().count(), 0);
        for (bad, name) in [(path.join("below-a-file.json"), "below-a-file.json"), (folder.join("c"), "c")] {
            for error in [check_writable(&bad).unwrap_err(), document(vec![]).write(&bad).unwrap_err()] {
                let message = error.to_string();
                assert!(message.contains(name) && message.contains("--out"), "{message}");
            }
        }
        fs::remove_dir_all(folder).unwrap();
    }
}
