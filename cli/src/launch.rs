//! `warpsmith launch`: starts a program several times on this host, each with its own rank.
//!
//! Guarantees:
//!
//! The processes end when this command ends, even if the command is killed. On Linux, their descendants end as well. If
//! one process fails, the command ends the others and names the failed process. The rendezvous store listens on the
//! loopback interface only, and requires the run's token.
//!
//! On Linux the command consists of two processes: the one that the user started, and a child that starts the ranks. If
//! either process is killed, the other one ends all remaining processes.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, IsTerminal, Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Sender};
use std::time::{Duration, Instant};

use warpsmith::bench::command::failure::Failure;
use warpsmith::bench::command::output::complain;
use warpsmith::collective::store::{ServerOptions, StoreServer, Token};

use crate::args::{LaunchArgs, When};
use crate::child::{self, Signals};
use crate::descendants;

/// Grace period between the request to end and the killing of the processes.
const GRACE: Duration = Duration::from_secs(5);
/// A second signal within this time is treated as a copy of the first signal, because one signal can reach both
/// processes of the command.
const TWICE: Duration = Duration::from_millis(500);
/// Environment variable that passes the ID of the command's first process to its second process.
const FIRST: &str = "WARPSMITH_LAUNCH_PROCESS";
/// Time limit for reading the remaining output after the processes have exited, because other processes may keep the
/// output open.
const REST: Duration = Duration::from_millis(500);
/// Maximum number of bytes of a line that are shown at once.
const LONGEST_LINE: u64 = 64 << 10;

/// Runs the program the requested number of times.
pub fn run(args: &LaunchArgs) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::Failed(error.to_string());
    descendants::adopt().map_err(failed)?;
    let first = std::env::var(FIRST).ok().and_then(|first| first.parse().ok());
    if cfg!(not(target_os = "linux")) || first.is_some() {
        return supervised(args, first);
    }
    let mut second = Command::new("/proc/self/exe");
    second.args(std::env::args_os().skip(1)).env(FIRST, std::process::id().to_string());
    let status = child::run(&mut second).map_err(failed)?;
    // Processes remain only if the second process was killed.
    descendants::end();
    if let Some(signal) = child::name_of(status) {
        complain(&format!(
            "warpsmith: {signal} terminated the process that started the ranks; all ranks were terminated"
        ));
    }
    if status.success() { Ok(()) } else { Err(Failure::Program(child::code(status))) }
}

/// Runs the ranks as children of this process. If this process no longer has the parent `first`, it ends the ranks.
fn supervised(args: &LaunchArgs, first: Option<u32>) -> Result<(), Failure> {
    let failed = |error: &dyn std::error::Error| Failure::Failed(error.to_string());
    let token = Token::generate().map_err(|error| failed(&error))?;
    let address = "127.0.0.1:0".parse().expect("an address");
    let options = ServerOptions { token: Some(token.clone()), ..ServerOptions::default() };
    let server = StoreServer::start(address, options).map_err(|error| failed(&error))?;
    let signals = Signals::catch().map_err(|error| failed(&error))?;
    let is_prefixed = match args.prefix {
        When::Always => true,
        When::Never => false,
        When::Auto => io::stdout().is_terminal() && args.processes > 1,
    };
    let (ended, ends) = mpsc::channel();
    let mut ranks = Ranks { all: Vec::new(), first };
    for rank in 0..args.processes {
        let mut command = command(args, rank, &server, &token);
        if is_prefixed {
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
        }
        let mut child = command.spawn().map_err(|error| {
            let name = args.program[0].to_string_lossy();
            Failure::Use(format!("cannot run `{name}`: {error}; give the path or the name of a program"))
        })?;
        pump(child.stdout.take(), rank, io::stdout, &ended);
        pump(child.stderr.take(), rank, io::stderr, &ended);
        ranks.all.push(Rank { rank, child, status: None });
    }
    drop(ended);
    let failure = ranks.supervise(&signals).map_err(|error| failed(&error))?;
    let until = Instant::now() + REST;
    while ends.recv_timeout(until.saturating_duration_since(Instant::now())).is_ok() {}
    let Some((rank, process, status)) = failure else { return Ok(()) };
    let how = match child::name_of(status) {
        Some(signal) => format!("was ended by {signal}"),
        None => format!("ended with exit code {}", child::code(status)),
    };
    let others = if args.processes > 1 { "; the other ranks were terminated" } else { "" };
    complain(&format!("warpsmith: rank {rank} (process {process}) {how}{others}"));
    Err(Failure::Program(child::code(status)))
}

/// Creates the command that runs the program as one of the ranks.
fn command(args: &LaunchArgs, rank: u32, server: &StoreServer, token: &Token) -> Command {
    let mut command = Command::new(&args.program[0]);
    let count = args.processes.to_string();
    let run = format!("launch-{}", std::process::id());
    let arguments: &[OsString] = &args.program[1..];
    command
        .args(arguments)
        .env("WARPSMITH_RANK", rank.to_string())
        .env("WARPSMITH_LOCAL_RANK", rank.to_string())
        .env("WARPSMITH_WORLD_SIZE", &count)
        .env("WARPSMITH_LOCAL_WORLD_SIZE", &count)
        .env("WARPSMITH_STORE", server.address().to_string())
        .env("WARPSMITH_STORE_SERVER", "launcher")
        .env("WARPSMITH_RUN_ID", run)
        .env("WARPSMITH_RESTART_COUNT", "0")
        .env("WARPSMITH_TOKEN", token.secret())
        .env_remove(FIRST);
    // All processes are on this host, and anyone who could reach NCCL's sockets could join them.
    if cfg!(target_os = "linux") && std::env::var_os("NCCL_SOCKET_IFNAME").is_none() {
        command.env("NCCL_SOCKET_IFNAME", "lo");
    }
    if rank > 0 {
        command.stdin(Stdio::null());
    }
    child::end_with_this_process(&mut command);
    command
}

/// Forwards output line by line, prefixed with the rank, until it ends.
fn pump<R, W>(from: Option<R>, rank: u32, to: fn() -> W, ended: &Sender<()>)
where
    R: Read + Send + 'static,
    W: Write + 'static,
{
    let Some(from) = from else { return };
    let ended = ended.clone();
    std::thread::spawn(move || {
        let mut lines = BufReader::new(from);
        let mut line = Vec::new();
        loop {
            line.clear();
            line.extend(format!("[{rank}] ").bytes());
            let begin = line.len();
            match lines.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line) {
                Ok(0) | Err(_) => break,
                Ok(_) => {}
            }
            if line.len() > begin && line.last() != Some(&b'\n') {
                line.push(b'\n');
            }
            // Each line is written in one call, so that lines from different ranks do not mix. If the reader has closed
            // the output, the program's output is still read, so that the program does not block.
            let _ = to().write_all(&line).and_then(|()| to().flush());
        }
        // The receiver may have stopped waiting.
        let _ = ended.send(());
    });
}

struct Rank {
    rank: u32,
    child: Child,
    status: Option<ExitStatus>,
}

/// All rank processes of the run. They and all their descendants are killed when this value is dropped, at the latest.
struct Ranks {
    all: Vec<Rank>,
    /// Process ID that the parent of this process must have.
    first: Option<u32>,
}

impl Ranks {
    /// Waits until all ranks and their descendants have exited. Returns the first rank that failed.
    fn supervise(&mut self, signals: &Signals) -> io::Result<Option<(u32, u32, ExitStatus)>> {
        let mut failure = None;
        // Time at which the processes are killed.
        let mut end: Option<Instant> = None;
        let mut are_others_asked = false;
        loop {
            for rank in self.running() {
                rank.status = rank.child.try_wait()?;
                let status = rank.status.filter(|status| !status.success());
                if let (Some(status), None) = (status, &failure) {
                    failure = Some((rank.rank, rank.child.id(), status));
                }
            }
            descendants::reap(|process| self.all.iter().any(|rank| rank.child.id() == process));
            if self.running().next().is_none() {
                if !descendants::are_left() {
                    return Ok(failure);
                }
                if !are_others_asked {
                    descendants::send(Signals::END);
                    end = end.or(Some(Instant::now() + GRACE));
                    are_others_asked = true;
                }
            }
            if failure.is_some() && end.is_none() {
                self.running().for_each(|rank| child::send(&rank.child, Signals::END));
                end = Some(Instant::now() + if cfg!(unix) { GRACE } else { Duration::ZERO });
            }
            for signal in signals.take() {
                if !signals.reached_all(signal) {
                    self.running().for_each(|rank| child::send(&rank.child, signal));
                }
                if Signals::is_end(signal) {
                    let now = Instant::now();
                    end = Some(match end {
                        None => now + GRACE,
                        Some(end) if now + GRACE < end + TWICE => end,
                        // A second signal ends the processes without waiting.
                        Some(_) => now,
                    });
                }
            }
            if self.is_orphan() || end.is_some_and(|end| end <= Instant::now()) {
                for rank in self.running() {
                    rank.child.kill()?;
                }
                descendants::send(Signals::KILL);
            }
            std::thread::sleep(child::PAUSE);
        }
    }

    /// Returns true if the first process of the command has exited.
    fn is_orphan(&self) -> bool {
        self.first.is_some_and(|first| !child::is_child_of(first))
    }

    fn running(&mut self) -> impl Iterator<Item = &mut Rank> {
        self.all.iter_mut().filter(|rank| rank.status.is_none())
    }
}

impl Drop for Ranks {
    fn drop(&mut self) {
        for rank in self.running() {
            // Killing fails if the process has just exited.
            let _ = rank.child.kill();
            let _ = rank.child.wait();
        }
        descendants::end();
    }
}
