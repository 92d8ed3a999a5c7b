//! Text form of allocator option values: parsing a value from a word or a list, and formatting it.
//!
//! A parser reports why text is not a value; [`AllocatorOptions::check`](super::AllocatorOptions::check) checks the
//! range. Each parser accepts the output of its formatter.

use std::str::FromStr;

use super::{Backend, MIB};

/// The range of a garbage collection threshold.
pub(super) const THRESHOLD_RANGE: &str = "must be above 0 and below 1; omit the option to disable it";

/// Reason for rejecting text after a list.
const AFTER_LIST: &str = "nothing may follow the `]` of the list";

/// A parsed value, or the reason why the text is invalid.
pub(super) type Parsed<T> = std::result::Result<T, String>;

/// Splits an item at the first colon. Without a colon, the value is empty.
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

/// Parses a threshold. Like PyTorch, rejects 0, although it is the default.
pub(super) fn read_threshold(text: &str) -> Parsed<f64> {
    match read_number(text)? {
        0.0 => Err(THRESHOLD_RANGE.to_owned()),
        threshold => Ok(threshold),
    }
}

/// Formats a threshold. Both zeros (0 and -0) disable garbage collection and format as the default.
pub(super) fn write_threshold(threshold: &f64) -> String {
    if *threshold == 0.0 { "0".to_owned() } else { threshold.to_string() }
}

pub(super) fn read_divisions(text: &str) -> Parsed<[u32; 16]> {
    let Some(list) = text.strip_prefix('[') else {
        return Ok([read_whole(text)?; 16]);
    };
    let list = list.strip_suffix(']').ok_or(AFTER_LIST)?;
    if list.contains(['[', ']']) {
        return Err(AFTER_LIST.to_owned());
    }
    if list.trim().is_empty() {
        return Err("the list is empty".to_owned());
    }
    let mut divisions = [0; 16];
    // Index of the first entry that no item has set yet.
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
            return Err(in_item("the sizes must be in ascending order".to_owned()));
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
    if rest.iter().all(|number| number == first) {
        return first.to_string();
    }
    let [.., last] = divisions;
    let head = divisions.iter().take_while(|number| *number == first).count();
    let tail = divisions.iter().rposition(|number| number != last).map_or(0, |at| at + 1);
    let named =
        (head.saturating_sub(1)..tail).map(|index| format!("{}:{},", 1u32 << index, divisions[index]));
    format!("[{}>:{last}]", named.collect::<String>())
}
