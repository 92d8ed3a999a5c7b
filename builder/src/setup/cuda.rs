//! Installs NVIDIA's ptxas, libdevice and libcudadevrt from PyPI wheels, which pip downloads, into the user's data
//! folder.
//!
//! Only files with the hashes in [`WHEELS`] are unpacked, regardless of what Python, pip or the package index does.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::SetupError;
use super::process::{ask, command, find, install_debian_packages, is_root_on_debian};
use super::wheel;
use crate::toolchain::{CudaTools, cuda_tools_in};

/// Wheels, with their hashes.
pub const WHEELS: &str = include_str!("cuda-tools.txt");
const PYTHON: &str = if cfg!(windows) { "python" } else { "python3" };
/// Name prefix for temporary folders.
const TEMPORARY: &str = ".cuda-tools-";

/// Downloads `wheels` and installs their files as `cuda-tools` in `data`. A failed installation leaves no files behind.
pub fn install(say: &mut dyn FnMut(&str), data: &Path, wheels: &str) -> Result<(), SetupError> {
    let _lock = super::lock(data)?;
    let temporary = Temporary::new(data)?;
    // Programs run in this empty folder, so that Python cannot import a file of the current folder as a module.
    let empty = temporary.0.join("empty");
    fs::create_dir(&empty).map_err(SetupError::folder(data))?;
    let python = python(say, &empty)?;
    say("ptxas, libdevice, libcudadevrt: downloading NVIDIA's wheels from PyPI");
    let (downloads, requirements) = (temporary.0.join("downloads"), temporary.0.join("wheels.txt"));
    fs::write(&requirements, wheels).map_err(SetupError::folder(data))?;
    let python = match python {
        Python::WithPip(python) => python,
        Python::Bare(python) => {
            let environment = temporary.0.join("venv");
            let made = isolated(&python, &empty).args(["-m", "venv"]).arg(&environment).output();
            if !made.is_ok_and(|output| output.status.success()) {
                let reason = format!("{} has neither pip nor venv", python.display());
                return Err(SetupError::NoPip { reason });
            }
            environment.join(if cfg!(windows) { "Scripts/python.exe" } else { "bin/python" })
        }
    };
    let output = pip(&python, &empty, &requirements, &downloads).output();
    let output = output.map_err(|error| SetupError::Pip { message: error.to_string() })?;
    if !output.status.success() {
        let words =
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        return Err(failure(&words));
    }
    let tools = Temporary(temporary.0.join("tools"));
    unpack(wheels, &downloads, &tools.0.join("lib/python3/site-packages"))?;
    let found = cuda_tools_in(&tools.0);
    if !found.are_complete() {
        return Err(SetupError::Incomplete { looked: missing(&found) });
    }
    tools.become_folder(&data.join("cuda-tools")).map_err(SetupError::folder(data))
}

/// Unpacks the downloads into `packages`: for each of `wheels`, one file that has one of the listed hashes.
fn unpack(wheels: &str, downloads: &Path, packages: &Path) -> Result<(), SetupError> {
    let mut missing = requirements(wheels);
    let entries = fs::read_dir(downloads).map_err(SetupError::folder(downloads))?;
    for path in entries.filter_map(Result::ok).map(|entry| entry.path()) {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let broken = |what: &str| SetupError::BrokenDownload { message: format!("{name}: {what}") };
        let bytes = fs::read(&path).map_err(SetupError::folder(&path))?;
        let hash = wheel::sha256(&bytes);
        let Some(known) = missing.iter().position(|(_, hashes)| hashes.contains(&hash)) else {
            return Err(broken(&format!("its SHA-256 is {hash}")));
        };
        missing.remove(known);
        wheel::unpack(&bytes, packages).map_err(|error| match error.kind() {
            ErrorKind::InvalidData => broken(&error.to_string()),
            _ => SetupError::folder(packages)(error),
        })?;
    }
    match missing.first() {
        Some((name, _)) => Err(SetupError::BrokenDownload { message: format!("{name} was not downloaded") }),
        None => Ok(()),
    }
}

/// Returns the wheels of a requirements list, each with its hashes.
fn requirements(wheels: &str) -> Vec<(String, Vec<String>)> {
    let text = wheels.replace("\\\n", " ");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let wheel = |line: &str| {
        let mut words = line.split_whitespace();
        let name = words.next()?.to_owned();
        Some((
            name,
            words.filter_map(|word| word.strip_prefix("--hash=sha256:")).map(str::to_owned).collect(),
        ))
    };
    lines.filter_map(wheel).collect()
}

/// A Python interpreter that can fetch wheels.
enum Python {
    WithPip(PathBuf),
    /// A Python interpreter without pip. Setup first creates an environment that contains pip.
    Bare(PathBuf),
}

/// Finds a Python interpreter. As root on Debian, installs the parts of Python that Debian packages separately.
fn python(say: &mut dyn FnMut(&str), empty: &Path) -> Result<Python, SetupError> {
    if let Some(found) = find_python(empty) {
        return Ok(found);
    }
    if is_root_on_debian() {
        say("ptxas, libdevice, libcudadevrt: installing Debian's python3-venv, which downloads them");
        // The installer's messages go to standard error. The search that follows determines whether the installation
        // succeeded.
        let _ = install_debian_packages(&["python3-venv"], true);
    }
    find_python(empty).ok_or_else(|| SetupError::NoPip {
        reason: match find(PYTHON) {
            Some(python) => format!("{} has neither pip nor venv", python.display()),
            None => format!("there is no {PYTHON}"),
        },
    })
}

fn find_python(empty: &Path) -> Option<Python> {
    let python = find(PYTHON)?;
    let has = |module: &str| ask(isolated(&python, empty).args(["-m", module, "--help"])).is_some();
    if has("pip") {
        return Some(Python::WithPip(python));
    }
    // Debian ships `venv` without its dependency `ensurepip`.
    (has("venv") && has("ensurepip")).then_some(Python::Bare(python))
}

/// Returns a Python command that runs in an empty folder, since `-m` looks for modules in the current folder first. The
/// variables that name modules or change pip are removed.
fn isolated(python: &Path, empty: &Path) -> Command {
    let mut command = command(python, empty);
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("PYTHON") || name.starts_with("PIP_")) {
            command.env_remove(name);
        }
    }
    command.env("PYTHONSAFEPATH", "1");
    command
}

/// Returns a `python -m pip download` command that downloads the wheels into `target` without prompts. Nothing is built
/// from source. Neither the environment nor the user's pip configuration changes which files are downloaded; the index
/// and the certificates may be the user's own.
fn pip(python: &Path, empty: &Path, requirements: &Path, target: &Path) -> Command {
    let mut command = isolated(python, empty);
    command.args([
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-input",
        "--disable-pip-version-check",
        "--isolated",
    ]);
    command.args(["--no-deps", "--only-binary=:all:", "--require-hashes", "--requirement"]);
    command.arg(requirements).arg("--dest").arg(target);
    let set = |variable: &str| std::env::var_os(variable).filter(|value| !value.is_empty());
    if let Some(index) = set("PIP_INDEX_URL") {
        command.arg("--index-url").arg(index);
    }
    // A relative path refers to the folder in which setup was started.
    if let Some(certificates) = set("PIP_CERT").and_then(|path| std::path::absolute(path).ok()) {
        command.arg("--cert").arg(certificates);
    }
    command
}

fn failure(words: &str) -> SetupError {
    let has = |signs: &[&str]| words.lines().find(|line| signs.iter().any(|sign| line.contains(sign)));
    let broken =
        ["DO NOT MATCH THE HASHES", "IncompleteRead", "incomplete-download", "BadZipFile", "is invalid."];
    if let Some(line) = has(&broken) {
        return SetupError::BrokenDownload { message: short(line) };
    }
    let network = [
        "Could not fetch URL",
        "Connection",
        "connection broken",
        "Name or service not known",
        "Temporary failure in name resolution",
        "timed out",
        "ProxyError",
        "SSLError",
        "No matching distribution found",
        "HTTPError",
        "HTTP error",
    ];
    if let Some(line) = has(&network) {
        return SetupError::Network { message: short(line) };
    }
    let lines: Vec<&str> = words.lines().collect();
    SetupError::Pip { message: lines[lines.len().saturating_sub(10)..].join("\n") }
}

/// Shortens a line of pip's output to the operating system's error, or otherwise to the first sentence.
fn short(line: &str) -> String {
    let line = line.trim().trim_start_matches("ERROR: ").trim_start_matches("WARNING: ");
    let text = match line.find("[Errno ") {
        Some(at) => line[at..].split(['\'', '"', ')']).next().unwrap_or_default(),
        None => line.split(". ").next().unwrap_or_default(),
    };
    text.chars().take(160).collect()
}

fn missing(tools: &CudaTools) -> String {
    tools.rejected.iter().map(|r| r.reason.as_str()).collect::<Vec<_>>().join("; ")
}

/// A folder that is deleted unless it is renamed to its final path.
struct Temporary(PathBuf);

impl Temporary {
    /// Creates a temporary folder in `folder`, and deletes those left by killed runs. The caller must have locked
    /// `folder`.
    fn new(folder: &Path) -> Result<Temporary, SetupError> {
        for entry in fs::read_dir(folder).map_err(SetupError::folder(folder))?.filter_map(Result::ok) {
            if entry.file_name().to_string_lossy().starts_with(TEMPORARY) {
                fs::remove_dir_all(entry.path()).map_err(SetupError::folder(entry.path()))?;
            }
        }
        let path = folder.join(format!("{TEMPORARY}{}", std::process::id()));
        fs::create_dir(&path).map_err(SetupError::folder(folder))?;
        Ok(Temporary(path))
    }

    /// Renames the folder to its final path, replacing an incomplete folder.
    fn become_folder(self, folder: &Path) -> std::io::Result<()> {
        if folder.exists() {
            fs::remove_dir_all(folder)?;
        }
        fs::rename(&self.0, folder)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // If a folder cannot be deleted now, the next run deletes it.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::toolchain::CUDA_INSTALL_COMMANDS;

    #[test]
    fn the_advice_names_the_wheels_that_setup_installs() {
        let names: Vec<String> = requirements(WHEELS).into_iter().map(|(name, _)| name).collect();
        assert!(CUDA_INSTALL_COMMANDS.contains(&names.join(" ")), "{names:?}");
    }

    #[test]
    fn every_wheel_has_a_version_and_a_hash_for_each_platform() {
        for (name, hashes) in requirements(WHEELS) {
            assert!(name.contains("==") && hashes.len() == 3, "{name}: {hashes:?}");
            for hash in hashes {
                let is_digit = |digit: u8| digit.is_ascii_digit() || (b'a'..=b'f').contains(&digit);
                assert!(hash.len() == 64 && hash.bytes().all(is_digit), "{hash}");
            }
        }
    }

    #[test]
    fn pip_downloads_nothing_but_wheels_of_known_hashes() {
        let [python, folder] = ["/usr/bin/python3", "/empty"].map(Path::new);
        let command = pip(python, folder, Path::new("/wheels.txt"), Path::new("/target"));
        let given: Vec<&str> = command.get_args().filter_map(|argument| argument.to_str()).collect();
        for option in ["--require-hashes", "--only-binary=:all:", "--isolated", "--no-deps"] {
            assert!(given.contains(&option), "{option}: {given:?}");
        }
        assert_eq!(command.get_current_dir(), Some(folder));
    }

    #[test]
    fn pips_words_become_causes() {
        let broken =
            "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE. If you have updated…";
        assert!(matches!(failure(broken), SetupError::BrokenDownload { .. }));
        let cut = "ERROR: Wheel 'nvidia-nvvm' located at /tmp/x.whl is invalid.";
        assert!(matches!(failure(cut), SetupError::BrokenDownload { .. }));
        let offline = "WARNING: Retrying after connection broken by 'NewConnectionError('<x>: Failed to establish: [Errno -3] \
                       Temporary failure in name resolution')'\nERROR: No matching distribution found for nvidia-nvvm";
        let error = failure(offline);
        assert!(
            matches!(&error, SetupError::Network { message } if message.ends_with("in name resolution")),
            "{error}"
        );
        let other = failure(
            "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device",
        );
        assert!(other.to_string().contains("No space left"), "{other}");
    }
}
