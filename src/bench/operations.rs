//! Benchmarks of the operations in [`ops`](crate::ops): their names, types, tuning spaces and bytes moved.
//!
//! Each operation has its kernel's name in the source, so that it can be found in the report of the GPU image. A type
//! is listed only if the kernel has an instance for it.

use gpu_spec::KernelSpec;
use warpsmith_runtime::{Device, GpuImage};
use warpsmith_tuner::benchmark::{Benchmark, Setup, Work};
use warpsmith_tuner::case::Case;
use warpsmith_tuner::error::{Error, Result};
use warpsmith_tuner::space::Space;
use warpsmith_tuner::value::Configuration;

use super::prepare::prepare;
use crate::ops::{self, Config};

/// Names and sizes, in bytes, of the element types.
const DTYPES: [(&str, u64); 8] =
    [("f32", 4), ("f64", 8), ("f16", 2), ("bf16", 2), ("i32", 4), ("u32", 4), ("i64", 8), ("u64", 8)];

/// An operation that can be measured.
///
/// See the example of [`suite`](super::suite).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operation {
    name: &'static str,
    /// The kernel that implements the operation.
    kernel: &'static str,
    summary: &'static str,
    /// Number of elements read per element of the problem size.
    reads: u64,
    /// Number of elements written per element of the problem size.
    writes: u64,
    /// Number of problem-size arrays that one launch accesses. An array that is updated in place counts once.
    arrays: u64,
    /// True if only half of the output is written.
    writes_half: bool,
    /// Floating-point operations per element of the problem size. It is 0 for pure data movement and for functions
    /// whose operation count depends on the implementation.
    flops: u64,
}

const fn operation(
    name: &'static str,
    summary: &'static str,
    reads: u64,
    writes: u64,
    arrays: u64,
    flops: u64,
) -> Operation {
    Operation { name, kernel: name, summary, reads, writes, arrays, flops, writes_half: false }
}

/// Defines an operation that shares its kernel with other operations.
const fn served(kernel: &'static str, operation: Operation) -> Operation {
    Operation { kernel, ..operation }
}

/// All operations that can be measured.
pub const OPERATIONS: [Operation; 37] = [
    operation("copy", "y = x", 1, 1, 2, 0),
    operation("fill", "y = value", 0, 1, 1, 0),
    operation("axpy", "y = a x + y", 2, 1, 2, 2),
    operation("add", "z = x + y", 2, 1, 3, 1),
    operation("mul", "z = x y", 2, 1, 3, 1),
    operation("fma", "w = x y + z", 3, 1, 4, 2),
    operation("relu", "y = max(x, 0)", 1, 1, 2, 1),
    operation("gelu", "y = x Φ(x)", 1, 1, 2, 0),
    operation("sigmoid", "y = 1 / (1 + exp(-x))", 1, 1, 2, 0),
    operation("exp", "y = exp(x)", 1, 1, 2, 0),
    served("unary", operation("neg", "y = -x", 1, 1, 2, 0)),
    served("unary", operation("sqrt", "y = √x", 1, 1, 2, 0)),
    served("unary", operation("log", "y = ln(x)", 1, 1, 2, 0)),
    served("unary", operation("sin", "y = sin(x)", 1, 1, 2, 0)),
    served("unary", operation("tanh", "y = tanh(x)", 1, 1, 2, 0)),
    served("unary", operation("silu", "y = x / (1 + exp(-x))", 1, 1, 2, 0)),
    served("unary", operation("gelu_tanh", "gelu, tanh approximation", 1, 1, 2, 0)),
    served("unary", operation("floor", "y = ⌊x⌋", 1, 1, 2, 0)),
    served("binary", operation("sub", "z = x - y", 2, 1, 3, 1)),
    served("binary", operation("div", "z = x / y", 2, 1, 3, 1)),
    served("binary", operation("maximum", "z = max(x, y)", 2, 1, 3, 1)),
    served("binary", operation("pow", "z = x to the power y", 2, 1, 3, 0)),
    operation("clamp", "y = min(max(x, 0), 1)", 1, 1, 2, 0),
    operation("lerp", "z = x + 0.25 (y - x)", 2, 1, 3, 2),
    operation("uniform", "random numbers in [0, 1)", 0, 1, 1, 0),
    operation("normal", "normal random numbers", 0, 1, 1, 0),
    operation("reduce_sum", "sum of all elements", 1, 0, 1, 1),
    operation("reduce_prod", "product of all elements", 1, 0, 1, 1),
    operation("reduce_min", "smallest element", 1, 0, 1, 1),
    operation("reduce_max", "largest element", 1, 0, 1, 1),
    operation("reduce_argmin", "index of the first smallest element", 1, 0, 1, 1),
    operation("reduce_argmax", "index of the first largest element", 1, 0, 1, 1),
    operation("scan_sum", "running sum", 1, 1, 2, 1),
    operation("scan_min", "running minimum", 1, 1, 2, 1),
    operation("scan_max", "running maximum", 1, 1, 2, 1),
    operation("compact_compared", "elements above a limit, about half", 1, 1, 2, 0).writes_half(),
    operation("histogram_even", "counts in 256 bins of equal width", 1, 0, 1, 0),
];

impl Operation {
    const fn writes_half(self) -> Self {
        Self { writes_half: true, ..self }
    }
}

impl Benchmark for Operation {
    fn name(&self) -> &str {
        self.name
    }

    fn summary(&self) -> &str {
        self.summary
    }

    fn image(&self) -> &'static GpuImage {
        &crate::IMAGE
    }

    fn dtypes(&self) -> Vec<&'static str> {
        // `copy` and `fill` have one instance per element size, which serves all types of that size.
        let has_instances = |dtype: &&'static str| !ops::instances_of(self.kernel, dtype).is_empty();
        DTYPES.iter().map(|&(dtype, _)| dtype).filter(has_instances).collect()
    }

    fn space(&self, dtype: &str, device: &Device) -> Space {
        let instances = ops::instances_of(self.kernel, dtype);
        if device.is_emulated() {
            // A launch takes milliseconds on the emulated device, so the tuning space is small.
            return Space::new()
                .axis("block", [64, 256])
                .axis("grid", ["auto"])
                .instances(&instances)
                .restrict("accesses of 16 bytes", |c| c.number("vector").is_ok_and(|bytes| bytes == 16));
        }
        Space::new()
            .axis("block", [64, 128, 256, 512])
            .axis("grid", ["auto", "waves:1", "waves:2", "waves:4", "waves:8"])
            .instances(&instances)
    }

    fn default_configuration(&self, dtype: &str, n: u64, device: &Device) -> Configuration {
        configuration(&ops::default_config(self.kernel, element_bytes(dtype) as usize, n as usize, device))
    }

    fn work(&self, dtype: &str, n: u64) -> Work {
        let array = n.saturating_mul(element_bytes(dtype));
        let written = array.saturating_mul(self.writes) / if self.writes_half { 2 } else { 1 };
        Work {
            bytes: array.saturating_mul(self.reads).saturating_add(written),
            flops: if is_float(dtype) { n.saturating_mul(self.flops) } else { 0 },
            footprint: array.saturating_mul(self.arrays),
            // The check also allocates memory for the initial contents of the outputs.
            spare: array.saturating_mul(self.writes),
        }
    }

    fn instance(&self, dtype: &str, configuration: &Configuration) -> Option<&'static KernelSpec> {
        warpsmith_tuner::space::instance(&ops::instances_of(self.kernel, dtype), configuration)
    }

    fn prepare(&self, setup: &Setup<'_>) -> Result<Box<dyn Case>> {
        let unknown = || Error::UnknownDtype {
            dtype: setup.dtype.to_owned(),
            kernel: self.name.to_owned(),
            known: self.dtypes().into_iter().map(str::to_owned).collect(),
        };
        prepare(self.name, setup)?.ok_or_else(unknown)
    }
}

/// Converts an operation's configuration to values on the axes of its tuning space.
pub fn configuration(config: &Config) -> Configuration {
    let Config { block, grid, items, vector } = *config;
    let start = Configuration::default().with("block", block).with("grid", grid.to_string());
    start.with("items", items).with("vector", vector)
}

/// Converts values on the axes of a tuning space to an operation's configuration.
///
/// # Errors
/// Returns an error if a value is missing or invalid.
pub fn config(
    configuration: &Configuration,
) -> std::result::Result<Config, Box<dyn std::error::Error + Send + Sync>> {
    let number = |axis| configuration.number(axis);
    let grid = configuration.get("grid").map_or_else(|| "auto".to_owned(), ToString::to_string);
    Ok(Config {
        block: number("block")?,
        grid: grid.parse()?,
        items: number("items")?,
        vector: number("vector")?,
    })
}

/// Returns whether operations on elements of this type are floating-point operations.
fn is_float(dtype: &str) -> bool {
    matches!(dtype, "f32" | "f64" | "f16" | "bf16")
}

/// Returns the size of an element in bytes, or 0 if the name is not a type.
fn element_bytes(dtype: &str) -> u64 {
    DTYPES.iter().find(|&&(name, _)| name == dtype).map_or(0, |&(_, bytes)| bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::{benchmark, suite};

    #[test]
    fn every_operation_has_instances() {
        let suite = suite(Vec::new());
        for operation in OPERATIONS {
            assert!(operation.dtypes().contains(&"f32"), "{}", operation.name);
            assert_eq!(suite.find(operation.name).unwrap().name(), operation.name);
            let short = operation.name.trim_start_matches("reduce_");
            assert_eq!(suite.find(short).unwrap().name(), operation.name);
        }
        assert!(!suite.find("axpy").unwrap().dtypes().contains(&"u32"));
        assert!(suite.find("copy").unwrap().dtypes().contains(&"bf16"));
    }

    #[test]
    fn a_misspelt_kernel_or_type_gets_a_hint() {
        let suite = suite(Vec::new());
        let message = |name: &str| suite.find(name).err().unwrap().to_string();
        assert!(message("reduce_sun").contains("did you mean reduce_sum"), "{}", message("reduce_sun"));
        assert!(message("axpi").contains("axpy"));
        assert!(message("zzzz").contains("copy, fill, axpy"));
        let message = benchmark::dtype(suite.find("axpy").unwrap(), "f8").unwrap_err().to_string();
        assert!(message.contains("\"f8\"") && message.contains("f32, f64, f16, bf16"), "{message}");
    }

    #[test]
    fn work_counts_reads_writes_and_arrays() {
        let work = |name: &str, dtype: &str, n| {
            OPERATIONS.iter().find(|operation| operation.name == name).unwrap().work(dtype, n)
        };
        assert_eq!((work("axpy", "f32", 10).bytes, work("axpy", "f32", 10).footprint), (120, 80));
        assert_eq!(work("reduce_sum", "bf16", 10).bytes, 20);
        assert_eq!(work("copy", "f64", u64::MAX / 2).bytes, u64::MAX);
        let flops = |name: &str, dtype: &str| work(name, dtype, 10).flops;
        assert_eq!((flops("axpy", "f32"), flops("fma", "bf16"), flops("reduce_max", "f64")), (20, 20, 10));
        assert_eq!((flops("copy", "f32"), flops("gelu", "f32"), flops("reduce_sum", "i32")), (0, 0, 0));
    }

    #[test]
    fn every_default_is_launchable_and_reads_back() {
        let device = Device::emulated(0).unwrap();
        for operation in OPERATIONS {
            let default = operation.default_configuration("f32", 1000, &device);
            assert!(operation.instance("f32", &default).is_some(), "{}: {default}", operation.name);
            assert_eq!(configuration(&config(&default).unwrap()), default);
            let space = operation.space("f32", &device).configurations(operation.name).unwrap();
            assert!(!space.is_empty());
        }
    }
}
