//! [`Staged`]: the queries of a unit, and the key and the value of a new token, in shared memory.

use core::mem::transmute_copy;

use gpu_std::math::Math;
use gpu_std::prelude::*;
use gpu_std::shared::dynamic_aligned;
use gpu_std::tensor::MatrixTile;
use gpu_std::vectorized::{each, load, load_or, store};

use super::append::New;
use super::{CacheElement, DecodeNumber, DecodeShape, GROUP, Operands, Rounded, STAGES, Unit, tile_bytes};
use crate::number4::halves;

/// Number of elements that a thread loads together, 16 bytes.
const CHUNK: usize = 8;
/// Number of elements after each row, so that the rows of eight queries are in different banks.
const PADDING: usize = 8;

/// Returns the maximum number of queries per unit.
const fn queries(dim: usize) -> u32 {
    if dim <= 128 { 2 * GROUP } else { GROUP }
}

/// Returns the size of `rows` rows of `dim` elements, in bytes.
const fn row_bytes(rows: u32, dim: usize) -> u32 {
    rows * (dim + PADDING) as u32 * 2
}

/// Returns the shared memory of the new key and value of `dim` elements, in bytes.
pub(super) const fn staged_bytes(dim: usize) -> u32 {
    row_bytes(2, dim)
}

/// Rows of `16 * STEPS` elements in shared memory: the queries of a unit, and the key and the value that the block
/// appends. The queries are in the last stage of the tiles of v, so that the block needs no further memory for them. The
/// new key and value follow the tiles, because their tile can be processed later.
#[derive(Clone, Copy)]
pub(super) struct Staged<T, const STEPS: usize> {
    queries: *mut T,
    new: *mut T,
}

impl<T: DecodeNumber, const STEPS: usize> Staged<T, STEPS> {
    const DIM: usize = 16 * STEPS;
    const CHUNKS: u32 = 2 * STEPS as u32;

    /// Returns the address of a query, or of the new key or value, whose rows follow those of the unit's queries.
    #[inline(always)]
    fn row(&self, row: u32, unit: Unit) -> *mut T {
        let (start, row) =
            if row < unit.queries { (self.queries, row) } else { (self.new, row - unit.queries) };
        start.wrapping_add(row as usize * (Self::DIM + PADDING))
    }

    /// Loads the queries of the unit, before any copy to the last stage. Their elements are in the order of keys of 16
    /// bits or of 8 bits. Queries of new tokens are normalized and rotated. If there is a `place`, the new key is also
    /// normalized and rotated, and appended with the new value to the cache at this plane and row, unless the plane does
    /// not exist.
    ///
    /// # Safety
    ///
    /// The caller must uphold the safety contract of [`attention_decode()`](super::attention_decode()), and all threads
    /// of the block must call this function. If there is a `position` of a new token, the tables must contain it. If
    /// there is a place, the cache must have the row.
    #[inline(always)]
    pub(super) unsafe fn load<C: CacheElement<T> + Rounded>(
        operands: &Operands<'_, T, C>,
        unit: Unit,
        position: Option<u32>,
        place: Option<(u32, u32)>,
    ) -> Self {
        const {
            let stage = tile_bytes(Self::DIM, size_of::<C>()) / (2 * STAGES as u32);
            assert!(row_bytes(queries(Self::DIM), Self::DIM) <= stage, "a stage has space for the queries");
        }
        let tiles = tile_bytes(Self::DIM, size_of::<C>());
        let stage = tiles / (2 * STAGES as u32);
        let at = |bytes: u32| dynamic_aligned::<T>().wrapping_add(bytes as usize / size_of::<T>());
        let staged = Self { queries: at(tiles - stage), new: at(tiles) };
        let shape = &operands.shape;
        let rows = unit.queries + if place.is_some() { 2 } else { 0 };
        let mut item = thread::thread_idx_x();
        // The lanes of a warp make the same number of iterations.
        while item / 32 * 32 < rows * Self::CHUNKS {
            let (row, first) = (item / Self::CHUNKS, item % Self::CHUNKS * CHUNK as u32);
            let (is_there, is_query) = (row < rows, row < unit.queries);
            // The new key is part 0, the new value is part 1.
            let part = row.wrapping_sub(unit.queries);
            let from = match operands.new {
                Some(new) if !is_query => new.row(&shape.new, part, unit),
                _ => {
                    let (head, row) = unit.place(shape, row);
                    operands.q.as_ptr().wrapping_add(shape.q.at(unit.sequence, head, row) as usize)
                }
            };
            // SAFETY: the row has these elements, and nothing writes them during the launch.
            let chunk = |column: u32, is_there: bool| unsafe {
                load_or::<u32, 4, true>(from.wrapping_add(column as usize).cast(), is_there, [0; 4])
            };
            let mut words = chunk(first, is_there);
            if let Some(new) = &operands.new {
                let rotates = is_there && position.is_some() && (is_query || part == 0);
                let mut own = widened::<T>(words);
                // SAFETY: guaranteed by the caller. The lanes that have the other chunks of the row take part.
                let rotated = unsafe {
                    let other = |column| chunk(column, rotates);
                    new.rotated::<STEPS>(own, other, first, [is_query, rotates], position.unwrap_or(0), shape)
                };
                if rotates {
                    own = rotated;
                }
                if is_query {
                    words = [0, 2, 4, 6].map(|i| T::pack(own[i], own[i + 1]));
                } else {
                    let scales = if part == 0 { operands.scales[0] } else { operands.scales[1] };
                    if let Some(scales) = scales {
                        // SAFETY: there is one scale per head.
                        let scale = unsafe { *scales.get_unchecked(unit.kv_head as usize) };
                        own = own.map(|x| x / scale);
                    }
                    let codes = own.map(C::rounded);
                    // The units that share the head append the same row.
                    if let Some((plane, at)) = place
                        && is_there
                        && unit.first == 0
                        && plane < shape.planes
                    {
                        let to = new.cached(shape, part, [plane, unit.kv_head, at]);
                        // SAFETY: the cache contains the row, which starts on a 16-byte boundary, and no other thread
                        // accesses it.
                        unsafe { store(to.wrapping_add(first as usize), codes) };
                    }
                    words = packed(codes);
                }
            }
            if is_there {
                // SAFETY: this thread owns these elements of the row. They start on a 16-byte boundary, or on an 8-byte
                // boundary.
                unsafe { staged.store::<C>(row, first, words, unit) };
            }
            item += thread::block_dim_x();
        }
        staged
    }

    /// Stores a chunk of a query, or the codes of a chunk of a new key or value.
    ///
    /// # Safety
    ///
    /// The shared memory must have the row, and no other thread may access these elements.
    #[inline(always)]
    unsafe fn store<C>(&self, row: u32, first: u32, words: [u32; 4], unit: Unit) {
        let to = self.row(row, unit).cast::<u32>();
        let at = first as usize / 2;
        let [a, b, c, d] = words;
        // SAFETY: guaranteed by the caller.
        unsafe {
            if size_of::<C>() == 2 {
                store(to.wrapping_add(at), words);
            } else if row < unit.queries {
                // In each group of 16 elements, first the even and then the odd elements.
                let to = to.wrapping_add(at / 8 * 8 + at % 8 / 2);
                store(to, [halves::<0>(a, b), halves::<0>(c, d)]);
                store(to.wrapping_add(4), [halves::<1>(a, b), halves::<1>(c, d)]);
            } else {
                store(to.wrapping_add(at / 2), [a, b]);
            }
        }
    }

    /// Returns the queries as operands of [`mma`](gpu_std::tensor::mma::mma): 16 elements of eight queries per operand.
    /// The elements of missing queries are zero.
    ///
    /// # Safety
    ///
    /// A barrier must separate this call from [`Self::load`].
    #[inline(always)]
    pub(super) unsafe fn operands<const GROUPS: usize>(&self, unit: Unit) -> [[[u32; 2]; GROUPS]; STEPS] {
        let lane = warp::lane_id();
        let mut elements = [[[0; 2]; GROUPS]; STEPS];
        each::<GROUPS>(|group| {
            let query = GROUP * group as u32 + lane / 4;
            let from = self.row(query, unit).wrapping_add(2 * (lane % 4) as usize);
            if query < unit.queries {
                each::<STEPS>(|j| {
                    // SAFETY: the row is stored. The elements are aligned to 4 bytes.
                    elements[j][group] = [0, 8]
                        .map(|next| unsafe { load::<u32, 1>(from.wrapping_add(16 * j + next).cast())[0] });
                });
            }
        });
        elements
    }

    /// Copies the key and the value of the new token to a row of the tiles of k and v.
    ///
    /// # Safety
    ///
    /// A barrier must separate this call from [`Self::load`]. All lanes of the warp must call this method, and nothing
    /// else may access the row.
    #[inline(always)]
    pub(super) unsafe fn append<const ROWS: usize, const WIDTH: usize>(
        &self,
        tiles: [MatrixTile<u16, ROWS, WIDTH>; 2],
        row: u32,
        unit: Unit,
    ) {
        let chunks = WIDTH as u32 / 8;
        let mut i = warp::lane_id();
        while i < 2 * chunks {
            let (part, chunk) = (i / chunks, i % chunks);
            let from = self.row(unit.queries + part, unit).cast::<[u32; 4]>();
            let tile = if part == 0 { tiles[0] } else { tiles[1] };
            // SAFETY: the chunk is stored, and the tile contains the row.
            unsafe { tile.store_chunk(row, chunk, load(from.wrapping_add(chunk as usize).cast())) };
            i += 32;
        }
    }
}

/// Returns the elements of a chunk.
#[inline(always)]
fn widened<T: DecodeNumber>([a, b, c, d]: [u32; 4]) -> [f32; CHUNK] {
    [a, a >> 16, b, b >> 16, c, c >> 16, d, d >> 16].map(|bits| T::widened(bits & 0xffff))
}

/// Returns the bytes of a chunk.
#[inline(always)]
fn packed<C: Copy>(codes: [C; CHUNK]) -> [u32; 4] {
    const { assert!(size_of::<C>() == 1 || size_of::<C>() == 2) };
    if size_of::<C>() == 2 {
        // SAFETY: both types have 16 bytes.
        return unsafe { transmute_copy(&codes) };
    }
    // SAFETY: both types have 8 bytes.
    let [a, b] = unsafe { transmute_copy::<_, [u32; 2]>(&codes) };
    [a, b, 0, 0]
}

impl<T: DecodeNumber, C> New<'_, T, C> {
    /// Returns a chunk of a row after the norm and the rotation. `own` is the chunk before, from column `first` on, and
    /// `other` loads another chunk of the row. Without `rotates`, the result is unspecified, but the thread takes part in
    /// the sum over the row.
    ///
    /// # Safety
    ///
    /// The caller must uphold the safety contract of [`attention_decode()`](super::attention_decode()), and all lanes of
    /// the warp must call this method. The tables must contain the position.
    #[inline(always)]
    unsafe fn rotated<const STEPS: usize>(
        &self,
        mut own: [f32; CHUNK],
        other: impl Fn(u32) -> [u32; 4],
        first: u32,
        [is_query, rotates]: [bool; 2],
        position: u32,
        shape: &DecodeShape,
    ) -> [f32; CHUNK] {
        let (half, is_interleaved) = (8 * STEPS as u32, shape.new.is_interleaved != 0);
        // With an interleaved pairing, both elements of a pair are in the same chunk.
        let mut others = widened::<T>(if is_interleaved { [0; 4] } else { other(first ^ half) });
        let angle = if is_interleaved { first / 2 } else { first % half };
        let [cos, sin] = [0, 1].map(|i| {
            let at = u64::from(position) * shape.new.angles[i] + u64::from(angle);
            let from = self.angles[i].as_ptr().wrapping_add(at as usize);
            // SAFETY: the tables contain the position and half as many angles as the row has elements. Four angles start
            // on a 16-byte boundary.
            unsafe {
                [
                    load_or::<f32, 4, true>(from, rotates, [0.0; 4]),
                    load_or::<f32, 4, true>(from.wrapping_add(4), rotates && !is_interleaved, [0.0; 4]),
                ]
            }
        });
        if let [Some(of_q), Some(of_k)] = self.norms {
            let weight = if is_query { of_q } else { of_k };
            // SAFETY: the weight has as many elements as the row, and starts on a 16-byte boundary.
            let weights = |column: u32| unsafe {
                let from = weight.as_ptr().wrapping_add(column as usize).cast();
                widened::<T>(load_or::<u32, 4, true>(from, rotates, [0; 4]))
            };
            let (of_own, of_others) = (weights(first), weights(first ^ half));
            let mut squares = 0.0f32;
            each::<CHUNK>(|i| squares += own[i] * own[i]);
            each::<5>(|i| {
                if 1 << i < 2 * STEPS {
                    squares += warp::shuffle_xor(!0, squares, 1 << i);
                }
            });
            let inverse = Math::rsqrt(squares / (16 * STEPS) as f32 + shape.new.epsilon);
            each::<CHUNK>(|i| {
                own[i] *= inverse * of_own[i];
                others[i] *= inverse * of_others[i];
            });
        }
        let mut rotated = own;
        // Two loops, so that all indices are constants and the arrays stay in registers.
        if is_interleaved {
            each::<{ CHUNK / 2 }>(|i| {
                let ([a, b], cos, sin) = ([own[2 * i], own[2 * i + 1]], cos[0][i], sin[0][i]);
                rotated[2 * i] = a * cos - b * sin;
                rotated[2 * i + 1] = a * sin + b * cos;
            });
        } else {
            // The second element of a pair is rotated with the same cosine, but with the other sign of the sine.
            let sign = if first < half { 0x8000_0000 } else { 0 };
            each::<CHUNK>(|i| {
                let sine = f32::from_bits(sin[i / 4][i % 4].to_bits() ^ sign);
                rotated[i] = own[i] * cos[i / 4][i % 4] + others[i] * sine;
            });
        }
        rotated
    }
}
