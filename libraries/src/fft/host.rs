//! [`HostPlan`]: transforms on the emulated device, which use `rustfft`. Half precision is computed in single precision
//! and rounded. The result is then scaled and rounded again, as on a GPU.

use std::sync::Arc;

use num_complex::Complex;
use rustfft::{Fft, FftNum, FftPlanner};

use super::element::Computed;
use super::shape::Key;
use super::{Direction, FftScalar, Kind};
use crate::element::{DataType, LibraryType};
use warpsmith_runtime::driver::DevicePtr;

/// Forward and inverse 1-D transforms along one dimension.
#[doc(hidden)]
pub struct Line<C> {
    forward: Arc<dyn Fft<C>>,
    inverse: Arc<dyn Fft<C>>,
}

impl<C> Line<C> {
    fn of(&self, direction: Direction) -> &dyn Fft<C> {
        match direction {
            Direction::Forward => &*self.forward,
            Direction::Inverse => &*self.inverse,
        }
    }
}

/// The transforms along the dimensions, with the fastest-varying dimension last.
#[doc(hidden)]
pub enum Lines {
    Single(Vec<Line<f32>>),
    Double(Vec<Line<f64>>),
}

fn plan<C: FftNum>(sizes: &[usize]) -> Vec<Line<C>> {
    let mut planner = FftPlanner::new();
    let line = |size: &usize| Line {
        forward: planner.plan_fft_forward(*size),
        inverse: planner.plan_fft_inverse(*size),
    };
    sizes.iter().map(line).collect()
}

pub(crate) struct HostPlan {
    key: Key,
    lines: Lines,
}

impl HostPlan {
    pub(super) fn new(key: Key) -> Self {
        let lines = match key.precision {
            DataType::F64 => Lines::Double(plan(key.sizes())),
            _ => Lines::Single(plan(key.sizes())),
        };
        Self { key, lines }
    }

    /// Transforms the data at `input` and writes the result to `output`, which may be the same address.
    ///
    /// # Safety
    /// Both addresses must refer to process memory that contains the key's number of elements of this type. Nothing
    /// else may write this memory during the call.
    pub(super) unsafe fn run<T: FftScalar>(
        &self,
        direction: Direction,
        [input, output]: [DevicePtr; 2],
        factor: Option<f64>,
    ) {
        let Some(lines) = T::Computed::lines(&self.lines) else { return };
        let sizes = self.key.sizes();
        let last = sizes.last().copied().unwrap_or(1);
        let rows = self.key.batch * sizes.iter().rev().skip(1).product::<usize>();
        let (real, half) = (rows * last, rows * (last / 2 + 1));
        let factor = factor.map(T::Computed::from_f64);
        let scaled = |value: T::Computed| match factor {
            Some(factor) => down::<T>(up(down::<T>(value)) * factor),
            None => down::<T>(value),
        };
        let transform = Transform { lines, sizes, direction };
        match self.key.kind {
            Kind::Complex => {
                // SAFETY: guaranteed by the caller.
                let mut data = unsafe { load_complex::<T>(input, real) };
                transform.axes(&mut data, last, sizes.len());
                // SAFETY: guaranteed by the caller.
                unsafe { store(output, data, |z| Complex::new(scaled(z.re), scaled(z.im))) };
            }
            Kind::FromReal => {
                // SAFETY: guaranteed by the caller.
                let data = unsafe { load(input, real, |x: T| Complex::from(up(x))) };
                let mut found = transform.first_halves(data, last);
                transform.axes(&mut found, last / 2 + 1, sizes.len() - 1);
                // SAFETY: guaranteed by the caller.
                unsafe { store(output, found, |z| Complex::new(scaled(z.re), scaled(z.im))) };
            }
            Kind::ToReal => {
                // SAFETY: guaranteed by the caller.
                let mut data = unsafe { load_complex::<T>(input, half) };
                transform.axes(&mut data, last / 2 + 1, sizes.len() - 1);
                let found = transform.whole_rows(&data, last);
                // SAFETY: guaranteed by the caller.
                unsafe { store(output, found, |z| scaled(z.re)) };
            }
        }
    }
}

/// Converts to the computation type.
fn up<T: FftScalar>(value: T) -> T::Computed {
    T::Computed::from_f64(value.to_f64())
}

/// Rounds a result to the nearest number.
fn down<T: FftScalar>(computed: T::Computed) -> T {
    T::from_f64(computed.to_f64())
}

/// State of one transform call.
struct Transform<'a, C> {
    lines: &'a [Line<C>],
    sizes: &'a [usize],
    direction: Direction,
}

impl<C: Computed> Transform<'_, C> {
    /// Transforms along the first `axes` dimensions. In `data`, the last dimension has `last` elements.
    fn axes(&self, data: &mut [Complex<C>], last: usize, axes: usize) {
        let mut sizes = self.sizes.to_vec();
        if let Some(size) = sizes.last_mut() {
            *size = last;
        }
        for axis in 0..axes {
            let (line, size) = (self.lines[axis].of(self.direction), sizes[axis]);
            let apart: usize = sizes[axis + 1..].iter().product();
            if apart == 1 {
                line.process(data);
                continue;
            }
            let mut gathered = vec![Complex::from(C::zero()); size];
            for block in data.chunks_exact_mut(size * apart) {
                for first in 0..apart {
                    let of_block = block[first..].iter().step_by(apart);
                    gathered.iter_mut().zip(of_block).for_each(|(to, from)| *to = *from);
                    line.process(&mut gathered);
                    let of_block = block[first..].iter_mut().step_by(apart);
                    of_block.zip(&gathered).for_each(|(to, from)| *to = *from);
                }
            }
        }
    }

    /// Returns the first half of each row's transform.
    fn first_halves(&self, mut data: Vec<Complex<C>>, last: usize) -> Vec<Complex<C>> {
        if let Some(line) = self.lines.last() {
            line.of(self.direction).process(&mut data);
        }
        data.chunks_exact(last).flat_map(|row| &row[..last / 2 + 1]).copied().collect()
    }

    /// Returns the whole transform of each row, computed from its first half.
    fn whole_rows(&self, halves: &[Complex<C>], last: usize) -> Vec<Complex<C>> {
        let mut data = Vec::with_capacity(halves.len() / (last / 2 + 1) * last);
        for half in halves.chunks_exact(last / 2 + 1) {
            data.extend((0..last).map(|k| match k {
                _ if k == 0 || 2 * k == last => Complex::from(half[k].re),
                _ if 2 * k < last => half[k],
                _ => half[last - k].conj(),
            }));
        }
        if let Some(line) = self.lines.last() {
            line.of(self.direction).process(&mut data);
        }
        data
    }
}

/// # Safety
/// The caller must uphold the safety contract of [`HostPlan::run`].
unsafe fn load<T: FftScalar, R>(from: DevicePtr, len: usize, convert: impl Fn(T) -> R) -> Vec<R> {
    // SAFETY: guaranteed by the caller.
    let from = unsafe { std::slice::from_raw_parts(from.0 as *const T, len) };
    from.iter().map(|x| convert(*x)).collect()
}

/// # Safety
/// The caller must uphold the safety contract of [`HostPlan::run`].
unsafe fn load_complex<T: FftScalar>(from: DevicePtr, len: usize) -> Vec<Complex<T::Computed>> {
    // SAFETY: guaranteed by the caller.
    let from = unsafe { std::slice::from_raw_parts(from.0 as *const Complex<T>, len) };
    from.iter().map(|z| Complex::new(up(z.re), up(z.im))).collect()
}

/// # Safety
/// The caller must uphold the safety contract of [`HostPlan::run`], and `to` must have space for `from`.
unsafe fn store<C, R>(to: DevicePtr, from: Vec<C>, convert: impl Fn(C) -> R) {
    // SAFETY: guaranteed by the caller.
    let to = unsafe { std::slice::from_raw_parts_mut(to.0 as *mut R, from.len()) };
    to.iter_mut().zip(from).for_each(|(to, from)| *to = convert(from));
}
