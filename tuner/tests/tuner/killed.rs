//! What is left of a run that `kill -9` ends in the middle of a race, and what the next run makes of it.
#![cfg(unix)]

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::fakes::{Directory, Fake, request, run, simulated, suite};
use warpsmith_tuner::log::{FILE, Log};
use warpsmith_tuner::run::Plan;
use warpsmith_tuner::search::Strategy;
use warpsmith_tuner::tune::{Event, Totals, Tuning, tune};

/// What the child is told: the launch that hangs, and its directory.
const CHILD: &str = "WARPSMITH_TEST_KILLED";
/// The file in it that says that the launch has begun.
const HANGS: &str = "hangs";

fn tuning() -> Tuning {
    Tuning { strategy: Strategy::Halving, ..Tuning::default() }
}

/// The child: this very test, when it is started so. It does not end by itself.
#[test]
fn tunes_until_a_launch_hangs_when_it_is_a_child() {
    let Ok(what) = std::env::var(CHILD) else { return };
    let (launch, directory) = what.split_once(' ').unwrap();
    let directory = PathBuf::from(directory);
    let mut fake = Fake::new(&[]);
    fake.hangs_at = Some((launch.parse().unwrap(), directory.join(HANGS)));
    let (_, device) = simulated();
    run(&suite(fake), &device, &[64], &tuning(), &mut Log::open(directory), usize::MAX);
}

/// Kills a child in the middle of a launch.
fn kill_at(launch: usize, directory: &Path) {
    fs::create_dir_all(directory).unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "killed::tunes_until_a_launch_hangs_when_it_is_a_child"])
        .env(CHILD, format!("{launch} {}", directory.display()))
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    while !directory.join(HANGS).exists() {
        assert_eq!(child.try_wait().unwrap(), None, "it ended before launch {launch}");
        std::thread::sleep(Duration::from_millis(2));
    }
    child.kill().unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(9));
}

#[test]
fn a_run_that_is_killed_in_a_race_loses_the_measurement_in_progress_and_no_other() {
    let fake = Fake::new(&[]);
    let launches = fake.launches.clone();
    let (suite, (_, device)) = (suite(fake), simulated());
    let plan = Plan::new(&suite, &device, &request(&[64])).unwrap();
    // Launches by the end of each measurement of a run that nothing ends.
    let (mut ends, mut winner) = (vec![0], String::new());
    let totals =
        tune(&plan, &tuning(), &mut Log::in_memory(), &Default::default(), &mut |event| match event {
            Event::Measured { .. } => ends.push(launches.load(Ordering::Relaxed)),
            Event::Done { tuned, .. } => winner = tuned.winner().unwrap().configuration.to_string(),
            _ => {}
        })
        .unwrap();
    let (all, race) = (totals.made, plan.cases[0].configurations.len());
    assert!(all > race + 2, "{all} timings: the better half race again, twice");
    for done in [race + 1, all - 1] {
        let directory = Directory::new(&format!("killed-{done}"));
        kill_at((ends[done] + ends[done + 1]).div_ceil(2), &directory.0);
        let text = fs::read_to_string(directory.0.join(FILE)).unwrap();
        assert_eq!(text.lines().count(), done, "all that were made before are in the log:\n{text}");
        let resumed = run(&suite, &device, &[64], &tuning(), &mut Log::open(&directory.0), usize::MAX);
        let expected = Totals { made: all - done, known: done, ..totals };
        assert_eq!((resumed.totals.as_ref().unwrap(), resumed.winner()), (&expected, winner.clone()));
    }
}
