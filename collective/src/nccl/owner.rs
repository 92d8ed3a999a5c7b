//! Owner thread of a communicator. It monitors calls, operations, deadlines, NCCL errors and the other ranks. No other
//! thread destroys or aborts the communicator. An abort also makes an NCCL call return that waits for another rank.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::comm::{NotReady, RawComm};
use super::rank::{Rank, Running};
use crate::deadline;
use crate::failure::Failure;
use crate::mesh::Lane;
use crate::shutdown::Shutdown;

/// Polling intervals: the first while operations are running, the second while no operation is running.
const PAUSE: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(20));
/// Grace period of an operation after a rank that it needs has left. That rank had finished the operation, so the
/// operation can still complete here.
const LEFT_TIME: Duration = Duration::from_millis(500);
/// Time within which an NCCL call must return after the communicator has failed.
const RETURN_TIME: Duration = Duration::from_secs(5);

/// Reason for shutting down a communicator.
enum End {
    Failed(Failure),
    Dropped,
    Finished,
}

/// Body of the owner thread. The function returns when the communicator has ended.
pub(super) fn run(rank: &Rank, parent: RawComm, finish_time: Duration) {
    match watch(rank) {
        End::Finished => finish(rank, parent, finish_time),
        End::Dropped => {
            rank.mesh.leave();
            abort(rank, parent);
        }
        End::Failed(failure) => {
            rank.fail_all(&failure);
            abort(rank, parent);
            // These operations were enqueued in the meantime.
            rank.fail_all(&failure);
        }
    }
}

fn watch(rank: &Rank) -> End {
    let member = &rank.mesh.member;
    let mut left_since = None;
    loop {
        let version = member.version();
        if let Some(failure) = member.failure() {
            return End::Failed(failure);
        }
        let found = match rank.look() {
            Err(failure) => Some(failure),
            Ok(standing) => {
                if let Some(failure) = rank.background_failure() {
                    Some(failure)
                } else if let Some(running) = &standing.running {
                    overdue(rank, running, &mut left_since)
                } else {
                    left_since = None;
                    match rank.shutdown.get() {
                        Shutdown::Finishing if standing.is_idle => return End::Finished,
                        Shutdown::Dropped if standing.is_idle && Arc::strong_count(&rank.graphs) == 1 => {
                            return End::Dropped;
                        }
                        _ => {}
                    }
                    let pause = if standing.is_idle { PAUSE.1 } else { PAUSE.0 };
                    let _ = member.wait_change(version, Instant::now() + pause);
                    continue;
                }
            }
        };
        match found {
            Some(failure) => return End::Failed(rank.mesh.fail(failure)),
            None => {
                let _ = member.wait_change(version, Instant::now() + PAUSE.0);
            }
        }
    }
}

/// Returns the failure of an operation that has timed out or that needs a rank that has left.
fn overdue(rank: &Rank, running: &Running, left_since: &mut Option<Instant>) -> Option<Failure> {
    let mesh = &rank.mesh;
    if running.since.elapsed() >= running.timeout {
        return Some(mesh.timed_out(&running.operation, running.since.elapsed(), &running.peers));
    }
    let left = running.peers.iter().find(|peer| mesh.member.has_left(**peer, Lane::Collective));
    match left {
        None => *left_since = None,
        Some(left) => {
            let since = left_since.get_or_insert_with(Instant::now);
            if since.elapsed().min(running.since.elapsed()) >= LEFT_TIME {
                return Some(Failure::Left { rank: *left });
            }
        }
    }
    None
}

fn abort(rank: &Rank, parent: RawComm) {
    parent.abort();
    match rank.take_raw(RETURN_TIME) {
        Some(raw) => {
            raw.abort();
        }
        None => tracing::warn!(
            communicator = rank.mesh.name,
            "an NCCL call has not returned, so its communicator cannot be aborted; its device resources stay \
             allocated until the process ends"
        ),
    }
}

fn finish(rank: &Rank, parent: RawComm, time: Duration) {
    let Some(raw) = rank.take_raw(RETURN_TIME) else { return abort(rank, parent) };
    let ending = raw.destroy();
    let Err(why) = ending.wait_ended(&rank.mesh, deadline::within(time)) else {
        parent.destroy().wait();
        return;
    };
    rank.mesh.fail(match why {
        NotReady::Failed(failure) => failure,
        NotReady::Refused(refused) => rank.failure_of(refused, parent.get(), None),
        NotReady::Deadline => Failure::Library {
            rank: rank.mesh.rank(),
            reason: format!("ncclCommDestroy did not return within {time:?}"),
        },
    });
    parent.abort();
    ending.wait();
}
