//! Measuring in another process, which configurations bring down.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::fakes::{Directory, Fake, run, suite};
use warpsmith_runtime::Device;
use warpsmith_tuner::document::Outcome;
use warpsmith_tuner::log::{FILE, Log};
use warpsmith_tuner::measure::{Effort, Mode, StopReason};
use warpsmith_tuner::run::{Plan, Request};
use warpsmith_tuner::search::Strategy;
use warpsmith_tuner::tune::{Event, Tuning, tune};
use warpsmith_tuner::worker::{CaseRequest, Program, Remote, serve};

const CHILD: &str = "WARPSMITH_TEST_WORKER";
const TROUBLE: [&str; 7] = ["errs", "fails", "aborts", "exits", "panics", "hangs", "prints"];

/// The worker: this very test, when it is started so.
#[test]
fn serves_when_it_is_a_worker() {
    if let Some(what) = std::env::var_os(CHILD) {
        let trouble: &[&str] = if what == "races" { &["races"] } else { &TROUBLE };
        serve(&suite(Fake::new(trouble)));
        std::process::exit(0);
    }
}

fn program() -> Program {
    let mut program = Program::current().unwrap();
    program.arguments =
        ["--exact", "tune_isolated::serves_when_it_is_a_worker", "--nocapture"].map(Into::into).to_vec();
    program.environment = vec![(CHILD.into(), "1".into())];
    program
}

fn request() -> CaseRequest {
    CaseRequest {
        device: "cpu".to_owned(),
        kernel: "fake".to_owned(),
        dtype: "f32".to_owned(),
        n: 64,
        copies: 1,
        seed: 1,
        mode: Mode::Cold,
        effort: Effort { least: 6, most: 6, ..Effort::QUICK },
    }
}

#[test]
fn whatever_brings_the_process_down_is_recorded_and_the_search_goes_on() {
    let device = Device::open("cpu").unwrap();
    let tuning = Tuning {
        strategy: Strategy::Exhaustive,
        isolation: Some(program()),
        timeout: Duration::from_secs(3),
        ..Tuning::default()
    };
    let suite = suite(Fake::new(&TROUBLE));
    let directory = Directory::new("isolated");
    let outcomes = run(&suite, &device, &[64], &tuning, &mut Log::open(&directory.0), usize::MAX);
    assert!(!outcomes.totals.as_ref().unwrap().interrupted);
    for (does, outcome, words) in [
        ("errs", Outcome::Wrong, "element 2"),
        ("fails", Outcome::Failed, "resources"),
        ("aborts", Outcome::Crashed, "signal 6"),
        ("exits", Outcome::Crashed, "exit code 7"),
        ("panics", Outcome::Crashed, "no such kernel"),
        ("hangs", Outcome::Crashed, "did not answer within 3 s"),
        ("prints", Outcome::Correct, ""),
    ] {
        let record = outcomes.record(&format!("block=256 does={does}"));
        assert_eq!(record.outcome, outcome, "{does}: {}", record.problem);
        assert!(record.problem.contains(words), "{does}: {}", record.problem);
        assert_eq!(record.timing.is_some(), outcome == Outcome::Correct, "{does}");
    }
    let case = &outcomes.cases[0];
    assert_eq!(case.records.len(), 11);
    assert_eq!(case.winner().unwrap().outcome, Outcome::Correct);
    let again = run(&suite, &device, &[64], &tuning, &mut Log::open(&directory.0), usize::MAX);
    assert_eq!(again.totals.unwrap().made, 0, "not even those that crashed are tried again");
}

#[test]
fn a_worker_checks_the_winner_once_more() {
    let program = Program { environment: vec![(CHILD.into(), "races".into())], ..program() };
    let tuning = Tuning { strategy: Strategy::Exhaustive, isolation: Some(program), ..Tuning::default() };
    let device = Device::open("cpu").unwrap();
    let outcomes =
        run(&suite(Fake::new(&["races"])), &device, &[64], &tuning, &mut Log::in_memory(), usize::MAX);
    let racy = outcomes.record("block=256 does=races");
    // It wins first only if it is the fastest, which a real clock does not promise: then it was not checked a third time.
    match racy.outcome {
        Outcome::Wrong => assert!(racy.problem.contains("after all timings"), "{}", racy.problem),
        outcome => assert_eq!((outcome, racy.is_winner), (Outcome::Correct, false)),
    }
    let mut remote = Remote::start(tuning.isolation.clone().unwrap()).unwrap();
    remote.open(&request()).unwrap();
    let configuration = "block=256 does=races".parse().unwrap();
    assert_eq!(remote.measure(&configuration, None).unwrap().outcome, Outcome::Correct);
    let again = remote.check_again(&configuration).unwrap();
    assert_eq!((again.outcome, again.timing, again.problem.is_empty()), (Outcome::Wrong, None, false));
    let good = remote.check_again(&"block=64 does=well".parse().unwrap()).unwrap();
    assert_eq!((good.outcome, good.timing), (Outcome::Correct, None));
}

#[cfg(target_os = "linux")]
#[test]
fn an_ended_run_ends_the_timing_of_its_worker_and_keeps_its_samples() {
    let directory = Directory::new("interrupted");
    std::fs::create_dir_all(&directory.0).unwrap();
    let mark = directory.0.join("mark");
    let mut program = program();
    program.environment.push((crate::fakes::MARK.into(), mark.clone().into()));
    let tuning = Tuning { isolation: Some(program), ..Tuning::default() };
    let (suite, device) = (suite(Fake::new(&[])), Device::open("cpu").unwrap());
    // So many samples that it would not end by itself.
    let request = Request { effort: Effort::samples(1_000_000), ..crate::fakes::request(&[64]) };
    let plan = Plan::new(&suite, &device, &request).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let waiting = std::thread::spawn({
        let (stop, mark) = (stop.clone(), mark.clone());
        move || {
            // Until the worker is in the middle of its first timing.
            let number = || std::fs::read_to_string(&mark).ok()?.parse::<u32>().ok();
            let number = std::iter::repeat_with(|| {
                std::thread::sleep(Duration::from_millis(2));
                number()
            });
            let number = number.flatten().next();
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
            number
        }
    });
    let mut records = Vec::new();
    let mut log = Log::open(&directory.0);
    let totals = tune(&plan, &tuning, &mut log, &stop, &mut |event| {
        if let Event::Done { tuned, .. } = event {
            records.extend_from_slice(&tuned.records);
            assert!(!tuned.is_complete && tuned.winner.is_none());
        }
    });
    let totals = totals.unwrap();
    assert!(totals.interrupted && totals.made == 0, "{totals:?}");
    assert_eq!(records.len(), 1, "the default, which was being timed");
    let timing = records[0].timing.as_ref().unwrap();
    assert_eq!((records[0].outcome, timing.stop), (Outcome::Correct, StopReason::Interrupted));
    assert!((1..1_000_000).contains(&timing.samples_us.len()));
    assert!(
        !directory.0.join(FILE).exists(),
        "a timing that was cut short is not what later runs take for one"
    );
    let number = waiting.join().unwrap().unwrap();
    assert!(!Path::new(&format!("/proc/{number}")).exists(), "neither running nor a zombie");
}

#[test]
fn a_worker_takes_as_many_samples_as_it_is_asked_for() {
    let mut remote = Remote::start(program()).unwrap();
    let good = "block=64 does=well".parse().unwrap();
    assert!(remote.measure(&good, None).unwrap_err().to_string().contains("open"));
    remote.open(&request()).unwrap();
    assert_eq!(remote.measure(&good, None).unwrap().samples_us().len(), 6);
    assert_eq!(remote.measure(&good, Some(11)).unwrap().samples_us().len(), 11);
    let crashed = remote.measure(&"block=256 does=aborts".parse().unwrap(), None).unwrap();
    assert_eq!(crashed.outcome, Outcome::Crashed);
    assert_eq!(remote.measure(&good, Some(2)).unwrap().outcome, Outcome::Correct, "a new one has the case");
    let other = CaseRequest { n: 128, ..request() };
    remote.open(&other).unwrap();
    assert_eq!(remote.measure(&good, Some(2)).unwrap().outcome, Outcome::Correct);
}

#[test]
fn what_a_worker_cannot_do_it_says() {
    let mut remote = Remote::start(program()).unwrap();
    for (request, words) in [
        (CaseRequest { kernel: "fade".to_owned(), ..request() }, "did you mean fake"),
        (CaseRequest { dtype: "f8".to_owned(), ..request() }, "f32"),
        (CaseRequest { device: "abacus".to_owned(), ..request() }, "abacus"),
    ] {
        let message = remote.open(&request).unwrap_err().to_string();
        assert!(message.contains("refused") && message.contains(words), "{message}");
    }
    remote.open(&request()).unwrap();
}

#[cfg(unix)]
#[test]
fn a_program_that_is_no_worker_or_of_another_protocol_is_refused() {
    let message = |program: Program| Remote::start(program).unwrap_err().to_string();
    let missing = message(Program::new(Path::new("/no/such/program")));
    assert!(missing.contains("/no/such/program") && missing.contains("cannot be started"), "{missing}");
    let silent = message(Program::new(Path::new("/bin/true")));
    assert!(silent.contains("no worker") && silent.contains("bench_main"), "{silent}");
    let shell = |script: &str| Program {
        arguments: vec!["-c".into(), script.into()],
        ..Program::new(Path::new("/bin/sh"))
    };
    let script = r#"echo 'warpsmith-worker:{"reply":"hello","protocol":999,"version":"9.9"}'; cat"#;
    let other = message(shell(script));
    for words in ["9.9", "999", "same version"] {
        assert!(other.contains(words), "{other}");
    }
    assert!(message(shell("echo 'warpsmith-worker:{}'; cat")).contains("no worker"));
}

#[test]
fn a_worker_that_hangs_ends_when_nobody_listens_any_more() {
    use std::io::{BufRead, BufReader, Write};
    use std::process::{Command, Stdio};

    let Program { path, arguments, environment } = program();
    let mut child = Command::new(path)
        .args(arguments)
        .envs(environment)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut requests = child.stdin.take().unwrap();
    let open = serde_json::to_string(&request()).unwrap().replacen('{', r#"{"request":"open","#, 1);
    let hang = r#"{"request":"measure","configuration":{"block":256,"does":"hangs"},"samples":null}"#;
    writeln!(requests, "{open}\n{hang}").unwrap();
    let opened = BufReader::new(child.stdout.take().unwrap())
        .lines()
        .map_while(Result::ok)
        .any(|line| line.contains(r#""reply":"opened""#));
    assert!(opened);
    drop(requests);
    assert_eq!(child.wait().unwrap().code(), Some(1));
}

#[cfg(unix)]
#[test]
fn a_worker_whose_device_is_lost_is_replaced() {
    let directory = Directory::new("replaced");
    std::fs::create_dir_all(&directory.0).unwrap();
    let starts = directory.0.join("starts");
    let script = r#"echo start >> "$STARTS"
        say() { echo "warpsmith-worker:$1"; }
        say '{"reply":"hello","protocol":2,"version":"1"}'
        read line; say '{"reply":"opened"}'
        read line; say '{"reply":"measured","outcome":"crashed","problem":"stopped","max_error":null,"timing":null,"seconds":0.5}'
        cat > "$STARTS.rest""#;
    let program = Program {
        arguments: vec!["-c".into(), script.into()],
        environment: vec![("STARTS".into(), starts.clone().into())],
        ..Program::new(Path::new("/bin/sh"))
    };
    let mut remote = Remote::start(program).unwrap();
    remote.open(&request()).unwrap();
    for count in 1..=3 {
        let measured = remote.measure(&"block=64".parse().unwrap(), None).unwrap();
        assert_eq!((measured.outcome, measured.problem.as_str()), (Outcome::Crashed, "stopped"));
        assert_eq!(std::fs::read_to_string(&starts).unwrap().lines().count(), count);
    }
}
