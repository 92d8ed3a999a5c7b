//! The worker's side.

use std::io::{BufRead, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use warpsmith_runtime::{Device, Stream};

use super::{CaseRequest, Measured, PROTOCOL, Reply, Request};
use crate::benchmark::{Setup, Suite, dtype};
use crate::document::Outcome;
use crate::error::Result;
use crate::measure::{Effort, Stopwatch};
use crate::tune::Local;

/// How long after the connection was closed the process is ended, if it does not end by itself.
const GRACE: Duration = Duration::from_secs(2);

/// Does what a [`Remote`](super::Remote) asks for until it closes the connection: the other process's standard input and
/// output, which are this one's. A program calls it when its argument is [`ARGUMENT`](super::ARGUMENT), and exits with what
/// it returns. A process that hangs in a kernel when the connection is closed is ended after two seconds.
pub fn serve(suite: &Suite) -> ExitCode {
    let hello = Reply::Hello { protocol: PROTOCOL, version: env!("CARGO_PKG_VERSION").to_owned() };
    if !say(&hello) {
        return ExitCode::FAILURE;
    }
    let is_done = Arc::new(AtomicBool::new(false));
    let mut open = None;
    for line in requests(is_done.clone()) {
        let reply = match serde_json::from_str(&line) {
            Ok(request) => answer(suite, &mut open, request),
            Err(error) => Reply::Refused { reason: format!("the request is none: {error}") },
        };
        // After a crash the device is lost: this process can measure nothing more.
        let is_last = matches!(&reply, Reply::Measured(Measured { outcome: Outcome::Crashed, .. }));
        if !say(&reply) || is_last {
            break;
        }
    }
    is_done.store(true, Ordering::Relaxed);
    ExitCode::SUCCESS
}

/// The lines of the standard input, read on a thread of their own, which notices when it is closed while a kernel hangs.
fn requests(is_done: Arc<AtomicBool>) -> Receiver<String> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let Ok(line) = line else { break };
            if !line.trim().is_empty() && sender.send(line).is_err() {
                return;
            }
        }
        drop(sender);
        thread::sleep(GRACE);
        if !is_done.load(Ordering::Relaxed) {
            std::process::exit(1);
        }
    });
    receiver
}

/// Whether the other process heard it.
fn say(reply: &Reply) -> bool {
    let mut out = std::io::stdout().lock();
    out.write_all(reply.to_line().as_bytes()).and_then(|()| out.flush()).is_ok()
}

fn answer(suite: &Suite, open: &mut Option<Local>, request: Request) -> Reply {
    match request {
        Request::Open(request) => {
            let kept = open.take().and_then(Local::into_stopwatch);
            let watch = kept.filter(|(stream, _)| stream.device().id().to_string() == request.device);
            match opened(suite, &request, watch) {
                Ok(local) => {
                    *open = Some(local);
                    Reply::Opened
                }
                Err(error) => Reply::Refused { reason: error.to_string() },
            }
        }
        Request::Measure { configuration, samples, launches } => match open {
            Some(local) => {
                if let Some(launches) = launches {
                    local.set_launches(launches);
                }
                let effort = local.effort();
                let effort = samples.map_or(effort, |count| exactly(count, effort));
                Reply::Measured(local.measure(&configuration, effort))
            }
            None => Reply::Refused { reason: "no case is open".to_owned() },
        },
    }
}

/// So many samples, whatever they take.
fn exactly(count: usize, effort: Effort) -> Effort {
    Effort { least: count.max(1), most: count.max(1), ..effort }
}

fn opened(suite: &Suite, request: &CaseRequest, watch: Option<(Stream, Stopwatch)>) -> Result<Local> {
    let benchmark = suite.find(&request.kernel)?;
    let dtype = dtype(benchmark, &request.dtype)?;
    let (stream, watch) = match watch {
        Some(kept) => kept,
        None => {
            let stream = Stream::new(&Device::open(&request.device)?)?;
            let watch = Stopwatch::new(&stream)?;
            (stream, watch)
        }
    };
    let CaseRequest { n, copies, seed, .. } = *request;
    let case = benchmark.prepare(&Setup { stream: &stream, dtype, n: n as usize, copies, seed })?;
    Ok(Local::new(stream, watch, case, request.mode, request.effort))
}
