//! Tuning runs on a device with simulated time. The tests check which configuration wins, and which is stored.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::fakes::{Directory, Fake, run, simulated, suite};
use warpsmith_runtime::emulated::{EmulatedDriver, Schedule, SimulatedWork};
use warpsmith_runtime::store::{LaunchStore, TuningKey};
use warpsmith_runtime::{Device, DeviceBuffer, Stream};
use warpsmith_tuner::benchmark::{Probe, Suite, Work};
use warpsmith_tuner::case::Case;
use warpsmith_tuner::document::Outcome;
use warpsmith_tuner::error::{Error, Result};
use warpsmith_tuner::tune::{Totals, Tuning};
use warpsmith_tuner::value::Configuration;
use warpsmith_tuner::verify::Check;

const ALL: usize = usize::MAX;

/// Returns the store key of a winner of the fake kernel.
fn subject(device: &Device, n: u64) -> TuningKey<'_> {
    let (package, kernel, types) = ("fakes", "fake", "f32");
    TuningKey { device: device.properties(), package, kernel, types, image: 0, n, alignment: 16 }
}

/// Returns options that time each of the four well-behaved configurations once, without a race.
fn once() -> Tuning {
    Tuning { trials: Some(4), ..Tuning::default() }
}

#[test]
fn the_fastest_wins_and_the_default_is_first() {
    let (_, device) = simulated();
    let fake = Fake::new(&["errs", "fails"]);
    let seen = fake.seen.clone();
    let outcomes = run(&suite(fake), &device, &[4096], &Tuning::default(), ALL);
    assert_eq!(outcomes.winner(), "block=256 does=well");
    assert_eq!(seen.lock().unwrap()[0], "block=128 does=well");
    let case = &outcomes.cases[0];
    assert!(case.records[0].is_default && case.is_complete);
    assert_eq!(case.records.iter().filter(|record| record.is_winner).count(), 1);
    assert_eq!((case.gain(), case.winner().unwrap().median_us()), (Some(1.5), Some(200.0)));
    assert!(outcomes.notes.is_empty(), "{:?}", outcomes.notes);
}

#[test]
fn unusable_configurations_are_recorded_and_never_timed() {
    let (_, device) = simulated();
    let fake = Fake::new(&["errs", "fails"]);
    let seen = fake.seen.clone();
    let outcomes = run(&suite(fake), &device, &[4096], &Tuning::default(), ALL);
    let wrong = outcomes.record("block=256 does=errs");
    assert_eq!((wrong.outcome, &wrong.timing, wrong.max_error), (Outcome::Incorrect, &None, Some(1.0)));
    let text = "3 of 9 elements are incorrect, first at index 2: 1 instead of 0 ± 5.00e-1 (--seed 7)";
    assert_eq!(wrong.problem, text);
    let failed = outcomes.record("block=256 does=fails");
    assert_eq!((failed.outcome, &failed.timing), (Outcome::Failed, &None));
    assert!(failed.problem.contains("resources"), "{}", failed.problem);
    for trouble in ["block=256 does=errs", "block=256 does=fails"] {
        assert_eq!(seen.lock().unwrap().iter().filter(|seen| *seen == trouble).count(), 1);
    }
    assert_eq!(outcomes.cases[0].records.len(), 6);
}

#[test]
fn an_incorrect_default_does_not_win() {
    let (_, device) = simulated();
    let suite = suite(Fake::new(&[]));
    let request = warpsmith_tuner::run::Request {
        axes: vec![("block".into(), vec![64u32.into()])],
        ..super::fakes::request(&[64])
    };
    let mut plan = warpsmith_tuner::run::Plan::new(&suite, &device, &request).unwrap();
    plan.cases[0].configurations[0] = "block=256 does=errs".parse().unwrap();
    let mut winner = None;
    let stop = std::sync::Arc::default();
    warpsmith_tuner::tune::tune(&plan, &Tuning::default(), &stop, &mut |event| {
        if let warpsmith_tuner::tune::Event::Done { tuned, .. } = event {
            winner = tuned.winner().map(|record| record.configuration.to_string());
        }
    })
    .unwrap();
    assert_eq!(winner.as_deref(), Some("block=64 does=well"));
}

#[test]
fn the_winner_is_what_launches_find() {
    let (_, device) = simulated();
    let suite = suite(Fake::new(&[]));
    run(&suite, &device, &[4096], &Tuning::default(), ALL);
    let subject = subject(&device, 4096);
    let tuned = LaunchStore::of(&device).tuned(&subject).unwrap();
    assert_eq!((tuned.value("block"), tuned.symbol.as_deref()), (Some("256"), Some("fake__f32")));
    assert_eq!(tuned.median_us, 200.0);
}

/// Returns the `block` and `does` of the configuration that launches on a device use.
fn found(device: &Device) -> Option<String> {
    let tuned = LaunchStore::of(device).tuned(&subject(device, 64))?;
    Some(format!("{} {}", tuned.value("block")?, tuned.value("does")?))
}

#[test]
fn kept_winners_are_timed_and_stay_unless_slower() {
    let (_, device) = simulated();
    let few = Tuning { trials: Some(1), ..Tuning::default() };
    let tune = |tuning: &Tuning| {
        let outcomes = run(&suite(Fake::new(&["errs"])), &device, &[64], tuning, ALL);
        assert!(outcomes.notes.is_empty(), "{:?}", outcomes.notes);
        (outcomes.winner(), outcomes.totals.as_ref().unwrap().made)
    };
    let best = || "block=256 does=well".to_owned();
    let whole = tune(&Tuning::default());
    // There are five configurations, and a race of the best one and the default.
    assert_eq!((whole, found(&device).as_deref()), ((best(), 9), Some("256 well")));
    // The budget only covers the default, but the stored configuration is also timed.
    assert_eq!(tune(&few), (best(), 2));
    assert_eq!(found(&device).as_deref(), Some("256 well"));

    let keep = |values: [(&str, &str); 2], toolchain: &str| {
        let subject = subject(&device, 64);
        let mut kept = (*LaunchStore::of(&device).tuned(&subject).unwrap()).clone();
        kept.values = values.map(|(axis, value)| (axis.to_owned(), value.to_owned())).into();
        if !toolchain.is_empty() {
            kept.toolchain = toolchain.to_owned();
        }
        LaunchStore::of(&device).store_tuned(&subject, kept).unwrap();
    };
    // If it is slower than the default, or incorrect, it is timed and loses. If it is from another toolchain, it cannot
    // be compared with the current code.
    for (values, toolchain, made) in [
        ([("block", "64"), ("does", "well")], "", 2),
        ([("block", "256"), ("does", "errs")], "", 2),
        ([("block", "256"), ("does", "well")], "another", 1),
    ] {
        keep(values, toolchain);
        assert_eq!(tune(&few), ("block=128 does=well".to_owned(), made), "{values:?}");
        assert_eq!(found(&device).as_deref(), Some("128 well"), "{values:?}");
    }
}

/// Creates a device like [`simulated`], but blocks of 256 are the fastest in the first case and blocks of 64 in the
/// others.
fn by_case() -> Device {
    let cases = AtomicU32::new(0);
    let model = move |work: &SimulatedWork<'_>| match work {
        // This is the buffer of a case.
        SimulatedWork::Set { bytes: 4096 } => f64::from(cases.fetch_add(1, Ordering::Relaxed).min(1)),
        SimulatedWork::Set { bytes: 400 } if cases.load(Ordering::Relaxed) > 1 => 150.0,
        SimulatedWork::Set { bytes } => *bytes as f64,
        _ => 1.0,
    };
    let driver = EmulatedDriver::builder().stepped(Schedule::Oldest).simulated_time(model).build();
    Device::with_driver(driver, 0).unwrap()
}

#[test]
fn ranges_keep_the_winner_of_the_largest_size() {
    let directory = Directory::new("range");
    for _ in 0..2 {
        let device = by_case();
        warpsmith_runtime::store::open(&directory.0).install(&device);
        let sizes = [1500, 1024, 1100, 2048];
        let outcomes = run(&suite(Fake::new(&[])), &device, &sizes, &Tuning::default(), ALL);
        let winners: Vec<String> = outcomes
            .cases
            .iter()
            .map(|case| case.winner().unwrap().configuration.get("block").unwrap().to_string())
            .collect();
        assert_eq!(winners, ["256", "64", "64", "64"]);
        assert_eq!(outcomes.totals.unwrap().kept, 2, "{:?}", outcomes.notes);
        let block =
            |n| LaunchStore::of(&device).tuned(&subject(&device, n))?.value("block").map(str::to_owned);
        assert_eq!([1024, 1100, 1500, 2048].map(block).map(Option::unwrap), ["256", "256", "256", "64"]);
        let lines = fs::read_to_string(directory.0.join("launches.jsonl")).unwrap();
        assert_eq!(lines.lines().count(), 2, "a line for each winner that changes: {lines}");
    }
}

#[test]
fn an_ended_run_keeps_no_winner_of_an_unfinished_case() {
    let (_, device) = simulated();
    let suite = suite(Fake::new(&[]));
    let ended = run(&suite, &device, &[4096, 65536], &once(), 3);
    let totals = ended.totals.unwrap();
    assert_eq!(totals, Totals { made: 3, kept: 0, interrupted: true });
    assert_eq!((ended.cases.len(), ended.cases[0].records.len()), (1, 3));
    assert!(!ended.cases[0].is_complete && ended.cases[0].winner.is_some());
    assert_eq!(LaunchStore::of(&device).tuned_len(), 0, "not all was measured");
    let again = run(&suite, &device, &[4096, 65536], &once(), ALL);
    assert_eq!(again.totals.unwrap(), Totals { made: 8, kept: 2, interrupted: false });
    assert_eq!(LaunchStore::of(&device).tuned_len(), 2);
}

#[test]
fn a_limit_ends_a_search_after_the_default() {
    for (trials, made) in [(0, 1), (2, 2)] {
        let (_, device) = simulated();
        let tuning = Tuning { trials: Some(trials), ..Tuning::default() };
        let outcomes = run(&suite(Fake::new(&[])), &device, &[64], &tuning, ALL);
        assert_eq!(outcomes.totals.unwrap().made, made, "{trials}");
        assert!(outcomes.cases[0].is_complete && outcomes.cases[0].winner.is_some());
    }
}

#[test]
fn lost_devices_end_the_run() {
    let (driver, device) = simulated();
    let mut fake = Fake::new(&["stops"]);
    fake.driver = Some(driver);
    let outcomes = run(&suite(fake), &device, &[64], &Tuning::default(), ALL);
    let error = outcomes.totals.as_ref().unwrap_err();
    assert!(matches!(error, Error::Lost { .. }), "{error}");
    let message = error.to_string();
    for words in ["fake f32", "block=256 does=stops", "index out of bounds", "--axis"] {
        assert!(message.contains(words), "{message}");
    }
    assert_eq!(outcomes.record("block=256 does=stops").outcome, Outcome::Crashed);
    assert!(!outcomes.cases[0].is_complete);
}

/// Returns the notes of a run, the number of winners that it reports as stored, and the block size of the winner in the
/// store.
fn kept(device: &Device, request: &warpsmith_tuner::run::Request) -> (Vec<String>, usize, Option<String>) {
    let suite = suite(Fake::new(&[]));
    let plan = warpsmith_tuner::run::Plan::new(&suite, device, request).unwrap();
    let mut notes = Vec::new();
    let stop = std::sync::Arc::default();
    let totals = warpsmith_tuner::tune::tune(&plan, &Tuning::default(), &stop, &mut |event| {
        if let warpsmith_tuner::tune::Event::Note(note) = event {
            notes.push(note.to_owned());
        }
    });
    let subject = subject(device, 64);
    let tuned = LaunchStore::of(device).tuned(&subject);
    (notes, totals.unwrap().kept, tuned.and_then(|tuned| tuned.value("block").map(str::to_owned)))
}

#[test]
fn only_cold_winners_of_whole_spaces_are_kept() {
    use warpsmith_tuner::measure::Mode;
    use warpsmith_tuner::run::Request;

    let (_, device) = simulated();
    let whole = super::fakes::request(&[64]);
    let narrowed = Request { axes: vec![("block".into(), vec![64u32.into()])], ..whole.clone() };
    let (notes, count, block) = kept(&device, &Request { mode: Mode::Hot, ..whole.clone() });
    assert!(
        block.is_none() && count == 0 && notes.len() == 1 && notes[0].contains("--mode cold"),
        "{notes:?}"
    );
    assert_eq!(kept(&device, &narrowed), (Vec::new(), 1, Some("128".to_owned())), "there is no other");
    assert_eq!(kept(&device, &whole), (Vec::new(), 1, Some("256".to_owned())));
    let (notes, count, block) = kept(&device, &narrowed);
    assert_eq!((count, block.as_deref()), (0, Some("256")));
    assert!(notes.len() == 1 && notes[0].contains("--axis"), "{notes:?}");
}

#[test]
fn correct_only_at_first_does_not_win() {
    let (_, device) = simulated();
    let suite = suite(Fake::new(&["wears"]));
    let outcomes = run(&suite, &device, &[64], &Tuning::default(), ALL);
    let worn = outcomes.record("block=256 does=wears");
    assert_eq!((worn.outcome, &worn.timing), (Outcome::Incorrect, &None));
    assert!(worn.problem.contains("after it was timed"), "{}", worn.problem);
    assert_eq!(outcomes.winner(), "block=256 does=well");
    let plan = warpsmith_tuner::run::Plan::new(&suite, &device, &super::fakes::request(&[64])).unwrap();
    let mut outcome = None;
    plan.run(false, &std::sync::Arc::default(), |_, record| {
        if record.configuration.to_string() == "block=256 does=wears" {
            outcome = Some(record.outcome);
        }
    })
    .unwrap();
    assert_eq!(outcome, Some(Outcome::Incorrect));
}

#[test]
fn wrong_after_all_timings_does_not_win() {
    let (_, device) = simulated();
    let outcomes = run(&suite(Fake::new(&["races"])), &device, &[64], &Tuning::default(), ALL);
    let racy = outcomes.record("block=256 does=races");
    assert_eq!((racy.outcome, &racy.timing, racy.is_winner), (Outcome::Incorrect, &None, false));
    assert!(racy.problem.contains("after all trials"), "{}", racy.problem);
    assert_eq!(outcomes.winner(), "block=256 does=well");
    assert_eq!((outcomes.cases[0].gain(), LaunchStore::of(&device).tuned_len()), (Some(1.5), 1));
}

/// Creates a device whose clock is low from the time when blocks of 256 are timed until blocks of 512 are timed. Blocks
/// of 256 take a microsecond per byte, and `later_us` once the clock is no longer low.
fn throttled_at_first(later_us: f64) -> Device {
    let seen_512 = Arc::new(AtomicBool::new(false));
    let mhz = Arc::new(AtomicU32::new(1980));
    let now = mhz.clone();
    let model = move |work: &SimulatedWork<'_>| {
        let SimulatedWork::Set { bytes } = work else { return 1.0 };
        if *bytes == 250 {
            seen_512.store(true, Ordering::Relaxed);
        }
        let is_over = seen_512.load(Ordering::Relaxed);
        mhz.store(if *bytes == 200 && !is_over { 1400 } else { 1980 }, Ordering::Relaxed);
        if *bytes == 200 && is_over { later_us } else { *bytes as f64 }
    };
    let driver = EmulatedDriver::builder().stepped(Schedule::Oldest).simulated_time(model).build();
    driver.on_sm_clock(0, move || Some(now.load(Ordering::Relaxed)));
    Device::with_driver(driver, 0).unwrap()
}

#[test]
fn a_throttled_winner_is_timed_again() {
    for (later_us, winner, gain) in [(200.0, "block=256 does=well", 1.5), (310.0, "block=128 does=well", 1.0)]
    {
        let device = throttled_at_first(later_us);
        let outcomes = run(&suite(Fake::new(&[])), &device, &[64], &once(), ALL);
        assert_eq!(outcomes.totals.as_ref().unwrap().made, 5, "four configurations, and one again");
        let timing = outcomes.record("block=256 does=well").timing.clone().unwrap();
        assert_eq!(
            (timing.throttled, timing.samples_us),
            (false, vec![later_us; 6]),
            "the first is not used"
        );
        assert!(timing.clocks_mhz.iter().all(|mhz| *mhz == 1980), "{:?}", timing.clocks_mhz);
        assert_eq!((outcomes.winner().as_str(), outcomes.cases[0].gain()), (winner, Some(gain)));
        assert_eq!(LaunchStore::of(&device).tuned_len(), 1, "{:?}", outcomes.notes);
    }
}

#[test]
fn winners_are_faster_than_the_default_in_records() {
    // Only the default is throttled while it races, but its record does not include the race.
    let is_race = AtomicBool::new(false);
    let mhz = Arc::new(AtomicU32::new(1980));
    let now = mhz.clone();
    let model = move |work: &SimulatedWork<'_>| {
        let SimulatedWork::Set { bytes } = work else { return 1.0 };
        is_race.fetch_or(*bytes == 250, Ordering::Relaxed);
        let is_slow = *bytes == 300 && is_race.load(Ordering::Relaxed);
        mhz.store(if is_slow { 1400 } else { 1980 }, Ordering::Relaxed);
        match bytes {
            300 if is_slow => 400.0,
            200 => 302.0,
            250 => 500.0,
            bytes => *bytes as f64,
        }
    };
    let driver = EmulatedDriver::builder().stepped(Schedule::Oldest).simulated_time(model).build();
    driver.on_sm_clock(0, move || Some(now.load(Ordering::Relaxed)));
    let device = Device::with_driver(driver, 0).unwrap();
    let outcomes = run(&suite(Fake::new(&[])), &device, &[64], &Tuning::default(), ALL);
    assert!(outcomes.totals.as_ref().unwrap().made > 4, "it raced");
    assert_eq!(outcomes.record("block=256 does=well").median_us(), Some(302.0));
    assert_eq!((outcomes.winner().as_str(), outcomes.cases[0].gain()), ("block=128 does=well", Some(1.0)));
}

/// Probe that copies the bytes that a fake kernel of 64 elements declares.
struct Copies(DeviceBuffer<u8>, DeviceBuffer<u8>);

impl Case for Copies {
    fn copies(&self) -> usize {
        1
    }
    fn select(&mut self, _: &Configuration) -> Result<()> {
        Ok(())
    }
    fn launch(&mut self, _: usize) -> Result<()> {
        let to = self.1.as_mut_slice();
        Ok(to.stream().copy(&self.0, to)?)
    }
    fn check(&mut self) -> Result<Check> {
        unreachable!("probes are not checked")
    }
}

fn probes(stream: &Stream) -> Result<Vec<Probe>> {
    let buffer = || DeviceBuffer::zeros(stream, 256);
    let (case, configuration) = (Box::new(Copies(buffer()?, buffer()?)), Configuration::default());
    let work = Work { bytes: 256, ..Work::default() };
    Ok(vec![Probe { name: "read", work, configuration, case }])
}

/// Creates a device like [`simulated`], but a probe takes `first_us`, and 900 µs after blocks of 512 were timed.
fn probed(first_us: f64) -> Device {
    let is_late = AtomicBool::new(false);
    let model = move |work: &SimulatedWork<'_>| match work {
        SimulatedWork::Copy { .. } if is_late.load(Ordering::Relaxed) => 900.0,
        SimulatedWork::Copy { .. } => first_us,
        SimulatedWork::Set { bytes } => {
            is_late.fetch_or(*bytes == 250, Ordering::Relaxed);
            *bytes as f64
        }
        _ => 1.0,
    };
    let driver = EmulatedDriver::builder().stepped(Schedule::Oldest).simulated_time(model).build();
    Device::with_driver(driver, 0).unwrap()
}

#[test]
fn records_keep_the_probe_timed_beside_them() {
    let suite = Suite { probes, ..suite(Fake::new(&[])) };
    let tuning = Tuning { probes: true, ..once() };
    let outcomes = run(&suite, &probed(120.0), &[64], &tuning, ALL);
    assert!(outcomes.notes.is_empty(), "{:?}", outcomes.notes);
    let probes: Vec<_> = outcomes.cases[0].records.iter().map(|record| record.probe_us).collect();
    assert_eq!(probes, [Some(120.0); 4], "the one before them, not the one of the end");
}
