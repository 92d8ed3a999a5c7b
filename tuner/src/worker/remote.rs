//! [`Remote`]: the side that asks.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::{CaseRequest, Measured, PROTOCOL, Program, Reply, Request};
use crate::document::Outcome;
use crate::error::{Error, Result};
use crate::value::Configuration;

/// How long a worker may take for one answer, if nothing else is said.
const USUAL_TIMEOUT: Duration = Duration::from_secs(60);
/// So many times as long may making a case ready take.
const OPENING: u32 = 10;
/// How long a worker may take to say that it is one.
const HELLO: Duration = Duration::from_secs(30);
/// How often it is looked whether the worker is to stop.
const LOOK: Duration = Duration::from_millis(10);
/// How long a worker that was told to stop may take for what is in progress.
const STOPPING: Duration = Duration::from_secs(5);
/// How long the last words of a worker that is gone are waited for.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// The most of them that is told.
const MOST_WORDS: usize = 300;

/// A worker, which is started again when it was brought down.
#[derive(Debug)]
pub struct Remote {
    program: Program,
    /// The version of Warpsmith that it was built with.
    version: String,
    timeout: Duration,
    running: Option<Running>,
    case: Option<CaseRequest>,
    launches: Option<u32>,
    /// Ends timings once it is set.
    stop: Arc<AtomicBool>,
}

#[derive(Debug)]
struct Running {
    child: Child,
    requests: ChildStdin,
    replies: Receiver<serde_json::Result<Reply>>,
    /// The last line of its standard error, once that is closed.
    last_words: Receiver<String>,
    /// Whether it was told to stop.
    is_told: bool,
}

/// What a worker did instead of answering.
enum Silence {
    /// It is gone, or was ended because it took too long: what happened to it.
    Gone(String),
    /// It answered what is no answer.
    Nonsense(String),
}

impl Remote {
    /// Starts an executable with the argument [`ARGUMENT`](super::ARGUMENT).
    ///
    /// # Errors
    /// [`Error::Worker`] for what cannot be started, is no worker, or speaks another version of the protocol.
    pub fn spawn(program: &Path) -> Result<Self> {
        Self::start(Program::new(program))
    }

    /// Starts a program.
    ///
    /// # Errors
    /// As [`Remote::spawn`].
    pub fn start(program: Program) -> Result<Self> {
        let (timeout, stop) = (USUAL_TIMEOUT, Arc::default());
        let version = String::new();
        let mut remote = Self { program, version, timeout, running: None, case: None, launches: None, stop };
        remote.run()?;
        Ok(remote)
    }

    /// Ends a worker that takes longer than this for one measurement from now on, or ten times as long for making a case
    /// ready; 60 seconds if nothing is said.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// Has the worker end a timing once `stop` is set: with the samples so far
    /// ([`StopReason::Interrupted`](crate::measure::StopReason::Interrupted)), at least one. A worker that does not answer within
    /// five seconds then is ended. The flag is looked at every ten milliseconds.
    pub fn set_stop(&mut self, stop: &Arc<AtomicBool>) {
        self.stop = Arc::clone(stop);
    }

    /// The program.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// The version of Warpsmith that it was built with.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Has the worker make a case ready, instead of the one before.
    ///
    /// # Errors
    /// [`Error::Worker`] with what the worker says of it, or what became of the worker.
    pub fn open(&mut self, request: &CaseRequest) -> Result<()> {
        self.case = Some(request.clone());
        self.launches = None;
        let reply = match self.running.is_some() {
            true => self.ask(&Request::Open(request.clone())),
            false => return self.run(),
        };
        self.opened(reply)
    }

    /// The launches in a sample of the open case: those of its first timing, or what was set. `None` before.
    pub fn launches(&self) -> Option<u32> {
        self.launches
    }

    /// Has samples of the open case hold so many launches, as those of another worker do whose times are compared.
    pub fn set_launches(&mut self, launches: u32) {
        self.launches = Some(launches.max(1));
    }

    /// Has a configuration checked, once for each process, and timed: as long as the case's effort says, or so many
    /// samples. A worker that dies or does not answer in time is replaced by the next call.
    ///
    /// # Errors
    /// [`Error::Worker`] when no case is open, or when a new worker cannot be started or cannot open it.
    pub fn measure(&mut self, configuration: &Configuration, samples: Option<usize>) -> Result<Measured> {
        let (configuration, launches) = (configuration.clone(), self.launches);
        self.measured(&Request::Measure { configuration, samples, launches })
    }

    /// Has a configuration checked, whether that was done or not. What comes back has no times.
    ///
    /// # Errors
    /// As [`Self::measure`].
    pub fn check_again(&mut self, configuration: &Configuration) -> Result<Measured> {
        self.measured(&Request::Check { configuration: configuration.clone() })
    }

    fn measured(&mut self, request: &Request) -> Result<Measured> {
        if self.case.is_none() {
            return Err(self.error("has no open case; call open before measure".to_owned()));
        }
        if self.running.is_none() {
            self.run()?;
        }
        let started = Instant::now();
        match self.ask(request) {
            Ok(Reply::Measured(measured)) => {
                let found = measured.timing.as_ref().map(|timing| timing.launches_per_sample);
                self.launches = self.launches.or(found);
                if measured.outcome == Outcome::Crashed {
                    // Its device is lost.
                    self.end();
                }
                Ok(measured)
            }
            Ok(Reply::Refused { reason }) => Err(self.error(format!("refused: {reason}"))),
            Ok(_) => Err(self.error("did not answer what was asked".to_owned())),
            Err(Silence::Gone(problem)) => Ok(Measured::crashed(problem, started.elapsed().as_secs_f64())),
            Err(Silence::Nonsense(reason)) => Err(self.error(reason)),
        }
    }

    /// Starts a process, and opens the case if there is one.
    fn run(&mut self) -> Result<()> {
        let mut command = Command::new(&self.program.path);
        // Ctrl-C is for this process to handle: it would look as if a configuration had crashed.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut child = command
            .args(&self.program.arguments)
            // The last line of a panic is then what it says.
            .env("RUST_BACKTRACE", "0")
            .envs(self.program.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| self.error(format!("cannot be started: {error}")))?;
        let (Some(requests), Some(output), Some(errors)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(self.error("was started without a connection".to_owned()));
        };
        let (replies, last_words) = (listen(output), keep_last_line(errors));
        self.running = Some(Running { child, requests, replies, last_words, is_told: false });
        match self.hear(HELLO) {
            Ok(Reply::Hello { protocol: PROTOCOL, version }) => self.version = version,
            Ok(Reply::Hello { protocol, version }) => {
                self.end();
                return Err(self.error(format!(
                    "is of version {version}, whose protocol is {protocol} where this program's is {PROTOCOL}; build \
                     both with the same version"
                )));
            }
            Ok(_) | Err(Silence::Nonsense(_)) => {
                self.end();
                return Err(self.error("is no worker".to_owned()));
            }
            Err(Silence::Gone(what)) => {
                return Err(self.error(format!(
                    "is no worker: it {what}. It must be a program that has `warpsmith::bench_main!` or calls \
                     `worker::serve`"
                )));
            }
        }
        match self.case.clone() {
            Some(case) => {
                let reply = self.ask(&Request::Open(case));
                self.opened(reply)
            }
            None => Ok(()),
        }
    }

    fn opened(&mut self, reply: std::result::Result<Reply, Silence>) -> Result<()> {
        let reason = match reply {
            Ok(Reply::Opened) => return Ok(()),
            Ok(Reply::Refused { reason }) => format!("refused: {reason}"),
            Ok(_) => "did not answer what was asked".to_owned(),
            Err(Silence::Gone(what)) => format!("{what} while it made the case ready"),
            Err(Silence::Nonsense(reason)) => reason,
        };
        self.case = None;
        Err(self.error(reason))
    }

    fn ask(&mut self, request: &Request) -> std::result::Result<Reply, Silence> {
        let Some(running) = &mut self.running else { return Err(Silence::Gone("is not running".to_owned())) };
        let mut line = serde_json::to_string(request).expect("plain data always becomes JSON");
        line.push('\n');
        if running.requests.write_all(line.as_bytes()).and_then(|()| running.requests.flush()).is_err() {
            return Err(Silence::Gone(self.end()));
        }
        let factor = if matches!(request, Request::Open(_)) { OPENING } else { 1 };
        self.hear(self.timeout.saturating_mul(factor))
    }

    /// Waits for the next answer. The process is ended if none comes.
    fn hear(&mut self, timeout: Duration) -> std::result::Result<Reply, Silence> {
        let Some(running) = &mut self.running else { return Err(Silence::Gone("is not running".to_owned())) };
        let mut deadline = Instant::now() + timeout;
        let heard = loop {
            if self.stop.load(Ordering::Relaxed) && !running.is_told {
                running.is_told = true;
                // One that is gone is noticed below.
                let line = serde_json::to_string(&Request::Stop).expect("plain data always becomes JSON");
                let _ = writeln!(running.requests, "{line}").and_then(|()| running.requests.flush());
            }
            if running.is_told {
                deadline = deadline.min(Instant::now() + STOPPING);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            match running.replies.recv_timeout(left.min(LOOK)) {
                Err(RecvTimeoutError::Timeout) if left > LOOK => {}
                heard => break heard,
            }
        };
        match heard {
            Ok(Ok(reply)) => Ok(reply),
            Ok(Err(error)) => {
                self.end();
                Err(Silence::Nonsense(format!("answered what is no answer: {error}")))
            }
            Err(RecvTimeoutError::Timeout) => {
                self.end();
                Err(Silence::Gone(format!("did not answer within {} s", timeout.as_secs_f64())))
            }
            Err(RecvTimeoutError::Disconnected) => Err(Silence::Gone(self.end())),
        }
    }

    /// Ends the process; says what it had come to by itself.
    fn end(&mut self) -> String {
        let Some(Running { mut child, requests, last_words, .. }) = self.running.take() else {
            return "is not running".to_owned();
        };
        drop(requests);
        // One that closed its output is about to end by itself, and how is worth knowing.
        let deadline = Instant::now() + LAST_WORDS;
        let status = loop {
            match child.try_wait() {
                Ok(Some(status)) => break Some(status),
                Ok(None) if Instant::now() < deadline => thread::sleep(Duration::from_millis(2)),
                Ok(None) | Err(_) => break None,
            }
        };
        if status.is_none() {
            // It may have gone just now; either way it is waited for.
            let _ = child.kill();
            let _ = child.wait();
        }
        let words = last_words.recv_timeout(LAST_WORDS).unwrap_or_default();
        let what = status.map_or_else(|| "stopped answering and was ended".to_owned(), describe);
        if words.is_empty() { what } else { format!("{what}: {words}") }
    }

    fn error(&self, reason: String) -> Error {
        Error::Worker { program: self.program.path.clone(), reason }
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        if let Some(running) = &mut self.running {
            // Nothing can be done about a process that cannot be ended.
            let _ = running.child.kill();
            let _ = running.child.wait();
        }
    }
}

/// Hands on the replies in a worker's output.
fn listen(output: impl Read + Send + 'static) -> Receiver<serde_json::Result<Reply>> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        let (mut output, mut line) = (BufReader::new(output), Vec::new());
        while output.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
            if let Some(reply) = Reply::of_line(&line)
                && sender.send(reply).is_err()
            {
                return;
            }
            line.clear();
        }
    });
    receiver
}

/// Hands on the last line that is not empty, once there are no more.
fn keep_last_line(errors: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        let (mut errors, mut line, mut last) = (BufReader::new(errors), Vec::new(), String::new());
        while errors.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
            let text = String::from_utf8_lossy(line.trim_ascii());
            if !text.is_empty() && !text.starts_with("note: ") {
                last = text.chars().take(MOST_WORDS).collect();
            }
            line.clear();
        }
        // Nobody may be left to hear it.
        let _ = sender.send(last);
    });
    receiver
}

/// What an exit status says, as the end of a sentence.
fn describe(status: ExitStatus) -> String {
    #[cfg(unix)]
    if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&status) {
        let name = match signal {
            4 => " (illegal instruction)",
            6 => " (abort)",
            7 => " (bus error)",
            8 => " (arithmetic error)",
            9 => " (kill)",
            11 => " (segmentation fault)",
            15 => " (terminate)",
            _ => "",
        };
        return format!("ended by signal {signal}{name}");
    }
    match status.code() {
        Some(code) => format!("ended with exit code {code}"),
        None => "ended".to_owned(),
    }
}
