//! Access size in bytes of compute-heavy kernels.

/// Bytes per access, at most `vector` and at most eight elements, each of which takes registers.
pub const fn access<T>(vector: usize) -> usize {
    if vector > 8 * size_of::<T>() { 8 * size_of::<T>() } else { vector }
}
