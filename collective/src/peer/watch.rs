//! Thread that monitors the kernels of a communicator and the other ranks. No other thread reports failures or aborts
//! waiting kernels.

use std::time::{Duration, Instant};

use super::rank::{Rank, Standing};
use crate::failure::Failure;
use crate::mesh::Lane;
use crate::shutdown::Shutdown;

/// Polling intervals: the first while operations are running, the second while no operation is running.
const PAUSE: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(20));
/// Grace period of an operation after a rank has left. That rank had finished the operation, so the operation can still
/// complete here.
const LEFT_TIME: Duration = Duration::from_millis(500);
/// Time within which kernels must end after an abort.
const END_TIME: Duration = Duration::from_secs(10);

/// Body of the thread. The function returns when the communicator has ended.
pub(super) fn run(rank: &Rank) {
    if let Err(failure) = watch(rank) {
        rank.abort();
        if let Some(last) = rank.fail_all(&failure) {
            rank.drain(&last, END_TIME);
        }
    }
}

/// Watches the communicator. Returns when the communicator has ended without a failure.
fn watch(rank: &Rank) -> Result<(), Failure> {
    let member = &rank.mesh.member;
    let mut left_since = None;
    loop {
        let version = member.version();
        // A communicator leaves the mesh only when its operations are complete. Otherwise this rank has failed.
        if let Some(failure) = member.failure() {
            return Err(failure);
        }
        let pause = match rank.look() {
            Err(failure) => return Err(rank.mesh.fail(failure)),
            Ok(Standing::Failed(verdict)) => return Err(rank.mesh.fail(rank.failure_of(verdict))),
            Ok(Standing::Idle) => {
                left_since = None;
                match rank.shutdown.get() {
                    Shutdown::Finishing => return Ok(()),
                    Shutdown::Dropped if !rank.has_graphs() => {
                        rank.mesh.leave();
                        return Ok(());
                    }
                    _ => {}
                }
                if rank.has_graphs() { PAUSE.0 } else { PAUSE.1 }
            }
            Ok(Standing::Busy { is_running }) => {
                if is_running && let Some(failure) = left(rank, &mut left_since) {
                    return Err(rank.mesh.fail(failure));
                }
                PAUSE.0
            }
        };
        let _ = member.wait_change(version, Instant::now() + pause);
    }
}

/// Returns the failure of an operation that is still running after a rank has left and the grace period has passed.
fn left(rank: &Rank, since: &mut Option<Instant>) -> Option<Failure> {
    let failed = rank.mesh.others().find(|other| rank.mesh.member.has_left(*other, Lane::Collective))?;
    let since = since.get_or_insert_with(Instant::now);
    (since.elapsed() >= LEFT_TIME).then_some(Failure::Left { rank: failed })
}
