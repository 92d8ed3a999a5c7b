//! Source line of an operation, as profiles and errors name it: always the caller's line, even for nested operations.

use std::cell::RefCell;

use half::bf16;
use warpsmith::gpu_std::Checked;
use warpsmith::ops::{self, Comparison, Order, Predicate};
use warpsmith::prelude::*;
use warpsmith::random::{self, Generator};
use warpsmith_runtime::extension::{Ended, Observed, Observer, observe};

use crate::common::stream;

thread_local! {
    /// Source files of this thread's operations, while recording; "none" for an operation without a file.
    static FILES: RefCell<Option<Vec<&'static str>>> = const { RefCell::new(None) };
}

struct Files;

impl Observer for Files {
    fn end(&self, observed: &Observed<'_>, _: Ended) {
        FILES.with_borrow_mut(|files| {
            if let Some(files) = files {
                files.push(observed.site.map_or("none", |site| site.file()));
            }
        });
    }
}

/// Checks that `work` has at least one operation, and that all its operations are attributed to this file.
fn counted_here(what: &str, work: impl FnOnce() -> Result<(), Error>) {
    FILES.set(Some(Vec::new()));
    let worked = work();
    let files = FILES.take().unwrap_or_default();
    worked.unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(!files.is_empty(), "{what} was not observed");
    assert!(files.iter().all(|file| *file == file!()), "{what}: {files:?}");
}

const N: usize = 60;

#[test]
fn operations_are_counted_at_the_callers_line() {
    let s = &stream();
    let _observation = observe(Files);
    let [x, y] = [1.0f32, 2.0].map(|value| DeviceBuffer::from_host(s, &[value; N]).unwrap());
    let mut out = DeviceBuffer::<f32>::zeros(s, N).unwrap();
    let mut half = DeviceBuffer::<bf16>::zeros(s, N).unwrap();
    let mut flags = DeviceBuffer::<Checked<bool>>::zeros(s, N).unwrap();
    let mut wide = DeviceBuffer::<u64>::zeros(s, N).unwrap();
    let mut count = DeviceBuffer::<u64>::zeros(s, 1).unwrap();
    let indices = DeviceBuffer::from_host(s, &[0u32; 6]).unwrap();

    counted_here("copy", || ops::copy(s, &x, &mut out));
    counted_here("fill", || ops::fill(s, 1.0, &mut out));
    counted_here("cast", || ops::cast(s, &x, &mut half));
    counted_here("add", || ops::add(s, &x, &y, &mut out));
    counted_here("exp", || ops::exp(s, &x, &mut out));
    counted_here("gelu", || ops::gelu(s, &x, &mut out));
    counted_here("lt", || ops::lt(s, &x, &y, &mut flags));
    counted_here("clamp", || ops::clamp(s, &x, 0.0, 1.0, &mut out));
    counted_here("lerp", || ops::lerp(s, &x, &y, 0.5, &mut out));
    counted_here("axpy", || ops::axpy(s, &x, 2.0, &mut out));
    counted_here("sum", || ops::sum(s, &x).map(drop));
    counted_here("mean", || ops::mean(s, &x).map(drop));
    counted_here("sum of a buffer", || x.sum().map(drop));
    counted_here("argmax", || ops::argmax(s, &x).map(drop));
    counted_here("dot", || ops::dot(s, &x, &y).map(drop));
    counted_here("l2_norm", || ops::l2_norm(s, &x).map(drop));
    counted_here("variance", || ops::variance(s, &x, 1).map(drop));
    counted_here("any", || ops::any(s, &x).map(drop));
    counted_here("count_if", || ops::count_if(s, Predicate::Equal(1.0), &x).map(drop));
    counted_here("inclusive_sum", || ops::inclusive_sum(s, &x, &mut out));
    counted_here("sort", || ops::sort(s, Order::Ascending, &x, &mut out));
    counted_here("lower_bound", || ops::lower_bound(s, &x, &y, &mut wide));
    counted_here("select_if", || ops::select_if(s, Comparison::Greater, 0.0, &x, &mut out, &mut count));
    counted_here("unique", || ops::unique(s, &x, &mut out, &mut count));
    counted_here("histogram_even", || ops::histogram_even(s, &x, 0.0..3.0, wide.slice_mut(..3)));
    counted_here("sum_rows", || ops::sum_rows(s, x.as_2d(6, 10)?, out.slice_mut(..6)));
    counted_here("max_columns", || ops::max_columns(s, x.as_2d(6, 10)?, out.slice_mut(..10)));
    counted_here("transpose", || ops::transpose(s, x.as_2d(6, 10)?, out.as_2d_mut(10, 6)?));
    counted_here("softmax", || ops::softmax(s, x.as_2d(6, 10)?, out.as_2d_mut(6, 10)?));
    counted_here("rms_norm", || ops::rms_norm(s, x.as_2d(6, 10)?, None, 0.1, out.as_2d_mut(6, 10)?));
    counted_here("swiglu", || ops::swiglu(s, x.as_2d(6, 10)?, y.as_2d(6, 10)?, out.as_2d_mut(6, 10)?));
    counted_here("gather", || {
        let indices = ops::Indices::new(s, &indices, N)?;
        ops::gather(s, &x, &indices, out.slice_mut(..6))
    });
    // Dropping it is not an operation of the library.
    let mut sum = None;
    counted_here("reduce_add", || {
        sum = Some(ops::reduce_add(s, [x.as_slice(), y.as_slice()])?);
        Ok(())
    });
    counted_here("uniform", || random::uniform(s, &Generator::new(s.device()), &mut out));
    counted_here("permutation", || random::permutation(s, &Generator::new(s.device()), &mut wide));
    counted_here("default_generator", || {
        random::normal(s, &random::default_generator(s.device()), 0.0, 1.0, &mut out)
    });
}

#[test]
fn products_are_counted_at_the_callers_line() {
    let s = &stream();
    let _observation = observe(Files);
    let a = DeviceBuffer::<bf16>::zeros(s, 32 * 32).unwrap();
    let mut c = DeviceBuffer::<bf16>::zeros(s, 32 * 32).unwrap();
    counted_here("matmul", || ops::matmul(s, a.as_2d(32, 32)?, a.as_2d(32, 32)?, c.as_2d_mut(32, 32)?));
    counted_here("matmul_fused", || {
        let epilogue = ops::Epilogue { activation: ops::Activation::Gelu, ..Default::default() };
        ops::matmul_fused(s, &epilogue, a.as_2d(32, 32)?, a.as_2d(32, 32)?, c.as_2d_mut(32, 32)?)
    });
}
