//! Source of a project's Warpsmith dependency: the registry, a git repository, or a folder.

use std::path::{Component, Path, PathBuf};

use crate::args::NewArgs;

/// Source from which the dependencies are taken.
#[derive(Debug, PartialEq, Eq)]
pub enum Source {
    /// This version from the registry.
    Version(String),
    /// A git repository.
    Git(String),
    /// A local copy of the repository, at the path that the user specified.
    Path(PathBuf),
}

impl Source {
    /// Returns the source selected on the command line.
    ///
    /// # Errors
    /// Returns a message if the path is not a copy of the repository.
    pub fn of(args: &NewArgs) -> Result<Source, String> {
        match (args.registry, &args.path_to_warpsmith) {
            (true, _) => Ok(Source::Version(env!("CARGO_PKG_VERSION").to_owned())),
            (false, Some(path)) => {
                let is_one = ["Cargo.toml", "builder/Cargo.toml", "gpu-std/Cargo.toml"]
                    .iter()
                    .all(|manifest| path.join(manifest).is_file());
                if is_one {
                    return Ok(Source::Path(path.clone()));
                }
                Err(format!(
                    "{} is not a copy of Warpsmith's repository; pass the repository's root folder to --path",
                    path.display()
                ))
            }
            (false, None) => Ok(Source::Git(args.git.clone())),
        }
    }

    /// Returns the dependency fields for the package in the folder `package` of the repository. The manifest is `depth`
    /// folders below the project's `folder`.
    pub fn dependency(&self, package: &str, folder: &Path, depth: usize) -> String {
        match self {
            Source::Version(version) => format!("version = {version:?}"),
            Source::Git(url) => format!("git = {url:?}"),
            Source::Path(path) => {
                let mut place = if path.is_absolute() { path.clone() } else { from(folder, path, depth) };
                if !package.is_empty() {
                    place.push(package);
                }
                // A forward slash separates folders on every system.
                let place = place.to_string_lossy();
                format!(
                    "path = {:?}",
                    if cfg!(windows) { place.replace('\\', "/") } else { place.into_owned() }
                )
            }
        }
    }
}

/// Converts `path`, which is relative to the current folder, to a path relative to a folder `depth` levels below
/// `folder`.
fn from(folder: &Path, path: &Path, depth: usize) -> PathBuf {
    let mut place: PathBuf = std::iter::repeat_n("..", depth).collect();
    // If the folder's path is absolute or leads up (`..`), only an absolute path is reliable.
    let plain =
        |path: &Path| path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    if !plain(folder) {
        return std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    }
    for part in folder.components() {
        if let Component::Normal(_) = part {
            place.push("..");
        }
    }
    for part in path.components().filter(|part| *part != Component::CurDir) {
        place.push(part);
    }
    place
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_take_the_form_of_their_source() {
        let folder = Path::new("examples/own");
        let version = Source::Version("1.2.3".to_owned());
        assert_eq!(version.dependency("builder", folder, 0), "version = \"1.2.3\"");
        assert_eq!(Source::Git("https://x/y".to_owned()).dependency("", folder, 1), "git = \"https://x/y\"");
    }

    #[test]
    fn relative_paths_count_from_the_manifest() {
        let of = |path: &str, folder: &str, package, depth| {
            Source::Path(path.into()).dependency(package, Path::new(folder), depth)
        };
        assert_eq!(of(".", "examples/own", "", 0), "path = \"../..\"");
        assert_eq!(of(".", "examples/own", "gpu-std", 1), "path = \"../../../gpu-std\"");
        assert_eq!(of("../warpsmith", "./heat", "builder", 0), "path = \"../../warpsmith/builder\"");
        assert_eq!(of("/src/w", "heat", "", 1), "path = \"/src/w\"");
    }
}
