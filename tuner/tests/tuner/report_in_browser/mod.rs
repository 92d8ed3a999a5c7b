//! The report in headless Chromium. The tests check what it draws, what its controls do, and that it does nothing else.
//! The checks are in `checks.js`.

mod fixtures;

use fixtures::{BLOCKS, GRIDS, ITEMS, NOT_CORRECT, SAMPLES, SIZES, bad, document, many, record, usual};
use serde_json::{Value, json};
use warpsmith_tuner::document::{Document, Outcome};
use warpsmith_tuner::report::html;

use crate::browser;

/// Runs a check on the pages of documents.
fn check(name: &str, pages: &[(&str, Vec<Document>)], facts: Value) {
    let pages = pages.iter().map(|(name, documents)| ((*name).to_owned(), html(documents)));
    browser::check(include_str!("checks.js"), name, pages.collect(), facts);
}

fn facts() -> Value {
    json!({
        "blocks": BLOCKS.len(), "grids": GRIDS.len(), "items": ITEMS.len(), "sizes": SIZES.len(),
        "samples": SAMPLES, "not_correct": NOT_CORRECT,
    })
}

#[test]
#[ignore = "needs Chromium: cargo xtask test installs it"]
fn plots_and_controls_of_a_usual_document_work() {
    for name in ["marks", "sorting", "filters", "names"] {
        check(name, &[("usual", vec![usual()])], facts());
    }
}

#[test]
#[ignore = "needs Chromium: cargo xtask test installs it"]
fn ten_thousand_records_stay_usable() {
    check("many", &[("many", vec![many()])], Value::Null);
}

#[test]
#[ignore = "needs Chromium: cargo xtask test installs it"]
fn chosen_configurations_are_marked_before_faster_ones() {
    let mut document = usual();
    for record in document.results.iter_mut().filter(|record| record.kernel == "copy") {
        let configuration = record.configuration.to_string();
        record.is_winner =
            ["block=64", "items=1", "waves:1"].iter().all(|value| configuration.contains(value));
    }
    check("chosen", &[("chosen", vec![document])], facts());
}

#[test]
#[ignore = "needs Chromium: cargo xtask test installs it"]
fn hostile_text_is_only_shown() {
    const HOSTILE: &str =
        "</script><!--<img src=x onerror=\"document.title='taken'\"><script>document.title='taken'</script>";
    let mut records = Vec::new();
    for outcome in [Outcome::Correct, Outcome::Incorrect, Outcome::Crashed] {
        let mut record = record(HOSTILE, 2, 1 << 20, 64, 1, "auto");
        record.configuration = record.configuration.with("__proto__", HOSTILE).with(HOSTILE, "constructor");
        record.dtype = HOSTILE.into();
        records.push(bad(record, outcome, HOSTILE));
    }
    let mut document = document(records);
    document.device.name = HOSTILE.into();
    document.device.before.throttle_reasons = vec![HOSTILE.into()];
    document.run.toolchain = HOSTILE.into();
    document.probes[0].name = HOSTILE.into();
    check("hostile", &[("hostile", vec![document])], json!({ "text": HOSTILE }));
}

#[test]
#[ignore = "needs Chromium: cargo xtask test installs it"]
fn unusual_documents_fit_phones_and_wide_screens() {
    let one = record("copy", 2, 1 << 20, 256, 4, "auto");
    let mut long = one.clone();
    long.kernel = "a_kernel_with_a_name_".repeat(12);
    long.configuration = long.configuration.with(&"axis".repeat(30), "value".repeat(30));
    let wrong = bad(one.clone(), Outcome::Incorrect, "all elements are incorrect");
    let crashed = bad(one.clone(), Outcome::Crashed, "signal 11");
    let mut bare = one.clone();
    (bare.bytes, bare.flops, bare.probe_us, bare.configuration) = (0, 0, None, Default::default());
    let mut few = one.clone();
    few.timing.as_mut().unwrap().samples_us = vec![3.0];
    let mut emulated = document(vec![one.clone()]);
    (emulated.device.emulated, emulated.device.memory_gbps, emulated.run.interrupted) = (true, None, true);
    emulated.probes.clear();
    let pages = [
        ("none", vec![], 0, "No documents were given"),
        ("empty", vec![document(vec![])], 0, "no results"),
        ("one", vec![document(vec![one.clone()])], 4, "all results correct"),
        ("long", vec![document(vec![long])], 4, "…"),
        ("incorrect", vec![document(vec![wrong, crashed])], 2, "No correct result"),
        ("bare", vec![document(vec![bare])], 2, "no axes"),
        ("few", vec![document(vec![few])], 4, "–"),
        ("emulated", vec![emulated], 4, "say nothing about a GPU"),
        ("two", vec![usual(), document(vec![one])], 8, "run 2"),
    ];
    let expected: Vec<_> =
        pages.iter().map(|(name, _, figures, words)| json!([name, figures, words])).collect();
    check("unusual", &pages.map(|(name, documents, ..)| (name, documents)), json!({ "expected": expected }));
}
