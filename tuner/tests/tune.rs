//! Tuning runs on a device with simulated time: what wins, what is kept, and what another run takes from it.

mod fakes;

use std::fs;

use fakes::{Directory, Fake, Outcomes, run, simulated, suite};
use warpsmith_runtime::launch::TunedFor;
use warpsmith_tuner::document::Outcome;
use warpsmith_tuner::error::Error;
use warpsmith_tuner::log::{FILE, Log};
use warpsmith_tuner::search::{Budget, Strategy};
use warpsmith_tuner::tune::Tuning;

const ALL: usize = usize::MAX;

fn with(strategy: Strategy) -> Tuning {
    Tuning { strategy, ..Tuning::default() }
}

#[test]
fn the_fastest_wins_whatever_the_strategy_and_the_default_is_measured_first() {
    for strategy in Strategy::ALL {
        let (_, device) = simulated();
        let fake = Fake::new(&["errs", "fails"]);
        let seen = fake.seen.clone();
        let suite = suite(fake);
        let outcomes = run(&suite, &device, &[4096], &with(strategy), &mut Log::in_memory(), ALL);
        assert_eq!(outcomes.winner(), "block=256 does=well", "{strategy}");
        assert_eq!(seen.lock().unwrap()[0], "block=128 does=well", "{strategy}");
        let case = &outcomes.cases[0];
        assert!(case.records[0].is_default && case.is_complete);
        assert_eq!(case.records.iter().filter(|record| record.is_winner).count(), 1);
        assert_eq!((case.gain(), case.winner().unwrap().median_us()), (Some(1.5), Some(200.0)), "{strategy}");
        assert!(outcomes.notes.is_empty(), "{:?}", outcomes.notes);
    }
}

#[test]
fn what_is_wrong_or_fails_is_recorded_and_never_timed_or_tried_again() {
    let (_, device) = simulated();
    let fake = Fake::new(&["errs", "fails"]);
    let seen = fake.seen.clone();
    let outcomes =
        run(&suite(fake), &device, &[4096], &with(Strategy::Exhaustive), &mut Log::in_memory(), ALL);
    let wrong = outcomes.record("block=256 does=errs");
    assert_eq!((wrong.outcome, &wrong.timing, wrong.max_error), (Outcome::Wrong, &None, Some(1.0)));
    assert!(wrong.problem.contains("element 2"), "{}", wrong.problem);
    let failed = outcomes.record("block=256 does=fails");
    assert_eq!((failed.outcome, &failed.timing), (Outcome::Failed, &None));
    assert!(failed.problem.contains("resources"), "{}", failed.problem);
    for trouble in ["block=256 does=errs", "block=256 does=fails"] {
        assert_eq!(seen.lock().unwrap().iter().filter(|seen| *seen == trouble).count(), 1);
    }
    assert_eq!(outcomes.cases[0].records.len(), 6);
}

#[test]
fn a_wrong_default_does_not_win() {
    let (_, device) = simulated();
    let suite = suite(Fake::new(&[]));
    let request = warpsmith_tuner::run::Request {
        axes: vec![("block".into(), vec![64u32.into()])],
        ..fakes::request(&[64])
    };
    let mut plan = warpsmith_tuner::run::Plan::new(&suite, &device, &request).unwrap();
    plan.cases[0].configurations[0] = "block=256 does=errs".parse().unwrap();
    let mut winner = None;
    let stop = std::sync::Arc::default();
    warpsmith_tuner::tune::tune(&plan, &Tuning::default(), &mut Log::in_memory(), &stop, &mut |event| {
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
    run(&suite, &device, &[4096], &Tuning::default(), &mut Log::in_memory(), ALL);
    let subject = TunedFor {
        device: device.properties(),
        package: "fakes",
        kernel: "fake",
        types: "f32",
        image: 0,
        n: 4096,
        alignment: 16,
    };
    let tuned = device.launch_store().tuned(&subject).unwrap();
    assert_eq!((tuned.value("block"), tuned.symbol.as_deref()), (Some("256"), Some("fake__f32")));
    assert_eq!(tuned.median_us, 200.0);
}

fn again(directory: &Directory, strategy: Strategy) -> Outcomes {
    let (_, device) = simulated();
    let suite = suite(Fake::new(&["errs", "fails"]));
    run(&suite, &device, &[4096, 65536], &with(strategy), &mut Log::open(&directory.0), ALL)
}

#[test]
fn a_run_that_starts_again_makes_no_timings_and_finds_the_same() {
    for strategy in Strategy::ALL {
        let directory = Directory::new(strategy.name());
        let first = again(&directory, strategy);
        let totals = first.totals.as_ref().unwrap();
        assert!(totals.made > 0 && totals.known == 0);
        let second = again(&directory, strategy);
        let expected = warpsmith_tuner::tune::Totals { made: 0, known: totals.made, interrupted: false };
        assert_eq!(second.totals.as_ref().unwrap(), &expected, "{strategy}");
        for (first, second) in first.cases.iter().zip(&second.cases) {
            assert_eq!(first.winner().unwrap().configuration, second.winner().unwrap().configuration);
            assert_eq!(first.gain(), second.gain());
        }
        // Killed while it wrote its last measurement.
        let path = directory.0.join(FILE);
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, &text[..text.len() - 20]).unwrap();
        assert_eq!(again(&directory, strategy).totals.unwrap().made, 1, "{strategy}");
    }
}

#[test]
fn another_strategy_takes_what_there_is() {
    let directory = Directory::new("strategies");
    let all = again(&directory, Strategy::Exhaustive).totals.unwrap().made;
    assert_eq!(all, 12);
    assert_eq!(again(&directory, Strategy::Random).totals.unwrap().made, 0);
}

#[test]
fn an_ended_run_keeps_what_it_measured_and_goes_on_later() {
    let directory = Directory::new("ended");
    let (_, device) = simulated();
    let suite = suite(Fake::new(&[]));
    let tuning = with(Strategy::Exhaustive);
    let ended = run(&suite, &device, &[4096, 65536], &tuning, &mut Log::open(&directory.0), 3);
    let totals = ended.totals.unwrap();
    assert!(totals.interrupted);
    assert_eq!((totals.made, ended.cases.len(), ended.cases[0].records.len()), (3, 1, 3));
    assert!(!ended.cases[0].is_complete && ended.cases[0].winner.is_some());
    assert_eq!(device.launch_store().tuned_len(), 0, "not all was measured");
    let rest = run(&suite, &device, &[4096, 65536], &tuning, &mut Log::open(&directory.0), ALL);
    assert_eq!(rest.totals.unwrap(), warpsmith_tuner::tune::Totals { made: 5, known: 3, interrupted: false });
    assert_eq!(device.launch_store().tuned_len(), 2);
}

#[test]
fn a_budget_ends_a_search_but_the_default_is_measured() {
    for (budget, made) in [
        (Budget::timings(0), 1),
        (Budget::timings(2), 2),
        (Budget { timings: None, seconds: Some(0.0) }, 1),
        (Budget { timings: Some(3), seconds: Some(1e9) }, 3),
    ] {
        let (_, device) = simulated();
        let tuning = Tuning { budget, ..with(Strategy::Exhaustive) };
        let outcomes = run(&suite(Fake::new(&[])), &device, &[64], &tuning, &mut Log::in_memory(), ALL);
        assert_eq!(outcomes.totals.unwrap().made, made, "{budget:?}");
        assert!(outcomes.cases[0].is_complete && outcomes.cases[0].winner.is_some());
    }
}

#[test]
fn a_lost_device_ends_the_run_and_the_next_one_goes_on_after_it() {
    let directory = Directory::new("lost");
    let run = || {
        let (driver, device) = simulated();
        let mut fake = Fake::new(&["stops"]);
        fake.driver = Some(driver);
        run(&suite(fake), &device, &[64], &with(Strategy::Exhaustive), &mut Log::open(&directory.0), ALL)
    };
    let first = run();
    let error = first.totals.as_ref().unwrap_err();
    assert!(matches!(error, Error::Lost { .. }), "{error}");
    let message = error.to_string();
    for words in ["fake f32", "block=256 does=stops", "index out of bounds", "--isolate"] {
        assert!(message.contains(words), "{message}");
    }
    assert_eq!(first.record("block=256 does=stops").outcome, Outcome::Crashed);
    assert!(!first.cases[0].is_complete);
    let second = run();
    assert!(!second.totals.as_ref().unwrap().interrupted);
    assert_eq!(second.record("block=256 does=stops").outcome, Outcome::Crashed);
    assert_eq!(second.winner(), "block=256 does=well");
}

#[test]
fn a_log_that_cannot_be_written_is_told_once_and_changes_nothing() {
    let directory = Directory::new("unwritable");
    fs::create_dir_all(directory.0.join(FILE)).unwrap();
    let (_, device) = simulated();
    let suite = suite(Fake::new(&[]));
    let mut log = Log::fresh(&directory.0);
    let outcomes = run(&suite, &device, &[64, 128], &Tuning::default(), &mut log, ALL);
    assert_eq!(outcomes.notes.len(), 1, "{:?}", outcomes.notes);
    assert!(outcomes.notes[0].contains("WARPSMITH_CACHE_DIR"));
    assert_eq!((outcomes.cases.len(), outcomes.winner().as_str()), (2, "block=256 does=well"));
    let log = &mut Log::open(&directory.0);
    assert_eq!(run(&suite, &device, &[64], &Tuning::default(), log, ALL).notes.len(), 1);
}

/// The notes of a run, and the winner's block in the store.
fn kept(
    device: &warpsmith_runtime::Device,
    request: &warpsmith_tuner::run::Request,
) -> (Vec<String>, Option<String>) {
    let suite = suite(Fake::new(&[]));
    let plan = warpsmith_tuner::run::Plan::new(&suite, device, request).unwrap();
    let mut notes = Vec::new();
    let (tuning, stop) = (with(Strategy::Exhaustive), std::sync::Arc::default());
    warpsmith_tuner::tune::tune(&plan, &tuning, &mut Log::in_memory(), &stop, &mut |event| {
        if let warpsmith_tuner::tune::Event::Note(note) = event {
            notes.push(note.to_owned());
        }
    })
    .unwrap();
    let subject = TunedFor {
        device: device.properties(),
        package: "fakes",
        kernel: "fake",
        types: "f32",
        image: 0,
        n: 64,
        alignment: 16,
    };
    let tuned = device.launch_store().tuned(&subject);
    (notes, tuned.and_then(|tuned| tuned.value("block").map(str::to_owned)))
}

#[test]
fn only_cold_winners_are_kept_and_none_of_a_narrowed_space_instead_of_another() {
    use warpsmith_tuner::measure::Mode;
    use warpsmith_tuner::run::Request;

    let (_, device) = simulated();
    let whole = fakes::request(&[64]);
    let narrowed = Request { axes: vec![("block".into(), vec![64u32.into()])], ..whole.clone() };
    let (notes, block) = kept(&device, &Request { mode: Mode::Hot, ..whole.clone() });
    assert!(block.is_none() && notes.len() == 1 && notes[0].contains("--mode cold"), "{notes:?}");
    assert_eq!(kept(&device, &narrowed), (Vec::new(), Some("128".to_owned())), "there is no other");
    assert_eq!(kept(&device, &whole), (Vec::new(), Some("256".to_owned())));
    let (notes, block) = kept(&device, &narrowed);
    assert_eq!(block.as_deref(), Some("256"));
    assert!(notes.len() == 1 && notes[0].contains("--axis"), "{notes:?}");
}

#[test]
fn what_is_right_at_its_first_launch_alone_does_not_win() {
    let (_, device) = simulated();
    let suite = suite(Fake::new(&["wears"]));
    let tuning = with(Strategy::Exhaustive);
    let outcomes = run(&suite, &device, &[64], &tuning, &mut Log::in_memory(), ALL);
    let worn = outcomes.record("block=256 does=wears");
    assert_eq!((worn.outcome, &worn.timing), (Outcome::Wrong, &None));
    assert!(worn.problem.contains("after it was timed"), "{}", worn.problem);
    assert_eq!(outcomes.winner(), "block=256 does=well");
    let plan = warpsmith_tuner::run::Plan::new(&suite, &device, &fakes::request(&[64])).unwrap();
    let mut outcome = None;
    plan.run(false, &std::sync::Arc::default(), |_, record| {
        if record.configuration.to_string() == "block=256 does=wears" {
            outcome = Some(record.outcome);
        }
    })
    .unwrap();
    assert_eq!(outcome, Some(Outcome::Wrong));
}
