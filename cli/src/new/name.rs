//! The name of a project.

use std::path::Path;

/// A name that cargo accepts for a package and that no other crate in the project has.
#[derive(Debug, PartialEq, Eq)]
pub struct Name {
    /// Package name.
    pub package: String,
}

/// Keywords of Rust.
const KEYWORDS: [&str; 54] = [
    "Self", "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "crate", "do",
    "dyn", "else", "enum", "extern", "false", "final", "fn", "for", "gen", "if", "impl", "in", "let", "loop",
    "macro", "match", "mod", "move", "mut", "override", "priv", "pub", "ref", "return", "self", "static",
    "struct", "super", "trait", "true", "try", "type", "typeof", "unsafe", "unsized", "use", "virtual",
    "where", "while", "yield", "_", "union",
];
/// Keywords of Python that Rust does not have, and modules that a Python project imports.
const PYTHON: [&str; 23] = [
    "None", "and", "assert", "class", "def", "del", "elif", "except", "finally", "from", "global", "import",
    "is", "lambda", "nonlocal", "not", "numpy", "or", "pass", "pytest", "raise", "torch", "with",
];
/// Names of crates that every Rust program contains, and folder names that cargo uses.
const RESERVED: [&str; 9] =
    ["std", "core", "alloc", "test", "proc_macro", "build", "deps", "examples", "incremental"];
/// Names of crates that the project uses.
const USED: [&str; 3] = ["warpsmith", "gpu_std", "gpu_kernels"];

impl Name {
    /// Returns the name `given`, or otherwise the last component of the project's path.
    ///
    /// # Errors
    /// Returns a message that describes the problem with the name and how to fix it.
    pub fn of(path: &Path, given: Option<&str>, is_python: bool) -> Result<Name, String> {
        let last = path.file_name().map(|name| name.to_string_lossy().into_owned());
        let Some(package) = given.map(str::to_owned).or(last) else {
            return Err(format!(
                "the path {} does not end in a name; give the folder to create",
                path.display()
            ));
        };
        let advice =
            if given.is_some() { "choose another --name" } else { "choose another, or give one with --name" };
        let of_python =
            || (is_python && PYTHON.contains(&package.as_str())).then(|| "Python uses it".to_owned());
        match problem(&package).or_else(of_python) {
            Some(problem) => Err(format!("{package:?} cannot be a package name: {problem}; {advice}")),
            None => Ok(Name { package }),
        }
    }

    /// Returns the package name of the project's kernels. The name is unique to the project because cargo confuses
    /// packages of the same name if two projects share a target folder.
    pub fn kernels(&self) -> String {
        format!("{}-kernels", self.package)
    }

    /// Returns the Rust name of the project's library.
    pub fn library(&self) -> String {
        self.package.replace('-', "_")
    }
}

fn problem(name: &str) -> Option<String> {
    let library = name.replace('-', "_");
    if name.is_empty() {
        return Some("it is empty".to_owned());
    }
    if let Some(bad) = name.chars().find(|c| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '_'))) {
        return Some(format!("it contains {bad:?}, but only ASCII letters, digits, - and _ are allowed"));
    }
    if !name.starts_with(|c: char| c.is_ascii_alphabetic()) {
        return Some("it does not start with a letter".to_owned());
    }
    if KEYWORDS.contains(&library.as_str()) {
        return Some("it is a Rust keyword".to_owned());
    }
    if RESERVED.contains(&library.as_str()) {
        return Some("it is reserved by Rust or cargo".to_owned());
    }
    let is_used = |name: &str| USED.contains(&name);
    if is_used(&library) || is_used(&format!("{library}_kernels")) || library.starts_with("warpsmith_") {
        return Some("the project uses a crate of that name".to_owned());
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_names_the_package() {
        let of =
            |path: &str| Name::of(Path::new(path), None, false).map(|name| (name.library(), name.package));
        assert_eq!(of("work/heat-2d"), Ok(("heat_2d".to_owned(), "heat-2d".to_owned())));
        assert_eq!(of("a/b/"), Ok(("b".to_owned(), "b".to_owned())));
        assert!(of("..").is_err_and(|error| error.contains("does not end in a name")));
        assert_eq!(Name::of(Path::new("2d"), Some("two-d"), false).unwrap().kernels(), "two-d-kernels");
    }

    #[test]
    fn bad_names_are_refused_with_the_reason() {
        for (name, reason) in [
            ("2d", "start with a letter"),
            ("hëat", "'ë'"),
            ("a b", "' '"),
            ("fn", "keyword"),
            ("test", "reserved"),
            ("torch", "Python uses it"),
            ("gpu", "uses a crate"),
            ("warpsmith", "uses a crate"),
            ("gpu-std", "uses a crate"),
            ("warpsmith-runtime", "uses a crate"),
        ] {
            let error = Name::of(Path::new(name), None, true).unwrap_err();
            assert!(error.contains(reason) && error.contains("--name"), "{name}: {error}");
        }
    }
}
