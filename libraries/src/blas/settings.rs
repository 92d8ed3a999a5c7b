//! [`Math`]: precision settings. [`Workspaces`]: cuBLAS workspace sizes.

use std::sync::PoisonError;

use super::State;
use warpsmith_runtime::device::Device;

/// Precision of matrix products. [`set_math`] sets a device's default, which a call can override.
///
/// | field | setting in `torch` |
/// | --- | --- |
/// | `allow_tf32` | `torch.backends.cuda.matmul.allow_tf32`, `fp32_precision = "tf32"`, `set_float32_matmul_precision("high")` |
/// | `allow_fp16_reduced_precision_reduction` | `torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction` |
/// | `allow_bf16_reduced_precision_reduction` | `torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction` |
/// | `deterministic` | `torch.use_deterministic_algorithms` |
///
/// The emulated device always computes as if every flag were false.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Math {
    /// True if `f32` inputs may be rounded to TF32 (10 mantissa bits) for tensor cores on compute capability 8.0 and
    /// later. TF32 is about 8 times as fast, but has relative errors of about 1e-3. The default is false.
    pub allow_tf32: bool,
    /// True if partial sums of `f16` products may be added in `f16`. The default is true.
    pub allow_fp16_reduced_precision_reduction: bool,
    /// True if partial sums of `bf16` products may be added in `bf16`. The default is true.
    pub allow_bf16_reduced_precision_reduction: bool,
    /// True if repeating a call must give bit-identical results on the same GPU with the same library version. cuBLAS
    /// always guarantees this, because each stream has its own workspace. If the flag is set, [`matmul`](super::matmul)
    /// does not use algorithms that were chosen by timing, or algorithms that add partial sums in arbitrary order. The
    /// default is false.
    pub deterministic: bool,
}

impl Default for Math {
    fn default() -> Self {
        Self {
            allow_tf32: false,
            allow_fp16_reduced_precision_reduction: true,
            allow_bf16_reduced_precision_reduction: true,
            deterministic: false,
        }
    }
}

/// Returns the default precision for calls on this device.
pub fn math(device: &Device) -> Math {
    *State::of(device).math.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sets the default precision for later calls on this device.
///
/// ```
/// use warpsmith_libraries::blas::{self, Math};
///
/// let device = warpsmith_runtime::Device::emulated(0)?;
/// let before = blas::math(&device);
/// assert!(!before.allow_tf32);
/// blas::set_math(&device, Math { allow_tf32: true, ..before });
/// # blas::set_math(&device, before);
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
pub fn set_math(device: &Device, math: Math) {
    *State::of(device).math.lock().unwrap_or_else(PoisonError::into_inner) = math;
}

/// Sizes of the cuBLAS and cuBLASLt workspaces that each stream allocates from the caching allocator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workspaces {
    /// Size of the cuBLAS workspace in bytes, from `CUBLAS_WORKSPACE_CONFIG`, which contains one or more `:KIB:COUNT`
    /// pairs. The default is 32 MiB on compute capability 9.0, and 8.125 MiB on all others.
    pub cublas: usize,
    /// Maximum size of the cuBLASLt workspace in bytes, from `CUBLASLT_WORKSPACE_SIZE` (in KiB). The default is the
    /// size of the cuBLAS workspace.
    pub cublas_lt: usize,
    /// Problem with the environment variables, or `None`. If there is a problem, the defaults apply.
    pub warning: Option<String>,
}

/// Returns the workspace settings, read from the environment on first use.
pub fn workspaces(device: &Device) -> &Workspaces {
    State::of(device).workspaces.get_or_init(|| {
        let text = |name| std::env::var(name).ok();
        Workspaces::parse(
            device.capability(),
            text("CUBLAS_WORKSPACE_CONFIG").as_deref(),
            text("CUBLASLT_WORKSPACE_SIZE").as_deref(),
        )
    })
}

impl Workspaces {
    fn parse(capability: (u32, u32), config: Option<&str>, lt_size: Option<&str>) -> Self {
        let default = if capability.0 == 9 { 32 << 20 } else { (4096 * 2 + 16 * 8) << 10 };
        let mut warnings = Vec::new();
        let cublas = config.and_then(|config| {
            let sum = sum_of_pairs(config);
            if sum.is_none() {
                warnings.push(format!(
                    "CUBLAS_WORKSPACE_CONFIG={config:?} is not a list of `:KIB:COUNT` such as `:4096:8`; the default \
                     of {default} bytes is used"
                ));
            }
            sum
        });
        let cublas = cublas.unwrap_or(default);
        let cublas_lt = lt_size.and_then(|size| {
            let bytes = size.trim().parse().ok().and_then(|kib: usize| kib.checked_mul(1024));
            if bytes.is_none() {
                warnings.push(format!(
                    "CUBLASLT_WORKSPACE_SIZE={size:?} is not a number of KiB; {cublas} bytes are used"
                ));
            }
            bytes
        });
        let warning = (!warnings.is_empty()).then(|| warnings.join("; "));
        Self { cublas, cublas_lt: cublas_lt.unwrap_or(cublas), warning }
    }
}

/// Returns the sum, in bytes, of all `:KIB:COUNT` pairs in `text`, or `None` if it contains no pair or the sum
/// overflows.
fn sum_of_pairs(text: &str) -> Option<usize> {
    let number = |text: &str| -> Option<(usize, usize)> {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        Some((text.get(..digits)?.parse().ok()?, digits))
    };
    let (mut sum, mut rest, mut found) = (0usize, text, false);
    while let Some(colon) = rest.find(':') {
        rest = &rest[colon + 1..];
        let Some((kib, digits)) = number(rest) else { continue };
        let Some(after) = rest[digits..].strip_prefix(':') else { continue };
        let Some((count, digits)) = number(after) else { continue };
        sum = sum.checked_add(kib.checked_mul(1024)?.checked_mul(count)?)?;
        (rest, found) = (&after[digits..], true);
    }
    found.then_some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workspaces_are_the_sum_of_all_pairs() {
        let parse = |text| Workspaces::parse((8, 0), Some(text), None);
        assert_eq!(parse(":128:8:64:16:32:32").cublas, 3072 << 10);
        assert_eq!(parse(":4096:8").cublas, 32 << 20);
        assert_eq!(parse("so :16:8 and :1:2:").cublas, 130 << 10);
        assert_eq!(parse(":0:0").cublas, 0);
        assert_eq!(parse("::16:8").cublas, 128 << 10);
    }

    #[test]
    fn malformed_sizes_give_the_default_and_a_warning() {
        let default = Workspaces::parse((8, 6), None, None);
        assert_eq!((default.cublas, default.cublas_lt, default.warning), (8_519_680, 8_519_680, None));
        assert_eq!(Workspaces::parse((9, 0), None, None).cublas, 32 << 20);
        for text in ["", "4096:8", ":4096", ":a:b", ":99999999999999999999:1", ":18014398509481984:2"] {
            let parsed = Workspaces::parse((8, 6), Some(text), None);
            assert_eq!(parsed.cublas, 8_519_680, "{text}");
            assert!(
                parsed.warning.is_some_and(|warning| warning.contains("CUBLAS_WORKSPACE_CONFIG")),
                "{text}"
            );
        }
        assert_eq!(Workspaces::parse((9, 0), None, Some("1024")).cublas_lt, 1 << 20);
        let parsed = Workspaces::parse((9, 0), Some(":16:8"), Some("much"));
        assert_eq!((parsed.cublas, parsed.cublas_lt), (128 << 10, 128 << 10));
        assert!(parsed.warning.is_some_and(|warning| warning.contains("CUBLASLT_WORKSPACE_SIZE")));
    }
}
