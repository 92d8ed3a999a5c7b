//! Size classes of page-locked memory, eight per power of two, so rounding up adds less than an eighth.
//!
//! Requests below 512 bytes, the smallest class, may waste more. All class sizes are multiples of 64 bytes.

/// Size of the smallest class, in bytes.
pub(super) const SMALLEST: usize = 512;
/// Page size in bytes, the smallest unit that the system locks.
pub(super) const PAGE: usize = 4096;
pub(super) const COUNT: usize = ((usize::BITS - SMALLEST.ilog2()) << DIVISIONS_LOG2) as usize;

/// Base-2 logarithm of the number of classes per power of two.
const DIVISIONS_LOG2: u32 = 3;

/// Returns the size of the smallest class that has at least `bytes` bytes; `bytes` must be at most [`isize::MAX`].
pub(super) fn round_up(bytes: usize) -> usize {
    if bytes <= SMALLEST {
        return SMALLEST;
    }
    let step = 1 << ((bytes - 1).ilog2() - DIVISIONS_LOG2);
    bytes.div_ceil(step) * step
}

/// Rounds `bytes` up to whole pages; `bytes` must be at most half of the address space.
pub(super) fn round_to_pages(bytes: usize) -> usize {
    bytes.div_ceil(PAGE) * PAGE
}

/// Returns the index of the largest class whose size is at most `bytes`, or of the smallest class if `bytes` is smaller
/// than every class.
pub(super) fn index(bytes: usize) -> usize {
    let bytes = bytes.max(SMALLEST);
    let doubling = bytes.ilog2();
    let division = (bytes >> (doubling - DIVISIONS_LOG2)) - (1 << DIVISIONS_LOG2);
    (((doubling - SMALLEST.ilog2()) << DIVISIONS_LOG2) as usize) + division
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_round_to_eight_classes_a_doubling() {
        let expected = [(1, 512), (512, 512), (513, 576), (576, 576), (577, 640), (1024, 1024), (1025, 1152)];
        for (bytes, rounded) in expected {
            assert_eq!(round_up(bytes), rounded, "{bytes}");
        }
        assert_eq!(round_up(40_000), 40_960);
        assert_eq!(round_up(isize::MAX as usize), 1 << (usize::BITS - 1));
    }

    #[test]
    fn every_size_between_is_wasted_by_less_than_an_eighth() {
        for bytes in SMALLEST..200_000 {
            let rounded = round_up(bytes);
            assert!(rounded >= bytes && (rounded - bytes) * 8 < bytes, "{bytes} became {rounded}");
            assert_eq!(round_up(rounded), rounded, "a class holds its own size");
        }
    }

    #[test]
    fn classes_are_numbered_without_gaps_and_in_order() {
        let mut bytes = SMALLEST;
        for class in 0..COUNT {
            assert_eq!(index(bytes), class, "{bytes}");
            if class + 1 == COUNT {
                break;
            }
            let next = round_up(bytes + 1);
            assert_eq!(index(next - 1), class, "what lies between belongs to the smaller class");
            bytes = next;
            if bytes > isize::MAX as usize {
                break;
            }
        }
        assert_eq!(index(0), 0);
        assert_eq!(index(usize::MAX), COUNT - 1);
    }
}
