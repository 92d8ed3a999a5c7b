//! [`HostKernels`]: the kernels of a module on the emulated device, which cannot run PTX.
//!
//! Each `cuda_std` kernel in the program also has a host version, compiled for the CPU from the same Rust source. A PTX
//! module contains those kernels whose names are entry points of the PTX. A kernel crate is part of the program if the
//! host crate depends on it and uses one of its items; `use my_kernels as _;` is sufficient.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use cust_core::__private::{CUDA_STD_KERNELS, KernelSpec};
use warpsmith_runtime::{Device, Function, GpuImage};

use crate::error::{CudaError, CudaResult, explained};

/// Remedy for programs without host kernels.
const REMEDY: &str = "the emulated device cannot run PTX; it runs kernels compiled from their Rust source: add the \
                      kernel crate to the host crate's [dependencies], and write `use KERNEL_CRATE as _;`";

/// Kernels that a PTX module contains on the emulated device.
#[derive(Debug)]
pub(crate) struct HostKernels {
    device: Device,
    /// Entry points of the PTX, or `None` for PTX that was not compiled and may therefore have any entry point.
    entries: Option<BTreeSet<String>>,
}

impl HostKernels {
    /// Finds the kernels in the PTX. `None` stands for PTX that was not compiled because there was no toolchain.
    ///
    /// # Errors
    /// Returns [`CudaError::NotSupported`] if the program contains none of these kernels.
    pub(crate) fn new(device: Device, ptx: Option<&str>) -> CudaResult<Self> {
        let entries = ptx.map(entries);
        let has = |kernel: &&KernelSpec| entries.as_ref().is_none_or(|names| names.contains(kernel.symbol));
        if !kernels().any(|kernel| has(&kernel)) {
            return Err(explained(
                CudaError::NotSupported,
                format!("the program contains none of the kernels in this PTX: {REMEDY}"),
            ));
        }
        Ok(Self { device, entries })
    }

    /// Finds a kernel by name.
    ///
    /// # Errors
    /// Returns [`CudaError::NotFound`]; [`CudaError::InvalidSource`] if several packages contain a kernel with this
    /// name.
    pub(crate) fn function(&self, name: &str) -> CudaResult<Function> {
        let not_found = |text: String| Err(explained(CudaError::NotFound, text));
        if let Some(entries) = &self.entries
            && !entries.contains(name)
        {
            let names: Vec<&str> = entries.iter().map(String::as_str).collect();
            return not_found(format!("the PTX has no kernel `{name}`, but {}", names.join(", ")));
        }
        let mut found = kernels().filter(|kernel| kernel.symbol == name);
        let Some(kernel) = found.next() else {
            return not_found(format!("the program has no kernel `{name}`: {REMEDY}"));
        };
        if let Some(other) = found.find(|other| other.package != kernel.package) {
            let packages = format!("{} and {}", kernel.package, other.package);
            let text = format!(
                "both {packages} have a kernel `{name}`: rename one, because the emulated device finds kernels by name"
            );
            return Err(explained(CudaError::InvalidSource, text));
        }
        Ok(self.device.load(image(kernel.package))?.function(kernel)?)
    }
}

fn kernels() -> impl Iterator<Item = &'static KernelSpec> {
    CUDA_STD_KERNELS.iter().map(|kernel| kernel())
}

/// Returns the names of the kernels in the PTX.
fn entries(ptx: &str) -> BTreeSet<String> {
    let parts = ptx.split(".entry").skip(1);
    let name = |part: &str| {
        part.trim_start()
            .split(|c: char| !(c.is_alphanumeric() || "_$".contains(c)))
            .next()
            .map(str::to_owned)
    };
    parts.filter_map(name).filter(|name| !name.is_empty()).collect()
}

/// Returns an image by which the runtime identifies the kernels of a package. It contains no code.
fn image(package: &'static str) -> &'static GpuImage {
    static IMAGES: Mutex<BTreeMap<&str, &GpuImage>> = Mutex::new(BTreeMap::new());
    let mut images = IMAGES.lock().unwrap_or_else(PoisonError::into_inner);
    images.entry(package).or_insert_with(|| {
        Box::leak(Box::new(GpuImage::without_code(package, "", "its kernels are loaded as PTX")))
    })
}

#[cfg(test)]
mod tests {
    use super::entries;

    #[test]
    fn entries_are_found_in_ptx() {
        let ptx = ".version 7.0\n.visible .entry scale(\n\t.param .u64 p0\n)\n{}\n.entry _Z3addPf$1 ()\n// .entry\n.func f()";
        assert_eq!(Vec::from_iter(entries(ptx)), ["_Z3addPf$1", "scale"]);
        assert!(entries("").is_empty());
    }
}
