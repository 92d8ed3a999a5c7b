//! Records the folders of a package's kernels, so that a launch rejects kernels of another package with the same name.
//!
//! Cargo distinguishes the members of a workspace by name, version and path in the workspace. If two workspaces share a
//! target folder, cargo confuses members for which all three are equal, and links a program with the wrong kernels.
//! Therefore an image lists its packages' folders, a kernel names the folder it was compiled in, and the GPU code of
//! such packages goes into separate folders.
//!
//! A record in the target folder lists the folders of each package. If a package was moved, or its target folder was
//! moved or copied, its compiled code may still name the old folder. The old folder therefore stays valid.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use gpu_spec::image;
use serde::{Deserialize, Serialize};

use crate::compile;
use crate::error::Error;
use crate::manifest::Manifest;
use crate::packages::Package;

/// Source folders of a kernel crate's packages.
#[derive(Debug, Default, Hash)]
pub struct Sources {
    /// Packages, with the hashes of the folders in which they may have been compiled.
    pub packages: Vec<(Package, Vec<u64>)>,
    /// Folder for the inner cargo's output.
    pub gpu_target: PathBuf,
}

/// Folders in which packages of each name were found, in build order.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Seen {
    /// The target folder.
    target: PathBuf,
    /// Folders recorded since the target folder moved to its current path.
    here: BTreeMap<String, Vec<PathBuf>>,
    /// Folders recorded before the target folder moved.
    before: BTreeMap<String, Vec<PathBuf>>,
}

/// Returns the sources of `manifest` and of all its path dependencies, which are built into `target`.
pub fn of(manifest: &Manifest, target: &Path) -> Result<Sources, Error> {
    let gpu_target = target.join("gpu");
    let folder = gpu_target.join("sources");
    let _lock = compile::lock(&folder)?;
    let file = folder.join("seen.json");
    let text = std::fs::read_to_string(&file).unwrap_or_default();
    let mut seen: Seen = serde_json::from_str(&text).unwrap_or_default();
    let sources = seen.add(&manifest.with_path_dependencies(), &real(target), &gpu_target);
    let new_text = serde_json::to_string(&seen).unwrap_or_default();
    if new_text != text {
        std::fs::write(&file, new_text).map_err(Error::io("cannot write", &file))?;
    }
    Ok(sources)
}

impl Seen {
    /// Records packages, starting with the kernel crate.
    fn add(&mut self, manifests: &[Manifest], target: &Path, shared: &Path) -> Sources {
        if self.target != target {
            for (name, folders) in std::mem::take(&mut self.here) {
                self.before.entry(name).or_default().extend(folders);
            }
            self.target = target.to_path_buf();
        }
        let mut sources = Sources { packages: Vec::new(), gpu_target: shared.to_path_buf() };
        for manifest in manifests {
            let (package, folder) = (manifest.to_package(), real(manifest.folder()));
            let here = self.here.entry(package.name.clone()).or_default();
            if !here.contains(&folder) {
                here.push(folder.clone());
            }
            // The first package with a given name uses the shared folder.
            if here.iter().find(|other| other.is_dir()) != Some(&folder) {
                sources.gpu_target = shared.join(format!("{:016x}", hash(&real(manifests[0].folder()))));
            }
            let before = self.before.get(&package.name).into_iter().flatten();
            let moved = here.iter().filter(|other| !other.is_dir()).chain(before);
            let mut folders: Vec<u64> =
                [&folder].into_iter().chain(moved).map(|folder| hash(folder)).collect();
            folders.sort_unstable();
            folders.dedup();
            sources.packages.push((package, folders));
        }
        sources
    }
}

/// Hashes a folder, in the same way as `#[kernel]`.
fn hash(folder: &Path) -> u64 {
    image::hash(folder.as_os_str().as_encoded_bytes())
}

/// Resolves the links in `path`.
pub fn real(path: &Path) -> PathBuf {
    std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(base: &Path, folder: &str, name: &str) -> Manifest {
        let folder = base.join(folder);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("Cargo.toml"), format!("[package]\nname = {name:?}\n")).unwrap();
        Manifest::of(&folder).unwrap()
    }

    fn folders(sources: &Sources) -> Vec<u64> {
        sources.packages[0].1.clone()
    }

    fn sorted(mut hashes: Vec<u64>) -> Vec<u64> {
        hashes.sort_unstable();
        hashes
    }

    #[test]
    fn packages_of_one_name_are_told_apart() {
        let base = std::env::temp_dir().join(format!("warpsmith-apart-{}", std::process::id()));
        let target = base.join("target");
        let first = package(&base, "first/kernels", "kernels");
        let second = package(&base, "second/kernels", "kernels");
        let other = package(&base, "third/kernels", "third-kernels");
        for _ in 0..2 {
            let [first, second, other] =
                [&first, &second, &other].map(|manifest| of(manifest, &target).unwrap());
            assert!(folders(&first).len() == 1 && folders(&second).len() == 1);
            assert_ne!(folders(&first), folders(&second));
            // `core` is compiled once, except for packages that would be confused.
            assert_eq!((&first.gpu_target, &other.gpu_target), (&target.join("gpu"), &target.join("gpu")));
            assert!(
                second.gpu_target.starts_with(target.join("gpu")) && second.gpu_target != first.gpu_target
            );
        }
        std::fs::remove_dir_all(base).unwrap();
    }

    #[test]
    fn packages_by_path_are_told_apart_too() {
        let base = std::env::temp_dir().join(format!("warpsmith-apart-path-{}", std::process::id()));
        let [first, second] = ["first", "second"].map(|project| {
            package(&base, &format!("{project}/common"), "common");
            let kernels = base.join(project).join("kernels");
            let text = "dependencies.common.path = \"../common\"\npackage.name = ";
            std::fs::create_dir_all(&kernels).unwrap();
            std::fs::write(kernels.join("Cargo.toml"), format!("{text}\"{project}\"\n")).unwrap();
            of(&Manifest::of(&kernels).unwrap(), &base.join("target")).unwrap()
        });
        let names: Vec<&str> = second.packages.iter().map(|(package, _)| &*package.name).collect();
        assert_eq!(names, ["second", "common"]);
        assert_ne!(first.packages[1].1, second.packages[1].1);
        assert_ne!(first.gpu_target, second.gpu_target);
        std::fs::remove_dir_all(base).unwrap();
    }

    #[test]
    fn what_was_moved_or_copied_remains_valid() {
        let base = std::env::temp_dir().join(format!("warpsmith-moved-{}", std::process::id()));
        let (target, copy) = (base.join("target"), base.join("copy"));
        let old = of(&package(&base, "old", "kernels"), &target).unwrap();
        std::fs::rename(base.join("old"), base.join("new")).unwrap();
        let new = of(&package(&base, "new", "kernels"), &target).unwrap();
        assert!(folders(&new).len() == 2 && folders(&new).contains(&folders(&old)[0]));
        assert_eq!(new.gpu_target, target.join("gpu"));

        // A copy of the target folder that belongs to a copy of the project.
        std::fs::create_dir_all(copy.join("gpu/sources")).unwrap();
        std::fs::copy(target.join("gpu/sources/seen.json"), copy.join("gpu/sources/seen.json")).unwrap();
        let third = of(&package(&base, "third", "kernels"), &copy).unwrap();
        assert_eq!(third.gpu_target, copy.join("gpu"));
        let own = hash(&real(&base.join("third")));
        assert_eq!(folders(&third), sorted([vec![own], folders(&new)].concat()));
        std::fs::remove_dir_all(base).unwrap();
    }

    #[test]
    #[cfg(unix)]
    fn a_link_is_the_folder_that_it_leads_to() {
        let base = std::env::temp_dir().join(format!("warpsmith-link-{}", std::process::id()));
        let there = package(&base, "there", "kernels");
        std::os::unix::fs::symlink(base.join("there"), base.join("link")).unwrap();
        let [there, link] = [there, Manifest::of(&base.join("link")).unwrap()]
            .map(|manifest| folders(&of(&manifest, &base.join("target")).unwrap()));
        assert_eq!(there, link);
        std::fs::remove_dir_all(base).unwrap();
    }
}
