//! [`MatrixTile`]: a matrix in shared memory, which `cp.async` writes and `ldmatrix` reads.
//!
//! # Example
//! One warp multiplies a matrix of 16 x 64 elements by the transpose of another:
//!
//! ```
//! use gpu_std::prelude::*;
//! use gpu_std::shared::wait_copies;
//! use gpu_std::tensor::mma::mma;
//! use gpu_std::tensor::{PipelineState, SharedMemory};
//! # use warpsmith_runtime::{Device, DeviceBuffer, GpuImage, Launch};
//!
//! /// # Safety
//! /// `a` and `b` must have 16 x 64 elements at addresses that are aligned to 16 bytes, and `out` must have
//! /// 16 x 16 elements. The launch must provide 4096 bytes of shared memory.
//! #[kernel(arch = 80, block(32))]
//! unsafe fn multiply(a: &[bf16], b: &[bf16], out: *mut f32) {
//!     // SAFETY: guaranteed by the caller. The warp waits for the copies before it reads the tiles.
//!     unsafe {
//!         let tiles = SharedMemory::new().matrix_tiles::<bf16, 16, 64, 2>();
//!         let mut slot = PipelineState::new();
//!         let a_tile = tiles.at(slot);
//!         slot.advance();
//!         let b_tile = tiles.at(slot);
//!         let lane = warp::lane_id();
//!         for i in (lane..128).step_by(32) {
//!             a_tile.copy_chunk(i / 8, i % 8, a.as_ptr().add(8 * i as usize), true);
//!             b_tile.copy_chunk(i / 8, i % 8, b.as_ptr().add(8 * i as usize), true);
//!         }
//!         wait_copies();
//!         warp::sync_warp(!0);
//!         let mut sums = [[0.0; 4]; 2];
//!         for step in 0..4 {
//!             let a = a_tile.load_a(0, 2 * step);
//!             let b = b_tile.load_b(0, 2 * step);
//!             sums = [mma::<bf16>(sums[0], a, b[0]), mma::<bf16>(sums[1], a, b[1])];
//!         }
//!         for (half, sums) in sums.into_iter().enumerate() {
//!             for (i, sum) in sums.into_iter().enumerate() {
//!                 let (row, column) = (lane as usize / 4 + 8 * (i / 2), 2 * (lane as usize % 4) + i % 2);
//!                 out.add(16 * row + 8 * half + column).write(sum);
//!             }
//!         }
//!     }
//! }
//!
//! # static IMAGE: GpuImage = GpuImage::without_code(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"), "example");
//! # let stream = Device::emulated(0)?.default_stream();
//! # let module = stream.device().load(&IMAGE)?;
//! let a: Vec<bf16> = (0..16 * 64).map(|i| bf16::from_f32((i / 64) as f32)).collect();
//! let b: Vec<bf16> = (0..16 * 64).map(|i| bf16::from_f32((i / 64 + 1) as f32)).collect();
//! let (a, b) = (DeviceBuffer::from_host(&stream, &a)?, DeviceBuffer::from_host(&stream, &b)?);
//! let mut out = DeviceBuffer::<f32>::zeros(&stream, 16 * 16)?;
//! let launch = Launch::grid_block(1, 32).shared(4096);
//! // SAFETY: the matrices and the shared memory have the required sizes.
//! unsafe { module.kernel::<multiply>()?.launch_unsafe(&stream, launch, (&a, &b, &mut out))? };
//! let expected = (0..16 * 16).map(|i| (64 * (i / 16) * (i % 16 + 1)) as f32);
//! assert!(out.to_host()?.into_iter().eq(expected));
//! # Ok::<(), warpsmith_runtime::Error>(())
//! ```

use core::marker::PhantomData;

use super::barrier::PipelineState;
use super::shared::SharedAddress;
use crate::KernelType;

/// A matrix with `ROWS` rows of `COLUMNS` elements in shared memory. Copies write 16-byte chunks of its rows, and warps
/// load operands of [`mma`](super::mma::mma) from it (`ldmatrix`).
///
/// The chunks of each row are permuted (swizzled). Accesses to the chunks of a row, or to the same chunk of eight
/// consecutive rows, have no bank conflicts. A row has 64 bytes or a multiple of 128. Elements have 8, 16 or 32 bits.
/// Only 16-bit elements can be transposed.
///
/// See the [example](self#example).
#[derive(Debug)]
pub struct MatrixTile<T, const ROWS: usize, const COLUMNS: usize> {
    address: SharedAddress,
    element: PhantomData<T>,
}

impl<T, const ROWS: usize, const COLUMNS: usize> Clone for MatrixTile<T, ROWS, COLUMNS> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, const ROWS: usize, const COLUMNS: usize> Copy for MatrixTile<T, ROWS, COLUMNS> {}

impl<T: KernelType, const ROWS: usize, const COLUMNS: usize> MatrixTile<T, ROWS, COLUMNS> {
    /// Number of 16-byte chunks per row.
    pub const CHUNKS: u32 = {
        assert!(
            matches!(size_of::<T>(), 1 | 2 | 4),
            "the elements of a matrix tile must have 8, 16 or 32 bits"
        );
        let bytes = COLUMNS * size_of::<T>();
        assert!(bytes == 64 || bytes.is_multiple_of(128), "a row must have 64 bytes or a multiple of 128");
        (bytes / 16) as u32
    };
    /// Size of the tile in bytes.
    pub const BYTES: u32 = {
        let bytes = ROWS * COLUMNS * size_of::<T>();
        assert!(bytes.is_multiple_of(1024), "the size of a tile must be a multiple of 1024 bytes");
        bytes as u32
    };

    #[inline(always)]
    pub(super) fn at(address: SharedAddress) -> Self {
        Self { address, element: PhantomData }
    }

    /// Returns the same memory as a tile of `COLUMNS` rows of `ROWS` columns.
    #[inline(always)]
    pub fn reshaped(self) -> MatrixTile<T, COLUMNS, ROWS> {
        MatrixTile::at(self.address)
    }

    /// Returns the address of 16-byte chunk `chunk` in row `row`.
    #[inline(always)]
    fn chunk(self, row: u32, chunk: u32) -> SharedAddress {
        // Two rows of 64 bytes share the banks of one row of 128 bytes.
        let key = if Self::CHUNKS == 4 { row >> 1 & 3 } else { row & 7 };
        self.address.add(row * (Self::CHUNKS * 16) + ((chunk ^ key) * 16))
    }

    /// Starts a copy of 16 bytes from `from` in global memory to chunk `chunk` of row `row` (`cp.async`), or fills the
    /// chunk with zeros if `is_there` is false. [`commit_copies`](crate::shared::commit_copies) and
    /// [`wait_copies_leaving`](crate::shared::wait_copies_leaving) complete the copy. On the emulated device, the
    /// chunk contains poison until the thread waits for the copy.
    ///
    /// See the [example](self#example).
    ///
    /// # Safety
    /// If `is_there` is true, `from` must be valid for reads of 16 bytes and aligned to 16 bytes. The tile must contain
    /// the chunk, and nothing else may access it until the copy is complete.
    #[inline(always)]
    pub unsafe fn copy_chunk(self, row: u32, chunk: u32, from: *const T, is_there: bool) {
        let to = self.chunk(row, chunk);
        #[cfg(target_arch = "nvptx64")]
        // SAFETY: guaranteed by the caller. With a size of 0, the instruction reads nothing. ptxas compiles the choice
        // between two sizes to a predicate; any other size costs several instructions.
        unsafe {
            core::arch::asm!(
                "{{ .reg .u64 f; .reg .pred p; .reg .b32 s; cvta.to.global.u64 f, {f}; setp.ne.b32 p, {t}, 0; ",
                "selp.b32 s, 16, 0, p; cp.async.cg.shared.global.L2::128B [{p}], [f], 16, s; }}",
                p = in(reg32) to.0, f = in(reg64) from, t = in(reg32) u32::from(is_there), options(nostack)
            );
        }
        #[cfg(not(target_arch = "nvptx64"))]
        // SAFETY: guaranteed by the caller; the address of the chunk is a multiple of 16.
        unsafe {
            to.0.cast::<[u32; 4]>().write(if is_there { from.cast::<[u32; 4]>().read() } else { [0; 4] });
            crate::host::copies::delay(to.0.cast(), 16);
        }
    }

    /// Stores the 16-byte chunk `chunk` of row `row`.
    ///
    /// See the [example](self#example). A call with four registers replaces a copy.
    ///
    /// # Safety
    /// The tile must contain the chunk, and no other thread may access it concurrently.
    #[inline(always)]
    pub unsafe fn store_chunk(self, row: u32, chunk: u32, chunks: [u32; 4]) {
        let to = self.chunk(row, chunk);
        #[cfg(target_arch = "nvptx64")]
        // SAFETY: guaranteed by the caller.
        unsafe {
            let [a, b, c, d] = chunks;
            core::arch::asm!(
                "st.shared.v4.b32 [{p}], {{{a}, {b}, {c}, {d}}};",
                p = in(reg32) to.0, a = in(reg32) a, b = in(reg32) b, c = in(reg32) c, d = in(reg32) d,
                options(nostack)
            );
        }
        #[cfg(not(target_arch = "nvptx64"))]
        // SAFETY: guaranteed by the caller; the address is a multiple of 16.
        unsafe {
            to.0.cast::<[u32; 4]>().write(chunks);
        }
    }

    /// Loads chunks `chunk` and `chunk + 1` of rows `row..row + 16` of A, where the rows of the tile are rows of A
    /// (`ldmatrix`). The result is operand `a` of [`mma`](super::mma::mma).
    ///
    /// See the [example](self#example).
    ///
    /// # Safety
    /// All 32 lanes of the warp must call this method together, with the same arguments. The tile must contain the
    /// elements, `row` must be a multiple of 16, and nothing may write the elements concurrently.
    #[inline(always)]
    #[must_use]
    pub unsafe fn load_a(self, row: u32, chunk: u32) -> [u32; 4] {
        // SAFETY: guaranteed by the caller.
        unsafe { self.matrices::<false>(row, chunk, [[8, 0], [0, 1]]) }
    }

    /// Like [`Self::load_a`], but the columns of the tile are rows of A (`ldmatrix.trans`): loads columns
    /// `row..row + 16` of A and rows `8 * chunk..8 * chunk + 16`.
    ///
    /// See the [example](self#example).
    ///
    /// # Safety
    /// The caller must uphold the safety contract of [`Self::load_a`].
    #[inline(always)]
    #[must_use]
    pub unsafe fn load_a_transposed(self, row: u32, chunk: u32) -> [u32; 4] {
        // SAFETY: guaranteed by the caller.
        unsafe { self.matrices::<true>(row, chunk, [[0, 1], [8, 0]]) }
    }

    /// Loads chunks `chunk` and `chunk + 1` of columns `row..row + 16` of B, where the rows of the tile are columns of
    /// B (`ldmatrix`). Each half of the result is operand `b` of [`mma`](super::mma::mma) for 8 of the columns.
    ///
    /// See the [example](self#example).
    ///
    /// # Safety
    /// The caller must uphold the safety contract of [`Self::load_a`].
    #[inline(always)]
    #[must_use]
    pub unsafe fn load_b(self, row: u32, chunk: u32) -> [[u32; 2]; 2] {
        // SAFETY: guaranteed by the caller.
        let [a, b, c, d] = unsafe { self.matrices::<false>(row, chunk, [[0, 1], [8, 0]]) };
        [[a, b], [c, d]]
    }

    /// Like [`Self::load_b`], but the columns of the tile are columns of B (`ldmatrix.trans`): loads rows
    /// `row..row + 16` of B and columns `8 * chunk..8 * chunk + 16`.
    ///
    /// See the [example](self#example).
    ///
    /// # Safety
    /// The caller must uphold the safety contract of [`Self::load_a`].
    #[inline(always)]
    #[must_use]
    pub unsafe fn load_b_transposed(self, row: u32, chunk: u32) -> [[u32; 2]; 2] {
        // SAFETY: guaranteed by the caller.
        let [a, b, c, d] = unsafe { self.matrices::<true>(row, chunk, [[8, 0], [0, 1]]) };
        [[a, b], [c, d]]
    }

    /// Returns the loads of operand A from row `first` on, a multiple of 8, as with [`Self::load_a`].
    #[inline(always)]
    #[must_use]
    pub fn loads_a(self, first: u32) -> MatrixLoads<T, ROWS, COLUMNS, false, true> {
        MatrixLoads::new(self, first)
    }

    /// Returns the loads of operand B from row `first` on, a multiple of 8, as with [`Self::load_b`].
    #[inline(always)]
    #[must_use]
    pub fn loads_b(self, first: u32) -> MatrixLoads<T, ROWS, COLUMNS, false, false> {
        MatrixLoads::new(self, first)
    }

    /// Returns the loads of operand B from row `first` on, a multiple of 8, as with [`Self::load_b_transposed`].
    #[inline(always)]
    #[must_use]
    pub fn loads_b_transposed(self, first: u32) -> MatrixLoads<T, ROWS, COLUMNS, true, true> {
        MatrixLoads::new(self, first)
    }

    /// Returns the loads of operand A from row `first` on, a multiple of 8, as with [`Self::load_a_transposed`].
    #[inline(always)]
    #[must_use]
    pub fn loads_a_transposed(self, first: u32) -> MatrixLoads<T, ROWS, COLUMNS, true, false> {
        MatrixLoads::new(self, first)
    }

    /// Returns the stores of sums of [`mma`](super::mma::mma) from row `first` and chunk `chunk` on. The row must be a
    /// multiple of 8, and the chunk even and less than 8.
    #[inline(always)]
    #[must_use]
    pub fn stores(self, first: u32, chunk: u32) -> MatrixStores<T, ROWS, COLUMNS> {
        MatrixStores::new(self, first, chunk)
    }

    /// Loads four matrices of 8 rows x 16 bytes (`ldmatrix`), one per register. Each offset is a number of rows and a
    /// number of chunks. Matrix `i` starts at `row` and `chunk`, plus `i % 2` times the first offset and `i / 2` times
    /// the second. A lane receives pairs of bytes `2 * (lane % 4)` and `2 * (lane % 4) + 1` of row `lane / 4`, or of
    /// column `lane / 4` if `TRANSPOSED`.
    ///
    /// # Safety
    /// The caller must uphold the safety contract of [`Self::load_a`].
    #[inline(always)]
    unsafe fn matrices<const TRANSPOSED: bool>(
        self,
        row: u32,
        chunk: u32,
        [[rows, chunks], [more_rows, more_chunks]]: [[u32; 2]; 2],
    ) -> [u32; 4] {
        const { assert!(!TRANSPOSED || size_of::<T>() == 2, "only 16-bit elements can be transposed") };
        let lane = crate::warp::lane_id();
        #[cfg(target_arch = "nvptx64")]
        {
            let (low, high) = (lane / 8 % 2, lane / 16);
            let at = self.chunk(
                row + lane % 8 + low * rows + high * more_rows,
                chunk + low * chunks + high * more_chunks,
            );
            // SAFETY: guaranteed by the caller.
            unsafe { load_matrices::<TRANSPOSED>(at) }
        }
        #[cfg(not(target_arch = "nvptx64"))]
        core::array::from_fn(|i| {
            let (low, high) = (i as u32 % 2, i as u32 / 2);
            let (row, chunk) =
                (row + low * rows + high * more_rows, chunk + low * chunks + high * more_chunks);
            let element = |row: u32, column: u32| {
                // SAFETY: guaranteed by the caller; the address is a multiple of 2.
                u32::from(unsafe { self.chunk(row, chunk).add(2 * column).0.cast::<u16>().read() })
            };
            let (line, pair) = (lane / 4, lane % 4 * 2);
            if TRANSPOSED {
                element(row + pair, line) | element(row + pair + 1, line) << 16
            } else {
                element(row + line, pair) | element(row + line, pair + 1) << 16
            }
        })
    }
}

/// Loads four matrices of 8 x 8 elements (`ldmatrix`). Eight lanes each pass the addresses of the rows of one matrix.
///
/// # Safety
/// All 32 lanes of the warp must call it together. Each address must be valid for reads of 16 bytes.
#[cfg(target_arch = "nvptx64")]
#[inline(always)]
unsafe fn load_matrices<const TRANSPOSED: bool>(at: SharedAddress) -> [u32; 4] {
    let (a, b, c, d): (u32, u32, u32, u32);
    macro_rules! load {
        ($instruction:literal) => {
            core::arch::asm!(
                concat!($instruction, " {{{a}, {b}, {c}, {d}}}, [{p}];"),
                p = in(reg32) at.0, a = out(reg32) a, b = out(reg32) b, c = out(reg32) c, d = out(reg32) d,
                options(nostack)
            )
        };
    }
    // SAFETY: guaranteed by the caller.
    unsafe {
        if TRANSPOSED {
            load!("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16");
        } else {
            load!("ldmatrix.sync.aligned.m8n8.x4.shared.b16");
        }
    }
    [a, b, c, d]
}

/// Loads of operands of [`mma`](super::mma::mma) from one [`MatrixTile`], whose rows have a multiple of 128 bytes. The
/// calling lane's address is computed once, and the address of each load differs from it by constants.
///
/// In a loop, create the loads in the body: LLVM does not compute their addresses before the loop, where they would
/// occupy registers.
///
/// See the [example](self#example), in which `a_tile.loads_a(0).load(0, 2 * step)` has the same result as `load_a`.
#[derive(Debug, Clone, Copy)]
pub struct MatrixLoads<T, const ROWS: usize, const COLUMNS: usize, const TRANSPOSED: bool, const DOWN: bool> {
    /// Address of the lane's row of the first matrices.
    #[cfg(target_arch = "nvptx64")]
    address: SharedAddress,
    #[cfg(target_arch = "nvptx64")]
    element: PhantomData<T>,
    #[cfg(not(target_arch = "nvptx64"))]
    tile: MatrixTile<T, ROWS, COLUMNS>,
    #[cfg(not(target_arch = "nvptx64"))]
    first: u32,
    #[cfg(not(target_arch = "nvptx64"))]
    chunk: u32,
}

impl<T: KernelType, const ROWS: usize, const COLUMNS: usize, const TRANSPOSED: bool, const DOWN: bool>
    MatrixLoads<T, ROWS, COLUMNS, TRANSPOSED, DOWN>
{
    #[inline(always)]
    fn new(tile: MatrixTile<T, ROWS, COLUMNS>, first: u32) -> Self {
        const {
            assert!((COLUMNS * size_of::<T>()).is_multiple_of(128), "rows must have a multiple of 128 bytes");
        };
        #[cfg(target_arch = "nvptx64")]
        {
            let lane = crate::warp::lane_id();
            let (low, high) = (lane / 8 % 2, lane / 16);
            let (down, right) = if DOWN { (low, high) } else { (high, low) };
            let address = tile.chunk(first + lane % 8 + 8 * down, right);
            Self { address: SharedAddress(crate::vectorized::opaque(address.0)), element: PhantomData }
        }
        #[cfg(not(target_arch = "nvptx64"))]
        Self { tile, first, chunk: 0 }
    }

    /// Returns the loads from chunk `chunk` on, which must be even and less than 8. The chunks of these loads must have
    /// none of the bits of `chunk`.
    ///
    /// See the [example](self#example), in which `a_tile.loads_a(0).from_chunk(2).load(0, 4)` has the same result as
    /// `a_tile.load_a(0, 6)`.
    #[inline(always)]
    #[must_use]
    pub fn from_chunk(self, chunk: u32) -> Self {
        #[cfg(target_arch = "nvptx64")]
        {
            Self { address: SharedAddress(crate::vectorized::opaque(self.address.0 ^ (chunk * 16))), ..self }
        }
        #[cfg(not(target_arch = "nvptx64"))]
        {
            assert!(chunk.is_multiple_of(2) && chunk < 8, "the first chunk must be even and less than 8");
            Self { chunk, ..self }
        }
    }

    /// Loads the operand that starts at row `first + row` and chunk `chunk` of the tile. The two halves of operand
    /// B are for 8 columns each.
    ///
    /// See the [example](self#example), in which `a_tile.loads_a(0).load(0, 2 * step)` has the same result as `load_a`.
    ///
    /// # Safety
    /// The conditions of [`MatrixTile::load_a`] apply, and `chunk` must be even.
    #[inline(always)]
    #[must_use]
    pub unsafe fn load(self, row: u32, chunk: u32) -> [u32; 4] {
        #[cfg(target_arch = "nvptx64")]
        {
            // Tiles are aligned to 1024 bytes, so that the permuted bits of the address are those of the lane.
            let at = SharedAddress(self.address.0 ^ (chunk % 8 * 16));
            let row_bytes = MatrixTile::<T, ROWS, COLUMNS>::CHUNKS * 16;
            // SAFETY: guaranteed by the caller.
            unsafe { load_matrices::<TRANSPOSED>(at.add(row * row_bytes + chunk / 8 * 128)) }
        }
        #[cfg(not(target_arch = "nvptx64"))]
        // SAFETY: guaranteed by the caller.
        unsafe {
            assert!(chunk & self.chunk == 0, "the chunk must have no bits of the first chunk");
            self.tile.matrices::<TRANSPOSED>(
                self.first + row,
                self.chunk + chunk,
                if DOWN { [[8, 0], [0, 1]] } else { [[0, 1], [8, 0]] },
            )
        }
    }
}

/// Stores of sums of [`mma`](super::mma::mma) to one [`MatrixTile`], whose rows have a multiple of 64 columns, as
/// 16-bit elements. The calling lane's address is computed once, and the address of each store differs from it by
/// constants.
///
/// See the [example](self#example). A warp can store its `sums` with
/// `tile.stores(0, 0).store(8 * row_half, half, bf16::pack(low, high))` for another product.
#[derive(Debug, Clone, Copy)]
pub struct MatrixStores<T, const ROWS: usize, const COLUMNS: usize> {
    /// Address of the lane's first pair.
    #[cfg(target_arch = "nvptx64")]
    address: SharedAddress,
    #[cfg(target_arch = "nvptx64")]
    element: PhantomData<T>,
    #[cfg(not(target_arch = "nvptx64"))]
    tile: MatrixTile<T, ROWS, COLUMNS>,
    #[cfg(not(target_arch = "nvptx64"))]
    first: [u32; 2],
}

impl<T: KernelType, const ROWS: usize, const COLUMNS: usize> MatrixStores<T, ROWS, COLUMNS> {
    #[inline(always)]
    fn new(tile: MatrixTile<T, ROWS, COLUMNS>, first: u32, chunk: u32) -> Self {
        const {
            assert!(size_of::<T>() == 2, "the elements must have 16 bits");
            assert!(COLUMNS.is_multiple_of(64), "rows must have a multiple of 64 columns");
        };
        #[cfg(target_arch = "nvptx64")]
        {
            let lane = crate::warp::lane_id();
            let address = tile.chunk(first + lane / 4, chunk).add(lane % 4 * 4);
            Self { address: SharedAddress(crate::vectorized::opaque(address.0)), element: PhantomData }
        }
        #[cfg(not(target_arch = "nvptx64"))]
        {
            assert!(chunk.is_multiple_of(2) && chunk < 8, "the first chunk must be even and less than 8");
            Self { tile, first: [first, chunk] }
        }
    }

    /// Stores the lane's two elements of an 8 x 8 matrix: columns `2 * (lane % 4)` and `2 * (lane % 4) + 1` of its row
    /// `lane / 4`. The matrix starts at row `row`, a multiple of 8, and chunk `chunk` after the first. `chunk` must
    /// have none of the bits of the first chunk. `pair` has the first element in its low half.
    ///
    /// See the [example](self#example).
    ///
    /// # Safety
    /// The tile must contain the elements, and no other thread may access them concurrently.
    #[inline(always)]
    pub unsafe fn store(self, row: u32, chunk: u32, pair: u32) {
        #[cfg(target_arch = "nvptx64")]
        {
            // Tiles are aligned to 1024 bytes, so that the permuted bits of the address are those of the lane.
            let at = SharedAddress(self.address.0 ^ (chunk % 8 * 16));
            let row_bytes = MatrixTile::<T, ROWS, COLUMNS>::CHUNKS * 16;
            let at = at.add(row * row_bytes + chunk / 8 * 128);
            // SAFETY: guaranteed by the caller.
            unsafe {
                core::arch::asm!("st.shared.b32 [{p}], {x};", p = in(reg32) at.0, x = in(reg32) pair, options(nostack));
            }
        }
        #[cfg(not(target_arch = "nvptx64"))]
        {
            let ([first, first_chunk], lane) = (self.first, crate::warp::lane_id());
            assert!(chunk & first_chunk == 0, "the chunk must have no bits of the first chunk");
            let at = self.tile.chunk(first + row + lane / 4, first_chunk + chunk).add(lane % 4 * 4);
            // SAFETY: guaranteed by the caller; the address is a multiple of 4.
            unsafe { at.0.cast::<u32>().write(pair) };
        }
    }
}

/// The tiles of one operand in a multistage pipeline of `COUNT` stages.
///
/// See the [example](self#example).
#[derive(Debug, Clone, Copy)]
pub struct MatrixTiles<T, const ROWS: usize, const COLUMNS: usize, const COUNT: usize> {
    pub(super) first: MatrixTile<T, ROWS, COLUMNS>,
}

impl<T: KernelType, const ROWS: usize, const COLUMNS: usize, const COUNT: usize>
    MatrixTiles<T, ROWS, COLUMNS, COUNT>
{
    /// Returns the tile of a pipeline slot.
    #[inline(always)]
    pub fn at(&self, slot: PipelineState<COUNT>) -> MatrixTile<T, ROWS, COLUMNS> {
        MatrixTile::at(self.first.address.add(slot.index() * MatrixTile::<T, ROWS, COLUMNS>::BYTES))
    }
}
