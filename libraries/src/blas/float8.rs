//! [`F8E4M3`] and [`F8E5M2`]: 8-bit floating-point types that GPUs with compute capability 8.9 or later can multiply.

use bytemuck::{Pod, Zeroable};

macro_rules! float8 {
    ($name:ident, $mantissa:literal, $bias:literal, $max:literal, $doc:literal) => {
        #[doc = $doc]
        ///
        /// Conversions from `f32` round to the nearest value, ties to even. Values that are too large become the
        /// largest finite value, as in CUDA's saturating conversions. NaN stays NaN.
        #[derive(Clone, Copy, Default, Pod, Zeroable)]
        #[repr(transparent)]
        pub struct $name(u8);

        impl $name {
            /// The largest finite value.
            pub const MAX: f32 = $max;

            /// Creates the value with these bits.
            pub const fn from_bits(bits: u8) -> Self {
                Self(bits)
            }

            /// Returns the bits.
            pub const fn to_bits(self) -> u8 {
                self.0
            }

            /// Rounds `value` to the nearest value of this type.
            pub fn from_f32(value: f32) -> Self {
                let sign = if value.is_sign_negative() { 0x80 } else { 0 };
                if value.is_nan() {
                    return Self(0x7f | sign);
                }
                let size = value.abs().min(Self::MAX);
                // The exponent of the last mantissa bit is determined by the value, or by the subnormal range.
                let exponent = ((size.to_bits() >> 23) as i32 - 127).max(1 - $bias);
                let places = (size / 2f32.powi(exponent - $mantissa)).round_ties_even() as u32;
                // In the integer representation, the exponent bits directly follow the mantissa bits, so a carry
                // increments the exponent correctly.
                let bits = (((exponent + $bias - 1) as u32) << $mantissa) + places;
                Self(bits as u8 | sign)
            }

            /// Converts exactly to `f32`.
            pub fn to_f32(self) -> f32 {
                let exponent = i32::from((self.0 & 0x7f) >> $mantissa);
                let mantissa = f32::from(self.0 & ((1 << $mantissa) - 1));
                let size = if self.is_nan() {
                    f32::NAN
                } else if self.is_infinite() {
                    f32::INFINITY
                } else if exponent == 0 {
                    mantissa * 2f32.powi(1 - $bias - $mantissa)
                } else {
                    (mantissa + f32::from(1u8 << $mantissa)) * 2f32.powi(exponent - $bias - $mantissa)
                };
                if self.0 & 0x80 == 0 { size } else { -size }
            }
        }

        impl From<$name> for f32 {
            fn from(value: $name) -> f32 {
                value.to_f32()
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.to_f32().fmt(f)
            }
        }

        impl PartialEq for $name {
            fn eq(&self, other: &Self) -> bool {
                self.to_f32() == other.to_f32()
            }
        }
    };
}

float8!(F8E4M3, 3, 7, 448.0, "Four bits of exponent, three of mantissa, no infinities: up to 448.");
float8!(F8E5M2, 2, 15, 57344.0, "Five bits of exponent, two of mantissa: up to 57344.");

impl F8E4M3 {
    fn is_nan(self) -> bool {
        self.0 & 0x7f == 0x7f
    }

    fn is_infinite(self) -> bool {
        false
    }
}

impl F8E5M2 {
    fn is_nan(self) -> bool {
        self.0 & 0x7f > 0x7c
    }

    fn is_infinite(self) -> bool {
        self.0 & 0x7f == 0x7c
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values() {
        for (bits, value) in [
            (0x00, 0.0),
            (0x01, 2f32.powi(-9)),
            (0x08, 2f32.powi(-6)),
            (0x38, 1.0),
            (0x7e, 448.0),
            (0xb8, -1.0),
        ] {
            assert_eq!(F8E4M3::from_bits(bits).to_f32(), value);
        }
        for (bits, value) in [(0x01, 2f32.powi(-16)), (0x04, 2f32.powi(-14)), (0x3c, 1.0), (0x7b, 57344.0)] {
            assert_eq!(F8E5M2::from_bits(bits).to_f32(), value);
        }
        assert!(F8E4M3::from_bits(0x7f).to_f32().is_nan() && F8E5M2::from_bits(0xfd).to_f32().is_nan());
        assert_eq!(F8E5M2::from_bits(0xfc).to_f32(), f32::NEG_INFINITY);
    }

    #[test]
    fn every_value_converts_to_itself() {
        for bits in 0..=255 {
            let (a, b) = (F8E4M3::from_bits(bits), F8E5M2::from_bits(bits));
            if !a.is_nan() {
                assert_eq!(F8E4M3::from_f32(a.to_f32()).to_bits(), bits);
            }
            if !b.is_nan() && !b.is_infinite() {
                assert_eq!(F8E5M2::from_f32(b.to_f32()).to_bits(), bits);
            }
        }
        assert!(F8E4M3::from_f32(f32::NAN).to_f32().is_nan());
        assert!(F8E5M2::from_f32(f32::NAN).to_f32().is_nan());
    }

    #[test]
    fn rounding_is_to_nearest_even() {
        for bits in 0..0x7e {
            let (low, high) = (F8E4M3::from_bits(bits), F8E4M3::from_bits(bits + 1));
            let middle = (low.to_f32() + high.to_f32()) / 2.0;
            let even = if bits % 2 == 0 { low } else { high };
            assert_eq!(F8E4M3::from_f32(middle).to_bits(), even.to_bits());
            assert_eq!(F8E4M3::from_f32(middle * 0.9999).to_bits(), bits);
            assert_eq!(F8E4M3::from_f32(middle * 1.0001).to_bits(), bits + 1);
        }
        assert_eq!(F8E4M3::from_f32(1e9), F8E4M3::from_f32(448.0));
        assert_eq!(F8E5M2::from_f32(f32::NEG_INFINITY).to_f32(), -57344.0);
    }
}
