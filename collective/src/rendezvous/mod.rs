//! All ranks find each other, before anything can hang.
//!
//! Guarantees: ranks that expect other numbers of ranks, have the same rank, the same GPU or another version of
//! Warpsmith are an error on all ranks that are there, which names both; a rank whose process ends is named at once;
//! ranks that do not come are named at the deadline. No rank goes on before all are there and fit.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::{Duration, Instant};
//!
//! use warpsmith_collective::store::MemoryStore;
//! use warpsmith_collective::{Launch, Store, rendezvous};
//!
//! # fn main() -> warpsmith_collective::Result<()> {
//! let deadline = Instant::now() + Duration::from_secs(30);
//! let store = Arc::new(MemoryStore::new());
//! std::thread::scope(|scope| {
//!     for launch in Launch::threads(2) {
//!         let store = store.clone();
//!         scope.spawn(move || {
//!             let meeting = rendezvous::meet(&launch, store, "main", None, deadline).unwrap();
//!             assert_eq!(meeting.members().len(), 2);
//!             let rank = launch.rank.to_string();
//!             meeting.store().set(&rank, b"here", deadline).unwrap();
//!         });
//!     }
//! });
//! # Ok(())
//! # }
//! ```

mod member;
mod run_store;

use std::sync::Arc;
use std::time::{Duration, Instant};

use warpsmith_runtime::Uuid;

pub use self::member::Member;
pub use self::run_store::RunStore;
use crate::deadline;
use crate::error::{Error, Result};
use crate::launch::{Launch, StoreAddress, StoreHost};
pub use crate::rendezvous_error::{Place, RendezvousError};
use crate::store::{PrefixStore, Store};

/// The key of a run with the ranks that have ended: `1,4,`.
const GONE: &str = "gone";
/// The keys of a run with the ranks that need the store no more.
const FINISHED: &str = "finished";
/// The key of a group with what is wrong.
const FAILED: &str = "failed";
/// The keys of a group with what all ranks say, which rank 0 writes, and the number of ranks in each: a text has less
/// than 1 KiB.
const MEMBERS: &str = "members";
const CHUNK: usize = 1024;
const END_OF_MEMBER: u8 = 0;
/// How often it is looked whether a rank has ended while others are waited for.
const LOOK: Duration = Duration::from_millis(50);
/// What is kept of the time for finding out who is missing.
const REPORT: Duration = Duration::from_millis(500);

/// Ranks that have met.
#[derive(Debug)]
pub struct Meeting {
    members: Vec<Member>,
    run: PrefixStore,
    store: PrefixStore,
}

/// Waits until all ranks of a run are there, and fit. `group` distinguishes several meetings of a run: every rank gives
/// the same names, each once. `gpu` is the [`uuid`](warpsmith_runtime::Device::uuid) of the GPU that the rank will use;
/// emulated devices have none of their own.
///
/// # Errors
/// [`Error::Rendezvous`], with [`RendezvousError::Refused`] on the ranks that wait when another one finds what is
/// wrong; those of the store.
pub fn meet(
    launch: &Launch,
    store: Arc<dyn Store>,
    group: &str,
    gpu: Option<Uuid>,
    deadline: Instant,
) -> Result<Meeting> {
    let run = PrefixStore::new(launch.key_prefix(), store);
    let store = PrefixStore::new(group, Arc::new(run.clone()));
    let here = Member::here(launch, gpu);
    let met = arrive(&store, &here, deadline).and_then(|()| gather(launch, &run, &store, deadline));
    match met {
        Ok(members) => Ok(Meeting { members, run, store }),
        Err(Error::StoreClosed { .. }) if launch.rank > 0 && is_served_by_rank_0(launch) => {
            Err(RendezvousError::RankGone { rank: 0, place: None }.into())
        }
        Err(error) => {
            if matches!(&error, Error::Rendezvous(why) if why.is_news()) {
                // The others see it at their own deadline if the store cannot be reached.
                let last = deadline::with_last_word(deadline);
                let _ = store.compare_set(FAILED, b"", error.to_string().as_bytes(), last);
            }
            if launch.rank == 0 && is_served_by_rank_0(launch) {
                // The store ends with this process: the others look once more before.
                std::thread::sleep(3 * LOOK);
            }
            Err(error)
        }
    }
}

fn is_served_by_rank_0(launch: &Launch) -> bool {
    matches!(launch.store, Some(StoreAddress::Tcp { served_by: StoreHost::Rank0, .. }))
}

/// Says that this rank is there, unless it does not fit to those that are.
fn arrive(store: &dyn Store, here: &Member, deadline: Instant) -> Result<()> {
    let text = here.text();
    // Who comes first puts its text there. The result is the text that is there.
    let claim = |key: &str| -> Result<Option<Member>> {
        let present = store.compare_set(key, b"", text.as_bytes(), deadline)?;
        match present == text.as_bytes() {
            true => Ok(None),
            false => Member::read(&present).map(Some).ok_or(Error::StrangeValue { key: key.to_owned() }),
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

/// Waits for all ranks. Rank 0 collects what they say, so that the number of operations does not grow with the square
/// of the number of ranks.
fn gather(launch: &Launch, run: &PrefixStore, store: &PrefixStore, deadline: Instant) -> Result<Vec<Member>> {
    // What is left is for finding out who is missing.
    let left = deadline.saturating_duration_since(Instant::now());
    let report = REPORT.min(left / 4);
    let world_size = launch.world_size;
    let chunks: Vec<String> =
        (0..world_size.div_ceil(CHUNK)).map(|chunk| format!("{MEMBERS}/{chunk}")).collect();
    let keys = if launch.rank == 0 { (0..world_size).map(rank_key).collect() } else { chunks.clone() };
    let names: Vec<&str> = keys.iter().map(String::as_str).collect();
    match wait(run, store, &names, deadline - report)? {
        Waited::Set => {}
        Waited::Gone(rank) => {
            let (key, last) = (rank_key(rank), deadline::with_last_word(deadline));
            let place =
                if store.contains(&[&key], last)? { Some(member(store, &key, last)?.place) } else { None };
            return Err(RendezvousError::RankGone { rank, place }.into());
        }
        Waited::Late => {
            if launch.rank > 0 {
                // Rank 0 finds out for all, if it is there.
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
                members
                    .push(Member::read(&text).ok_or_else(|| Error::StrangeValue { key: (*key).to_owned() })?);
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
        false => Err(Error::StrangeValue { key: MEMBERS.to_owned() }),
    }
}

fn member(store: &PrefixStore, key: &str, deadline: Instant) -> Result<Member> {
    Member::read(&store.get(key, deadline)?).ok_or_else(|| Error::StrangeValue { key: key.to_owned() })
}

/// Fails with what another rank finds wrong until then.
fn await_refusal(store: &PrefixStore, until: Instant) -> Result<()> {
    match store.get(FAILED, until) {
        Ok(problem) => {
            let problem = String::from_utf8_lossy(&problem).into_owned();
            Err(RendezvousError::Refused { problem }.into())
        }
        Err(Error::StoreTimeout { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Which ranks are missing.
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
        // All are there, but rank 0 has not said so.
        true => Error::StoreTimeout { key: MEMBERS.to_owned() },
        false => {
            RendezvousError::MissingRanks { ranks, present, world_size, seconds: waited.as_secs_f64() }.into()
        }
    }
}

/// How waiting for other ranks has ended.
enum Waited {
    /// All keys are set.
    Set,
    /// The deadline has passed.
    Late,
    /// This rank has ended.
    Gone(usize),
}

/// Waits for keys of a group, while looking whether a rank has found what does not fit, or has ended.
fn wait(run: &PrefixStore, group: &PrefixStore, keys: &[&str], deadline: Instant) -> Result<Waited> {
    loop {
        match group.wait(keys, deadline.min(Instant::now() + LOOK)) {
            Ok(()) => return Ok(Waited::Set),
            // A wait that begins at the deadline fails as if the store were silent.
            Err(error) if !matches!(error, Error::StoreTimeout { .. }) && Instant::now() < deadline => {
                return Err(error);
            }
            Err(_) => {}
        }
        let last = deadline::with_last_word(deadline);
        if group.contains(&[FAILED], last)? {
            await_refusal(group, last)?;
        }
        if let Some(&rank) = gone(run, last)?.first() {
            return Ok(Waited::Gone(rank));
        }
        if Instant::now() >= deadline {
            return Ok(Waited::Late);
        }
    }
}

/// The ranks of a run that have ended, in the order in which they did: the first may be why others did.
fn gone(run: &PrefixStore, deadline: Instant) -> Result<Vec<usize>> {
    if !run.contains(&[GONE], deadline)? {
        return Ok(Vec::new());
    }
    let text = String::from_utf8_lossy(&run.get(GONE, deadline)?).into_owned();
    Ok(text.split(',').filter_map(|rank| rank.parse().ok()).collect())
}

impl Meeting {
    /// The ranks, in their order.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// The keys of this group: `warpsmith/RUN/RESTARTS/GROUP/…`.
    pub fn store(&self) -> &PrefixStore {
        &self.store
    }

    /// The ranks whose processes have ended without [`RunStore::finish`], in the order in which they did: the first may
    /// be why the others did. None in stores that do not know.
    ///
    /// # Errors
    /// The store cannot be reached by the deadline.
    pub fn gone(&self, deadline: Instant) -> Result<Vec<usize>> {
        gone(&self.run, deadline)
    }
}
