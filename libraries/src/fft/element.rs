//! [`Real`]: element types of transforms, and their computation types.

use half::f16;
use rustfft::FftNum;

use crate::element::Element;

/// Types of real numbers, and of the parts of complex ones: `f32`, `f64` or `f16`.
pub trait Real: Element + bytemuck::Pod {
    /// Computation type on the host.
    #[doc(hidden)]
    type Computed: Computed;
}

impl Real for f32 {
    type Computed = f32;
}

impl Real for f64 {
    type Computed = f64;
}

impl Real for f16 {
    type Computed = f32;
}

/// Computation type on the host.
#[doc(hidden)]
pub trait Computed: FftNum + Element {
    /// Returns the host plans that compute in this type.
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
