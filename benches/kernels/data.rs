//! Arrays of a case, filled with repetitions of a period of random numbers.
//!
//! The host can therefore compute any expected result from one period, for arrays of any length.

use std::fmt::Debug;

use half::bf16;
use warpsmith::prelude::*;

use crate::cases::Case;

/// Period of the arrays in elements. It is prime, so that rows and tiles start at all positions in it.
pub const PERIOD: usize = 1_048_573;
/// Minimum total size of the arrays of all sets, in bytes; larger than any L2 cache.
const COLD_BYTES: usize = 256 << 20;

/// Element type.
pub trait Value: DeviceCopy + PartialEq + PartialOrd + Debug {
    /// Distance from 1 to the next number.
    const EPSILON: f64;
    /// Value that `fill` writes. Its bytes are 1, as for a memset.
    const FILL: Self;

    /// Creates a value from random bits. Floats are in -1..1.
    fn random(bits: u64) -> Self;
    fn to_f64(self) -> f64;
}

impl Value for f32 {
    const EPSILON: f64 = f32::EPSILON as f64;
    const FILL: Self = f32::from_bits(0x0101_0101);

    fn random(bits: u64) -> Self {
        // The value is a multiple of 2⁻²⁰, so that sums and bins are exact in f64.
        (bits >> 43) as f32 / (1 << 20) as f32 - 1.0
    }

    fn to_f64(self) -> f64 {
        self.into()
    }
}

impl Value for bf16 {
    const EPSILON: f64 = 1.0 / 128.0;
    const FILL: Self = bf16::from_bits(0x0101);

    fn random(bits: u64) -> Self {
        bf16::from_f32((bits >> 56) as f32 / 128.0 - 1.0)
    }

    fn to_f64(self) -> f64 {
        self.into()
    }
}

impl Value for u32 {
    const EPSILON: f64 = 0.0;
    const FILL: Self = 0x0101_0101;

    fn random(bits: u64) -> Self {
        (bits >> 32) as u32
    }

    fn to_f64(self) -> f64 {
        self.into()
    }
}

/// Arrays of a case: `sets` consecutive copies of the case's size. A launch therefore reads its set from memory and not
/// from the L2 cache.
pub struct Data<T: Value> {
    pub n: usize,
    pub sets: usize,
    /// One period each of `x` and `y`.
    pub periods: [Vec<T>; 2],
    pub x: DeviceBuffer<T>,
    pub y: DeviceBuffer<T>,
    pub out: DeviceBuffer<T>,
    /// Weight and bias of a row.
    pub parameters: [DeviceBuffer<T>; 2],
    /// Sums of rows, of columns, or of all elements.
    pub sums: DeviceBuffer<f32>,
    pub extreme: DeviceBuffer<f32>,
    /// Indices, counts, bins, and additional outputs of CUB.
    pub words: DeviceBuffer<u64>,
}

impl<T: Value> Data<T> {
    pub fn new(stream: &Stream, case: &Case) -> warpsmith::Result<Self> {
        let n = case.elements();
        let sets = (COLD_BYTES / (2 * n * size_of::<T>()).max(1)).clamp(1, 4096);
        let sets = if stream.device().is_emulated() { 2 } else { sets };
        let mut numbers = fastrand::Rng::with_seed(7);
        let periods: [Vec<T>; 2] = [(); 2].map(|()| {
            let random = || T::random(numbers.u64(..));
            std::iter::repeat_with(random).take(PERIOD).collect()
        });
        let outputs = if case.has_array() { sets * n } else { 0 };
        Ok(Self {
            n,
            sets,
            x: periodic(stream, &periods[0], sets * n)?,
            y: periodic(stream, &periods[1], if case.has_second_input() { sets * n } else { 0 })?,
            out: DeviceBuffer::uninit(stream, outputs)?,
            parameters: [
                DeviceBuffer::from_host(stream, &periods[1][..case.columns.min(PERIOD)])?,
                DeviceBuffer::from_host(stream, &periods[0][..case.columns.min(PERIOD)])?,
            ],
            sums: DeviceBuffer::uninit(stream, case.results())?,
            extreme: DeviceBuffer::uninit(stream, 1)?,
            words: DeviceBuffer::uninit(stream, 1024)?,
            periods,
        })
    }

    /// Returns element `i` in the first set of `x`.
    pub fn x(&self, i: usize) -> f64 {
        self.periods[0][i % PERIOD].to_f64()
    }

    /// Returns element `i` in the first set of `y`.
    pub fn y(&self, i: usize) -> f64 {
        self.periods[1][i % PERIOD].to_f64()
    }

    /// Overwrites the outputs of the first set. An array that is updated in place is set to the values of `y`.
    pub fn reset(&mut self, case: &Case) -> warpsmith::Result<()> {
        let stream = self.sums.stream().clone();
        stream.memset(&mut self.sums, 0xA5)?;
        stream.memset(&mut self.extreme, 0xA5)?;
        stream.memset(&mut self.words, 0xA5)?;
        if case.operation == "axpy" {
            return repeat(self.out.slice_mut(..self.n), &self.periods[1]);
        }
        let results = if case.has_array() { self.n } else { 0 };
        stream.memset(self.out.slice_mut(..results), 0xA5)
    }
}

fn periodic<T: Value>(stream: &Stream, period: &[T], len: usize) -> warpsmith::Result<DeviceBuffer<T>> {
    let mut buffer = DeviceBuffer::uninit(stream, len)?;
    repeat(buffer.as_mut_slice(), period)?;
    Ok(buffer)
}

/// Fills an array with repetitions of the period.
fn repeat<T: Value>(mut array: DeviceSliceMut<'_, T>, period: &[T]) -> warpsmith::Result<()> {
    let len = array.len();
    let mut filled = len.min(period.len());
    array.slice_mut(..filled).copy_from_host(&period[..filled])?;
    while filled < len {
        let (done, rest) = array.reborrow().split_at_mut(filled);
        let more = filled.min(rest.len());
        done.stream().copy(done.as_slice().slice(..more), rest.into_slice(..more))?;
        filled += more;
    }
    Ok(())
}
