//! Finds compute-sanitizer, and the program to run.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use warpsmith::bench::command::failure::Failure;

const SANITIZER: &str = "compute-sanitizer";

/// Returns compute-sanitizer from PATH, or from a CUDA toolkit in CUDA_PATH, CUDA_HOME or /usr/local/cuda.
pub fn sanitizer() -> Result<PathBuf, Failure> {
    let toolkits = ["CUDA_PATH", "CUDA_HOME"].into_iter().filter_map(env::var_os).map(PathBuf::from);
    let toolkits = toolkits.chain([PathBuf::from("/usr/local/cuda")]);
    let folders = toolkits.flat_map(|toolkit| [toolkit.join("bin"), toolkit.join(SANITIZER)]);
    in_path(OsStr::new(SANITIZER))
        .or_else(|| folders.map(|folder| folder.join(SANITIZER)).find(|path| is_executable(path)))
        .ok_or_else(|| {
            Failure::Use(
                "compute-sanitizer was not found in PATH or a CUDA toolkit (CUDA_PATH, CUDA_HOME, /usr/local/cuda): \
                 install the toolkit, or run `pip install nvidia-cuda-sanitizer-api` and add the folder \
                 `nvidia/cu13/compute-sanitizer` of site-packages to PATH; `warpsmith check` does not need it"
                    .to_owned(),
            )
        })
}

/// Returns the path of the program, given its path or its name in PATH.
pub fn executable(name: &OsStr) -> Result<PathBuf, Failure> {
    let shown = name.to_string_lossy();
    let path = Path::new(name);
    if path.components().count() == 1 && !shown.starts_with('.') {
        return in_path(name).ok_or_else(|| {
            let advice = if path.exists() { format!("write `./{shown}` for") } else { "give".to_owned() };
            Failure::Use(format!("`{shown}` was not found in PATH: {advice} the path of a program"))
        });
    }
    match fs::metadata(path) {
        Err(error) => Err(Failure::Use(format!("cannot run `{shown}`: {error}; give the path of a program"))),
        Ok(about) if about.is_dir() => {
            Err(Failure::Use(format!("cannot run `{shown}`: it is a folder; give the path of a program")))
        }
        Ok(_) if is_executable(path) => Ok(path.to_owned()),
        Ok(_) => {
            Err(Failure::Use(format!("cannot run `{shown}`: it is not executable; run `chmod +x` on it")))
        }
    }
}

fn in_path(name: &OsStr) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|folder| folder.join(name)).find(|path| is_executable(path))
}

#[cfg(unix)]
fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    fs::metadata(path).is_ok_and(|about| about.is_file() && about.permissions().mode() & 0o111 != 0)
}

#[cfg(not(unix))]
fn is_executable(path: &Path) -> bool {
    path.is_file()
}
