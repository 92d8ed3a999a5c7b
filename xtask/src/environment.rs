//! Checks that `docs/environment.md` lists the environment variables that the published crates read, and no others.

use std::collections::BTreeSet;
use std::path::Path;

use crate::error::{Error, Result};
use crate::process::tracked_files;

const PAGE: &str = "docs/environment.md";
const PREFIX: &str = "WARPSMITH_";
/// Variables by which one process of ours talks to another. Users do not set them.
const INTERNAL: [&str; 4] = [
    "WARPSMITH_BUILDER_SOURCES",
    "WARPSMITH_CHECK_INNER_WRAPPER",
    "WARPSMITH_CHECK_WRAPPER",
    "WARPSMITH_LAUNCH_PROCESS",
];

/// Compares the page with the string literals of the sources.
pub fn check(root: &Path) -> Result<()> {
    let mut read = BTreeSet::new();
    for file in tracked_files(root, &["src/*.rs", "*/src/*.rs", ":!xtask", ":!difftest"])? {
        let path = root.join(&file);
        let text = std::fs::read_to_string(&path).map_err(Error::file(&path))?;
        read.extend(names(&text, '"'));
    }
    read.retain(|name| !INTERNAL.contains(&name.as_str()) && !is_of_tests(name));
    let page = root.join(PAGE);
    let page = std::fs::read_to_string(&page).map_err(Error::file(&page))?;
    let described = names(&page, '`');
    let missing = read.difference(&described).map(|name| format!("{name} is read, but not described"));
    let stale = described.difference(&read).map(|name| format!("{name} is described, but not read"));
    let problems: Vec<String> = missing.chain(stale).collect();
    if problems.is_empty() {
        Ok(())
    } else {
        Err(Error::Unexpected(format!("{}\n{PAGE} must list the variables of the code", problems.join("\n"))))
    }
}

/// Returns the names of variables that stand alone between two of these quotes.
fn names(text: &str, quote: char) -> BTreeSet<String> {
    let parts = text.split(quote);
    let is_name = |part: &&str| {
        part.strip_prefix(PREFIX)
            .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_uppercase() || b == b'_'))
    };
    parts.filter(is_name).map(str::to_owned).collect()
}

/// Returns true for variables of tests and benches, which `CONTRIBUTING.md` describes.
fn is_of_tests(name: &str) -> bool {
    ["TEST_", "BENCH_"].iter().any(|part| name[PREFIX.len()..].starts_with(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_alone_between_quotes() {
        let text = r#"var("WARPSMITH_RANK") "WARPSMITH_RANK is missing" "WARPSMITH_" "#;
        assert_eq!(names(text, '"'), BTreeSet::from(["WARPSMITH_RANK".to_owned()]));
    }
}
