//! Access size, in bytes, for compute-heavy kernels.

/// Returns the number of bytes per access: at most `vector` bytes and at most eight elements, because each element
/// occupies registers.
pub const fn access<T>(vector: usize) -> usize {
    if vector > 8 * size_of::<T>() { 8 * size_of::<T>() } else { vector }
}
