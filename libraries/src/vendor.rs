//! [`Vendor`]: NVIDIA's libraries and their installed versions.
//!
//! Each library is searched for once per process. No function of this module panics. The bindings' own loader panics if
//! a library is missing, so it is called only for a library that has already been loaded.

use std::sync::OnceLock;

use crate::error::{LibraryError, VendorVersion};
use warpsmith_runtime::driver::library_paths::LibraryPaths;
use warpsmith_runtime::error::{Error, Result};

/// The names and versions of a library.
struct Entry {
    name: &'static str,
    /// The part of the file name between `lib` and `.so`.
    file: &'static str,
    /// PyPI package that contains the library.
    package: &'static str,
    /// Oldest major version whose functions and types match the bindings.
    minimum: u32,
    is_loaded: unsafe fn() -> bool,
    /// Function that returns the major, minor and patch version of a loaded library.
    version: fn() -> Option<[i32; 3]>,
}

macro_rules! vendors {
    ($($feature:literal: #[$doc:meta] $vendor:ident, $name:literal, $file:literal, $package:literal, $minimum:literal,
        $module:ident :: $get:ident, $status:ident :: $ok:ident;)*) => {
        /// One of NVIDIA's libraries. Each variant exists if the library's feature is enabled.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Vendor {
            $(#[cfg(feature = $feature)] #[$doc] $vendor,)*
        }

        impl Vendor {
            /// All libraries.
            pub const ALL: &'static [Vendor] = &[$(#[cfg(feature = $feature)] Self::$vendor,)*];

            fn entry(self) -> Entry {
                match self {
                    $(#[cfg(feature = $feature)]
                    Self::$vendor => Entry {
                        name: $name,
                        file: $file,
                        package: $package,
                        minimum: $minimum,
                        is_loaded: cudarc::$module::sys::is_culib_present,
                        version: || {
                            use cudarc::$module::sys::{self, libraryPropertyType as Property};
                            let parts = [Property::MAJOR_VERSION, Property::MINOR_VERSION, Property::PATCH_LEVEL];
                            let mut version = [0; 3];
                            for (value, part) in version.iter_mut().zip(parts) {
                                // SAFETY: the library is loaded (callers have checked this), and the pointer refers to
                                // a local variable.
                                if unsafe { sys::$get(part, value) } != sys::$status::$ok {
                                    return None;
                                }
                            }
                            Some(version)
                        },
                    },)*
                }
            }
        }
    };
}

vendors! {
    "blas": #[doc = "Dense linear algebra."]
        Cublas, "cuBLAS", "cublas", "nvidia-cublas", 12,
        cublas::cublasGetProperty, cublasStatus_t::CUBLAS_STATUS_SUCCESS;
    "blas": #[doc = "Matrix products with epilogues."]
        CublasLt, "cuBLASLt", "cublasLt", "nvidia-cublas", 12,
        cublaslt::cublasLtGetProperty, cublasStatus_t::CUBLAS_STATUS_SUCCESS;
    "dnn": #[doc = "Convolutions and what goes with them."]
        Cudnn, "cuDNN", "cudnn", "nvidia-cudnn-cu13", 9,
        cudnn::cudnnGetProperty, cudnnStatus_t::CUDNN_STATUS_SUCCESS;
    "fft": #[doc = "Fourier transforms."]
        Cufft, "cuFFT", "cufft", "nvidia-cufft", 11,
        cufft::cufftGetProperty, cufftResult::CUFFT_SUCCESS;
    "rand": #[doc = "Random numbers."]
        Curand, "cuRAND", "curand", "nvidia-curand", 10,
        curand::curandGetProperty, curandStatus_t::CURAND_STATUS_SUCCESS;
    "sparse": #[doc = "Sparse linear algebra."]
        Cusparse, "cuSPARSE", "cusparse", "nvidia-cusparse", 12,
        cusparse::cusparseGetProperty, cusparseStatus_t::CUSPARSE_STATUS_SUCCESS;
}

impl Vendor {
    /// Returns NVIDIA's name for the library.
    pub fn name(self) -> &'static str {
        self.entry().name
    }

    /// Returns the version of the library that this process uses. The first call in a process loads the library.
    ///
    /// ```
    /// use warpsmith_libraries::Vendor;
    ///
    /// for vendor in Vendor::ALL {
    ///     match vendor.version() {
    ///         Ok(version) => println!("{} {version}", vendor.name()),
    ///         Err(error) => println!("{error}"),
    ///     }
    /// }
    /// ```
    ///
    /// # Errors
    /// Returns [`LibraryError::Missing`] if the library is not installed or cannot be loaded, or
    /// [`LibraryError::TooOld`].
    pub fn version(self) -> Result<VendorVersion> {
        static KNOWN: [OnceLock<std::result::Result<VendorVersion, LibraryError>>; 6] =
            [const { OnceLock::new() }; 6];
        let known = KNOWN[self as usize].get_or_init(|| self.load());
        known.clone().map_err(Error::from)
    }

    fn load(self) -> std::result::Result<VendorVersion, LibraryError> {
        let Entry { name, file, package, minimum, is_loaded, version } = self.entry();
        // SAFETY: the call loads a library from NVIDIA, whose initializers may run at any time.
        let found = unsafe { is_loaded() } || {
            preload(file, &LibraryPaths::of_process());
            // SAFETY: as above.
            unsafe { is_loaded() }
        };
        if !found {
            return Err(LibraryError::Missing { library: name, file, package });
        }
        let parts = version().unwrap_or_default().map(|part| u32::try_from(part).unwrap_or(0));
        let [major, minor, patch] = parts;
        VendorVersion { major, minor, patch }.at_least(minimum, name)
    }
}

/// Loads the newest version of a library from the first of the folders that contains one. Afterwards, the system finds
/// the library by its soname.
#[cfg(unix)]
fn preload(file: &str, paths: &LibraryPaths) {
    use std::os::unix::ffi::OsStrExt;
    use std::path::{Path, PathBuf};

    use warpsmith_runtime::driver::library_paths::inside;

    let wanted = format!("lib{file}.so");
    let version = |path: &Path| -> Option<Vec<u32>> {
        let rest = path.file_name()?.to_str()?.strip_prefix(&wanted)?;
        rest.split('.').skip(1).map(|number| number.parse().ok()).collect()
    };
    let _ = paths.all().find_map(|folder| {
        let mut versions: Vec<(Vec<u32>, PathBuf)> =
            inside(folder).into_iter().filter_map(|path| Some((version(&path)?, path))).collect();
        versions.sort();
        versions.into_iter().rev().map(|(_, path)| path).find(|path| {
            let Ok(path) = std::ffi::CString::new(path.as_os_str().as_bytes()) else { return false };
            // SAFETY: the string is zero-terminated. The call loads a library from NVIDIA, whose initializers may run
            // at any time. It is never unloaded.
            let loaded = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_GLOBAL) };
            !loaded.is_null()
        })
    });
}

#[cfg(not(unix))]
fn preload(_file: &str, _paths: &LibraryPaths) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_library_is_refused() {
        let version = VendorVersion { major: 8, minor: 9, patch: 7 };
        assert_eq!(version.at_least(8, "cuDNN").unwrap(), version);
        let text = version.at_least(9, "cuDNN").unwrap_err().to_string();
        assert!(text.contains("cuDNN 8.9.7 is too old") && text.contains("version 9 or newer"), "{text}");
    }

    #[test]
    fn libraries_are_loaded_or_named_as_missing() {
        for &vendor in Vendor::ALL {
            match vendor.version() {
                Ok(version) => assert!(version.major >= vendor.entry().minimum),
                Err(error) => {
                    let text = error.to_string();
                    assert!(text.contains(vendor.name()) && text.contains("install"), "{text}");
                }
            }
        }
    }
}
