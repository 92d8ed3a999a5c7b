//! The values of allocator options as text: reading one from a word or a list, and writing it.
//!
//! A function that reads says why a text is no value at all; whether a value is within its range is for
//! [`AllocatorOptions::check`](super::AllocatorOptions::check). What a function writes, its partner reads
//! back.

use std::str::FromStr;

use super::{Backend, MIB, Reserve};

/// What a garbage collection threshold must be.
pub(super) const THRESHOLD_RANGE: &str = "must be above 0 and below 1; leave the option out to turn it off";

/// Why a list with more behind it is refused.
const AFTER_LIST: &str = "nothing may follow the `]` of the list";

/// Units of [`Reserve::Bytes`], smallest first.
const UNITS: [(char, u64); 5] = [('B', 1), ('K', 1 << 10), ('M', 1 << 20), ('G', 1 << 30), ('T', 1 << 40)];

/// A value read from text, or why it is none.
pub(super) type Parsed<T> = std::result::Result<T, String>;

/// Both sides of the first colon; without one the value is empty.
pub(super) fn name_and_value(item: &str) -> (&str, &str) {
    let (name, value) = item.split_once(':').unwrap_or((item, ""));
    (name.trim(), value.trim())
}

pub(super) fn read_bool(text: &str) -> Parsed<bool> {
    match text {
        "True" => Ok(true),
        "False" => Ok(false),
        _ => Err("must be `True` or `False`".to_owned()),
    }
}

pub(super) fn write_bool(value: &bool) -> String {
    if *value { "True" } else { "False" }.to_owned()
}

pub(super) fn read_whole<T: FromStr>(text: &str) -> Parsed<T> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse() {
        Ok(number) if digits => Ok(number),
        _ if digits => Err("the number is too large".to_owned()),
        _ => Err("must be a whole number".to_owned()),
    }
}

pub(super) fn read_number(text: &str) -> Parsed<f64> {
    text.parse().map_err(|_| "must be a number".to_owned())
}

pub(super) fn read_mib(text: &str) -> Parsed<u64> {
    read_whole::<u64>(text)?.checked_mul(MIB).ok_or_else(|| "the number is too large".to_owned())
}

pub(super) fn write_mib(bytes: &u64) -> String {
    (bytes / MIB).to_string()
}

pub(super) fn read_some_mib(text: &str) -> Parsed<Option<u64>> {
    read_mib(text).map(Some)
}

pub(super) fn write_some_mib(bytes: &Option<u64>) -> String {
    bytes.as_ref().map(write_mib).unwrap_or_default()
}

pub(super) fn read_backend(text: &str) -> Parsed<Backend> {
    match text {
        "native" => Ok(Backend::Native),
        "cudaMallocAsync" => Ok(Backend::StreamOrdered),
        _ => Err("must be `native` or `cudaMallocAsync`".to_owned()),
    }
}

pub(super) fn write_backend(backend: &Backend) -> String {
    match backend {
        Backend::Native => "native",
        Backend::StreamOrdered => "cudaMallocAsync",
    }
    .to_owned()
}

/// PyTorch refuses 0 as text, though it is the default: an option that is given should do something.
pub(super) fn read_threshold(text: &str) -> Parsed<f64> {
    match read_number(text)? {
        0.0 => Err(THRESHOLD_RANGE.to_owned()),
        threshold => Ok(threshold),
    }
}

/// Both zeros are off, and only one of them is the default's text.
pub(super) fn write_threshold(threshold: &f64) -> String {
    if *threshold == 0.0 { "0".to_owned() } else { threshold.to_string() }
}

pub(super) fn read_reserve(text: &str) -> Parsed<Option<Reserve>> {
    let malformed =
        || "must be a fraction such as `0.5`, or bytes such as `40G` (units B, K, M, G, T)".to_owned();
    let unit = text.chars().last().and_then(|last| {
        UNITS.into_iter().find(|(name, _)| *name == last.to_ascii_uppercase()).map(|(_, bytes)| bytes)
    });
    let Some(unit) = unit else {
        return text.parse().map(|part| Some(Reserve::Fraction(part))).map_err(|_| malformed());
    };
    let digits = &text[..text.len() - 1];
    let too_large = || "more bytes than can be addressed".to_owned();
    if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
        let bytes = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
        return bytes.map(|bytes| Some(Reserve::Bytes(bytes))).ok_or_else(too_large);
    }
    let bytes = digits.parse::<f64>().map_err(|_| malformed())? * unit as f64;
    match bytes {
        _ if !bytes.is_finite() || bytes < 0.0 => Err(malformed()),
        _ if bytes >= u64::MAX as f64 => Err(too_large()),
        _ => Ok(Some(Reserve::Bytes(bytes as u64))),
    }
}

pub(super) fn write_reserve(reserve: &Option<Reserve>) -> String {
    match reserve {
        None => String::new(),
        Some(Reserve::Fraction(part)) => part.to_string(),
        Some(Reserve::Bytes(bytes)) => {
            let (name, unit) =
                UNITS.into_iter().rev().find(|(_, unit)| bytes.is_multiple_of(*unit)).unwrap_or(UNITS[0]);
            format!("{}{name}", bytes / unit)
        }
    }
}

pub(super) fn read_divisions(text: &str) -> Parsed<[u32; 16]> {
    let Some(list) = text.strip_prefix('[') else {
        return match read_whole(text)? {
            1 => Err("1 division rounds nothing; write 0 for no rounding, or 2 or more".to_owned()),
            number => Ok([number; 16]),
        };
    };
    let list = list.strip_suffix(']').ok_or(AFTER_LIST)?;
    if list.contains(['[', ']']) {
        return Err(AFTER_LIST.to_owned());
    }
    if list.trim().is_empty() {
        return Err("the list is empty".to_owned());
    }
    let mut divisions = [0; 16];
    // The first entry that no item has set yet.
    let mut next = 0;
    let mut last_size = None;
    let mut items = list.split(',').map(name_and_value).peekable();
    while let Some((size, number)) = items.next() {
        let in_item = |reason: String| format!("in `{size}:{number}`: {reason}");
        let number: u32 = read_whole(number).map_err(in_item)?;
        if size == ">" {
            if items.peek().is_some() {
                return Err("`>` must come last".to_owned());
            }
            divisions[next..].fill(number);
            break;
        }
        let mib: u64 = read_whole(size).map_err(in_item)?;
        if !mib.is_power_of_two() {
            return Err(in_item("the size must be a power of 2, in MiB".to_owned()));
        }
        if last_size.is_some_and(|last| mib <= last) {
            return Err(in_item("the sizes must rise".to_owned()));
        }
        let index = (mib.ilog2() as usize).min(divisions.len() - 1);
        if last_size.is_none() {
            divisions[..index].fill(number);
        }
        divisions[index] = number;
        (next, last_size) = (index + 1, Some(mib));
    }
    Ok(divisions)
}

pub(super) fn write_divisions(divisions: &[u32; 16]) -> String {
    let [first, rest @ ..] = divisions;
    if *first != 1 && rest.iter().all(|number| number == first) {
        return first.to_string();
    }
    let [.., last] = divisions;
    let head = divisions.iter().take_while(|number| *number == first).count();
    let tail = divisions.iter().rposition(|number| number != last).map_or(0, |at| at + 1);
    let named =
        (head.saturating_sub(1)..tail).map(|index| format!("{}:{},", 1u32 << index, divisions[index]));
    format!("[{}>:{last}]", named.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::super::text::tests::{assert_refused, parse};
    use super::*;

    #[test]
    fn sizes_are_whole_numbers_of_mib_that_fit() {
        for name in [
            "max_split_size_mb",
            "max_non_split_rounding_mb",
            "large_segment_size_mb",
            "pinned_reserve_segment_size_mb",
            "pinned_max_round_threshold_mb",
            "pinned_max_cached_size_mb",
        ] {
            let (whole, large) = ("must be a whole number", "the number is too large");
            assert_refused(
                name,
                &[("-1", whole), ("+1", whole), ("64.5", whole), ("64 x", whole), ("64M", whole)],
            );
            assert_refused(name, &[("17592186044416", large), ("99999999999999999999999", large)]);
        }
        assert_eq!(parse("max_split_size_mb:17592186044415").max_split_size, Some(u64::MAX - (MIB - 1)));
    }

    #[test]
    fn the_backend_is_one_of_those_there_are() {
        let backends = "must be `native` or `cudaMallocAsync`";
        assert_refused("backend", &[("Native", backends), ("pool", backends)]);
    }

    #[test]
    fn a_reserve_is_a_fraction_or_bytes_with_a_unit() {
        let reserve = |value: &str| {
            parse(&format!("expandable_segments_reserve:{value}")).expandable_segments_reserve.unwrap()
        };
        assert_eq!(reserve("1.125"), Reserve::Fraction(1.125));
        assert_eq!(reserve("7B"), Reserve::Bytes(7));
        assert_eq!(reserve("3k"), Reserve::Bytes(3 << 10));
        assert_eq!(reserve("512M"), Reserve::Bytes(512 << 20));
        assert_eq!(reserve("40G"), Reserve::Bytes(40 << 30));
        assert_eq!(reserve("1.5T"), Reserve::Bytes(3 << 39));
        assert_eq!(parse("expandable_segments_reserve:1024M").to_string(), "expandable_segments_reserve:1G");
    }

    #[test]
    fn a_reserve_of_nothing_or_of_too_much_is_refused() {
        let fraction = "a fraction of the device's memory must be above 0 and at most 1.125; write bytes \
            with a unit, such as `40G`";
        let malformed = "must be a fraction such as `0.5`, or bytes such as `40G` (units B, K, M, G, T)";
        let large = "more bytes than can be addressed";
        assert_refused(
            "expandable_segments_reserve",
            &[
                ("40", fraction),
                ("0", fraction),
                ("-0.5", fraction),
                ("NaN", fraction),
                ("G", malformed),
                ("-1G", malformed),
                ("nanG", malformed),
                ("40GB", malformed),
                ("40Q", malformed),
                ("16777216T", large),
                ("16777216.5T", large),
            ],
        );
        assert_refused("expandable_segments_reserve", &[("0G", "must be more than 0"), ("0.50e9", fraction)]);
    }

    #[test]
    fn a_list_of_divisions_sets_the_doublings_it_names() {
        let divisions =
            |value: &str| parse(&format!("roundup_power2_divisions:{value}")).roundup_power2_divisions;
        assert_eq!(divisions("0"), [0; 16]);
        assert_eq!(divisions("4"), [4; 16]);
        assert_eq!(divisions("[256:1,512:2,1024:4,>:8]"), [1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 4, 8, 8, 8, 8, 8]);
        assert_eq!(divisions("[ 4 : 2 , 16 : 8 ]"), [2, 2, 2, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(divisions("[1:2,65536:4]"), [2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4]);
        assert_eq!(divisions("[>:16]"), [16; 16]);
        assert_eq!(divisions("[>:1]"), [1; 16]);
    }

    #[test]
    fn wrong_divisions_are_refused() {
        let power = |number: u32| format!("{number} divisions: must be a power of 2, or 0 for no rounding");
        assert_refused(
            "roundup_power2_divisions",
            &[
                ("1", "1 division rounds nothing; write 0 for no rounding, or 2 or more"),
                ("3", &power(3)),
                ("-4", "must be a whole number"),
                ("[>:6]", &power(6)),
                ("[]", "the list is empty"),
                ("[256:2]x", "nothing may follow the `]` of the list"),
                ("[256:2][512:4]", "nothing may follow the `]` of the list"),
                ("[256]", "in `256:`: must be a whole number"),
                ("[256:2,]", "in `:`: must be a whole number"),
                ("[256:two]", "in `256:two`: must be a whole number"),
                ("[300:2]", "in `300:2`: the size must be a power of 2, in MiB"),
                ("[0:2]", "in `0:2`: the size must be a power of 2, in MiB"),
                ("[256:2,256:4]", "in `256:4`: the sizes must rise"),
                ("[>:2,256:4]", "`>` must come last"),
            ],
        );
    }
}
