//! `warpsmith launch`: starts a program several times on this host, each with a rank of its own.
//!
//! Guarantees: the processes end with this command, and on Linux so does all that they have started, also when the command
//! is killed; when one fails, the others are ended, and it is named; the store in which they meet listens on the loopback
//! interface alone, and wants the token of the run.
//!
//! On Linux the command is two processes: the one that the user started, and a child of it that starts the ranks. If either
//! is killed, the other ends all that is left.

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

/// How long processes have to end when they are asked to, before they are killed.
const GRACE: Duration = Duration::from_secs(5);
/// A second signal within this time is the first one, which came to both processes of the command.
const TWICE: Duration = Duration::from_millis(500);
/// The variable that says to the second process of the command which is the first.
const FIRST: &str = "WARPSMITH_LAUNCH_PROCESS";
/// How long the rest of the output may take once the processes have ended: others may hold it.
const REST: Duration = Duration::from_millis(500);
/// What is shown of a line at once, in bytes.
const LONGEST_LINE: u64 = 64 << 10;

/// Runs the program as often as was asked for.
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
    // There are some only if the second process was killed.
    descendants::end();
    if let Some(signal) = child::name_of(status) {
        complain(&format!(
            "warpsmith: the process that started the ranks was ended by {signal}; so were all ranks"
        ));
    }
    if status.success() { Ok(()) } else { Err(Failure::Program(child::code(status))) }
}

/// Runs the ranks as children of this process, which ends them if its parent is not `first` any more.
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
    let others = if args.processes > 1 { "; the other ranks were ended" } else { "" };
    complain(&format!("warpsmith: rank {rank} (process {process}) {how}{others}"));
    Err(Failure::Program(child::code(status)))
}

/// The program as one of the ranks.
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
    // All processes are on this host, and whoever could reach NCCL's own sockets could join them.
    if cfg!(target_os = "linux") && std::env::var_os("NCCL_SOCKET_IFNAME").is_none() {
        command.env("NCCL_SOCKET_IFNAME", "lo");
    }
    if rank > 0 {
        command.stdin(Stdio::null());
    }
    child::end_with_this_process(&mut command);
    command
}

/// Shows output line by line, each after the number of its rank, until it ends.
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
            // One write, so that lines of ranks do not mix. When the reader has closed the output, the program's output is still
            // read, so that the program does not block.
            let _ = to().write_all(&line).and_then(|()| to().flush());
        }
        // The receiver may have stopped waiting.
        let _ = ended.send(());
    });
}

/// A process of the run.
struct Rank {
    rank: u32,
    child: Child,
    status: Option<ExitStatus>,
}

/// All processes of the run, which are killed at the latest when this is dropped, with all that they have started.
struct Ranks {
    all: Vec<Rank>,
    /// The process that is to be the parent of this one.
    first: Option<u32>,
}

impl Ranks {
    /// Waits until all have ended, and what they have started; the first that failed.
    fn supervise(&mut self, signals: &Signals) -> io::Result<Option<(u32, u32, ExitStatus)>> {
        let mut failure = None;
        // When they are killed.
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
                        // The second does not wait.
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

    /// Whether the first process of the command has ended.
    fn is_orphan(&self) -> bool {
        #[cfg(unix)]
        return self.first.is_some_and(|first| std::os::unix::process::parent_id() != first);
        #[cfg(not(unix))]
        return false;
    }

    fn running(&mut self) -> impl Iterator<Item = &mut Rank> {
        self.all.iter_mut().filter(|rank| rank.status.is_none())
    }
}

impl Drop for Ranks {
    fn drop(&mut self) {
        for rank in self.running() {
            // One that has just ended cannot be killed.
            let _ = rank.child.kill();
            let _ = rank.child.wait();
        }
        descendants::end();
    }
}
