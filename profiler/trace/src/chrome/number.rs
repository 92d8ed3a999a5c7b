//! [`Number`]: exact decimal numbers. A time in a PyTorch trace has 19 digits, three more than an `f64` can represent.

/// Decimal number, which is exact up to 38 digits; further digits are dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Number {
    is_negative: bool,
    /// Digits as a single integer; the first element is the upper half. With two halves, [`Loose`](super::event::Loose)
    /// is not larger than a `String`.
    digits: [u64; 2],
    /// Exponent of the power of ten that scales the digits.
    exponent: i32,
}

/// Maximum number of digits in a [`Number`].
const DIGITS: u32 = 38;

impl From<u64> for Number {
    fn from(value: u64) -> Self {
        Number { is_negative: false, digits: [0, value], exponent: 0 }
    }
}

impl Number {
    /// Parses a number. Returns `None` if `text` is not a number.
    pub(super) fn of(text: &[u8]) -> Option<Number> {
        let (is_negative, text) = match text.trim_ascii() {
            [b'-', rest @ ..] => (true, rest),
            [b'+', rest @ ..] => (false, rest),
            all => (false, all),
        };
        let (mut digits, mut held, mut exponent) = (0_u128, 0, 0_i32);
        let (mut has_digits, mut is_fraction) = (false, false);
        let mut rest = text.iter();
        while let Some(byte) = rest.next() {
            match byte {
                b'0'..=b'9' => {
                    has_digits = true;
                    let is_held = held < DIGITS;
                    if is_held {
                        digits = digits * 10 + u128::from(byte - b'0');
                        held += u32::from(digits > 0);
                    }
                    exponent = match (is_held, is_fraction) {
                        (true, true) => exponent.saturating_sub(1),
                        (false, false) => exponent.saturating_add(1),
                        _ => exponent,
                    };
                }
                b'.' if !is_fraction => is_fraction = true,
                b'e' | b'E' if has_digits => {
                    let text = std::str::from_utf8(rest.as_slice()).ok()?;
                    let power: i128 = text.parse().ok()?;
                    let power = power.clamp(i32::MIN.into(), i32::MAX.into()) as i32;
                    exponent = exponent.saturating_add(power);
                    break;
                }
                _ => return None,
            }
        }
        let digits = [(digits >> 64) as u64, digits as u64];
        has_digits.then_some(Number { is_negative, digits, exponent })
    }

    fn digits(self) -> u128 {
        u128::from(self.digits[0]) << 64 | u128::from(self.digits[1])
    }

    /// Returns the number multiplied by a power of ten and rounded to the nearest integer, with ties away from zero.
    /// Returns `None` beyond 38 digits.
    pub(super) fn times_ten_to(self, power: i32) -> Option<i128> {
        let digits = self.digits();
        let power = self.exponent.saturating_add(power);
        let ten_to = |power: u32| 10_u128.checked_pow(power);
        let size = if digits == 0 {
            0
        } else if let Ok(power) = u32::try_from(power) {
            digits.checked_mul(ten_to(power)?)?
        } else {
            match ten_to(power.unsigned_abs()) {
                Some(by) => digits / by + u128::from(digits % by >= by - by / 2),
                None => 0,
            }
        };
        let size = i128::try_from(size).ok()?;
        Some(if self.is_negative { -size } else { size })
    }

    /// Returns true if the number is written as an integer.
    pub(super) fn is_integer(self) -> bool {
        self.exponent == 0
    }

    pub(super) fn float(self) -> f64 {
        let size = match self.exponent {
            0 => self.digits() as f64,
            // The text has only a few digits, so parsing it returns the nearest float.
            exponent => format!("{}e{exponent}", self.digits()).parse().unwrap_or(f64::NAN),
        };
        if self.is_negative { -size } else { size }
    }
}
