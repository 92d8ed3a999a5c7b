//! Rendezvous: all ranks find and check each other before any of them can hang.
//!
//! A mismatch between two ranks causes an error that names both, on all ranks that have arrived. Mismatches are
//! different world sizes, two processes with the same rank, two ranks on the same GPU, and different versions of
//! Warpsmith. A rank whose process ends is reported immediately; missing ranks are reported at the deadline. No rank
//! continues until all ranks have arrived and match.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::{Duration, Instant};
//!
//! use warpsmith_collective::store::MemoryStore;
//! use warpsmith_collective::{Launch, Store, rendezvous};
//!
//! let deadline = Instant::now() + Duration::from_secs(30);
//! let store = Arc::new(MemoryStore::new());
//! std::thread::scope(|scope| {
//!     for launch in Launch::threads(2) {
//!         let store = store.clone();
//!         scope.spawn(move || {
//!             let rendezvous = rendezvous::join(&launch, store, "main", None, deadline).unwrap();
//!             assert_eq!(rendezvous.members().len(), 2);
//!             let rank = launch.rank.to_string();
//!             rendezvous.store().set(&rank, b"here", deadline).unwrap();
//!         });
//!     }
//! });
//! # Ok::<(), warpsmith_runtime::Error>(())
//! ```

mod member;
mod run_store;

use std::sync::Arc;
use std::time::{Duration, Instant};

use warpsmith_runtime::Uuid;

pub use self::member::Member;
pub use self::run_store::RunStore;
use crate::deadline;
use crate::error::{CollectiveError, Error, Result};
use crate::launch::{Launch, StoreAddress, StoreHost};
pub use crate::rendezvous_error::{Place, RendezvousError};
use crate::store::{PrefixStore, Store};

/// Key, within a run, of the list of failed ranks, such as `1,4,`.
const FAILED_RANKS: &str = "failed_ranks";
/// Key prefix, within a run, for ranks that no longer use the store.
const FINISHED: &str = "finished";
/// Key, within a group, of the problem that a rank has detected.
const FAILED: &str = "failed";
/// Key prefix, within a group, for the chunks of members that rank 0 writes, and the number of ranks per chunk. An
/// encoded member is shorter than 1 KiB.
const MEMBERS: &str = "members";
const CHUNK: usize = 1024;
const END_OF_MEMBER: u8 = 0;
/// Interval at which a waiting rank checks whether other ranks have exited.
const LOOK: Duration = Duration::from_millis(50);
/// Time reserved at the end of the timeout for finding out which ranks are missing.
const REPORT: Duration = Duration::from_millis(500);

/// Result of a rendezvous at which all ranks have arrived.
#[derive(Debug)]
pub struct Rendezvous {
    members: Vec<Member>,
    run: PrefixStore,
    store: PrefixStore,
}

/// Waits until all ranks of a run have arrived and checks that they match. `group` distinguishes several rendezvous of
/// the same run. Every rank must use the same group names, each of them only once. `gpu` is the
/// [`uuid`](warpsmith_runtime::Device::uuid) of the GPU that the rank will use. Emulated devices have no UUID.
///
/// # Errors
/// Returns [`RendezvousError`]; if another rank detects the problem, waiting ranks return [`RendezvousError::Refused`].
/// Also returns store errors.
pub fn join(
    launch: &Launch,
    store: Arc<dyn Store>,
    group: &str,
    gpu: Option<Uuid>,
    deadline: Instant,
) -> Result<Rendezvous> {
    let run = PrefixStore::new(launch.key_prefix(), store);
    let store = PrefixStore::new(group, Arc::new(run.clone()));
    let here = Member::here(launch, gpu);
    let met = arrive(&store, &here, deadline).and_then(|()| gather(launch, &run, &store, deadline));
    match met {
        Ok(members) => Ok(Rendezvous { members, run, store }),
        Err(error)
            if launch.rank > 0
                && is_served_by_rank_0(launch)
                && matches!(error.downcast_ref(), Some(CollectiveError::StoreClosed { .. })) =>
        {
            Err(RendezvousError::RankFailed { rank: 0, place: None }.into())
        }
        Err(error) => {
            if error.downcast_ref().is_some_and(RendezvousError::is_news) {
                // If the store is unreachable, each of the other ranks fails at its own deadline.
                let last = deadline::with_last_word(deadline);
                let _ = store.compare_set(FAILED, b"", error.to_string().as_bytes(), last);
            }
            if launch.rank == 0 && is_served_by_rank_0(launch) {
                // The store shuts down with this process, so the other ranks must be given time for one more check.
                std::thread::sleep(3 * LOOK);
            }
            Err(error)
        }
    }
}

fn is_served_by_rank_0(launch: &Launch) -> bool {
    matches!(launch.store, Some(StoreAddress { served_by: StoreHost::Rank0, .. }))
}

/// Publishes this rank unless it conflicts with ranks that have already arrived.
fn arrive(store: &dyn Store, here: &Member, deadline: Instant) -> Result<()> {
    let text = here.text();
    // Only the first rank to arrive stores its member. The closure returns the stored member.
    let claim = |key: &str| -> Result<Option<Member>> {
        let present = store.compare_set(key, b"", text.as_bytes(), deadline)?;
        match present == text.as_bytes() {
            true => Ok(None),
            false => Member::read(&present)
                .map(Some)
                .ok_or_else(|| CollectiveError::StrangeValue { key: key.to_owned() }.into()),
        }
    };
    let (second, seconds) = (here.place.clone(), here.clone());
    if let Some(first) = claim("first")? {
        if first.version != here.version {
            let (first_version, second_version) = (first.version, seconds.version);
            return Err(RendezvousError::Versions {
                first: first.place,
                first_version,
                second,
                second_version,
            }
            .into());
        }
        if first.world_size != here.world_size {
            let (first_size, second_size) = (first.world_size, here.world_size);
            return Err(
                RendezvousError::WorldSizes { first: first.place, first_size, second, second_size }.into()
            );
        }
    }
    if let Some(gpu) = &here.gpu
        && let Some(other) = claim(&format!("gpu/{gpu}"))?
        && other.place.rank != here.place.rank
    {
        return Err(RendezvousError::SharedGpu { gpu: gpu.clone(), first: other.place, second }.into());
    }
    match claim(&rank_key(here.place.rank))? {
        Some(first) => {
            Err(RendezvousError::DuplicateRank { rank: second.rank, first: first.place, second }.into())
        }
        None => Ok(()),
    }
}

fn rank_key(rank: usize) -> String {
    format!("rank/{rank}")
}

/// Waits for all ranks. Rank 0 gathers the members of all ranks. If every rank read them directly, the number of store
/// operations would be quadratic in the number of ranks.
fn gather(launch: &Launch, run: &PrefixStore, store: &PrefixStore, deadline: Instant) -> Result<Vec<Member>> {
    // The rest of the time is needed to find out which ranks are missing.
    let left = deadline.saturating_duration_since(Instant::now());
    let report = REPORT.min(left / 4);
    let world_size = launch.world_size;
    let chunks: Vec<String> =
        (0..world_size.div_ceil(CHUNK)).map(|chunk| format!("{MEMBERS}/{chunk}")).collect();
    let keys = if launch.rank == 0 { (0..world_size).map(rank_key).collect() } else { chunks.clone() };
    let names: Vec<&str> = keys.iter().map(String::as_str).collect();
    match wait(run, store, &names, deadline - report)? {
        Waited::Set => {}
        Waited::Failed(rank) => {
            let (key, last) = (rank_key(rank), deadline::with_last_word(deadline));
            let place =
                if store.contains(&[&key], last)? { Some(member(store, &key, last)?.place) } else { None };
            return Err(RendezvousError::RankFailed { rank, place }.into());
        }
        Waited::Late => {
            if launch.rank > 0 {
                // If rank 0 is present, it finds out which ranks are missing, on behalf of all ranks.
                await_refusal(store, (deadline - report / 2).max(Instant::now() + LOOK))?;
            }
            return Err(missing(world_size, store, left, deadline::with_last_word(deadline)));
        }
    }
    let mut members = Vec::new();
    if launch.rank == 0 {
        for (keys, chunk) in names.chunks(CHUNK).zip(&chunks) {
            let mut texts = Vec::new();
            for key in keys {
                let text = store.get(key, deadline)?;
                members.push(
                    Member::read(&text)
                        .ok_or_else(|| CollectiveError::StrangeValue { key: (*key).to_owned() })?,
                );
                texts.extend(text);
                texts.push(END_OF_MEMBER);
            }
            store.set(chunk, &texts, deadline)?;
        }
    } else {
        for chunk in &chunks {
            for text in store.get(chunk, deadline)?.split(|byte| *byte == END_OF_MEMBER) {
                members.extend(Member::read(text));
            }
        }
    }
    match members.iter().map(|member| member.place.rank).eq(0..world_size) {
        true => Ok(members),
        false => Err(CollectiveError::StrangeValue { key: MEMBERS.to_owned() }.into()),
    }
}

fn member(store: &PrefixStore, key: &str, deadline: Instant) -> Result<Member> {
    Member::read(&store.get(key, deadline)?)
        .ok_or_else(|| CollectiveError::StrangeValue { key: key.to_owned() }.into())
}

/// Waits until the time `until` for another rank to report a problem. Fails with the problem.
fn await_refusal(store: &PrefixStore, until: Instant) -> Result<()> {
    match store.get(FAILED, until) {
        Ok(problem) => {
            let problem = String::from_utf8_lossy(&problem).into_owned();
            Err(RendezvousError::Refused { problem }.into())
        }
        Err(error) if CollectiveError::is_store_timeout(&error) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Returns an error that lists the missing ranks.
fn missing(world_size: usize, store: &PrefixStore, waited: Duration, deadline: Instant) -> Error {
    let (mut ranks, mut present) = (Vec::new(), Vec::new());
    for rank in 0..world_size {
        let key = rank_key(rank);
        let found = match store.contains(&[&key], deadline) {
            Ok(false) => {
                ranks.push(rank);
                continue;
            }
            Ok(true) => member(store, &key, deadline),
            Err(error) => Err(error),
        };
        match found {
            Ok(member) => present.push(member.place),
            Err(error) => return error,
        }
    }
    match ranks.is_empty() {
        // All ranks are present, but rank 0 has not published their members.
        true => CollectiveError::StoreTimeout { key: MEMBERS.to_owned() }.into(),
        false => {
            RendezvousError::MissingRanks { ranks, present, world_size, seconds: waited.as_secs_f64() }.into()
        }
    }
}

/// Outcome of waiting for other ranks.
enum Waited {
    /// All keys are set.
    Set,
    /// The deadline has passed.
    Late,
    /// The process of this rank has exited.
    Failed(usize),
}

/// Waits for keys of a group. While waiting, checks whether a rank has reported a problem or has exited.
fn wait(run: &PrefixStore, group: &PrefixStore, keys: &[&str], deadline: Instant) -> Result<Waited> {
    loop {
        match group.wait(keys, deadline.min(Instant::now() + LOOK)) {
            Ok(()) => return Ok(Waited::Set),
            // A wait that starts at the deadline fails in the same way as a wait on a store that does not respond.
            Err(error) if !CollectiveError::is_store_timeout(&error) && Instant::now() < deadline => {
                return Err(error);
            }
            Err(_) => {}
        }
        let last = deadline::with_last_word(deadline);
        if group.contains(&[FAILED], last)? {
            await_refusal(group, last)?;
        }
        if let Some(&rank) = failed_ranks(run, last)?.first() {
            return Ok(Waited::Failed(rank));
        }
        if Instant::now() >= deadline {
            return Ok(Waited::Late);
        }
    }
}

/// Returns the failed ranks of a run in the order in which they failed. The first failure may have caused the others.
fn failed_ranks(run: &PrefixStore, deadline: Instant) -> Result<Vec<usize>> {
    if !run.contains(&[FAILED_RANKS], deadline)? {
        return Ok(Vec::new());
    }
    let text = String::from_utf8_lossy(&run.get(FAILED_RANKS, deadline)?).into_owned();
    Ok(text.split(',').filter_map(|rank| rank.parse().ok()).collect())
}

impl Rendezvous {
    /// Returns the members in rank order.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// Returns the store for the keys of this group (`warpsmith/RUN/RESTARTS/GROUP/…`).
    pub fn store(&self) -> &PrefixStore {
        &self.store
    }

    /// Returns the ranks whose processes have exited without calling [`RunStore::finish`], in the order in which they
    /// exited. The first of these ranks may have caused the others to end. The list is empty for stores that cannot
    /// detect the end of a process.
    ///
    /// # Errors
    /// Fails if the store cannot be reached before the deadline.
    pub fn failed_ranks(&self, deadline: Instant) -> Result<Vec<usize>> {
        failed_ranks(&self.run, deadline)
    }
}
