//! NVIDIA's ptxas, libdevice and libcudadevrt: wheels from PyPI, unpacked by pip into a folder of the user's data.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::SetupError;
use super::process::{ask, find, install_debian_packages, is_root_on_debian};
use crate::toolchain::{CudaTools, cuda_tools_in};

/// The wheels with their hashes.
const WHEELS: &str = include_str!("cuda-tools.txt");
/// How the names of temporary folders begin.
const TEMPORARY: &str = ".cuda-tools-";

/// Downloads the wheels into `cuda-tools` in `data`. On an error nothing of them is left there.
pub fn install(say: &mut dyn FnMut(&str), data: &Path) -> Result<(), SetupError> {
    let _lock = super::lock(data)?;
    let python = python(say)?;
    say("ptxas, libdevice, libcudadevrt: downloading NVIDIA's wheels from PyPI");
    let temporary = Temporary::new(data)?;
    let packages = temporary.0.join("lib/python3/site-packages");
    let requirements = temporary.0.join("wheels.txt");
    fs::create_dir_all(&packages)
        .and_then(|()| fs::write(&requirements, WHEELS))
        .map_err(SetupError::folder(data))?;
    let python = match python {
        Python::WithPip(python) => python,
        Python::Bare(python) => {
            let environment = temporary.0.join("venv");
            let made =
                Command::new(&python).args(["-m", "venv"]).arg(&environment).stdin(Stdio::null()).output();
            if !made.is_ok_and(|output| output.status.success()) {
                let reason = format!("{} has neither pip nor venv", python.display());
                return Err(SetupError::NoPip { reason });
            }
            environment.join("bin/python")
        }
    };
    let output = pip(&python, &requirements, &packages).output();
    let output = output.map_err(|error| SetupError::Pip { message: error.to_string() })?;
    if !output.status.success() {
        let words =
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        return Err(failure(&words));
    }
    let _ = fs::remove_dir_all(temporary.0.join("venv"));
    let tools = cuda_tools_in(&temporary.0);
    if !tools.are_complete() {
        return Err(SetupError::Incomplete { looked: missing(&tools) });
    }
    temporary.become_folder(&data.join("cuda-tools")).map_err(SetupError::folder(data))
}

/// A Python that can fetch wheels.
enum Python {
    WithPip(PathBuf),
    /// Without pip; it makes an environment that has it.
    Bare(PathBuf),
}

/// Finds one. As root on Debian, installs what Debian leaves out of its Python.
fn python(say: &mut dyn FnMut(&str)) -> Result<Python, SetupError> {
    if let Some(found) = find_python() {
        return Ok(found);
    }
    if is_root_on_debian() {
        say("ptxas, libdevice, libcudadevrt: installing Debian's python3-venv, which downloads them");
        // What it says is on standard error; the search decides.
        let _ = install_debian_packages(&["python3-venv"], true);
    }
    find_python().ok_or_else(|| SetupError::NoPip {
        reason: match find("python3") {
            Some(python) => format!("{} has neither pip nor venv", python.display()),
            None => "there is no python3".to_owned(),
        },
    })
}

fn find_python() -> Option<Python> {
    let python = find("python3")?;
    let has = |module: &str| ask(Command::new(&python).args(["-m", module, "--help"])).is_some();
    if has("pip") {
        return Some(Python::WithPip(python));
    }
    // Debian has `venv` without what it installs.
    (has("venv") && has("ensurepip")).then_some(Python::Bare(python))
}

/// `python -m pip install` of the wheels into `target`, without questions. Only wheels with the known hashes are installed,
/// whatever the package index offers; nothing is built from source; neither the environment nor the user's configuration of
/// pip can change that. The index and the certificates may be the user's own.
fn pip(python: &Path, requirements: &Path, target: &Path) -> Command {
    let mut command = Command::new(python);
    command.args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-input",
        "--disable-pip-version-check",
        "--isolated",
    ]);
    command.args(["--no-deps", "--only-binary=:all:", "--require-hashes", "--no-compile", "--requirement"]);
    command.arg(requirements).arg("--target").arg(target);
    for (variable, option) in [("PIP_INDEX_URL", "--index-url"), ("PIP_CERT", "--cert")] {
        if let Some(value) = std::env::var_os(variable).filter(|value| !value.is_empty()) {
            command.arg(option).arg(value);
        }
    }
    command.stdin(Stdio::null());
    command
}

/// What pip's words mean.
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

/// What a line of pip says, without what it says besides: the system's error, or else the first sentence.
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

/// A folder that is deleted unless it becomes another.
struct Temporary(PathBuf);

impl Temporary {
    /// A new one in `folder`, which is locked: those left by a run that was killed are deleted.
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

    /// Renames it, in the place of what is incomplete.
    fn become_folder(self, folder: &Path) -> std::io::Result<()> {
        if folder.exists() {
            fs::remove_dir_all(folder)?;
        }
        fs::rename(&self.0, folder)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // What cannot be deleted now is deleted by the next run.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::toolchain::CUDA_INSTALL_COMMANDS;

    /// The wheels, each with its hashes.
    fn wheels() -> Vec<(String, Vec<String>)> {
        let text = WHEELS.replace("\\\n", " ");
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let wheel = |line: &str| {
            let mut words = line.split_whitespace().map(str::to_owned);
            (words.next().unwrap(), words.collect())
        };
        lines.map(wheel).collect()
    }

    #[test]
    fn the_advice_names_the_wheels_that_setup_installs() {
        let names: Vec<String> = wheels().into_iter().map(|(name, _)| name).collect();
        assert!(CUDA_INSTALL_COMMANDS.contains(&names.join(" ")), "{names:?}");
    }

    #[test]
    fn every_wheel_has_a_version_and_a_hash_for_each_architecture() {
        for (name, hashes) in wheels() {
            assert!(name.contains("==") && hashes.len() == 2, "{name}: {hashes:?}");
            for hash in hashes {
                let digits = hash.strip_prefix("--hash=sha256:").unwrap_or_default();
                assert!(
                    digits.len() == 64 && digits.bytes().all(|digit| digit.is_ascii_hexdigit()),
                    "{hash}"
                );
            }
        }
    }

    #[test]
    fn pip_installs_nothing_but_wheels_of_known_hashes() {
        let command = pip(Path::new("python3"), Path::new("wheels.txt"), Path::new("target"));
        let given: Vec<&str> = command.get_args().filter_map(|argument| argument.to_str()).collect();
        for option in ["--require-hashes", "--only-binary=:all:", "--isolated", "--no-deps"] {
            assert!(given.contains(&option), "{option}: {given:?}");
        }
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
