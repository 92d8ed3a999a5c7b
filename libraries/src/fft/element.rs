//! [`FftScalar`]: element types of transforms and the types in which the host computes them.

use half::f16;
use rustfft::FftNum;

use crate::element::LibraryType;

/// A type for real numbers and for the parts of complex numbers: `f32`, `f64` or `f16`. The trait is sealed.
pub trait FftScalar: LibraryType + bytemuck::Pod {
    /// Type in which the host computes.
    #[doc(hidden)]
    type Computed: Computed;
}

impl FftScalar for f32 {
    type Computed = f32;
}

impl FftScalar for f64 {
    type Computed = f64;
}

impl FftScalar for f16 {
    type Computed = f32;
}

/// Type in which the host computes.
#[doc(hidden)]
pub trait Computed: FftNum + LibraryType {
    /// Returns the host plans, or `None` if they compute in another type.
    fn lines(lines: &super::host::Lines) -> Option<&[super::host::Line<Self>]>;
}

macro_rules! computed {
    ($type:ty, $lines:ident) => {
        impl Computed for $type {
            fn lines(lines: &super::host::Lines) -> Option<&[super::host::Line<Self>]> {
                if let super::host::Lines::$lines(lines) = lines { Some(lines) } else { None }
            }
        }
    };
}

computed!(f32, Single);
computed!(f64, Double);
