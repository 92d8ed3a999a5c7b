//! [`Reducible`]: the element types of reductions. [`ReduceOp`]: their operators.

pub use float8::{F8E4M3, F8E5M2};
use half::{bf16, f16};

use warpsmith_runtime::memory::DeviceCopy;

/// Element type that can be reduced. The supported types are the same as in NCCL: `i8`, `u8`, `i32`, `u32`, `i64`,
/// `u64`, `f16`, `f32`, `f64`, `bf16`, [`F8E4M3`] and [`F8E5M2`]. The trait is sealed. Other types do not compile:
///
/// ```compile_fail
/// fn reduce<T: warpsmith_collective::Reducible>() {}
/// reduce::<u16>();
/// ```
pub trait Reducible: DeviceCopy + sealed::Sealed {
    /// Value that represents this type at run time.
    const TYPE: ElementType;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! elements {
    ($($type:ty, $name:ident;)*) => {
        /// Element types of reductions.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum ElementType { $(
            #[doc = concat!("`", stringify!($type), "`")]
            $name,
        )* }

        impl ElementType {
            /// All element types.
            pub(crate) const ALL: &[Self] = &[$(Self::$name),*];

            /// Returns the name of the element type.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($type),)* }
            }

            /// Returns the size of an element, in bytes.
            pub const fn bytes(self) -> usize {
                match self { $(Self::$name => size_of::<$type>(),)* }
            }
        }

        $(
            impl sealed::Sealed for $type {}

            impl Reducible for $type {
                const TYPE: ElementType = ElementType::$name;
            }
        )*
    };
}

elements! {
    i8, I8;
    u8, U8;
    i32, I32;
    u32, U32;
    i64, I64;
    u64, U64;
    f16, F16;
    f32, F32;
    f64, F64;
    bf16, Bf16;
    F8E4M3, F8E4M3;
    F8E5M2, F8E5M2;
}

impl ElementType {
    /// Returns whether this is an 8-bit floating-point type.
    pub(crate) fn is_f8(self) -> bool {
        matches!(self, Self::F8E4M3 | Self::F8E5M2)
    }
}

/// Reduction operator over the elements of all ranks.
///
/// Elements are reduced in rank order, starting with rank 0. Each result is computed by one rank for all ranks, so the
/// results are bit-identical on all ranks and in every run. 8-bit and 16-bit floating-point elements are accumulated in
/// `f32` and rounded once; 8-bit results saturate at the largest finite number. Integers wrap around on overflow.
///
/// NCCL selects the order of the additions and the intermediate rounding. Its results are bit-identical on all ranks,
/// but can differ between GPUs, lengths and library versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReduceOp {
    /// Sum.
    Sum,
    /// Product.
    Prod,
    /// Minimum. Any number counts as less than NaN.
    Min,
    /// Maximum. Any number counts as greater than NaN.
    Max,
    /// Sum divided by the number of ranks; for integers, the quotient is rounded toward zero.
    Avg,
}

impl ReduceOp {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Prod => "prod",
            Self::Min => "min",
            Self::Max => "max",
            Self::Avg => "avg",
        }
    }
}

/// Reduction whose element type is known at run time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reduction {
    pub element: ElementType,
    pub operator: ReduceOp,
}
