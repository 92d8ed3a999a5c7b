//! Names and versions of the kernel crate and its dependencies, read without cargo, because they are also needed if no
//! device toolchain is installed.

use std::collections::HashMap;

use toml::{Table, Value};

use crate::manifest::{self, Manifest};

/// A package.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Package {
    /// Package name.
    pub name: String,
    /// Package version; empty if unknown.
    pub version: String,
}

/// Returns the package of `manifest`, then its dependencies from the lock file of its workspace. It includes
/// dependencies of any kind and platform, so some may not be needed by the kernels.
pub fn of(manifest: &Manifest) -> Vec<Package> {
    let package = manifest.to_package();
    let lock = std::fs::read_to_string(manifest.workspace_root().join("Cargo.lock")).unwrap_or_default();
    let packages = in_lock(&manifest::parse(&lock).unwrap_or_default(), &package);
    if packages.is_empty() { vec![package] } else { packages }
}

/// Returns `package` and its transitive dependencies, or an empty list if the lock file does not contain the package.
fn in_lock(lock: &Table, package: &Package) -> Vec<Package> {
    struct Entry<'a> {
        package: Package,
        is_by_path: bool,
        dependencies: Vec<&'a str>,
    }
    let mut entries: HashMap<&str, Vec<Entry<'_>>> = HashMap::new();
    for entry in lock.get("package").and_then(Value::as_array).into_iter().flatten() {
        let get = |key: &str| entry.get(key).and_then(Value::as_str);
        let (Some(name), Some(version)) = (get("name"), get("version")) else { continue };
        let dependencies = entry.get("dependencies").and_then(Value::as_array);
        entries.entry(name).or_default().push(Entry {
            package: Package { name: name.to_owned(), version: version.to_owned() },
            is_by_path: get("source").is_none(),
            dependencies: dependencies.into_iter().flatten().filter_map(Value::as_str).collect(),
        });
    }
    // The lock file may be older than the manifest's version.
    let own = entries.get(&*package.name).into_iter().flatten().find(|entry| entry.is_by_path);
    let Some(own) = own else { return Vec::new() };
    let mut packages = vec![own.package.clone()];
    let mut rest = own.dependencies.clone();
    while let Some(next) = rest.pop() {
        // `NAME`, or `NAME VERSION` if there are several versions.
        let (name, version) =
            next.split_once(' ').map_or((next, None), |(name, rest)| (name, rest.split(' ').next()));
        for entry in entries.get(name).into_iter().flatten() {
            let is_it = version.is_none_or(|version| version == entry.package.version);
            if is_it && !packages.contains(&entry.package) {
                packages.push(entry.package.clone());
                rest.extend(&entry.dependencies);
            }
        }
    }
    packages
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCK: &str = "\
version = 4 # of the format

[[package]]
name = \"kernels\"
version = \"0.3.0\"
dependencies = [
 \"helpers\", # one of ours
 'half 2.7.0',
]

[[package]]
name = \"kernels\"
version = \"9.0.0\"
source = \"registry+https://github.com/rust-lang/crates.io-index\"

[[package]]
name = \"half\"
version = \"1.0.0\"
source = \"registry+https://github.com/rust-lang/crates.io-index\"

[[package]]
name = \"half\"
version = \"2.7.0\"
source = \"registry+https://github.com/rust-lang/crates.io-index\"

[[package]]
name = \"helpers\"
version = \"0.1.0\"
dependencies = [\"kernels 0.3.0\"]

[[package]]
name = \"other\"
version = \"0.1.0\"
";

    #[test]
    fn the_lock_file_names_dependencies_of_dependencies() {
        let of = |lock: &str, name: &str| {
            let package = Package { name: name.to_owned(), version: "0.3.0".to_owned() };
            let packages = in_lock(&manifest::parse(lock).unwrap(), &package);
            packages.iter().map(|p| format!("{} {}", p.name, p.version)).collect::<Vec<_>>()
        };
        let expected = ["kernels 0.3.0", "half 2.7.0", "helpers 0.1.0"];
        assert_eq!(of(LOCK, "kernels"), expected);
        assert_eq!(of(&LOCK.replace('\n', "\r\n"), "kernels"), expected);
        assert!(of(LOCK, "half").is_empty() && of(LOCK, "unknown").is_empty());
        // The first format names the source of each dependency.
        let first = LOCK
            .replace("'half 2.7.0'", "'half 2.7.0 (registry+https://github.com/rust-lang/crates.io-index)'");
        assert_eq!(of(&first, "kernels"), expected);
    }

    #[test]
    fn the_lock_file_is_that_of_the_workspace() {
        let folder = std::env::temp_dir().join(format!("warpsmith-lock-{}", std::process::id()));
        let inner = folder.join("kernels");
        std::fs::create_dir_all(&inner).unwrap();
        std::fs::write(folder.join("Cargo.toml"), "[workspace]\nmembers = [\"kernels\"]\n").unwrap();
        std::fs::write(inner.join("Cargo.toml"), "package = { name = \"kernels\", version = \"0.3.0\" }")
            .unwrap();
        let names = || {
            let packages = of(&Manifest::of(&inner).unwrap());
            packages.into_iter().map(|package| package.name).collect::<Vec<_>>()
        };
        assert_eq!(names(), ["kernels"]);
        // A stale lock file from when the package was its own workspace.
        std::fs::write(inner.join("Cargo.lock"), LOCK.replace("2.7.0", "1.0.0")).unwrap();
        assert_eq!(names(), ["kernels"]);
        std::fs::write(folder.join("Cargo.lock"), LOCK).unwrap();
        assert_eq!(names(), ["kernels", "half", "helpers"]);
        std::fs::remove_dir_all(folder).unwrap();
    }
}
