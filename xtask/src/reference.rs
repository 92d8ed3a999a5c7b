//! Checks that the reference pages list exactly the names that the code defines.
//!
//! | page | compared with |
//! | --- | --- |
//! | `docs/environment.md` | variables that the published crates read |
//! | `docs/features.md` | cargo features in the manifests |
//! | `docs/macros.md` | exported macros, and the options that the attributes parse |
//! | `docs/errors.md` | variants of the error enums in [`ERRORS`] |
//! | `docs/limits.md` | values of the constants that it links to |
//!
//! A page names an item by code in the first cell of a table row.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use crate::environment;
use crate::error::{Error, Result};
use crate::markdown::{Page, code};
use crate::process::{metadata, tracked_files};

/// Packages that users enable only through another package that has the same feature.
const INTERNAL_PACKAGES: [&str; 3] = ["warpsmith-emulated", "warpsmith-gpu-kernels", "warpsmith-trace"];
/// Feature of the fuzz targets.
const INTERNAL_FEATURE: &str = "fuzzing";
/// For each attribute, the source files that parse its options.
const OPTIONS: [(&str, &[&str]); 4] = [
    ("kernel", &["kernel/options.rs"]),
    ("elementwise", &["family/mod.rs", "family/elementwise.rs"]),
    ("reduction", &["family/mod.rs", "family/reduction.rs"]),
    ("scan", &["family/mod.rs", "family/scan.rs"]),
];
/// Files that define the error enums of the public API.
const ERRORS: [&str; 15] = [
    "runtime/src/error/mod.rs",
    "runtime/src/error/launch.rs",
    "runtime/src/error/graph.rs",
    "runtime/src/error/load.rs",
    "runtime/src/error/stack.rs",
    "runtime/driver/src/error/mod.rs",
    "src/op_error.rs",
    "tensor/src/error.rs",
    "libraries/src/error.rs",
    "collective/src/error.rs",
    "interop/src/dlpack/error.rs",
    "collective/src/rendezvous_error.rs",
    "collective/src/failure.rs",
    "collective/src/nccl/library.rs",
    "profiler/src/error.rs",
];

/// Function that derives an item's name from a heading and the code in a first cell below it. Returns `None` for other
/// tables.
type Naming = fn(&str, &str) -> Option<String>;

/// Compares every page with the code.
pub fn check(root: &Path) -> Result<()> {
    let page = |name: &str| read(root, &format!("docs/{name}.md"));
    let mut problems = Vec::new();
    let mut compare = |name: &str, in_code: &BTreeSet<String>, of: Naming| -> Result<()> {
        problems.extend(differences(name, in_code, &described(&page(name)?, of)));
        Ok(())
    };
    compare("environment", &environment::variables(root)?, |_, name| Some(name.to_owned()))?;
    compare("features", &features(&metadata(root, &["--no-deps"])?), |heading, name| {
        Some(format!("{} {name}", code(heading).next()?))
    })?;
    compare("macros", &macros(root)?, |heading, name| match heading.strip_prefix("Options of ") {
        Some(attribute) => Some(format!("{} {}", word(code(attribute).next()?), word(name))),
        None => (heading == "All macros").then(|| word(name).to_owned()),
    })?;
    let mut errors = BTreeSet::new();
    for file in ERRORS {
        errors.extend(variants(&read(root, file)?));
    }
    compare("errors", &errors, |heading, name| Some(format!("{}::{name}", code(heading).next()?)))?;
    let limits = page("limits")?;
    for (name, value, file) in constants(&limits) {
        if !has_constant(&read(root, &format!("docs/{file}"))?, name, value) {
            problems.push(format!("docs/limits.md: {file} has no constant `{name} = {value}`"));
        }
    }
    match problems.len() {
        0 => Ok(()),
        count => {
            Err(Error::Unexpected(format!("{}\n{count} differences from the code", problems.join("\n"))))
        }
    }
}

/// Returns the names that the tables of a page describe.
fn described(page: &str, name: Naming) -> BTreeSet<String> {
    let cells = Page::new(page).first_cells();
    let named = cells.flat_map(|(heading, cell)| code(cell).map(move |code| (heading, code)));
    named.filter_map(|(heading, code)| name(heading, code)).collect()
}

fn differences(page: &str, in_code: &BTreeSet<String>, described: &BTreeSet<String>) -> Vec<String> {
    let missing = in_code.difference(described).map(|name| format!("docs/{page}.md: `{name}` has no row"));
    let stale =
        described.difference(in_code).map(|name| format!("docs/{page}.md: `{name}` is not in the code"));
    missing.chain(stale).collect()
}

/// Returns the features of the published packages, as `package feature`; default features as written in the manifest.
fn features(metadata: &Value) -> BTreeSet<String> {
    let mut features = BTreeSet::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let name = package["name"].as_str().unwrap_or_default();
        if !package["publish"].is_null() || INTERNAL_PACKAGES.contains(&name) {
            continue;
        }
        for (feature, brings) in package["features"].as_object().into_iter().flatten() {
            match feature.as_str() {
                INTERNAL_FEATURE => {}
                "default" => {
                    _ = features.insert(format!("{name} default = {}", brings.to_string().replace(',', ", ")))
                }
                _ => _ = features.insert(format!("{name} {feature}")),
            }
        }
    }
    features
}

/// Returns the exported macros, and the attributes' options in the form `attribute option`.
fn macros(root: &Path) -> Result<BTreeSet<String>> {
    let mut macros = BTreeSet::new();
    let attributes = read(root, "gpu-macros/src/lib.rs")?;
    for declared in attributes.split("#[proc_macro").skip(1) {
        let derive = declared.strip_prefix("_derive(").map(word);
        let function = declared.split_once("pub fn ").map(|(_, function)| word(function));
        macros.extend(derive.or(function).map(str::to_owned));
    }
    for file in tracked_files(root, &["src/*.rs", "gpu-std/src/*.rs", "runtime/src/*.rs"])? {
        let text = read(root, &file)?;
        let exported =
            text.split("#[macro_export]\n").skip(1).filter_map(|rest| rest.split_once("macro_rules! "));
        let names = exported.map(|(_, name)| word(name)).filter(|name| !name.starts_with("__"));
        macros.extend(names.map(str::to_owned));
    }
    for (attribute, files) in OPTIONS {
        for file in files {
            let text = read(root, &format!("gpu-macros/src/{file}"))?;
            macros.extend(options(&text).into_iter().map(|option| format!("{attribute} {option}")));
        }
    }
    Ok(macros)
}

/// Returns the option names for which a parser compares: patterns, operands of `name !=`, and the `SHARED` list.
fn options(text: &str) -> Vec<&str> {
    let mut options = Vec::new();
    for line in text.lines().map(str::trim) {
        let is_pattern = line.starts_with('"') && line.contains("\" =>");
        if is_pattern {
            options.push(word(line));
        } else if line.starts_with("const SHARED:") {
            options.extend(line.split('"').skip(1).step_by(2));
        } else {
            options.extend(line.split("name != \"").skip(1).map(word));
        }
    }
    options
}

/// Returns, as `Enum::Variant`, the variants of `Failure` and of each enum whose name ends in `Error`.
fn variants(text: &str) -> Vec<String> {
    let mut of = None;
    let mut variants = Vec::new();
    for line in text.lines() {
        if let Some(declared) = line.strip_prefix("pub enum ") {
            of = Some(word(declared)).filter(|name| name.ends_with("Error") || *name == "Failure");
        } else if line.starts_with('}') {
            of = None;
        } else if let (Some(of), Some(inside)) = (of, line.strip_prefix("    "))
            && inside.starts_with(|c: char| c.is_ascii_uppercase())
        {
            variants.push(format!("{of}::{}", word(inside)));
        }
    }
    variants
}

/// Returns the links of the form ``[`NAME = value`](file)``: name, value and file.
fn constants(page: &str) -> Vec<(&str, &str, &str)> {
    page.split("[`")
        .filter_map(|link| {
            let (constant, rest) = link.split_once("`](")?;
            let (name, value) = constant.split_once(" = ")?;
            Some((name, value, rest.split_once(')')?.0))
        })
        .collect()
}

fn has_constant(text: &str, name: &str, value: &str) -> bool {
    let (declared, value) = (format!("const {name}: "), format!("= {value};"));
    text.lines().any(|line| line.contains(&declared) && line.ends_with(&value))
}

/// Returns the first identifier of a text.
fn word(text: &str) -> &str {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let text = text.trim_start_matches(|c| !is_part(c));
    text.split(|c| !is_part(c)).next().unwrap_or_default()
}

fn read(root: &Path, file: &str) -> Result<String> {
    let path = root.join(file);
    std::fs::read_to_string(&path).map_err(Error::file(&path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_name_things_by_their_first_cells() {
        let page = "# `A`\n| kind | cause |\n| --- | --- |\n| `B`, `C(x) \\|y\\|` | `D` |\n## E\n| `F` | |\n";
        let names = described(page, |heading, name| Some(format!("{heading}: {}", word(name))));
        assert_eq!(Vec::from_iter(names), ["E: F", "`A`: B", "`A`: C"]);
    }

    #[test]
    fn differences_are_of_both_kinds() {
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let found = differences("a", &set(&["x", "y"]), &set(&["y", "z"]));
        assert_eq!(found, ["docs/a.md: `x` has no row", "docs/a.md: `z` is not in the code"]);
    }

    #[test]
    fn features_are_those_of_published_packages() {
        let package = |name: &str, publish: Value| {
            let features = serde_json::json!({ "default": ["a", "b"], "a": [], "fuzzing": [] });
            serde_json::json!({ "name": name, "publish": publish, "features": features })
        };
        let packages = [
            package("p", Value::Null),
            package("q", serde_json::json!([])),
            package("warpsmith-trace", Value::Null),
        ];
        let found = features(&serde_json::json!({ "packages": packages }));
        assert_eq!(Vec::from_iter(found), ["p a", r#"p default = ["a", "b"]"#]);
    }

    #[test]
    fn options_and_variants_are_read_from_sources() {
        let text = "const SHARED: [&str; 2] = [\"a\", \"b\"];\n  \"c\" => x,\n if name != \"d\" && name != \"e\" {\n \"f\"";
        assert_eq!(options(text), ["a", "b", "c", "d", "e"]);
        let text = "pub enum Limit {\n    A,\n}\npub enum AnError {\n    /// Doc.\n    B {\n        C: D,\n    },\n    E(F),\n}\n    G\n";
        assert_eq!(variants(text), ["AnError::B", "AnError::E"]);
    }

    #[test]
    fn values_of_constants_are_compared() {
        assert_eq!(constants("[a](b) [`C = 1 << 2`](../d.rs), [`E`](f)"), [("C", "1 << 2", "../d.rs")]);
        assert!(has_constant("    pub const C: u8 = 1 << 2;\n", "C", "1 << 2"));
        assert!(!has_constant("const C: u8 = 12;\nconst CC: u8 = 2;\n", "C", "2"));
    }

    #[test]
    fn the_reference_is_correct() {
        check(&crate::root()).unwrap();
    }
}
