//! [`ImageReport`]: properties of an image's kernels, stored in the target folder for `warpsmith kernels -p`.
//!
//! Each output folder has its own report, so that builds of several profiles do not replace each other's. A report is
//! replaced atomically, so a reader never sees a partial report.

use std::env;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gpu_spec::image::hash;
use serde::{Deserialize, Serialize};

use crate::KernelReport;
use crate::builder::{BuiltImage, Folders};
use crate::error::Error;
use crate::manifest::Manifest;
use crate::sources::real;

const SCHEMA: u32 = 1;
/// Folder of the reports, in cargo's target folder.
const FOLDER: &str = "gpu/reports";

/// Properties of one built image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageReport {
    schema: u32,
    /// Package of the kernels.
    pub package: String,
    /// Version of the package.
    pub version: String,
    /// Folder of the package, with symbolic links resolved.
    pub kernel_folder: PathBuf,
    /// Folder of the package whose build script built the image, with symbolic links resolved.
    pub host_folder: PathBuf,
    /// True if the build had the release profile.
    pub is_release: bool,
    /// Start of the build, in nanoseconds since 1970.
    started: u64,
    /// Files on which the image depends.
    sources: Vec<PathBuf>,
    /// Reason for a missing image, or `None` if the image exists.
    pub reason: Option<String>,
    /// Kernels, with their resources on each architecture. The list is empty if no image was built.
    pub kernels: Vec<KernelReport>,
}

impl ImageReport {
    pub(crate) fn new(
        built: &BuiltImage,
        kernels: &Manifest,
        folders: &Folders,
        started: SystemTime,
    ) -> ImageReport {
        let package = kernels.to_package();
        let build_script = folders.manifest_dir.join("build.rs");
        let mut sources = built.watched.clone();
        sources.extend(Some(build_script).filter(|file| file.is_file()));
        ImageReport {
            schema: SCHEMA,
            package: package.name,
            version: package.version,
            kernel_folder: real(kernels.folder()),
            host_folder: real(&folders.manifest_dir),
            is_release: env::var_os("PROFILE").is_some_and(|profile| profile == "release"),
            started: started.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64),
            sources,
            reason: built.reason.clone(),
            kernels: built.kernels.clone(),
        }
    }

    /// Writes the report of the image `name`, and returns its path. Reports cannot contain paths that are not UTF-8, so
    /// no report is written for such paths.
    pub(crate) fn save(&self, folders: &Folders, name: &str) -> Result<Option<PathBuf>, Error> {
        let Ok(text) = serde_json::to_string(self) else { return Ok(None) };
        let folder = folders.target_dir.join(FOLDER);
        fs::create_dir_all(&folder).map_err(Error::io("cannot create", &folder))?;
        let name = format!("{name}-{:016x}", hash(folders.out_dir.as_os_str().as_encoded_bytes()));
        let (path, new) =
            (folder.join(format!("{name}.json")), folder.join(format!("{name}.{}", std::process::id())));
        let write = || {
            let mut file = File::create(&new)?;
            file.write_all(text.as_bytes())?;
            // Cargo watches the report, so that a build replaces a removed one. The modification time is set to 1970,
            // because cargo treats a watched file as changed if it is newer than the start of the build script.
            file.set_modified(UNIX_EPOCH)?;
            fs::rename(&new, &path)
        };
        write().map_err(Error::io("cannot write", &path))?;
        Ok(Some(path))
    }

    /// Returns the reports in cargo's target folder `target`, newest build first. The list is empty if nothing was
    /// built there.
    ///
    /// # Errors
    /// Returns [`Error::Report`] if a report is damaged or has a different format, or [`Error::Io`] if a report cannot
    /// be read.
    pub fn all(target: &Path) -> Result<Vec<ImageReport>, Error> {
        let folder = target.join(FOLDER);
        let entries = match fs::read_dir(&folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(Error::io("cannot read", &folder))?,
        };
        let mut reports = Vec::new();
        for entry in entries {
            let path = entry.map_err(Error::io("cannot read", &folder))?.path();
            if path.extension().is_some_and(|ending| ending == "json") {
                reports.push(ImageReport::read(&path)?);
            }
        }
        reports.sort_by_key(|report| std::cmp::Reverse(report.started));
        Ok(reports)
    }

    fn read(path: &Path) -> Result<ImageReport, Error> {
        #[derive(Deserialize)]
        struct Version {
            schema: u32,
        }
        let bytes = fs::read(path).map_err(Error::io("cannot read", path))?;
        let problem = |problem| Error::Report { path: path.to_owned(), problem };
        let damaged = |error| problem(format!("is damaged ({error}): remove the file and build again"));
        match serde_json::from_slice(&bytes).map_err(damaged)? {
            Version { schema: SCHEMA } => serde_json::from_slice(&bytes).map_err(damaged),
            Version { schema } => Err(problem(format!(
                "has format {schema}, but this version reads format {SCHEMA}: use the `warpsmith` command of the \
                 version that the package builds with, or remove the file and build again"
            ))),
        }
    }

    /// Returns the first source file that was changed or removed after the build started.
    pub fn changed_source(&self) -> Option<&Path> {
        let started = UNIX_EPOCH + Duration::from_nanos(self.started);
        let changed = |path: &Path| {
            fs::metadata(path).and_then(|about| about.modified()).map_or(true, |time| time > started)
        };
        self.sources.iter().map(PathBuf::as_path).find(|path| changed(path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_read_newest_first_and_bad_ones_are_named() {
        let target = env::temp_dir().join(format!("warpsmith-reports-{}", std::process::id()));
        assert_eq!(ImageReport::all(&target).unwrap(), []);
        let folders = |name: &str| Folders {
            manifest_dir: target.clone(),
            out_dir: target.join(name),
            target_dir: target.clone(),
        };
        let report = |started| ImageReport {
            schema: SCHEMA,
            package: "kernels".to_owned(),
            version: "0.1.0".to_owned(),
            kernel_folder: target.join("kernels"),
            host_folder: target.clone(),
            is_release: false,
            started,
            sources: vec![target.join("gone.rs")],
            reason: None,
            kernels: Vec::new(),
        };
        report(1).save(&folders("a"), "kernels").unwrap();
        let path = report(2).save(&folders("b"), "kernels").unwrap().unwrap();
        assert_eq!(ImageReport::all(&target).unwrap(), [report(2), report(1)]);
        // Two builds into the same output folder leave one report.
        report(3).save(&folders("b"), "kernels").unwrap();
        assert_eq!(ImageReport::all(&target).unwrap(), [report(3), report(1)]);
        assert_eq!(report(3).changed_source(), Some(target.join("gone.rs").as_path()));

        for (text, words) in
            [("", "is damaged"), ("{\"schema\": 1}", "is damaged"), ("{\"schema\": 2}", "has format 2")]
        {
            fs::write(&path, text).unwrap();
            let error = ImageReport::all(&target).unwrap_err().to_string();
            let named = [path.to_str().unwrap(), words, "remove the file"];
            assert!(named.iter().all(|words| error.contains(words)), "{error}");
        }
        fs::remove_dir_all(target).unwrap();
    }
}
