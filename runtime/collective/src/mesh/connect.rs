//! Ranks find each other through the store, and connect.
//!
//! Guarantees: what does not fit (another version, world size, a rank that is there twice, two ranks of one GPU) is an
//! error that names it, on all ranks that wait; a process of this host that ends meanwhile is named at once; others that do
//! not come, at the deadline. Sockets are bound to the address of the options, loopback unless told otherwise. Only who can
//! read the store knows the tokens that both ends of a connection ask for; whoever else connects is refused.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::member::Member;
use super::process::{self, Process};
use super::wire::{Connection, Wire};
use super::{Mesh, Stop};
use crate::error::{Error, Result};
use crate::fingerprint::Fingerprint;
use crate::recorder::Recorder;
use crate::store::Store;

/// The version of what ranks say to each other.
const PROTOCOL: u32 = 1;
const MAGIC: [u8; 8] = *b"wsranks1";
const TOKEN: usize = 32;
const HELLO: usize = MAGIC.len() + TOKEN + 4;
/// The time that a connection has to say who it is.
const HELLO_TIME: Duration = Duration::from_secs(2);
/// The time that a rank has to say why it has given up.
const CAUSE_TIME: Duration = Duration::from_millis(500);
/// The most connections that have not said who they are.
const MOST_STRANGERS: usize = 64;
/// The longest pause between two looks into the store.
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// A rank's device, as the others see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DeviceFacts {
    pub name: String,
    pub is_emulated: bool,
    pub uuid: String,
    /// The stream's number in its process.
    pub stream: u64,
}

/// What a rank publishes in the store.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Card {
    protocol: u32,
    version: String,
    world: usize,
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
    pub rank: usize,
    pub world: usize,
    pub store: &'a dyn Store,
    pub timeout: Duration,
    pub address: IpAddr,
    pub device: DeviceFacts,
    /// The operations that the flight recorder keeps.
    pub recorded: usize,
    /// The folder for the flight record after a failure.
    pub dump_to: Option<PathBuf>,
}

/// The names of keys.
struct Keys {
    /// The communicator's id.
    id: String,
    prefix: String,
    /// How often this rank has met others under the name, with this time.
    generation: i64,
}

/// The key of how often a rank has met others under a name.
fn generation_key(name: &str, rank: usize) -> String {
    format!("communicator/{name}/generation/{rank}")
}

impl Keys {
    fn card(&self, rank: usize) -> String {
        format!("{}/{rank}", self.prefix)
    }

    fn failed(&self) -> String {
        format!("{}/failed", self.prefix)
    }
}

/// Meets the other ranks. Returns the mesh and each rank's device.
pub(crate) fn connect(meeting: &Meeting<'_>) -> Result<(Arc<Mesh>, Vec<DeviceFacts>)> {
    let deadline = Instant::now() + meeting.timeout;
    let Meeting { name, rank, world, store, .. } = *meeting;
    if world == 0 || rank >= world {
        return Err(meeting.error("ranks are counted from 0, and each is less than the world size"));
    }
    let (this, member) = (Process::this(), Member::new(rank, world, Recorder::new(meeting.recorded)));
    if world == 1 {
        let id = format!("{name}#alone{}", member.number);
        let mesh = meeting.mesh(id, member, &[this], |_| Err(meeting.error("there is no other rank")))?;
        return Ok((mesh, vec![meeting.device.clone()]));
    }
    let claim = Claim::new(meeting, &this, member.number, deadline)?;
    let generation = store.add(&generation_key(name, rank), 1, deadline)?;
    let id = format!("{name}#{generation}");
    let keys = Keys { prefix: format!("communicator/{id}"), id, generation };
    let met = meet(meeting, &keys, this, member, deadline);
    // Time for a last word, also when the deadline is past.
    let last = Instant::now() + Duration::from_secs(1);
    if let Err(error) = &met {
        let reason = match error {
            Error::Init { reason, .. } => reason.clone(),
            other => other.to_string(),
        };
        let _ = store.set(&keys.failed(), format!("rank {rank}: {reason}").as_bytes(), last);
    } else {
        let _ = store.delete(&keys.card(rank), last);
    }
    claim.end(last);
    met
}

impl Meeting<'_> {
    fn error(&self, reason: impl Into<String>) -> Error {
        let (communicator, rank, world_size) = (self.name.to_owned(), self.rank, self.world);
        Error::Init { communicator, rank, world_size, reason: reason.into() }
    }

    /// The mesh, with these ways to the ranks' processes.
    fn mesh(
        &self,
        id: String,
        member: Arc<Member>,
        processes: &[Process],
        mut wire: impl FnMut(usize) -> Result<Wire>,
    ) -> Result<Arc<Mesh>> {
        let wires = (0..self.world).map(|rank| match rank == self.rank {
            true => Ok(Wire::Memory(Arc::clone(&member))),
            false => wire(rank),
        });
        let wires = wires.collect::<Result<Vec<_>>>()?;
        let identities = processes.iter().map(Process::to_string).collect();
        let file = self.name.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
        let dump_to =
            self.dump_to.as_ref().map(|folder| folder.join(format!("{file}-rank{}.json", self.rank)));
        let (name, dump_to) = (self.name.to_owned(), Mutex::new(dump_to));
        Ok(Arc::new(Mesh { name, id, member, wires, identities, dump_to, has_left: AtomicBool::new(false) }))
    }
}

/// This process's claim to its rank while it meets the others: a second process with the rank finds it.
struct Claim<'a> {
    store: &'a dyn Store,
    key: String,
}

impl<'a> Claim<'a> {
    fn new(meeting: &Meeting<'a>, this: &Process, member: u64, deadline: Instant) -> Result<Self> {
        let Meeting { name, rank, store, .. } = *meeting;
        let key = format!("communicator/{name}/claim/{rank}");
        let own = serde_json::to_vec(&(this, member)).unwrap_or_default();
        loop {
            let present = store.compare_set(&key, b"", &own, deadline)?;
            if present == own {
                return Ok(Self { store, key });
            }
            match serde_json::from_slice::<(Process, u64)>(&present) {
                Ok((holder, _)) if holder.has_ended(this) => {
                    // It was killed while it met others. Of two that find out, one is the next to hold it.
                    store.delete(&key, deadline)?;
                }
                Ok((holder, _)) => {
                    return Err(meeting.error(format!(
                        "{holder} has rank {rank} too; each rank is one process, or one thread. If that one is gone, use \
                         another store or name"
                    )));
                }
                Err(_) => return Err(meeting.error(format!("`{key}` in the store holds what is no claim"))),
            }
        }
    }

    fn end(self, deadline: Instant) {
        let _ = self.store.delete(&self.key, deadline);
    }
}

/// Publishes this rank's card, reads the others', connects, and waits until all have.
fn meet(
    meeting: &Meeting<'_>,
    keys: &Keys,
    this: Process,
    member: Arc<Member>,
    deadline: Instant,
) -> Result<(Arc<Mesh>, Vec<DeviceFacts>)> {
    let Meeting { rank, world, store, .. } = *meeting;
    let listener = TcpListener::bind((meeting.address, 0))
        .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
        .map_err(|error| meeting.error(format!("cannot listen on {}: {error}", meeting.address)))?;
    let token: String = (0..TOKEN / 16).map(|_| format!("{:016x}", process::random())).collect();
    let card = Card {
        protocol: PROTOCOL,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        world,
        process: this.clone(),
        member: member.number,
        address: listener.local_addr().ok(),
        token,
        device: meeting.device.clone(),
    };
    let text = serde_json::to_vec(&card).unwrap_or_default();
    store.set(&keys.card(rank), &text, deadline)?;
    let cards = read_cards(meeting, keys, &this, card, deadline)?;

    let is_here = |other: usize| cards[other].process == this;
    let dialled = (0..rank).filter(|other| !is_here(*other));
    let mut sockets: Vec<Option<TcpStream>> = (0..world).map(|_| None).collect();
    for other in dialled {
        let socket = dial(meeting, &cards, other, deadline);
        if socket.is_err() {
            find_cause(meeting, keys, &this, &cards, deadline)?;
        }
        sockets[other] = Some(socket?);
    }
    let mut awaited: Vec<usize> = (rank + 1..world).filter(|other| !is_here(*other)).collect();
    let mut strangers = Strangers::new(&cards, rank);
    let mut looked = Instant::now();
    while !awaited.is_empty() {
        match strangers.accepted(&listener) {
            Some((other, socket)) if awaited.contains(&other) => {
                awaited.retain(|rank| *rank != other);
                sockets[other] = Some(socket);
            }
            Some(_) => {}
            None => {
                if looked.elapsed() > Duration::from_millis(100) {
                    looked = Instant::now();
                    check_others(
                        meeting,
                        keys,
                        &this,
                        awaited.iter().map(|other| (*other, &cards[*other])),
                        deadline,
                    )?;
                }
                if Instant::now() >= deadline {
                    let refused = strangers.refused.load(Ordering::Relaxed);
                    return Err(meeting.error(format!(
                        "{} did not connect to {} within {:?}; {refused} other connections were refused",
                        ranks(&awaited),
                        cards[rank].address.map_or_else(String::new, |address| address.to_string()),
                        meeting.timeout,
                    )));
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
    drop(listener);

    let processes: Vec<_> = cards.iter().map(|card| card.process.clone()).collect();
    let mut readers = Vec::new();
    let mesh = meeting.mesh(keys.id.clone(), member, &processes, |other| match sockets[other].take() {
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
    let init = Fingerprint::new("init", std::borrow::Cow::Borrowed(""), 0);
    mesh.compare(&init, deadline).map_err(|stop| match stop {
        Stop::Failed(failure) => meeting.error(failure.to_string()),
        Stop::Deadline => meeting.error(format!("not all ranks were ready within {:?}", meeting.timeout)),
    })?;
    Ok((mesh, cards.into_iter().map(|card| card.device).collect()))
}

fn ranks(ranks: &[usize]) -> String {
    let list: Vec<_> = ranks.iter().map(usize::to_string).collect();
    format!("rank{} {}", if ranks.len() == 1 { "" } else { "s" }, list.join(", "))
}

/// Waits for the cards of all ranks.
fn read_cards(
    meeting: &Meeting<'_>,
    keys: &Keys,
    this: &Process,
    own: Card,
    deadline: Instant,
) -> Result<Vec<Card>> {
    let mut cards: Vec<Option<Card>> = (0..meeting.world).map(|_| None).collect();
    cards[meeting.rank] = Some(own);
    let mut pause = Duration::from_micros(500);
    loop {
        for rank in 0..meeting.world {
            if cards[rank].is_none() && meeting.store.contains(&[&keys.card(rank)], deadline)? {
                let text = meeting.store.get(&keys.card(rank), deadline)?;
                let known = cards.iter().enumerate().filter_map(|(rank, card)| Some((rank, card.as_ref()?)));
                let card = checked(meeting, rank, &text, known)?;
                cards[rank] = Some(card);
            }
        }
        let missing: Vec<_> = (0..meeting.world).filter(|rank| cards[*rank].is_none()).collect();
        if missing.is_empty() {
            return Ok(cards.into_iter().flatten().collect());
        }
        let known = cards.iter().enumerate().filter_map(|(rank, card)| Some((rank, card.as_ref()?)));
        check_others(meeting, keys, this, known, deadline)?;
        if Instant::now() >= deadline {
            let advice = match ahead(meeting, keys, &missing)? {
                Some((rank, times)) => format!(
                    "rank {rank} has met others under this name {times} times, this rank {} times: ranks that start again \
                     need another store or name",
                    keys.generation
                ),
                None => "start all ranks with the same store and name".to_owned(),
            };
            let missing = ranks(&missing);
            return Err(
                meeting.error(format!("{missing} did not come within {:?}; {advice}", meeting.timeout))
            );
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// A missing rank that has met others more or less often than this one, and how often.
fn ahead(meeting: &Meeting<'_>, keys: &Keys, missing: &[usize]) -> Result<Option<(usize, i64)>> {
    let soon = Instant::now() + Duration::from_secs(1);
    for rank in missing {
        let key = generation_key(meeting.name, *rank);
        if meeting.store.contains(&[&key], soon)? {
            let times = meeting.store.add(&key, 0, soon)?;
            if times != keys.generation {
                return Ok(Some((*rank, times)));
            }
        }
    }
    Ok(None)
}

/// Another rank's card, if it goes with this rank's own and the others.
fn checked<'c>(
    meeting: &Meeting<'_>,
    rank: usize,
    text: &[u8],
    known: impl Iterator<Item = (usize, &'c Card)>,
) -> Result<Card> {
    #[derive(Deserialize)]
    struct Version {
        protocol: u32,
        version: String,
    }
    let garbage =
        |error| meeting.error(format!("what rank {rank} has put into the store cannot be read: {error}"));
    let Version { protocol, version } = serde_json::from_slice(text).map_err(garbage)?;
    if protocol != PROTOCOL {
        return Err(meeting.error(format!(
            "rank {rank} runs version {version} (protocol {protocol}), this rank version {} (protocol {PROTOCOL}); \
             start the same program everywhere",
            env!("CARGO_PKG_VERSION")
        )));
    }
    let card: Card = serde_json::from_slice(text).map_err(garbage)?;
    if card.world != meeting.world {
        return Err(meeting.error(format!(
            "the world size is {} here and {} on rank {rank} ({})",
            meeting.world, card.world, card.process
        )));
    }
    if card.token.len() != TOKEN {
        return Err(meeting
            .error(format!("rank {rank} has put a token of {} bytes into the store", card.token.len())));
    }
    for (other, known) in known {
        if known.device.is_emulated != card.device.is_emulated {
            return Err(meeting.error(format!(
                "rank {other} uses {}, rank {rank} {}; emulated devices and GPUs do not work together",
                known.device.name, card.device.name
            )));
        }
        if !card.device.is_emulated && known.device.uuid == card.device.uuid {
            return Err(meeting.error(format!(
                "ranks {other} and {rank} use one GPU, {} ({}); each rank needs its own",
                card.device.name, card.device.uuid
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

/// Fails if a rank has given up, or has ended.
fn check_others<'c>(
    meeting: &Meeting<'_>,
    keys: &Keys,
    this: &Process,
    others: impl Iterator<Item = (usize, &'c Card)>,
    deadline: Instant,
) -> Result<()> {
    if meeting.store.contains(&[&keys.failed()], deadline)? {
        let text = meeting.store.get(&keys.failed(), deadline)?;
        return Err(meeting.error(format!("another rank has given up: {}", String::from_utf8_lossy(&text))));
    }
    for (rank, card) in others {
        if card.process.has_ended(this) {
            return Err(
                meeting.error(format!("rank {rank} is gone: {} has ended or was killed", card.process))
            );
        }
    }
    Ok(())
}

/// After a connection was refused: fails if there is a cause that says more, as when its rank has given up because of another.
fn find_cause(
    meeting: &Meeting<'_>,
    keys: &Keys,
    this: &Process,
    cards: &[Card],
    deadline: Instant,
) -> Result<()> {
    let end = Instant::now() + CAUSE_TIME;
    while Instant::now() < end {
        check_others(meeting, keys, this, cards.iter().enumerate(), deadline)?;
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// What the rank that connects says: it knows the listener's token.
fn hello(token: &str, rank: usize) -> [u8; HELLO] {
    let mut hello = [0; HELLO];
    hello[..8].copy_from_slice(&MAGIC);
    hello[8..8 + TOKEN].copy_from_slice(token.as_bytes());
    hello[8 + TOKEN..].copy_from_slice(&(rank as u32).to_le_bytes());
    hello
}

/// Connects to another rank's listener.
fn dial(meeting: &Meeting<'_>, cards: &[Card], other: usize, deadline: Instant) -> Result<TcpStream> {
    let card = &cards[other];
    let gone = |error: std::io::Error| {
        let advice = match card.process.shares_host(&cards[meeting.rank].process) {
            true => "it has ended or was killed",
            false => "it is on another host, so `address` in the options must be one that this host reaches",
        };
        let address = card.address.map_or_else(String::new, |address| address.to_string());
        meeting.error(format!(
            "cannot connect to rank {other}, {} at {address}: {error}; {advice}",
            card.process
        ))
    };
    let address = card.address.ok_or_else(|| gone(std::io::ErrorKind::AddrNotAvailable.into()))?;
    let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    let mut socket = TcpStream::connect_timeout(&address, left).map_err(gone)?;
    let mut answer = [0; HELLO];
    let mut talk = || {
        socket.set_write_timeout(Some(left))?;
        socket.set_read_timeout(Some(left))?;
        socket.write_all(&hello(&card.token, meeting.rank))?;
        socket.read_exact(&mut answer)
    };
    talk().map_err(gone)?;
    if answer != hello(&cards[meeting.rank].token, other) {
        return Err(meeting.error(format!("what answers at {address} is not rank {other}")));
    }
    socket.set_read_timeout(None).map_err(gone)?;
    Ok(socket)
}

/// Connections that have not said who they are.
struct Strangers {
    rank: usize,
    tokens: Arc<Vec<String>>,
    refused: Arc<AtomicUsize>,
    waiting: Arc<AtomicUsize>,
    sender: Sender<(usize, TcpStream)>,
    known: Receiver<(usize, TcpStream)>,
}

impl Strangers {
    fn new(cards: &[Card], rank: usize) -> Self {
        let (sender, known) = channel();
        let tokens = Arc::new(cards.iter().map(|card| card.token.clone()).collect());
        Self { rank, tokens, refused: Arc::default(), waiting: Arc::default(), sender, known }
    }

    /// A rank that has connected, if there is one. Does not wait.
    fn accepted(&mut self, listener: &TcpListener) -> Option<(usize, TcpStream)> {
        while let Ok((socket, _)) = listener.accept() {
            if self.waiting.load(Ordering::Relaxed) >= MOST_STRANGERS {
                self.refused.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            self.waiting.fetch_add(1, Ordering::Relaxed);
            let (rank, tokens, sender) = (self.rank, Arc::clone(&self.tokens), self.sender.clone());
            let (refused, waiting) = (Arc::clone(&self.refused), Arc::clone(&self.waiting));
            // Without a thread the connection is closed, and its rank reports that.
            let _ = std::thread::Builder::new().name("warpsmith-hello".to_owned()).spawn(move || {
                match welcome(socket, rank, &tokens) {
                    // The meeting may be over.
                    Some(known) => drop(sender.send(known)),
                    None => drop(refused.fetch_add(1, Ordering::Relaxed)),
                }
                waiting.fetch_sub(1, Ordering::Relaxed);
            });
        }
        self.known.try_recv().ok()
    }
}

/// Reads who has connected, and answers. `None` for who does not know the token.
fn welcome(mut socket: TcpStream, rank: usize, tokens: &[String]) -> Option<(usize, TcpStream)> {
    socket.set_nonblocking(false).ok()?;
    socket.set_read_timeout(Some(HELLO_TIME)).ok()?;
    socket.set_write_timeout(Some(HELLO_TIME)).ok()?;
    let mut said = [0; HELLO];
    socket.read_exact(&mut said).ok()?;
    let other =
        u32::from_le_bytes([said[HELLO - 4], said[HELLO - 3], said[HELLO - 2], said[HELLO - 1]]) as usize;
    // Every byte is compared, so that the time says nothing about how many are right.
    let expected = hello(&tokens[rank], other);
    let differing =
        said.iter().zip(expected).fold(0, |differing, (said, expected)| differing | (said ^ expected));
    if differing != 0 || other <= rank {
        return None;
    }
    socket.write_all(&hello(tokens.get(other)?, rank)).ok()?;
    socket.set_read_timeout(None).ok()?;
    Some((other, socket))
}
