//! [`New`]: the new tokens, whose keys and values are appended to the cache.

use gpu_std::prelude::*;

use super::{DecodeShape, Unit};
use crate::sequences::HeadStrides;

/// Sizes and strides of new tokens.
#[derive(Debug, Clone, Copy, KernelValue)]
#[repr(C)]
pub struct NewShape {
    /// 1 if elements 2i and 2i + 1 of a head form a pair, or 0 if elements i and i + dim / 2 do.
    pub is_interleaved: u32,
    /// Number of rows of `cos` and `sin`.
    pub positions: u32,
    /// Number that is added to the mean square of a head.
    pub epsilon: f32,
    /// Row strides of `cos` and `sin`.
    pub angles: [u64; 2],
    /// Strides of the new keys and values.
    pub tokens: [HeadStrides; 2],
}

impl NewShape {
    /// Sizes for a launch without new tokens.
    pub const NONE: Self = {
        let none = HeadStrides { row: 0, head: 0, plane: 0 };
        Self { is_interleaved: 0, positions: 0, epsilon: 0.0, angles: [0; 2], tokens: [none; 2] }
    };
}

/// Operands of new tokens.
#[derive(Clone, Copy)]
pub(super) struct New<'a, T, C> {
    /// New keys and values.
    tokens: [&'a [T]; 2],
    /// Caches of k and v.
    cache: [*mut C; 2],
    /// Cosines and sines.
    pub(super) angles: [&'a [f32]; 2],
    /// Norm weights of the heads of q and k.
    pub(super) norms: [Option<&'a [T]>; 2],
}

impl<'a, T, C> New<'a, T, C> {
    /// Returns the operands of new tokens, if there are any, and the addresses of k and v.
    #[inline(always)]
    pub(super) fn of(
        tokens: [Option<&'a [T]>; 2],
        cache: [Option<DisjointMut<C>>; 2],
        keys: [Option<&'a [C]>; 2],
        angles: [Option<&'a [f32]>; 2],
        norms: [Option<&'a [T]>; 2],
    ) -> (Option<Self>, [*const C; 2]) {
        if let ([Some(k), Some(v)], [Some(mut cache_k), Some(mut cache_v)], [Some(cos), Some(sin)]) =
            (tokens, cache, angles)
        {
            let cache = [cache_k.as_mut_ptr(), cache_v.as_mut_ptr()];
            let new = Self { tokens: [k, v], cache, angles: [cos, sin], norms };
            return (Some(new), cache.map(<*mut C>::cast_const));
        }
        (None, keys.map(|keys| keys.map_or(core::ptr::null(), <[C]>::as_ptr)))
    }
}

impl<T, C> New<'_, T, C> {
    /// Returns the address of the new key of a unit's head (part 0) or of the new value (part 1).
    #[inline(always)]
    pub(super) fn row(&self, shape: &NewShape, part: u32, unit: Unit) -> *const T {
        let (elements, strides) =
            if part == 0 { (self.tokens[0], shape.tokens[0]) } else { (self.tokens[1], shape.tokens[1]) };
        elements.as_ptr().wrapping_add(strides.at(unit.sequence, unit.kv_head, 0) as usize)
    }

    /// Returns the address of a row of the cache of k (part 0) or of v (part 1).
    #[inline(always)]
    pub(super) fn cached(&self, shape: &DecodeShape, part: u32, [plane, head, row]: [u32; 3]) -> *mut C {
        let (elements, strides) = if part == 0 { (self.cache[0], shape.k) } else { (self.cache[1], shape.v) };
        elements.wrapping_add(strides.at(plane, head, row) as usize)
    }
}
