//! [`Shape`]: the sizes, batch count and normalization of a transform. The data is checked against them.

use super::{Call, Direction, FftScalar, Kind};
use crate::element::DataType;
use crate::error::LibraryError;
use warpsmith_runtime::{DevicePtr, Result};

/// Normalization, like `norm=` in `torch.fft` and `numpy.fft`. `n` is the product of the sizes, excluding the batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Norm {
    /// Divides the result of the inverse by `n`.
    #[default]
    Backward,
    /// Divides the result of each transform, in either direction, by the square root of `n`.
    Ortho,
    /// Divides the result of the forward transform by `n`.
    Forward,
    /// Does not normalize, like cuFFT.
    None,
}

/// The sizes, batch count and normalization of a transform.
///
/// ```
/// use warpsmith_libraries::fft::{Norm, Shape};
///
/// let line = Shape::from(1024);
/// let images = Shape::from([480, 640]).batch(16).norm(Norm::Ortho);
/// let volume = Shape::from([64, 64, 64]);
/// # let _ = (line, images, volume);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Only the last `rank` sizes are used. All sizes before them are 1.
    sizes: [usize; 3],
    rank: usize,
    batch: usize,
    norm: Norm,
}

impl Shape {
    /// Sets the number of contiguous transforms in the batch. If the batch is 0, nothing is enqueued.
    pub fn batch(self, batch: usize) -> Self {
        Self { batch, ..self }
    }

    /// Sets the normalization.
    pub fn norm(self, norm: Norm) -> Self {
        Self { norm, ..self }
    }

    /// Returns the scale factor for a direction, or `None` if it is 1.
    pub(super) fn factor(self, direction: Direction) -> Option<f64> {
        let elements: f64 = self.sizes.iter().map(|size| *size as f64).product();
        let factor = match (self.norm, direction) {
            (Norm::Backward, Direction::Inverse) | (Norm::Forward, Direction::Forward) => 1.0 / elements,
            (Norm::Ortho, _) => 1.0 / elements.sqrt(),
            _ => 1.0,
        };
        (factor != 1.0).then_some(factor)
    }

    /// Returns the key of the required plan and the numbers of input and output elements. The key is `None` if there is
    /// nothing to compute.
    pub(super) fn key<T: FftScalar>(
        self,
        operation: &'static str,
        kind: Kind,
    ) -> Result<(Option<Key>, [usize; 2])> {
        let Self { sizes, rank, batch, .. } = self;
        let key = Key { sizes, rank, batch, kind, precision: T::TYPE };
        if let Some(axis) = key.sizes().iter().position(|size| *size == 0) {
            let problem = format!(
                "dimension {axis} of {:?} is 0; a transform must have at least 1 element",
                key.sizes()
            );
            return Err(LibraryError::shape(operation, problem));
        }
        let elements = |half| key.elements(half).filter(|elements| *elements <= i64::MAX as usize / 16);
        let (Some(real), Some(half)) = (elements(false), elements(true)) else {
            let problem = format!("{batch} x {:?} elements exceed the maximum; split the batch", key.sizes());
            return Err(LibraryError::shape(operation, problem));
        };
        if key.precision == DataType::F16 && key.sizes().iter().any(|size| !size.is_power_of_two()) {
            let what = format!("half precision with sizes {:?}", key.sizes());
            return Err(LibraryError::unsupported(operation, what, "sizes that are powers of two, or f32"));
        }
        let lengths = match kind {
            Kind::Complex => [real, real],
            Kind::FromReal => [real, half],
            Kind::ToReal => [half, real],
        };
        Ok(((batch != 0).then_some(key), lengths))
    }

    /// Checks the lengths of input and output, and returns the plan's key, or `None` if there is nothing to compute.
    pub(super) fn check<T: FftScalar>(self, call: Call, input: usize, output: usize) -> Result<Option<Key>> {
        let (key, [wanted_in, wanted_out]) = self.key::<T>(call.operation, call.kind)?;
        for (side, found, wanted) in [("input", input, wanted_in), ("output", output, wanted_out)] {
            if found != wanted {
                let (batch, sizes) = (self.batch, &self.sizes[3 - self.rank..]);
                let transforms = if batch == 1 { "transform" } else { "transforms" };
                let problem = format!(
                    "the {side} has {found} elements, but {batch} contiguous {transforms} of {sizes:?} require {wanted}"
                );
                return Err(LibraryError::shape(call.operation, problem));
            }
        }
        Ok(key)
    }
}

/// Checks the alignment that cuFFT requires because it accesses real numbers in pairs.
pub(super) fn check_alignment<T: FftScalar>(call: Call, ptr: DevicePtr) -> Result<()> {
    if ptr.0.is_multiple_of(2 * size_of::<T>() as u64) {
        return Ok(());
    }
    let problem = "the real numbers start at an odd element of their buffer; start at an even element";
    Err(LibraryError::shape(call.operation, problem))
}

impl From<usize> for Shape {
    fn from(size: usize) -> Self {
        Self { sizes: [1, 1, size], rank: 1, batch: 1, norm: Norm::default() }
    }
}

impl From<[usize; 1]> for Shape {
    fn from([size]: [usize; 1]) -> Self {
        size.into()
    }
}

impl From<[usize; 2]> for Shape {
    fn from([rows, columns]: [usize; 2]) -> Self {
        Self { sizes: [1, rows, columns], rank: 2, batch: 1, norm: Norm::default() }
    }
}

impl From<[usize; 3]> for Shape {
    fn from(sizes: [usize; 3]) -> Self {
        Self { sizes, rank: 3, batch: 1, norm: Norm::default() }
    }
}

/// The cache key of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    sizes: [usize; 3],
    rank: usize,
    pub batch: usize,
    pub kind: Kind,
    pub precision: DataType,
}

impl Key {
    /// Returns the sizes, with the fastest-varying one last.
    pub fn sizes(&self) -> &[usize] {
        &self.sizes[3 - self.rank..]
    }

    /// Returns the number of elements in all transforms. If `half` is true, the last dimension counts as `n / 2 + 1`.
    fn elements(&self, half: bool) -> Option<usize> {
        let [outer, rows, last] = self.sizes;
        let last = if half { last / 2 + 1 } else { last };
        outer.checked_mul(rows)?.checked_mul(last)?.checked_mul(self.batch)
    }

    /// Describes the transform for error messages.
    pub fn describe(&self) -> String {
        let kind = match self.kind {
            Kind::Complex => "complex to complex",
            Kind::FromReal => "real to complex",
            Kind::ToReal => "complex to real",
        };
        format!("{} x {:?}, {kind}, {}", self.batch, self.sizes(), self.precision.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn norms_say_what_each_direction_is_divided_by() {
        let factors = |norm| {
            let shape = Shape::from([4, 4]).batch(3).norm(norm);
            [Direction::Forward, Direction::Inverse].map(|direction| shape.factor(direction))
        };
        assert_eq!(factors(Norm::Backward), [None, Some(1.0 / 16.0)]);
        assert_eq!(factors(Norm::Ortho), [Some(0.25), Some(0.25)]);
        assert_eq!(factors(Norm::Forward), [Some(1.0 / 16.0), None]);
        assert_eq!(factors(Norm::None), [None, None]);
    }
}
