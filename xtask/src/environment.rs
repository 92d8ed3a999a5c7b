//! Finds the environment variables that the published crates read, for the check of `docs/environment.md`.

use std::collections::BTreeSet;
use std::path::Path;

use crate::error::{Error, Result};
use crate::process::tracked_files;

const PREFIX: &str = "WARPSMITH_";
/// Variables for communication between processes of this project. Users do not set them.
const INTERNAL: [&str; 4] = [
    "WARPSMITH_BUILDER_SOURCES",
    "WARPSMITH_CHECK_INNER_WRAPPER",
    "WARPSMITH_CHECK_WRAPPER",
    "WARPSMITH_LAUNCH_PROCESS",
];

/// Returns the variables that occur in string literals of the sources.
pub fn variables(root: &Path) -> Result<BTreeSet<String>> {
    let mut read = BTreeSet::new();
    for file in tracked_files(root, &["src/*.rs", "*/src/*.rs", ":!xtask", ":!difftest"])? {
        let path = root.join(&file);
        let text = std::fs::read_to_string(&path).map_err(Error::file(&path))?;
        read.extend(names(&text));
    }
    read.retain(|name| !INTERNAL.contains(&name.as_str()) && !is_of_tests(name));
    Ok(read)
}

/// Returns the variable names that form an entire string literal.
fn names(text: &str) -> BTreeSet<String> {
    let parts = text.split('"');
    let is_name = |part: &&str| {
        part.strip_prefix(PREFIX)
            .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_uppercase() || b == b'_'))
    };
    parts.filter(is_name).map(str::to_owned).collect()
}

/// Returns true for variables that only tests and benches read. `CONTRIBUTING.md` describes these variables.
fn is_of_tests(name: &str) -> bool {
    ["TEST_", "BENCH_"].iter().any(|part| name[PREFIX.len()..].starts_with(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_whole_literals() {
        let text = r#"var("WARPSMITH_RANK") "WARPSMITH_RANK is missing" "WARPSMITH_" "#;
        assert_eq!(names(text), BTreeSet::from(["WARPSMITH_RANK".to_owned()]));
    }
}
