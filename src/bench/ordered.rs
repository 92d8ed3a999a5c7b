//! Benchmarks of scans, selection and histograms: their data and expected results.

#[cfg(feature = "histogram")]
use gpu_kernels::histogram::{Binned, edge};
use gpu_std::scalar::Number;
use warpsmith_runtime::DeviceBuffer;
#[cfg(feature = "scan")]
use warpsmith_runtime::Stream;
use warpsmith_tuner::benchmark::Setup;
use warpsmith_tuner::case::{Arrays, Expected, Parts};
use warpsmith_tuner::data::{Values, generate, poison};
use warpsmith_tuner::verify::Tolerance;

use super::operations::config;
use super::prepare::Prepared;
#[cfg(feature = "scan")]
use crate::ops::Comparison;
use crate::ops::{self, with_config};

#[cfg(feature = "histogram")]
const BINS: usize = 256;

/// Enqueues one scan. The arguments are the stream, input and output.
#[cfg(feature = "scan")]
type Scan<T> = fn(&Stream, &DeviceBuffer<T>, &mut DeviceBuffer<T>) -> warpsmith_runtime::Result<()>;

/// Prepares a scan whose results are exact.
#[cfg(feature = "scan")]
pub(super) fn scan<T: Number>(
    setup: &Setup<'_>,
    values: Values,
    launch: Scan<T>,
    step: fn(f64, f64) -> f64,
) -> Prepared {
    let data: Vec<T> = generate(values, setup.seed, setup.n);
    let running = data.iter().map(|value| value.cast::<f64>()).scan(None, |so_far, value| {
        *so_far = Some(so_far.map_or(value, |so_far| step(so_far, value)));
        *so_far
    });
    let expected: Vec<T> = running.map(T::from_f64).collect();
    let parts = Parts {
        inputs: vec![data],
        initial: vec![poison::<T>(); setup.n],
        choose: Box::new(config),
        launch: Box::new(move |stream, config, inputs: &[DeviceBuffer<T>], output: &mut DeviceBuffer<T>| {
            Ok(with_config(*config, || launch(stream, &inputs[0], output))?)
        }),
        expected: Expected::Each(|[_, expected, _]| expected, vec![expected]),
        tolerance: Tolerance::EXACT,
    };
    Ok(Some(Box::new(Arrays::new(setup.stream, setup.copies, parts)?)))
}

/// Prepares a selection of about half the elements.
#[cfg(feature = "scan")]
pub(super) fn select<T: Number>(setup: &Setup<'_>) -> Prepared {
    let limit = T::from_f64(if T::IS_SIGNED { 0.0 } else { 49.0 });
    let data: Vec<T> = generate(Values::Spread, setup.seed, setup.n);
    let mut expected = vec![poison::<T>(); setup.n];
    let kept = data.iter().filter(|value| value.cast::<f64>() > limit.cast::<f64>());
    expected.iter_mut().zip(kept).for_each(|(place, value)| *place = *value);
    let parts = Parts {
        inputs: vec![data],
        initial: vec![poison::<T>(); setup.n],
        choose: Box::new(config),
        launch: Box::new(move |stream, config, inputs: &[DeviceBuffer<T>], output: &mut DeviceBuffer<T>| {
            let mut count = DeviceBuffer::<u64>::uninit(stream, 1)?;
            Ok(with_config(*config, || {
                ops::select_if(stream, Comparison::Greater, limit, &inputs[0], output, &mut count)
            })?)
        }),
        expected: Expected::Each(|[_, expected, _]| expected, vec![expected]),
        tolerance: Tolerance::EXACT,
    };
    Ok(Some(Box::new(Arrays::new(setup.stream, setup.copies, parts)?)))
}

/// Prepares a histogram of 256 even bins. The data falls into about 200 of them.
#[cfg(feature = "histogram")]
pub(super) fn histogram<T: Number + Binned>(setup: &Setup<'_>) -> Prepared {
    let is_float = T::EPSILON > 0.0;
    let [lower, upper] = match (is_float, T::IS_SIGNED) {
        (true, _) => [-4.0, 6.0],
        (false, true) => [-100.0, 156.0],
        (false, false) => [0.0, 256.0],
    };
    let [lower, upper] = [lower, upper].map(T::from_f64);
    let bins = T::bins(BINS as u32, lower, upper, false).expect("a finite range");
    let data: Vec<T> = generate(Values::Spread, setup.seed, setup.n);
    let mut expected = vec![0_u64; BINS];
    let [first, last] = [lower, upper].map(|end| end.cast::<f64>());
    let edges: Vec<f64> = (0..BINS as u32).map(|i| edge(first, last, i, BINS as u32)).collect();
    for bin in data.iter().filter_map(|value| value.bin(&bins, &edges)) {
        expected[bin as usize] += 1;
    }
    let parts = Parts {
        inputs: vec![data],
        initial: vec![poison::<u64>(); BINS],
        choose: Box::new(config),
        launch: Box::new(
            move |stream, config, inputs: &[DeviceBuffer<T>], output: &mut DeviceBuffer<u64>| {
                Ok(with_config(*config, || ops::histogram_even(stream, &inputs[0], lower..upper, output))?)
            },
        ),
        expected: Expected::All(expected.into_iter().map(|count| count as f64).collect()),
        tolerance: Tolerance::EXACT,
    };
    Ok(Some(Box::new(Arrays::new(setup.stream, setup.copies, parts)?)))
}
