//! Measuring and tuning kernels: those of [`ops`](crate::ops), and a program's own. With the feature `bench`.
//!
//! Everything of `warpsmith_tuner` is here. [`bench_main!`](crate::bench_main) makes a program of benchmarks, with the commands of
//! `warpsmith`. [`suite`] adds to it what is known of this crate's operations, and the probes
//! that results are held against.
//!
//! | module | what it holds |
//! | --- | --- |
//! | `operations` | the operations as benchmarks |
//! | `rows` | those on rows, with their data and references |
//! | `ordered` | scans, selection, histograms, sorts |
//! | `products` | matrix products, by schedules |
//! | `own` | a user's own functions and operators as benchmarks |
//! | `prepare` | their data, and the reference they are checked against |
//! | `probes` | copies, reads and multiplications that stand for the device's limits |

mod operations;
mod ordered;
mod own;
mod prepare;
mod probes;
#[cfg(feature = "tensor")]
mod products;
mod rows;

pub use operations::{OPERATIONS, Operation};
pub use ordered::Sort;
pub use own::{map, reduce};
pub use probes::probes;
#[cfg(feature = "tensor")]
pub use products::{PRODUCTS, Product};
pub use rows::{ROW_OPERATIONS, RowOperation};
pub use warpsmith_tuner::*;

use benchmark::{Benchmark, Suite};

/// The operations of [`ops`](crate::ops), after `own` benchmarks, which need names of their own.
///
/// ```
/// let suite = warpsmith::bench::suite(Vec::new());
/// assert_eq!(suite.find("sum")?.name(), "reduce_sum");
/// # Ok::<(), warpsmith::bench::error::Error>(())
/// ```
pub fn suite(own: Vec<Box<dyn Benchmark>>) -> Suite {
    let operations = OPERATIONS.iter().map(|operation| Box::new(*operation) as Box<dyn Benchmark>);
    let of_rows = ROW_OPERATIONS.iter().map(|operation| Box::new(*operation) as Box<dyn Benchmark>);
    let sort = std::iter::once(Box::new(Sort) as Box<dyn Benchmark>);
    let all = own.into_iter().chain(operations).chain(of_rows).chain(sort);
    #[cfg(feature = "tensor")]
    let all = all.chain(PRODUCTS.iter().map(|product| Box::new(*product) as Box<dyn Benchmark>));
    Suite { benchmarks: all.collect(), probes }
}

/// Only `own` benchmarks, with the probes that they are held against.
pub fn only(own: Vec<Box<dyn Benchmark>>) -> Suite {
    Suite { benchmarks: own, probes }
}

/// The `main` of a program that measures and tunes these benchmarks, with the commands of `warpsmith`; with `; ops` at the
/// end also the operations of [`ops`](crate::ops). Needs the feature `command`.
///
/// In `benches/tune.rs`, with `harness = false` in `Cargo.toml`:
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
/// and then `cargo bench --bench tune -- tune saxpy`, with `--features` if the bench has required features. `examples/own-kernels` in the repository is such a package.
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
