//! Performance targets of the library, and the measured values.

use crate::cases::{Dtype, ELEMENTWISE, OF_ROWS};
use crate::report::copy_rate;
use crate::results::{Results, Row};

/// A performance target with its measured value.
pub struct Goal {
    pub what: String,
    pub wanted: f64,
    /// True if `wanted` is a maximum rather than a minimum.
    pub is_most: bool,
    /// `None` if a time that it needs was not measured.
    pub measured: Option<f64>,
}

impl Goal {
    pub fn is_met(&self) -> Option<bool> {
        self.measured
            .map(|measured| if self.is_most { measured <= self.wanted } else { measured >= self.wanted })
    }
}

/// Speedup over a side: its time divided by ours.
type Over = fn(&Row) -> Option<f64>;

fn over_cub(row: &Row) -> Option<f64> {
    Some(row.times.cub? / row.times.ours?)
}

fn over_torch(row: &Row) -> Option<f64> {
    Some(row.torch? / row.times.ours?)
}

fn rate(row: &Row) -> Option<f64> {
    row.times.ours.map(|us| row.gigabytes(us))
}

/// Rows that satisfy a condition.
struct Rows<'a>(Vec<&'a Row>);

impl Rows<'_> {
    fn least(&self, of: impl Fn(&Row) -> Option<f64>) -> Option<f64> {
        self.0.iter().filter_map(|row| of(row)).min_by(f64::total_cmp)
    }

    fn greatest(&self, of: impl Fn(&Row) -> Option<f64>) -> Option<f64> {
        self.0.iter().filter_map(|row| of(row)).max_by(f64::total_cmp)
    }

    /// Geometric mean.
    fn mean(&self, of: Over) -> Option<f64> {
        let logs: Vec<f64> = self.0.iter().filter_map(|row| of(row)).map(f64::ln).collect();
        (!logs.is_empty()).then(|| (logs.iter().sum::<f64>() / logs.len() as f64).exp())
    }
}

/// All targets, in the order of the tables.
pub fn goals(results: &Results) -> Vec<Goal> {
    let rows = |holds: &dyn Fn(&Row) -> bool| Rows(results.rows.iter().filter(|row| holds(row)).collect());
    let of = |operation: &'static str, dtype: Dtype, log: u32| {
        rows(&move |row| {
            let case = &row.case;
            case.operation == operation && case.dtype == dtype && case.elements() == 1 << log
        })
    };
    let rate_of = |operation, dtype, log| of(operation, dtype, log).least(rate);
    let ratio = |a: Option<f64>, b: Option<f64>| Some(a? / b?);
    let (f32, bf16) = (Dtype::F32, Dtype::Bf16);
    let copy = copy_rate(results);
    let mut goals = Vec::new();
    let mut least = |what: &str, wanted, measured| {
        goals.push(Goal { what: what.to_owned(), wanted, is_most: false, measured });
    };

    let long_copies = rows(&|row| row.case.operation == "copy" && row.case.elements() >= 1 << 28);
    least("copy of 1 GiB and more, × cudaMemcpyAsync, least", 1.0, long_copies.least(over_cub));
    let unaligned = ratio(rate_of("copy_unaligned", f32, 28), rate_of("copy", f32, 28));
    least("copy unaligned by an element, × aligned", 0.98, unaligned);
    let transposes = |is_ragged: bool| {
        rows(&move |row| row.case.operation == "transpose" && row.case.rows.is_power_of_two() != is_ragged)
    };
    least("transpose, × copy, least", 0.92, ratio(transposes(false).least(rate), copy));
    least("transpose of ragged sides, × copy, least", 0.85, ratio(transposes(true).least(rate), copy));

    let is_elementwise = |row: &Row| ELEMENTWISE.contains(&row.case.operation);
    let long = |dtype| {
        rows(&move |row| is_elementwise(row) && row.case.dtype == dtype && row.case.elements() == 1 << 28)
    };
    least("elementwise 2^28 f32, × CUB, least", 1.0, long(f32).least(over_cub));
    let narrow = ELEMENTWISE
        .into_iter()
        .filter_map(|operation| ratio(rate_of(operation, bf16, 28), rate_of(operation, f32, 28)))
        .min_by(f64::total_cmp);
    least("elementwise 2^28 bf16, × bytes/s of f32, least", 0.97, narrow);
    let short = rows(&|row| is_elementwise(row) && row.case.elements() <= 1 << 22);
    least("elementwise 2^12 to 2^22, × PyTorch, geometric mean", 1.1, short.mean(over_torch));

    for (log, wanted) in [(28, 1.0), (24, 1.25), (20, 1.5), (16, 2.0)] {
        let both = ["sum", "max"].map(|operation| of(operation, f32, log).least(over_cub));
        let measured = both.into_iter().flatten().min_by(f64::total_cmp);
        least(&format!("sum and max f32 2^{log}, × CUB, least"), wanted, measured);
    }
    least("sum bf16 2^28, × bytes/s of f32", 0.97, ratio(rate_of("sum", bf16, 28), rate_of("sum", f32, 28)));
    for dtype in [f32, bf16] {
        let what = format!("argmax {} 2^28, × bytes/s of sum f32", dtype.name());
        least(&what, 0.97, ratio(rate_of("argmax", dtype, 28), rate_of("sum", f32, 28)));
    }

    let lines = rows(&|row| matches!(row.case.operation, "row_sum" | "column_sum"));
    let roofline = rate_of("sum", f32, 28);
    least("sums of rows and columns, × sum f32 2^28, least", 0.6, ratio(lines.least(rate), roofline));
    least("sums of rows and columns, × PyTorch, geometric mean", 1.3, lines.mean(over_torch));
    for operation in OF_ROWS {
        let all = rows(&|row| row.case.operation == operation);
        least(&format!("{operation}, × copy, least"), 0.9, ratio(all.least(rate), copy));
    }

    least("scan f32 2^28, × CUB", 1.05, of("scan", f32, 28).least(over_cub));
    least("scan f32 2^28, × copy", 0.85, ratio(rate_of("scan", f32, 28), copy));
    least("scan bf16 2^28, × CUB", 1.5, of("scan", bf16, 28).least(over_cub));
    least("sort 2^28 u32, × CUB", 1.0, of("sort", Dtype::U32, 28).least(over_cub));
    least("select_if f32 2^28, × CUB", 1.0, of("select_if", f32, 28).least(over_cub));
    least("histogram f32 2^28, × CUB", 1.0, of("histogram", f32, 28).least(over_cub));

    let long = rows(&|row| row.case.elements() >= 1 << 24);
    let mut most = |what: &str, wanted, measured| {
        goals.push(Goal { what: what.to_owned(), wanted, is_most: true, measured });
    };
    most(
        "a user's own function and operator, time / ours, most",
        1.01,
        long.greatest(|row| ratio(row.times.own, row.times.ours)),
    );
    most(
        "default, time / best configuration, most",
        1.03,
        long.greatest(|row| ratio(row.times.ours, row.times.best)),
    );
    goals
}
