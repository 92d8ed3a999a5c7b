//! Optional parameters, private types, and kernels in generic code.

use crate::common::{Args, launch};
use gpu_std::atomic::{Atomic, Ordering};
use gpu_std::prelude::*;
use gpu_std::{Extents2, Extents3, Instance, Kernel, SafeKernel, param};

#[kernel(types(T = f32, u64))]
fn add_optional<T: Scalar>(
    x: &[T],
    bias: Option<&[T]>,
    mut out: DisjointMut<T>,
    mut copy: Option<DisjointMut<T, Chunks<2>>>,
    count: Option<&[Atomic<u32>]>,
) {
    let i = thread::unique_index();
    if let Some(out) = out.get_mut(i) {
        *out = x[i.get()].wrapping_add(bias.map_or(T::ZERO, |bias| bias[i.get()]));
    }
    if let Some(pair) = copy.as_mut().and_then(|copy| copy.get_mut(i)) {
        pair.copy_from_slice(&x[2 * i.get()..][..pair.len()]);
    }
    if let Some(count) = count {
        count[0].fetch_add(1, Ordering::Relaxed);
    }
}

/// Appends the arguments of an `Option`.
fn optional<T: 'static>(args: Args, data: Option<&mut [T]>) -> Args {
    match data {
        Some(data) => args.view(data),
        None => args.value(std::ptr::null_mut::<T>()).value(0_usize),
    }
}

#[test]
fn optional_slices_are_there_or_not() {
    let x: [u64; 5] = [1, 2, 3, 4, 5];
    for case in 0..8 {
        let has = |bit: u32| case >> bit & 1 == 1;
        let (mut bias, mut out, mut copy, mut count) = ([10_u64; 5], [0_u64; 5], [0_u64; 5], [0_u32]);
        let args = optional(Args::new().slice(&x), has(0).then_some(&mut bias[..])).view(&mut out);
        let args = optional(args, has(1).then_some(&mut copy[..]));
        let args = optional(args, has(2).then_some(&mut count[..]));
        launch::<add_optional<u64>>([1, 1, 1], [6, 1, 1], &args);
        assert_eq!(out, if has(0) { [11, 12, 13, 14, 15] } else { x });
        assert_eq!(copy, if has(1) { x } else { [0; 5] });
        assert_eq!(count[0], if has(2) { 6 } else { 0 });
    }
}

#[test]
fn an_empty_slice_is_there() {
    #[kernel]
    fn length(x: Option<&[f32]>, mut out: DisjointMut<i32>) {
        if let Some(out) = out.get_mut(thread::unique_index()) {
            *out = x.map_or(-1, |x| x.len() as i32);
        }
    }
    let mut out = [7];
    launch::<length>([1, 1, 1], [1, 1, 1], &Args::new().slice::<f32>(&[]).view(&mut out));
    assert_eq!(out, [0]);
    let nothing = optional::<f32>(Args::new(), None);
    launch::<length>([1, 1, 1], [1, 1, 1], &nothing.view(&mut out));
    assert_eq!(out, [-1]);
    let info = &<length as Kernel>::spec().params[0];
    assert_eq!((info.type_name, info.kind), ("Option<&[f32]>", gpu_std::ParamKind::Slice));
}

/// A private type in a private kernel.
#[derive(Clone, Copy, KernelValue)]
#[repr(C)]
struct Private(f32);

#[kernel]
fn takes_private(private: Private, mut out: DisjointMut<f32>) {
    if let Some(out) = out.get_mut(thread::unique_index()) {
        *out = private.0;
    }
}

mod inner {
    use super::*;

    #[derive(Clone, Copy, KernelType)]
    #[repr(C)]
    pub(super) struct Wide(u32);

    #[kernel]
    pub(super) fn takes_wide(wide: &[Wide], mut out: DisjointMut<f32>) {
        if let Some(out) = out.get_mut(thread::unique_index()) {
            *out = wide[0].0 as f32;
        }
    }

    pub(super) fn wide(x: u32) -> Wide {
        Wide(x)
    }
}

#[test]
fn types_are_as_private_as_their_kernels() {
    let mut out = [0.0_f32];
    launch::<takes_private>([1, 1, 1], [1, 1, 1], &Args::new().value(Private(3.5)).view(&mut out));
    assert_eq!(out, [3.5]);
    launch::<inner::takes_wide>([1, 1, 1], [1, 1, 1], &Args::new().slice(&[inner::wide(9)]).view(&mut out));
    assert_eq!(out, [9.0]);
}

/// A user's trait, as a bound of a kernel.
trait Bend: KernelType {
    fn bend(self) -> Self;
}

impl Bend for f32 {
    fn bend(self) -> f32 {
        self * 2.0
    }
}

impl Bend for i32 {
    fn bend(self) -> i32 {
        -self
    }
}

#[kernel(types(T = f32, i32), consts(N = 1, 2))]
fn bend<T, const N: usize>(x: &[T], by: [T; N], mut out: DisjointMut<T, Chunks<N>>)
where
    T: Bend,
{
    if let Some(out) = out.get_mut(thread::unique_index()) {
        let start = thread::unique_index().get() * N;
        for (i, out) in out.iter_mut().enumerate() {
            *out = if by.len() > N { by[i] } else { x[start + i].bend() };
        }
    }
}

/// Takes the types of a typed launch with these parameters, for any type that the kernel supports.
fn takes<P, K: SafeKernel<Params = P>>() -> &'static str {
    K::spec().symbol
}

fn bent<T: Bend>(x: &[T], start: T) -> Vec<T>
where
    bend<T, 2>: Instance,
{
    let symbol = takes::<(param::Slice<T>, param::Value<[T; 2]>, param::SliceMut<T>), bend<T, 2>>();
    assert!(symbol.starts_with("bend__"));
    let mut out = vec![start; x.len()];
    let args = Args::new().slice(x).value([start; 2]).view(&mut out);
    launch::<bend<T, 2>>([1, 1, 1], [x.len() as u32, 1, 1], &args);
    out
}

#[test]
fn generic_code_launches_any_instance() {
    assert_eq!(bent(&[1.0_f32, 2.5, 3.0], 0.0), [2.0, 5.0, 6.0]);
    assert_eq!(bent(&[1, -2, 3], 0), [-1, 2, -3]);
}

#[kernel(
    types(T = f32, u64),
    consts(N = 2, 3),
    bytes = N * x.bytes() + y.map_or(1, |y| y.bytes()) + plane.rows() * plane.columns() * size_of::<T>() + n as usize
)]
fn moving<T: Scalar, const N: usize>(
    x: &[T],
    y: Option<&[u16]>,
    n: u32,
    plane: Slice2<T>,
    volume: DisjointMut3<u8>,
) {
    let _ = (x, y, n, plane, volume);
}

#[kernel(bytes = volume.bytes() + (n - 1) as usize)]
fn moving_planes(n: u32, volume: DisjointMut3<u16>) {
    let _ = (n, volume);
}

/// Returns the bytes that a launch with these arguments moves.
fn bytes_of<K: Kernel>(args: &Args) -> Option<u64> {
    // SAFETY: the arguments match the kernel's parameters.
    K::spec().bytes.map(|bytes| unsafe { bytes(args.pointers().as_ptr()) })
}

#[test]
fn a_kernel_says_what_a_launch_moves() {
    let nowhere = std::ptr::null::<u8>;
    let args = |y: &[u16]| {
        let args = Args::new().slice(&[1_u64; 5]);
        let args = if y.is_empty() { args.value(nowhere()).value(0_usize) } else { args.slice(y) };
        let plane = Extents2::new(7, 6, 100).unwrap();
        let volume = Extents3::new([4, 3, 2], [200, 10]).unwrap();
        args.value(1000_u32).value(nowhere()).value(plane).value(nowhere()).value(volume)
    };
    assert_eq!(bytes_of::<moving<u64, 3>>(&args(&[])), Some(3 * 40 + 1 + 6 * 7 * 8 + 1000));
    assert_eq!(bytes_of::<moving<f32, 2>>(&args(&[1; 9])), Some(2 * 20 + 18 + 6 * 7 * 4 + 1000));
    let volume = Extents3::new([4, 3, 2], [200, 10]).unwrap();
    assert_eq!(bytes_of::<moving_planes>(&Args::new().value(3_u32).value(nowhere()).value(volume)), Some(50));
    assert_eq!(bytes_of::<add_optional<f32>>(&Args::new()), None);
}
