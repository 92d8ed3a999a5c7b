//! Additional search paths for NVIDIA's libraries, and libraries loaded at run time.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use crate::process::is_privileged;

/// Directories outside the system's search path, in search order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LibraryPaths {
    /// The user's directories, from `WARPSMITH_LIBRARY_PATH`.
    pub named: Vec<PathBuf>,
    /// Directories of CUDA toolkits (`CUDA_HOME`, `CUDA_PATH`, `/usr/local/cuda*`), and directories of packages in the
    /// active Python environment (`VIRTUAL_ENV`).
    pub installed: Vec<PathBuf>,
}

impl LibraryPaths {
    /// Returns the library paths of this process. A set-user-ID program ignores the environment, which must not
    /// determine the code that it loads.
    ///
    /// ```
    /// use warpsmith_driver::library_paths::LibraryPaths;
    ///
    /// let paths = LibraryPaths::of_process();
    /// assert!(paths.all().all(|folder| folder.is_absolute()));
    /// ```
    pub fn of_process() -> Self {
        Self::of(|name| if is_privileged() { None } else { std::env::var_os(name) })
    }

    /// Returns the library paths that these environment variables specify. Relative paths, which depend on the current
    /// directory, are ignored. An empty variable counts as unset.
    pub fn of(variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let mut named: Vec<PathBuf> = variable("WARPSMITH_LIBRARY_PATH")
            .map(|paths| std::env::split_paths(&paths).collect())
            .unwrap_or_default();
        named.retain(|folder| folder.is_absolute());

        let mut toolkits: Vec<PathBuf> =
            ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(&variable).map(PathBuf::from).collect();
        toolkits.push(PathBuf::from("/usr/local/cuda"));
        toolkits.extend(versions_of_toolkits());
        toolkits.retain(|folder| folder.is_absolute());
        let mut installed: Vec<PathBuf> = toolkits
            .into_iter()
            .flat_map(|toolkit| [toolkit.join("lib64"), toolkit.join("extras/CUPTI/lib64")])
            .collect();
        if let Some(python) = variable("VIRTUAL_ENV").filter(|python| Path::new(python).is_absolute()) {
            let versions = inside(&Path::new(&python).join("lib"));
            let packages = versions.iter().flat_map(|version| inside(&version.join("site-packages/nvidia")));
            installed.extend(packages.map(|package| package.join("lib")));
        }
        Self { named, installed }
    }

    /// Returns the candidate files for a library with one of these names, in search order: the user's directories, then
    /// the bare names for the system's search, then the directories of toolkits and packages.
    pub fn candidates(&self, names: &[String]) -> Vec<PathBuf> {
        self.candidates_in(names, |folder| {
            names.iter().map(|name| folder.join(name)).filter(|file| file.exists()).collect()
        })
    }

    /// Like [`Self::candidates`], but `files` returns the candidate files in a directory, for libraries whose file
    /// names vary.
    pub fn candidates_in(&self, names: &[String], files: impl Fn(&Path) -> Vec<PathBuf>) -> Vec<PathBuf> {
        let inside = |folders: &[PathBuf]| -> Vec<PathBuf> {
            folders.iter().flat_map(|folder| files(folder)).collect()
        };
        let system = names.iter().map(PathBuf::from);
        inside(&self.named).into_iter().chain(system).chain(inside(&self.installed)).collect()
    }

    /// Lists the directories without duplicates, for error messages.
    pub fn searched(&self) -> String {
        let mut seen = HashSet::new();
        let folders = self.all().filter(|folder| seen.insert(folder.to_path_buf()));
        folders.map(|folder| folder.display().to_string()).collect::<Vec<_>>().join(", ")
    }

    /// Returns all directories, in order.
    pub fn all(&self) -> impl Iterator<Item = &Path> {
        self.named.iter().chain(&self.installed).map(PathBuf::as_path)
    }
}

/// A library loaded at run time.
#[derive(Debug)]
pub struct SharedLibrary(libloading::Library);

impl SharedLibrary {
    /// Loads the first of these libraries that the system finds.
    ///
    /// # Safety
    /// The initializers of the libraries must be safe to run.
    pub unsafe fn open(names: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Option<Self> {
        // SAFETY: guaranteed by the caller.
        let mut found = names.into_iter().map(|name| unsafe { libloading::Library::new(name.as_ref()) });
        found.find_map(|library| library.ok().map(Self))
    }

    /// Looks up an exported function.
    ///
    /// # Safety
    /// `F` must be the type of a pointer to the library's function with that name. The pointer must not be used after
    /// this value is dropped.
    pub unsafe fn symbol<F: Copy>(&self, name: &str) -> Option<F> {
        // SAFETY: guaranteed by the caller.
        unsafe { self.0.get::<F>(name).ok().map(|function| *function) }
    }
}

/// Returns toolkit directories such as `/usr/local/cuda-13.0`, newest first.
fn versions_of_toolkits() -> Vec<PathBuf> {
    let version = |path: &Path| -> Option<Vec<u32>> {
        let rest = path.file_name()?.to_str()?.strip_prefix("cuda-")?;
        rest.split('.').map(|number| number.parse().ok()).collect()
    };
    let mut toolkits: Vec<(Vec<u32>, PathBuf)> = inside(Path::new("/usr/local"))
        .into_iter()
        .filter_map(|path| Some((version(&path)?, path)))
        .collect();
    toolkits.sort();
    toolkits.into_iter().rev().map(|(_, path)| path).collect()
}

/// Returns the sorted contents of a directory; empty if it cannot be read.
pub fn inside(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut found: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    found.sort();
    found
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn only_absolute_folders_are_searched() {
        let of = |set: &[(&str, &str)]| {
            LibraryPaths::of(|name| {
                set.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into())
            })
        };
        let system = of(&[]);
        assert!(system.named.is_empty());
        let toolkit = ["/usr/local/cuda/lib64", "/usr/local/cuda/extras/CUPTI/lib64"].map(PathBuf::from);
        assert!(system.installed.starts_with(&toolkit), "{system:?}");
        for value in ["", ".", "here", "../cuda", ":", ":here:"] {
            let all = ["WARPSMITH_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "VIRTUAL_ENV"];
            assert_eq!(of(&all.map(|name| (name, value))), system, "`{value}`");
        }
        let found = of(&[("WARPSMITH_LIBRARY_PATH", ":/a:b::/c:"), ("CUDA_HOME", "/d"), ("CUDA_PATH", "e")]);
        assert_eq!(found.named, [PathBuf::from("/a"), "/c".into()]);
        let all: Vec<_> = found.all().take(4).map(Path::to_path_buf).collect();
        assert_eq!(all, ["/a", "/c", "/d/lib64", "/d/extras/CUPTI/lib64"].map(PathBuf::from));
        assert_eq!(found.installed[2..], system.installed);
    }

    #[test]
    fn packages_of_python_are_searched() {
        let folder = std::env::temp_dir().join(format!("warpsmith-paths-{}", std::process::id()));
        let package = folder.join("lib/python3.12/site-packages/nvidia/cu13/lib");
        std::fs::create_dir_all(&package).unwrap();
        let found = LibraryPaths::of(|name| (name == "VIRTUAL_ENV").then(|| folder.clone().into()));
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(found.installed.last(), Some(&package));
    }
}
