//! Finds the compilers: a rustc that can target the GPU with its LLVM tools, and NVIDIA's ptxas,
//! libdevice and libcudadevrt.
//!
//! This module does not install or change anything. It accepts only tested versions, because the pipeline reads LLVM's
//! text form and core's internals, which change between versions. Every search reports each rejected candidate with the
//! reason.
//!
//! ```no_run
//! let search = warpsmith_builder::toolchain::find_device_toolchain();
//! match &search.found {
//!     Some(toolchain) => println!("rustc {} at {}", toolchain.rust_version, toolchain.rustc.display()),
//!     None => println!("{}", search.explain()),
//! }
//! ```

mod cuda;
mod device;
mod version;

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

pub(crate) use cuda::cuda_tools_in;
pub use cuda::{CudaTools, Ptxas, find_cuda_tools};
pub use device::{DeviceToolchain, LlvmTools, Origin, find_device_toolchain, host_compiler};
pub use version::Version;

/// Minor versions of Rust 1 that the pipeline is tested with.
pub const TESTED_RUST: &[u32] = &[96];
/// Rust version that setup installs and that messages mention.
pub const RUST_TO_INSTALL: &str = "1.96.0";
/// LLVM major version that the pipeline is tested with.
pub const TESTED_LLVM: u32 = 22;

/// Commands that install the device toolchain outside this repository, one per line.
pub const INSTALL_COMMANDS: &str = "\
on Debian or Ubuntu:  apt-get install rustc-web rust-web-src cargo-web llvm-22
with rustup:          rustup toolchain install 1.96.0 --profile minimal --component rust-src --component llvm-tools";

/// Commands that install ptxas, libdevice and libcudadevrt without a CUDA toolkit.
pub const CUDA_INSTALL_COMMANDS: &str = "\
python3 -m venv DIR && DIR/bin/pip install nvidia-cuda-nvcc==13.0.88 nvidia-nvvm==13.0.88 nvidia-cuda-runtime==13.0.96
and set WARPSMITH_CUDA_TOOLS=DIR (a CUDA toolkit in CUDA_HOME or /usr/local/cuda does as well)";

/// Result of a search, with the rejected candidates.
#[derive(Debug, Clone)]
pub struct Search<T> {
    /// First suitable candidate.
    pub found: Option<T>,
    /// Candidates that were tried before this result, in order.
    pub rejected: Vec<Rejected>,
}

/// A rejected candidate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejected {
    /// Name of the candidate, usually a path.
    pub candidate: String,
    /// Reason for the rejection.
    pub reason: String,
}

impl<T> Search<T> {
    /// Lists the rejected candidates, one per line, or states that no candidates were found.
    pub fn explain(&self) -> String {
        if self.rejected.is_empty() {
            return "no candidate was found".to_owned();
        }
        let lines: Vec<String> =
            self.rejected.iter().map(|r| format!("{}: {}", r.candidate, r.reason)).collect();
        lines.join("\n")
    }
}

/// Command that installs everything.
pub const SETUP_COMMAND: &str = "warpsmith setup";

/// A variable names a program or a folder of programs by a relative path, which depends on the folder in which a build
/// runs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{variable} is the relative path {path:?}, which depends on the current folder; set it to an absolute path, or \
     unset it"
)]
pub struct RelativePath {
    /// Name of the variable.
    pub variable: &'static str,
    /// Value of the variable.
    pub path: PathBuf,
}

/// This library's environment variables that select tools.
const TOOL_VARIABLES: [&str; 4] =
    ["WARPSMITH_DEVICE_RUSTC", "WARPSMITH_LLVM_BIN", "WARPSMITH_CUDA_TOOLS", "WARPSMITH_DATA_DIR"];

/// Rejects relative paths in this library's environment variables that select tools.
///
/// # Errors
/// Returns [`RelativePath`] for the first variable that contains a relative path.
pub fn check_variables() -> Result<(), RelativePath> {
    let relative = TOOL_VARIABLES.into_iter().find_map(|variable| {
        let path = path_in(variable).filter(|path| path.is_relative())?;
        Some(RelativePath { variable, path })
    });
    relative.map_or(Ok(()), Err)
}

/// Returns the path in an environment variable, if the variable is set.
fn path_in(variable: &str) -> Option<PathBuf> {
    env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// Returns the folders of `PATH`, except relative ones, whose contents depend on where a program runs.
pub(crate) fn search_path() -> Vec<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).filter(|folder| folder.is_absolute()).collect()
}

/// Returns the file name of a program on this system.
pub(crate) fn program(name: &str) -> String {
    format!("{name}{}", env::consts::EXE_SUFFIX)
}

/// Kind of a user's files, which determines their folder.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Files {
    Data,
    Cache,
}

/// Returns the folder in which programs keep the user's files, if the environment names it by an absolute path.
pub(crate) fn user_folder(files: Files, read: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    // The XDG specification requires relative paths to be ignored.
    let set = |name| read(name).map(PathBuf::from).filter(|folder| folder.is_absolute());
    if cfg!(windows) {
        return set("LOCALAPPDATA");
    }
    let (variable, folder) = match (files, cfg!(target_os = "macos")) {
        (Files::Data, true) => (None, "Library/Application Support"),
        (Files::Cache, true) => (None, "Library/Caches"),
        (Files::Data, false) => (set("XDG_DATA_HOME"), ".local/share"),
        (Files::Cache, false) => (set("XDG_CACHE_HOME"), ".cache"),
    };
    variable.or_else(|| Some(set("HOME")?.join(folder)))
}

/// Returns the user's data folder: `WARPSMITH_DATA_DIR`, otherwise `warpsmith` in `XDG_DATA_HOME` or in
/// `~/.local/share`; on Windows in `LOCALAPPDATA`, and on macOS in `~/Library/Application Support`. Returns `None` if
/// none of these variables is set to an absolute path.
pub fn data_folder() -> Option<PathBuf> {
    data_folder_by(|name| env::var_os(name))
}

fn data_folder_by(read: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    match read("WARPSMITH_DATA_DIR").filter(|value| !value.is_empty()) {
        Some(folder) => Some(PathBuf::from(folder)).filter(|folder| folder.is_absolute()),
        None => Some(user_folder(Files::Data, read)?.join("warpsmith")),
    }
}

/// Returns the folder into which [`setup`](crate::setup) installs ptxas, libdevice and libcudadevrt.
pub fn cuda_tools_folder() -> Option<PathBuf> {
    Some(data_folder()?.join("cuda-tools"))
}

/// Returns a file that [`setup`](crate::setup) rewrites after installing something, so that a build that found no
/// toolchain searches again.
pub fn setup_stamp() -> Option<PathBuf> {
    Some(data_folder()?.join("setup.stamp"))
}

/// Returns cargo's target folder of the package being built: the topmost folder above `out_dir` that cargo marked as
/// its own, or `out_dir` itself if no such folder exists.
pub fn target_dir_of(out_dir: &Path) -> PathBuf {
    out_dir
        .ancestors()
        .skip(1)
        .filter(|dir| dir.join("CACHEDIR.TAG").is_file())
        .last()
        .unwrap_or(out_dir)
        .to_path_buf()
}

/// Returns existing files and small folders that change when a toolchain is installed by [`setup`](crate::setup), the
/// system's package manager, or rustup.
pub(crate) fn installation_signs() -> Vec<PathBuf> {
    let mut signs = vec![PathBuf::from("/var/lib/dpkg/status")];
    if let Some(stamp) = setup_stamp() {
        if !stamp.is_file() {
            // The file gets the oldest possible time, because cargo treats a file that is newer than the build script's
            // start as changed. If the file cannot be written, `warpsmith setup` cannot install anything either.
            let old = std::time::SystemTime::UNIX_EPOCH;
            let _ = stamp.parent().map(std::fs::create_dir_all);
            let _ = std::fs::File::create(&stamp).and_then(|file| file.set_modified(old));
        }
        signs.push(stamp);
    }
    if let Some(home) = device::rustup_home() {
        signs.extend([home.join("settings.toml"), home.join("update-hashes")]);
        let toolchains = std::fs::read_dir(home.join("toolchains"));
        for toolchain in toolchains.into_iter().flatten().filter_map(Result::ok) {
            signs.push(toolchain.path().join("lib/rustlib/components"));
        }
    }
    // A missing path would make cargo run the build script every time.
    signs.retain(|path| path.exists());
    signs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alone::only_alone;

    #[test]
    #[cfg(all(unix, not(target_os = "macos")))]
    fn variables_choose_the_data_folder_in_order() {
        let of = |set: &[(&str, &str)]| {
            data_folder_by(|name| set.iter().find(|(set, _)| *set == name).map(|(_, value)| value.into()))
        };
        let all = [("WARPSMITH_DATA_DIR", "/w"), ("XDG_DATA_HOME", "/x"), ("HOME", "/h")];
        assert_eq!(of(&all), Some("/w".into()));
        assert_eq!(of(&all[1..]), Some("/x/warpsmith".into()));
        assert_eq!(of(&all[2..]), Some("/h/.local/share/warpsmith".into()));
        assert_eq!(of(&[("XDG_DATA_HOME", "x"), ("HOME", "/h")]), Some("/h/.local/share/warpsmith".into()));
        assert_eq!(of(&[("WARPSMITH_DATA_DIR", "")]), None);
        assert_eq!(of(&[("WARPSMITH_DATA_DIR", "w"), ("HOME", "/h")]), None);
        assert_eq!(of(&[("HOME", ".")]), None);
    }

    #[test]
    fn relative_paths_are_refused() {
        only_alone!();
        // SAFETY: this process runs one test, and no other thread of it uses the environment.
        let set = |variable: &str, value: &str| unsafe { env::set_var(variable, value) };
        TOOL_VARIABLES.into_iter().for_each(|variable| set(variable, ""));
        assert_eq!(check_variables(), Ok(()));
        for variable in TOOL_VARIABLES {
            for path in [".", "tools", "../tools"] {
                set(variable, path);
                let error = check_variables().unwrap_err().to_string();
                assert!(error.starts_with(variable) && error.contains(path), "{error}");
            }
            set(variable, if cfg!(windows) { "C:/no/such/tools" } else { "/no/such/tools" });
            assert_eq!(check_variables(), Ok(()));
        }
    }

    #[test]
    #[cfg(unix)]
    fn tools_in_relative_folders_are_not_run() {
        use std::os::unix::fs::PermissionsExt;
        only_alone!();
        // This folder becomes the current folder. Its programs record that they ran.
        let folder = env::temp_dir().join(format!("warpsmith-relative-{}", std::process::id()));
        let programs = ["rustc", "cargo", "opt", "llc", "llvm-ar", "llvm-link", "ptxas", "nvidia-smi"];
        for place in ["", "bin", "toolchains/t/bin"] {
            std::fs::create_dir_all(folder.join(place)).unwrap();
            for program in programs {
                let file = folder.join(place).join(program);
                std::fs::write(&file, format!("#!/bin/sh\n: > {}/RAN\n", folder.display())).unwrap();
                std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o755)).unwrap();
            }
        }
        env::set_current_dir(&folder).unwrap();
        // SAFETY: as above.
        let set = |variable: &str, value: &str| unsafe { env::set_var(variable, value) };
        for value in [".", "", "bin", "./bin"] {
            let variables = ["PATH", "CUDA_HOME", "CUDA_PATH", "RUSTUP_HOME", "XDG_DATA_HOME", "HOME"];
            TOOL_VARIABLES.into_iter().chain(variables).for_each(|variable| set(variable, value));
            find_device_toolchain();
            let tools = find_cuda_tools();
            let ignored = tools.rejected.iter().filter(|rejected| rejected.reason.contains("relative"));
            assert_eq!(ignored.count(), if value.is_empty() { 0 } else { 3 }, "{:?}", tools.rejected);
            set("WARPSMITH_DEVICE_RUSTC", "");
            find_device_toolchain();
        }
        assert!(!folder.join("RAN").exists());
        env::set_current_dir("/").unwrap();
        std::fs::remove_dir_all(folder).unwrap();
    }
}
