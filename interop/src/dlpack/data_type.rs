//! [`Element`]: Rust types that have an equivalent in DLPack.

use std::fmt;

use float8::{F8E4M3, F8E5M2};
use gpu_std::Checked;
use half::{bf16, f16};
use num_complex::Complex;
use warpsmith_runtime::DeviceCopy;

use super::{DLDataType, DlpackError};

/// A Rust type that can be the element type of a DLPack tensor. The type for `bool` in device memory is
/// [`Checked<bool>`].
///
/// See the example of [`DLDataType`].
pub trait Element: DeviceCopy + sealed::Sealed {
    /// Equivalent DLPack type.
    const DATA_TYPE: DLDataType;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! elements {
    ($($element:ty: $code:ident;)*) => {
        $(impl sealed::Sealed for $element {}
        impl Element for $element {
            const DATA_TYPE: DLDataType =
                DLDataType { code: DLDataType::$code, bits: 8 * size_of::<$element>() as u8, lanes: 1 };
        })*
    };
}

elements! {
    i8: INT;
    i16: INT;
    i32: INT;
    i64: INT;
    u8: UINT;
    u16: UINT;
    u32: UINT;
    u64: UINT;
    f16: FLOAT;
    f32: FLOAT;
    f64: FLOAT;
    bf16: BFLOAT;
    F8E4M3: FLOAT8_E4M3FN;
    F8E5M2: FLOAT8_E5M2;
    Complex<f32>: COMPLEX;
    Complex<f64>: COMPLEX;
    Checked<bool>: BOOL;
}

impl DLDataType {
    /// Checks that an element is a scalar that occupies whole bytes.
    pub(super) fn check_whole(self) -> Result<(), DlpackError> {
        match self {
            Self { lanes: 0 | 2.., .. } => Err(DlpackError::Lanes { found: self }),
            Self { bits, .. } if bits == 0 || bits % 8 != 0 => Err(DlpackError::SubByte { found: self }),
            _ => Ok(()),
        }
    }

    /// Checks that the elements have the expected type.
    pub(super) fn check(self, expected: Self) -> Result<(), DlpackError> {
        self.check_whole()?;
        if self == expected { Ok(()) } else { Err(DlpackError::DataType { found: self, expected }) }
    }
}

/// Formats the type under the name that array libraries use, such as `float32`, or `float32x4` for a vector of four.
impl fmt::Display for DLDataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { code, bits, lanes } = *self;
        let name = match code {
            0 => "int",
            1 => "uint",
            2 => "float",
            3 => "handle",
            4 => "bfloat",
            5 => "complex",
            6 => "bool",
            7 => "float8_e3m4",
            8 => "float8_e4m3",
            9 => "float8_e4m3b11fnuz",
            10 => "float8_e4m3fn",
            11 => "float8_e4m3fnuz",
            12 => "float8_e5m2",
            13 => "float8_e5m2fnuz",
            14 => "float8_e8m0fnu",
            15 => "float6_e2m3fn",
            16 => "float6_e3m2fn",
            17 => "float4_e2m1fn",
            _ => return write!(f, "type {code} of {bits} bits, {lanes} lanes"),
        };
        f.write_str(name)?;
        if code < 6 {
            write!(f, "{bits}")?;
        }
        if lanes != 1 { write!(f, "x{lanes}") } else { Ok(()) }
    }
}
