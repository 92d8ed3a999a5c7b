//! [`Tensor`] and [`TensorMut`]: views of device memory with a shape and a layout.

use crate::error::LibraryError;
use warpsmith_runtime::{DeviceSlice, DeviceSliceMut, Result};

use crate::element::FloatType;

/// Memory layout of a contiguous tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Layout {
    /// NCHW: batch, channels, then the spatial dimensions. This is PyTorch's contiguous format.
    #[default]
    Nchw,
    /// NHWC: batch, the spatial dimensions, then channels. This is PyTorch's `channels_last`. Even with this layout,
    /// shapes are written in NCHW order.
    Nhwc,
}

/// A shape that consists of batch, channels and up to three spatial dimensions. Missing dimensions are 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    /// Batch, channels, depth, height and width.
    pub dims: [usize; 5],
    /// Number of spatial dimensions that the user passed.
    pub spatial: usize,
    pub layout: Layout,
}

impl Shape {
    /// Creates the shape from the dimensions that the user passed.
    pub fn new(shape: &[usize], layout: Layout) -> Result<Self> {
        let (2..=5) = shape.len() else {
            return Err(LibraryError::shape(
                "a tensor",
                format!(
                    "{shape:?} has {} dimensions; pass batch, channels and at most three spatial dimensions",
                    shape.len()
                ),
            ));
        };
        let spatial = shape.len() - 2;
        let mut dims = [shape[0], shape[1], 1, 1, 1];
        dims[5 - spatial..].copy_from_slice(&shape[2..]);
        Ok(Self { dims, spatial, layout })
    }

    /// Returns the dimensions as the user passed them.
    pub fn shown(&self) -> Vec<usize> {
        [&self.dims[..2], &self.dims[5 - self.spatial..]].concat()
    }

    pub fn elements(&self) -> Option<usize> {
        self.dims.iter().try_fold(1usize, |product, dim| product.checked_mul(*dim))
    }

    /// Returns the strides of the dimensions, in elements. The shape matches the length of a slice, so the products do
    /// not overflow. The strides of an empty tensor are irrelevant.
    pub fn strides(&self) -> [usize; 5] {
        let order = match self.layout {
            Layout::Nchw => [4, 3, 2, 1, 0],
            Layout::Nhwc => [1, 4, 3, 2, 0],
        };
        let mut strides = [0; 5];
        let mut stride = 1usize;
        for dim in order {
            strides[dim] = stride;
            stride = stride.saturating_mul(self.dims[dim].max(1));
        }
        strides
    }

    /// Returns the number of dimensions to pass to the library. One spatial dimension is passed as two, the first of
    /// which is 1.
    pub fn rank(&self) -> usize {
        if self.spatial == 3 { 5 } else { 4 }
    }

    /// Returns one value per dimension in the library's order. Only the first [`Self::rank`] values are used.
    pub fn of_library(&self, values: [usize; 5]) -> [i64; 5] {
        let [n, c, d, h, w] = values.map(|value| i64::try_from(value).unwrap_or(i64::MAX));
        if self.spatial == 3 { [n, c, d, h, w] } else { [n, c, h, w, 0] }
    }
}

/// Returns an error unless a slice of `elements` elements can have this shape.
fn checked(elements: usize, shape: &[usize], layout: Layout) -> Result<Shape> {
    let shape = Shape::new(shape, layout)?;
    if shape.elements() == Some(elements) {
        return Ok(shape);
    }
    let needs = shape.elements().map_or("too many".to_owned(), |needs| needs.to_string());
    let text = format!("the slice has {elements} elements, but shape {:?} needs {needs}", shape.shown());
    Err(LibraryError::shape("a tensor", text))
}

/// A read-only view of a tensor.
///
/// ```
/// use warpsmith_libraries::dnn::{Layout, Tensor};
/// let stream = warpsmith_runtime::Device::emulated(0)?.default_stream();
/// let image = warpsmith_runtime::DeviceBuffer::from_host(&stream, &[0f32; 3 * 8 * 6])?;
/// let image = Tensor::new(&image, &[1, 3, 8, 6], Layout::Nchw)?;
/// assert_eq!(image.shape(), [1, 3, 8, 6]);
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Tensor<'a, T: FloatType> {
    pub(super) slice: DeviceSlice<'a, T>,
    pub(super) shape: Shape,
}

/// A mutable view of a tensor.
#[derive(Debug)]
pub struct TensorMut<'a, T: FloatType> {
    pub(super) slice: DeviceSliceMut<'a, T>,
    pub(super) shape: Shape,
}

macro_rules! tensor {
    ($tensor:ident, $slice:ident) => {
        impl<'a, T: FloatType> $tensor<'a, T> {
            /// Creates a view whose shape consists of batch, channels and up to three spatial dimensions. For weights,
            /// the dimensions are output channels, input channels per group, and the window.
            ///
            /// # Errors
            /// Returns [`LibraryError::Shape`] unless the shape has exactly as many elements as the slice.
            pub fn new(elements: impl Into<$slice<'a, T>>, shape: &[usize], layout: Layout) -> Result<Self> {
                let slice = elements.into();
                let shape = checked(slice.len(), shape, layout)?;
                Ok(Self { slice, shape })
            }

            /// Returns the batch, the channels and the spatial dimensions.
            pub fn shape(&self) -> Vec<usize> {
                self.shape.shown()
            }

            /// Returns the memory layout.
            pub fn layout(&self) -> Layout {
                self.shape.layout
            }
        }
    };
}

tensor!(Tensor, DeviceSlice);
tensor!(TensorMut, DeviceSliceMut);

impl<T: FloatType> TensorMut<'_, T> {
    /// Borrows the tensor for reading.
    pub fn as_tensor(&self) -> Tensor<'_, T> {
        Tensor { slice: self.slice.as_slice(), shape: self.shape }
    }
}

/// One value per spatial dimension, as in `[2, 1].into()`, or one value for all spatial dimensions, as in `1.into()`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Axes {
    values: [usize; 3],
    /// Number of values. 0 means that the first value applies to all dimensions.
    len: usize,
}

impl Axes {
    /// Returns the values for depth, height and width. The last `spatial` values are those that the caller specified,
    /// and the others are `neutral`.
    pub(super) fn spread(
        &self,
        operation: &'static str,
        what: &str,
        spatial: usize,
        neutral: usize,
    ) -> Result<[usize; 3]> {
        let mut spread = [neutral; 3];
        match self.len {
            0 => spread[3 - spatial..].fill(self.values[0]),
            len if len == spatial => spread[3 - spatial..].copy_from_slice(&self.values[..len]),
            len => {
                return Err(LibraryError::shape(
                    operation,
                    format!("the {what} has {len} values, but the tensors have {spatial} spatial dimensions"),
                ));
            }
        }
        Ok(spread)
    }
}

impl From<usize> for Axes {
    fn from(value: usize) -> Self {
        Self { values: [value; 3], len: 0 }
    }
}

impl From<[usize; 1]> for Axes {
    fn from([a]: [usize; 1]) -> Self {
        Self { values: [a, 0, 0], len: 1 }
    }
}

impl From<[usize; 2]> for Axes {
    fn from([a, b]: [usize; 2]) -> Self {
        Self { values: [a, b, 0], len: 2 }
    }
}

impl From<[usize; 3]> for Axes {
    fn from(values: [usize; 3]) -> Self {
        Self { values, len: 3 }
    }
}

/// Returns the output extent along one dimension, for a window of `taps` taps that are `dilation` apart. Returns `None`
/// if the window does not fit or a value is out of range.
pub(super) fn output_extent(
    input: usize,
    taps: usize,
    padding: usize,
    stride: usize,
    dilation: usize,
) -> Option<usize> {
    let limit = i32::MAX as usize;
    if [input, taps, padding, stride, dilation].iter().any(|value| *value > limit) || taps == 0 || stride == 0
    {
        return None;
    }
    let window = dilation.checked_mul(taps - 1)?.checked_add(1)?;
    let room = input.checked_add(padding.checked_mul(2)?)?.checked_sub(window)?;
    Some(room / stride + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strides_are_those_of_the_layout() {
        let shape = Shape::new(&[2, 3, 5, 7], Layout::Nchw).unwrap();
        assert_eq!((shape.dims, shape.strides()), ([2, 3, 1, 5, 7], [105, 35, 35, 7, 1]));
        let shape = Shape::new(&[2, 3, 5, 7], Layout::Nhwc).unwrap();
        assert_eq!(shape.strides(), [105, 1, 105, 21, 3]);
        assert_eq!(shape.of_library(shape.strides())[..shape.rank()], [105, 1, 21, 3]);
    }

    #[test]
    fn shapes_that_do_not_fit_are_refused() {
        for shape in [&[4usize][..], &[1, 1, 1, 1, 1, 1], &[2, 3], &[usize::MAX, 2]] {
            assert!(checked(4, shape, Layout::Nchw).is_err(), "{shape:?}");
        }
        assert!(checked(0, &[0, 3, 7], Layout::Nchw).is_ok());
    }

    #[test]
    fn extents_follow_the_usual_formula() {
        assert_eq!(output_extent(224, 7, 3, 2, 1), Some(112));
        assert_eq!(output_extent(5, 3, 0, 1, 2), Some(1));
        assert_eq!(output_extent(4, 3, 0, 1, 2), None);
        assert_eq!(output_extent(4, 0, 0, 1, 1), None);
        assert_eq!(output_extent(4, 1, usize::MAX, 1, 1), None);
    }
}
