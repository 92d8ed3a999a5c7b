//! Benchmarks and tunes the kernels of [`ops`](crate::ops) and your own kernels. Requires the feature `bench`.
//!
//! This module re-exports everything from `warpsmith_tuner`. [`bench_main!`](crate::bench_main) defines a benchmark
//! program that accepts the same commands as `warpsmith`. [`suite`] adds the benchmarks of this crate's operations and
//! the probes that measure the device's peaks.
//!
//! | module | contents |
//! | --- | --- |
//! | `operations` | the operations as benchmarks |
//! | `ordered` | scans, selection and histograms |
//! | `products` | GEMM, with one configuration per schedule |
//! | `own` | your own functions and operators as benchmarks |
//! | `prepare` | the benchmarks' data, and the references that check their results |
//! | `probes` | copies, reads and FMAs that measure the device's peaks |

mod operations;
#[cfg(any(feature = "histogram", feature = "scan"))]
mod ordered;
mod own;
mod prepare;
mod probes;
#[cfg(feature = "tensor")]
mod products;

pub use operations::{OPERATIONS, Operation};
pub use own::{map, reduce};
pub use probes::probes;
#[cfg(feature = "tensor")]
pub use products::{PRODUCTS, Product};
pub use warpsmith_tuner::*;

use benchmark::{Benchmark, Suite};

/// Returns a suite of your `own` benchmarks, followed by the operations of [`ops`](crate::ops) that have several
/// configurations. The benchmarks' names must be unique.
///
/// ```
/// let suite = warpsmith::bench::suite(Vec::new());
/// assert_eq!(suite.find("sum")?.name(), "reduce_sum");
/// # Ok::<(), warpsmith::bench::error::Error>(())
/// ```
pub fn suite(own: Vec<Box<dyn Benchmark>>) -> Suite {
    let mut benchmarks = own;
    for operation in OPERATIONS.iter().filter(|operation| !operation.dtypes().is_empty()) {
        benchmarks.push(Box::new(*operation));
    }
    #[cfg(feature = "tensor")]
    benchmarks.extend(PRODUCTS.iter().map(|product| Box::new(*product) as Box<dyn Benchmark>));
    let left_out = FEATURES.iter().filter(|(_, is_on, _)| !is_on);
    let left_out = left_out.flat_map(|&(feature, _, names)| names.iter().map(move |&name| (name, feature)));
    Suite { benchmarks, left_out: left_out.collect(), probes }
}

/// Features that add operations. Each entry contains the feature's name, whether the feature is enabled, and the
/// prefixes of its operations' names.
const FEATURES: [(&str, bool, &[&str]); 3] = [
    ("histogram", cfg!(feature = "histogram"), &["histogram_"]),
    ("scan", cfg!(feature = "scan"), &["scan_", "compact_"]),
    ("tensor", cfg!(feature = "tensor"), &["matmul"]),
];

/// Returns a suite that contains only your `own` benchmarks and the probes.
pub fn only(own: Vec<Box<dyn Benchmark>>) -> Suite {
    Suite { benchmarks: own, left_out: Vec::new(), probes }
}

/// Defines `main` for a program that runs and tunes these benchmarks and accepts the same commands as `warpsmith`. With
/// `; ops` at the end, the program also includes the operations of [`ops`](crate::ops). The macro requires the feature
/// `command`.
///
/// For example, in `benches/tune.rs`, with `harness = false` in `Cargo.toml`:
///
/// ```ignore
/// use kernels::saxpy;
/// use warpsmith::GpuImage;
/// use warpsmith::bench::kernel::ArrayKernel;
///
/// static KERNELS: GpuImage = warpsmith::include_image!("kernels");
///
/// fn tuned_saxpy() -> ArrayKernel<f32, f32> {
///     ArrayKernel::new("saxpy", &KERNELS, |[x, y, _]| 2.0 * x + y)
///         .launch::<saxpy>(|kernel, stream, x, y| kernel.launch(stream, (2.0, &x[0], y)))
///         .updates()
///         .axis("block", [64, 128, 256, 512])
/// }
///
/// warpsmith::bench_main!(tuned_saxpy());
/// ```
///
/// Then run `cargo bench --bench tune -- tune saxpy`. Add `--features` if the bench has required features. For a
/// complete package, see `examples/own-kernels` in the repository.
#[cfg(feature = "command")]
#[macro_export]
macro_rules! bench_main {
    (@ $suite:ident, $($benchmark:expr),+) => {
        fn main() -> ::std::process::ExitCode {
            let benchmarks: ::std::vec::Vec<::std::boxed::Box<dyn $crate::bench::benchmark::Benchmark>> =
                ::std::vec![$(::std::boxed::Box::new($benchmark)),+];
            $crate::bench::command::main(env!("CARGO_CRATE_NAME"), &$crate::bench::$suite(benchmarks))
        }
    };
    ($($benchmark:expr),+ $(,)?) => {
        $crate::bench_main!(@ only, $($benchmark),+);
    };
    ($($benchmark:expr),+ ; ops) => {
        $crate::bench_main!(@ suite, $($benchmark),+);
    };
}
