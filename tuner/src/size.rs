//! Element counts in human-readable form, such as `65536`, `65_536`, `2^16`, `64K`, `1M` and `2G`.
//!
//! A parsed count is at least 1 and fits in a `u64`. For any other input, the error repeats the input and shows the
//! correct form. `K`, `M` and `G` are powers of 1024.

use crate::error::{Error, Result};

const HOW: &str = "write a whole number of elements such as 65536, 2^16, 64K, 1M or 1G";

/// Parses one element count.
///
/// ```
/// use warpsmith_tuner::size::parse_size;
/// assert_eq!(parse_size("2^16").unwrap(), 65536);
/// assert_eq!(parse_size("64K").unwrap(), 65536);
/// assert!(parse_size("2^").is_err());
/// ```
///
/// # Errors
/// Returns [`Error::Size`] if `text` is not a whole number from 1 to 2^64 - 1 in one of these forms.
pub fn parse_size(text: &str) -> Result<u64> {
    let trimmed = text.trim();
    let fail = |reason: String| Error::Size { text: text.to_string(), reason };
    let number = |part: &str, what: &str| -> Result<u64> {
        let digits = part.replace('_', "");
        if digits.is_empty() {
            return Err(fail(format!("{what} is missing; {HOW}")));
        }
        if digits.starts_with('-') {
            return Err(fail(format!("it is negative; {HOW}")));
        }
        if !digits.bytes().all(|b| b.is_ascii_digit()) {
            return Err(fail(format!("{part:?} is not a whole number; {HOW}")));
        }
        digits.parse().map_err(|_| fail("it does not fit in 64 bits; give a smaller size".to_string()))
    };
    let too_large = || fail("it does not fit in 64 bits; give a smaller size".to_string());
    let size = if let Some((base, exponent)) = trimmed.split_once('^') {
        let base = number(base, "the base before ^")?;
        let exponent = number(exponent, "the exponent after ^")?;
        match base {
            0 | 1 => base.pow((exponent > 0) as u32),
            _ => u32::try_from(exponent)
                .ok()
                .and_then(|exponent| base.checked_pow(exponent))
                .ok_or_else(too_large)?,
        }
    } else {
        let (digits, factor) = match trimmed.char_indices().last() {
            Some((at, 'k' | 'K')) => (&trimmed[..at], 1 << 10),
            Some((at, 'm' | 'M')) => (&trimmed[..at], 1 << 20),
            Some((at, 'g' | 'G')) => (&trimmed[..at], 1 << 30),
            _ => (trimmed, 1),
        };
        number(digits, "the number")?.checked_mul(factor).ok_or_else(too_large)?
    };
    if size == 0 {
        return Err(fail("there is nothing to measure; give a size of at least 1".to_string()));
    }
    Ok(size)
}

/// Formats an element count. Powers of two from 1024 on are formatted as `2^k`, and all other counts as digits.
pub fn format_size(n: u64) -> String {
    if n >= 1024 && n.is_power_of_two() { format!("2^{}", n.trailing_zeros()) } else { n.to_string() }
}

/// Formats a number of bytes for messages, with a binary unit, for example `1.5 GiB`.
pub fn format_bytes(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 || value.fract() == 0.0 {
        format!("{value:.0} {}", UNITS[unit])
    } else {
        format!("{value:.1} {}", UNITS[unit])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_is_read() {
        for (text, expected) in [
            ("1", 1),
            ("65536", 65536),
            ("65_536", 65536),
            (" 2^16 ", 65536),
            ("2^0", 1),
            ("10^3", 1000),
            ("1^999999999999", 1),
            ("2^63", 1 << 63),
            ("64K", 65536),
            ("64k", 65536),
            ("1M", 1 << 20),
            ("3G", 3 << 30),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(parse_size(text).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, word) in [
            ("2^", "exponent after ^ is missing"),
            ("^16", "base before ^ is missing"),
            ("", "missing"),
            ("K", "missing"),
            ("-1", "negative"),
            ("2^-1", "negative"),
            ("1e30", "\"1e30\" is not a whole number"),
            ("1.5", "not a whole number"),
            ("2^2^2", "not a whole number"),
            ("0x10", "not a whole number"),
            ("ü", "not a whole number"),
            ("0", "at least 1"),
            ("0^3", "at least 1"),
            ("0K", "at least 1"),
            ("2^64", "64 bits"),
            ("2^99999999999999", "64 bits"),
            ("18446744073709551616", "64 bits"),
            ("18446744073709551615K", "64 bits"),
        ] {
            let message = parse_size(text).unwrap_err().to_string();
            assert!(message.contains(word), "{text}: {message}");
            assert!(message.contains(&format!("{text:?}")), "{text}: {message}");
            assert!(!message.contains('\n'), "{text}: {message}");
        }
    }

    #[test]
    fn sizes_are_written_so_that_they_parse_back() {
        for n in [1, 1000, 1023, 1024, 1025, 65536, 3 << 20, 1 << 63] {
            assert_eq!(parse_size(&format_size(n)).unwrap(), n);
        }
        assert_eq!(format_size(1 << 28), "2^28");
    }

    #[test]
    fn bytes_have_units() {
        assert_eq!(format_bytes(0), "0 B");
        assert_eq!(format_bytes(1023), "1023 B");
        assert_eq!(format_bytes(1 << 30), "1 GiB");
        assert_eq!(format_bytes(3 << 29), "1.5 GiB");
    }
}
