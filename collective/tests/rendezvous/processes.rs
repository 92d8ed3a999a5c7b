//! Ranks that are processes, and are killed.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use warpsmith_collective::rendezvous::join;
use warpsmith_collective::store::StoreServer;
use warpsmith_collective::{Launch, Store};

use crate::alone::{command, this_test};
use crate::{server, soon, within};

/// Time limit for the other ranks to name a killed rank.
const NAMED_WITHIN: Duration = Duration::from_secs(2);
/// Environment variable that names the point at which a rank stays.
const STAY: &str = "WARPSMITH_TEST_STAY";
/// Environment variable that contains a rank's timeout in milliseconds.
const DEADLINE: &str = "WARPSMITH_TEST_DEADLINE_MS";

/// Runs a rank in its own process. The rank reports its progress in lines that start with `@`.
fn rank() {
    let launch = Launch::from_env().unwrap();
    let stays = std::env::var(STAY).unwrap_or_default();
    let deadline = within(std::env::var(DEADLINE).unwrap().parse().unwrap());
    let come_to = |place: &str| {
        println!("@{place}");
        if stays == place {
            // The rank stays here until it is killed.
            loop {
                std::thread::park();
            }
        }
    };
    come_to("started");
    let store = match launch.store(deadline) {
        Ok(store) => store,
        Err(error) => return println!("@error {error}"),
    };
    come_to("connected");
    let rendezvous = match join(&launch, store.shared(), "main", None, deadline) {
        Ok(rendezvous) => rendezvous,
        Err(error) => return println!("@error {error}"),
    };
    come_to("met");
    let failed = loop {
        match rendezvous.failed_ranks(deadline) {
            Ok(failed) if failed.is_empty() && Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(20));
            }
            other => break other,
        }
    };
    println!("@failed {failed:?}");
    // The rank must not end, because the other ranks would detect its end.
    std::thread::park();
}

/// Process of a rank. It is killed at the latest when this value is dropped.
struct Rank {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Rank {
    fn start(test: &str, rank: usize, world: usize, address: &str, more: &[(&str, &str)]) -> Self {
        let mut command: Command = command(test);
        command
            .env("WARPSMITH_RANK", rank.to_string())
            .env("WARPSMITH_WORLD_SIZE", world.to_string())
            .env("WARPSMITH_LOCAL_RANK", rank.to_string())
            .env("WARPSMITH_STORE", address)
            .env(DEADLINE, "20000")
            .envs(more.iter().copied())
            .stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, lines }
    }

    /// Returns the next line that the rank itself wrote.
    fn line(&mut self) -> String {
        loop {
            let mut line = String::new();
            assert!(self.lines.read_line(&mut line).unwrap() > 0, "the rank ended without a word");
            // The test harness writes the name of the test at the start of the line.
            if let Some((_, said)) = line.split_once('@') {
                return said.trim_end().to_owned();
            }
        }
    }

    fn come_to(&mut self, place: &str) {
        while self.line() != place {}
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Rank {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Process that serves the store.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Launcher,
    Rank0,
}

/// Starts the ranks of a run, kills the victim where it stays, and returns the errors of the other ranks, which must
/// arrive in time.
fn killed(
    test: &str,
    by: By,
    started: &[usize],
    victim: usize,
    stays: &str,
    milliseconds: &str,
) -> Vec<String> {
    let server: StoreServer = server(None);
    let address = server.address().to_string();
    let served = if by == By::Launcher { "launcher" } else { "rank0" };
    // The port must be free for rank 0.
    let _server = (by == By::Launcher).then_some(server);
    let start = |rank: usize| {
        let stay = if rank == victim { stays } else { "" };
        let more = [(STAY, stay), ("WARPSMITH_STORE_SERVER", served), (DEADLINE, milliseconds)];
        Rank::start(test, rank, 3, &address, &more)
    };
    let mut ranks: Vec<(usize, Rank)> = started.iter().map(|rank| (*rank, start(*rank))).collect();
    let at = ranks.iter().position(|(rank, _)| *rank == victim).unwrap();
    let (_, mut victim) = ranks.remove(at);
    victim.come_to(stays);
    let last = if stays == "met" { "met" } else { "connected" };
    if stays != "started" {
        ranks.iter_mut().for_each(|(_, rank)| rank.come_to(last));
    }
    if stays == "connected" {
        // By then, the other ranks are waiting for the victim.
        std::thread::sleep(Duration::from_millis(100));
    }
    let began = Instant::now();
    victim.kill();
    let said = ranks
        .iter_mut()
        .map(|(_, rank)| {
            loop {
                let line = rank.line();
                if line.starts_with("error") || line.starts_with("failed") {
                    break line;
                }
            }
        })
        .collect();
    if stays != "started" {
        assert!(began.elapsed() < NAMED_WITHIN, "{:?}", began.elapsed());
    }
    said
}

fn is_rank() -> bool {
    std::env::var_os(DEADLINE).is_some()
}

#[test]
fn a_rank_killed_before_it_connects_is_missing() {
    if is_rank() {
        return rank();
    }
    let said = killed(this_test!(), By::Launcher, &[0, 1, 2], 2, "started", "1500");
    for said in said {
        assert!(said.contains("rank 2 of 3 did not arrive within"), "{said}");
    }
}

#[test]
fn a_rank_killed_after_connecting_is_named() {
    if is_rank() {
        return rank();
    }
    for by in [By::Launcher, By::Rank0] {
        let said = killed(this_test!(), by, &[0, 1, 2], 2, "connected", "20000");
        assert_eq!(said, ["error rank 2 has ended"; 2]);
    }
}

#[test]
fn a_rank_killed_while_it_waits_is_named_with_its_place() {
    if is_rank() {
        return rank();
    }
    let server = server(None);
    let address = server.address().to_string();
    let more = [("WARPSMITH_STORE_SERVER", "launcher")];
    let test = this_test!();
    let mut ranks = [0, 1].map(|rank| Rank::start(test, rank, 3, &address, &more));
    // Rank 2 never arrives, and both other ranks wait for it.
    let watch = crate::client(&server);
    watch.wait(&["warpsmith/run/0/main/rank/0", "warpsmith/run/0/main/rank/1"], soon()).unwrap();
    let [waits, victim] = &mut ranks;
    let began = Instant::now();
    let process = victim.child.id();
    victim.kill();
    waits.come_to("connected");
    let said = waits.line();
    assert!(began.elapsed() < NAMED_WITHIN, "{:?}", began.elapsed());
    assert!(said.starts_with(&format!("error rank 1 (process {process} on ")), "{said}");
}

#[test]
fn a_rank_killed_after_the_rendezvous_has_failed() {
    if is_rank() {
        return rank();
    }
    for by in [By::Launcher, By::Rank0] {
        let said = killed(this_test!(), by, &[0, 1, 2], 1, "met", "20000");
        assert_eq!(said, ["failed Ok([1])"; 2]);
    }
}

#[test]
fn a_killed_rank_0_is_named_though_it_serves() {
    if is_rank() {
        return rank();
    }
    let said = killed(this_test!(), By::Rank0, &[0, 1], 0, "connected", "20000");
    assert_eq!(said, ["error rank 0 has ended"]);
    let said = killed(this_test!(), By::Launcher, &[0, 1], 0, "connected", "20000");
    assert_eq!(said, ["error rank 0 has ended"]);
}
