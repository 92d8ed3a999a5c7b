//! Tests that need a process of their own: for its environment, or because nothing was opened in it yet.

use std::process::Command;

/// Runs the named test of this program in a process of its own, with these variables set. True in that process: the
/// test does its work there. False in this one, when that is done.
#[track_caller]
pub fn alone(test: &str, environment: &[(&str, &str)]) -> bool {
    const ALONE: &str = "WARPSMITH_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let mut program = Command::new(std::env::current_exe().unwrap());
    program.args(["--exact", test]).env(ALONE, "1").envs(environment.iter().copied());
    let output = program.output().unwrap();
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert!(output.status.success() && text[0].contains("1 passed"), "{}{}", text[0], text[1]);
    false
}
