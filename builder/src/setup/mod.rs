//! Installs missing tools for compiling GPU kernels: `warpsmith setup`, and `cargo xtask setup` in the repository.
//!
//! The following are installed unless a search finds them:
//!
//! - the device toolchain: a rustc of the tested version with its sources and LLVM tools, as Debian packages (when run
//!   as root on Debian) or as a rustup toolchain. The user's default toolchain is not changed;
//! - ptxas, libdevice and libcudadevrt: NVIDIA's wheels from PyPI, whose SHA-256 hashes are part of this crate. They go
//!   into [`cuda_tools_folder`](crate::toolchain::cuda_tools_folder), where builds of all projects find them.
//!
//! NVIDIA's tools are either complete or absent, because they are downloaded and checked in a temporary folder, which
//! is then renamed. Installers do not run in the folder in which setup was started, and are looked up only in `PATH`
//! entries that are absolute paths. Therefore, no file in that folder is executed. Wheels are unpacked only after their
//! hashes have been verified. A lock serializes concurrent runs.

mod cuda;
mod error;
mod process;
mod rust;
#[cfg(all(test, unix))]
mod tests;
mod wheel;

use std::fs::{self, File};
use std::path::Path;

use crate::toolchain::{self, CudaTools, DeviceToolchain};

pub use error::SetupError;
pub use process::{install_debian_packages, is_root_on_debian};

/// Installs missing tools. `say` receives one line for each tool that is present or being installed.
///
/// ```no_run
/// warpsmith_builder::setup::install(&mut |line| println!("{line}"))?;
/// # Ok::<(), warpsmith_builder::setup::SetupError>(())
/// ```
///
/// # Errors
/// Returns [`SetupError`], whose message states the remedy. Tools that were installed before the error remain
/// installed.
pub fn install(say: &mut dyn FnMut(&str)) -> Result<(), SetupError> {
    toolchain::check_variables()?;
    let mut installed = false;
    let search = toolchain::find_device_toolchain();
    let rust = match search.found {
        Some(found) => found,
        None => {
            installed = true;
            rust::install(say, &search.explain())?
        }
    };
    say(&describe_toolchain(&rust));
    let mut tools = toolchain::find_cuda_tools();
    if !tools.are_complete() {
        let folder = toolchain::data_folder().ok_or(SetupError::NoDataFolder)?;
        cuda::install(say, &folder, cuda::WHEELS)?;
        installed = true;
        tools = toolchain::find_cuda_tools();
    }
    describe_tools(&tools).iter().for_each(|line| say(line));
    if installed && let Some(stamp) = toolchain::setup_stamp() {
        // A build that found no toolchain searches again if this file is newer. Without this file, the build searches
        // again only when its sources change.
        let _ = stamp.parent().map(fs::create_dir_all).and_then(|_| fs::write(&stamp, "").ok());
    }
    Ok(())
}

fn describe_toolchain(toolchain: &DeviceToolchain) -> String {
    format!(
        "device toolchain: Rust {} at {} ({}), LLVM {} in {}",
        toolchain.rust_version,
        toolchain.rustc.display(),
        toolchain.origin,
        toolchain.llvm.version,
        toolchain.llvm.folder.display()
    )
}

fn describe_tools(tools: &CudaTools) -> Vec<String> {
    let of = |what: &str, version: String, path: &Path| {
        format!("{what}: {version}{} ({})", path.display(), tools.origin_of(path))
    };
    let ptxas = tools.ptxas.iter().map(|ptxas| of("ptxas", format!("{} at ", ptxas.version), &ptxas.path));
    let libdevice = tools.libdevice.iter().map(|path| of("libdevice", String::new(), path));
    let cudadevrt = tools.cudadevrt.iter().map(|path| of("libcudadevrt", String::new(), path));
    ptxas.chain(libdevice).chain(cudadevrt).collect()
}

/// Creates `folder` and locks it against other runs until the returned file is closed.
fn lock(folder: &Path) -> Result<File, SetupError> {
    fs::create_dir_all(folder).map_err(SetupError::folder(folder))?;
    let path = folder.join(".lock");
    let file = File::create(&path).map_err(SetupError::folder(folder))?;
    file.lock().map_err(SetupError::folder(folder))?;
    Ok(file)
}
