//! [`Reducible`]: the element types of reductions. [`ReduceOp`]: their operators.

pub use float8::{F8E4M3, F8E5M2};
use half::{bf16, f16};

use warpsmith_runtime::memory::DeviceCopy;

/// Element type that can be reduced. The supported types are the same as in NCCL: `i8`, `u8`, `i32`, `u32`, `i64`,
/// `u64`, `f16`, `f32`, `f64`, `bf16`, [`F8E4M3`] and [`F8E5M2`]. The trait is sealed. Other types do not compile:
///
/// ```compile_fail
/// use warpsmith_collective::ReduceOp;
/// let sum = ReduceOp::<u16>::Sum;
/// ```
pub trait Reducible: DeviceCopy + bytemuck::Pod + sealed::Sealed {
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
///
/// ```
/// use warpsmith_collective::{Communicator, CommunicatorOptions, ReduceOp};
/// use warpsmith_emulated::EmulatedDriver;
/// use warpsmith_runtime::{Device, DeviceBuffer};
///
/// # let driver = EmulatedDriver::builder().devices(2).build();
/// # let streams = [0, 1].map(|n| Device::with_driver(driver.clone(), n).map(|device| device.default_stream()));
/// # let streams = streams.into_iter().collect::<Result<Vec<_>, _>>()?;
/// let mut results = Vec::new();
/// for mut ranks in Communicator::init_all(&streams, &CommunicatorOptions::new())? {
///     let mut x = DeviceBuffer::from_host(ranks.stream(), &[1.0f32, -8.0])?;
///     // Each rank multiplies its elements by its own factor, 0.5 or 1, before the sum.
///     let factor = 0.5 * (1 + ranks.rank()) as f32;
///     let work = ranks.all_reduce_in_place(ReduceOp::PreMulSum(factor), &mut x)?;
///     results.push((x, work, ranks));
/// }
/// for (x, ..) in &results {
///     assert_eq!(x.to_host()?, [1.5, -12.0]);
/// }
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ReduceOp<T: Reducible> {
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
    /// Sum of the elements of all ranks, each multiplied by its rank's factor. The products are rounded to the element
    /// type, as in NCCL.
    PreMulSum(T),
}

/// [`ReduceOp`] without its element type.
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

/// Reduction whose element type is known at run time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reduction {
    pub element: ElementType,
    pub operator: Operator,
    /// Factor of [`Operator::PreMulSum`], as bytes.
    pub factor: [u8; 8],
}

impl<T: Reducible> From<ReduceOp<T>> for Reduction {
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
