//! [`Real`]: the types that can be transformed, and what each is computed in.

use half::f16;
use rustfft::FftNum;

use crate::element::Element;

/// `f32`, `f64` or `f16`: what real numbers, and the parts of complex ones, are.
pub trait Real: Element + bytemuck::Pod {
    /// The type in which the host computes.
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

/// The type in which the host computes.
#[doc(hidden)]
pub trait Computed: FftNum + Element {
    /// The plans of a host that compute in this type.
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
