//! Access size, in bytes, for compute-heavy kernels.

/// Returns the number of bytes per access. It is limited to `vector` bytes and to eight elements, because each element
/// occupies registers.
pub const fn access<T>(vector: usize) -> usize {
    if vector > 8 * size_of::<T>() { 8 * size_of::<T>() } else { vector }
}
