//! Extents of 2-D and 3-D views, as a launch passes them, and the launch shapes that a kernel's views require.

/// Maximum extent of a view, in elements: 2^31 - 1. With this limit, a 32-bit index, signed or unsigned, is out of
/// range if and only if it is negative or too large.
pub const MAX_SIDE: usize = i32::MAX as usize;

/// The number of rows, the number of columns and the row stride of a 2-D view, in elements. Element `[row, column]` is
/// at offset `row * row_stride + column`.
///
/// The number of columns is at most the row stride, and all three are at most [`MAX_SIDE`].
///
/// ```
/// use gpu_spec::Extents2;
///
/// let extents = Extents2::new(3, 4, 10).expect("the stride is at least the number of columns");
/// assert_eq!((extents.offset([2, 3]), extents.span()), (23, 24));
/// assert_eq!(Extents2::new(3, 4, 2), None);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Extents2 {
    rows: u32,
    columns: u32,
    row_stride: u32,
}

impl Extents2 {
    /// Extents without elements.
    pub const EMPTY: Self = Self { rows: 0, columns: 0, row_stride: 0 };

    /// Creates extents. Returns `None` if an extent exceeds [`MAX_SIDE`] or the row stride is less than the number of
    /// columns.
    pub const fn new(rows: usize, columns: usize, row_stride: usize) -> Option<Self> {
        if columns > row_stride || row_stride > MAX_SIDE || rows > MAX_SIDE {
            return None;
        }
        Some(Self { rows: rows as u32, columns: columns as u32, row_stride: row_stride as u32 })
    }

    /// Returns the number of rows.
    #[inline(always)]
    pub const fn rows(self) -> u32 {
        self.rows
    }

    /// Returns the number of elements per row.
    #[inline(always)]
    pub const fn columns(self) -> u32 {
        self.columns
    }

    /// Returns the row stride, in elements.
    #[inline(always)]
    pub const fn row_stride(self) -> u32 {
        self.row_stride
    }

    /// Returns true if there are no elements.
    #[inline(always)]
    pub const fn is_empty(self) -> bool {
        self.columns == 0 || self.rows == 0
    }

    /// Returns the number of elements from the first to the last element, including the padding between rows.
    pub const fn span(self) -> usize {
        if self.is_empty() { 0 } else { self.offset([self.rows - 1, self.columns - 1]) + 1 }
    }

    /// Returns the offset of element `[row, column]`, in elements.
    #[inline(always)]
    pub const fn offset(self, [row, column]: [u32; 2]) -> usize {
        row as usize * self.row_stride as usize + column as usize
    }
}

/// The planes, rows, columns, plane stride and row stride of a 3-D view, in elements. Element `[plane, row, column]` is
/// at offset `plane * plane_stride + row * row_stride + column`.
///
/// The number of columns is at most the row stride. The plane stride is a multiple of the row stride and at least
/// `rows * row_stride`. All extents, and the plane stride measured in rows, are at most [`MAX_SIDE`]. The product of
/// the plane stride in rows and the number of planes is less than 2^32.
///
/// ```
/// use gpu_spec::Extents3;
///
/// // Two planes of 3 x 4 elements, in rows of 10 and planes of 30.
/// let extents = Extents3::new([2, 3, 4], [30, 10]).expect("the strides are at least the sides");
/// assert_eq!((extents.offset([1, 2, 3]), extents.span()), (53, 54));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Extents3 {
    planes: u32,
    rows: u32,
    columns: u32,
    /// The plane stride measured in rows. With this unit, the offset of a row can be computed in 32 bits.
    plane_rows: u32,
    row_stride: u32,
}

impl Extents3 {
    /// Extents without elements.
    pub const EMPTY: Self = Self { planes: 0, rows: 0, columns: 0, plane_rows: 0, row_stride: 0 };

    /// Creates extents. Returns `None` if they violate the conditions of this type.
    pub const fn new(
        [planes, rows, columns]: [usize; 3],
        [plane_stride, row_stride]: [usize; 2],
    ) -> Option<Self> {
        // If rows have no elements, their stride may be 0, in which case the plane stride is also 0.
        let plane_rows = match plane_stride.checked_div(row_stride) {
            Some(plane_rows) if plane_rows * row_stride == plane_stride => plane_rows,
            None if plane_stride == 0 => rows,
            _ => return None,
        };
        if columns > row_stride || row_stride > MAX_SIDE || rows > plane_rows || plane_rows > MAX_SIDE {
            return None;
        }
        if planes > MAX_SIDE || planes as u64 * plane_rows as u64 > u32::MAX as u64 {
            return None;
        }
        let (planes, rows, columns) = (planes as u32, rows as u32, columns as u32);
        Some(Self { planes, rows, columns, plane_rows: plane_rows as u32, row_stride: row_stride as u32 })
    }

    /// Returns the number of planes.
    #[inline(always)]
    pub const fn planes(self) -> u32 {
        self.planes
    }

    /// Returns the number of rows per plane.
    #[inline(always)]
    pub const fn rows(self) -> u32 {
        self.rows
    }

    /// Returns the number of elements per row.
    #[inline(always)]
    pub const fn columns(self) -> u32 {
        self.columns
    }

    /// Returns the plane stride, in elements.
    #[inline(always)]
    pub const fn plane_stride(self) -> u64 {
        self.plane_rows as u64 * self.row_stride as u64
    }

    /// Returns the row stride, in elements.
    #[inline(always)]
    pub const fn row_stride(self) -> u32 {
        self.row_stride
    }

    /// Returns true if there are no elements.
    #[inline(always)]
    pub const fn is_empty(self) -> bool {
        self.columns == 0 || self.rows == 0 || self.planes == 0
    }

    /// Returns the number of elements from the first to the last element, including the padding between rows and
    /// planes.
    pub const fn span(self) -> usize {
        if self.is_empty() { 0 } else { self.offset([self.planes - 1, self.rows - 1, self.columns - 1]) + 1 }
    }

    /// Returns the extents of one plane.
    #[inline(always)]
    pub const fn plane(self) -> Extents2 {
        Extents2 { rows: self.rows, columns: self.columns, row_stride: self.row_stride }
    }

    /// Returns the offset of element `[plane, row, column]`, in elements.
    #[inline(always)]
    pub const fn offset(self, [plane, row, column]: [u32; 3]) -> usize {
        let row = plane.wrapping_mul(self.plane_rows).wrapping_add(row);
        row as usize * self.row_stride as usize + column as usize
    }
}

/// Launch shapes that a kernel's mutable views require, so that each thread's index is unique and has its documented
/// meaning.
///
/// ```
/// use gpu_spec::Claims;
///
/// // A kernel with a 1-D and a 2-D view can be launched in two dimensions.
/// assert_eq!(Claims::Linear.and(Claims::Plane), Claims::Plane);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claims {
    /// No requirement. The launch can have any shape.
    Any,
    /// One dimension: the linear index determines a thread's elements.
    Linear,
    /// At most two dimensions: x and y determine a thread's elements.
    Plane,
    /// At most three dimensions: x, y and z determine a thread's elements.
    Volume,
}

impl Claims {
    /// Combines the requirements of two views of the same kernel. A 2-D or 3-D view determines the launch shape. A 1-D
    /// view of the same kernel then uses linear thread indices, which count block by block.
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

    /// Returns the maximum number of dimensions that a launch can have.
    pub const fn dimensions(self) -> usize {
        match self {
            Claims::Linear => 1,
            Claims::Plane => 2,
            Claims::Any | Claims::Volume => 3,
        }
    }

    /// Returns whether a launch can have this grid and block size. The launch must not have too many dimensions. With a
    /// 2-D or 3-D view, no thread index may exceed 32 bits.
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
        let plane = Extents2::new(3, 5, 8).unwrap();
        assert_eq!((plane.rows(), plane.columns(), plane.row_stride()), (3, 5, 8));
        assert_eq!((plane.offset([2, 4]), plane.span()), (20, 21));
        assert_eq!(Extents2::new(3, 0, 8).unwrap().span(), 0);
        let volume = Extents3::new([2, 3, 5], [32, 8]).unwrap();
        assert_eq!((volume.planes(), volume.plane_stride(), volume.plane()), (2, 32, plane));
        assert_eq!((volume.offset([1, 2, 4]), volume.span()), (52, 53));
        assert_eq!(Extents3::new([2, 0, 5], [32, 8]).unwrap().span(), 0);
        assert_eq!(Extents3::new([2, 3, 0], [0, 0]).unwrap().plane_stride(), 0);
        let large = Extents2::new(MAX_SIDE, MAX_SIDE, MAX_SIDE).unwrap();
        assert_eq!(large.span(), MAX_SIDE * MAX_SIDE);
    }

    #[test]
    fn impossible_extents_are_refused() {
        assert_eq!(Extents2::new(3, 9, 8), None);
        assert_eq!(Extents2::new(1, 1, MAX_SIDE + 1), None);
        assert_eq!(Extents2::new(MAX_SIDE + 1, 1, 1), None);
        assert_eq!(Extents3::new([1, 5, 1], [4, 1]), None);
        assert_eq!(Extents3::new([1, 3, 1], [7, 2]), None);
        assert_eq!(Extents3::new([1, 3, 0], [4, 0]), None);
        assert_eq!(Extents3::new([3, 1, 1], [MAX_SIDE, 1]), None);
        assert!(Extents3::new([2, 1, 1], [MAX_SIDE, 1]).is_some());
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
