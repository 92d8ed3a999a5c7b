//! Text form of allocator options: names, parsing and formatting.
//!
//! One table defines how each option is parsed and formatted. [`AllocatorOptions::check`] checks the ranges of values.

use std::fmt::{self, Display};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};

use super::AllocatorOptions;
use super::value::{
    Parsed, name_and_value, read_backend, read_bool, read_divisions, read_mib, read_number, read_some_mib,
    read_threshold, write_backend, write_bool, write_divisions, write_mib, write_some_mib, write_threshold,
};
use crate::error::{Error, Result};

/// PyTorch options that have no effect in this crate. They are accepted, because existing environments set them.
const WITHOUT_EFFECT: [&str; 9] = [
    "expandable_segments_handle_type",
    "expandable_segments_reserve_by_class",
    "graph_capture_record_stream_reuse",
    "pinned_free_catch_all",
    "pinned_num_register_threads",
    "pinned_use_cuda_host_register",
    "pinned_use_hip_host_register",
    "release_lock_on_cudamalloc",
    "release_lock_on_hipmalloc",
];

/// An option: its name, the parser of its value, and the formatter.
struct Entry {
    name: &'static str,
    read: fn(&mut AllocatorOptions, &str) -> Parsed<()>,
    /// Formats the value. Returns an empty string for a value without a text form; only a default may lack one.
    write: fn(&AllocatorOptions) -> String,
}

/// Creates an entry for a field from its parser and its formatter.
macro_rules! entry {
    ($name:literal, $($field:ident).+, $read:path, $write:path) => {
        Entry {
            name: $name,
            read: |options, text| {
                options.$($field).+ = $read(text)?;
                Ok(())
            },
            write: |options| $write(&options.$($field).+),
        }
    };
}

const ENTRIES: &[Entry] = &[
    entry!("backend", backend, read_backend, write_backend),
    entry!("caching", caching, read_bool, write_bool),
    entry!("large_segment_size_mb", large_segment_size, read_mib, write_mib),
    entry!("max_split_size_mb", max_split_size, read_some_mib, write_some_mib),
    entry!("max_non_split_rounding_mb", max_non_split_rounding, read_mib, write_mib),
    entry!("roundup_power2_divisions", roundup_power2_divisions, read_divisions, write_divisions),
    entry!("garbage_collection_threshold", garbage_collection_threshold, read_threshold, write_threshold),
    entry!("expandable_segments", expandable_segments, read_bool, write_bool),
    entry!("per_process_memory_fraction", per_process_memory_fraction, read_number, f64::to_string),
    entry!("throw_on_cudamalloc_oom", throw_on_cudamalloc_oom, read_bool, write_bool),
    entry!("pinned_use_background_threads", pinned.use_background_threads, read_bool, write_bool),
    entry!("pinned_reserve_segment_size_mb", pinned.reserve_segment_size, read_mib, write_mib),
    entry!("pinned_max_round_threshold_mb", pinned.max_round_threshold, read_some_mib, write_some_mib),
    entry!("pinned_max_cached_size_mb", pinned.max_cached_size, read_some_mib, write_some_mib),
];

/// Parses options as changes to the defaults, like [`AllocatorOptions::with`].
impl FromStr for AllocatorOptions {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::default().with(text)
    }
}

/// Formats the options that differ from the defaults, under PyTorch's names and in a fixed order.
impl Display for AllocatorOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let default = Self::default();
        let mut separator = "";
        for entry in ENTRIES {
            let value = (entry.write)(self);
            if value != (entry.write)(&default) {
                write!(f, "{separator}{}:{value}", entry.name)?;
                separator = ",";
            }
        }
        Ok(())
    }
}

/// Returns the text of one option's value.
pub(super) fn value_of(options: &AllocatorOptions, name: &str) -> String {
    ENTRIES.iter().find(|entry| entry.name == name).map(|entry| (entry.write)(options)).unwrap_or_default()
}

pub(super) fn bad(option: &str, value: impl Into<String>, reason: impl Into<String>) -> Error {
    Error::AllocatorOption { option: option.to_owned(), value: value.into(), reason: reason.into() }
}

/// Applies the text to the options and checks them.
pub(super) fn apply(options: &mut AllocatorOptions, text: &str) -> Result<()> {
    let pairs = pairs(text)?;
    for (name, value) in &pairs {
        if let Some(option) = WITHOUT_EFFECT.iter().position(|known| known == name) {
            warn(option);
            continue;
        }
        let entry = ENTRIES.iter().find(|entry| entry.name == *name).ok_or_else(|| unknown(name))?;
        (entry.read)(options, value).map_err(|reason| bad(name, *value, reason))?;
    }
    options.check().map_err(|error| as_written(error, &pairs))
}

/// Replaces the name and the value in the error with the spelling used in the text.
fn as_written(error: Error, pairs: &[(&str, &str)]) -> Error {
    match error {
        Error::AllocatorOption { option, value, reason } => {
            match pairs.iter().rfind(|(name, _)| *name == option) {
                Some((name, value)) => bad(name, *value, reason),
                None => Error::AllocatorOption { option, value, reason },
            }
        }
        other => other,
    }
}

/// Splits text into names and values. A trailing comma is allowed, as in PyTorch.
fn pairs(text: &str) -> Result<Vec<(&str, &str)>> {
    let mut pairs = Vec::new();
    if text.trim().is_empty() {
        return Ok(pairs);
    }
    let mut rest = text.trim();
    while !rest.is_empty() {
        let (item, after) = split_item(rest)?;
        let (name, value) = name_and_value(item);
        if name.is_empty() {
            return Err(bad(name, value, format!("a name is missing before `{rest}`; write `name:value`")));
        }
        if value.is_empty() {
            return Err(bad(name, value, format!("a value is missing; write `{name}:value`")));
        }
        pairs.push((name, value));
        rest = after;
    }
    Ok(pairs)
}

/// Splits at the first comma outside brackets.
fn split_item(text: &str) -> Result<(&str, &str)> {
    let mut inside = false;
    for (at, character) in text.char_indices() {
        let reason = match character {
            '[' if inside => "a list within a list",
            ']' if !inside => "a `]` without its `[`",
            ',' if !inside => return Ok((text[..at].trim(), text[at + 1..].trim_start())),
            '[' | ']' => {
                inside = !inside;
                continue;
            }
            _ => continue,
        };
        let (name, value) = name_and_value(&text[..=at]);
        return Err(bad(name, value, reason));
    }
    if inside {
        let (name, value) = name_and_value(text);
        return Err(bad(name, value, "the `]` of the list is missing"));
    }
    Ok((text.trim(), ""))
}

/// Warns once about an option without effect.
fn warn(option: usize) {
    static WARNED: [AtomicBool; WITHOUT_EFFECT.len()] =
        [const { AtomicBool::new(false) }; WITHOUT_EFFECT.len()];
    if !WARNED[option].swap(true, Ordering::Relaxed) {
        tracing::warn!(
            "allocator option `{}` is a PyTorch option without effect in Warpsmith",
            WITHOUT_EFFECT[option]
        );
    }
}

/// Creates the error for an unknown name. The error lists a similar name, if any, and all valid names.
fn unknown(name: &str) -> Error {
    let distance = |entry: &&Entry| strsim::osa_distance(name, entry.name);
    let nearest = ENTRIES.iter().min_by_key(distance).filter(|entry| distance(entry) <= entry.name.len() / 3);
    let hint = nearest.map(|entry| format!("did you mean `{}`? ", entry.name)).unwrap_or_default();
    let names: Vec<&str> = ENTRIES.iter().map(|entry| entry.name).collect();
    let known = format!("{hint}the options are {}", names.join(", "));
    Error::UnknownAllocatorOption { option: name.to_owned(), known }
}

#[cfg(test)]
mod tests {
    use super::super::value::THRESHOLD_RANGE;
    use super::super::{Backend, MIB, PinnedOptions};
    use super::*;

    fn parse(text: &str) -> AllocatorOptions {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    fn refusal(text: &str) -> String {
        text.parse::<AllocatorOptions>().map(|_| text).unwrap_err().to_string()
    }

    /// Asserts that each text is rejected for the given option, value and reason.
    fn assert_refused(option: &str, cases: &[(&str, &str)]) {
        for (value, reason) in cases {
            let expected = format!("allocator option `{option}`: invalid value `{value}`: {reason}");
            assert_eq!(refusal(&format!("{option}:{value}")), expected);
        }
    }

    #[test]
    fn every_option_is_read_into_its_field() {
        let text = "backend:cudaMallocAsync, caching:False, large_segment_size_mb:32, max_split_size_mb:64,\
            max_non_split_rounding_mb:24, roundup_power2_divisions:8, garbage_collection_threshold:0.8,\
            expandable_segments:True, per_process_memory_fraction:0.25,\
            throw_on_cudamalloc_oom:True,\
            pinned_use_background_threads:True, pinned_reserve_segment_size_mb:5,\
            pinned_max_round_threshold_mb:6, pinned_max_cached_size_mb:7";
        let expected = AllocatorOptions {
            backend: Backend::StreamOrdered,
            caching: false,
            max_split_size: Some(64 << 20),
            max_non_split_rounding: 24 << 20,
            large_segment_size: 32 << 20,
            roundup_power2_divisions: [8; 16],
            garbage_collection_threshold: 0.8,
            expandable_segments: true,
            per_process_memory_fraction: 0.25,
            throw_on_cudamalloc_oom: true,
            pinned: PinnedOptions {
                use_background_threads: true,
                reserve_segment_size: 5 << 20,
                max_round_threshold: Some(6 << 20),
                max_cached_size: Some(7 << 20),
            },
        };
        assert_eq!(parse(text), expected);
        let words = |text: &str| text.split(',').map(|pair| pair.trim().to_owned()).collect::<Vec<_>>();
        assert_eq!(words(&expected.to_string()), words(text), "every option is written");
    }

    #[test]
    fn only_what_differs_from_the_defaults_is_written() {
        assert_eq!(AllocatorOptions::default().to_string(), "");
        assert_eq!(parse("max_non_split_rounding_mb:20,expandable_segments:False").to_string(), "");
        assert_eq!(parse(" expandable_segments : True , ").to_string(), "expandable_segments:True");
    }

    #[test]
    fn text_changes_named_options_the_last_one_counts() {
        let base = parse("expandable_segments:True,max_split_size_mb:100");
        let changed = base.with("max_split_size_mb:30,max_split_size_mb:40").unwrap();
        assert_eq!(changed.to_string(), "max_split_size_mb:40,expandable_segments:True");
        assert_eq!(base.with("").unwrap(), base);
        assert!(refusal("max_split_size_mb:5,max_split_size_mb:06").contains("invalid value `06`"));
    }

    #[test]
    fn booleans_are_exactly_true_or_false() {
        for entry in ENTRIES {
            if ["True", "False"].contains(&(entry.write)(&AllocatorOptions::default()).as_str()) {
                let reason = "must be `True` or `False`";
                assert_refused(entry.name, &[("true", reason), ("1", reason), ("TRUE", reason)]);
            }
        }
    }

    #[test]
    fn the_split_limit_is_at_least_a_large_segment() {
        assert_refused("max_split_size_mb", &[("19", "must be at least large_segment_size_mb (20)")]);
        assert_eq!(parse("max_split_size_mb:20").max_split_size, Some(20 * MIB));
        assert_eq!(parse("max_split_size_mb:2,large_segment_size_mb:2").max_split_size, Some(2 * MIB));
        for text in
            ["max_split_size_mb:30,large_segment_size_mb:40", "large_segment_size_mb:40,max_split_size_mb:30"]
        {
            assert!(
                refusal(text).ends_with("invalid value `30`: must be at least large_segment_size_mb (40)")
            );
        }
    }

    #[test]
    fn the_other_sizes_have_their_least_values() {
        assert_refused(
            "large_segment_size_mb",
            &[("0", "must be more than 1"), ("1", "must be more than 1")],
        );
        assert_refused("max_non_split_rounding_mb", &[("19", "must be at least 20")]);
        assert_eq!(parse("large_segment_size_mb:2").large_segment_size, 2 * MIB);
    }

    #[test]
    fn the_garbage_collection_threshold_is_between_0_and_1() {
        let reason = THRESHOLD_RANGE;
        let wrong = ["0", "1", "1.2", "-0.5", "NaN", "inf"].map(|value| (value, reason));
        assert_refused("garbage_collection_threshold", &wrong);
        assert_refused("garbage_collection_threshold", &[("0.5x", "must be a number")]);
        assert!(refusal("garbage_collection_threshold:-0.0").ends_with(reason));
    }

    #[test]
    fn the_memory_fraction_is_from_0_to_1() {
        let reason = "must be from 0 to 1";
        assert_refused("per_process_memory_fraction", &[("1.01", reason), ("-0.1", reason), ("NaN", reason)]);
        assert_eq!(parse("per_process_memory_fraction:0").per_process_memory_fraction, 0.0);
        assert_eq!(parse("per_process_memory_fraction:1").to_string(), "");
    }

    #[test]
    fn malformed_text_is_named() {
        let start = "allocator option `expandable_segments`: invalid value";
        let missing = "a value is missing; write `expandable_segments:value`";
        assert_eq!(refusal("expandable_segments"), format!("{start} ``: {missing}"));
        assert_eq!(refusal("expandable_segments:,caching:True"), format!("{start} ``: {missing}"));
        assert!(
            refusal("expandable_segments:True;caching:True")
                .starts_with(&format!("{start} `True;caching:True`"))
        );
        assert!(refusal("expandable_segments:True:True").starts_with(&format!("{start} `True:True`")));
        assert_eq!(refusal("expandable_segments:True]"), format!("{start} `True]`: a `]` without its `[`"));
        assert_eq!(
            refusal("roundup_power2_divisions:[256:1,caching:True"),
            "allocator option `roundup_power2_divisions`: invalid value `[256:1,caching:True`: the `]` of the \
             list is missing"
        );
        assert!(refusal("roundup_power2_divisions:[[256:1]]").ends_with("`[[`: a list within a list"));
        for text in [",", "caching:True,,caching:True", ":True", "caching:True,,"] {
            assert!(refusal(text).contains("a name is missing before `"), "{}", refusal(text));
        }
    }

    #[test]
    fn an_unknown_name_is_told_the_nearest_and_all() {
        let error = refusal("max_split_size:64");
        assert!(
            error.starts_with(
                "unknown allocator option `max_split_size`; did you mean `max_split_size_mb`? the options \
                 are backend, caching, "
            ),
            "{error}"
        );
        assert!(refusal("Expandable_segment:True").contains("did you mean `expandable_segments`?"));
        let error = refusal("foo:1");
        assert!(error.starts_with("unknown allocator option `foo`; the options are backend, "), "{error}");
        assert!(ENTRIES.iter().all(|entry| error.contains(entry.name)));
    }

    #[test]
    fn options_without_effect_change_nothing() {
        for name in WITHOUT_EFFECT {
            let options = parse(&format!("{name}:whatever,max_split_size_mb:64"));
            assert_eq!(options, parse("max_split_size_mb:64"));
            assert!(refusal(&format!("{name}:1,foo:1")).starts_with("unknown allocator option `foo`"));
        }
    }

    #[test]
    fn what_is_written_reads_back_as_it_was() {
        for text in [
            "roundup_power2_divisions:[1:2,2:4,4:4,8:1,>:0]",
            "roundup_power2_divisions:[>:1]",
            "roundup_power2_divisions:1",
            "garbage_collection_threshold:0.000000001,per_process_memory_fraction:0.1",
            "max_split_size_mb:1073741824,pinned_max_cached_size_mb:0",
        ] {
            let options = parse(text);
            assert_eq!(parse(&options.to_string()), options, "{text}");
        }
    }
}
