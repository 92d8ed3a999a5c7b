//! [`Heads`] and [`HeadsMut`]: 3-D views interpreted as attention heads.

use warpsmith_runtime::{
    DeviceCopy, DeviceSlice, DeviceSlice2, DeviceSlice3, DeviceSliceMut, DeviceSliceMut2, DeviceSliceMut3,
    Result,
};

use crate::error::TensorError;

/// Sizes and strides of heads in memory, in elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Extents {
    /// Number of elements per row.
    pub dim: usize,
    /// Number of rows per head. Each row is a token of the sequence.
    pub rows: usize,
    /// Number of heads per plane.
    pub heads: usize,
    /// Number of planes (sequences).
    pub planes: usize,
    /// Stride between the rows of a head.
    pub row: usize,
    /// Stride between heads.
    pub head: usize,
    /// Stride between planes.
    pub plane: usize,
}

impl Extents {
    /// Returns the shape: planes, heads, rows and elements per row.
    pub fn sizes(&self) -> [usize; 4] {
        [self.planes, self.heads, self.rows, self.dim]
    }

    /// Describes the shape in an error message.
    pub fn named(&self, name: &str) -> String {
        let [planes, heads, rows, dim] = self.sizes();
        format!("{name} is {planes} sequences of {heads} heads of {rows} rows of {dim}")
    }

    /// Returns whether the rows of each head are stored consecutively.
    pub fn is_by_head(&self) -> bool {
        self.row <= self.head
    }
}

/// Read-only attention heads with the shape `sequences x heads x rows x dim`, in one of two layouts.
///
/// ```
/// use warpsmith_runtime::{Device, DeviceBuffer};
/// use warpsmith_tensor::Heads;
///
/// let stream = Device::emulated(0)?.default_stream();
/// let buffer = DeviceBuffer::<f32>::zeros(&stream, 2 * 10 * 4 * 64)?;
/// // 20 tokens of 4 heads of 64 elements, of two sequences.
/// let heads = Heads::by_token(buffer.as_3d(20, 4, 64)?, 2)?;
/// assert_eq!((heads.sequences(), heads.heads(), heads.rows(), heads.dim()), (2, 4, 10, 64));
/// // The same sizes, head by head: 8 heads of 10 rows.
/// let heads = Heads::by_head(buffer.as_3d(8, 10, 64)?, 2)?;
/// assert_eq!((heads.sequences(), heads.heads(), heads.rows(), heads.dim()), (2, 4, 10, 64));
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Heads<'a, T: DeviceCopy> {
    pub(crate) elements: DeviceSlice<'a, T>,
    pub(crate) extents: Extents,
}

/// Writable attention heads.
///
/// See the example of [`attention`](crate::attention()).
#[derive(Debug)]
pub struct HeadsMut<'a, T: DeviceCopy> {
    pub(crate) elements: DeviceSliceMut<'a, T>,
    pub(crate) extents: Extents,
}

/// Interprets a view with this shape and these strides as `[token, head, element]`.
fn by_token(
    [tokens, heads, dim]: [usize; 3],
    [token, head]: [usize; 2],
    sequences: usize,
) -> Result<Extents> {
    let rows = divided(tokens, sequences, "tokens")?;
    Ok(Extents { dim, rows, heads, planes: sequences, row: token, head, plane: rows * token })
}

/// Interprets a view with this shape and these strides as `[head, token, element]`.
fn by_head([all_heads, rows, dim]: [usize; 3], [head, row]: [usize; 2], sequences: usize) -> Result<Extents> {
    let heads = divided(all_heads, sequences, "heads")?;
    Ok(Extents { dim, rows, heads, planes: sequences, row, head, plane: heads * head })
}

/// Interprets a view with this shape and this row stride as `[token, (head, element)]`.
fn by_row([tokens, columns]: [usize; 2], stride: usize, heads: usize, sequences: usize) -> Result<Extents> {
    let rows = divided(tokens, sequences, "tokens")?;
    if heads == 0 || !columns.is_multiple_of(heads) {
        let what = format!("{columns} columns cannot be divided evenly among {heads} heads");
        return Err(TensorError::Heads { operation: "attention", what }.into());
    }
    let dim = columns / heads;
    Ok(Extents { dim, rows, heads, planes: sequences, row: stride, head: dim, plane: rows * stride })
}

fn divided(count: usize, sequences: usize, of: &str) -> Result<usize> {
    if sequences == 0 || !count.is_multiple_of(sequences) {
        let what = format!("{count} {of} cannot be divided evenly among {sequences} sequences");
        return Err(TensorError::Heads { operation: "attention", what }.into());
    }
    Ok(count / sequences)
}

macro_rules! sizes {
    ($($name:ident),*) => { $(
        impl<T: DeviceCopy> $name<'_, T> {
            /// Returns the number of elements per row.
            pub fn dim(&self) -> usize {
                self.extents.dim
            }

            /// Returns the number of rows per head. Each row is a token of the sequence.
            pub fn rows(&self) -> usize {
                self.extents.rows
            }

            /// Returns the number of heads per sequence.
            pub fn heads(&self) -> usize {
                self.extents.heads
            }

            /// Returns the number of sequences, all of which have the same length.
            pub fn sequences(&self) -> usize {
                self.extents.planes
            }
        }
    )* };
}
sizes!(Heads, HeadsMut);

macro_rules! from_views {
    ($($name:ident, $view:ident, $matrix:ident: $elements:ident;)*) => { $(
        impl<'a, T: DeviceCopy> $name<'a, T> {
            /// Creates heads in the layout `[sequence, token, head, element]`: tokens are stored consecutively, and
            /// each contains one row per head. The view must have one plane per token of all sequences, `heads` rows
            /// per plane, and `dim` columns.
            ///
            /// # Errors
            /// Returns [`TensorError::Heads`] if the number of tokens is not a multiple of the number of sequences.
            pub fn by_token(view: $view<'a, T>, sequences: usize) -> Result<Self> {
                let shape = [view.planes(), view.rows(), view.columns()];
                let extents = by_token(shape, [view.plane_stride(), view.row_stride()], sequences)?;
                Ok(Self { elements: view.$elements(), extents })
            }

            /// Creates heads from a matrix, such as the result of a projection, or a part of its columns. The view must
            /// have one row per token of all sequences, and `heads * dim` columns. Otherwise like [`Self::by_token()`].
            ///
            /// ```
            /// use warpsmith_runtime::{Device, DeviceBuffer};
            /// use warpsmith_tensor::Heads;
            ///
            /// let stream = Device::emulated(0)?.default_stream();
            /// // Two tokens with four heads of q, and one head each of k and v.
            /// let qkv = DeviceBuffer::<f32>::zeros(&stream, 2 * (4 + 1 + 1) * 64)?;
            /// let qkv = qkv.as_2d(2, 6 * 64)?;
            /// let q = Heads::by_row(qkv.part(.., ..4 * 64), 4, 1)?;
            /// let k = Heads::by_row(qkv.part(.., 4 * 64..5 * 64), 1, 1)?;
            /// assert_eq!((q.heads(), k.heads(), q.dim(), k.rows()), (4, 1, 64, 2));
            /// # Ok::<(), warpsmith_runtime::Error>(())
            /// ```
            ///
            /// # Errors
            /// Returns [`TensorError::Heads`] if the number of tokens is not a multiple of the number of sequences, or
            /// the number of columns not one of the number of heads.
            pub fn by_row(view: $matrix<'a, T>, heads: usize, sequences: usize) -> Result<Self> {
                let (shape, stride) = ([view.rows(), view.columns()], view.row_stride());
                let extents = by_row(shape, stride, heads, sequences)?;
                Ok(Self { elements: view.$elements(), extents })
            }

            /// Creates heads in the layout `[sequence, head, token, element]`: heads are stored consecutively. The view
            /// must have one plane per head of all sequences, one row per token of a sequence, and `dim` columns.
            ///
            /// # Errors
            /// Returns [`TensorError::Heads`] if the number of planes is not a multiple of the number of sequences.
            pub fn by_head(view: $view<'a, T>, sequences: usize) -> Result<Self> {
                let shape = [view.planes(), view.rows(), view.columns()];
                let extents = by_head(shape, [view.plane_stride(), view.row_stride()], sequences)?;
                Ok(Self { elements: view.$elements(), extents })
            }
        }
    )* };
}

from_views! {
    Heads, DeviceSlice3, DeviceSlice2: elements;
    HeadsMut, DeviceSliceMut3, DeviceSliceMut2: into_elements;
}
