use super::*;
use crate::document::tests::{document, record};

/// Adds 30 samples around `us` microseconds that vary by a few tenths of a percent.
fn timed(mut record: Record, us: f64) -> Record {
    let timing = record.timing.get_or_insert_with(|| unreachable!("records of tests have times"));
    timing.samples_us = (0..30).map(|i| us * (1.0 + f64::from(i * 7 % 10) / 2000.0)).collect();
    record
}

/// Returns a correct record of `ms` milliseconds, which is long enough that the difference between processes is
/// negligible.
fn correct(kernel: &str, block: u32, ms: f64) -> Record {
    let us = ms * 1000.0;
    timed(record(kernel, block, us, Outcome::Correct), us)
}

fn compare(old: Vec<Record>, new: Vec<Record>) -> Comparison {
    documents(&document(old), &document(new), &Options::default()).unwrap()
}

fn changes(comparison: &Comparison) -> Vec<Change> {
    comparison.rows.iter().map(|row| row.change).collect()
}

#[test]
fn changes_are_those_of_the_times() {
    let old = vec![correct("copy", 128, 10.0), correct("copy", 256, 10.0), correct("axpy", 128, 10.0)];
    let new = vec![correct("axpy", 128, 10.001), correct("copy", 128, 9.0), correct("copy", 256, 10.5)];
    let comparison = compare(old, new);
    assert_eq!(changes(&comparison), [Change::Faster, Change::Slower, Change::Same], "in the old order");
    assert!(comparison.has_regression());
    let ratio = comparison.rows[1].ratio.unwrap();
    assert!((ratio.value - 1.05).abs() < 1e-9 && ratio.interval.contains(ratio.value));
    let means: Vec<_> = comparison.means.iter().map(|mean| (mean.kernel.as_str(), mean.rows)).collect();
    assert_eq!(means, [("axpy", 1), ("copy", 2)]);
    assert!((comparison.means[1].ratio - (0.9f64 * 1.05).sqrt()).abs() < 1e-9);
    assert!(
        comparison.notes.len() == 1 && comparison.notes[0].contains("the difference between processes"),
        "{:?}",
        comparison.notes
    );
}

#[test]
fn differences_between_processes_are_ambiguous_on_gpus() {
    let record = |us: f64| vec![timed(record("copy", 128, us, Outcome::Correct), us)];
    let (old, slower, much_slower) = (document(record(3.0)), document(record(3.2)), document(record(3.5)));
    let change =
        |new: &Document, old: &Document| documents(old, new, &Options::default()).unwrap().rows[0].change;
    assert_eq!(change(&slower, &old), Change::Ambiguous);
    assert_eq!(change(&old, &slower), Change::Ambiguous);
    assert_eq!(change(&much_slower, &old), Change::Slower);
    assert_eq!(change(&old, &much_slower), Change::Faster);
    let on_cpu = |document: &Document| {
        let mut document = document.clone();
        document.device.emulated = true;
        document
    };
    assert_eq!(change(&on_cpu(&slower), &on_cpu(&old)), Change::Slower);
}

#[test]
fn the_threshold_decides_what_counts() {
    let (old, new) = (document(vec![correct("copy", 128, 10.0)]), document(vec![correct("copy", 128, 10.2)]));
    for (threshold, change) in [(0.01, Change::Slower), (0.05, Change::Same), (0.02, Change::Ambiguous)] {
        let found = documents(&old, &new, &Options { threshold, ..Options::default() }).unwrap();
        assert_eq!(found.rows[0].change, change, "{threshold} {:?}", found.rows[0].ratio);
    }
    for threshold in [-0.1, 1.0, f64::NAN] {
        let error = documents(&old, &new, &Options { threshold, ..Options::default() }).unwrap_err();
        assert!(error.to_string().contains("threshold"), "{error}");
    }
}

#[test]
fn best_compares_whatever_the_configurations() {
    let old = document(vec![correct("copy", 128, 10.0), correct("copy", 256, 9.0)]);
    let new = document(vec![correct("copy", 128, 10.0), correct("copy", 512, 8.0)]);
    let best = documents(&old, &new, &Options { best: true, ..Options::default() }).unwrap();
    assert_eq!(changes(&best), [Change::Faster]);
    assert_eq!(best.rows[0].new.configuration.number("block").unwrap(), 512);
    let same = documents(&old, &new, &Options::default()).unwrap();
    assert_eq!(changes(&same), [Change::Same]);
    assert_eq!(same.notes.len(), 3, "each document has a record of its own: {:?}", same.notes);
}

#[test]
fn the_whole_interval_must_be_beyond_the_threshold() {
    for (low, high, change) in [
        (1.011, 1.2, Change::Slower),
        (0.8, 0.98, Change::Faster),
        (0.995, 1.005, Change::Same),
        (1.0, 1.02, Change::Ambiguous),
        (0.98, 1.0, Change::Ambiguous),
        (0.9, 1.1, Change::Ambiguous),
        (1.01, 1.02, Change::Ambiguous),
        (f64::NAN, f64::NAN, Change::Ambiguous),
    ] {
        assert_eq!(Change::of(Interval { low, high }, 0.01), change, "{low} {high}");
        let exchanged = match change {
            Change::Faster => Change::Slower,
            Change::Slower => Change::Faster,
            same => same,
        };
        assert_eq!(
            Change::of(Interval { low: 1.0 / high, high: 1.0 / low }, 0.01),
            exchanged,
            "{low} {high}"
        );
    }
}

#[test]
fn no_longer_right_is_a_regression() {
    for outcome in [Outcome::Incorrect, Outcome::Failed, Outcome::Crashed] {
        let mut bad = record("copy", 128, 10.0, outcome);
        bad.timing = bad.timing.filter(|_| outcome == Outcome::Incorrect);
        let old = vec![correct("copy", 128, 10.0)];
        let broken = compare(old.clone(), vec![bad.clone()]);
        assert_eq!(changes(&broken), [Change::Broken]);
        assert!(broken.has_regression() && !broken.rows[0].new.problem.is_empty());
        assert_eq!(broken.rows[0].new.median_us, None);
        let fixed = compare(vec![bad.clone()], old);
        assert_eq!(changes(&fixed), [Change::Fixed]);
        assert!(!fixed.has_regression() && fixed.means.is_empty());
        let never = compare(vec![bad.clone()], vec![bad]);
        assert!(never.rows.is_empty() && never.notes[0].contains("no correct result"));
    }
}

#[test]
fn modes_are_separate_and_the_last_measurement_counts() {
    let mut hot = correct("copy", 128, 5.0);
    hot.timing.as_mut().unwrap().mode = Mode::Hot;
    let old = vec![correct("copy", 128, 7.0), hot.clone(), correct("copy", 128, 10.0)];
    let both = compare(old.clone(), vec![correct("copy", 128, 20.0), hot, correct("copy", 128, 10.0)]);
    assert_eq!(changes(&both), [Change::Same, Change::Same]);
    assert_eq!(both.rows.iter().map(|row| row.mode).collect::<Vec<_>>(), [Mode::Hot, Mode::Cold]);
    assert_eq!(changes(&compare(old, vec![correct("copy", 128, 10.0)])), [Change::Same]);
}

#[test]
fn too_few_samples_are_ambiguous_with_a_note() {
    let few = record("copy", 128, 10.0, Outcome::Correct);
    let found = compare(vec![few], vec![correct("copy", 128, 20.0)]);
    assert_eq!((found.rows[0].change, found.rows[0].ratio), (Change::Ambiguous, None));
    assert!(found.notes[0].contains("fewer than 6 samples"), "{:?}", found.notes);
    assert!(!found.has_regression());
}

#[test]
fn throttled_rows_and_other_drivers_are_noted() {
    let mut throttled = correct("copy", 128, 20.0);
    throttled.timing.as_mut().unwrap().throttled = true;
    let (old, mut new) = (document(vec![correct("copy", 128, 10.0)]), document(vec![throttled]));
    new.device.driver = "590.1".into();
    new.run.toolchain = "rustc 1.97".into();
    new.run.version = "9.9".into();
    new.run.interrupted = true;
    let found = documents(&old, &new, &Options::default()).unwrap();
    let notes = found.notes.join("\n");
    for words in ["driver differs", "590.1", "toolchain", "version", "clocks were low"] {
        assert!(notes.contains(words), "{words}: {notes}");
    }
    let json: serde_json::Value = serde_json::from_str(&found.to_json()).unwrap();
    assert_eq!(json["old"]["device"]["driver"], "580.95");
    assert_eq!(
        (&json["new"]["device"]["driver"], &json["new"]["run"]["version"]),
        (&"590.1".into(), &"9.9".into())
    );
    assert!(found.rows[0].new.throttled && !found.rows[0].old.throttled);
    assert_eq!(found.rows[0].change, Change::Ambiguous, "twice the time, of a throttled device");
    assert!(!found.has_regression());
    let backwards = documents(&new, &old, &Options::default()).unwrap();
    assert_eq!(backwards.rows[0].change, Change::Ambiguous);
}

#[test]
fn documents_of_different_devices_are_refused_unless_forced() {
    let old = document(vec![correct("copy", 128, 10.0)]);
    for change in [
        (|device: &mut DeviceInfo| device.name = "NVIDIA H100".into()) as fn(&mut DeviceInfo),
        |device| device.capability = "8.0".into(),
        |device| device.multiprocessors = 1,
        |device| device.emulated = true,
    ] {
        let mut new = old.clone();
        change(&mut new.device);
        let error = documents(&old, &new, &Options::default()).unwrap_err();
        assert!(error.is_usage_error() && error.to_string().contains("--force"), "{error}");
        let forced = documents(&old, &new, &Options { force: true, ..Options::default() }).unwrap();
        assert!(forced.notes[0].contains("different devices"), "{:?}", forced.notes);
    }
    // The same device in a different slot must count as the same kind of device.
    let mut other = old.clone();
    other.device.id = "cuda:7".into();
    assert!(documents(&old, &other, &Options::default()).is_ok());
}

#[test]
fn schemas_and_documents_without_pairs_are_refused() {
    let old = document(vec![correct("copy", 128, 10.0)]);
    let mut new = old.clone();
    new.schema = 1;
    let error = documents(&old, &new, &Options { force: true, ..Options::default() }).unwrap_err();
    assert!(error.to_string().contains("schema 1"), "{error}");
    for other in [vec![], vec![correct("axpy", 128, 10.0)], vec![correct("copy", 256, 10.0)]] {
        let error = documents(&old, &document(other), &Options::default()).unwrap_err();
        assert!(error.to_string().contains("--best"), "{error}");
    }
}

#[test]
fn missing_results_are_listed() {
    let old = document(vec![
        correct("copy", 128, 10.0),
        correct("copy", 256, 10.0),
        correct("axpy", 128, 10.0),
        record("mul", 128, 10.0, Outcome::Incorrect),
    ]);
    let whole = document(vec![correct("copy", 128, 10.0), correct("axpy", 128, 10.0)]);
    let none = documents(&old, &whole, &Options::default()).unwrap();
    assert_eq!(
        none.missing,
        Vec::<String>::new(),
        "a case needs one partner, an incorrect record needs none"
    );
    let mut part = document(vec![correct("copy", 128, 10.0)]);
    part.run.interrupted = true;
    for best in [false, true] {
        let found = documents(&old, &part, &Options { best, ..Options::default() }).unwrap();
        assert_eq!(found.missing.len(), 2, "{:?}", found.missing);
        assert!(found.missing[0].contains("ended early"), "{:?}", found.missing);
        assert!(found.missing[1].contains("axpy f32 2^16 cold"), "{:?}", found.missing);
        assert!(!found.has_regression());
    }
    let back = documents(&part, &old, &Options::default()).unwrap();
    assert!(back.missing.is_empty() && back.notes.iter().any(|note| note.contains("first document")));
}

#[test]
fn the_summary_counts_verdicts() {
    let old = vec![
        correct("copy", 128, 10.0),
        correct("axpy", 128, 10.0),
        record("mul", 128, 9.0, Outcome::Incorrect),
    ];
    let new = vec![correct("copy", 128, 11.0), correct("axpy", 128, 10.0), correct("mul", 128, 10.0)];
    let found = compare(old, new);
    assert_eq!(found.summary(), "3 compared at a threshold of 1 %: 1 slower, 1 same, 1 fixed");
    let small = Comparison { threshold: 0.0001 / 100.0, ..found }.summary();
    assert!(small.contains("at a threshold of 0.0001 %: "), "{small}");
}
