//! Vectorized distribution of an array over the threads of a launch. Whole vectors are distributed in tiles, and the
//! elements at the edges one by one.
//!
//! [`elementwise`](mod@crate::elementwise) and [`reduction`](mod@crate::reduction) are built on these functions. You
//! can also call them from your own kernels. For any grid and block, each element of `0..len` is visited by exactly one
//! thread of the first row ([`in_first_row`]).
//!
//! ```
//! use gpu_std::prelude::*;
//! use gpu_std::vectorized::{Split, each, for_each, in_first_row, lanes, load, with_lanes};
//!
//! /// Adds the number of elements above `limit` to `count`, which begins as 0.
//! #[kernel(types(T = u8, f32), consts(ITEMS = 4; VECTOR = 16))]
//! fn count_above<T: Scalar, const ITEMS: usize, const VECTOR: usize>(
//!     limit: T,
//!     data: &[T],
//!     count: &[gpu_std::atomic::Atomic<u64>],
//! ) {
//!     if !in_first_row() {
//!         return;
//!     }
//!     let mut own = 0;
//!     with_lanes!(lanes::<T>(VECTOR), N => {
//!         let split = Split::new::<T, N>(data.as_ptr(), data.len());
//!         for_each::<[T; N], ITEMS>(
//!             split.vectors,
//!             // SAFETY: vector i lies within `data`, and is aligned by `Split`.
//!             |i| unsafe { load(data.as_ptr().add(split.head + i * N)) },
//!             |_, vector| each::<N>(|lane| own += u64::from(vector[lane] > limit)),
//!         );
//!         split.edges(data.len(), |i| own += u64::from(data[i] > limit));
//!     });
//!     count[0].fetch_add(own, gpu_std::atomic::Ordering::Relaxed);
//! }
//! ```

use core::mem::{size_of, transmute_copy};

use crate::{Vector, thread};

/// Returns the number of elements of type `T` per access of `vector` bytes (1, 2, 4, 8 or 16). The result is 1 if the
/// size of `T` is not a power of two or exceeds the access.
pub const fn lanes<T>(vector: usize) -> usize {
    lanes_of(size_of::<T>(), vector)
}

/// Like [`lanes`], but for elements that are `size` bytes each.
pub const fn lanes_of(size: usize, vector: usize) -> usize {
    let lanes = if size.is_power_of_two() && size < vector { vector / size } else { 1 };
    if lanes > 16 { 16 } else { lanes }
}

#[doc(hidden)]
#[macro_export]
macro_rules! __with_lanes {
    ($lanes:expr, $n:ident => $body:expr) => {
        match const { $lanes } {
            1 => $crate::__with_lanes!(@ 1, $n, $body),
            2 => $crate::__with_lanes!(@ 2, $n, $body),
            4 => $crate::__with_lanes!(@ 4, $n, $body),
            8 => $crate::__with_lanes!(@ 8, $n, $body),
            _ => $crate::__with_lanes!(@ 16, $n, $body),
        }
    };
    (@ $value:literal, $n:ident, $body:expr) => {{
        const $n: usize = $value;
        $body
    }};
}
/// `with_lanes!(lanes, N => body)` expands to `body` with the constant `N` set to `lanes` (1, 2, 4, 8 or 16). `lanes`
/// is a constant expression. Unlike an array length, it may depend on type and const parameters.
pub use crate::__with_lanes as with_lanes;

/// Calls `f(0)` to `f(N - 1)` without a loop, for `N` up to 32. Arrays indexed in `f` then stay in registers even if
/// `f` is large, whereas LLVM does not unroll a loop with a large body.
#[inline(always)]
pub fn each<const N: usize>(mut f: impl FnMut(usize)) {
    const { assert!(N <= 32, "an unrolled loop can have at most 32 iterations") };
    macro_rules! calls {
        ($($i:literal)*) => { $(
            if const { $i < N } {
                f($i);
            }
        )* };
    }
    calls!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31);
}

/// Hides `value`, which must have 4 or 8 bytes, from the optimizer. Computations on the result are therefore evaluated
/// after this point, in each iteration of a loop. LLVM does not merge them with other computations on the same value,
/// whose results would occupy registers.
#[inline(always)]
pub fn opaque<T: Copy>(value: T) -> T {
    const { assert!(size_of::<T>() == 4 || size_of::<T>() == 8, "a register must have 4 or 8 bytes") };
    #[cfg(target_arch = "nvptx64")]
    // SAFETY: the assembly consists only of a comment, and the register contains the bytes of the value.
    unsafe {
        if size_of::<T>() == 4 {
            let mut bits: u32 = transmute_copy(&value);
            core::arch::asm!("// {0}", inout(reg32) bits, options(nomem, nostack));
            transmute_copy(&bits)
        } else {
            let mut bits: u64 = transmute_copy(&value);
            core::arch::asm!("// {0}", inout(reg64) bits, options(nomem, nostack));
            transmute_copy(&bits)
        }
    }
    #[cfg(not(target_arch = "nvptx64"))]
    value
}

/// Returns true if the y and z indices of both this thread and its block are 0. Threads for which the function returns
/// false have no work.
#[inline(always)]
pub fn in_first_row() -> bool {
    thread::thread_idx_y() | thread::thread_idx_z() | thread::block_idx_y() | thread::block_idx_z() == 0
}

/// Returns true if `ptr` is aligned to the size of an `N`-element vector.
#[inline(always)]
pub fn aligned<T, const N: usize>(ptr: *const T) -> bool {
    ptr.addr().is_multiple_of(N * size_of::<T>())
}

/// Loads `N` elements, in one access if they have 1, 2, 4, 8 or 16 bytes in total.
///
/// [`Vector`] itself rejects other sizes at compile time. With [`with_lanes`], other sizes occur in branches that are
/// never taken but must compile.
///
/// See the [example](self).
///
/// # Safety
/// `ptr` must be valid for reads of `N` elements and aligned to the size of the vector.
#[inline(always)]
pub unsafe fn load<T: Copy, const N: usize>(ptr: *const T) -> [T; N] {
    // SAFETY: guaranteed by this function's contract; a vector of integers of the same size contains the same bytes.
    unsafe {
        match N * size_of::<T>() {
            1 => transmute_copy(&Vector::<u8, 1>::load(ptr.cast())),
            2 => transmute_copy(&Vector::<u16, 1>::load(ptr.cast())),
            4 => transmute_copy(&Vector::<u32, 1>::load(ptr.cast())),
            8 => transmute_copy(&Vector::<u32, 2>::load(ptr.cast())),
            16 => transmute_copy(&Vector::<u32, 4>::load(ptr.cast())),
            _ => ptr.cast::<[T; N]>().read(),
        }
    }
}

/// Returns the result of [`load`] if `is_there` is true, and the value `otherwise` if it is false. On a GPU, the load
/// is one predicated instruction without a branch, so that several loads can be issued back to back. Use it only for
/// memory that nothing writes during the launch. Unless `KEPT` is true, 16-byte accesses do not allocate lines in the
/// L1 cache.
///
/// ```
/// use gpu_std::vectorized::load_or;
///
/// #[repr(align(16))]
/// struct Aligned([f32; 4]);
///
/// let x = Aligned([1.0, 2.0, 3.0, 4.0]);
/// let end = x.0.as_ptr_range().end;
/// // SAFETY: the first address has four numbers and is aligned to 16 bytes; the second one is not read.
/// let [first, second] =
///     unsafe { [load_or::<f32, 4, true>(x.0.as_ptr(), true, [0.0; 4]), load_or::<_, 4, true>(end, false, [0.0; 4])] };
/// assert_eq!((first, second), ([1.0, 2.0, 3.0, 4.0], [0.0; 4]));
/// ```
///
/// # Safety
/// If `is_there` is true, the conditions of [`load`] apply. Nothing may write the elements while the kernel runs, and
/// `ptr` must point to global memory.
#[inline(always)]
pub unsafe fn load_or<T: Copy, const N: usize, const KEPT: bool>(
    ptr: *const T,
    is_there: bool,
    otherwise: [T; N],
) -> [T; N] {
    #[cfg(target_arch = "nvptx64")]
    // SAFETY: guaranteed by this function's contract; the values consist of the bytes in the registers.
    unsafe {
        macro_rules! predicated {
            ($load:literal, $register:ident: $wide:ty, $bits:ty) => {{
                let mut bits = <$wide>::from(transmute_copy::<_, $bits>(&otherwise));
                core::arch::asm!(
                    concat!(
                        "{{ .reg .pred there; .reg .b64 global; cvta.to.global.u64 global, {ptr}; ",
                        "setp.ne.b32 there, {there}, 0; @there ", $load, " {bits}, [global]; }}"
                    ),
                    ptr = in(reg64) ptr,
                    there = in(reg32) u32::from(is_there),
                    bits = inout($register) bits,
                    options(pure, readonly, nostack),
                );
                return transmute_copy(&(bits as $bits));
            }};
        }
        match N * size_of::<T>() {
            1 => predicated!("ld.global.nc.b8", reg16: u16, u8),
            2 => predicated!("ld.global.nc.b16", reg16: u16, u16),
            4 => predicated!("ld.global.nc.b32", reg32: u32, u32),
            8 => predicated!("ld.global.nc.b64", reg64: u64, u64),
            16 => {
                let [mut a, mut b, mut c, mut d]: [u32; 4] = transmute_copy(&otherwise);
                macro_rules! predicated_vector {
                    ($load:literal) => {
                        core::arch::asm!(
                            concat!(
                                "{{ .reg .pred there; .reg .b64 global; cvta.to.global.u64 global, {ptr}; ",
                                "setp.ne.b32 there, {there}, 0; @there ", $load, " {{{a}, {b}, {c}, {d}}}, [global]; }}"
                            ),
                            ptr = in(reg64) ptr,
                            there = in(reg32) u32::from(is_there),
                            a = inout(reg32) a,
                            b = inout(reg32) b,
                            c = inout(reg32) c,
                            d = inout(reg32) d,
                            options(pure, readonly, nostack),
                        )
                    };
                }
                if KEPT {
                    predicated_vector!("ld.global.nc.v4.b32");
                } else {
                    predicated_vector!("ld.global.nc.L1::no_allocate.v4.b32");
                }
                return transmute_copy(&[a, b, c, d]);
            }
            _ => {}
        }
    }
    if is_there {
        // SAFETY: guaranteed by this function's contract.
        unsafe { load(ptr) }
    } else {
        otherwise
    }
}

/// Stores `N` elements, in one access if they have 1, 2, 4, 8 or 16 bytes in total.
///
/// ```
/// use gpu_std::vectorized::{store, store_run};
///
/// #[repr(align(16))]
/// struct Aligned([f32; 4]);
///
/// let mut x = Aligned([0.0; 4]);
/// // SAFETY: there are four numbers, aligned to 16 bytes.
/// unsafe {
///     store(x.0.as_mut_ptr(), [1.0, 2.0, 3.0, 4.0]);
///     // Only the first two values, from element 1 on.
///     store_run(x.0.as_mut_ptr(), 1, 2, [7.0, 8.0, 9.0, 10.0]);
/// }
/// assert_eq!(x.0, [1.0, 7.0, 8.0, 4.0]);
/// ```
///
/// # Safety
/// `ptr` must be valid for writes of `N` elements and aligned to the size of the vector.
#[inline(always)]
pub unsafe fn store<T: Copy, const N: usize>(ptr: *mut T, values: [T; N]) {
    // SAFETY: as in `load`.
    unsafe {
        match N * size_of::<T>() {
            1 => transmute_copy::<_, Vector<u8, 1>>(&values).store(ptr.cast()),
            2 => transmute_copy::<_, Vector<u16, 1>>(&values).store(ptr.cast()),
            4 => transmute_copy::<_, Vector<u32, 1>>(&values).store(ptr.cast()),
            8 => transmute_copy::<_, Vector<u32, 2>>(&values).store(ptr.cast()),
            16 => transmute_copy::<_, Vector<u32, 4>>(&values).store(ptr.cast()),
            _ => ptr.cast::<[T; N]>().write(values),
        }
    }
}

/// Divides an array at the addresses where its aligned vectors of `N` elements start and end.
///
/// ```
/// use gpu_std::vectorized::Split;
///
/// #[repr(align(16))]
/// struct Aligned([f32; 12]);
///
/// // Ten numbers from element 1 on: three up to the first aligned address, one vector of four, and three more.
/// let x = Aligned([0.0; 12]);
/// let split = Split::new::<f32, 4>(x.0[1..].as_ptr(), 10);
/// assert_eq!((split.head, split.vectors, split.tail), (3, 1, 7));
/// ```
#[derive(Clone, Copy)]
pub struct Split {
    /// Number of elements before the first aligned address.
    pub head: usize,
    /// Number of whole vectors after the head.
    pub vectors: usize,
    /// Index of the first element after the vectors.
    pub tail: usize,
}

impl Split {
    /// Divides the `len` elements at `ptr`.
    #[inline(always)]
    pub fn new<T, const N: usize>(ptr: *const T, len: usize) -> Self {
        let bytes = N * size_of::<T>();
        let misaligned = ptr.addr() % bytes;
        let to_boundary = if misaligned == 0 { 0 } else { (bytes - misaligned) / size_of::<T>() };
        let head = if to_boundary < len { to_boundary } else { len };
        let vectors = (len - head) / N;
        Self { head, vectors, tail: head + vectors * N }
    }

    /// Calls `visit` for each element outside the vectors. The first threads of the launch visit one element each.
    #[inline(always)]
    pub fn edges(self, len: usize, mut visit: impl FnMut(usize)) {
        let count = self.head + (len - self.tail);
        let mut i =
            thread::block_idx_x() as usize * thread::block_dim_x() as usize + thread::thread_idx_x() as usize;
        while i < count {
            visit(if i < self.head { i } else { self.tail + (i - self.head) });
            i += thread::grid_dim_x() as usize * thread::block_dim_x() as usize;
        }
    }
}

/// Visits `0..count` in tiles of `ITEMS` × block size. Thread t of a block visits positions t, t + block size, … of
/// each tile. In a full tile, the thread issues all loads before it uses the first value. Within a thread, the calls
/// have increasing indices.
#[inline(always)]
pub fn for_each<V: Copy, const ITEMS: usize>(
    count: usize,
    load: impl Fn(usize) -> V,
    mut visit: impl FnMut(usize, V),
) {
    let step = thread::block_dim_x() as usize;
    let tile = step * ITEMS;
    let mut first = thread::block_idx_x() as usize * tile + thread::thread_idx_x() as usize;
    while first < count {
        if count - first > (ITEMS - 1) * step {
            let mut values = [load(first); ITEMS];
            each::<ITEMS>(|item| {
                if item > 0 {
                    values[item] = load(first + item * step);
                }
            });
            each::<ITEMS>(|item| visit(first + item * step, values[item]));
        } else {
            let mut i = first;
            while i < count {
                visit(i, load(i));
                i += step;
            }
        }
        first += thread::grid_dim_x() as usize * tile;
    }
}

/// Creates an array that contains `f(i)` for each lane i.
#[inline(always)]
pub fn lanewise<U: Copy, const N: usize>(f: impl Fn(usize) -> U) -> [U; N] {
    let mut out = [f(0); N];
    each::<N>(|lane| {
        if lane > 0 {
            out[lane] = f(lane);
        }
    });
    out
}

/// Visits `0..len` in runs, each given by its first index and number of elements. Runs are the aligned vectors of `N`
/// elements at `ptr`, and the elements before and after these vectors. Unlike [`for_each`] and [`Split::edges`], this
/// function contains only one call of `visit`, which keeps the kernel small, but limits each thread to one run in
/// flight.
#[inline(always)]
pub fn for_each_run<T, const N: usize>(ptr: *const T, len: usize, mut visit: impl FnMut(usize, usize)) {
    let split = Split::new::<T, N>(ptr, len);
    let before = (split.head > 0) as usize;
    let runs = before + split.vectors + (split.tail < len) as usize;
    let step = thread::grid_dim_x() as usize * thread::block_dim_x() as usize;
    let mut run =
        thread::block_idx_x() as usize * thread::block_dim_x() as usize + thread::thread_idx_x() as usize;
    while run < runs {
        let (first, end) = if run < before {
            (0, split.head)
        } else {
            let first = split.head + (run - before) * N;
            (first, if len - first < N { len } else { first + N })
        };
        visit(first, end - first);
        run += step;
    }
}

/// Stores the first `count` values of `values` to `ptr`, starting at element `first`. Uses one access if `count` is `N`
/// and the address is aligned.
///
/// See the example of [`store`].
///
/// # Safety
/// The elements must be valid for writes.
#[inline(always)]
pub unsafe fn store_run<T: Copy, const N: usize>(ptr: *mut T, first: usize, count: usize, values: [T; N]) {
    let ptr = ptr.wrapping_add(first);
    if count == N && aligned::<T, N>(ptr) {
        // SAFETY: guaranteed by this function's contract, and the address is aligned.
        return unsafe { store(ptr, values) };
    }
    each::<N>(|lane| {
        if lane < count {
            // SAFETY: guaranteed by this function's contract.
            unsafe { ptr.add(lane).write(values[lane]) };
        }
    });
}

/// Extracts the 16 bytes that start at byte `shift` (below 16) of two consecutive 16-byte accesses. Use it for data at
/// an unaligned address. The function takes 15 instructions if `shift` is the same in all threads.
///
/// ```
/// use gpu_std::vectorized::realign;
///
/// let word = |first: usize| u32::from_le_bytes(std::array::from_fn(|byte| (first + byte) as u8));
/// let words = |first: usize| std::array::from_fn(|i| word(first + 4 * i));
/// assert_eq!(realign(words(0), words(16), 5), words(5));
/// ```
#[inline(always)]
pub fn realign(low: [u32; 4], high: [u32; 4], shift: usize) -> [u32; 4] {
    let mut words = [low[0], low[1], low[2], low[3], high[0], high[1], high[2], high[3]];
    // Shifts first by two words and by one word, and then by bytes within a word.
    if shift & 8 != 0 {
        words = [words[2], words[3], words[4], words[5], words[6], words[7], 0, 0];
    }
    if shift & 4 != 0 {
        words = [words[1], words[2], words[3], words[4], words[5], words[6], words[7], 0];
    }
    let bits = 8 * (shift as u32 % 4);
    lanewise(|i| ((u64::from(words[i + 1]) << 32 | u64::from(words[i])) >> bits) as u32)
}
