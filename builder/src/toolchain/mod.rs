//! Finds the compilers: a rustc that can target the GPU with its LLVM tools, and NVIDIA's ptxas,
//! libdevice and libcudadevrt.
//!
//! Nothing here installs or changes anything, and nothing is used that was not tested: the pipeline reads
//! LLVM's text form and core's internals, which change between versions. Every search reports, beside what it
//! found, each candidate that it looked at and why it was not taken.
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

use std::path::{Path, PathBuf};

use crate::error::Error;

pub use cuda::{CudaTools, Ptxas, find_cuda_tools};
pub use device::{DeviceToolchain, LlvmTools, Origin, find_device_toolchain, host_compiler};
pub use version::Version;

/// The minor versions of Rust 1 that the pipeline is tested with.
pub const TESTED_RUST: &[u32] = &[96];
/// The version that `xtask setup` and the messages name.
pub const RUST_TO_INSTALL: &str = "1.96.0";
/// The LLVM major version that the pipeline is tested with.
pub const TESTED_LLVM: u32 = 22;

/// Commands that install the device toolchain outside of this repository, one a line.
pub const INSTALL_COMMANDS: &str = "\
on Debian or Ubuntu:  apt-get install rustc-web rust-web-src cargo-web llvm-22
with rustup:          rustup toolchain install 1.96.0 --profile minimal --component rust-src --component llvm-tools";

/// Commands that install ptxas, libdevice and libcudadevrt without a CUDA toolkit.
pub const CUDA_INSTALL_COMMANDS: &str = "\
python3 -m venv DIR && DIR/bin/pip install nvidia-cuda-nvcc==13.0.88 nvidia-nvvm==13.0.88 nvidia-cuda-runtime==13.0.96
and set WARPSMITH_CUDA_TOOLS=DIR (a CUDA toolkit in CUDA_HOME or /usr/local/cuda does as well)";

/// The result of a search, and the rejected candidates.
#[derive(Debug, Clone)]
pub struct Search<T> {
    /// The first candidate that fits.
    pub found: Option<T>,
    /// Those looked at before it, in order.
    pub rejected: Vec<Rejected>,
}

/// A candidate that was not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejected {
    /// Its name, usually a path.
    pub candidate: String,
    /// Why it does not do.
    pub reason: String,
}

impl<T> Search<T> {
    /// The rejected candidates, one a line; says so if there were none.
    pub fn explain(&self) -> String {
        if self.rejected.is_empty() {
            return "nothing was found to look at".to_owned();
        }
        let lines: Vec<String> =
            self.rejected.iter().map(|r| format!("{}: {}", r.candidate, r.reason)).collect();
        lines.join("\n")
    }
}

/// The command of this project that installs everything, when `folder` lies inside its workspace.
///
/// `None` for a package outside of this repository: show [`INSTALL_COMMANDS`] instead.
pub fn setup_command(folder: &Path) -> Option<&'static str> {
    folder
        .ancestors()
        .any(|dir| dir.join("xtask/Cargo.toml").is_file() && dir.join("gpu-std/Cargo.toml").is_file())
        .then_some("cargo xtask setup")
}

/// The folder into which `xtask setup` installs ptxas, libdevice and libcudadevrt: `cuda-tools` in cargo's target folder.
pub fn cuda_tools_folder(target_dir: &Path) -> PathBuf {
    target_dir.join("cuda-tools")
}

/// A file that `xtask setup` rewrites after it has installed something, so that a build which found no
/// toolchain looks again. The builder creates it when it is missing.
pub fn setup_stamp(target_dir: &Path) -> PathBuf {
    target_dir.join("gpu-setup.stamp")
}

/// Cargo's target folder of the package being built: the topmost folder above `out_dir` that cargo marked
/// as its own; `out_dir` itself when there is none.
pub fn target_dir_of(out_dir: &Path) -> PathBuf {
    out_dir
        .ancestors()
        .skip(1)
        .filter(|dir| dir.join("CACHEDIR.TAG").is_file())
        .last()
        .unwrap_or(out_dir)
        .to_path_buf()
}

/// Existing files and small folders that change when a toolchain is installed: by `xtask setup`, by the
/// system's package manager, or by rustup.
pub(crate) fn installation_signs(target_dir: &Path) -> Result<Vec<PathBuf>, Error> {
    let stamp = setup_stamp(target_dir);
    if !stamp.is_file() {
        // As old as can be: to cargo a file younger than the build script's start has changed.
        let old = std::time::SystemTime::UNIX_EPOCH;
        let written = std::fs::File::create(&stamp).and_then(|file| file.set_modified(old));
        written.map_err(Error::io("cannot write", &stamp))?;
    }
    let mut signs = vec![stamp, PathBuf::from("/var/lib/dpkg/status")];
    if let Some(home) = device::rustup_home() {
        signs.extend([home.join("settings.toml"), home.join("update-hashes")]);
        let toolchains = std::fs::read_dir(home.join("toolchains"));
        for toolchain in toolchains.into_iter().flatten().filter_map(Result::ok) {
            signs.push(toolchain.path().join("lib/rustlib/components"));
        }
    }
    // A path that is missing would make cargo run the build script every time.
    signs.retain(|path| path.exists());
    Ok(signs)
}
