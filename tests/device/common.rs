//! Shared test helpers: the device under test, fresh random data, and numeric types that convert to f64.
//!
//! `WARPSMITH_TEST_DEVICE` names the device (default: `cpu`). A missing device fails the test: a run that requested a
//! GPU and found none must not pass.

use std::fmt::Debug;

use half::{bf16, f16};
use warpsmith::prelude::*;

/// Calls a function for each of the types.
macro_rules! for_types {
    ($function:ident: $($t:ty),*) => { $($function::<$t>();)* };
}
pub(crate) use for_types;

/// Name of the device under test.
pub fn device_name() -> String {
    std::env::var("WARPSMITH_TEST_DEVICE").unwrap_or_else(|_| "cpu".to_owned())
}

/// The device under test.
pub fn device() -> Device {
    let name = device_name();
    Device::open(&name).unwrap_or_else(|error| panic!("WARPSMITH_TEST_DEVICE={name}: {error}"))
}

/// Returns the device under test, which must be a GPU. GPU-only tests are in a module `on_gpu` and ignored by default,
/// so that they do not pass where they cannot run; see `CONTRIBUTING.md`.
pub fn gpu() -> Device {
    let device = device();
    assert!(!device.is_emulated(), "this test needs a GPU: set WARPSMITH_TEST_DEVICE=cuda:0");
    device
}

/// Opens the device under test a second time, with separate settings and allocators.
pub fn own_device() -> Device {
    let shared = device();
    // SAFETY: all values passed to its methods belong to this device and are alive.
    let driver = unsafe { shared.driver() }.0.clone();
    Device::with_driver(driver, shared.id().ordinal()).expect("the device under test once more")
}

/// Makes a stream on the device under test.
pub fn stream() -> Stream {
    Stream::new(&device()).expect("a stream on the device under test")
}

/// Lengths around the boundaries of tiles, warps and vectors.
pub const LENGTHS: [usize; 16] = [0, 1, 2, 3, 7, 31, 32, 33, 127, 128, 129, 1023, 1025, 4095, 4097, 100_003];

/// Offsets of a slice from an aligned address, in elements.
pub const OFFSETS: [usize; 4] = [0, 1, 3, 8];

/// Random numbers, different in every run; every failure message contains the seed.
pub struct Random {
    /// Seed that the generator started from.
    pub seed: u64,
    numbers: fastrand::Rng,
}

impl Random {
    /// Makes a generator with a fresh seed, or with `WARPSMITH_TEST_SEED` to reproduce a failure.
    pub fn new() -> Self {
        let given = std::env::var("WARPSMITH_TEST_SEED").ok().and_then(|text| text.parse().ok());
        let seed = given.unwrap_or_else(|| fastrand::u64(..));
        Self { seed, numbers: fastrand::Rng::with_seed(seed) }
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.numbers.u64(..)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        self.numbers.usize(..end)
    }

    /// A number in -1..1.
    pub fn unit(&mut self) -> f64 {
        self.numbers.f64() * 2.0 - 1.0
    }

    /// `n` values of a type: floats in ±`scale`, integers over their whole range.
    pub fn values<T: TestNumber>(&mut self, n: usize, scale: f64) -> Vec<T> {
        (0..n).map(|_| T::random(self, scale)).collect()
    }
}

/// A numeric type under test.
pub trait TestNumber: warpsmith::ops::Number + Debug + PartialEq {
    /// A random value.
    fn random(random: &mut Random, scale: f64) -> Self;
    /// Value as f64; exact for all but large 64-bit integers.
    fn to_f64(self) -> f64;
    /// The nearest value.
    fn nearest(value: f64) -> Self;
    /// A value that no test expects.
    fn poison() -> Self {
        bytemuck::pod_read_unaligned(&[0xA5; 8][..size_of::<Self>()])
    }
    /// The bits, for exact comparison.
    fn bits(self) -> u64 {
        let mut bytes = [0; 8];
        bytes[..size_of::<Self>()].copy_from_slice(bytemuck::bytes_of(&self));
        u64::from_le_bytes(bytes)
    }
}

macro_rules! float_element {
    ($($t:ty, $from:expr, $to:expr);*) => { $(
        impl TestNumber for $t {
            fn random(random: &mut Random, scale: f64) -> Self {
                ($from)(random.unit() * scale)
            }
            fn to_f64(self) -> f64 {
                ($to)(self)
            }
            fn nearest(value: f64) -> Self {
                ($from)(value)
            }
        }
    )* };
}
float_element!(
    f32, |v: f64| v as f32, f64::from;
    f64, |v: f64| v, |v: f64| v;
    f16, |v: f64| f16::from_f32(round_to_odd(v)), f16::to_f64;
    bf16, |v: f64| bf16::from_f32(round_to_odd(v)), bf16::to_f64
);

/// Returns an f32 that rounds to a 16-bit float as `value` itself would: inexact values get an odd last bit, so that no
/// false tie appears. (`half`'s own `from_f64` ignores the lowest 32 bits.)
fn round_to_odd(value: f64) -> f32 {
    let nearest = value as f32;
    if f64::from(nearest) == value || !nearest.is_finite() {
        return nearest;
    }
    let beyond = f64::from(nearest).abs() > value.abs();
    f32::from_bits((nearest.to_bits() - u32::from(beyond)) | 1)
}

macro_rules! integer_element {
    ($($t:ty),*) => { $(
        impl TestNumber for $t {
            fn random(random: &mut Random, _: f64) -> Self {
                random.bits() as $t
            }
            fn to_f64(self) -> f64 {
                self as f64
            }
            fn nearest(value: f64) -> Self {
                value as $t
            }
        }
    )* };
}
integer_element!(i32, u32, i64, u64);

/// An array on the device that starts `offset` elements after an aligned address, with guard elements around it.
pub struct Padded<T: TestNumber> {
    buffer: DeviceBuffer<T>,
    offset: usize,
    len: usize,
}

/// Number of guard elements after the array.
const GUARD: usize = 37;

impl<T: TestNumber> Padded<T> {
    /// Makes an array with these values.
    pub fn new(stream: &Stream, offset: usize, values: &[T]) -> Self {
        let mut host = vec![T::poison(); offset + values.len() + GUARD];
        host[offset..][..values.len()].copy_from_slice(values);
        let buffer = DeviceBuffer::from_host(stream, &host).expect("device memory for a test");
        Self { buffer, offset, len: values.len() }
    }

    /// Makes an array of `len` poisoned values.
    pub fn poisoned(stream: &Stream, offset: usize, len: usize) -> Self {
        Self::new(stream, offset, &vec![T::poison(); len])
    }

    /// Slice of the array, to read.
    pub fn get(&self) -> DeviceSlice<'_, T> {
        self.buffer.slice(self.offset..self.offset + self.len)
    }

    /// Slice of the array, to write.
    pub fn get_mut(&mut self) -> DeviceSliceMut<'_, T> {
        self.buffer.slice_mut(self.offset..self.offset + self.len)
    }

    /// Reads the values; fails if anything around them was written.
    pub fn read(&self) -> Vec<T> {
        let host = self.buffer.to_host().expect("a copy to the host");
        let (before, rest) = host.split_at(self.offset);
        let (values, after) = rest.split_at(self.len);
        for (place, guard) in [("before", before), ("after", after)] {
            let written = guard.iter().position(|value| value.bits() != T::poison().bits());
            assert_eq!(written, None, "something was written {place} the array");
        }
        values.to_vec()
    }
}

/// Fails unless `found` is within `tolerance` (relative, in units of the type's epsilon, plus `absolute`) of
/// `expected`; infinities and NaN must match. Values beyond the type's range may round to infinity.
#[track_caller]
pub fn assert_close<T: TestNumber>(found: T, expected: f64, tolerance: f64, absolute: f64, what: &dyn Debug) {
    let rounded = T::nearest(expected);
    let (value, exact) = (found.to_f64(), rounded.bits() == found.bits());
    let both_nan = value.is_nan() && expected.is_nan();
    let error = (value - expected).abs();
    let close = error <= T::EPSILON * tolerance * expected.abs() + absolute;
    assert!(
        exact || both_nan || value == rounded.to_f64() || close,
        "{what:?}: got {value:e}, expected {expected:e}"
    );
}
