//! [`Real`]: the types that can be transformed, and what each is computed in.

use half::f16;
use rustfft::FftNum;

use crate::scale::Scalar;

mod sealed {
    pub trait Sealed {}
}

/// `f32`, `f64` or `f16`: what real numbers, and the parts of complex ones, are.
pub trait Real: Scalar + bytemuck::Pod + sealed::Sealed {
    /// What the host computes in.
    #[doc(hidden)]
    type Computed: Computed;
    #[doc(hidden)]
    const PRECISION: Precision;
    /// The number that the host computes with.
    #[doc(hidden)]
    fn up(self) -> Self::Computed;
    /// The nearest number to a result.
    #[doc(hidden)]
    fn down(computed: Self::Computed) -> Self;
}

#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Precision {
    Half,
    Single,
    Double,
}

/// What the host computes in.
#[doc(hidden)]
pub trait Computed: FftNum {
    /// The nearest number to a factor.
    fn of(factor: f64) -> Self;
    /// The plans of a host that compute in this type.
    fn lines(lines: &super::host::Lines) -> Option<&[super::host::Line<Self>]>;
}

impl Computed for f32 {
    fn of(factor: f64) -> Self {
        factor as f32
    }

    fn lines(lines: &super::host::Lines) -> Option<&[super::host::Line<Self>]> {
        match lines {
            super::host::Lines::Single(lines) => Some(lines),
            super::host::Lines::Double(_) => None,
        }
    }
}

impl Computed for f64 {
    fn of(factor: f64) -> Self {
        factor
    }

    fn lines(lines: &super::host::Lines) -> Option<&[super::host::Line<Self>]> {
        match lines {
            super::host::Lines::Single(_) => None,
            super::host::Lines::Double(lines) => Some(lines),
        }
    }
}

macro_rules! real {
    ($type:ty, $computed:ty, $precision:ident, $up:expr, $down:expr) => {
        impl sealed::Sealed for $type {}

        impl Real for $type {
            type Computed = $computed;
            const PRECISION: Precision = Precision::$precision;

            fn up(self) -> $computed {
                $up(self)
            }

            fn down(computed: $computed) -> Self {
                $down(computed)
            }
        }
    };
}

real!(f32, f32, Single, std::convert::identity, std::convert::identity);
real!(f64, f64, Double, std::convert::identity, std::convert::identity);
real!(f16, f32, Half, f16::to_f32, f16::from_f32);
