//! [`Heads`] and [`HeadsMut`]: 3-D views interpreted as attention heads.

use warpsmith_runtime::{DeviceCopy, DeviceSlice, DeviceSlice3, DeviceSliceMut, DeviceSliceMut3, Result};

use crate::error::TensorError;

/// Sizes and strides of heads in memory, in elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Extents {
    /// Elements per row.
    pub dim: usize,
    /// Rows per head: the tokens of a sequence.
    pub rows: usize,
    /// Heads per plane.
    pub heads: usize,
    /// Number of planes: sequences.
    pub planes: usize,
    /// Stride between the rows of a head.
    pub row: usize,
    /// Stride between heads.
    pub head: usize,
    /// Stride between planes.
    pub plane: usize,
}

impl Extents {
    /// Returns whether the rows of a head are stored consecutively.
    pub fn is_by_head(&self) -> bool {
        self.row <= self.head
    }
}

/// Read-only attention heads: `sequences x heads x rows` of `dim` elements, in one of two layouts.
///
/// ```
/// # fn main() -> Result<(), warpsmith_runtime::Error> {
/// use warpsmith_runtime::{Device, DeviceBuffer};
/// use warpsmith_tensor::Heads;
///
/// let stream = Device::emulated(0)?.default_stream();
/// let buffer = DeviceBuffer::<f32>::zeros(&stream, 2 * 10 * 4 * 64)?;
/// // 20 tokens of 4 heads of 64 elements, of two sequences.
/// let heads = Heads::by_token(buffer.as_3d(64, 4, 20)?, 2)?;
/// assert_eq!((heads.sequences(), heads.heads(), heads.rows(), heads.dim()), (2, 4, 10, 64));
/// // The same sizes, head by head: 8 heads of 10 rows.
/// let heads = Heads::by_head(buffer.as_3d(64, 10, 8)?, 2)?;
/// assert_eq!((heads.sequences(), heads.heads(), heads.rows(), heads.dim()), (2, 4, 10, 64));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Heads<'a, T: DeviceCopy> {
    pub(crate) elements: DeviceSlice<'a, T>,
    pub(crate) extents: Extents,
}

/// Writable attention heads.
#[derive(Debug)]
pub struct HeadsMut<'a, T: DeviceCopy> {
    pub(crate) elements: DeviceSliceMut<'a, T>,
    pub(crate) extents: Extents,
}

/// Sizes and strides of a view: width, height, depth, row stride and plane stride.
struct View {
    sides: [usize; 3],
    pitch: usize,
    plane: usize,
}

impl View {
    fn by_token(self, sequences: usize) -> Result<Extents> {
        let [dim, heads, tokens] = self.sides;
        let rows = divided(tokens, sequences, "tokens")?;
        let plane = rows * self.plane;
        Ok(Extents { dim, rows, heads, planes: sequences, row: self.plane, head: self.pitch, plane })
    }

    fn by_head(self, sequences: usize) -> Result<Extents> {
        let [dim, rows, all_heads] = self.sides;
        let heads = divided(all_heads, sequences, "heads")?;
        let plane = heads * self.plane;
        Ok(Extents { dim, rows, heads, planes: sequences, row: self.pitch, head: self.plane, plane })
    }
}

fn divided(count: usize, sequences: usize, of: &str) -> Result<usize> {
    if sequences == 0 || !count.is_multiple_of(sequences) {
        let what = format!("{count} {of} are no whole number for each of {sequences} sequences");
        return Err(TensorError::Heads { operation: "attention", what }.into());
    }
    Ok(count / sequences)
}

macro_rules! sizes {
    ($($name:ident),*) => { $(
        impl<T: DeviceCopy> $name<'_, T> {
            /// Elements per row.
            pub fn dim(&self) -> usize {
                self.extents.dim
            }

            /// Rows per head: the tokens of a sequence.
            pub fn rows(&self) -> usize {
                self.extents.rows
            }

            /// Heads per sequence.
            pub fn heads(&self) -> usize {
                self.extents.heads
            }

            /// Number of sequences, which have equal lengths.
            pub fn sequences(&self) -> usize {
                self.extents.planes
            }
        }
    )* };
}
sizes!(Heads, HeadsMut);

macro_rules! from_views {
    ($($name:ident, $view:ident: $elements:ident;)*) => { $(
        impl<'a, T: DeviceCopy> $name<'a, T> {
            /// Layout `[sequence, token, head, element]`: tokens are stored consecutively, each with one row per head.
            /// The view has `dim` columns, `heads` rows, and the tokens of all sequences as planes.
            ///
            /// # Errors
            /// [`TensorError::Heads`] if the number of tokens is not a multiple of the number of sequences.
            pub fn by_token(view: $view<'a, T>, sequences: usize) -> Result<Self> {
                let (pitch, plane) = (view.pitch(), view.pitch() * view.rows());
                let extents = View { sides: [view.width(), view.height(), view.depth()], pitch, plane };
                let extents = extents.by_token(sequences)?;
                Ok(Self { elements: view.$elements(), extents })
            }

            /// Layout `[sequence, head, token, element]`: heads are stored consecutively. The view has `dim` columns,
            /// the tokens of a sequence as rows, and the heads of all sequences as planes.
            ///
            /// # Errors
            /// [`TensorError::Heads`] if the number of planes is not a multiple of the number of sequences.
            pub fn by_head(view: $view<'a, T>, sequences: usize) -> Result<Self> {
                let (pitch, plane) = (view.pitch(), view.pitch() * view.rows());
                let extents = View { sides: [view.width(), view.height(), view.depth()], pitch, plane };
                let extents = extents.by_head(sequences)?;
                Ok(Self { elements: view.$elements(), extents })
            }
        }
    )* };
}

from_views! {
    Heads, DeviceSlice3: elements;
    HeadsMut, DeviceSliceMut3: into_elements;
}
