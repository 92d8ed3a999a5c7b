//! [`Element`]: the types that reductions take, and [`ReduceOp`], their operators.

pub use float8::{F8E4M3, F8E5M2};
use half::{bf16, f16};

use warpsmith_runtime::memory::DeviceCopy;

/// A type whose elements can be reduced: those of NCCL. Other types do not compile:
///
/// ```compile_fail
/// use warpsmith_collective::ReduceOp;
/// let sum = ReduceOp::<u16>::Sum;
/// ```
pub trait Element: DeviceCopy + bytemuck::Pod + sealed::Sealed {
    /// Which of them it is.
    const TYPE: ElementType;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! elements {
    ($($type:ty, $name:ident;)*) => {
        /// The types that reductions take.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum ElementType { $(
            #[doc = concat!("`", stringify!($type), "`")]
            $name,
        )* }

        impl ElementType {
            /// All of them.
            pub(crate) const ALL: &[Self] = &[$(Self::$name),*];

            /// The name of the type.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($type),)* }
            }

            /// The bytes of an element.
            pub const fn bytes(self) -> usize {
                match self { $(Self::$name => size_of::<$type>(),)* }
            }
        }

        $(
            impl sealed::Sealed for $type {}

            impl Element for $type {
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
    /// Whether it is floating point of 8 bits.
    pub(crate) fn is_f8(self) -> bool {
        matches!(self, Self::F8E4M3 | Self::F8E5M2)
    }
}

/// How elements of all ranks become one.
///
/// The elements are taken in the order of ranks, 0 first, and one rank computes each result for all: every rank gets the
/// same bits, in every run. Floating point of 8 and 16 bits is accumulated in `f32` and rounded once, that of 8 bits to the
/// greatest finite number where it is beyond. Integers wrap.
///
/// NCCL chooses the order, and how it rounds on the way: every rank gets the same bits, but other GPUs, lengths or versions
/// may give others.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ReduceOp<T: Element> {
    /// The sum.
    Sum,
    /// The product.
    Prod,
    /// The least. A number is less than NaN.
    Min,
    /// The greatest. A number is greater than NaN.
    Max,
    /// The sum divided by the number of ranks; of integers, rounded towards zero.
    Avg,
    /// The sum of each rank's elements times its own factor. The products are rounded to the type of the elements, as NCCL
    /// does.
    PreMulSum(T),
}

/// A [`ReduceOp`] without its type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operator {
    Sum,
    Prod,
    Min,
    Max,
    Avg,
    PreMulSum,
}

impl Operator {
    pub fn name(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Prod => "prod",
            Self::Min => "min",
            Self::Max => "max",
            Self::Avg => "avg",
            Self::PreMulSum => "premul_sum",
        }
    }
}

/// A reduction of elements of a type that is known when it runs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reduction {
    pub element: ElementType,
    pub operator: Operator,
    /// The bytes of the factor of [`Operator::PreMulSum`].
    pub factor: [u8; 8],
}

impl<T: Element> From<ReduceOp<T>> for Reduction {
    fn from(op: ReduceOp<T>) -> Self {
        let (operator, factor) = match op {
            ReduceOp::Sum => (Operator::Sum, [0; 8]),
            ReduceOp::Prod => (Operator::Prod, [0; 8]),
            ReduceOp::Min => (Operator::Min, [0; 8]),
            ReduceOp::Max => (Operator::Max, [0; 8]),
            ReduceOp::Avg => (Operator::Avg, [0; 8]),
            ReduceOp::PreMulSum(factor) => {
                let mut bytes = [0; 8];
                bytes[..size_of::<T>()].copy_from_slice(bytemuck::bytes_of(&factor));
                (Operator::PreMulSum, bytes)
            }
        };
        Self { element: T::TYPE, operator, factor }
    }
}
