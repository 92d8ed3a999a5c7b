//! The worker's side.

use std::io::{BufRead, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use warpsmith_runtime::Device;

use super::{CaseRequest, Measured, PROTOCOL, Reply, Request};
use crate::benchmark::{Setup, Suite, Work, dtype};
use crate::document::Outcome;
use crate::error::Result;
use crate::local::{Instruments, Local};
use crate::measure::Effort;

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
    let (is_done, stop) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let mut open = None;
    for request in requests(is_done.clone(), stop.clone()) {
        let reply = match request {
            Ok(request) => answer(suite, &mut open, request, &stop),
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

/// The requests on the standard input, read on a thread of their own, which sets `stop` while something is timed, and notices
/// when the input is closed while a kernel hangs.
fn requests(is_done: Arc<AtomicBool>, stop: Arc<AtomicBool>) -> Receiver<serde_json::Result<Request>> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let Ok(line) = line else { break };
            if line.trim().is_empty() {
                continue;
            }
            match serde_json::from_str(&line) {
                Ok(Request::Stop) => stop.store(true, Ordering::Relaxed),
                request => {
                    if sender.send(request).is_err() {
                        return;
                    }
                }
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

fn answer(suite: &Suite, open: &mut Option<Local>, request: Request, stop: &Arc<AtomicBool>) -> Reply {
    match request {
        Request::Open(request) => {
            let kept = open.take().and_then(Local::into_instruments);
            let kept = kept.filter(|kept| kept.device().id().to_string() == request.device);
            match opened(suite, &request, kept, stop) {
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
        Request::Check { configuration } => match open {
            Some(local) => Reply::Measured(local.check_again(&configuration)),
            None => Reply::Refused { reason: "no case is open".to_owned() },
        },
        Request::Stop => Reply::Refused { reason: "a stop has no answer".to_owned() },
    }
}

/// So many samples, whatever they take.
fn exactly(count: usize, effort: Effort) -> Effort {
    Effort { least: count.max(1), most: count.max(1), ..effort }
}

fn opened(
    suite: &Suite,
    request: &CaseRequest,
    kept: Option<Instruments>,
    stop: &Arc<AtomicBool>,
) -> Result<Local> {
    let benchmark = suite.find(&request.kernel)?;
    let dtype = dtype(benchmark, &request.dtype)?;
    let instruments = match kept {
        Some(kept) => kept,
        None => Instruments::new(&Device::open(&request.device)?, stop)?,
    };
    let CaseRequest { n, copies, seed, .. } = *request;
    let setup = Setup { stream: instruments.stream(), dtype, n: n as usize, copies, seed };
    let case = benchmark.prepare(&setup)?;
    // The process that asks has the probes.
    Ok(Local::new(instruments, case, Work::default(), request.mode, request.effort))
}
