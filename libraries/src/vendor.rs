//! [`Vendor`]: NVIDIA's libraries and their installed versions.
//!
//! Each library is searched for once per process. No function of this module panics. The bindings' own loader panics if
//! a library is missing, so it is called only for a library that has already been loaded. The loader does not exist if
//! another crate in the build makes the bindings link the libraries.

use std::ffi::c_int;
use std::sync::OnceLock;

use crate::error::{LibraryError, VendorVersion};
use warpsmith_runtime::driver::library_paths::{LibraryPaths, SharedLibrary};
use warpsmith_runtime::error::{Error, Result};

/// Loaded libraries, indexed by [`Vendor`].
static LIBRARIES: [OnceLock<SharedLibrary>; 5] = [const { OnceLock::new() }; 5];

/// The names and versions of a library.
struct Entry {
    name: &'static str,
    /// The part of the file name between `lib` and `.so`.
    file: &'static str,
    /// PyPI package that contains the library.
    package: &'static str,
    /// Oldest major version whose functions and types match the bindings.
    minimum: u32,
    /// Function that returns a component of the library's version.
    property: &'static str,
}

macro_rules! vendors {
    ($($feature:literal: #[$doc:meta]
        $vendor:ident, $name:literal, $file:literal, $package:literal, $minimum:literal, $property:literal;)*) => {
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
                        property: $property,
                    },)*
                }
            }
        }
    };
}

vendors! {
    "blas": #[doc = "Dense linear algebra."]
        Cublas, "cuBLAS", "cublas", "nvidia-cublas", 12, "cublasGetProperty";
    "blas": #[doc = "GEMM with fused epilogues."]
        CublasLt, "cuBLASLt", "cublasLt", "nvidia-cublas", 12, "cublasLtGetProperty";
    "dnn": #[doc = "Convolution, pooling and batch normalization."]
        Cudnn, "cuDNN", "cudnn", "nvidia-cudnn-cu13", 9, "cudnnGetProperty";
    "fft": #[doc = "Fourier transforms."]
        Cufft, "cuFFT", "cufft", "nvidia-cufft", 11, "cufftGetProperty";
    "sparse": #[doc = "Sparse linear algebra."]
        Cusparse, "cuSPARSE", "cusparse", "nvidia-cusparse", 12, "cusparseGetProperty";
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
        static KNOWN: [OnceLock<std::result::Result<VendorVersion, LibraryError>>; 5] =
            [const { OnceLock::new() }; 5];
        let known = KNOWN[self as usize].get_or_init(|| self.load());
        known.clone().map_err(Error::from)
    }

    /// Looks up a function of the library, which must have been loaded by [`Self::version`].
    ///
    /// # Safety
    /// `F` must be the type of a pointer to the library's function with that name.
    pub(crate) unsafe fn symbol<F: Copy>(self, name: &str) -> Option<F> {
        // SAFETY: guaranteed by the caller. The library stays loaded.
        unsafe { LIBRARIES[self as usize].get()?.symbol(name) }
    }

    fn load(self) -> std::result::Result<VendorVersion, LibraryError> {
        let Entry { name, file, package, minimum, property } = self.entry();
        // SAFETY: the call loads a library from NVIDIA, whose initializers may run at any time.
        let open = || unsafe { SharedLibrary::open(names(file)) };
        let found = open().or_else(|| {
            preload(file, &LibraryPaths::of_process());
            open()
        });
        let library = found.ok_or(LibraryError::Missing { library: name, file, package })?;
        LIBRARIES[self as usize].get_or_init(|| library);
        // `MAJOR_VERSION`, `MINOR_VERSION` and `PATCH_LEVEL`.
        let [major, minor, patch] = [0, 1, 2].map(|part| {
            let mut value = 0;
            type Property = unsafe extern "C" fn(c_int, *mut c_int) -> c_int;
            // SAFETY: the function has this type in all of NVIDIA's libraries and writes the value.
            match unsafe { self.symbol::<Property>(property).map(|read| read(part, &mut value)) } {
                Some(0) => u32::try_from(value).unwrap_or(0),
                _ => 0,
            }
        });
        VendorVersion { major, minor, patch }.at_least(minimum, name)
    }
}

/// Returns the file names of a library. The bindings' loader also tries these names.
fn names(file: &str) -> Vec<String> {
    let majors = (9..=13).rev();
    if cfg!(windows) {
        let plain = [format!("{file}.dll"), format!("{file}64.dll")];
        return plain.into_iter().chain(majors.map(|major| format!("{file}64_{major}.dll"))).collect();
    }
    let plain = format!("lib{file}.so");
    std::iter::once(plain).chain(majors.map(|major| format!("lib{file}.so.{major}"))).collect()
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
            // at any time. The library is never unloaded.
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
