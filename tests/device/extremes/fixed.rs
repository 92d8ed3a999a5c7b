//! [`Fixed`]: exact sums of floats times whole numbers.

use std::cmp::Ordering;

/// Words of 64 bits, the lowest first.
const WORDS: usize = 40;

/// A multiple of 2⁻¹⁰⁷⁴, in two's complement.
#[derive(Clone, PartialEq, Eq)]
pub struct Fixed([u64; WORDS]);

impl Fixed {
    /// Converts a finite number.
    pub fn of(x: f64) -> Self {
        let (bits, mut words) = (x.abs().to_bits(), [0; WORDS]);
        let (exponent, fraction) = ((bits >> 52) as usize, bits & ((1 << 52) - 1));
        let (shift, mantissa) =
            if exponent == 0 { (0, fraction) } else { (exponent - 1, fraction | 1 << 52) };
        let wide = u128::from(mantissa) << (shift % 64);
        (words[shift / 64], words[shift / 64 + 1]) = (wide as u64, (wide >> 64) as u64);
        if x < 0.0 { Self(words).negated() } else { Self(words) }
    }

    fn negated(mut self) -> Self {
        let mut carry = true;
        for word in &mut self.0 {
            (*word, carry) = (!*word).overflowing_add(u64::from(carry));
        }
        self
    }

    /// Sum of two numbers.
    pub fn plus(mut self, other: &Self) -> Self {
        let mut carry = 0u128;
        for (word, of_other) in self.0.iter_mut().zip(other.0) {
            carry += u128::from(*word) + u128::from(of_other);
            (*word, carry) = (carry as u64, carry >> 64);
        }
        self
    }

    /// Difference of two numbers.
    pub fn minus(self, other: &Self) -> Self {
        self.plus(&other.clone().negated())
    }

    /// Product; it wraps on overflow.
    pub fn times(mut self, number: u64) -> Self {
        let mut carry = 0u128;
        for word in &mut self.0 {
            carry += u128::from(*word) * u128::from(number);
            (*word, carry) = (carry as u64, carry >> 64);
        }
        self
    }

    /// Compares the number with 0.
    pub fn sign(&self) -> Ordering {
        if self.0[WORDS - 1] >> 63 != 0 {
            return Ordering::Less;
        }
        if self.0.iter().all(|word| *word == 0) { Ordering::Equal } else { Ordering::Greater }
    }
}

#[test]
fn fixed_numbers_are_exact() {
    let [a, b, c] = [1e300, -5e-324, 3.0].map(Fixed::of);
    let sum = a.clone().plus(&b).minus(&a);
    assert!(sum == b && sum.sign() == Ordering::Less);
    assert!(c.clone().times(5).minus(&Fixed::of(15.0)).sign() == Ordering::Equal);
    assert!(b.times(7).plus(&Fixed::of(3.5e-323)).sign() == Ordering::Equal);
}
