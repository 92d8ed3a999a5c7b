//! The items that most kernels use: `use gpu_std::prelude::*;`.
//!
//! The prelude brings the methods of [`Math`](crate::math::Math) into scope, but not the trait's name. `x.sin()`
//! therefore compiles both in GPU code, where `core` has no such method, and on the host, where the standard library's
//! method takes precedence.

pub use crate::disjoint::{
    Chunks, DisjointMut, DisjointMut2, DisjointMut3, Elements, Rows, Tiles, TransposedTiles,
};
pub use crate::math::Math as _;
pub use crate::per_block::PerBlock;
pub use crate::per_tile::PerTile;
pub use crate::scalar::{Float, Integer, Number, Scalar};
pub use crate::shared::{DoubleBuffer, Padded, Shared};
pub use crate::tile::Tile;
pub use crate::view::{Slice2, Slice3};
pub use crate::{
    KernelType, KernelValue, SharedLen, Vector, address_space, bf16, block, cluster, elementwise, f16, grid,
    kernel, printf, reduction, scan, shared_array, thread, warp,
};
