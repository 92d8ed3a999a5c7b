//! Reads manifests without cargo, because they are also needed if no device toolchain is installed.

use std::path::{Component, Path, PathBuf};

use toml::{Table, Value};

use crate::error::Error;
use crate::packages::Package;

/// The manifest of a package.
#[derive(Debug, Clone)]
pub struct Manifest {
    /// Folder of the package, without `..`.
    folder: PathBuf,
    table: Table,
}

impl Manifest {
    /// Reads the manifest of the package in `folder`.
    ///
    /// # Errors
    /// Returns [`Error::NoSuchCrate`] if there is no manifest, [`Error::Manifest`] if it is not a package manifest.
    pub fn of(folder: &Path) -> Result<Manifest, Error> {
        let folder = plain(folder);
        let path = folder.join("Cargo.toml");
        if !path.is_file() {
            return Err(Error::NoSuchCrate { path: folder });
        }
        let text = std::fs::read_to_string(&path).map_err(Error::io("cannot read", &path))?;
        let wrong = |message: String| Error::Manifest { path: path.clone(), message };
        let table = parse(&text).map_err(wrong)?;
        let manifest = Manifest { folder, table };
        match manifest.package().and_then(|package| package.get("name")).and_then(Value::as_str) {
            Some(_) => Ok(manifest),
            None => Err(wrong("it has no `[package]` with a name".to_owned())),
        }
    }

    /// Path of the manifest file.
    pub fn path(&self) -> PathBuf {
        self.folder.join("Cargo.toml")
    }

    /// Folder of the package.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the name and version of the package; the version is empty if the package inherits it from a workspace
    /// that was not found.
    pub fn to_package(&self) -> Package {
        let get = |key: &str| self.package().and_then(|package| package.get(key));
        let version = match get("version") {
            None => "0.0.0".to_owned(),
            Some(Value::String(version)) => version.clone(),
            Some(inherited) if is_inherited(inherited) => {
                let root = table_of(&self.workspace_root());
                let version = get_in(&root, &["workspace", "package", "version"]).and_then(Value::as_str);
                version.unwrap_or_default().to_owned()
            }
            Some(_) => String::new(),
        };
        let name = get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
        Package { name, version }
    }

    /// Returns the name of the library as a Rust identifier.
    pub fn library_name(&self) -> String {
        let name = get_in(&self.table, &["lib", "name"]).and_then(Value::as_str);
        name.map_or_else(|| self.to_package().name, str::to_owned).replace('-', "_")
    }

    /// Returns the source file of the library.
    pub fn library(&self) -> PathBuf {
        let path = get_in(&self.table, &["lib", "path"]).and_then(Value::as_str);
        plain(&self.folder.join(path.unwrap_or("src/lib.rs")))
    }

    /// Returns the folder of the package's workspace, as cargo finds it, or the package's own folder if it belongs to
    /// no workspace.
    pub fn workspace_root(&self) -> PathBuf {
        if self.table.contains_key("workspace") {
            return self.folder.clone();
        }
        let pointer = self.package().and_then(|package| package.get("workspace")).and_then(Value::as_str);
        if let Some(pointer) = pointer {
            return plain(&self.folder.join(pointer));
        }
        let is_root = |folder: &&Path| {
            let table = table_of(folder);
            let has = |key: &str| {
                let paths = get_in(&table, &["workspace", key]).and_then(Value::as_array);
                let mut paths = paths.into_iter().flatten().filter_map(Value::as_str);
                paths.any(|path| self.folder.starts_with(plain(&folder.join(path))))
            };
            table.contains_key("workspace") && (!has("exclude") || has("members"))
        };
        let root = self.folder.ancestors().skip(1).find(is_root);
        root.unwrap_or(&self.folder).to_path_buf()
    }

    /// Returns the package's path dependencies for all targets.
    fn path_dependencies(&self) -> Vec<PathBuf> {
        let of_targets = self.table.get("target").and_then(Value::as_table);
        let of_targets = of_targets.into_iter().flat_map(Table::values).filter_map(Value::as_table);
        let tables = [&self.table].into_iter().chain(of_targets);
        let dependencies =
            tables.filter_map(|table| table.get("dependencies")).filter_map(Value::as_table).flatten();
        let root = self.workspace_root();
        let workspace = table_of(&root);
        let path = |value: &Value, folder: &Path| {
            value.get("path").and_then(Value::as_str).map(|path| plain(&folder.join(path)))
        };
        dependencies
            .filter_map(|(name, value)| match is_inherited(value) {
                true => path(get_in(&workspace, &["workspace", "dependencies", name])?, &root),
                false => path(value, &self.folder),
            })
            .collect()
    }

    /// Returns this manifest and those of all its transitive path dependencies.
    pub fn with_path_dependencies(&self) -> Vec<Manifest> {
        let mut all = vec![self.clone()];
        let mut next = 0;
        while next < all.len() {
            for folder in all[next].path_dependencies() {
                let is_new = all.iter().all(|manifest| manifest.folder != folder);
                // An invalid manifest is left for cargo to report.
                all.extend(is_new.then(|| Manifest::of(&folder).ok()).flatten());
            }
            next += 1;
        }
        all
    }

    fn package(&self) -> Option<&Table> {
        self.table.get("package").or_else(|| self.table.get("project")).and_then(Value::as_table)
    }
}

/// Returns the folder, with links resolved, of the workspace that contains `folder`, or `None` if `folder` is outside
/// of any package.
pub fn root_of(folder: &Path) -> Option<PathBuf> {
    let folder = std::fs::canonicalize(folder).ok()?;
    let nearest = folder.ancestors().find(|folder| folder.join("Cargo.toml").is_file())?;
    // A workspace may have no root package.
    Some(Manifest::of(nearest).map_or_else(|_| nearest.to_path_buf(), |manifest| manifest.workspace_root()))
}

/// Parses a manifest or a lock file.
pub fn parse(text: &str) -> Result<Table, String> {
    text.strip_prefix('\u{feff}').unwrap_or(text).parse::<Table>().map_err(|error| error.to_string())
}

/// Returns the manifest in `folder`, or an empty manifest if the folder contains none.
fn table_of(folder: &Path) -> Table {
    let text = std::fs::read_to_string(folder.join("Cargo.toml")).unwrap_or_default();
    parse(&text).unwrap_or_default()
}

fn get_in<'a>(table: &'a Table, keys: &[&str]) -> Option<&'a Value> {
    let (first, rest) = keys.split_first()?;
    rest.iter().try_fold(table.get(*first)?, |value, key| value.get(*key))
}

/// Returns true if the value is inherited from the workspace: `{ workspace = true }`.
fn is_inherited(value: &Value) -> bool {
    value.get("workspace").and_then(Value::as_bool) == Some(true)
}

/// Removes `.` and `..` from `path` lexically, as cargo does.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir if plain.file_name().is_some() => {
                plain.pop();
            }
            part => plain.push(part),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes files into a folder that is deleted if the test passes.
    fn with_files(test: &str, files: &[(&str, &str)], check: impl FnOnce(&Path)) {
        let folder = std::env::temp_dir().join(format!("warpsmith-{test}-{}", std::process::id()));
        for (file, text) in files {
            let file = folder.join(file);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        }
        check(&folder);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn every_form_of_a_manifest_is_read() {
        let forms = [
            "[package]\nname = \"k\"\nversion = \"1.2.3\"\n[lib]\npath = \"code/k.rs\"",
            "\u{feff}[package]\r\nname = 'k'\r\nversion = '1.2.3'\r\n[lib]\r\npath = 'code/k.rs'\r\n",
            "[package] # it\nname = \"k\" # its name\nversion = \"1.2.3\"\n[lib] # here\npath = \"code/k.rs\"",
            "package.name = \"k\"\npackage.version = \"1.2.3\"\nlib.path = \"code/k.rs\"",
            "package = { name = \"k\", version = \"1.2.3\" }\nlib = { path = \"code/k.rs\" }",
            "[package]\ndescription = \"\"\"\n[lib]\npath = \"no.rs\"\nname = \"no\"\n\"\"\"\n\"name\" = \"k\"\n'version' = '''1.2.3'''\n[\"lib\"]\npath = \"code/k.rs\"",
            "[ package ]\nname=\"k\"\nversion=\"1.2.3\"\n[ \"lib\" ]\n\"path\" = \"\\u0063ode/k.rs\"",
            "[workspace]\nname = \"no\"\n[lib]\nname = \"x\"\npath = \"./src/../code/k.rs\"\n[package]\nkeywords = [\n \"[a]\",\n]\nname = \"k\"\nversion = \"1.2.3\"",
        ];
        for (number, form) in forms.into_iter().enumerate() {
            with_files(&format!("forms-{number}"), &[("Cargo.toml", form)], |folder| {
                let manifest = Manifest::of(folder).unwrap();
                let found = (manifest.to_package(), manifest.library());
                let package = Package { name: "k".to_owned(), version: "1.2.3".to_owned() };
                assert_eq!(found, (package, folder.join("code/k.rs")), "{form}");
            });
        }
    }

    #[test]
    fn the_workspace_says_the_version() {
        let member = |version: &str| format!("[package]\nname = \"k\"\n{version}\n");
        let root = "[workspace] # it\nmembers = [\"kernels\"]\n[workspace.package]\nversion = \"2.0.0\"\n";
        let version = |folder: &Path| Manifest::of(folder).unwrap().to_package().version;
        for (number, (line, expected)) in [
            ("version = '1.2.3'", "1.2.3"),
            ("version.workspace = true", "2.0.0"),
            ("version = { workspace = true }", "2.0.0"),
            ("edition = \"2024\"", "0.0.0"),
        ]
        .into_iter()
        .enumerate()
        {
            let files = [("Cargo.toml", root), ("kernels/Cargo.toml", &member(line))];
            with_files(&format!("version-{number}"), &files, |folder| {
                assert_eq!(version(&folder.join("kernels")), expected, "{line}");
                assert_eq!(version(&folder.join("host/../kernels")), expected, "{line}");
            });
        }
        // Three cases: the package is the root itself, names its root, or has no root.
        let own =
            "[workspace.package]\nversion = \"3.0.0\"\n[package]\nname = \"k\"\nversion.workspace = true\n";
        with_files("version-own", &[("Cargo.toml", own)], |folder| assert_eq!(version(folder), "3.0.0"));
        let pointing = "package = { name = \"k\", version.workspace = true, workspace = \"../root\" }";
        let files = [("root/Cargo.toml", root), ("k/Cargo.toml", pointing)];
        with_files("version-pointer", &files, |folder| assert_eq!(version(&folder.join("k")), "2.0.0"));
        let alone = member("version.workspace = true");
        with_files("version-alone", &[("Cargo.toml", &alone)], |folder| assert_eq!(version(folder), ""));
    }

    #[test]
    fn the_root_is_the_workspace_that_does_not_exclude_the_package() {
        let root = "[workspace]\nmembers = [\"tests/kernels\"]\nexclude = [\"examples\", \"tests\"]\n";
        let package = "[package]\nname = \"k\"\n";
        let files = [
            ("Cargo.toml", root),
            ("kernels/Cargo.toml", package),
            ("examples/kernels/Cargo.toml", package),
            ("tests/kernels/Cargo.toml", package),
            ("own/Cargo.toml", "[workspace]\n[package]\nname = \"own\"\n"),
        ];
        with_files("roots", &files, |folder| {
            let root = |place: &str| Manifest::of(&folder.join(place)).unwrap().workspace_root();
            assert_eq!(root("kernels"), folder);
            assert_eq!(root("examples/kernels"), folder.join("examples/kernels"));
            assert_eq!(root("tests/kernels"), folder);
            assert_eq!(root("own"), folder.join("own"));
            let real = std::fs::canonicalize(folder).unwrap();
            std::fs::create_dir_all(folder.join("kernels/src/inner")).unwrap();
            assert_eq!(root_of(&folder.join("kernels/src/inner")), Some(real.clone()));
            assert_eq!(root_of(folder), Some(real));
            assert_eq!(root_of(Path::new("/no/such/folder")), None);
        });
    }

    #[test]
    fn what_is_no_package_is_named() {
        for (number, (text, words)) in [
            ("[workspace]\n", "not a package manifest"),
            ("[package\nname = \"k\"", "line 1"),
            ("package = 3", "not a package manifest"),
        ]
        .into_iter()
        .enumerate()
        {
            with_files(&format!("wrong-{number}"), &[("Cargo.toml", text)], |folder| {
                let error = Manifest::of(folder).unwrap_err().to_string();
                assert!(error.contains("Cargo.toml") && error.contains(words), "{error}");
            });
        }
        let error = Manifest::of(Path::new("/no/such/../crate")).unwrap_err().to_string();
        assert!(
            error.replace('\\', "/").contains("/no/crate") && error.contains("there is no Cargo.toml"),
            "{error}"
        );
    }

    #[test]
    fn dependencies_by_path_are_followed() {
        let files = [
            ("Cargo.toml", "[workspace.dependencies]\nshared = { path = \"shared\" }\nhalf = \"2\"\n"),
            (
                "kernels/Cargo.toml",
                "[package]\nname = \"k\"\n[dependencies]\nhalf = { workspace = true }\nshared.workspace = true\nlost = { path = \"../lost\" }\n[target.'cfg(unix)'.dependencies.helpers]\npath = \"../helpers\"\n",
            ),
            ("shared/Cargo.toml", "package.name = \"shared\"\ndependencies.k = { path = \"../kernels\" }\n"),
            ("helpers/Cargo.toml", "[package]\nname = \"helpers\"\n"),
        ];
        with_files("paths", &files, |folder| {
            let all = Manifest::of(&folder.join("kernels")).unwrap().with_path_dependencies();
            let names: Vec<String> = all.iter().map(|manifest| manifest.to_package().name).collect();
            assert_eq!(names, ["k", "shared", "helpers"]);
            assert_eq!(all[2].folder(), folder.join("helpers"));
        });
    }
}
