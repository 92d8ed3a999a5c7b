//! [`Heads`] and [`HeadsMut`]: views of planes of rows as heads of attention.

use warpsmith_runtime::{DeviceCopy, DeviceSlice, DeviceSlice3, DeviceSliceMut, DeviceSliceMut3, Result};

use crate::error::TensorError;

/// How heads lie in memory. All figures are in elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Extents {
    /// Elements of a row.
    pub dim: usize,
    /// Rows of a head: the tokens of a sequence.
    pub rows: usize,
    /// Heads of a plane.
    pub heads: usize,
    /// Planes: sequences.
    pub planes: usize,
    /// From one row of a head to the next.
    pub row: usize,
    /// From one head to the next.
    pub head: usize,
    /// From one plane to the next.
    pub plane: usize,
}

impl Extents {
    /// Whether the rows of a head lie one after the other.
    pub fn is_by_head(&self) -> bool {
        self.row <= self.head
    }
}

/// Heads of attention, to read: `sequences x heads x rows` of `dim` elements, in one of two layouts.
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

/// Heads of attention, to write.
#[derive(Debug)]
pub struct HeadsMut<'a, T: DeviceCopy> {
    pub(crate) elements: DeviceSliceMut<'a, T>,
    pub(crate) extents: Extents,
}

/// The sides of a view: width, height, depth, and from one row and plane to the next.
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
            /// Elements of a row.
            pub fn dim(&self) -> usize {
                self.extents.dim
            }

            /// Rows of a head: the tokens of a sequence.
            pub fn rows(&self) -> usize {
                self.extents.rows
            }

            /// Heads.
            pub fn heads(&self) -> usize {
                self.extents.heads
            }

            /// Sequences of equal lengths.
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
            /// Tokens one after the other, each a row of every head: the layout `[sequence, token, head, element]`. The view has
            /// `dim` columns, `heads` rows, and the tokens of all sequences as planes.
            ///
            /// # Errors
            /// [`TensorError::Heads`] if the tokens are not a multiple of the sequences.
            pub fn by_token(view: $view<'a, T>, sequences: usize) -> Result<Self> {
                let (pitch, plane) = (view.pitch(), view.pitch() * view.rows());
                let extents = View { sides: [view.width(), view.height(), view.depth()], pitch, plane };
                let extents = extents.by_token(sequences)?;
                Ok(Self { elements: view.$elements(), extents })
            }

            /// Heads one after the other: the layout `[sequence, head, token, element]`. The view has `dim` columns, the tokens of
            /// a sequence as rows, and the heads of all sequences as planes.
            ///
            /// # Errors
            /// [`TensorError::Heads`] if the planes are not a multiple of the sequences.
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
