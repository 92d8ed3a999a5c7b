//! Tests the page of a trace in headless Chromium. The checks are in `checks.js`.

use serde_json::{Value, json};
use warpsmith_trace::*;

use crate::browser;
use crate::fixture::{launches, step};
use crate::page::{HOSTILE, hostile};

fn check(name: &str, pages: &[(&str, String)], facts: Value) {
    let pages = pages.iter().map(|(name, page)| ((*name).to_owned(), page.clone()));
    browser::check(include_str!("checks.js"), name, pages.collect(), facts);
}

#[test]
#[ignore = "needs Chromium: cargo xtask test installs it"]
fn timeline_zooms_moves_searches_and_selects() {
    check("step", &[("step", step().html("a step"))], Value::Null);
}

#[test]
#[ignore = "needs Chromium: cargo xtask test installs it"]
fn tables_are_sorted_by_their_headers() {
    check("tables", &[("launches", launches(2000).html("launches"))], json!({ "names": 64 }));
}

#[test]
#[ignore = "needs Chromium: cargo xtask test installs it"]
fn many_slices_open_in_time() {
    let pages = [("large", launches(50_000).html("large")), ("reduced", launches(250_000).html("reduced"))];
    check("large", &pages, json!({ "slices": 100_000, "most": 200_000 }));
}

#[test]
#[ignore = "needs Chromium: cargo xtask test installs it"]
fn hostile_names_are_only_shown() {
    check("hostile", &[("hostile", hostile().html(HOSTILE))], json!({ "text": HOSTILE }));
}

#[test]
#[ignore = "needs Chromium: cargo xtask test installs it"]
fn unusual_traces_fit_phones_and_wide_screens() {
    let mut moment = Trace::default();
    let stream = moment.definitions.stream(0, -1);
    moment.push(Record::Kernel(Kernel { start: 5, end: 5, stream, ..Kernel::default() }));
    let mut far = Trace::default();
    let thread = far.definitions.thread(-1, -1);
    for start in [0, u64::MAX - 1] {
        far.push(Record::Range(Range { start, end: u64::MAX, thread, ..Range::default() }));
    }
    let mut deep = Trace::default();
    let thread = deep.definitions.thread(1, 1);
    let name = deep.definitions.names.intern(&"a name without an end ".repeat(200));
    for depth in 0..200 {
        let range = Range { start: depth, end: 1000 - depth, thread, name, ..Range::default() };
        deep.push(Record::Range(range));
    }
    let mut counters = Trace::default();
    let counter = counters.definitions.counter(None, "load", "");
    for (at, value) in [(1, 0.5), (2, -3.0), (3, f64::NAN), (4, 1e300)] {
        counters.push(Record::Sample(Sample { at, counter, value }));
    }
    let pages = [
        ("empty", Trace::default()),
        ("moment", moment),
        ("far", far),
        ("deep", deep),
        ("counters", counters),
        ("step", step()),
    ];
    check("unusual", &pages.map(|(name, trace)| (name, trace.html(name))), Value::Null);
}
