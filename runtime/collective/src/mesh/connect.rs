//! Ranks that meet through the store connect.
//!
//! Guarantees: what [`rendezvous`] finds, and what does not fit beyond that (two ranks on one stream, emulated devices and
//! GPUs), is an error that names it, on all ranks that wait; a process that ends meanwhile is named at once; what does not
//! happen, at the deadline. Sockets are bound to the address of the options, loopback unless told otherwise. Only who can
//! read the store knows the tokens that both ends of a connection ask for; whoever else connects is refused.

use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use warpsmith_core::Uuid;

use super::hello::{Strangers, TOKEN, dial, token};
use super::member::Member;
use super::process::Process;
use super::wire::{Connection, Wire};
use super::{Mesh, Stop};
use crate::error::{Error, Result};
use crate::fingerprint::Fingerprint;
use crate::launch::Launch;
use crate::recorder::Recorder;
use crate::rendezvous;
use crate::store::{PrefixStore, Store};

/// The key of a meeting with the reason why a rank gave up.
const BROKEN: &str = "broken";
/// The time that a rank has to say why it has given up.
const CAUSE_TIME: Duration = Duration::from_millis(500);
/// The time between two looks for ranks that have given up or ended.
const LOOK: Duration = Duration::from_millis(100);
/// The time for a last word in the store, when the deadline may be past.
const LAST_WORD: Duration = Duration::from_secs(1);
/// The longest pause between two looks into the store.
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// A rank's device, as the others see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DeviceFacts {
    pub name: String,
    pub is_emulated: bool,
    /// The stream's number in its process.
    pub stream: u64,
    /// The version of NCCL there, or why there is none; `None` if it is not asked for.
    pub nccl: Option<Result<i32, String>>,
    /// The host, whose processes can map the device's memory, or why none can; `None` if it is not asked for.
    pub shares: Option<Result<String, String>>,
}

/// What a rank publishes in the store.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Card {
    process: Process,
    /// The number of its [`Member`].
    member: u64,
    address: Option<SocketAddr>,
    token: String,
    device: DeviceFacts,
}

/// The ranks that are to meet, as this rank sees it.
pub(crate) struct Meeting<'a> {
    pub name: &'a str,
    pub launch: &'a Launch,
    pub store: &'a Arc<dyn Store>,
    pub timeout: Duration,
    pub address: IpAddr,
    pub device: DeviceFacts,
    /// The GPU; emulated devices have none.
    pub gpu: Option<Uuid>,
    /// The operations that the flight recorder keeps.
    pub recorded: usize,
    /// The folder for the flight record after a failure.
    pub dump_to: Option<PathBuf>,
}

/// Meets the other ranks. Returns the mesh and each rank's device.
pub(crate) fn connect(meeting: &Meeting<'_>) -> Result<(Arc<Mesh>, Vec<DeviceFacts>)> {
    let deadline = Instant::now() + meeting.timeout;
    let Meeting { name, launch, store, .. } = *meeting;
    let (rank, world) = (launch.rank, launch.world_size);
    if rank >= world {
        return Err(meeting.error("ranks are counted from 0, and each is less than the world size"));
    }
    let (this, member) = (Process::this(), Member::new(rank, world, Recorder::new(meeting.recorded)));
    if world == 1 {
        let id = format!("{name}#alone{}", member.number);
        let mesh = meeting.mesh(id, member, &[this], |_| Err(meeting.error("there is no other rank")))?;
        return Ok((mesh, vec![meeting.device.clone()]));
    }
    // All ranks read the same number: it grows when the ranks have met, for which all must have come. Where they have not, it
    // stays, so that those who come late learn why.
    let run = PrefixStore::new(launch.key_prefix(), Arc::clone(store));
    let count = Count { key: format!("communicator/{name}/meetings"), run };
    let number = count.read(deadline)?;
    let id = format!("{name}#{number}");
    let met =
        rendezvous::meet(launch, Arc::clone(store), &format!("communicator/{id}"), meeting.gpu, deadline)?;
    let joined = join(Joining { meeting, met: &met, this, count: &count, number, deadline }, id, member)?;
    count.advance(number)?;
    Ok(joined)
}

/// How often ranks have met under a name.
struct Count {
    run: PrefixStore,
    key: String,
}

impl Count {
    fn read(&self, deadline: Instant) -> Result<i64> {
        self.run.add(&self.key, 0, deadline)
    }

    /// They have met once more. The first rank that says so counts.
    fn advance(&self, before: i64) -> Result<()> {
        let (before, after) = (before.to_string(), before.wrapping_add(1).to_string());
        let last = Instant::now() + LAST_WORD;
        self.run.compare_set(&self.key, before.as_bytes(), after.as_bytes(), last).map(drop)
    }
}

impl Meeting<'_> {
    pub(super) fn error(&self, reason: impl Into<String>) -> Error {
        let (rank, world_size) = (self.launch.rank, self.launch.world_size);
        Error::Init { communicator: self.name.to_owned(), rank, world_size, reason: reason.into() }
    }

    /// The mesh, with these ways to the ranks' processes.
    fn mesh(
        &self,
        id: String,
        member: Arc<Member>,
        processes: &[Process],
        mut wire: impl FnMut(usize) -> Result<Wire>,
    ) -> Result<Arc<Mesh>> {
        let wires = (0..self.launch.world_size).map(|rank| match rank == self.launch.rank {
            true => Ok(Wire::Memory(Arc::clone(&member))),
            false => wire(rank),
        });
        let wires = wires.collect::<Result<Vec<_>>>()?;
        let identities = processes.iter().map(Process::to_string).collect();
        let file = self.name.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
        let file = format!("{file}-rank{}.json", self.launch.rank);
        let dump_to = Mutex::new(self.dump_to.as_ref().map(|folder| folder.join(file)));
        let (name, has_left) = (self.name.to_owned(), AtomicBool::new(false));
        Ok(Arc::new(Mesh { name, id, member, wires, identities, dump_to, has_left }))
    }
}

/// Publishes this rank's card, reads the others', connects, and waits until all have. When that fails, the others learn it.
fn join(joining: Joining<'_>, id: String, member: Arc<Member>) -> Result<(Arc<Mesh>, Vec<DeviceFacts>)> {
    let joined = joining.join(id, member);
    if let Err(error) = &joined {
        let rank = joining.meeting.launch.rank;
        let reason = match error {
            Error::Init { reason, .. } => reason.clone(),
            other => other.to_string(),
        };
        let (last, text) = (Instant::now() + LAST_WORD, format!("rank {rank}: {reason}"));
        // Who cannot read it, ends at the deadline.
        let _ = joining.met.store().set(BROKEN, text.as_bytes(), last);
    }
    joined
}

fn card_key(rank: usize) -> String {
    format!("card/{rank}")
}

/// Ranks that have met and connect.
struct Joining<'a> {
    meeting: &'a Meeting<'a>,
    met: &'a rendezvous::Meeting,
    this: Process,
    count: &'a Count,
    /// What was read of it before.
    number: i64,
    deadline: Instant,
}

impl Joining<'_> {
    fn join(&self, id: String, member: Arc<Member>) -> Result<(Arc<Mesh>, Vec<DeviceFacts>)> {
        let meeting = self.meeting;
        let rank = meeting.launch.rank;
        let listener = TcpListener::bind((meeting.address, 0))
            .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
            .map_err(|error| meeting.error(format!("cannot listen on {}: {error}", meeting.address)))?;
        let card = Card {
            process: self.this.clone(),
            member: member.number,
            address: listener.local_addr().ok(),
            token: token(),
            device: meeting.device.clone(),
        };
        let text = serde_json::to_vec(&card).unwrap_or_default();
        if self.met.store().compare_set(&card_key(rank), b"", &text, self.deadline)? != text {
            return Err(self.is_there_twice());
        }
        let cards = self.read_cards(card)?;
        let mut sockets = self.connect(&listener, &cards)?;
        drop(listener);

        let processes: Vec<_> = cards.iter().map(|card| card.process.clone()).collect();
        let mut readers = Vec::new();
        let mesh = meeting.mesh(id, member, &processes, |other| match sockets[other].take() {
            Some(socket) => {
                let system = |error| meeting.error(format!("cannot use the socket to rank {other}: {error}"));
                readers.push((other, socket.try_clone().map_err(system)?));
                Ok(Wire::Socket(Connection::new(socket).map_err(system)?))
            }
            None => match Member::find(cards[other].member) {
                Some(member) => Ok(Wire::Memory(member)),
                None => Err(meeting.error(format!("rank {other}, a thread of this process, has given up"))),
            },
        })?;
        for (other, socket) in readers {
            let (weak, member) = (Arc::downgrade(&mesh), Arc::clone(&mesh.member));
            let thread = std::thread::Builder::new().name(format!("warpsmith-rank{other}"));
            let started = thread.spawn(move || super::read(&weak, &member, other, socket));
            started.map_err(|error| meeting.error(format!("cannot start a thread: {error}")))?;
        }
        self.wait_for_all(&mesh, &cards)?;
        // All have read it.
        let _ = self.met.store().delete(&card_key(rank), Instant::now() + LAST_WORD);
        Ok((mesh, cards.into_iter().map(|card| card.device).collect()))
    }

    /// The error when another with this rank was faster. The rendezvous distinguishes processes, not threads.
    fn is_there_twice(&self) -> Error {
        let rank = self.meeting.launch.rank;
        self.meeting.error(format!("rank {rank} is there twice, as two threads of this process"))
    }

    /// Waits until all ranks have connected to all.
    fn wait_for_all(&self, mesh: &Mesh, cards: &[Card]) -> Result<()> {
        let meeting = self.meeting;
        let late = || meeting.error(format!("not all ranks were ready within {:?}", meeting.timeout));
        let failed = |stop| match stop {
            Stop::Failed(failure) => meeting.error(failure.to_string()),
            Stop::Deadline => late(),
        };
        let init = Fingerprint::new("init", std::borrow::Cow::Borrowed(""), 0);
        mesh.announce(&init, self.deadline).map_err(failed)?;
        for rank in mesh.others() {
            loop {
                match mesh.hear(rank, &init, Instant::now() + LOOK) {
                    Ok(()) => break,
                    Err(Stop::Deadline) if Instant::now() < self.deadline => {
                        self.check_others(cards.iter().enumerate())?;
                    }
                    Err(stop) => return Err(failed(stop)),
                }
            }
        }
        Ok(())
    }

    /// A socket to each rank of another process.
    fn connect(&self, listener: &TcpListener, cards: &[Card]) -> Result<Vec<Option<TcpStream>>> {
        let meeting = self.meeting;
        let (rank, world) = (meeting.launch.rank, meeting.launch.world_size);
        let mut sockets: Vec<Option<TcpStream>> = (0..world).map(|_| None).collect();
        let is_elsewhere = |other: &usize| cards[*other].process != self.this;
        for other in (0..rank).filter(is_elsewhere) {
            let card = &cards[other];
            let left = self.deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
            let dialled = match card.address {
                Some(address) => dial(address, &card.token, rank, &cards[rank].token, other, left),
                None => Err(std::io::ErrorKind::AddrNotAvailable.into()),
            };
            if dialled.is_err() {
                self.find_cause(cards)?;
            }
            let socket = dialled.map_err(|error| {
                let advice = match card.process.shares_host(&self.this) {
                    true => "it has ended or was killed",
                    false => "`address` in the options must be one that the other hosts reach",
                };
                let address = card.address.map_or_else(String::new, |address| address.to_string());
                meeting.error(format!(
                    "cannot connect to rank {other}, {} at {address}: {error}; {advice}",
                    card.process
                ))
            })?;
            sockets[other] = Some(socket);
        }
        let mut awaited: Vec<usize> = (rank + 1..world).filter(is_elsewhere).collect();
        let mut strangers = Strangers::new(rank, cards.iter().map(|card| card.token.clone()).collect());
        let mut looked = Instant::now();
        while !awaited.is_empty() {
            match strangers.accepted(listener) {
                Some((other, socket)) if awaited.contains(&other) => {
                    awaited.retain(|rank| *rank != other);
                    sockets[other] = Some(socket);
                }
                Some(_) => {}
                None => {
                    if looked.elapsed() > LOOK {
                        looked = Instant::now();
                        self.check_others(cards.iter().enumerate())?;
                    }
                    if Instant::now() >= self.deadline {
                        return Err(meeting.error(format!(
                            "{} did not connect to {} within {:?}; {} other connections were refused",
                            ranks(&awaited),
                            cards[rank].address.map_or_else(String::new, |address| address.to_string()),
                            meeting.timeout,
                            strangers.refused(),
                        )));
                    }
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        }
        Ok(sockets)
    }

    /// Waits for the cards of all ranks, which have come.
    fn read_cards(&self, own: Card) -> Result<Vec<Card>> {
        let meeting = self.meeting;
        let world = meeting.launch.world_size;
        let mut cards: Vec<Option<Card>> = (0..world).map(|_| None).collect();
        cards[meeting.launch.rank] = Some(own);
        let (mut pause, mut looked) = (Duration::from_micros(500), Instant::now());
        loop {
            for rank in 0..world {
                if cards[rank].is_none() && self.met.store().contains(&[&card_key(rank)], self.deadline)? {
                    let text = self.met.store().get(&card_key(rank), self.deadline)?;
                    let card = checked(meeting, rank, &text, known(&cards))?;
                    cards[rank] = Some(card);
                }
            }
            let missing: Vec<_> = (0..world).filter(|rank| cards[*rank].is_none()).collect();
            if missing.is_empty() {
                return Ok(cards.into_iter().flatten().collect());
            }
            if looked.elapsed() > LOOK {
                looked = Instant::now();
                if self.count.read(self.deadline)? != self.number {
                    return Err(self.is_there_twice());
                }
                self.check_others(known(&cards))?;
            }
            if Instant::now() >= self.deadline {
                let missing = ranks(&missing);
                return Err(meeting.error(format!("{missing} did not go on within {:?}", meeting.timeout)));
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Fails if a rank has given up, or has ended.
    fn check_others<'c>(&self, others: impl Iterator<Item = (usize, &'c Card)>) -> Result<()> {
        let (meeting, store) = (self.meeting, self.met.store());
        if store.contains(&[BROKEN], self.deadline)? {
            let text = store.get(BROKEN, self.deadline)?;
            return Err(
                meeting.error(format!("another rank has given up: {}", String::from_utf8_lossy(&text)))
            );
        }
        let ended = |rank: usize, who: String| {
            meeting.error(format!("rank {rank} is gone: {who} has ended or was killed"))
        };
        for (rank, card) in others {
            if card.process.has_ended(&self.this) {
                return Err(ended(rank, card.process.to_string()));
            }
        }
        match self.met.gone(self.deadline)?.first() {
            Some(&rank) => Err(ended(rank, "its process".to_owned())),
            None => Ok(()),
        }
    }

    /// After a connection was refused: fails if there is a cause that says more, as when its rank has given up because of
    /// another.
    fn find_cause(&self, cards: &[Card]) -> Result<()> {
        let end = Instant::now() + CAUSE_TIME;
        while Instant::now() < end {
            self.check_others(cards.iter().enumerate())?;
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}

fn ranks(ranks: &[usize]) -> String {
    let list: Vec<_> = ranks.iter().map(usize::to_string).collect();
    format!("rank{} {}", if ranks.len() == 1 { "" } else { "s" }, list.join(", "))
}

/// The cards that there are, with their ranks.
fn known(cards: &[Option<Card>]) -> impl Iterator<Item = (usize, &Card)> {
    cards.iter().enumerate().filter_map(|(rank, card)| Some((rank, card.as_ref()?)))
}

/// Another rank's card, if it goes with those that are known.
fn checked<'c>(
    meeting: &Meeting<'_>,
    rank: usize,
    text: &[u8],
    known: impl Iterator<Item = (usize, &'c Card)>,
) -> Result<Card> {
    let card = serde_json::from_slice::<Card>(text).ok().filter(|card| card.token.len() == TOKEN);
    let Some(card) = card else {
        return Err(meeting.error(format!("what rank {rank} has put into the store cannot be read")));
    };
    for (other, known) in known {
        if known.device.is_emulated != card.device.is_emulated {
            return Err(meeting.error(format!(
                "rank {other} uses {}, rank {rank} {}; emulated devices and GPUs do not work together",
                known.device.name, card.device.name
            )));
        }
        if known.process == card.process && known.device.stream == card.device.stream {
            return Err(meeting.error(format!(
                "ranks {other} and {rank} are on one stream, where each would wait for the other; make a stream for each"
            )));
        }
    }
    Ok(card)
}
