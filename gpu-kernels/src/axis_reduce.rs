//! Reductions of each row, each column, or each segment of an array. Each reduction is one deterministic launch.
//!
//! | axis | threads per result | if there are few results |
//! | --- | --- | --- |
//! | rows | a [thread group](crate::thread_group) per row: for short rows, lanes that load several rows at once; otherwise, a block | several blocks per row |
//! | columns | one lane per vector of adjacent columns; the warps of a block are stacked along the rows | several blocks per column |
//! | segments | a thread group per segment | |
//!
//! Blocks that share a result store their partial results in the workspace. The last of these blocks to arrive combines
//! them in order. `workspace` must be aligned to 16 bytes. It consists of [`COUNTERS`] 32-bit counters, which are zero
//! before and after every launch, and [16 bytes per partial result](workspace_bytes).

use gpu_std::atomic::{Atomic, Ordering, scope::Device};
use gpu_std::prelude::*;
use gpu_std::{shared_array, thread, warp};

use crate::reduce::mean_of;
use crate::reduction_operators::{First, Fold, Largest, Max, Mean, Min, Product, Smallest, Sum};
use crate::thread_group::{
    Cut, ThreadGroup, aligned, divided, each, lanes, lanewise, load, stream, with_lanes,
};
use crate::tile::load_or;

/// Maximum number of results per launch if several blocks share each result.
pub const COUNTERS: usize = 4096;

/// Maximum number of threads per block.
pub const MAX_BLOCK: u32 = 256;

/// Returns the workspace size, in bytes, for `partials` partial results.
pub const fn workspace_bytes(partials: usize) -> usize {
    4 * COUNTERS + 16 * partials
}

/// Number of vectors that a thread loads at once in column reductions.
const ITEMS: usize = 4;
/// Number of vectors that a thread loads at once in row reductions.
pub const SLOTS: usize = 4;

/// Returns the counter of a result, and a pointer to the partial results.
///
/// # Safety
/// `workspace` must meet the requirements of the module documentation, and `result` must be less than [`COUNTERS`].
#[inline(always)]
pub(crate) unsafe fn shared_result<P>(
    workspace: *mut u64,
    result: usize,
) -> (&'static Atomic<u32, Device>, *mut P) {
    // SAFETY: guaranteed by this function's contract; during the launch, the counter is accessed only through this
    // atomic.
    unsafe {
        (Atomic::from_ptr(workspace.cast::<u32>().add(result)), workspace.byte_add(4 * COUNTERS).cast())
    }
}

/// Records that the block has finished its part of a result. Returns true if the block is the last of the `parts`
/// blocks to finish. The last block can read all partial results. Every thread of the block must call this function.
#[inline(always)]
pub(crate) fn is_last(finished: &Atomic<u32, Device>, parts: u32) -> bool {
    // The block's partial results are written before this barrier.
    thread::sync_threads();
    let mut last = false;
    if thread::thread_idx_x() == 0 {
        // Releases this block's partial results, and acquires the partial results of the blocks that were counted
        // earlier.
        last = finished.fetch_add(1, Ordering::AcqRel) == parts - 1;
        if last {
            finished.store(0, Ordering::Relaxed);
        }
    }
    thread::sync_threads_or(last)
}

/// Folds a thread's part of a row into one value.
///
/// # Safety
/// `row` must be valid for reads of `len` elements.
#[inline(always)]
unsafe fn fold_row<T: Scalar, R: Fold<T>, const N: usize>(
    row: *const T,
    len: usize,
    part: (usize, usize),
) -> R::Partial {
    let cut = Cut::new::<T, N>(row, len, true);
    let mut partials = ([R::identity(); N], R::identity());
    stream::<_, [T; N], T, SLOTS, N>(
        &cut,
        part,
        &mut partials,
        // SAFETY: `stream` passes only offsets within the row, of whole vectors that exist and of single elements.
        |place, is_there| unsafe { load_or::<T, N, false>(row.wrapping_add(place), is_there, [T::ZERO; N]) },
        |(lanes, _), place, vector| {
            each::<N>(|lane| lanes[lane] = R::fold(lanes[lane], vector[lane], place + lane));
        },
        // SAFETY: as above.
        |place| unsafe { row.add(place).read() },
        |(_, edges), place, value| *edges = R::fold(*edges, value, place),
    );
    let (lanes, mut total) = partials;
    each::<N>(|lane| total = R::combine(total, lanes[lane]));
    total
}

/// Reduces rows that have at most [`SLOTS`] vectors per lane. Several rows are processed at once, so that each lane has
/// [`SLOTS`] vectors to load at once. Every thread of a block must call this function.
///
/// # Safety
/// Calling `write` once per row must be sound. Rows must consist of whole, aligned vectors.
#[inline(always)]
unsafe fn short_rows<T: Scalar, R: Fold<T>, const N: usize>(
    x: *const T,
    [width, height, pitch]: [usize; 3],
    group: &ThreadGroup,
    write: impl Fn(usize, R::Partial),
) {
    let vectors = width / N;
    // The number of slots per row, which is a power of two, and the number of rows per round. The groups of a warp
    // process adjacent rows.
    let of_row = usize::BITS - (vectors.saturating_sub(1) >> group.size.trailing_zeros()).leading_zeros();
    let (rows, (before, groups)) = (SLOTS >> of_row, group.in_warp());
    let place = |first: usize, slot: usize| {
        let (row, item) = (first + (slot >> of_row) * groups, slot & ((1 << of_row) - 1));
        let vector = group.rank + item * group.size;
        (row, vector, (row < height) & (vector < vectors))
    };
    let mut first = (group.first() - before) * rows + before;
    // All lanes of a warp take part in each round, including lanes whose group has no row.
    while first - before < height {
        let values: [[T; N]; SLOTS] = lanewise(|slot| {
            let (row, vector, is_there) = place(first, slot);
            // SAFETY: a vector that exists lies within its row, which lies within the view.
            unsafe {
                load_or::<T, N, false>(x.wrapping_add(row * pitch + vector * N), is_there, [T::ZERO; N])
            }
        });
        let mut partials: [R::Partial; SLOTS] = lanewise(|slot| {
            let (_, vector, is_there) = place(first, slot);
            let mut partial = R::identity();
            each::<N>(|lane| partial = R::fold(partial, values[slot][lane], vector * N + lane));
            if is_there { partial } else { R::identity() }
        });
        let mut joined = 0;
        while joined < of_row {
            each::<{ SLOTS / 2 }>(|i| partials[i] = R::combine(partials[2 * i], partials[2 * i + 1]));
            joined += 1;
        }
        // Transposing reduction: a lane that holds several rows sends half of them to the lane at `distance`. The lane
        // combines the other half with the values that it receives.
        let (mut own, mut resident, mut distance) = (0, rows, group.size / 2);
        each::<{ SLOTS.trailing_zeros() as usize }>(|step| {
            let half = SLOTS >> (step + 1);
            if (resident == 2 * half) & (distance > 0) {
                let is_upper = group.rank & distance > 0;
                each::<{ SLOTS / 2 }>(|i| {
                    if i < half {
                        let (low, high) = (partials[i], partials[half + i]);
                        let (kept, given) = if is_upper { (high, low) } else { (low, high) };
                        let received = warp::shuffle_xor(warp::FULL_MASK, given, distance as u32);
                        partials[i] = R::combine(kept, received);
                    }
                });
                own += if is_upper { half } else { 0 };
                (resident, distance) = (half, distance / 2);
            }
        });
        let is_writer = group.rank & (2 * distance).saturating_sub(1) == 0;
        while distance > 0 {
            let other = warp::shuffle_xor(warp::FULL_MASK, partials[0], distance as u32);
            partials[0] = R::combine(partials[0], other);
            distance /= 2;
        }
        each::<SLOTS>(|slot| {
            let row = first + (own + slot) * groups;
            if is_writer & (slot < resident) & (row < height) {
                write(row, partials[slot]);
            }
        });
        first += rows * group.step();
    }
}

/// Common body of the row and segment reductions.
///
/// # Safety
/// The caller must uphold the safety contract of [`sum_rows()`].
#[inline(always)]
unsafe fn reduce_rows<T: Scalar, R: Fold<T>, O, const N: usize>(
    x: *const T,
    [width, height, pitch]: [u64; 3],
    offsets: Option<&[u64]>,
    out: *mut O,
    workspace: *mut u64,
    (group_size, parts): (u32, u32),
    finish: impl Fn(R::Partial, usize) -> O,
) {
    let [width, height, pitch] = [width, height, pitch].map(|side| side as usize);
    // SAFETY: `out` has one element per row, and each row has only one writer.
    let write = |row: usize, total: R::Partial, len| unsafe { out.add(row).write(finish(total, len)) };
    let mut own = ThreadGroup::in_block(group_size);
    if group_size < thread::block_dim_x() && offsets.is_none() {
        let is_whole = aligned::<T, N>(x) & pitch.is_multiple_of(N) & width.is_multiple_of(N);
        let (sides, write) = ([width, height, pitch], |row, total| write(row, total, width));
        // SAFETY: `write` is called only once per row.
        unsafe {
            if is_whole && width <= SLOTS * N * own.size {
                return short_rows::<T, R, N>(x, sides, &own, write);
            }
            if width <= SLOTS * own.size {
                return short_rows::<T, R, 1>(x, sides, &own, write);
            }
        }
    }
    // Part p of each row belongs to block p of the row's `parts` blocks. If there is only one part, a thread group
    // processes the whole row.
    let count = parts as usize;
    let mut work = own.first();
    while work < height * count {
        let (row, part) = divided(work, parts);
        let (start, len) = match offsets {
            None => (row * pitch, width),
            Some(offsets) => {
                // SAFETY: there is one more offset than there are rows.
                let (start, end) = unsafe { (*offsets.get_unchecked(row), *offsets.get_unchecked(row + 1)) };
                let end = end.min(width as u64);
                let start = start.min(end);
                (start as usize, (end - start) as usize)
            }
        };
        let of_row = (part * own.size + own.rank, count * own.size);
        // SAFETY: the row lies within the array.
        let mut total = unsafe { fold_row::<T, R, N>(x.add(start), len, of_row) };
        let mut is_whole = count == 1;
        // The loop body runs once for the block's part. In the last block, it runs again for all parts. The loop avoids
        // a second copy of this code.
        loop {
            total = own.combine(total, R::combine);
            if is_whole {
                if own.rank == 0 {
                    write(row, total, len);
                }
                break;
            }
            // SAFETY: if rows have several parts, there are at most `COUNTERS` rows.
            let (finished, partials) = unsafe { shared_result::<R::Partial>(workspace, row) };
            if own.rank == 0 {
                // SAFETY: this slot belongs to this block.
                unsafe { partials.add(work).write(total) };
            }
            if !is_last(finished, parts) {
                break;
            }
            is_whole = true;
            total = R::identity();
            let mut i = own.rank;
            while i < count {
                // SAFETY: all blocks of the row have written their partial results.
                total = R::combine(total, unsafe { partials.add(row * count + i).read() });
                i += own.size;
            }
        }
        work += own.step();
    }
}

/// Combines the partial results of those threads of a block that process the same columns. The first `lanes` threads
/// receive the totals.
#[inline(always)]
fn combine_columns<P: KernelType, const N: usize>(
    partials: &mut [P; N],
    lanes: u32,
    combine: impl Fn(P, P) -> P,
) {
    const WARPS: usize = (MAX_BLOCK / warp::WARP_SIZE) as usize;
    const { assert!(size_of::<P>() <= 16) };
    let slots: *mut P = shared_array![u128; 2 * 32 * WARPS].cast();
    let (lane, warp) = (warp::lane_id(), thread::thread_idx_x() / warp::WARP_SIZE);
    let warps = thread::block_dim_x() / warp::WARP_SIZE;
    // After this barrier, no thread reads slots that the preceding call wrote.
    thread::sync_threads();
    each::<N>(|n| {
        let mut total = partials[n];
        let mut distance = warp::WARP_SIZE / 2;
        while distance >= lanes {
            total = combine(total, warp::shuffle_xor(warp::FULL_MASK, total, distance));
            distance /= 2;
        }
        let slot =
            |warp: u32| slots.wrapping_byte_add(((n as u32 % 2 * warps + warp) * 32 + lane) as usize * 16);
        if warps > 1 {
            if lane < lanes {
                // SAFETY: this slot belongs to this thread, and was last read before the barrier of the preceding
                // column.
                unsafe { slot(warp).write(total) };
            }
            thread::sync_threads();
            if thread::thread_idx_x() < lanes {
                for above in 1..warps {
                    // SAFETY: the slot was written before the barrier.
                    total = combine(total, unsafe { slot(above).read() });
                }
            }
        }
        partials[n] = total;
    });
}

/// Common body of the column reductions, for a view with the given width and height. `fetch` loads `N` elements at a
/// row and a column, and `fold` adds one of these elements to a partial result.
///
/// # Safety
/// The launch and the workspace must meet the requirements of [`sum_columns()`]. Calling `write` once per column must
/// be sound.
#[inline(always)]
#[allow(clippy::too_many_arguments, reason = "they are the steps of one algorithm")]
pub(crate) unsafe fn columns_with<P: KernelType, V: Copy, const N: usize>(
    [width, height]: [usize; 2],
    workspace: *mut u64,
    (lanes, parts): (u32, u32),
    none: P,
    fetch: impl Fn(usize, usize) -> V,
    fold: impl Fn(P, &V, usize, usize) -> P,
    combine: impl Fn(P, P) -> P,
    write: impl Fn(usize, P),
) {
    // The shift is exact because `lanes` is a power of two.
    let shift = lanes.trailing_zeros();
    let (lane, below) =
        ((thread::thread_idx_x() & (lanes - 1)) as usize, (thread::thread_idx_x() >> shift) as usize);
    let rows = (thread::block_dim_x() >> shift) as usize;
    let tiles = width.div_ceil(N).div_ceil(1 << shift);
    let mut work = thread::block_idx_x() as usize;
    while work < tiles * parts as usize {
        // Tiles have several parts only if there are few tiles.
        let (tile, part) = divided(work, parts);
        let column = (tile * lanes as usize + lane) * N;
        let is_inside = column < width;
        let mut partials = [none; N];
        let take = |partials: &mut [P; N], values: &V, row: usize| {
            each::<N>(|n| partials[n] = fold(partials[n], values, n, row));
        };
        if is_inside {
            let of_thread = (part * rows + below, parts as usize * rows, height);
            // If lanes load single elements, more loads are needed to keep as many bytes in flight.
            if N > 1 {
                fold_rows::<_, _, ITEMS>(of_thread, |row| fetch(row, column), &mut partials, &take);
            } else if size_of::<V>() > 4 {
                fold_rows::<_, _, 8>(of_thread, |row| fetch(row, column), &mut partials, &take);
            } else {
                fold_rows::<_, _, 16>(of_thread, |row| fetch(row, column), &mut partials, &take);
            }
        }
        let has_totals = is_inside & (thread::thread_idx_x() < lanes);
        let mut is_whole = parts == 1;
        // As in `reduce_rows`, a loop avoids a second copy of this code.
        loop {
            combine_columns::<P, N>(&mut partials, lanes, &combine);
            if is_whole {
                if has_totals {
                    each::<N>(|n| write(column + n, partials[n]));
                }
                break;
            }
            // SAFETY: if columns have several parts, there are at most `COUNTERS` tiles.
            let (finished, shared) = unsafe { shared_result::<P>(workspace, tile) };
            if has_totals {
                // SAFETY: these slots belong to this thread.
                each::<N>(|n| unsafe { shared.add(part * width + column + n).write(partials[n]) });
            }
            if !is_last(finished, parts) {
                break;
            }
            is_whole = true;
            partials = [none; N];
            let mut part = below;
            while is_inside & (part < parts as usize) {
                each::<N>(|n| {
                    // SAFETY: all blocks of the tile have written their partial results.
                    let other = unsafe { shared.add(part * width + column + n).read() };
                    partials[n] = combine(partials[n], other);
                });
                part += rows;
            }
        }
        work += thread::grid_dim_x() as usize;
    }
}

/// Folds rows `row`, `row + step`, … that are below `height`. The loads of `ITEMS` rows are issued before the first of
/// these rows is used.
#[inline(always)]
fn fold_rows<S, V: Copy, const ITEMS: usize>(
    (row, step, height): (usize, usize, usize),
    fetch: impl Fn(usize) -> V,
    state: &mut S,
    take: &impl Fn(&mut S, &V, usize),
) {
    let mut row = row;
    while row < height {
        if height - row > (ITEMS - 1) * step {
            let mut values = [fetch(row); ITEMS];
            each::<ITEMS>(|item| {
                if item > 0 {
                    values[item] = fetch(row + item * step);
                }
            });
            each::<ITEMS>(|item| take(state, &values[item], row + item * step));
        } else {
            let mut last = row;
            while last < height {
                take(state, &fetch(last), last);
                last += step;
            }
        }
        row += ITEMS * step;
    }
}

/// Reduces columns with `R`.
///
/// # Safety
/// The caller must uphold the safety contract of [`sum_columns()`].
#[inline(always)]
unsafe fn columns<T: Scalar, R: Fold<T>, O, const N: usize>(
    x: Slice2<T>,
    out: *mut O,
    workspace: *mut u64,
    shape: (u32, u32),
    finish: impl Fn(R::Partial, usize) -> O,
) {
    let (sides, pitch) = ([x.columns(), x.rows()], x.row_stride());
    // SAFETY: the rows, and the vector at a column, lie within the view.
    let fetch = |row: usize, column: usize| unsafe { load::<T, N>(x.as_ptr().add(row * pitch + column)) };
    let fold =
        |partial: R::Partial, values: &[T; N], lane: usize, row: usize| R::fold(partial, values[lane], row);
    // SAFETY: `out` has one element per column, and each column has only one writer.
    let write = |column: usize, total: R::Partial| unsafe { out.add(column).write(finish(total, sides[1])) };
    // SAFETY: guaranteed by this function's contract.
    unsafe { columns_with::<_, _, N>(sides, workspace, shape, R::identity(), fetch, fold, R::combine, write) }
}

/// Defines the two kernels of a reduction: one for rows and segments, and one for columns.
macro_rules! reductions {
    ($(
        $what:literal: $rows:ident, $columns:ident: $bound:ident, $reduction:ty => $out:ty, [$($vector:tt),*],
        [$($t:ty),*], $blocks:literal, |$total:ident, $count:ident| $finish:expr;
    )*) => { $(
        #[doc = concat!("Writes the ", $what, " of each row of `x` to `out`, or of each segment.")]
        ///
        /// `sides` contains the width and the height of the rows, and the row stride in elements. Segment i is the
        /// range from `offsets[i]` (inclusive) to `offsets[i + 1]` (exclusive). If offsets are passed, the width is the
        /// length of the whole array, and the height is the number of segments.
        ///
        /// # Safety
        /// The launch must meet the requirements of the `thread_group` module, with blocks of at most [`MAX_BLOCK`]
        /// threads and without clusters. `x` must be valid for the rows, and `out` for one value per row. If offsets
        /// are passed, their number must be the number of rows plus one. `parts` is the number of blocks per row. If
        /// `parts` is greater than one, there must be no offsets, the thread group must be a block, and there must be
        /// at most [`COUNTERS`] rows. The workspace must then have space for `parts` partial results per row. Nothing
        /// else may access `out` and the workspace until the launch ends.
        #[kernel(
            types(T = $($t),*),
            launch_bounds(256, $blocks),
            bytes = (if offsets.is_some() { sides[0] } else { sides[0] * sides[1] }) as usize * size_of::<T>()
        )]
        pub unsafe fn $rows<T: $bound>(
            x: *const T,
            sides: [u64; 3],
            offsets: Option<&[u64]>,
            out: *mut $out,
            workspace: *mut u64,
            group_size: u32,
            parts: u32,
        ) {
            let finish = |$total: <$reduction as Fold<T>>::Partial, $count: usize| $finish;
            // SAFETY: guaranteed by this function's contract.
            with_lanes!(lanes::<T>(16), N => unsafe {
                reduce_rows::<T, $reduction, $out, N>(x, sides, offsets, out, workspace, (group_size, parts), finish)
            })
        }

        #[doc = concat!("Writes the ", $what, " of each column of `x` to `out`.")]
        ///
        /// # Safety
        /// The launch must be one-dimensional, with blocks of 32, 64, 128 or 256 threads. `lanes` must be a power of
        /// two from 1 to 32. If `VECTOR` is 16, rows must start and end on 16-byte boundaries. `out` must have one
        /// element per column. `parts` is the number of blocks per column. If `parts` is greater than one, a row must
        /// have at most [`COUNTERS`] tiles of `lanes` vectors, and the workspace must have space for `parts` partial
        /// results per column. Nothing else may access `out` and the workspace until the launch ends.
        #[kernel(
            types(T = $($t),*),
            consts(VECTOR = $($vector),*),
            launch_bounds(256, 2),
            bytes = x.bytes() + x.columns() * size_of::<$out>()
        )]
        pub unsafe fn $columns<T: $bound, const VECTOR: usize>(
            x: Slice2<T>,
            out: *mut $out,
            workspace: *mut u64,
            lanes: u32,
            parts: u32,
        ) {
            let finish = |$total: <$reduction as Fold<T>>::Partial, $count: usize| $finish;
            // SAFETY: guaranteed by this function's contract.
            with_lanes!(crate::thread_group::lanes::<T>(VECTOR), N => unsafe {
                columns::<T, $reduction, $out, N>(x, out, workspace, (lanes, parts), finish)
            })
        }
    )* };
}

reductions! {
    "sum": sum_rows, sum_columns: Number, Sum => <T as Number>::SumAccumulator, [1, 16],
        [f32, f64, f16, bf16, i32, u32, u64], 3, |total, _count| total;
    "mean": mean_rows, mean_columns: Float, Mean => <T as Scalar>::Accumulator, [1],
        [f32, f64, f16, bf16], 3, |sums, count| mean_of::<T, _>(sums, count);
    "product": prod_rows, prod_columns: Number, Product => <T as Number>::SumAccumulator, [1],
        [f32, f64, f16, bf16, i32, u32, u64], 3, |total, _count| total;
    "smallest element (or NaN, if any element is NaN)": min_rows, min_columns: Scalar, Min => T, [1],
        [f32, f64, f16, bf16, i32, u32, i64, u64], 3, |smallest, _count| T::from_acc(smallest);
    "largest element (or NaN, if any element is NaN)": max_rows, max_columns: Scalar, Max => T, [1],
        [f32, f64, f16, bf16, i32, u32, i64, u64], 3, |largest, _count| T::from_acc(largest);
    "index of the first smallest element (or of the first NaN; `u64::MAX` for zero elements)":
        argmin_rows, argmin_columns: Scalar, First<Smallest> => u64, [1],
        [f32, f64, f16, bf16, i32, u32, i64, u64], 2, |best, count| if count == 0 { u64::MAX } else { best.index() };
    "index of the first largest element (or of the first NaN; `u64::MAX` for zero elements)":
        argmax_rows, argmax_columns: Scalar, First<Largest> => u64, [1],
        [f32, f64, f16, bf16, i32, u32, i64, u64], 2, |best, count| if count == 0 { u64::MAX } else { best.index() };
}
