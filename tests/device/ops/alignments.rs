//! Every operation on slices, from every address modulo 16 bytes that its type allows. The results must equal those
//! from aligned addresses, and nothing around the output may be written.
//!
//! The elements are small integers, so that sums are exact in every order.

use bytemuck::Pod;
use half::{bf16, f16};
use warpsmith::gpu_std::Checked;
use warpsmith::gpu_std::scalar::Scalar;
use warpsmith::ops::{self, Comparison, Float, Order, Predicate};
use warpsmith::prelude::*;
use warpsmith::{DeviceSlice2, DeviceSliceMut2};

use crate::common::stream;

/// Elements of an array, and the sides of the same elements as a matrix: its rows start at all addresses too.
const N: usize = 1037;
const SIDES: (usize, usize) = (61, 17);
/// Number of guard elements around an array.
const GUARD: usize = 16;

/// A buffer with `GUARD` or more guard elements on each side, which starts some elements after an aligned address.
struct At<T: DeviceCopy> {
    buffer: DeviceBuffer<T>,
    start: usize,
    len: usize,
}

impl<T: DeviceCopy + Pod> At<T> {
    fn new(stream: &Stream, place: usize, values: &[T]) -> Self {
        let start = GUARD + place;
        let guard = bytemuck::pod_read_unaligned(&[0xA5; 16][..size_of::<T>()]);
        let mut host = vec![guard; start + values.len() + GUARD];
        host[start..][..values.len()].copy_from_slice(values);
        Self { buffer: DeviceBuffer::from_host(stream, &host).unwrap(), start, len: values.len() }
    }

    fn get(&self) -> DeviceSlice<'_, T> {
        self.buffer.slice(self.start..self.start + self.len)
    }

    fn get_mut(&mut self) -> DeviceSliceMut<'_, T> {
        self.buffer.slice_mut(self.start..self.start + self.len)
    }

    /// Reads the bytes of the elements; fails if a guard was written.
    fn read(&self, what: &str) -> Vec<u8> {
        let host = self.buffer.to_host().unwrap();
        let guards = || host[..self.start].iter().chain(&host[self.start + self.len..]);
        let is_whole = guards().all(|guard| bytemuck::bytes_of(guard).iter().all(|byte| *byte == 0xA5));
        assert!(is_whole, "{what}: something was written around the output");
        bytemuck::cast_slice(&host[self.start..self.start + self.len]).to_vec()
    }
}

/// Element `i` of input `k`, from 0 to 9.
fn small<T: Scalar>(k: usize, i: usize) -> T {
    ((((i + 7 * k) * 2_654_435_761) >> 11) as u32 % 10).cast()
}

/// Runs `work` with two inputs and an output of `len` elements, at every position within 16 bytes.
#[track_caller]
fn everywhere<I: Scalar + Pod, O: DeviceCopy + Pod>(
    what: &str,
    len: usize,
    work: impl Fn(&Stream, [DeviceSlice<'_, I>; 2], DeviceSliceMut<'_, O>) -> Result<(), Error>,
) {
    let stream = stream();
    let [x, y] = [0, 1].map(|k| Vec::from_iter((0..N).map(|i| small::<I>(k, i))));
    let poison: O = bytemuck::pod_read_unaligned(&[0xA5; 16][..size_of::<O>()]);
    let mut aligned = None;
    let places = |bytes: usize| 16 / bytes.min(16);
    let all = places(size_of::<I>()).max(places(size_of::<O>()));
    // All arrays at the same offset, and arrays at different offsets.
    for (x_at, y_at, out_at) in (0..all).flat_map(|at| [(at, at, at), (at, 3 * at + 1, 5 * at + 2)]) {
        let what = format!("{what}, elements {x_at}, {y_at} and {out_at}");
        let inputs = [
            At::new(&stream, x_at % places(size_of::<I>()), &x),
            At::new(&stream, y_at % places(size_of::<I>()), &y),
        ];
        let mut out = At::new(&stream, out_at % places(size_of::<O>()), &vec![poison; len]);
        work(&stream, [inputs[0].get(), inputs[1].get()], out.get_mut()).unwrap();
        let found = out.read(&what);
        let expected = aligned.get_or_insert_with(|| found.clone());
        assert!(found == *expected, "{what}: not the results from aligned addresses");
    }
}

fn rows<'a, T: DeviceCopy>(x: &DeviceSlice<'a, T>) -> DeviceSlice2<'a, T> {
    x.as_2d(SIDES.1, SIDES.0).unwrap()
}

fn rows_mut<'a, T: DeviceCopy>(out: &'a mut DeviceSliceMut<'_, T>) -> DeviceSliceMut2<'a, T> {
    out.as_2d_mut(SIDES.1, SIDES.0).unwrap()
}

/// Operations that move elements, for all element sizes.
#[test]
fn elements_move_from_every_address() {
    fn of<T: Scalar>() {
        everywhere::<T, T>("copy", N, |s, [x, _], out| ops::copy(s, x, out));
        everywhere::<T, T>("fill", N, |s, [_, _], out| ops::fill(s, small::<T>(0, 3), out));
        everywhere::<T, T>("concat_rows", N, |s, [x, _], mut out| {
            let parts = [rows(&x).part(.., 1..)];
            ops::concat_rows(s, &parts, rows_mut(&mut out).into_part(.., ..SIDES.0 - 1))
        });
        everywhere::<T, T>("concat_columns", 2 * N, |s, [x, y], mut out| {
            ops::concat_columns(s, &[rows(&x), rows(&y)], out.as_2d_mut(SIDES.1, 2 * SIDES.0)?)
        });
        everywhere::<T, T>("transpose", N, |s, [x, _], mut out| {
            ops::transpose(s, rows(&x), out.as_2d_mut(SIDES.0, SIDES.1)?)
        });
        everywhere::<T, T>("gather_rows", N, |s, [x, _], mut out| {
            let order = DeviceBuffer::from_host(s, &Vec::from_iter((0..SIDES.1 as u32).rev())).unwrap();
            ops::gather_rows(s, rows(&x), &ops::Indices::new(s, &order, SIDES.1)?, rows_mut(&mut out))
        });
        everywhere::<T, T>("select_flagged", N, |s, [x, _], out| {
            let flags = Vec::from_iter((0..N).map(|i| u8::from(i % 3 > 0)));
            let flags = At::new(s, x.as_device_ptr().0 as usize % 16, &flags);
            let flags = flags.get().cast::<Checked<bool>>()?;
            let mut count = DeviceBuffer::zeros(s, 1)?;
            ops::select_flagged(s, x, flags, out, &mut count)
        });
        everywhere::<T, f64>("cast", N, |s, [x, _], out| ops::cast(s, x, out));
        everywhere::<T, bf16>("cast to bf16", N, |s, [x, _], out| ops::cast(s, x, out));
        everywhere::<T, u64>("count_if", 1, |s, [x, _], out| {
            ops::count_if_into(s, Predicate::Equal(small::<T>(0, 0)), x, out)
        });
    }
    of::<u8>();
    of::<u16>();
    of::<u32>();
    of::<u64>();
}

/// Arithmetic, reductions, scans and sorting operations on numbers.
#[test]
fn numbers_are_read_from_every_address() {
    fn of<T: ops::Number + Pod>()
    where
        T::SumAccumulator: Pod,
        T::Accumulator: Pod,
    {
        everywhere::<T, T>("add", N, |s, [x, y], out| ops::add(s, x, y, out));
        everywhere::<T, T>("add of a row", N, |s, [x, y], out| {
            ops::add(s, x, ops::row(y.slice(..SIDES.0)), out)
        });
        everywhere::<T, u8>("lt", N, |s, [x, y], out| ops::lt(s, x, y, out.cast::<Checked<bool>>()?));
        everywhere::<T, T>("clamp", N, |s, [x, _], out| {
            ops::clamp(s, x, small::<T>(0, 0).min_propagate(small(0, 1)), small(0, 1), out)
        });
        everywhere::<T, T::SumAccumulator>("sum", 1, |s, [x, _], out| ops::sum_into(s, x, out));
        everywhere::<T, T::Accumulator>("max", 1, |s, [x, _], out| ops::max_into(s, x, out));
        everywhere::<T, u64>("argmin", 1, |s, [x, _], out| ops::argmin_into(s, x, out));
        everywhere::<T, T::SumAccumulator>("dot", 1, |s, [x, y], out| ops::dot_into(s, x, y, out));
        everywhere::<T, T::SumAccumulator>("sum_rows", SIDES.1, |s, [x, _], out| {
            ops::sum_rows(s, rows(&x), out)
        });
        everywhere::<T, T::SumAccumulator>("sum_columns", SIDES.0, |s, [x, _], out| {
            ops::sum_columns(s, rows(&x), out)
        });
        everywhere::<T, T>("max_columns", SIDES.0, |s, [x, _], out| ops::max_columns(s, rows(&x), out));
        everywhere::<T, u64>("argmax_rows", SIDES.1, |s, [x, _], out| ops::argmax_rows(s, rows(&x), out));
        everywhere::<T, T::SumAccumulator>("sum_segments", 4, |s, [x, _], out| {
            let offsets = DeviceBuffer::from_host(s, &[1u64, 30, 30, 500, 1036])?;
            ops::sum_segments(s, x, &offsets, out)
        });
        everywhere::<T, T>("top_k", 5 * SIDES.1, |s, [x, _], mut out| {
            let mut indices = DeviceBuffer::zeros(s, 5 * SIDES.1)?;
            ops::top_k(s, rows(&x), out.as_2d_mut(SIDES.1, 5)?, indices.as_2d_mut(SIDES.1, 5)?)
        });
        everywhere::<T, T>("inclusive_sum", N, |s, [x, _], out| ops::inclusive_sum(s, x, out));
        everywhere::<T, T>("exclusive_max", N, |s, [x, _], out| ops::exclusive_max(s, x, small(0, 0), out));
        everywhere::<T, T>("select_if", N, |s, [x, _], out| {
            let mut count = DeviceBuffer::zeros(s, 1)?;
            ops::select_if(s, Comparison::Greater, small(0, 1), x, out, &mut count)
        });
        everywhere::<T, T>("unique", N, |s, [x, _], out| {
            let mut count = DeviceBuffer::zeros(s, 1)?;
            ops::unique(s, x, out, &mut count)
        });
        everywhere::<T, u64>("histogram_edges", 4, |s, [x, _], out| {
            let edges: [T; 5] = [1u32, 2, 5, 8, 9].map(Scalar::cast);
            ops::histogram_edges(s, x, &DeviceBuffer::from_host(s, &edges)?, out)
        });
        everywhere::<T, u64>("lower_bound", N, |s, [x, _], out| {
            let sorted: [T; 5] = [1u32, 2, 5, 8, 9].map(Scalar::cast);
            ops::lower_bound(s, &DeviceBuffer::from_host(s, &sorted)?, x, out)
        });
    }
    of::<f32>();
    of::<f64>();
    of::<bf16>();
    of::<i32>();
    of::<u64>();
}

#[test]
fn keys_are_sorted_from_every_address() {
    fn of<T: ops::SortKey + Scalar + Pod>() {
        everywhere::<T, T>("sort", N, |s, [x, _], out| ops::sort(s, Order::Ascending, x, out));
        everywhere::<T, T>("sort_pairs", N, |s, [x, y], out| {
            let mut keys = At::new(s, 1, &[small::<T>(0, 0); N]);
            let values = y.cast::<T>()?;
            ops::sort_pairs(s, Order::Descending, x, values, keys.get_mut(), out)
        });
        everywhere::<T, T>("sort_segments", N, |s, [x, _], out| {
            let offsets = DeviceBuffer::from_host(s, &[0u64, 30, 30, 500, 1037])?;
            ops::sort_segments(s, Order::Ascending, x, &offsets, out)
        });
    }
    of::<u32>();
    of::<f64>();
}

/// Rows of floats: the result of a row does not depend on its address, up to the order of additions.
#[test]
fn rows_of_floats_begin_at_every_address() {
    fn of<T: Float + Pod>() {
        everywhere::<T, T>("gelu", N, |s, [x, _], out| ops::gelu(s, x, out));
        everywhere::<T, T>("swiglu", N, |s, [x, y], mut out| {
            ops::swiglu(s, rows(&x), rows(&y), rows_mut(&mut out))
        });
        // The sums of squares of such numbers are exact, and so are all derived results.
        everywhere::<T, T>("rms_norm", N, |s, [x, y], mut out| {
            ops::rms_norm(s, rows(&x), Some(y.slice(..SIDES.0)), 0.5, rows_mut(&mut out))
        });
        everywhere::<T, T::SumAccumulator>("l1_norm", 1, |s, [x, _], out| ops::l1_norm_into(s, x, out));
        // Equal elements have equal shares of the sum, which is a whole number.
        everywhere::<T, T>("softmax", N, |s, [x, _], mut out| {
            let mut equal =
                At::new(s, x.as_device_ptr().0 as usize % 16 / size_of::<T>(), &[small::<T>(0, 0); N]);
            ops::softmax(s, rows(&equal.get_mut().as_slice()), rows_mut(&mut out))
        });
    }
    of::<f32>();
    of::<f64>();
    of::<f16>();
    of::<bf16>();
}
