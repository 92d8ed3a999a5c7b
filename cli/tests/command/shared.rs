//! Runs the built `warpsmith` command in temporary folders.
//!
//! `WARPSMITH_BIN` names another binary to run, for the tests of a bundle.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

/// Variable that names the folder of the user's caches.
pub const CACHES: &str = if cfg!(windows) { "LOCALAPPDATA" } else { "XDG_CACHE_HOME" };

/// A run of the command in its own folder, so that no results land in the source tree.
pub struct Run {
    /// Folder in which it ran.
    pub folder: PathBuf,
    /// Exit status and output.
    pub output: Output,
}

impl Drop for Run {
    fn drop(&mut self) {
        // Leftovers in the temporary folder are harmless.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Returns the path of the command.
pub fn binary() -> PathBuf {
    let built = option_env!("CARGO_BIN_EXE_warpsmith").map(PathBuf::from);
    let named = std::env::var_os("WARPSMITH_BIN").map(PathBuf::from);
    named.or(built).expect("cargo built the command, or WARPSMITH_BIN names it")
}

/// Returns the command with arguments, to run in a folder.
pub fn command(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(binary());
    command.args(args).current_dir(folder);
    command.env(CACHES, folder.join("cache")).env_remove("WARPSMITH_CACHE_DIR").env_remove("NO_COLOR");
    command
}

/// Creates a new folder.
pub fn folder() -> PathBuf {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!("warpsmith-cli-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let folder = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// Runs the command in a new folder.
pub fn run(args: &[&str]) -> Run {
    let folder = folder();
    let output = command(&folder, args).output().unwrap();
    Run { folder, output }
}

impl Run {
    /// Exit code of the run.
    pub fn code(&self) -> Option<i32> {
        self.output.status.code()
    }

    /// Standard output of the run.
    pub fn stdout(&self) -> String {
        String::from_utf8(self.output.stdout.clone()).unwrap()
    }

    /// Standard error of the run.
    pub fn stderr(&self) -> String {
        String::from_utf8(self.output.stderr.clone()).unwrap()
    }

    /// Returns the standard output of a successful run, parsed as exactly one JSON document.
    pub fn json(&self) -> Value {
        assert_eq!(self.code(), Some(0), "{}", self.stderr());
        assert_eq!(self.stderr(), "");
        serde_json::from_str(&self.stdout()).unwrap()
    }

    /// Returns the results file in the cache folder.
    pub fn cached_results(&self) -> Value {
        let mut files = std::fs::read_dir(self.folder.join("cache/warpsmith")).unwrap();
        let file = files.next().unwrap().unwrap().path();
        assert!(files.next().is_none(), "one file, and nothing half-written beside it");
        serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap()
    }
}
