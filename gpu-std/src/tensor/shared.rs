//! [`SharedTile`]: a tensor box in shared memory, which is the destination of copies and an operand of `wgmma`.
//!
//! # Example
//! A block of 128 threads reverses 16 rows of 128 bytes:
//!
//! ```
//! use gpu_std::prelude::*;
//! use gpu_std::tensor::SharedMemory;
//! # use warpsmith_runtime::{Device, DeviceBuffer, GpuImage, Launch};
//!
//! /// # Safety
//! /// `x` and `out` must have 16 x 8 chunks, and the launch must provide 2048 bytes of shared memory.
//! #[kernel(block(128))]
//! unsafe fn reverse_rows(x: *const u128, out: *mut u128) {
//!     let i = thread::linear_in_block();
//!     let (row, chunk) = (i / 8, i % 8);
//!     // SAFETY: guaranteed by the caller. Each thread writes its own chunk, and reads another one after the barrier.
//!     unsafe {
//!         let tile = SharedMemory::new().tiles::<u32, 16, 1>().at_index(0);
//!         tile.store_chunk(row, chunk, x.add(i as usize).cast::<[u32; 4]>().read());
//!         thread::sync_threads();
//!         let half = tile.rows::<8>(1 - row / 8);
//!         out.add(i as usize).cast::<[u32; 4]>().write(half.load_chunk(7 - row % 8, chunk));
//!     }
//! }
//!
//! # static IMAGE: GpuImage = GpuImage::without_code(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"), "example");
//! # let stream = Device::emulated(0)?.default_stream();
//! # let module = stream.device().load(&IMAGE)?;
//! let x = DeviceBuffer::from_host(&stream, &std::array::from_fn::<u128, 128, _>(|i| i as u128))?;
//! let mut out = DeviceBuffer::<u128>::zeros(&stream, 128)?;
//! let launch = Launch::grid_block(1, 128).shared(2048);
//! // SAFETY: the buffers and the shared memory have the required sizes.
//! unsafe { module.kernel::<reverse_rows>()?.launch_unsafe(&stream, launch, (&x, &mut out))? };
//! assert_eq!(out.to_host()?[..9], [120, 121, 122, 123, 124, 125, 126, 127, 112]);
//! # Ok::<(), warpsmith_runtime::Error>(())
//! ```

use core::marker::PhantomData;

use super::barrier::{Barrier, Barriers, PipelineState};
use super::matrix_tile::{MatrixTile, MatrixTiles};
use crate::{KernelType, shared};

/// An address in the shared memory of the calling block, encoded as the instructions require.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SharedAddress(
    #[cfg(target_arch = "nvptx64")] pub u32,
    #[cfg(not(target_arch = "nvptx64"))] pub *mut u8,
);

impl SharedAddress {
    #[inline(always)]
    fn of(pointer: *mut u8) -> Self {
        #[cfg(target_arch = "nvptx64")]
        {
            let address: u32;
            // SAFETY: the instruction only computes a number.
            unsafe {
                core::arch::asm!(
                    "{{ .reg .u64 t; cvta.to.shared.u64 t, {p}; cvt.u32.u64 {a}, t; }}",
                    p = in(reg64) pointer, a = out(reg32) address, options(pure, nomem, nostack)
                );
            }
            Self(address)
        }
        #[cfg(not(target_arch = "nvptx64"))]
        Self(pointer)
    }

    /// Returns the address plus `bytes`.
    #[inline(always)]
    pub fn add(self, bytes: u32) -> Self {
        gpu_or_host!(Self(self.0.wrapping_add(bytes)), Self(self.0.wrapping_add(bytes as usize)))
    }
}

/// Allocates the dynamic shared memory of a block from its start: first tiles, aligned to 1024 bytes, and then
/// barriers.
///
/// All threads of a block must allocate the same tiles and barriers in the same order, so that they agree on the
/// addresses.
///
/// See the [example](self#example).
pub struct SharedMemory {
    base: SharedAddress,
    used: u32,
}

impl SharedMemory {
    /// Returns the size of the dynamic shared memory that is needed for tiles of `tile_bytes` bytes in total and
    /// `barriers` barriers.
    pub const fn bytes(tile_bytes: u32, barriers: u32) -> u32 {
        tile_bytes + 8 * barriers
    }

    /// Creates an allocator for the dynamic shared memory of the block.
    ///
    /// See the [example](self#example).
    ///
    /// # Safety
    /// The launch must provide at least the bytes that are allocated, and nothing else may use them. Each thread must
    /// call this function only once.
    #[inline(always)]
    pub unsafe fn new() -> Self {
        Self { base: SharedAddress::of(shared::dynamic_aligned()), used: 0 }
    }

    /// Creates a second allocator that starts at the same address, to reuse memory in a later phase.
    ///
    /// ```
    /// use gpu_std::prelude::*;
    /// use gpu_std::tensor::{SharedMemory, SharedTile};
    ///
    /// /// Returns two tiles at the same address, for two phases of a kernel.
    /// ///
    /// /// # Safety
    /// /// The first tile must no longer be in use when the second is written.
    /// #[inline(always)]
    /// unsafe fn overlapping(mut memory: SharedMemory) -> (SharedTile<bf16, 64>, SharedTile<f32, 64>) {
    ///     // SAFETY: guaranteed by the caller.
    ///     let mut again = unsafe { memory.again() };
    ///     (memory.tiles::<bf16, 64, 1>().tile::<0>(), again.tiles::<f32, 64, 1>().tile::<0>())
    /// }
    /// ```
    ///
    /// # Safety
    /// Nothing may use an allocation from one allocator while an overlapping allocation from the other is in use.
    #[inline(always)]
    pub unsafe fn again(&self) -> Self {
        Self { base: self.base, used: 0 }
    }

    /// Allocates `COUNT` consecutive tiles.
    #[inline(always)]
    pub fn tiles<T: KernelType, const ROWS: usize, const COUNT: usize>(
        &mut self,
    ) -> SharedTiles<T, ROWS, COUNT> {
        let tiles = SharedTiles { first: SharedTile::at(self.base.add(self.used)) };
        self.used += SharedTile::<T, ROWS>::BYTES * COUNT as u32;
        tiles
    }

    /// Allocates `COUNT` consecutive matrix tiles.
    #[inline(always)]
    pub fn matrix_tiles<T: KernelType, const ROWS: usize, const COLUMNS: usize, const COUNT: usize>(
        &mut self,
    ) -> MatrixTiles<T, ROWS, COLUMNS, COUNT> {
        let tiles = MatrixTiles { first: MatrixTile::at(self.base.add(self.used)) };
        self.used += MatrixTile::<T, ROWS, COLUMNS>::BYTES * COUNT as u32;
        tiles
    }

    /// Allocates `COUNT` barriers.
    #[inline(always)]
    pub fn barriers<const COUNT: usize>(&mut self) -> Barriers<COUNT> {
        let barriers = Barriers { first: Barrier(self.base.add(self.used)) };
        self.used += 8 * COUNT as u32;
        barriers
    }
}

/// `COUNT` tiles, used as a circular buffer or side by side.
///
/// See the [example](self#example).
#[derive(Debug, Clone, Copy)]
pub struct SharedTiles<T, const ROWS: usize, const COUNT: usize> {
    first: SharedTile<T, ROWS>,
}

impl<T: KernelType, const ROWS: usize, const COUNT: usize> SharedTiles<T, ROWS, COUNT> {
    /// Returns the tile of a pipeline slot.
    #[inline(always)]
    pub fn at(&self, slot: PipelineState<COUNT>) -> SharedTile<T, ROWS> {
        SharedTile::at(self.first.address.add(slot.index() * SharedTile::<T, ROWS>::BYTES))
    }

    /// Returns tile `INDEX`.
    #[inline(always)]
    pub fn tile<const INDEX: usize>(&self) -> SharedTile<T, ROWS> {
        const { assert!(INDEX < COUNT, "no tile has this index") };
        SharedTile::at(self.first.address.add(INDEX as u32 * SharedTile::<T, ROWS>::BYTES))
    }

    /// Returns tile `index`.
    ///
    /// See the [example](self#example).
    ///
    /// # Safety
    /// `index` must be below `COUNT`.
    #[inline(always)]
    pub unsafe fn at_index(&self, index: u32) -> SharedTile<T, ROWS> {
        SharedTile::at(self.first.address.add(index * SharedTile::<T, ROWS>::BYTES))
    }
}

/// `ROWS` rows of 128 bytes ([`Self::COLUMNS`] elements) each in shared memory, which copies write and `wgmma` reads.
/// The 16-byte chunks are permuted by [`Swizzle::Bytes128`](super::Swizzle::Bytes128).
///
/// See the [example](self#example).
#[derive(Debug)]
pub struct SharedTile<T, const ROWS: usize> {
    pub(super) address: SharedAddress,
    element: PhantomData<T>,
}

impl<T, const ROWS: usize> Clone for SharedTile<T, ROWS> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, const ROWS: usize> Copy for SharedTile<T, ROWS> {}

impl<T: KernelType, const ROWS: usize> SharedTile<T, ROWS> {
    /// Number of elements per row.
    pub const COLUMNS: u32 = {
        assert!(128 % size_of::<T>() == 0, "a row of 128 bytes must contain whole elements");
        128 / size_of::<T>() as u32
    };
    /// Size of the tile in bytes.
    pub const BYTES: u32 = {
        assert!(ROWS.is_multiple_of(8) && ROWS > 0, "a tile must have a multiple of 8 rows");
        (ROWS * 128) as u32
    };

    #[inline(always)]
    pub(super) fn at(address: SharedAddress) -> Self {
        Self { address, element: PhantomData }
    }

    /// Returns the `COUNT` rows that start at row `COUNT * index`.
    ///
    /// See the [example](self#example).
    ///
    /// # Safety
    /// The tile must contain these rows: `COUNT * (index + 1) <= ROWS`.
    #[inline(always)]
    pub unsafe fn rows<const COUNT: usize>(self, index: u32) -> SharedTile<T, COUNT> {
        SharedTile::at(self.address.add(index * SharedTile::<T, COUNT>::BYTES))
    }

    /// Returns the address of 16-byte chunk `chunk` in row `row`.
    #[inline(always)]
    pub(super) fn chunk(self, row: u32, chunk: u32) -> SharedAddress {
        self.address.add(row * 128 + ((chunk ^ (row & 7)) * 16))
    }

    /// Loads the 16-byte chunk `chunk` of row `row`, which contains the elements that start at `chunk * COLUMNS / 8`.
    ///
    /// See the [example](self#example).
    ///
    /// # Safety
    /// The tile must contain the row, `chunk` must be below 8, and no copy or other thread may write the chunk
    /// concurrently.
    #[inline(always)]
    pub unsafe fn load_chunk(self, row: u32, chunk: u32) -> [u32; 4] {
        let at = self.chunk(row, chunk);
        #[cfg(target_arch = "nvptx64")]
        {
            let (a, b, c, d): (u32, u32, u32, u32);
            // SAFETY: guaranteed by the caller.
            unsafe {
                core::arch::asm!(
                    "ld.shared.v4.b32 {{{a}, {b}, {c}, {d}}}, [{p}];",
                    p = in(reg32) at.0, a = out(reg32) a, b = out(reg32) b, c = out(reg32) c, d = out(reg32) d,
                    options(nostack)
                );
            }
            [a, b, c, d]
        }
        #[cfg(not(target_arch = "nvptx64"))]
        // SAFETY: guaranteed by the caller; the address is a multiple of 16.
        unsafe {
            at.0.cast::<[u32; 4]>().read()
        }
    }

    /// Loads a chunk like [`Self::load_chunk`], but from the corresponding tile in block `rank` of the cluster.
    ///
    /// The [example](crate::cluster) of `cluster` reads the memory of each block in the same way, between two
    /// calls of [`cluster::sync`](crate::cluster::sync).
    ///
    /// # Safety
    /// The conditions of [`Self::load_chunk`] apply in that block, and `rank` must be below
    /// [`blocks`](crate::cluster::blocks). The block must have started, and must not end before the chunk has been
    /// read.
    #[inline(always)]
    pub unsafe fn load_chunk_of(self, rank: u32, row: u32, chunk: u32) -> [u32; 4] {
        let at = self.chunk(row, chunk);
        #[cfg(target_arch = "nvptx64")]
        {
            let (a, b, c, d): (u32, u32, u32, u32);
            // SAFETY: guaranteed by the caller.
            unsafe {
                core::arch::asm!(
                    "{{ .reg .b32 t; mapa.shared::cluster.u32 t, {p}, {r}; ld.shared::cluster.v4.b32 {{{a}, {b}, {c}, {d}}}, [t]; }}",
                    p = in(reg32) at.0, r = in(reg32) rank, a = out(reg32) a, b = out(reg32) b, c = out(reg32) c,
                    d = out(reg32) d, options(nostack)
                );
            }
            [a, b, c, d]
        }
        #[cfg(not(target_arch = "nvptx64"))]
        // SAFETY: guaranteed by the caller; the address is a multiple of 16.
        unsafe {
            crate::cluster::map_shared(at.0, rank).cast::<[u32; 4]>().read()
        }
    }

    /// Stores the 16-byte chunk `chunk` of row `row`.
    ///
    /// See the [example](self#example).
    ///
    /// # Safety
    /// The tile must contain the row, `chunk` must be below 8, and no copy or other thread may access the chunk
    /// concurrently.
    #[inline(always)]
    pub unsafe fn store_chunk(self, row: u32, chunk: u32, [a, b, c, d]: [u32; 4]) {
        let at = self.chunk(row, chunk);
        #[cfg(target_arch = "nvptx64")]
        // SAFETY: guaranteed by the caller.
        unsafe {
            core::arch::asm!(
                "st.shared.v4.b32 [{p}], {{{a}, {b}, {c}, {d}}};",
                p = in(reg32) at.0, a = in(reg32) a, b = in(reg32) b, c = in(reg32) c, d = in(reg32) d,
                options(nostack)
            );
        }
        #[cfg(not(target_arch = "nvptx64"))]
        // SAFETY: guaranteed by the caller; the address is a multiple of 16.
        unsafe {
            at.0.cast::<[u32; 4]>().write([a, b, c, d]);
        }
    }

    /// Stores 32-bit elements to the 16 rows that start at `row`, in the columns of the four 16-byte chunks that start
    /// at `chunk`. The pairs that the threads of a warp pass are in accumulator order.
    ///
    /// # Safety
    /// The caller must uphold the safety contract of [`Self::store_matrices`].
    #[inline(always)]
    pub(super) unsafe fn store_pairs(self, row: u32, chunk: u32, pairs: [[T; 2]; 4]) {
        const { assert!(size_of::<T>() == 4, "the elements of a pair must have 32 bits") };
        let lane = crate::warp::lane_id();
        let (row, right, in_chunk) = (row + lane / 4, lane % 4 / 2, lane % 2 * 8);
        let mut i = 0;
        while i < 4 {
            let at = self.chunk(row + 8 * (i & 1), chunk + 2 * (i >> 1) + right).add(in_chunk);
            let pair = pairs[i as usize];
            #[cfg(target_arch = "nvptx64")]
            // SAFETY: guaranteed by the caller; both types have 64 bits.
            unsafe {
                let bits = core::mem::transmute_copy::<[T; 2], u64>(&pair);
                core::arch::asm!("st.shared.b64 [{p}], {v};", p = in(reg32) at.0, v = in(reg64) bits, options(nostack));
            }
            #[cfg(not(target_arch = "nvptx64"))]
            // SAFETY: guaranteed by the caller; the address is a multiple of 8.
            unsafe {
                at.0.cast::<[T; 2]>().write(pair);
            }
            i += 1;
        }
    }

    /// Stores four 8 x 8 matrices of 16-bit elements (`stmatrix`, or ordinary stores below compute capability 9.0).
    /// Each register of a thread packs two elements of one matrix. The matrices cover rows `row..row + 16` and columns
    /// `8 * chunk..8 * chunk + 16`, in accumulator order. All threads of a warp must call this method together.
    ///
    /// ```
    /// use gpu_std::prelude::*;
    /// use gpu_std::tensor::SharedTile;
    ///
    /// /// Stores 16 x 16 sums in accumulator order, rounded to `bf16`, from row `row` on.
    /// ///
    /// /// # Safety
    /// /// The requirements of [`SharedTile::store_matrices`] apply.
    /// #[inline(always)]
    /// unsafe fn store(tile: SharedTile<bf16, 64>, row: u32, sums: [f32; 8]) {
    ///     let pack = |i: usize| {
    ///         let [low, high] = [sums[i], sums[i + 1]].map(|sum| u32::from(bf16::from_f32(sum).to_bits()));
    ///         low | high << 16
    ///     };
    ///     // SAFETY: guaranteed by the caller.
    ///     unsafe { tile.store_matrices(row, 0, [pack(0), pack(2), pack(4), pack(6)]) }
    /// }
    /// ```
    ///
    /// # Safety
    /// The tile must contain these rows and columns. `row` must be the same in all threads of the warp, and a multiple
    /// of 16. No copy or other thread may access these elements concurrently.
    #[inline(always)]
    pub unsafe fn store_matrices(self, row: u32, chunk: u32, registers: [u32; 4]) {
        const { assert!(size_of::<T>() == 2, "the elements of a matrix must have 16 bits") };
        let lane = crate::warp::lane_id();
        let [a, b, c, d] = registers;
        #[cfg(target_arch = "nvptx64")]
        if crate::arch() >= 90 {
            let at = self.chunk(row + ((lane >> 3) & 1) * 8 + (lane & 7), chunk + (lane >> 4));
            // SAFETY: guaranteed by the caller.
            unsafe {
                core::arch::asm!(
                    "stmatrix.sync.aligned.m8n8.x4.shared.b16 [{p}], {{{a}, {b}, {c}, {d}}};",
                    p = in(reg32) at.0, a = in(reg32) a, b = in(reg32) b, c = in(reg32) c, d = in(reg32) d,
                    options(nostack)
                );
            }
            return;
        }
        let put = |register: u32, down: u32, right: u32| {
            let at = self.chunk(row + down + lane / 4, chunk + right).add(4 * (lane % 4));
            #[cfg(target_arch = "nvptx64")]
            // SAFETY: guaranteed by the caller.
            unsafe {
                core::arch::asm!(
                    "st.shared.b32 [{p}], {v};",
                    p = in(reg32) at.0, v = in(reg32) register, options(nostack)
                );
            }
            #[cfg(not(target_arch = "nvptx64"))]
            // SAFETY: guaranteed by the caller.
            unsafe {
                at.0.cast::<u32>().write(register);
            }
        };
        put(a, 0, 0);
        put(b, 8, 0);
        put(c, 0, 1);
        put(d, 8, 1);
        gpu_or_host!((), crate::warp::sync_warp(!0));
    }
}
