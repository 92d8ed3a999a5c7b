//! Runs other programs. Each command is printed before it starts, receives no standard input, and is named in errors.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use serde_json::Value;

use crate::error::{Error, Result};

/// Returns a command for the Cargo executable that runs this program, with `root` as its working directory.
pub fn cargo<S: AsRef<OsStr>>(root: &Path, arguments: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root).args(arguments);
    command
}

/// Runs `command` to completion, forwarding its output.
pub fn run(command: &mut Command) -> Result<()> {
    println!("    $ {}", text(command));
    let status = command.stdin(Stdio::null()).status().map_err(|source| not_started(command, source))?;
    if status.success() { Ok(()) } else { Err(Error::Failed { command: text(command), status }) }
}

/// Runs `command` to completion and passes each line of its standard output to `line`.
pub fn run_lines(command: &mut Command, mut line: impl FnMut(&str)) -> Result<()> {
    println!("    $ {}", text(command));
    let started = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let mut child = started.map_err(|source| not_started(command, source))?;
    if let Some(output) = child.stdout.take() {
        for read in BufReader::new(output).lines() {
            line(&read.map_err(|source| not_started(command, source))?);
        }
    }
    let status = child.wait().map_err(|source| not_started(command, source))?;
    if status.success() { Ok(()) } else { Err(Error::Failed { command: text(command), status }) }
}

/// Returns the standard output of a short query, or `None` if the program is missing or fails.
pub fn ask(command: &mut Command) -> Option<String> {
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Returns the paths of the repository's files that match these Git patterns.
pub fn tracked_files(root: &Path, patterns: &[&str]) -> Result<Vec<String>> {
    let listed = ask(Command::new("git").current_dir(root).arg("ls-files").args(patterns));
    let listed = listed.ok_or_else(|| Error::Missing {
        what: "the files of the repository cannot be listed by `git ls-files`".to_owned(),
        advice: "Install git, and run the check in a clone.".to_owned(),
    })?;
    Ok(listed.lines().map(str::to_owned).collect())
}

/// Returns `cargo metadata` of the workspace's packages; `options` can include more.
pub fn metadata(root: &Path, options: &[&str]) -> Result<Value> {
    let text = ask(cargo(root, ["metadata", "--format-version", "1"]).args(options));
    let metadata: Option<Value> = text.and_then(|text| serde_json::from_str(&text).ok());
    let has_packages = |metadata: &Value| metadata["packages"].as_array().is_some_and(|all| !all.is_empty());
    metadata
        .filter(has_packages)
        .ok_or_else(|| Error::Unexpected("cargo metadata has no packages".to_owned()))
}

/// Returns a program from the toolchain whose Cargo runs this program.
pub fn beside_cargo(program: &str) -> Option<PathBuf> {
    let beside = std::env::var_os("CARGO").map(|cargo| Path::new(&cargo).with_file_name(program));
    beside.filter(|program| program.is_file()).or_else(|| find(program))
}

/// Finds `program` on the search path.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// Runs a named step of a longer run and prints its duration.
pub fn step<T>(name: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    println!("==> {name}");
    let start = Instant::now();
    let result = work();
    let seconds = start.elapsed().as_secs_f64();
    match result {
        Ok(value) => {
            println!("    {name}: ok, {seconds:.1} s");
            Ok(value)
        }
        Err(source) => Err(Error::Step { step: name.to_owned(), seconds, source: Box::new(source) }),
    }
}

/// Formats `command` as a user would type it.
fn text(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let mut text = String::new();
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            text += &format!("{}={} ", name.to_string_lossy(), quoted(&value.to_string_lossy()));
        }
    }
    text += &match program.file_name() {
        Some(name) => name.to_string_lossy(),
        None => program.to_string_lossy(),
    };
    for argument in command.get_args() {
        text.push(' ');
        text += &quoted(&argument.to_string_lossy());
    }
    text
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=+./:,@%^".contains(c);
    if !word.is_empty() && word.chars().all(plain) { word.to_owned() } else { format!("'{word}'") }
}

fn not_started(command: &Command, source: std::io::Error) -> Error {
    Error::NotStarted { command: text(command), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_shown_as_one_would_type_it() {
        let mut command = Command::new("/usr/bin/printf");
        command.args(["%s", "two words", ""]).env("A", "b c");
        assert_eq!(text(&command), "A='b c' printf %s 'two words' ''");
    }

    #[test]
    fn failures_name_the_command_missing_programs_too() {
        let failed = run(Command::new("sh").args(["-c", "exit 3"])).unwrap_err();
        assert!(failed.to_string().contains("`sh -c 'exit 3'` failed (exit status: 3)"), "{failed}");
        let missing = run(&mut Command::new("no-such-program-here")).unwrap_err();
        assert!(missing.to_string().contains("could not be started"), "{missing}");
        assert_eq!(ask(&mut Command::new("no-such-program-here")), None);
    }

    #[test]
    fn a_failed_step_says_which_and_keeps_the_exit_code() {
        let missing = || Err::<(), _>(Error::Missing { what: "no tool".into(), advice: "get it".into() });
        let error = step("lint", missing).unwrap_err();
        assert!(error.to_string().starts_with("lint failed after"), "{error}");
        assert_eq!(error.exit_code(), 2);
    }

    #[test]
    fn lines_arrive_in_order() {
        let mut lines = Vec::new();
        run_lines(Command::new("sh").args(["-c", "echo one; echo two"]), |l| lines.push(l.to_owned()))
            .unwrap();
        assert_eq!(lines, ["one", "two"]);
    }
}
