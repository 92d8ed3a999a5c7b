//! [`Major`]: the layout (K-major or MN-major) of an operand in a tile.

use crate::KernelType;
#[cfg(target_arch = "nvptx64")]
use crate::tensor::shared::SharedAddress;
use crate::tensor::shared::SharedTile;

/// The dimension along which an operand is contiguous in memory: [`KMajor`] or [`MnMajor`]. The trait is sealed.
///
/// See the example of [`Batch::mma_of`](super::Batch::mma_of).
pub trait Major: sealed::Sealed + Send + Sync + 'static {
    /// True for [`MnMajor`].
    const IS_TRANSPOSED: bool;
    /// Distance between the columns of consecutive instructions, in units of 16 bytes.
    #[doc(hidden)]
    const STEP: u64;
    /// Returns the tile's matrix descriptor for `wgmma`.
    #[doc(hidden)]
    #[cfg(target_arch = "nvptx64")]
    fn descriptor<T: KernelType, const ROWS: usize>(tile: SharedTile<T, ROWS>) -> u64;
    /// Returns the address of the element in row `row` and column `k`.
    #[doc(hidden)]
    #[cfg(not(target_arch = "nvptx64"))]
    fn element<T: KernelType, const ROWS: usize>(tile: SharedTile<T, ROWS>, row: u32, k: u32) -> *const T;
}

/// The operand is contiguous along K, the dimension over which products are summed. The rows of a tile are the rows of
/// the operand.
///
/// See the example of [`Batch::mma_of`](super::Batch::mma_of).
pub struct KMajor;

/// The operand is contiguous along M or N. Only 16-bit types support this layout.
///
/// A tile of `ROWS` rows (a multiple of 64) consists of boxes of 64 rows ([`SharedTile::rows`]). Column c of box `i` is
/// row `64 * i + c` of the operand, and each row of the box is a column of the operand. Each TMA copy fills one box of
/// the tile.
///
/// See the example of [`Batch::mma_of`](super::Batch::mma_of).
pub struct MnMajor;

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::KMajor {}
    impl Sealed for super::MnMajor {}
}

/// Returns the descriptor bits for a 128-byte swizzle and a stride of 1024 bytes between groups of eight rows of 128
/// bytes. `box_bytes` is the stride between boxes if the instruction reads several boxes.
#[cfg(target_arch = "nvptx64")]
#[inline(always)]
fn descriptor(address: SharedAddress, box_bytes: u32) -> u64 {
    // From bit 24 on, an address contains the block's cluster rank, which would leak into the box stride.
    let field = |bytes: u32| u64::from((bytes & 0x3_ffff) >> 4);
    const EIGHT_ROWS: u32 = 1024;
    1 << 62 | field(EIGHT_ROWS) << 32 | field(box_bytes) << 16 | field(address.0)
}

impl Major for KMajor {
    const IS_TRANSPOSED: bool = false;
    // One step covers 32 bytes of a row.
    const STEP: u64 = 32 >> 4;

    #[cfg(target_arch = "nvptx64")]
    #[inline(always)]
    fn descriptor<T: KernelType, const ROWS: usize>(tile: SharedTile<T, ROWS>) -> u64 {
        // The instruction ignores the box stride.
        descriptor(tile.address, 16)
    }

    #[cfg(not(target_arch = "nvptx64"))]
    fn element<T: KernelType, const ROWS: usize>(tile: SharedTile<T, ROWS>, row: u32, k: u32) -> *const T {
        let byte = k * size_of::<T>() as u32;
        tile.chunk(row, byte / 16).add(byte % 16).0.cast_const().cast()
    }
}

impl Major for MnMajor {
    const IS_TRANSPOSED: bool = true;
    // One step covers 16 rows of a box.
    const STEP: u64 = (16 * 128) >> 4;

    #[cfg(target_arch = "nvptx64")]
    #[inline(always)]
    fn descriptor<T: KernelType, const ROWS: usize>(tile: SharedTile<T, ROWS>) -> u64 {
        descriptor(tile.address, SharedTile::<T, 64>::BYTES)
    }

    #[cfg(not(target_arch = "nvptx64"))]
    fn element<T: KernelType, const ROWS: usize>(tile: SharedTile<T, ROWS>, row: u32, k: u32) -> *const T {
        let of_box = SharedTile::<T, 64>::at(tile.address.add(row / 64 * SharedTile::<T, 64>::BYTES));
        KMajor::element(of_box, k, row % 64)
    }
}
