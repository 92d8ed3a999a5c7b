//! Options for allocating device memory and page-locked host memory.
//!
//! [`AllocatorOptions`] are parsed from text in PyTorch's format, for example
//! `expandable_segments:True,max_split_size_mb:128`, or read from the environment. Options that this module returns
//! have passed [`AllocatorOptions::check`]. Formatting and parsing options round-trips.
//!
//! | module | contents |
//! | --- | --- |
//! | `text` | option names and option strings |
//! | `value` | option values as text |

mod text;
mod value;

use crate::error::{Error, Result};

/// Bytes per mebibyte, the unit of the options whose names end in `_mb`.
const MIB: u64 = 1 << 20;
/// Minimum of `max_non_split_rounding_mb`, in bytes.
const MIN_ROUNDING: u64 = 20 * MIB;

/// Environment variables that contain options; only the first one that is set is read.
const OPTION_VARIABLES: [&str; 3] = ["WARPSMITH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"];
/// Environment variables that disable caching if they are set.
const NO_CACHING_VARIABLES: [&str; 2] = ["WARPSMITH_NO_MEMORY_CACHING", "PYTORCH_NO_CUDA_MEMORY_CACHING"];

/// Options for allocating device memory.
///
/// Fields store sizes in bytes. In text, an option is named like its field unless the field's documentation gives a
/// different name, and options whose names end in `_mb` are in MiB.
///
/// ```
/// use warpsmith_runtime::AllocatorOptions;
///
/// let text = "expandable_segments:True,pinned_max_cached_size_mb:256";
/// let options = AllocatorOptions::default().with(text)?;
/// assert!(options.expandable_segments && options.caching);
/// assert_eq!(options.pinned.max_cached_size, Some(256 << 20));
/// assert!(options.with("max_split_size_mb:1").is_err());
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct AllocatorOptions {
    /// The allocator backend (`backend:native` or `backend:cudaMallocAsync`).
    pub backend: Backend,
    /// True if freed memory is cached for later requests; if false, every request calls the driver. Default: true.
    /// PyTorch has only an environment variable for this.
    pub caching: bool,
    /// Blocks of this size or larger are never split (`max_split_size_mb`). Default: no limit.
    pub max_split_size: Option<u64>,
    /// Maximum amount by which an unsplit block may exceed the request (`max_non_split_rounding_mb`). Default: 20 MiB.
    pub max_non_split_rounding: u64,
    /// Segment size for requests over 1 MiB and under 10 MiB, and page size of expandable segments for large requests
    /// (`large_segment_size_mb`). Default: 20 MiB.
    pub large_segment_size: u64,
    /// Number of steps, per power-of-two size range, to which requests are rounded up; 0 and 1 round to multiples of
    /// 512 bytes. Entry `i` applies to sizes from 2^i MiB to below 2^(i+1) MiB. The first entry also applies to smaller
    /// sizes, and the last one to larger sizes. Default: 0 for all entries.
    ///
    /// In text, the value is one number for all entries, or a list such as `[256:1,512:2,1024:4,>:8]`. Each item is a
    /// size in MiB and the number of steps for the entry that starts at that size, in ascending order; `>` stands for
    /// all later entries. The first number also applies to all earlier entries; other unlisted entries are 0.
    pub roundup_power2_divisions: [u32; 16],
    /// Fraction of the allowed memory above which old cached segments are released; 0, the default, disables this. In
    /// text, the value must be greater than 0 and less than 1.
    pub garbage_collection_threshold: f64,
    /// True if segments grow in place, by mapping memory into a reserved address range. Default: false.
    pub expandable_segments: bool,
    /// Fraction of the device's memory that the process may use; 1, the default, means no limit.
    pub per_process_memory_fraction: f64,
    /// True if a request that would most likely fail is rejected without a driver call. Default: false.
    pub throw_on_cudamalloc_oom: bool,
    /// Options for page-locked host memory.
    pub pinned: PinnedOptions,
}

/// Options for allocating page-locked host memory.
///
/// The example of [`AllocatorOptions`] sets one. [`PinnedMemory::configure`](crate::PinnedMemory::configure)
/// applies them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PinnedOptions {
    /// True if a background thread reclaims freed blocks that the device no longer uses
    /// (`pinned_use_background_threads`). Default: false.
    pub use_background_threads: bool,
    /// Size of a segment that is allocated on first use and serves later requests (`pinned_reserve_segment_size_mb`).
    /// Default: 0, which disables the segment.
    pub reserve_segment_size: u64,
    /// Size above which requests are not rounded to a size class (`pinned_max_round_threshold_mb`). Default: no limit.
    pub max_round_threshold: Option<u64>,
    /// Size above which freed blocks are returned to the driver (`pinned_max_cached_size_mb`). Default: no limit.
    pub max_cached_size: Option<u64>,
}

/// The allocator of device memory.
///
/// ```
/// use warpsmith_runtime::AllocatorOptions;
/// use warpsmith_runtime::memory::options::Backend;
///
/// let options = AllocatorOptions::default().with("backend:cudaMallocAsync")?;
/// assert_eq!(options.backend, Backend::StreamOrdered);
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Backend {
    /// The allocator of this crate (`native`).
    #[default]
    Native,
    /// The driver's stream-ordered allocator (`cudaMallocAsync`).
    StreamOrdered,
}

impl Backend {
    /// Returns the backend's name in the option text.
    pub fn name(self) -> &'static str {
        match self {
            Backend::Native => "native",
            Backend::StreamOrdered => "cudaMallocAsync",
        }
    }
}

impl Default for AllocatorOptions {
    fn default() -> Self {
        Self {
            backend: Backend::Native,
            caching: true,
            max_split_size: None,
            max_non_split_rounding: MIN_ROUNDING,
            large_segment_size: 20 * MIB,
            roundup_power2_divisions: [0; 16],
            garbage_collection_threshold: 0.0,
            expandable_segments: false,
            per_process_memory_fraction: 1.0,
            throw_on_cudamalloc_oom: false,
            pinned: PinnedOptions::default(),
        }
    }
}

impl AllocatorOptions {
    /// Reads the options from environment variables.
    ///
    /// Only the first variable that is set is read, in the order `WARPSMITH_ALLOC_CONF`, `PYTORCH_CUDA_ALLOC_CONF`,
    /// `PYTORCH_ALLOC_CONF`. Caching is disabled if `WARPSMITH_NO_MEMORY_CACHING` or `PYTORCH_NO_CUDA_MEMORY_CACHING`
    /// is set to any value.
    ///
    /// # Errors
    /// Returns the same errors as [`AllocatorOptions::with`], naming the variable.
    pub fn from_environment() -> Result<Self> {
        Self::from_variables(|name| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned()))
    }

    /// Like [`AllocatorOptions::from_environment`], but gets the variables from `get`.
    ///
    /// # Errors
    /// Returns the same errors as [`AllocatorOptions::from_environment`].
    pub fn from_variables(get: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let mut options = Self::default();
        let set = OPTION_VARIABLES.into_iter().find_map(|name| get(name).map(|value| (name, value)));
        if let Some((variable, value)) = set {
            options = options.with(&value).map_err(|error| name_variable(error, variable))?;
        }
        if NO_CACHING_VARIABLES.into_iter().any(|name| get(name).is_some()) {
            options.caching = false;
        }
        Ok(options)
    }

    /// Returns these options with the changes in `text`, which consists of comma-separated `name:value` pairs. White
    /// space around names and values is ignored. If a name occurs twice, the last value applies. PyTorch options that
    /// have no effect in this crate are ignored, with one warning each.
    ///
    /// # Errors
    /// Returns [`Error::UnknownAllocatorOption`] for an unknown name, [`Error::AllocatorOption`] for text that is not a
    /// pair or for a value that the option does not accept, or the same errors as [`AllocatorOptions::check`].
    pub fn with(&self, text: &str) -> Result<Self> {
        let mut options = self.clone();
        text::apply(&mut options, text)?;
        Ok(options)
    }

    /// Checks that each value is within its range and that the values are consistent.
    ///
    /// # Errors
    /// Returns [`Error::AllocatorOption`] for the first invalid value.
    pub fn check(&self) -> Result<()> {
        let fail = |name: &str, reason: String| Err(text::bad(name, text::value_of(self, name), reason));

        let pinned = &self.pinned;
        for (name, bytes) in [
            ("large_segment_size_mb", Some(self.large_segment_size)),
            ("max_split_size_mb", self.max_split_size),
            ("max_non_split_rounding_mb", Some(self.max_non_split_rounding)),
            ("pinned_reserve_segment_size_mb", Some(pinned.reserve_segment_size)),
            ("pinned_max_round_threshold_mb", pinned.max_round_threshold),
            ("pinned_max_cached_size_mb", pinned.max_cached_size),
        ] {
            if let Some(bytes) = bytes.filter(|bytes| !bytes.is_multiple_of(MIB)) {
                return fail(name, format!("{bytes} bytes are not a whole number of MiB"));
            }
        }
        if self.large_segment_size <= MIB {
            return fail("large_segment_size_mb", "must be more than 1".to_owned());
        }
        if self.max_split_size.is_some_and(|size| size < self.large_segment_size) {
            let minimum = self.large_segment_size / MIB;
            return fail("max_split_size_mb", format!("must be at least large_segment_size_mb ({minimum})"));
        }
        if self.max_non_split_rounding < MIN_ROUNDING {
            return fail("max_non_split_rounding_mb", format!("must be at least {}", MIN_ROUNDING / MIB));
        }
        let divisions = self.roundup_power2_divisions;
        if let Some(number) = divisions.into_iter().find(|&number| number != 0 && !number.is_power_of_two()) {
            return fail(
                "roundup_power2_divisions",
                format!("{number} divisions: must be a power of 2, or 0 for no rounding"),
            );
        }
        let threshold = self.garbage_collection_threshold;
        if threshold != 0.0 && !(threshold > 0.0 && threshold < 1.0) {
            return fail("garbage_collection_threshold", value::THRESHOLD_RANGE.to_owned());
        }
        if !(0.0..=1.0).contains(&self.per_process_memory_fraction) {
            return fail("per_process_memory_fraction", "must be from 0 to 1".to_owned());
        }
        Ok(())
    }
}

/// Adds the name of the environment variable to the error.
fn name_variable(error: Error, variable: &str) -> Error {
    match error {
        Error::AllocatorOption { option, value, reason } => {
            Error::AllocatorOption { option, value, reason: format!("{reason} (in {variable})") }
        }
        Error::UnknownAllocatorOption { option, known } => {
            Error::UnknownAllocatorOption { option, known: format!("{known} (in {variable})") }
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(set: &[(&str, &str)]) -> Result<AllocatorOptions> {
        AllocatorOptions::from_variables(|name| {
            set.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        })
    }

    fn refusal(options: &AllocatorOptions) -> String {
        options.check().unwrap_err().to_string()
    }

    #[test]
    fn no_variables_give_the_defaults_which_pass_the_check() {
        assert_eq!(variables(&[]).unwrap(), AllocatorOptions::default());
        AllocatorOptions::default().check().unwrap();
    }

    #[test]
    fn only_the_first_variable_that_is_set_is_read() {
        let (ours, cuda, plain) = (
            ("WARPSMITH_ALLOC_CONF", "max_split_size_mb:21"),
            ("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:22"),
            ("PYTORCH_ALLOC_CONF", "max_split_size_mb:23"),
        );
        let size = |set: &[(&str, &str)]| variables(set).unwrap().max_split_size.map(|size| size / MIB);
        assert_eq!(size(&[plain, cuda, ours]), Some(21));
        assert_eq!(size(&[plain, cuda]), Some(22));
        assert_eq!(size(&[plain]), Some(23));
        assert_eq!(size(&[("WARPSMITH_ALLOC_CONF", ""), cuda]), None, "empty is set, too");
        assert_eq!(size(&[cuda, ("PYTORCH_ALLOC_CONF", "not read")]), Some(22));
    }

    #[test]
    fn either_variable_turns_caching_off_whatever_its_value() {
        for name in ["WARPSMITH_NO_MEMORY_CACHING", "PYTORCH_NO_CUDA_MEMORY_CACHING"] {
            for value in ["", "0", "1"] {
                let options = variables(&[(name, value), ("PYTORCH_ALLOC_CONF", "caching:True")]).unwrap();
                assert_eq!(options, AllocatorOptions { caching: false, ..Default::default() });
            }
        }
    }

    #[test]
    fn an_error_from_a_variable_names_it() {
        let error = variables(&[("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:2")]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "allocator option `max_split_size_mb`: invalid value `2`: must be at least large_segment_size_mb \
             (20) (in PYTORCH_CUDA_ALLOC_CONF)"
        );
        let error = variables(&[("WARPSMITH_ALLOC_CONF", "foo:1")]).unwrap_err().to_string();
        assert!(error.starts_with("unknown allocator option `foo`"), "{error}");
        assert!(error.ends_with(" (in WARPSMITH_ALLOC_CONF)"), "{error}");
    }

    #[test]
    fn the_variables_of_the_process_are_read() {
        const MARK: &str = "WARPSMITH_TEST_OPTIONS_CHILD";
        if std::env::var_os(MARK).is_some() {
            let options = AllocatorOptions::from_environment().unwrap();
            assert_eq!(options.to_string(), "caching:False,max_split_size_mb:64");
            return;
        }
        let module = module_path!().split_once("::").unwrap().1;
        let child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", &format!("{module}::the_variables_of_the_process_are_read")])
            .env(MARK, "1")
            .env("WARPSMITH_ALLOC_CONF", "max_split_size_mb:64")
            .env("WARPSMITH_NO_MEMORY_CACHING", "")
            .output()
            .unwrap();
        let output = String::from_utf8_lossy(&child.stdout);
        assert!(child.status.success() && output.contains("1 passed"), "{output}");
    }

    #[test]
    fn the_check_refuses_values_that_no_text_can_give() {
        let default = AllocatorOptions::default;
        assert_eq!(
            refusal(&AllocatorOptions { max_non_split_rounding: 20 * MIB + 512, ..default() }),
            "allocator option `max_non_split_rounding_mb`: invalid value `20`: 20972032 bytes are not a whole \
             number of MiB"
        );
        let fraction = f64::NAN;
        assert_eq!(
            refusal(&AllocatorOptions { per_process_memory_fraction: fraction, ..default() }),
            "allocator option `per_process_memory_fraction`: invalid value `NaN`: must be from 0 to 1"
        );
        let pinned = PinnedOptions { max_cached_size: Some(1), ..PinnedOptions::default() };
        assert!(
            refusal(&AllocatorOptions { pinned, ..default() })
                .contains("`pinned_max_cached_size_mb`: invalid value `0`")
        );
    }
}
