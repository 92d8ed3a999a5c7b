//! The extents of views in two and three dimensions, as a launch passes them, and what a kernel's views require of the
//! shape of a launch.

/// The most elements along a side of a view: 2^31 - 1. An index of 32 bits, signed or not, is then out of range
/// exactly when it is negative or too large.
pub const MAX_SIDE: usize = i32::MAX as usize;

/// Width, height and row pitch of a view, in elements: element `[row, column]` is `row * pitch + column` after the first.
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
    /// These extents; `None` when a side is over [`MAX_SIDE`] or the pitch below the width.
    pub const fn new(width: usize, height: usize, pitch: usize) -> Option<Self> {
        if width > pitch || pitch > MAX_SIDE || height > MAX_SIDE {
            return None;
        }
        Some(Self { width: width as u32, height: height as u32, pitch: pitch as u32 })
    }

    /// Elements of a row.
    #[inline(always)]
    pub const fn width(self) -> u32 {
        self.width
    }

    /// Rows.
    #[inline(always)]
    pub const fn height(self) -> u32 {
        self.height
    }

    /// Elements from the beginning of a row to that of the next.
    #[inline(always)]
    pub const fn pitch(self) -> u32 {
        self.pitch
    }

    /// Whether there are no elements.
    #[inline(always)]
    pub const fn is_empty(self) -> bool {
        self.width == 0 || self.height == 0
    }

    /// Elements from the first to the last, with those between rows.
    pub const fn span(self) -> usize {
        if self.is_empty() { 0 } else { self.offset([self.height - 1, self.width - 1]) + 1 }
    }

    /// The place of element `[row, column]`, from the first.
    #[inline(always)]
    pub const fn offset(self, [row, column]: [u32; 2]) -> usize {
        row as usize * self.pitch as usize + column as usize
    }
}

/// Width, height, depth, row pitch (elements) and rows from plane to plane of a view: element `[plane, row, column]` is
/// `(plane * rows + row) * pitch + column` after the first.
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
    /// These extents; `None` when they are not as the type says.
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

    /// Elements of a row.
    #[inline(always)]
    pub const fn width(self) -> u32 {
        self.width
    }

    /// Rows of a plane.
    #[inline(always)]
    pub const fn height(self) -> u32 {
        self.height
    }

    /// Planes.
    #[inline(always)]
    pub const fn depth(self) -> u32 {
        self.depth
    }

    /// Elements from the beginning of a row to that of the next.
    #[inline(always)]
    pub const fn pitch(self) -> u32 {
        self.pitch
    }

    /// Rows from the beginning of a plane to that of the next.
    #[inline(always)]
    pub const fn rows(self) -> u32 {
        self.rows
    }

    /// Whether there are no elements.
    #[inline(always)]
    pub const fn is_empty(self) -> bool {
        self.width == 0 || self.height == 0 || self.depth == 0
    }

    /// Elements from the first to the last, with those between rows and planes.
    pub const fn span(self) -> usize {
        if self.is_empty() { 0 } else { self.offset([self.depth - 1, self.height - 1, self.width - 1]) + 1 }
    }

    /// The extents of a plane.
    #[inline(always)]
    pub const fn plane(self) -> Extents2 {
        Extents2 { width: self.width, height: self.height, pitch: self.pitch }
    }

    /// The place of element `[plane, row, column]`, from the first.
    #[inline(always)]
    pub const fn offset(self, [plane, row, column]: [u32; 3]) -> usize {
        let row = plane.wrapping_mul(self.rows).wrapping_add(row);
        row as usize * self.pitch as usize + column as usize
    }
}

/// What a kernel's mutable views require of the shape of a launch, so that a thread's index is its own and means what it
/// says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claims {
    /// Nothing: a launch may have any shape.
    Any,
    /// One dimension: threads have elements by their number in a line.
    Linear,
    /// At most two dimensions: threads have elements by their x and y.
    Plane,
    /// At most three: threads have elements by their x, y and z.
    Volume,
}

impl Claims {
    /// The requirement of a kernel with views of both requirements. A view in two or three dimensions fixes the shape;
    /// one in a line beside it takes threads by their number, block after block.
    pub const fn and(self, other: Self) -> Self {
        use Claims::{Any, Linear, Plane, Volume};
        match (self, other) {
            (Plane, _) | (_, Plane) => Plane,
            (Volume, _) | (_, Volume) => Volume,
            (Linear, _) | (_, Linear) => Linear,
            (Any, Any) => Any,
        }
    }

    /// The requirement of a kernel with views of all these requirements.
    pub const fn all(views: &[Self]) -> Self {
        let mut claims = Claims::Any;
        let mut i = 0;
        while i < views.len() {
            claims = claims.and(views[i]);
            i += 1;
        }
        claims
    }

    /// The most dimensions that a launch may have.
    pub const fn dimensions(self) -> usize {
        match self {
            Claims::Linear => 1,
            Claims::Plane => 2,
            Claims::Any | Claims::Volume => 3,
        }
    }

    /// Whether a launch may have this grid and block: it has not too many dimensions, and no index of a thread in a view
    /// of two or three dimensions is over 32 bits.
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
