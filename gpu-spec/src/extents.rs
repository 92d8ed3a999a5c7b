//! Extents of 2-D and 3-D views, as a launch passes them, and the launch-shape requirements of a kernel's views.

/// Maximum number of elements along a side of a view: 2^31 - 1. A 32-bit index, signed or unsigned, is then out of
/// range exactly if it is negative or too large.
pub const MAX_SIDE: usize = i32::MAX as usize;

/// Width, height and row pitch of a view, in elements: element `[row, column]` is at offset `row * pitch + column`.
///
/// The width is at most the pitch, and all are at most [`MAX_SIDE`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Extents2 {
    width: u32,
    height: u32,
    pitch: u32,
}

impl Extents2 {
    /// Extents without elements.
    pub const EMPTY: Self = Self { width: 0, height: 0, pitch: 0 };

    /// Makes extents; `None` if a side exceeds [`MAX_SIDE`] or the pitch is below the width.
    pub const fn new(width: usize, height: usize, pitch: usize) -> Option<Self> {
        if width > pitch || pitch > MAX_SIDE || height > MAX_SIDE {
            return None;
        }
        Some(Self { width: width as u32, height: height as u32, pitch: pitch as u32 })
    }

    /// Number of elements per row.
    #[inline(always)]
    pub const fn width(self) -> u32 {
        self.width
    }

    /// Number of rows.
    #[inline(always)]
    pub const fn height(self) -> u32 {
        self.height
    }

    /// Distance between the starts of adjacent rows, in elements.
    #[inline(always)]
    pub const fn pitch(self) -> u32 {
        self.pitch
    }

    /// Returns true if there are no elements.
    #[inline(always)]
    pub const fn is_empty(self) -> bool {
        self.width == 0 || self.height == 0
    }

    /// Number of elements from the first to the last, including the padding between rows.
    pub const fn span(self) -> usize {
        if self.is_empty() { 0 } else { self.offset([self.height - 1, self.width - 1]) + 1 }
    }

    /// Returns the offset of element `[row, column]`, in elements.
    #[inline(always)]
    pub const fn offset(self, [row, column]: [u32; 2]) -> usize {
        row as usize * self.pitch as usize + column as usize
    }
}

/// Width, height, depth, row pitch (in elements) and plane pitch (in rows) of a view: element `[plane, row, column]` is
/// at offset `(plane * rows + row) * pitch + column`.
///
/// The width is at most the pitch, the height at most the rows, all are at most [`MAX_SIDE`], and `depth * rows` is
/// below 2^32.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Extents3 {
    width: u32,
    height: u32,
    depth: u32,
    pitch: u32,
    rows: u32,
}

impl Extents3 {
    /// Extents without elements.
    pub const EMPTY: Self = Self { width: 0, height: 0, depth: 0, pitch: 0, rows: 0 };

    /// Makes extents; `None` if they violate the conditions of this type.
    pub const fn new([width, height, depth]: [usize; 3], pitch: usize, rows: usize) -> Option<Self> {
        if width > pitch || pitch > MAX_SIDE || height > rows || rows > MAX_SIDE || depth > MAX_SIDE {
            return None;
        }
        if depth as u64 * rows as u64 > u32::MAX as u64 {
            return None;
        }
        let (width, height, depth) = (width as u32, height as u32, depth as u32);
        Some(Self { width, height, depth, pitch: pitch as u32, rows: rows as u32 })
    }

    /// Number of elements per row.
    #[inline(always)]
    pub const fn width(self) -> u32 {
        self.width
    }

    /// Number of rows per plane.
    #[inline(always)]
    pub const fn height(self) -> u32 {
        self.height
    }

    /// Number of planes.
    #[inline(always)]
    pub const fn depth(self) -> u32 {
        self.depth
    }

    /// Distance between the starts of adjacent rows, in elements.
    #[inline(always)]
    pub const fn pitch(self) -> u32 {
        self.pitch
    }

    /// Distance between the starts of adjacent planes, in rows.
    #[inline(always)]
    pub const fn rows(self) -> u32 {
        self.rows
    }

    /// Returns true if there are no elements.
    #[inline(always)]
    pub const fn is_empty(self) -> bool {
        self.width == 0 || self.height == 0 || self.depth == 0
    }

    /// Number of elements from the first to the last, including the padding between rows and planes.
    pub const fn span(self) -> usize {
        if self.is_empty() { 0 } else { self.offset([self.depth - 1, self.height - 1, self.width - 1]) + 1 }
    }

    /// Returns the extents of a plane.
    #[inline(always)]
    pub const fn plane(self) -> Extents2 {
        Extents2 { width: self.width, height: self.height, pitch: self.pitch }
    }

    /// Returns the offset of element `[plane, row, column]`, in elements.
    #[inline(always)]
    pub const fn offset(self, [plane, row, column]: [u32; 3]) -> usize {
        let row = plane.wrapping_mul(self.rows).wrapping_add(row);
        row as usize * self.pitch as usize + column as usize
    }
}

/// Launch-shape requirement of a kernel's mutable views, under which a thread's index is unique and has its documented
/// meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claims {
    /// No requirement: a launch may have any shape.
    Any,
    /// One dimension: a thread's elements follow from its linear index.
    Linear,
    /// At most two dimensions: a thread's elements follow from its x and y.
    Plane,
    /// At most three dimensions: a thread's elements follow from its x, y and z.
    Volume,
}

impl Claims {
    /// Combines the requirements of two views of one kernel. A 2-D or 3-D view determines the shape; a 1-D view of the
    /// same kernel then uses linear thread indices, block after block.
    pub const fn and(self, other: Self) -> Self {
        use Claims::{Any, Linear, Plane, Volume};
        match (self, other) {
            (Plane, _) | (_, Plane) => Plane,
            (Volume, _) | (_, Volume) => Volume,
            (Linear, _) | (_, Linear) => Linear,
            (Any, Any) => Any,
        }
    }

    /// Combines the requirements of all views of a kernel.
    pub const fn all(views: &[Self]) -> Self {
        let mut claims = Claims::Any;
        let mut i = 0;
        while i < views.len() {
            claims = claims.and(views[i]);
            i += 1;
        }
        claims
    }

    /// Maximum number of dimensions of a launch.
    pub const fn dimensions(self) -> usize {
        match self {
            Claims::Linear => 1,
            Claims::Plane => 2,
            Claims::Any | Claims::Volume => 3,
        }
    }

    /// Returns whether a launch may have this grid and block: it does not have too many dimensions, and no thread index
    /// in a 2-D or 3-D view exceeds 32 bits.
    #[inline]
    pub const fn allow(self, grid: [u32; 3], block: [u32; 3]) -> bool {
        let [is_line, is_plane] = [(grid[1] | block[1] | grid[2] | block[2]) == 1, (grid[2] | block[2]) == 1];
        match self {
            Claims::Any => true,
            Claims::Linear => is_line,
            Claims::Plane => is_plane && Self::is_counted(grid, block),
            Claims::Volume => Self::is_counted(grid, block),
        }
    }

    const fn is_counted(grid: [u32; 3], block: [u32; 3]) -> bool {
        let mut axis = 0;
        while axis < 3 {
            if grid[axis] as u64 * block[axis] as u64 > 1 << 32 {
                return false;
            }
            axis += 1;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_have_places_and_a_span() {
        let plane = Extents2::new(5, 3, 8).unwrap();
        assert_eq!((plane.width(), plane.height(), plane.pitch()), (5, 3, 8));
        assert_eq!((plane.offset([2, 4]), plane.span()), (20, 21));
        assert_eq!(Extents2::new(0, 3, 8).unwrap().span(), 0);
        let volume = Extents3::new([5, 3, 2], 8, 4).unwrap();
        assert_eq!((volume.offset([1, 2, 4]), volume.span()), (52, 53));
        assert_eq!(Extents3::new([5, 0, 2], 8, 4).unwrap().span(), 0);
        let large = Extents2::new(MAX_SIDE, MAX_SIDE, MAX_SIDE).unwrap();
        assert_eq!(large.span(), MAX_SIDE * MAX_SIDE);
    }

    #[test]
    fn impossible_extents_are_refused() {
        assert_eq!(Extents2::new(9, 3, 8), None);
        assert_eq!(Extents2::new(1, 1, MAX_SIDE + 1), None);
        assert_eq!(Extents2::new(1, MAX_SIDE + 1, 1), None);
        assert_eq!(Extents3::new([1, 5, 1], 1, 4), None);
        assert_eq!(Extents3::new([1, 1, 3], 1, MAX_SIDE), None);
        assert!(Extents3::new([1, 1, 2], 1, MAX_SIDE).is_some());
    }

    #[test]
    fn claims_allow_their_shapes() {
        let one = [1; 3];
        for claims in [Claims::Any, Claims::Linear, Claims::Plane, Claims::Volume] {
            assert!(claims.allow([u32::MAX, 1, 1], one));
            assert_eq!(claims.allow([2, 3, 1], [4, 5, 1]), claims != Claims::Linear);
            assert_eq!(claims.allow(one, [1, 1, 2]), claims.dimensions() == 3);
            assert_eq!(claims.allow([1, 1, 2], one), claims.dimensions() == 3);
            assert!(claims.allow([1 << 22, 1, 1], [1 << 10, 1, 1]));
            let counts = !matches!(claims, Claims::Plane | Claims::Volume);
            assert_eq!(claims.allow([(1 << 22) + 1, 1, 1], [1 << 10, 1, 1]), counts);
        }
        assert_eq!(Claims::all(&[Claims::Linear, Claims::Volume, Claims::Any]), Claims::Volume);
        assert_eq!(Claims::all(&[Claims::Volume, Claims::Plane]), Claims::Plane);
        assert_eq!(Claims::all(&[]), Claims::Any);
    }
}
