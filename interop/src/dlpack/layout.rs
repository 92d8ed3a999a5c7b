//! [`Layout`]: size of a tensor, computed from its shape and strides.

use super::DlpackError;

/// Maximum number of dimensions, as in NumPy and PyTorch.
pub(crate) const MAX_DIMENSIONS: usize = 64;

/// Returns the strides, in elements, of a contiguous tensor in row-major order.
pub(crate) fn row_major(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1usize; shape.len()];
    for dimension in (1..shape.len()).rev() {
        strides[dimension - 1] = strides[dimension].saturating_mul(shape[dimension].max(1));
    }
    strides
}

/// Size of a tensor whose elements do not overlap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Number of elements.
    pub elements: usize,
    /// Number of elements from the first to the last in memory, including the gaps between them.
    pub span: usize,
    /// True if the tensor is contiguous, in row-major order.
    pub is_packed: bool,
}

impl Layout {
    /// Checks the extents and the strides, which must be equal in number. Without strides, the tensor is contiguous in
    /// row-major order.
    pub fn new(shape: &[i64], strides: Option<&[i64]>) -> Result<Self, DlpackError> {
        let too_large =
            || DlpackError::TooLarge { shape: shape.to_vec(), strides: strides.unwrap_or_default().to_vec() };
        if let Some(dimension) = shape.iter().position(|extent| *extent < 0) {
            return Err(DlpackError::NegativeExtent { dimension, extent: shape[dimension] });
        }
        if shape.contains(&0) {
            return Ok(Self { elements: 0, span: 0, is_packed: true });
        }
        let elements = shape.iter().try_fold(1i64, |product, extent| product.checked_mul(*extent));
        let elements = elements.ok_or_else(too_large)?;
        let (mut span, mut is_packed) = (elements, true);
        if let Some(strides) = strides {
            let mut packed = 1;
            for (dimension, (&extent, &stride)) in shape.iter().zip(strides).enumerate().rev() {
                match stride {
                    // The stride of a single element is not used.
                    _ if extent == 1 => continue,
                    0 => return Err(DlpackError::Broadcast { dimension, extent }),
                    ..0 => return Err(DlpackError::NegativeStride { dimension, stride }),
                    _ => is_packed &= stride == packed,
                }
                packed *= extent;
            }
            if !is_packed {
                span = Self::span(shape, strides).map_err(|is_overlap| match is_overlap {
                    true => DlpackError::Overlap { shape: shape.to_vec(), strides: strides.to_vec() },
                    false => too_large(),
                })?;
            }
        }
        let size = |number| usize::try_from(number).map_err(|_| too_large());
        Ok(Self { elements: size(elements)?, span: size(span)?, is_packed })
    }

    /// Returns the span of dimensions with positive strides. Fails with true if elements overlap, and with false if the
    /// span overflows.
    fn span(shape: &[i64], strides: &[i64]) -> Result<i64, bool> {
        let mut axes: Vec<(i64, i64)> = strides.iter().copied().zip(shape.iter().copied()).collect();
        axes.retain(|(_, extent)| *extent > 1);
        axes.sort_unstable();
        axes.into_iter().try_fold(1i64, |span, (stride, extent)| {
            if stride < span {
                return Err(true);
            }
            let last = (extent - 1).checked_mul(stride).ok_or(false)?;
            span.checked_add(last).ok_or(false)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        let of = |shape: &[i64], strides: Option<&[i64]>| {
            let Layout { elements, span, is_packed } = Layout::new(shape, strides).unwrap();
            (elements, span, is_packed)
        };
        assert_eq!(of(&[], None), (1, 1, true));
        assert_eq!(of(&[], Some(&[])), (1, 1, true));
        assert_eq!(of(&[2, 3], None), (6, 6, true));
        assert_eq!(of(&[2, 3], Some(&[3, 1])), (6, 6, true));
        assert_eq!(of(&[2, 1, 3], Some(&[3, -7, 1])), (6, 6, true), "the stride of one element is free");
        assert_eq!(of(&[2, 3], Some(&[1, 2])), (6, 6, false), "transposed");
        assert_eq!(of(&[2, 3], Some(&[5, 1])), (6, 8, false), "padded");
        assert_eq!(of(&[4, 0, i64::MAX], Some(&[0, -1, 3])), (0, 0, true), "empty");
    }

    #[test]
    fn refusals() {
        let of = |shape: &[i64], strides: Option<&[i64]>| Layout::new(shape, strides).unwrap_err();
        assert_eq!(of(&[2, -1], None), DlpackError::NegativeExtent { dimension: 1, extent: -1 });
        assert_eq!(of(&[2, 3], Some(&[3, -1])), DlpackError::NegativeStride { dimension: 1, stride: -1 });
        assert_eq!(of(&[2, 3], Some(&[0, 1])), DlpackError::Broadcast { dimension: 0, extent: 2 });
        for (shape, strides) in [([3, 4], [2, 1]), ([2, 2], [1, 1]), ([3, 2], [1, 2])] {
            let error = of(&shape, Some(&strides));
            assert!(matches!(error, DlpackError::Overlap { .. }), "{shape:?} {strides:?}: {error}");
        }
        let large: [(&[i64], Option<&[i64]>); 3] =
            [(&[i64::MAX, 2], None), (&[2], Some(&[i64::MAX])), (&[3, 2], Some(&[i64::MAX / 2 + 1, 1]))];
        for (shape, strides) in large {
            let error = of(shape, strides);
            assert!(matches!(error, DlpackError::TooLarge { .. }), "{shape:?} {strides:?}: {error}");
        }
    }
}
