//! Helpers shared by the tests of all libraries: numbers, buffers, and the messages of rejected calls.

use std::fmt::Debug;

use crate::under_test::device;
use half::{bf16, f16};
use warpsmith_libraries::blas::{F8E4M3, F8E5M2};
use warpsmith_runtime::{DeviceBuffer, DeviceCopy, Result, Stream};

/// An element type.
pub trait TestValue: DeviceCopy + PartialEq + Debug {
    /// Unit roundoff: half the distance from 1 to the next number.
    const UNIT: f64;
    /// Unit roundoff of the accumulation type.
    const SUM_UNIT: f64;
    fn of(value: f64) -> Self;
    fn value(self) -> f64;
}

macro_rules! number {
    ($($type:ty, $bits:expr, $sum_bits:expr, |$x:ident| $of:expr, |$y:ident| $value:expr;)*) => {
        $(impl TestValue for $type {
            const UNIT: f64 = 1.0 / (1u64 << $bits) as f64;
            const SUM_UNIT: f64 = 1.0 / (1u64 << $sum_bits) as f64;
            fn of($x: f64) -> Self { $of }
            fn value(self) -> f64 { let $y = self; $value }
        })*
    };
}

number! {
    f32, 24, 24, |x| x as f32, |x| x.into();
    f64, 53, 53, |x| x, |x| x;
    f16, 11, 24, |x| f16::from_f64(x), |x| x.to_f64();
    bf16, 8, 24, |x| bf16::from_f64(x), |x| x.to_f64();
    F8E4M3, 4, 24, |x| F8E4M3::from_f32(x as f32), |x| x.to_f32().into();
    F8E5M2, 3, 24, |x| F8E5M2::from_f32(x as f32), |x| x.to_f32().into();
}

/// Calls a check, which may return an error, for each of these types.
macro_rules! each {
    ($check:ident $arguments:tt: $($type:ty),*) => { $($check::<$type> $arguments;)* };
}
pub(crate) use each;

pub fn name<T>() -> &'static str {
    std::any::type_name::<T>()
}

/// Returns random numbers from -1 to 1.
pub fn random<T: TestValue>(len: usize, seed: u64) -> Vec<T> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..len).map(|_| T::of(random.f64() * 2.0 - 1.0)).collect()
}

pub fn values<T: TestValue>(from: &[T]) -> Vec<f64> {
    from.iter().map(|value| value.value()).collect()
}

/// Creates a stream on a new device.
pub fn stream() -> Stream {
    Stream::new(&device()).unwrap()
}

pub fn buffer<T: DeviceCopy>(stream: &Stream, values: &[T]) -> DeviceBuffer<T> {
    DeviceBuffer::from_host(stream, values).unwrap()
}

pub fn uninit<T: DeviceCopy>(stream: &Stream, len: usize) -> DeviceBuffer<T> {
    DeviceBuffer::uninit(stream, len).unwrap()
}

/// Panics unless a call was rejected with this text.
#[track_caller]
pub fn assert_refused<R>(done: Result<R>, text: &str) {
    let Err(error) = done else { panic!("it worked; an error with {text:?} was expected") };
    assert!(error.to_string().contains(text), "{error}, not {text}");
}

/// Evaluates to true if a call was rejected with an error of this kind.
macro_rules! is_refused {
    ($done:expr, $kind:pat) => {{
        let done = &$done;
        matches!(done, Err(error) if matches!(error.downcast_ref::<warpsmith_libraries::LibraryError>(), Some($kind)))
    }};
}
pub(crate) use is_refused;
