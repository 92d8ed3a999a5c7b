//! Names and versions of the kernel crate and of what it depends on, without cargo: they are needed where there is no
//! device toolchain, too.

use std::collections::HashMap;
use std::path::Path;

/// A package.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Package {
    /// Its name.
    pub name: String,
    /// Its version; empty where it is not known.
    pub version: String,
}

/// The package `name` in `crate_dir`, then those that it depends on, by the lock file of its workspace: in any way and on
/// any platform, so that some may be there that the kernels do not need.
pub fn of(crate_dir: &Path, name: &str) -> Vec<Package> {
    let read = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
    let lock = crate_dir.ancestors().map(|folder| folder.join("Cargo.lock")).find(|path| path.is_file());
    let mut packages = lock.map_or_else(Vec::new, |lock| in_lock(&read(&lock), name));
    if packages.is_empty() {
        let manifest = read(&crate_dir.join("Cargo.toml"));
        let version = match value_in(&manifest, "[package]", "version") {
            Some(version) => version,
            None if manifest.contains("version.workspace") => crate_dir
                .ancestors()
                .skip(1)
                .find_map(|folder| {
                    value_in(&read(&folder.join("Cargo.toml")), "[workspace.package]", "version")
                })
                .unwrap_or_default(),
            None => "0.0.0".to_owned(),
        };
        packages.push(Package { name: name.to_owned(), version });
    }
    packages
}

/// The string that `key` has in the table `section` of a manifest.
pub fn value_in(manifest: &str, section: &str, key: &str) -> Option<String> {
    let table = manifest.lines().map(str::trim).skip_while(|line| *line != section).skip(1);
    let value = table.take_while(|line| !line.starts_with('[')).find_map(|line| {
        let (found, value) = line.split_once('=')?;
        (found.trim() == key).then(|| value.trim())
    })?;
    let quote = value.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    value[1..].split(quote).next().map(str::to_owned)
}

/// The package `name` and all that it depends on; nothing when the lock file does not have it, or has two of that name.
fn in_lock(lock: &str, name: &str) -> Vec<Package> {
    struct Entry {
        package: Package,
        dependencies: Vec<String>,
    }
    let mut entries: HashMap<String, Vec<Entry>> = HashMap::new();
    for block in lock.split("[[package]]").skip(1) {
        let get = |key: &str| value_in(&format!("[package]{block}"), "[package]", key);
        let (Some(name), Some(version)) = (get("name"), get("version")) else { continue };
        let list = block.split_once("dependencies = [").and_then(|(_, rest)| rest.split_once(']'));
        let dependencies = list.map_or("", |(list, _)| list).split('"').skip(1).step_by(2);
        entries.entry(name.clone()).or_default().push(Entry {
            package: Package { name, version },
            dependencies: dependencies.map(str::to_owned).collect(),
        });
    }
    if entries.get(name).is_none_or(|entries| entries.len() > 1) {
        return Vec::new();
    }
    let mut packages: Vec<Package> = Vec::new();
    let mut rest = vec![name.to_owned()];
    while let Some(next) = rest.pop() {
        // `NAME`, or `NAME VERSION` where there are several versions.
        let (name, version) =
            next.split_once(' ').map_or((&*next, None), |(name, rest)| (name, rest.split(' ').next()));
        for entry in entries.get(name).into_iter().flatten() {
            let is_it = version.is_none_or(|version| version == entry.package.version);
            if is_it && !packages.contains(&entry.package) {
                packages.push(entry.package.clone());
                rest.extend(entry.dependencies.iter().cloned());
            }
        }
    }
    packages
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCK: &str = "\
version = 4

[[package]]
name = \"kernels\"
version = \"0.3.0\"
dependencies = [
 \"helpers\",
 \"half 2.7.0\",
]

[[package]]
name = \"half\"
version = \"1.0.0\"

[[package]]
name = \"half\"
version = \"2.7.0\"

[[package]]
name = \"helpers\"
version = \"0.1.0\"
dependencies = [
 \"kernels\",
]

[[package]]
name = \"other\"
version = \"0.1.0\"
";

    #[test]
    fn the_name_is_that_of_the_package_table() {
        let manifest = "[workspace]\nname = \"no\"\n[package]\nversion = \"1\"\nname = \"my-kernels\" # it\n[lib]\nname = \"x\"\n";
        let name_in = |manifest| value_in(manifest, "[package]", "name");
        assert_eq!(name_in(manifest).as_deref(), Some("my-kernels"));
        assert_eq!(name_in("[package]\nname='k'").as_deref(), Some("k"));
        assert_eq!(name_in("[workspace]\nmembers = []\n[lib]\nname = \"x\""), None);
    }

    #[test]
    fn the_lock_file_names_dependencies_of_dependencies() {
        let text: Vec<String> =
            in_lock(LOCK, "kernels").iter().map(|p| format!("{} {}", p.name, p.version)).collect();
        assert_eq!(text, ["kernels 0.3.0", "half 2.7.0", "helpers 0.1.0"]);
        assert!(in_lock(LOCK, "half").is_empty() && in_lock(LOCK, "unknown").is_empty());
    }

    #[test]
    fn a_manifest_without_lock_file_says_the_version() {
        let folder = std::env::temp_dir().join(format!("warpsmith-packages-{}", std::process::id()));
        let inner = folder.join("kernels");
        std::fs::create_dir_all(&inner).unwrap();
        let version = |manifest: &str| {
            std::fs::write(inner.join("Cargo.toml"), manifest).unwrap();
            of(&inner, "k")[0].version.clone()
        };
        std::fs::write(folder.join("Cargo.toml"), "[workspace.package]\nversion = \"2.0.0\"\n").unwrap();
        assert_eq!(version("[package]\nname = \"k\"\nversion = '1.2.3'\n"), "1.2.3");
        assert_eq!(version("[package]\nname = \"k\"\nversion.workspace = true\n"), "2.0.0");
        assert_eq!(version("[package]\nname = \"k\"\n"), "0.0.0");
        std::fs::remove_dir_all(folder).unwrap();
    }
}
