//! The items that most kernels use: `use gpu_std::prelude::*;`.

pub use crate::disjoint::{
    Chunks, DisjointMut, DisjointMut2, DisjointMut3, Elements, Rows, Tiles, TransposedTiles,
};
pub use crate::scalar::{Float, Scalar};
pub use crate::shared::{DoubleBuffer, Padded, Shared};
pub use crate::tile::Tile;
pub use crate::view::{Slice2, Slice3};
pub use crate::warp::WarpValue;
pub use crate::{
    KernelType, Vector, address_space, bf16, block, cluster, f16, grid, kernel, printf, shared_array, thread,
    warp,
};
