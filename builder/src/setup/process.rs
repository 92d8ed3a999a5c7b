//! Runs installers.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::toolchain::{self, search_path};

/// Finds `program` on the search path, ignoring relative folders.
pub fn find(program: &str) -> Option<PathBuf> {
    let file = toolchain::program(program);
    search_path().into_iter().map(|folder| folder.join(&file)).find(|file| file.is_file())
}

/// Creates a command for `program`, to be run in `folder`, with a search path without relative folders.
pub fn command(program: &Path, folder: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(folder).stdin(Stdio::null());
    // Folders from splitting a path can always be joined again.
    command.env("PATH", std::env::join_paths(search_path()).unwrap_or_default());
    command
}

/// Creates a command for `program` on the search path, to be run in the root folder.
///
/// # Errors
/// Returns a message if the program does not exist.
pub fn system(program: &str) -> Result<Command, String> {
    let found = find(program).ok_or_else(|| format!("{program} was not found"))?;
    Ok(command(&found, Path::new("/")))
}

/// Returns the standard output of a short query, or `None` if the program is missing or fails.
pub fn ask(command: &mut Command) -> Option<String> {
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Runs an installer to completion. Its output goes to standard error; standard output is reserved for the command's
/// own output.
///
/// # Errors
/// Returns an error that states the command and its exit status.
pub fn run(command: &mut Command) -> Result<(), String> {
    let text = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| word.to_string_lossy().into_owned())
        .collect::<Vec<_>>()
        .join(" ");
    let status = command.stdin(Stdio::null()).stdout(std::io::stderr()).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("`{text}` failed ({status})")),
        Err(error) => Err(format!("`{text}` could not be started: {error}")),
    }
}

/// Returns true if apt can install packages here without a prompt.
pub fn is_root_on_debian() -> bool {
    let is_root = system("id").is_ok_and(|mut id| ask(id.arg("-u")).as_deref() == Some("0"));
    is_root && Path::new("/etc/debian_version").exists() && find("apt-get").is_some()
}

/// Installs Debian packages, after updating the package lists if `update` is set. Never removes packages.
///
/// # Errors
/// Returns the command that failed.
pub fn install_debian_packages(packages: &[&str], update: bool) -> Result<(), String> {
    if update {
        // An outdated package list may be sufficient.
        let _ = run(apt_get()?.arg("update"));
    }
    run(apt_get()?.args(["install", "--yes", "--no-install-recommends", "--no-remove"]).args(packages))
}

/// Creates an `apt-get` command without prompts.
fn apt_get() -> Result<Command, String> {
    let mut command = system("apt-get")?;
    command.env("DEBIAN_FRONTEND", "noninteractive").arg("--quiet=2");
    Ok(command)
}
