//! Scan by key: running sums that restart wherever the key changes.
//!
//! The implementation is a [`scan`](mod@crate::scan) over pairs of a sum and a flag. The flag records whether a run
//! started within the sum. The operator on these pairs is associative but not commutative.

use core::marker::PhantomData;

use gpu_std::disjoint::Unclaimed;
use gpu_std::prelude::*;
use gpu_std::scan::{Arrays, Operation, scan, tile_len, tiles};
use gpu_std::vectorized::each;

use crate::queue::queue;
use crate::scan::Zero;
use crate::tile::{aligned, lanes, load, store, with_lanes};

/// An element and whether it is the first of its run.
#[derive(Clone, Copy)]
struct Keyed<T> {
    value: T,
    is_first: bool,
}

/// Sum of consecutive elements since the last start of a run, and a flag that is 1 if a run started among them,
/// otherwise 0.
#[derive(Clone, Copy, KernelType)]
#[repr(C)]
struct Segment<A> {
    sum: A,
    has_begin: A,
}

/// Operator on runs.
struct Runs<T>(PhantomData<T>);

impl<T: Zero> Operation for Runs<T> {
    type Item = Keyed<T>;
    type Value = Segment<T::Accumulator>;
    type Output = T;

    #[inline(always)]
    fn absent() -> Keyed<T> {
        Keyed { value: T::NOTHING, is_first: false }
    }
    #[inline(always)]
    fn identity() -> Self::Value {
        Segment { sum: T::NOTHING.to_acc(), has_begin: T::Accumulator::ZERO }
    }
    #[inline(always)]
    fn value(item: Keyed<T>) -> Self::Value {
        let has_begin = if item.is_first { T::Accumulator::ONE } else { T::Accumulator::ZERO };
        Segment { sum: item.value.to_acc(), has_begin }
    }
    #[inline(always)]
    fn combine(a: Self::Value, b: Self::Value) -> Self::Value {
        if b.has_begin != T::Accumulator::ZERO {
            return b;
        }
        Segment { sum: a.sum.wrapping_add(b.sum), has_begin: a.has_begin }
    }
    #[inline(always)]
    fn output(value: Self::Value) -> T {
        T::from_acc(value.sum)
    }
}

/// The arrays of keys, values and results, each with `len` elements.
#[derive(Clone, Copy)]
struct Pairs<T, K> {
    keys: *const K,
    x: *const T,
    out: *mut T,
    len: usize,
    head: usize,
    exclusive: bool,
    /// True if the vectors of the keys and of the values start at the same elements. `out_fits` is the equivalent for
    /// the results.
    keys_fit: bool,
    out_fits: bool,
}

impl<T: Scalar, K: Scalar> Pairs<T, K> {
    /// Returns whether element `i` is the first of its run.
    ///
    /// # Safety
    /// `i` must be less than the length.
    #[inline(always)]
    unsafe fn is_first(&self, i: usize) -> bool {
        // SAFETY: guaranteed by the caller.
        i == 0 || unsafe { self.keys.add(i - 1).read() != self.keys.add(i).read() }
    }

    /// Returns the rounded result at element `i`.
    ///
    /// # Safety
    /// `i` must be less than the length.
    #[inline(always)]
    unsafe fn result(&self, i: usize, value: Segment<T::Accumulator>) -> T
    where
        T: Zero,
    {
        // SAFETY: guaranteed by the caller.
        if self.exclusive && unsafe { self.is_first(i) } { T::ZERO } else { Runs::<T>::output(value) }
    }
}

// SAFETY: the pointers are valid for `len` elements.
unsafe impl<T: Zero, K: Scalar, const N: usize> Arrays<Runs<T>, N> for Pairs<T, K> {
    #[inline(always)]
    fn len(&self) -> usize {
        self.len
    }
    #[inline(always)]
    fn head(&self) -> usize {
        self.head
    }
    #[inline(always)]
    unsafe fn load_vector(&self, i: usize) -> [Keyed<T>; N] {
        // SAFETY: guaranteed by the caller, including for the preceding element if there is one.
        unsafe {
            let values: [T; N] = load(self.x.add(i));
            let mut keys = [self.keys.add(i).read(); N];
            if self.keys_fit {
                keys = load(self.keys.add(i));
            } else {
                each::<N>(|lane| keys[lane] = self.keys.add(i + lane).read());
            }
            let mut items = [Keyed { value: values[0], is_first: self.is_first(i) }; N];
            each::<N>(|lane| {
                if lane > 0 {
                    items[lane] = Keyed { value: values[lane], is_first: keys[lane] != keys[lane - 1] };
                }
            });
            items
        }
    }
    #[inline(always)]
    unsafe fn load(&self, i: usize) -> Keyed<T> {
        // SAFETY: guaranteed by the caller.
        unsafe { Keyed { value: self.x.add(i).read(), is_first: self.is_first(i) } }
    }
    #[inline(always)]
    unsafe fn store_vector(&self, i: usize, values: [Segment<T::Accumulator>; N]) {
        let mut results = [T::ZERO; N];
        // SAFETY: guaranteed by the caller; the address is aligned because `i + head` is a multiple of `N`.
        unsafe {
            each::<N>(|lane| results[lane] = self.result(i + lane, values[lane]));
            if self.out_fits {
                store(self.out.add(i), results);
            } else {
                each::<N>(|lane| self.out.add(i + lane).write(results[lane]));
            }
        }
    }
    #[inline(always)]
    unsafe fn store(&self, i: usize, value: Segment<T::Accumulator>) {
        // SAFETY: guaranteed by the caller.
        unsafe { self.out.add(i).write(self.result(i, value)) }
    }
}

/// Running sum within each run of equal keys, up to and including each element. If `exclusive` is true, a sum does not
/// include its own element, and each run starts with 0. Integers wrap.
///
/// # Safety
/// `keys` must have the same length as `x`. `workspace` must point to `workspace_len` words that meet the requirements
/// of [`TileQueue::new`](gpu_std::look_back::TileQueue::new). There must be enough words for the tiles, with values of
/// two accumulators each.
#[kernel(
    types(T = f32, f64, f16, bf16, u32, u64; K = u32, u64),
    consts(ITEMS = 2; VECTOR = 16),
    launch_bounds(256, 2),
    bytes = keys.bytes() + x.bytes() + out.bytes()
)]
pub unsafe fn scan_sum_by_key<T: Zero, K: Scalar, const ITEMS: usize, const VECTOR: usize>(
    exclusive: bool,
    keys: &[K],
    x: &[T],
    workspace: *mut u64,
    workspace_len: usize,
    mut out: DisjointMut<T, Unclaimed>,
) {
    let len = if x.len() < out.len() { x.len() } else { out.len() };
    let (keys, x, out) = (keys.as_ptr(), x.as_ptr(), out.as_mut_ptr());
    let workspace = (workspace.cast_const(), workspace_len);
    with_lanes!(lanes::<T>(VECTOR), N => {
        let head = x.addr() % (N * size_of::<T>()) / size_of::<T>();
        let keys_fit = aligned::<K, N>(keys.wrapping_sub(head));
        let out_fits = aligned::<T, N>(out.wrapping_sub(head));
        let arrays = Pairs { keys, x, out, len, head, exclusive, keys_fit, out_fits };
        // SAFETY: guaranteed by this function's contract.
        let mut queue = unsafe { queue(workspace, tiles(len, head, tile_len(block::threads() as usize, ITEMS, N))) };
        let initial = Runs::<T>::identity();
        // SAFETY: as above.
        unsafe { scan::<Runs<T>, ITEMS, N>(&arrays, &mut queue, initial, exclusive) };
    })
}
