//! Tests of allocator options as text: accepted values, and rejected values with the reason.

use crate::common::device;
use warpsmith_runtime::{AllocatorOptions, DeviceBuffer};

const MIB: u64 = 1 << 20;

fn parse(text: &str) -> AllocatorOptions {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Asserts that each text is rejected with an error that names the option, the value and the given reason.
#[track_caller]
fn assert_refused(option: &str, cases: &[(&str, &str)]) {
    for (value, reason) in cases {
        let expected = format!("allocator option `{option}`: invalid value `{value}`: {reason}");
        let refusal = format!("{option}:{value}").parse::<AllocatorOptions>().unwrap_err();
        assert_eq!(refusal.to_string(), expected);
    }
}

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
fn one_division_rounds_as_none() {
    for (text, expected) in [
        ("1", [1; 16]),
        ("[>:1]", [1; 16]),
        ("[256:1,512:2,>:1]", [1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 1, 1, 1, 1, 1, 1]),
    ] {
        let options = parse(&format!("roundup_power2_divisions:{text}"));
        assert_eq!(options.roundup_power2_divisions, expected, "{text}");
        assert_eq!(parse(&options.to_string()), options, "{text}");
        let (_, device) = device();
        device.memory().set_options(options).unwrap();
        let buffer = DeviceBuffer::<u8>::uninit(&device.default_stream(), 5 << 20 | 1).unwrap();
        assert_eq!(device.memory().allocated(), (5 << 20) + 512, "{text}");
        drop(buffer);
    }
}

#[test]
fn wrong_divisions_are_refused() {
    let power = |number: u32| format!("{number} divisions: must be a power of 2, or 0 for no rounding");
    assert_refused(
        "roundup_power2_divisions",
        &[
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
            ("[256:2,256:4]", "in `256:4`: the sizes must be in ascending order"),
            ("[>:2,256:4]", "`>` must come last"),
        ],
    );
}
