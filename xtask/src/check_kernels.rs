//! `cargo xtask check-kernels`: our own kernels under `warpsmith check`, and the corpus of planted faults.

use std::path::Path;

use warpsmith_check::{Options, run};

use crate::error::{Error, Result};

/// Tests whose kernels are clean: nothing may be found in them.
const CLEAN: [&[&str]; 2] = [
    &["test", "--package", "gpu-std", "--test", "emulated"],
    &["test", "--package", "warpsmith", "--test", "device", "--", "ops::", "launch::"],
];
/// Kernels with one fault each; the tests compare what is found with it.
const PLANTED: &[&str] = &["test", "--package", "gpu-std", "--test", "planted"];

/// Runs both.
pub fn check_kernels(root: &Path) -> Result<()> {
    for arguments in [PLANTED].iter().chain(&CLEAN) {
        println!("    $ warpsmith check {}", arguments.join(" "));
        let options = Options {
            cargo: arguments.iter().map(|&argument| argument.to_owned()).collect(),
            folder: Some(root.to_owned()),
            expects_findings: *arguments == PLANTED,
            ..Options::default()
        };
        let outcome = run(&options).map_err(|error| Error::Unexpected(error.to_string()))?;
        for finding in &outcome.findings {
            println!("kernel `{}`: {}\n", finding.kernel, finding.text);
        }
        if !outcome.findings.is_empty() {
            return Err(Error::Unexpected(format!(
                "{} findings in kernels that should have none",
                outcome.findings.len()
            )));
        }
        if let Some(status) = outcome.failure {
            return Err(Error::Unexpected(format!("cargo {}: {status}", arguments.join(" "))));
        }
    }
    Ok(())
}
