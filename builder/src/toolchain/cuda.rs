//! Finds NVIDIA's ptxas (assembler and resource report), libdevice (accurate math) and libcudadevrt (conditions
//! of graphs).

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Rejected, Version, program};

/// NVIDIA's tools that were found. All are optional, and may come from different locations.
#[derive(Debug, Clone, Default)]
pub struct CudaTools {
    /// The PTX assembler.
    pub ptxas: Option<Ptxas>,
    /// Path of `libdevice.10.bc`.
    pub libdevice: Option<PathBuf>,
    /// Path of `libcudadevrt.a`.
    pub cudadevrt: Option<PathBuf>,
    /// Searched locations in which at least one of the tools is missing.
    pub rejected: Vec<Rejected>,
    /// Rejected locations that are relative paths.
    pub(crate) relative: Vec<Rejected>,
    /// Searched locations, each with its origin.
    pub(crate) places: Vec<(String, PathBuf)>,
}

impl CudaTools {
    /// Returns true if all tools were found.
    pub fn are_complete(&self) -> bool {
        self.ptxas.is_some() && self.libdevice.is_some() && self.cudadevrt.is_some()
    }

    /// Returns the origin of a tool's location: a variable, the default folder, or `warpsmith setup`.
    pub fn origin_of(&self, tool: &Path) -> &str {
        self.places.iter().find(|(_, place)| tool.starts_with(place)).map_or("", |(origin, _)| origin)
    }
}

/// The PTX assembler.
#[derive(Debug, Clone)]
pub struct Ptxas {
    /// Path of ptxas.
    pub path: PathBuf,
    /// Version of the tool, which is the CUDA toolkit's version.
    pub version: Version,
}

/// Looks for ptxas, libdevice and libcudadevrt in `WARPSMITH_CUDA_TOOLS`, `CUDA_HOME`, `CUDA_PATH`, `/usr/local/cuda`,
/// and the [folder](super::cuda_tools_folder) that setup installs them into. Each tool is taken from the first location
/// that contains it.
///
/// A variable with a relative path is ignored.
///
/// A location is a CUDA toolkit or a Python environment with the `nvidia-cuda-nvcc`, `nvidia-nvvm` and
/// `nvidia-cuda-runtime` wheels.
pub fn find_cuda_tools() -> CudaTools {
    let variables = ["WARPSMITH_CUDA_TOOLS", "CUDA_HOME", "CUDA_PATH"];
    let named = variables.into_iter().filter_map(|name| Some((name.to_owned(), super::path_in(name)?)));
    let (mut places, relative): (Vec<_>, Vec<_>) = named.partition(|(_, place)| place.is_absolute());
    places.push(("usual folder".to_owned(), PathBuf::from("/usr/local/cuda")));
    places.extend(super::cuda_tools_folder().map(|folder| ("warpsmith setup".to_owned(), folder)));
    let mut tools = search(places);
    for (variable, path) in relative {
        let reason = "it is a relative path, which is ignored; set the variable to an absolute path";
        let candidate = format!("{} ({variable})", path.display());
        tools.relative.push(Rejected { candidate, reason: reason.to_owned() });
    }
    tools.rejected.extend(tools.relative.iter().cloned());
    tools
}

/// Finds the tools in one location.
pub(crate) fn cuda_tools_in(place: &Path) -> CudaTools {
    search(vec![(place.display().to_string(), place.to_path_buf())])
}

fn search(places: Vec<(String, PathBuf)>) -> CudaTools {
    let mut tools = CudaTools::default();
    for (origin, place) in &places {
        let name = if place.to_string_lossy() == *origin {
            origin.clone()
        } else {
            format!("{} ({origin})", place.display())
        };
        let reject = |reason: String, rejected: &mut Vec<Rejected>| {
            rejected.push(Rejected { candidate: name.clone(), reason });
        };
        if !place.is_dir() {
            reject("no such folder".to_owned(), &mut tools.rejected);
            continue;
        }
        let roots = roots_of(place);
        if tools.ptxas.is_none() {
            match roots.iter().map(|root| root.join("bin").join(program("ptxas"))).find(|path| path.is_file())
            {
                Some(path) => match ptxas_version(&path) {
                    Ok(version) => tools.ptxas = Some(Ptxas { path, version }),
                    Err(reason) => reject(reason, &mut tools.rejected),
                },
                None => reject("no bin/ptxas".to_owned(), &mut tools.rejected),
            }
        }
        if tools.libdevice.is_none() {
            let file = "nvvm/libdevice/libdevice.10.bc";
            match roots.iter().map(|root| root.join(file)).find(|path| path.is_file()) {
                Some(path) => tools.libdevice = Some(path),
                None => reject(format!("no {file}"), &mut tools.rejected),
            }
        }
        if tools.cudadevrt.is_none() {
            let files = ["lib/libcudadevrt.a", "lib64/libcudadevrt.a", "lib/x64/cudadevrt.lib"];
            let mut paths = roots.iter().flat_map(|root| files.map(|file| root.join(file)));
            match paths.find(|path| path.is_file()) {
                Some(path) => tools.cudadevrt = Some(path),
                None => reject(format!("no {}", files[0]), &mut tools.rejected),
            }
        }
        if tools.are_complete() {
            break;
        }
    }
    tools.places = places;
    tools
}

/// Returns the toolkit roots in a location: the location itself and, in a Python environment, every `nvidia/*` of its
/// packages.
fn roots_of(place: &Path) -> Vec<PathBuf> {
    let mut roots = vec![place.to_path_buf()];
    for python in folders(&place.join("lib")) {
        roots.extend(folders(&python.join("site-packages/nvidia")));
    }
    roots.extend(folders(&place.join("nvidia")));
    roots
}

/// Returns the sorted folders in `folder`, or an empty list if `folder` cannot be read.
fn folders(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut found: Vec<PathBuf> =
        entries.filter_map(Result::ok).map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    found.sort();
    found
}

fn ptxas_version(path: &Path) -> Result<Version, String> {
    let output = Command::new(path)
        .arg("--version")
        .output()
        .map_err(|error| format!("{} cannot be run: {error}", path.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines()
        .find_map(|line| line.split_once("release ").and_then(|(_, rest)| Version::find_in(rest)))
        .ok_or_else(|| format!("{} does not print its version", path.display()))
}

#[cfg(test)]
mod tests {
    use std::env;

    use super::*;

    #[test]
    fn a_missing_place_is_reported_and_skipped() {
        let tools = search(vec![("nowhere".to_owned(), PathBuf::from("/no/such/folder"))]);
        assert!(tools.ptxas.is_none() && tools.libdevice.is_none());
        assert_eq!(tools.rejected.len(), 1);
        assert_eq!(tools.rejected[0].reason, "no such folder");
    }

    #[test]
    fn libdevice_of_a_python_environment_is_found_without_ptxas() {
        let root = env::temp_dir().join(format!("warpsmith-cuda-{}", std::process::id()));
        let folder = root.join("lib/python3.11/site-packages/nvidia/cu13/nvvm/libdevice");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("libdevice.10.bc"), b"BC").unwrap();
        let tools = cuda_tools_in(&root);
        std::fs::remove_dir_all(&root).unwrap();
        assert_eq!(tools.libdevice, Some(folder.join("libdevice.10.bc")));
        assert!(tools.ptxas.is_none());
        assert!(tools.cudadevrt.is_none());
        let missing =
            |reason: &str| Rejected { candidate: root.display().to_string(), reason: reason.to_owned() };
        assert_eq!(tools.rejected, [missing("no bin/ptxas"), missing("no lib/libcudadevrt.a")]);
    }
}
