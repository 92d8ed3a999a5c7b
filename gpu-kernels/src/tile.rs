//! How the threads of a launch share an array: whole vectors in tiles, single elements at the edges.
//!
//! Every element of `0..len` is visited by exactly one thread of the first row, for any grid and block.

use core::mem::{size_of, transmute_copy};

use gpu_std::{Vector, thread};

/// The elements of type `T` in one access of `vector` bytes; at least one.
pub(crate) const fn lanes<T>(vector: usize) -> usize {
    if vector > size_of::<T>() { vector / size_of::<T>() } else { 1 }
}

/// Runs `$body` with the constant `$n` set to `$lanes`, a constant expression that may depend on type and
/// const parameters (which an array length may not).
macro_rules! with_lanes {
    ($lanes:expr, $n:ident => $body:expr) => {
        match const { $lanes } {
            1 => with_lanes!(@ 1, $n, $body),
            2 => with_lanes!(@ 2, $n, $body),
            4 => with_lanes!(@ 4, $n, $body),
            8 => with_lanes!(@ 8, $n, $body),
            _ => with_lanes!(@ 16, $n, $body),
        }
    };
    (@ $value:literal, $n:ident, $body:expr) => {{
        const $n: usize = $value;
        $body
    }};
}
pub(crate) use with_lanes;

/// Calls `f(0)` to `f(N - 1)`, for N up to 16, without a loop: indexed arrays become registers however large `f`
/// is, while LLVM leaves a loop with a large body as it is, and the arrays in memory.
#[inline(always)]
pub(crate) fn each<const N: usize>(mut f: impl FnMut(usize)) {
    const { assert!(N <= 16) };
    macro_rules! calls {
        ($($i:literal)*) => { $(
            if const { $i < N } {
                f($i);
            }
        )* };
    }
    calls!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
}

/// `value`, of which LLVM does not know that.
#[inline(always)]
pub(crate) fn opaque(value: usize) -> usize {
    #[cfg(target_arch = "nvptx64")]
    {
        let same;
        // SAFETY: copies a register.
        unsafe {
            core::arch::asm!(
                "mov.b64 {same}, {value};",
                same = out(reg64) same,
                value = in(reg64) value,
                options(pure, nomem, nostack),
            );
        }
        same
    }
    #[cfg(not(target_arch = "nvptx64"))]
    value
}

/// Whether this thread and its block have y and z of 0. The others have nothing to do.
#[inline(always)]
pub(crate) fn in_first_row() -> bool {
    thread::thread_idx_y() | thread::thread_idx_z() | thread::block_idx_y() | thread::block_idx_z() == 0
}

/// Whether `ptr` is aligned to a vector of `N` elements.
#[inline(always)]
pub(crate) fn aligned<T, const N: usize>(ptr: *const T) -> bool {
    ptr.addr().is_multiple_of(N * size_of::<T>())
}

/// Reads `N` elements in one access, if they have 1, 2, 4, 8 or 16 bytes.
///
/// [`Vector`] itself refuses other sizes when it is compiled; [`with_lanes`] names such sizes in branches that are
/// never taken, which must compile all the same.
///
/// # Safety
///
/// `ptr` is valid for reads of `N` elements and aligned to their size together.
#[inline(always)]
pub(crate) unsafe fn load<T: Copy, const N: usize>(ptr: *const T) -> [T; N] {
    // SAFETY: by this function's contract; a vector of integers of the same size holds the same bytes.
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

/// Writes `N` elements in one access, if they have 1, 2, 4, 8 or 16 bytes.
///
/// # Safety
///
/// `ptr` is valid for writes of `N` elements and aligned to their size together.
#[inline(always)]
pub(crate) unsafe fn store<T: Copy, const N: usize>(ptr: *mut T, values: [T; N]) {
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

/// An array cut at the addresses where whole vectors of `N` elements begin and end.
#[derive(Clone, Copy)]
pub(crate) struct Split {
    /// Elements before the first aligned address.
    pub head: usize,
    /// Whole vectors after them.
    pub vectors: usize,
    /// The first element after the vectors.
    pub tail: usize,
}

impl Split {
    /// Cuts `len` elements at `ptr`.
    #[inline(always)]
    pub fn new<T, const N: usize>(ptr: *const T, len: usize) -> Self {
        let bytes = N * size_of::<T>();
        let misaligned = ptr.addr() % bytes;
        let to_boundary = if misaligned == 0 { 0 } else { (bytes - misaligned) / size_of::<T>() };
        let head = if to_boundary < len { to_boundary } else { len };
        let vectors = (len - head) / N;
        Self { head, vectors, tail: head + vectors * N }
    }

    /// Calls `visit` for the elements outside the vectors, one each for the first threads of the launch.
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

/// Visits `0..count` in tiles of `ITEMS` × block size. Thread t of a block takes positions t, t + block size, …
/// of each tile; all its loads of a full tile are issued before the first value is used. Calls come in
/// increasing order of index within a thread.
#[inline(always)]
pub(crate) fn for_each<V: Copy, const ITEMS: usize>(
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
