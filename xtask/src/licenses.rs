//! Checks that the licenses of all dependencies are among those that `deny.toml` allows. `cargo deny check` reads the
//! same file and also checks advisories and sources, but this check does not require it.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::error::{Error, Result};
use crate::process::metadata;

/// Returns an error that lists the packages whose license is not allowed.
pub fn check(root: &Path) -> Result<()> {
    let file = root.join("deny.toml");
    let allowed = allowed(&fs::read_to_string(&file).map_err(Error::file(&file))?);
    let metadata = metadata(root, &["--all-features"])?;
    let packages = metadata["packages"].as_array().cloned().unwrap_or_default();
    let mut refused: Vec<String> = Vec::new();
    for package in packages.iter().filter(|package| !package["source"].is_null()) {
        let license = package["license"].as_str().unwrap_or("none is named");
        if !permits(license, &allowed) {
            let name = package["name"].as_str().unwrap_or_default();
            refused.push(format!("{name}: {license}"));
        }
    }
    if refused.is_empty() {
        println!("    {} packages, all under allowed licenses", packages.len());
        return Ok(());
    }
    let list = refused.join("\n");
    Err(Error::Unexpected(format!(
        "deny.toml does not allow these licenses:\n{list}\nAdd them to deny.toml, or use other crates"
    )))
}

/// Returns the strings in the `allow` list of the `[licenses]` table.
fn allowed(deny: &str) -> BTreeSet<String> {
    let table = deny.split("[licenses]").nth(1).unwrap_or_default();
    let list = table.split_once("allow = [").and_then(|(_, rest)| rest.split_once(']'));
    list.map_or("", |(list, _)| list).split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Returns true if the allowed licenses satisfy an SPDX expression. `/` is an old form of `OR`.
fn permits(expression: &str, allowed: &BTreeSet<String>) -> bool {
    let spaced =
        expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ").replace(" WITH ", "+WITH+");
    let mut words = spaced.split_whitespace().peekable();
    any(&mut words, allowed) && words.next().is_none()
}

type Words<'a> = std::iter::Peekable<std::str::SplitWhitespace<'a>>;

fn any(words: &mut Words<'_>, allowed: &BTreeSet<String>) -> bool {
    let mut met = all(words, allowed);
    while words.next_if_eq(&"OR").is_some() {
        met |= all(words, allowed);
    }
    met
}

fn all(words: &mut Words<'_>, allowed: &BTreeSet<String>) -> bool {
    let mut met = one(words, allowed);
    while words.next_if_eq(&"AND").is_some() {
        met &= one(words, allowed);
    }
    met
}

fn one(words: &mut Words<'_>, allowed: &BTreeSet<String>) -> bool {
    match words.next() {
        Some("(") => {
            let met = any(words, allowed);
            words.next_if_eq(&")").is_some() && met
        }
        Some(license) => allowed.contains(&license.replace("+WITH+", " WITH ")),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_met_by_allowed_licenses_only() {
        let allowed = allowed("[licenses]\n# why\nallow = [\n  \"MIT\",\n  \"Unicode-3.0\",\n]\n");
        assert_eq!(allowed.len(), 2);
        for license in ["MIT", "GPL-3.0 OR MIT", "Unlicense/MIT", "(MIT OR Apache-2.0) AND Unicode-3.0"] {
            assert!(permits(license, &allowed), "{license}");
        }
        for license in
            ["GPL-3.0", "MIT AND GPL-3.0", "(GPL-3.0 OR AGPL-3.0) AND MIT", "MIT WITH x", "", "(MIT"]
        {
            assert!(!permits(license, &allowed), "{license}");
        }
    }
}
