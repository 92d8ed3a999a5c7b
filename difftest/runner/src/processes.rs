//! [`main`]: runs the cases in a child process until one is lost, then continues in a new one.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use warpsmith_runtime::GpuImage;

use crate::case::{Case, Session};
use crate::compare::compare;

const USAGE: &str = "\
usage: difftest [--list | DEVICE [NAME…]]

  DEVICE       cpu, cuda:0, …; cpu by default
  NAME         run only kernels whose name begins so

Writes a line for each kernel that differs, faults or hangs, and its source. Exit code 1 when there is one.
DIFFTEST_JOBS is how many processes run side by side, 4 by default, and DIFFTEST_SECONDS the time for one kernel, 60 by default:
the first of a module takes the time of compiling it on a device for which there is no machine code.
";

/// Outcome of a case.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Outcome {
    Same,
    Differs { step: Option<usize>, text: String },
    Failed(String),
}

/// Runs the cases selected by the command line. The seed is for reports.
pub fn main(seed: u64, image: &'static GpuImage, cases: &[Case]) -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["--help" | "-h"] => print!("{USAGE}"),
        ["--list"] => cases.iter().for_each(|case| println!("{}", case.name)),
        ["--child", device, indices @ ..] => return child(device, image, cases, indices),
        [] => return parent(seed, "cpu", cases, &[]),
        [device, names @ ..] => return parent(seed, device, cases, names),
    }
    ExitCode::SUCCESS
}

/// Runs some cases, and prints a line before and after each.
fn child(device: &str, image: &'static GpuImage, cases: &[Case], indices: &[&str]) -> ExitCode {
    let session = match Session::open(device, image) {
        Ok(session) => session,
        Err(error) => {
            say(&format!("none {}", one_line(&error.to_string())));
            return ExitCode::from(2);
        }
    };
    for index in indices.iter().filter_map(|index| index.parse::<usize>().ok()) {
        let Some(case) = cases.get(index) else { continue };
        say(&format!("start {index}"));
        let expected = case.expected();
        match case.found(&session) {
            Ok(found) => match compare(case, &expected, &found) {
                None => say(&format!("same {index}")),
                Some(difference) => {
                    let step = difference.step.map_or_else(|| "-".to_owned(), |step| step.to_string());
                    say(&format!("differs {index} {step} {}", difference.text));
                }
            },
            Err(error) => {
                // The device may be lost: the next case gets a new process.
                say(&format!("failed {index} {}", one_line(&error.to_string())));
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    // A failed write means that the parent has exited. Its results are not needed then.
    _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

fn one_line(text: &str) -> String {
    text.replace('\n', "; ")
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

fn parent(seed: u64, device: &str, cases: &[Case], names: &[&str]) -> ExitCode {
    let is_chosen = |case: &Case| names.is_empty() || names.iter().any(|name| case.name.starts_with(name));
    let chosen: Vec<usize> = (0..cases.len()).filter(|index| is_chosen(&cases[*index])).collect();
    if chosen.is_empty() {
        eprintln!("difftest: no kernel is named so");
        return ExitCode::from(2);
    }
    let jobs = number("DIFFTEST_JOBS", 4).max(1) as usize;
    let limit = Duration::from_secs(number("DIFFTEST_SECONDS", 60));
    let outcomes = Mutex::new(vec![None; cases.len()]);
    let report = |index: usize, outcome: Outcome| {
        let mut outcomes = outcomes.lock().unwrap_or_else(PoisonError::into_inner);
        show(&cases[index], &outcome);
        outcomes[index] = Some(outcome);
    };
    // Adjacent cases share a module, which each process loads.
    std::thread::scope(|scope| {
        for share in chosen.chunks(chosen.len().div_ceil(jobs)) {
            scope.spawn(move || run_share(device, share, limit, report));
        }
    });
    let outcomes = outcomes.into_inner().unwrap_or_else(PoisonError::into_inner);
    let count = |is: fn(&Outcome) -> bool| outcomes.iter().flatten().filter(|outcome| is(outcome)).count();
    let same = count(|outcome| *outcome == Outcome::Same);
    println!(
        "seed {seed}, {device}: {} kernels, {same} the same, {} differ, {} failed",
        chosen.len(),
        count(|outcome| matches!(outcome, Outcome::Differs { .. })),
        count(|outcome| matches!(outcome, Outcome::Failed(_))),
    );
    if same == chosen.len() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn show(case: &Case, outcome: &Outcome) {
    match outcome {
        Outcome::Same => {}
        Outcome::Differs { step, text } => {
            let step = step.map_or_else(String::new, |step| format!(":{step}"));
            println!("DIFFERS {}{step} {text}\n{}", case.name, case.source);
        }
        Outcome::Failed(text) => println!("FAILED {} {text}\n{}", case.name, case.source),
    }
}

/// Starts processes until each case of the share has an outcome.
fn run_share(device: &str, share: &[usize], limit: Duration, report: impl Fn(usize, Outcome)) {
    let mut rest = share;
    while !rest.is_empty() {
        let (done, why) = run_child(device, rest, limit, &report);
        rest = &rest[done..];
        if let (Some(why), Some(lost)) = (why, rest.first()) {
            report(*lost, Outcome::Failed(why));
            rest = &rest[1..];
        }
    }
}

/// Runs cases in one process. Returns the number of cases that have an outcome, and the reason why the next case has
/// none.
fn run_child(
    device: &str,
    cases: &[usize],
    limit: Duration,
    report: &impl Fn(usize, Outcome),
) -> (usize, Option<String>) {
    let mut child = match spawn(device, cases) {
        Ok(child) => child,
        Err(error) => return (0, Some(format!("no process could be started: {error}"))),
    };
    let (sender, lines) = channel();
    let output = child.stdout.take().map(BufReader::new);
    let reader = std::thread::spawn(move || {
        for line in output.into_iter().flat_map(BufRead::lines).map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    let mut done = 0;
    let why = loop {
        match lines.recv_timeout(limit) {
            Ok(line) => match parse(&line) {
                Some((index, outcome)) if cases.get(done) == Some(&index) => {
                    report(index, outcome);
                    done += 1;
                }
                _ if line.starts_with("none ") => {
                    eprintln!("difftest: {device}: {}", &line[5..]);
                    std::process::exit(2);
                }
                _ => {}
            },
            Err(RecvTimeoutError::Timeout) => {
                break Some(format!("hangs: no result in {} s", limit.as_secs()));
            }
            Err(RecvTimeoutError::Disconnected) => break None,
        }
    };
    // The child has already exited, or must be killed.
    _ = child.kill();
    let status = child.wait();
    _ = reader.join();
    let lost = why.or_else(|| {
        let status = status.map_or_else(|error| error.to_string(), |status| status.to_string());
        (done < cases.len() && !status.ends_with("exit status: 1"))
            .then(|| format!("the process ended: {status}"))
    });
    (done, lost)
}

fn spawn(device: &str, cases: &[usize]) -> std::io::Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--child", device]).args(cases.iter().map(usize::to_string));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()
}

/// Parses the outcome in a line of a child.
fn parse(line: &str) -> Option<(usize, Outcome)> {
    let (verb, rest) = line.split_once(' ')?;
    let (index, rest) = rest.split_once(' ').unwrap_or((rest, ""));
    let index = index.parse().ok()?;
    let outcome = match verb {
        "same" => Outcome::Same,
        "failed" => Outcome::Failed(rest.to_owned()),
        "differs" => {
            let (step, text) = rest.split_once(' ')?;
            Outcome::Differs { step: step.parse().ok(), text: text.to_owned() }
        }
        _ => return None,
    };
    Some((index, outcome))
}
