//! `cargo xtask fuzz [SECONDS]`: runs every fuzz target in turn, each for the given time.
//!
//! Interesting inputs are stored in `target/fuzz-corpus/`, separate from the seeds in `fuzz/corpus/`. Ordinary tests
//! replay the seeds.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::check::target_dir;
use crate::error::{Error, Result};
use crate::process::{ask, cargo, metadata, run, step};

/// Default seconds per target.
const SECONDS: u64 = 60;
/// Maximum memory that an input may make a target use, in MiB.
const MEMORY_MIB: u32 = 2048;
/// Maximum length of an input, in bytes.
const LONGEST: u32 = 4096;

/// Runs all targets, and stops at the first finding.
pub fn fuzz(root: &Path, seconds: Option<&str>) -> Result<()> {
    let seconds = match seconds.map(str::parse) {
        None => SECONDS,
        Some(Ok(seconds)) => seconds,
        Some(Err(_)) => return Err(Error::Unexpected("give a whole number of seconds".to_owned())),
    };
    if ask(&mut cargo(root, ["fuzz", "--version"])).is_none() {
        return Err(Error::Missing {
            what: "cargo-fuzz was not found".to_owned(),
            advice: "Install it with `cargo install cargo-fuzz`, then run this command again.".to_owned(),
        });
    }
    let targets = targets(root)?;
    for target in &targets {
        let found = target_dir(root).join("fuzz-corpus").join(target);
        fs::create_dir_all(&found).map_err(Error::file(&found))?;
        step(target, || {
            let mut fuzz = cargo(root, ["fuzz", "run", "--sanitizer", "none", target]);
            // The libFuzzer interface requires unstable flags; this variable enables them in the stable compiler.
            fuzz.env("RUSTC_BOOTSTRAP", "1").arg(&found);
            let seeds = root.join("fuzz/corpus").join(target);
            if seeds.is_dir() {
                fuzz.arg(seeds);
            }
            fuzz.args(["--".to_owned(), format!("-max_total_time={seconds}"), format!("-max_len={LONGEST}")]);
            fuzz.args([format!("-rss_limit_mb={MEMORY_MIB}"), "-timeout=10".to_owned()]);
            run(&mut fuzz)
        })?;
    }
    println!("No finding in {} targets, {seconds} s each.", targets.len());
    Ok(())
}

/// Returns the names of the targets.
fn targets(root: &Path) -> Result<Vec<String>> {
    let metadata = metadata(root, &["--no-deps", "--manifest-path", "fuzz/Cargo.toml"])?;
    names(&metadata)
        .ok_or_else(|| Error::Unexpected("cargo metadata does not list the fuzz targets".to_owned()))
}

fn names(metadata: &Value) -> Option<Vec<String>> {
    let targets = metadata["packages"][0]["targets"].as_array()?;
    Some(targets.iter().filter_map(|target| target["name"].as_str()).map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_is_named() {
        let metadata = serde_json::json!({ "packages": [{ "targets": [{ "name": "allocator" }, { "name": "document" }] }] });
        assert_eq!(names(&metadata).unwrap(), ["allocator", "document"]);
        assert_eq!(names(&Value::Null), None);
    }
}
