//! Elementwise application of a function to none to three input arrays: `out[i] = f(a[i], b[i], c[i])`.
//!
//! Each function writes every element of `out[..len]` once. The bulk goes through vectors of `N` elements when
//! all arrays reach an aligned address at the same element; otherwise through single elements.
//!
//! # Safety
//!
//! The same for all: every pointer is valid for `len` elements and aligned to its element; `out` may be the
//! same pointer as an input, but no array may overlap another in any other way; `f` is the same in all threads;
//! no other launch touches `out` at the same time.

use crate::tile::{Split, aligned, each, for_each, in_first_row, load, store};

/// The vector of `f(i)` for each lane i.
#[inline(always)]
fn lanewise<U: Copy, const N: usize>(f: impl Fn(usize) -> U) -> [U; N] {
    let mut out = [f(0); N];
    each::<N>(|lane| {
        if lane > 0 {
            out[lane] = f(lane);
        }
    });
    out
}

/// The common body: `vectors_fit` says whether the inputs are aligned from element `head` on; `element` computes
/// one element, `fetch` loads the inputs of a vector, `compute` makes its outputs.
#[inline(always)]
unsafe fn transform<V: Copy, U: Copy, const ITEMS: usize, const N: usize>(
    out: *mut U,
    len: usize,
    vectors_fit: impl Fn(usize) -> bool,
    element: impl Fn(usize) -> U,
    fetch: impl Fn(usize) -> V,
    compute: impl Fn(V) -> [U; N],
) {
    if !in_first_row() {
        return;
    }
    let split = Split::new::<U, N>(out, len);
    if N > 1 && vectors_fit(split.head) {
        // SAFETY: `edges` visits indices below `len` only.
        split.edges(len, |i| unsafe { out.add(i).write(element(i)) });
        for_each::<V, ITEMS>(
            split.vectors,
            |i| fetch(split.head + i * N),
            // SAFETY: vector i covers elements head + i * N .. + N, all below `tail`, and is aligned by `Split`.
            |i, value| unsafe { store(out.add(split.head + i * N), compute(value)) },
        );
    } else {
        // SAFETY: `for_each` visits indices below `len` only.
        for_each::<U, ITEMS>(len, element, |i, value| unsafe { out.add(i).write(value) });
    }
}

/// `out[i] = value`.
#[inline(always)]
pub(crate) unsafe fn map0<U: Copy, const ITEMS: usize, const N: usize>(out: *mut U, len: usize, value: U) {
    // SAFETY: by this function's contract.
    unsafe { transform::<(), U, ITEMS, N>(out, len, |_| true, |_| value, |_| (), |()| [value; N]) }
}

/// `out[i] = f(a[i])`.
#[inline(always)]
pub(crate) unsafe fn map1<A: Copy, U: Copy, const ITEMS: usize, const N: usize>(
    a: *const A,
    out: *mut U,
    len: usize,
    f: impl Fn(A) -> U,
) {
    // SAFETY: by this function's contract; `transform` requests elements and vectors within `len` only.
    unsafe {
        transform::<[A; N], U, ITEMS, N>(
            out,
            len,
            |head| aligned::<A, N>(a.wrapping_add(head)),
            |i| f(*a.add(i)),
            |i| load(a.add(i)),
            |a| lanewise(|i| f(a[i])),
        )
    }
}

/// `out[i] = f(a[i], b[i])`.
#[inline(always)]
pub(crate) unsafe fn map2<T: Copy, const ITEMS: usize, const N: usize>(
    a: *const T,
    b: *const T,
    out: *mut T,
    len: usize,
    f: impl Fn(T, T) -> T,
) {
    // SAFETY: by this function's contract; `transform` requests elements and vectors within `len` only.
    unsafe {
        transform::<([T; N], [T; N]), T, ITEMS, N>(
            out,
            len,
            |head| aligned::<T, N>(a.wrapping_add(head)) && aligned::<T, N>(b.wrapping_add(head)),
            |i| f(*a.add(i), *b.add(i)),
            |i| (load(a.add(i)), load(b.add(i))),
            |(a, b)| lanewise(|i| f(a[i], b[i])),
        )
    }
}

/// `out[i] = f(a[i], b[i], c[i])`.
#[inline(always)]
pub(crate) unsafe fn map3<T: Copy, const ITEMS: usize, const N: usize>(
    a: *const T,
    b: *const T,
    c: *const T,
    out: *mut T,
    len: usize,
    f: impl Fn(T, T, T) -> T,
) {
    // SAFETY: by this function's contract; `transform` requests elements and vectors within `len` only.
    unsafe {
        transform::<([T; N], [T; N], [T; N]), T, ITEMS, N>(
            out,
            len,
            |head| {
                aligned::<T, N>(a.wrapping_add(head))
                    && aligned::<T, N>(b.wrapping_add(head))
                    && aligned::<T, N>(c.wrapping_add(head))
            },
            |i| f(*a.add(i), *b.add(i), *c.add(i)),
            |i| (load(a.add(i)), load(b.add(i)), load(c.add(i))),
            |(a, b, c)| lanewise(|i| f(a[i], b[i], c[i])),
        )
    }
}
