//! Elementwise kernels: `out[i] = f(x[i], y[i], …)`.
//!
//! [`#[elementwise]`](macro@crate::elementwise) generates an elementwise kernel from a scalar function. The generated
//! kernels call [`map`], which you can also call from handwritten kernels. If all arrays are aligned for vector
//! accesses at the same element index, most elements use vector accesses. Otherwise, all accesses are scalar.

use crate::vectorized::{
    Split, aligned, for_each, in_first_row, lanes_of, lanewise, load, store, with_lanes,
};

#[cfg(not(target_arch = "nvptx64"))]
pub use crate::family::Elementwise;

/// Input arrays of [`map`]: a tuple of up to four pointers.
///
/// See the example of [`map`].
///
/// # Safety
/// `element` and `vector` must read only the elements at the given indices.
pub unsafe trait Sources: Copy {
    /// One element of each array.
    type Element: Copy;
    /// `N` elements of each array.
    type Vector<const N: usize>: Copy;
    /// Size of the largest element type, in bytes.
    const LARGEST: usize;

    /// Returns true if, in all arrays, element `first` is aligned for an `N`-element vector.
    fn aligned<const N: usize>(self, first: usize) -> bool;

    /// Reads element `i` of each array.
    ///
    /// # Safety
    /// The elements must be valid for reads.
    unsafe fn element(self, i: usize) -> Self::Element;

    /// Reads elements `i..i + N` of each array, in one access per array.
    ///
    /// # Safety
    /// The elements must be valid for reads, and aligned to the size of the vector.
    unsafe fn vector<const N: usize>(self, i: usize) -> Self::Vector<N>;

    /// Returns one lane of a vector.
    fn lane<const N: usize>(vector: &Self::Vector<N>, lane: usize) -> Self::Element;
}

macro_rules! sources {
    ($($name:ident $index:tt),*) => {
        // SAFETY: each method reads only the element or the vector at its index.
        unsafe impl<$($name: Copy),*> Sources for ($(*const $name,)*) {
            type Element = ($($name,)*);
            type Vector<const N: usize> = ($([$name; N],)*);
            const LARGEST: usize = {
                #[allow(unused_mut)]
                let mut largest = 1;
                $(if size_of::<$name>() > largest {
                    largest = size_of::<$name>();
                })*
                largest
            };

            #[inline(always)]
            #[allow(unused_variables)]
            fn aligned<const N: usize>(self, first: usize) -> bool {
                true $(&& aligned::<$name, N>(self.$index.wrapping_add(first)))*
            }
            #[inline(always)]
            #[allow(unused_variables, unused_unsafe, clippy::unused_unit)]
            unsafe fn element(self, i: usize) -> Self::Element {
                // SAFETY: guaranteed by this function's contract.
                unsafe { ($(*self.$index.add(i),)*) }
            }
            #[inline(always)]
            #[allow(unused_variables, unused_unsafe, clippy::unused_unit)]
            unsafe fn vector<const N: usize>(self, i: usize) -> Self::Vector<N> {
                // SAFETY: guaranteed by this function's contract.
                unsafe { ($(load(self.$index.add(i)),)*) }
            }
            #[inline(always)]
            #[allow(unused_variables, clippy::unused_unit)]
            fn lane<const N: usize>(vector: &Self::Vector<N>, lane: usize) -> Self::Element {
                ($(vector.$index[lane],)*)
            }
        }
    };
}
sources!();
sources!(A 0);
sources!(A 0, B 1);
sources!(A 0, B 1, C 2);
sources!(A 0, B 1, C 2, D 3);

/// Returns the size of the largest element type among the sources and `U`, in bytes.
const fn largest<S: Sources, U>() -> usize {
    if S::LARGEST > size_of::<U>() { S::LARGEST } else { size_of::<U>() }
}

/// Computes `out[i] = f((a[i], b[i], …))` for each `i` below `len`, using all threads of a launch. Each element is
/// written once. Threads and blocks with a nonzero y or z index do nothing.
///
/// Each thread keeps `ITEMS` accesses in flight. Each access covers `VECTOR` bytes of the array with the largest
/// elements.
///
/// ```
/// use gpu_std::elementwise::map;
/// use gpu_std::prelude::*;
///
/// /// `out[i] = x[i] + y[i % 2]`: more than a function of elements.
/// ///
/// /// # Safety
/// ///
/// /// As [`map`], for `x.len()` elements.
/// #[kernel]
/// unsafe fn add_to_both(x: &[f32], y: [f32; 2], out: *mut f32) {
///     // SAFETY: by this function's contract.
///     unsafe { map::<4, 16, _, _>((x.as_ptr(),), out, x.len(), |(x,)| x + y[0]) }
/// }
/// ```
///
/// # Safety
/// Every pointer must be valid for `len` elements and aligned to its element type. `out` may equal a source pointer,
/// but the arrays must not overlap in any other way. All threads of the launch must call this function with the same
/// arguments and constants. Nothing else may access `out` until the launch ends.
#[inline(always)]
pub unsafe fn map<const ITEMS: usize, const VECTOR: usize, S: Sources, U: Copy>(
    sources: S,
    out: *mut U,
    len: usize,
    f: impl Fn(S::Element) -> U,
) {
    if !in_first_row() {
        return;
    }
    with_lanes!(lanes_of(largest::<S, U>(), VECTOR), N => {
        let split = Split::new::<U, N>(out, len);
        if N > 1 && sources.aligned::<N>(split.head) {
            // SAFETY: `edges` visits only indices below `len`.
            split.edges(len, |i| unsafe { out.add(i).write(f(sources.element(i))) });
            for_each::<S::Vector<N>, ITEMS>(
                split.vectors,
                // SAFETY: vector i covers the `N` elements from `head + i * N` on, which are all below `tail`, and
                // `aligned` has checked its alignment.
                |i| unsafe { sources.vector(split.head + i * N) },
                |i, value| {
                    let values = lanewise::<U, N>(|lane| f(S::lane(&value, lane)));
                    // SAFETY: as above; `Split` aligns the output vectors.
                    unsafe { store(out.add(split.head + i * N), values) }
                },
            );
        } else {
            for_each::<U, ITEMS>(
                len,
                // SAFETY: `for_each` visits only indices below `len`.
                |i| f(unsafe { sources.element(i) }),
                // SAFETY: as above.
                |i, value| unsafe { out.add(i).write(value) },
            );
        }
    })
}
