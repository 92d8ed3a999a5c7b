//! Sizes: the rounding of a request, the pool that serves it, and the size of a new segment.
//!
//! The constants and rules match PyTorch's `c10/cuda/CUDACachingAllocator`, so experience with it applies. All sizes
//! are in bytes.

/// Minimum block size and alignment. Every block size is a multiple of this value.
pub(crate) const MIN_BLOCK: u64 = 512;
/// Largest block of the small pool, after rounding.
pub(crate) const SMALL_SIZE: u64 = 1 << 20;
/// Segment size of the small pool.
pub(crate) const SMALL_SEGMENT: u64 = 2 << 20;
/// Minimum size of a request that gets its own segment; smaller requests of the large pool share segments of
/// `large_segment_size`.
pub(crate) const LARGE_ALONE: u64 = 10 << 20;
/// Granularity of segments for a single request.
pub(crate) const LARGE_ROUNDING: u64 = 2 << 20;
pub(crate) const MAX_REQUEST: u64 = 1 << 60;

/// The kind of a block, which determines the free index in which it is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// Blocks of up to 1 MiB.
    Small = 0,
    /// Larger blocks.
    Large = 1,
}

impl Kind {
    pub(crate) fn of(size: u64) -> Self {
        if size <= SMALL_SIZE { Kind::Small } else { Kind::Large }
    }
}

/// Rounds a request of 1 to [`MAX_REQUEST`] bytes to the size of its block.
///
/// Entry `i` of `divisions` is the number of steps into which sizes from 2^i MiB to 2^(i+1) MiB are divided. Sizes are
/// rounded up to these steps; 0 and 1 disable this rounding.
pub(crate) fn round(bytes: u64, divisions: &[u32; 16]) -> u64 {
    if bytes < MIN_BLOCK {
        return MIN_BLOCK;
    }
    let interval = bytes.ilog2().saturating_sub(20).min(15);
    let divisions = u64::from(divisions[interval as usize]);
    if divisions > 1 && bytes > MIN_BLOCK * divisions {
        return round_to_division(bytes, divisions);
    }
    bytes.next_multiple_of(MIN_BLOCK)
}

fn round_to_division(bytes: u64, divisions: u64) -> u64 {
    if bytes.is_power_of_two() {
        return bytes;
    }
    let floor = 1 << bytes.ilog2();
    match floor / divisions {
        0 => floor << 1,
        step => bytes.next_multiple_of(step),
    }
}

/// Returns the number of bytes to request from the driver for a block of `size` bytes.
pub(crate) fn segment_size(size: u64, large_segment: u64) -> u64 {
    if size <= SMALL_SIZE {
        SMALL_SEGMENT
    } else if size < LARGE_ALONE {
        large_segment.max(size.next_multiple_of(LARGE_ROUNDING))
    } else {
        size.next_multiple_of(LARGE_ROUNDING)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: [u32; 16] = [0; 16];
    const LARGE_SEGMENT: u64 = 20 << 20;

    #[test]
    fn sizes_are_multiples_of_512() {
        let rounded = [1, 511, 512, 513, 1024, 1 << 20, (1 << 20) + 1].map(|bytes| round(bytes, &NONE));
        assert_eq!(rounded, [512, 512, 512, 1024, 1024, 1 << 20, (1 << 20) + 512]);
    }

    #[test]
    fn one_mebibyte_is_small_and_a_byte_more_is_large() {
        assert_eq!(Kind::of(round(1 << 20, &NONE)), Kind::Small);
        assert_eq!(Kind::of(round((1 << 20) + 1, &NONE)), Kind::Large);
    }

    #[test]
    fn divisions_split_each_doubling() {
        let four = [4; 16];
        assert_eq!(round(1200 << 20, &four), 1280 << 20);
        assert_eq!(round(1024 << 20, &four), 1024 << 20);
        assert_eq!(round(1025 << 20, &four), 1280 << 20);
        assert_eq!(round(2000, &four), 2048, "up to 512 a division the plain rule holds");
        let mut above = NONE;
        above[15] = 2;
        assert_eq!(round((40 << 30) + 1, &above), 48 << 30);
        assert_eq!(round((31 << 30) + 1, &above), (31 << 30) + 512);
    }

    #[test]
    fn segments_are_small_or_shared_or_alone() {
        let sizes = [512, 1 << 20, (1 << 20) + 512, (10 << 20) - 512, 10 << 20, (10 << 20) + 512];
        let segments = sizes.map(|size| segment_size(size, LARGE_SEGMENT) >> 20);
        assert_eq!(segments, [2, 2, 20, 20, 10, 12]);
        assert_eq!(segment_size(9 << 20, 4 << 20) >> 20, 10, "a segment holds at least its request");
    }
}
