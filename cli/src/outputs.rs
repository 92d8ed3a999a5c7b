//! Output files of child processes and their descendants.
//!
//! Each process writes its own file, with the process ID in its name (`%p` in a variable); a single file gets the
//! requested name.

use std::io;
use std::path::{Path, PathBuf};

use warpsmith::bench::command::failure::Failure;

/// Folder that contains the output files, under both their temporary and final names.
pub struct Outputs {
    folder: PathBuf,
    /// Requested name, in which `%p` represents the process ID.
    name: String,
    /// Prefix and suffix of the output file names; the process ID goes between them.
    begin: String,
    rest: String,
}

/// A file that one of the processes wrote.
pub struct Written {
    pub path: PathBuf,
    /// Process ID.
    process: String,
}

impl Written {
    /// Returns the path of another file about the same process. `page.html` becomes `page.1234.html` unless the process
    /// is the only one. `%p` is always replaced by the process ID.
    pub fn beside(&self, path: &Path, is_alone: bool) -> PathBuf {
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return path.to_path_buf() };
        path.with_file_name(named(name, &self.process, is_alone))
    }
}

impl Outputs {
    /// Creates the outputs for files with the requested name `out`.
    pub fn new(out: &Path) -> Result<Self, Failure> {
        let unusable = |why: &str| Failure::Use(format!("cannot write the trace {}: {why}", out.display()));
        let path = std::path::absolute(out).map_err(|error| unusable(&error.to_string()))?;
        let name = path.file_name().and_then(|name| name.to_str());
        let (Some(name), Some(folder)) = (name, path.parent()) else {
            return Err(unusable("give a file path in UTF-8"));
        };
        if !folder.is_dir() {
            return Err(unusable("the folder does not exist; create it, or give another path"));
        }
        if path.is_dir() {
            return Err(unusable("the path is a folder; give the path of a file in it"));
        }
        let plain = name.replace("%p", "");
        let (stem, rest) = split(&plain);
        let begin = format!("{stem}.{}-", std::process::id());
        let (folder, rest) = (folder.to_path_buf(), rest.to_owned());
        Ok(Self { folder, name: name.to_owned(), begin, rest })
    }

    /// Returns the value of the environment variable, in which each process replaces `%p` with its process ID.
    pub fn pattern(&self) -> PathBuf {
        self.folder.join(format!("{}%p{}", self.begin, self.rest))
    }

    /// Renames the written files, and returns them with the largest file first.
    pub fn collect(&self) -> Result<Vec<Written>, Failure> {
        let failure =
            |path: &Path, error: &io::Error| Failure::Failed(format!("{}: {error}", path.display()));
        let mut written = Vec::new();
        for entry in self.folder.read_dir().map_err(|error| failure(&self.folder, &error))? {
            let entry = entry.map_err(|error| failure(&self.folder, &error))?;
            let name = entry.file_name();
            let process =
                name.to_str().and_then(|name| name.strip_prefix(&self.begin)?.strip_suffix(&self.rest));
            if let Some(process) = process {
                let size = entry.metadata().map_or(0, |about| about.len());
                written.push((size, process.to_owned(), entry.path()));
            }
        }
        written.sort_by(|a, b| (b.0, &a.1).cmp(&(a.0, &b.1)));
        let is_alone = written.len() == 1;
        let rename = |(_, process, from): (u64, String, PathBuf)| {
            let path = self.folder.join(named(&self.name, &process, is_alone));
            std::fs::rename(&from, &path).map_err(|error| failure(&from, &error))?;
            Ok(Written { path, process })
        };
        written.into_iter().map(rename).collect()
    }
}

/// Returns the file name for a process, given the requested name.
fn named(name: &str, process: &str, is_alone: bool) -> String {
    let (stem, rest) = split(name);
    match (name.contains("%p"), is_alone) {
        (true, _) => name.replace("%p", process),
        (false, true) => name.to_owned(),
        (false, false) => format!("{stem}.{process}{rest}"),
    }
}

/// Splits a file name at its first dot, so that `.json.gz` is one extension.
fn split(name: &str) -> (&str, &str) {
    name.split_at(name.find('.').unwrap_or(name.len()))
}
