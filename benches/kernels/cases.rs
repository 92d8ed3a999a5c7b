//! Benchmark cases: operations, each with a type and a size.

use std::fmt;

/// Element type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dtype {
    F32,
    Bf16,
    U32,
}

impl Dtype {
    pub fn bytes(self) -> usize {
        match self {
            Self::Bf16 => 2,
            Self::F32 | Self::U32 => 4,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::U32 => "u32",
        }
    }
}

/// Operation on one type and size.
#[derive(Debug, Clone)]
pub struct Case {
    pub operation: &'static str,
    pub dtype: Dtype,
    pub rows: usize,
    pub columns: usize,
}

/// Formats the operation, the type and the sides as `kernels.py` also does.
impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\t{}\t{}\t{}", self.operation, self.dtype.name(), self.rows, self.columns)
    }
}

impl Case {
    fn new(operation: &'static str, dtype: Dtype, (rows, columns): (usize, usize)) -> Self {
        Self { operation, dtype, rows, columns }
    }

    pub fn elements(&self) -> usize {
        self.rows * self.columns
    }

    /// Returns the number of elements that the operation writes to `out` or returns as the value of a reduction.
    pub fn results(&self) -> usize {
        match self.operation {
            "row_sum" => self.rows,
            "column_sum" => self.columns,
            "sum" | "max" | "argmax" | "histogram" => 1,
            _ => self.elements(),
        }
    }

    /// Returns true if the results are an array (`out`) of the element type.
    pub fn has_array(&self) -> bool {
        !matches!(self.operation, "row_sum" | "column_sum" | "sum" | "max" | "argmax" | "histogram")
    }

    pub fn has_second_input(&self) -> bool {
        self.operation == "add"
    }

    /// Returns the number of elements that are read and written per element of the size.
    fn traffic(&self) -> f64 {
        match self.operation {
            "axpy" | "add" => 3.0,
            "sum" | "max" | "argmax" | "row_sum" | "column_sum" | "histogram" | "fill" => 1.0,
            // Half of the elements are selected.
            "select_if" => 1.5,
            _ => 2.0,
        }
    }

    pub fn bytes(&self) -> f64 {
        self.traffic() * (self.elements() * self.dtype.bytes()) as f64
    }

    /// Returns the operation, the type and the size, as messages and filters name the case.
    pub fn name(&self) -> String {
        format!("{} {} {}", self.operation, self.dtype.name(), self.size())
    }

    pub fn size(&self) -> String {
        match (self.rows, self.columns) {
            (1, n) if n.is_power_of_two() => format!("2^{}", n.ilog2()),
            (1, n) => n.to_string(),
            (rows, columns) => format!("{rows} × {columns}"),
        }
    }
}

const FLOATS: [Dtype; 2] = [Dtype::F32, Dtype::Bf16];
/// Elementwise operations.
pub const ELEMENTWISE: [&str; 5] = ["relu", "gelu", "exp", "add", "axpy"];
/// Row operations that write one row per row.
pub const OF_ROWS: [&str; 3] = ["softmax", "layer_norm", "rms_norm"];

/// Returns all cases on a GPU. On the emulated device, returns small cases that only check that everything runs
/// correctly.
pub fn cases(is_emulated: bool) -> Vec<Case> {
    use Dtype::{Bf16, F32, U32};
    let mut cases = Vec::new();
    let mut flat = |operation, dtypes: &[Dtype], logs: &[u32]| {
        for &dtype in dtypes {
            for &log in if is_emulated { &[13][..] } else { logs } {
                cases.push(Case::new(operation, dtype, (1, 1 << log)));
            }
        }
    };
    flat("copy", &[F32], &[12, 16, 20, 24, 28, 29]);
    flat("copy_unaligned", &[F32], &[28]);
    flat("copy_unaligned", &[Bf16], &[29]);
    flat("fill", &[F32], &[28]);
    for operation in ELEMENTWISE {
        flat(operation, &FLOATS, &[12, 14, 16, 18, 20, 22, 28]);
    }
    flat("sum", &[F32], &[16, 20, 24, 28]);
    flat("max", &[F32], &[16, 20, 24, 28]);
    flat("sum", &[Bf16], &[28]);
    flat("max", &[Bf16], &[28]);
    flat("argmax", &FLOATS, &[24, 28]);
    flat("scan", &[F32], &[16, 20, 24, 28]);
    flat("scan", &[Bf16], &[28]);
    flat("sort", &[U32], &[16, 20, 24, 28]);
    flat("select_if", &[F32], &[20, 24, 28]);
    flat("histogram", &[F32], &[20, 24, 28]);
    if is_emulated {
        for operation in ["transpose", "row_sum", "column_sum"].into_iter().chain(OF_ROWS) {
            for dtype in FLOATS {
                cases.push(Case::new(operation, dtype, (9, 1030)));
            }
        }
        return cases;
    }
    for sides in [(4096, 4096), (8192, 8192), (16384, 16384), (32768, 32768)] {
        cases.push(Case::new("transpose", F32, sides));
    }
    for sides in [(4097, 4097), (16383, 16383), (10_000, 30_001)] {
        cases.push(Case::new("transpose", F32, sides));
    }
    cases.push(Case::new("transpose", Bf16, (16384, 16384)));
    for operation in ["row_sum", "column_sum"] {
        // These are 0.25, 1 and 4 GiB.
        for log in [26, 28, 30] {
            for columns in [5, 8, 10, 12, 15, 20] {
                cases.push(Case::new(operation, F32, (1 << (log - columns), 1 << columns)));
            }
        }
        cases.push(Case::new(operation, F32, (100_003, 1001)));
        cases.push(Case::new(operation, F32, (1001, 300_007)));
    }
    for operation in OF_ROWS {
        for dtype in FLOATS {
            for columns in 10..=17 {
                cases.push(Case::new(operation, dtype, (1 << (27 - columns), 1 << columns)));
            }
        }
    }
    cases
}
