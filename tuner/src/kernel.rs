//! The kernels that can be measured: their names, types and the bytes they move.
//!
//! Guarantees: a name here is the kernel's name in the source, so that it can be found in the GPU image's
//! report; a type is listed only when an instance for it exists.

use warpsmith::ops::{Variant, variants};

use crate::error::{Error, Result};

/// Element types by name, with their size in bytes.
const DTYPES: [(&str, u64); 8] =
    [("f32", 4), ("f64", 8), ("f16", 2), ("bf16", 2), ("i32", 4), ("u32", 4), ("i64", 8), ("u64", 8)];

/// A kernel that can be measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kernel {
    /// Its name in the source and on the command line.
    pub name: &'static str,
    /// What it does, in a few words.
    pub summary: &'static str,
    /// Elements read per element of the size.
    pub reads: u64,
    /// Elements written per element of the size.
    pub writes: u64,
    /// Arrays of the size that one launch works on: one fewer than read and written where one is updated.
    pub arrays: u64,
}

const fn kernel(name: &'static str, summary: &'static str, reads: u64, writes: u64, arrays: u64) -> Kernel {
    Kernel { name, summary, reads, writes, arrays }
}

/// Every kernel that can be measured.
pub const KERNELS: [Kernel; 16] = [
    kernel("copy", "y = x", 1, 1, 2),
    kernel("fill", "y = value", 0, 1, 1),
    kernel("axpy", "y = a x + y", 2, 1, 2),
    kernel("add", "z = x + y", 2, 1, 3),
    kernel("mul", "z = x y", 2, 1, 3),
    kernel("fma", "w = x y + z", 3, 1, 4),
    kernel("relu", "y = max(x, 0)", 1, 1, 2),
    kernel("gelu", "y = x Φ(x)", 1, 1, 2),
    kernel("sigmoid", "y = 1 / (1 + exp(-x))", 1, 1, 2),
    kernel("exp", "y = exp(x)", 1, 1, 2),
    kernel("reduce_sum", "sum of all elements", 1, 0, 1),
    kernel("reduce_prod", "product of all elements", 1, 0, 1),
    kernel("reduce_min", "least element", 1, 0, 1),
    kernel("reduce_max", "greatest element", 1, 0, 1),
    kernel("reduce_argmin", "index of the first least element", 1, 0, 1),
    kernel("reduce_argmax", "index of the first greatest element", 1, 0, 1),
];

impl Kernel {
    /// Finds a kernel by name; `reduce_` may be left out (`sum`, `argmax`).
    ///
    /// # Errors
    /// [`Error::UnknownKernel`] with the nearest names, or all of them when none is near.
    pub fn find(name: &str) -> Result<&'static Kernel> {
        let exact = KERNELS.iter().find(|k| k.name == name);
        exact.or_else(|| KERNELS.iter().find(|k| short(k.name) == name)).ok_or_else(|| Error::UnknownKernel {
            name: name.to_string(),
            hint: nearest(name, KERNELS.iter().map(|k| k.name)),
        })
    }

    /// The types there are instances for.
    pub fn dtypes(&self) -> Vec<&'static str> {
        // copy and fill have instances by element size, which serve every type of the size.
        DTYPES.iter().map(|&(name, _)| name).filter(|name| !self.variants(name).is_empty()).collect()
    }

    /// The name of type `text` as it is known here, if the kernel has it.
    ///
    /// # Errors
    /// [`Error::UnknownDtype`] with the types there are.
    pub fn dtype(&self, text: &str) -> Result<&'static str> {
        let known = self.dtypes();
        known.iter().copied().find(|&name| name == text).ok_or_else(|| Error::UnknownDtype {
            dtype: text.to_string(),
            kernel: self.name.to_string(),
            known: known.iter().map(|name| name.to_string()).collect(),
        })
    }

    /// The compiled instances for a type.
    pub fn variants(&self, dtype: &str) -> Vec<Variant> {
        variants(self.name, dtype)
    }

    /// Bytes that one launch over `n` elements must move; more than a `u64` holds counts as its highest value.
    pub fn bytes(&self, dtype: &str, n: u64) -> u64 {
        n.saturating_mul(element_bytes(dtype)).saturating_mul(self.reads + self.writes)
    }

    /// Bytes of device memory that one launch over `n` elements works on, saturating likewise.
    pub fn footprint(&self, dtype: &str, n: u64) -> u64 {
        n.saturating_mul(element_bytes(dtype)).saturating_mul(self.arrays)
    }
}

/// Size of an element in bytes; 0 for a name that is no type.
pub fn element_bytes(dtype: &str) -> u64 {
    DTYPES.iter().find(|&&(name, _)| name == dtype).map_or(0, |&(_, bytes)| bytes)
}

fn short(name: &str) -> &str {
    name.strip_prefix("reduce_").unwrap_or(name)
}

/// A sentence that helps someone who wrote `name` and meant one of `known`.
pub fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    let name = name.to_lowercase();
    let known: Vec<&str> = known.collect();
    let likeness = |candidate: &str| {
        strsim::jaro_winkler(&name, candidate).max(strsim::jaro_winkler(&name, short(candidate)))
    };
    let mut near: Vec<(f64, &str)> =
        known.iter().map(|&candidate| (likeness(candidate), candidate)).filter(|&(l, _)| l > 0.75).collect();
    near.sort_by(|a, b| b.0.total_cmp(&a.0));
    near.truncate(3);
    if near.is_empty() {
        format!("there are {}", known.join(", "))
    } else {
        format!("did you mean {}?", near.iter().map(|&(_, n)| n).collect::<Vec<_>>().join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kernel_has_instances() {
        for kernel in KERNELS {
            assert!(kernel.dtypes().contains(&"f32"), "{}", kernel.name);
            assert_eq!(Kernel::find(kernel.name).unwrap().name, kernel.name);
            assert_eq!(Kernel::find(short(kernel.name)).unwrap().name, kernel.name);
        }
        assert!(!Kernel::find("axpy").unwrap().dtypes().contains(&"u32"));
        assert!(Kernel::find("copy").unwrap().dtypes().contains(&"bf16"));
    }

    #[test]
    fn a_misspelt_kernel_gets_a_hint() {
        let message = Kernel::find("reduce_sun").unwrap_err().to_string();
        assert!(
            message.contains("\"reduce_sun\"") && message.contains("did you mean reduce_sum"),
            "{message}"
        );
        let message = Kernel::find("axpi").unwrap_err().to_string();
        assert!(message.contains("axpy"), "{message}");
        let message = Kernel::find("zzzz").unwrap_err().to_string();
        assert!(message.contains("copy, fill, axpy"), "{message}");
    }

    #[test]
    fn an_unknown_type_lists_those_there_are() {
        let message = Kernel::find("axpy").unwrap().dtype("f8").unwrap_err().to_string();
        assert!(message.contains("\"f8\"") && message.contains("f32, f64, f16, bf16"), "{message}");
    }

    #[test]
    fn bytes_count_reads_and_writes() {
        assert_eq!(Kernel::find("axpy").unwrap().bytes("f32", 10), 120);
        assert_eq!(Kernel::find("axpy").unwrap().footprint("f32", 10), 80);
        assert_eq!(Kernel::find("reduce_sum").unwrap().bytes("bf16", 10), 20);
        assert_eq!(Kernel::find("copy").unwrap().bytes("f64", u64::MAX / 2), u64::MAX);
    }
}
