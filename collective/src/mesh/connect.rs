//! Connection setup between ranks after their rendezvous in the store.
//!
//! Every problem causes an error that names its cause, on all waiting ranks. Examples are two ranks on one stream, a
//! mix of emulated devices and GPUs, and the problems that [`rendezvous`] detects. A process that ends during the setup
//! is reported immediately; a rank that does not arrive is reported at the deadline. Sockets are bound to the address
//! set in the options. If no address is set, they are bound to the loopback interface if all ranks share the host, and
//! otherwise to the interface that routes to the store. Both ends of a connection demand a token that only readers of
//! the store can know, and reject connections without it.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use warpsmith_runtime::Uuid;

use super::hello::{Strangers, TOKEN, dial, listen};
use super::member::Member;
use super::process::Process;
use super::wire::{Connection, Wire};
use super::{Mesh, Stop};
use crate::deadline;
use crate::error::{CollectiveError, Error, Result};
use crate::fingerprint::Fingerprint;
use crate::launch::Launch;
use crate::machine;
use crate::recorder::Recorder;
use crate::rendezvous;
use crate::store::{PrefixStore, Store, Token, is_end, resolve};

/// Key under which a rank publishes its reason for giving up.
const BROKEN: &str = "broken";
/// Number of operations that the flight recorder retains.
const RECORDED: usize = 1024;
/// Time limit for a rank to publish its reason for giving up.
const CAUSE_TIME: Duration = Duration::from_millis(500);
/// Interval at which a waiting rank checks whether other ranks have given up or exited.
const LOOK: Duration = Duration::from_millis(100);
/// Interval between attempts to connect to a rank.
const AGAIN: Duration = Duration::from_millis(10);
/// Number of cards that rank 0 stores under one key. A card is smaller than 1 KiB.
const CHUNK: usize = 1024;

/// Facts about a rank's device that other ranks need.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DeviceFacts {
    pub name: String,
    pub is_emulated: bool,
    /// ID of the stream, unique within its process.
    pub stream: u64,
    /// NCCL version of the rank, or the reason why NCCL is not available; `None` if NCCL was not queried.
    pub nccl: Option<Result<i32, String>>,
    /// Host whose processes can map the device's memory, or the reason why no process can; `None` if this was not
    /// queried.
    pub shares: Option<Result<String, String>>,
}

/// Data about a rank that the rank publishes in the store.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Card {
    process: Process,
    /// ID of the rank's [`Member`].
    member: u64,
    address: Option<SocketAddr>,
    token: String,
    device: DeviceFacts,
}

/// Values that this rank contributes to the rendezvous.
pub(crate) struct Bootstrap<'a> {
    pub name: &'a str,
    pub launch: &'a Launch,
    pub store: &'a Arc<dyn Store>,
    pub timeout: Duration,
    /// Address set in the options of the communicator.
    pub address: Option<IpAddr>,
    pub device: DeviceFacts,
    /// UUID of the GPU; `None` for emulated devices.
    pub gpu: Option<Uuid>,
    /// Folder to which the flight record is written after a failure.
    pub dump_to: Option<PathBuf>,
}

/// Connects to the other ranks. Returns the mesh and the device facts of each rank.
pub(crate) fn connect(bootstrap: &Bootstrap<'_>) -> Result<(Arc<Mesh>, Vec<DeviceFacts>)> {
    let deadline = deadline::within(bootstrap.timeout);
    let Bootstrap { name, launch, store, .. } = *bootstrap;
    let (rank, world) = (launch.rank, launch.world_size);
    if rank >= world {
        return Err(bootstrap.error("the rank must be at least 0 and less than the world size"));
    }
    let (this, member) = (Process::this()?, Member::new(rank, world, Recorder::new(RECORDED)));
    if world == 1 {
        let id = format!("{name}#alone{}", member.number);
        let mesh = bootstrap.mesh(id, member, bootstrap.address, &[this], |_| {
            Err(bootstrap.error("there is no other rank"))
        })?;
        return Ok((mesh, vec![bootstrap.device.clone()]));
    }
    // All ranks read the same number, because it is incremented only after the rendezvous, for which all ranks must
    // have arrived. A failed rendezvous does not increment it, so that late ranks can read the cause.
    let run = PrefixStore::new(launch.key_prefix(), Arc::clone(store));
    let count = Count { key: format!("communicator/{name}/meetings"), run };
    let number = count.read(deadline)?;
    let id = format!("{name}#{number}");
    let met =
        rendezvous::join(launch, Arc::clone(store), &format!("communicator/{id}"), bootstrap.gpu, deadline)?;
    let joined = join(Joining { bootstrap, met: &met, this, count: &count, number, deadline }, id, member)?;
    count.advance(number)?;
    Ok(joined)
}

/// Counts the completed rendezvous under a name.
struct Count {
    run: PrefixStore,
    key: String,
}

impl Count {
    fn read(&self, deadline: Instant) -> Result<i64> {
        self.run.add(&self.key, 0, deadline)
    }

    /// Increments the count after a rendezvous. Only the first rank's increment takes effect.
    fn advance(&self, before: i64) -> Result<()> {
        let (before, after) = (before.to_string(), before.wrapping_add(1).to_string());
        let last = deadline::with_last_word(Instant::now());
        self.run.compare_set(&self.key, before.as_bytes(), after.as_bytes(), last).map(drop)
    }
}

impl Bootstrap<'_> {
    pub(super) fn error(&self, reason: impl Into<String>) -> Error {
        let (rank, world_size) = (self.launch.rank, self.launch.world_size);
        CollectiveError::Init { communicator: self.name.to_owned(), rank, world_size, reason: reason.into() }
            .into()
    }

    /// Creates the mesh from the connections to the ranks of other processes.
    fn mesh(
        &self,
        id: String,
        member: Arc<Member>,
        address: Option<IpAddr>,
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
        Ok(Arc::new(Mesh { name, id, member, address, wires, identities, dump_to, has_left }))
    }
}

/// Publishes this rank's card, reads the cards of the other ranks, connects to them, and waits until all ranks have
/// connected. On failure, notifies the other ranks.
fn join(joining: Joining<'_>, id: String, member: Arc<Member>) -> Result<(Arc<Mesh>, Vec<DeviceFacts>)> {
    let joined = joining.join(id, member);
    if let Err(error) = &joined {
        let rank = joining.bootstrap.launch.rank;
        let reason = match error.downcast_ref() {
            Some(CollectiveError::Init { reason, .. }) => reason.clone(),
            _ => error.to_string(),
        };
        let (last, text) = (deadline::with_last_word(Instant::now()), format!("rank {rank}: {reason}"));
        // A rank that cannot read this cause fails at its deadline instead.
        let _ = joining.met.store().set(BROKEN, text.as_bytes(), last);
    }
    joined
}

fn card_key(rank: usize) -> String {
    format!("card/{rank}")
}

fn chunk_key(chunk: usize) -> String {
    format!("cards/{chunk}")
}

/// Connection setup after the rendezvous.
struct Joining<'a> {
    bootstrap: &'a Bootstrap<'a>,
    met: &'a rendezvous::Rendezvous,
    this: Process,
    count: &'a Count,
    /// Rendezvous count at the start.
    number: i64,
    deadline: Instant,
}

impl Joining<'_> {
    fn join(&self, id: String, member: Arc<Member>) -> Result<(Arc<Mesh>, Vec<DeviceFacts>)> {
        let bootstrap = self.bootstrap;
        let rank = bootstrap.launch.rank;
        let address = bootstrap.address.or_else(|| self.address_between_hosts());
        let ip = address.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let listener =
            listen(ip).map_err(|error| bootstrap.error(format!("cannot listen on {ip}: {error}")))?;
        let card = Card {
            process: self.this.clone(),
            member: member.number,
            address: listener.local_addr().ok(),
            token: Token::generate()?.secret().to_owned(),
            device: bootstrap.device.clone(),
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
        let mesh = bootstrap.mesh(id, member, address, &processes, |other| match sockets[other].take() {
            Some(socket) => {
                let system =
                    |error| bootstrap.error(format!("cannot use the socket to rank {other}: {error}"));
                readers.push((other, socket.try_clone().map_err(system)?));
                Ok(Wire::Socket(Connection::new(socket).map_err(system)?))
            }
            None => match Member::find(cards[other].member) {
                Some(member) => Ok(Wire::Memory(member)),
                None => Err(bootstrap
                    .error(format!("rank {other}, a thread of this process, failed during the setup"))),
            },
        })?;
        for (other, socket) in readers {
            let (weak, member) = (Arc::downgrade(&mesh), Arc::clone(&mesh.member));
            let thread = std::thread::Builder::new().name(format!("warpsmith-rank{other}"));
            let started = thread.spawn(move || super::read(&weak, &member, other, socket));
            started.map_err(|error| bootstrap.error(format!("cannot start a thread: {error}")))?;
        }
        self.wait_for_all(&mesh, &cards)?;
        // All ranks have read the keys, so they can be deleted.
        let chunks = (0..cards.len().div_ceil(CHUNK)).map(chunk_key).filter(|_| rank == 0);
        for key in chunks.chain([card_key(rank)]) {
            let _ = self.met.store().delete(&key, deadline::with_last_word(Instant::now()));
        }
        Ok((mesh, cards.into_iter().map(|card| card.device).collect()))
    }

    /// Returns whether another rank runs on this host and in the same container.
    fn shares_host(&self, other: usize) -> bool {
        let members = self.met.members();
        members[other].host_identity == members[self.bootstrap.launch.rank].host_identity
    }

    /// Returns the address of the interface through which this host reaches the store. Returns `None` if all ranks
    /// share the host or there is no server.
    fn address_between_hosts(&self) -> Option<IpAddr> {
        let Bootstrap { launch, .. } = *self.bootstrap;
        let store = launch.store.as_ref()?;
        if (0..launch.world_size).all(|other| self.shares_host(other)) {
            return None;
        }
        let targets = resolve(&store.to_string(), self.deadline).unwrap_or_default();
        let toward = targets.into_iter().find_map(machine::address_toward);
        // On the host that serves the store, the store's host name can resolve to the loopback interface.
        toward.filter(|ip| !ip.is_loopback()).or_else(machine::outward_address)
    }

    /// Returns the error for the slower one of two threads that use the same rank. The rendezvous can tell processes
    /// apart, but not threads.
    fn is_there_twice(&self) -> Error {
        let rank = self.bootstrap.launch.rank;
        self.bootstrap.error(format!("two threads of this process have rank {rank}"))
    }

    /// Waits until all ranks have connected to all others.
    fn wait_for_all(&self, mesh: &Mesh, cards: &[Card]) -> Result<()> {
        let bootstrap = self.bootstrap;
        let late = |what: String| bootstrap.error(format!("{what} within {:?}", bootstrap.timeout));
        let failed = |stop, what: String| match stop {
            Stop::Failed(failure) => bootstrap.error(failure.to_string()),
            Stop::Deadline => late(what),
        };
        let init = Fingerprint::init();
        let unread = |stop| failed(stop, "another rank did not confirm that this rank is ready".to_owned());
        mesh.announce(&init, self.deadline).map_err(unread)?;
        for rank in mesh.others() {
            loop {
                match mesh.hear(rank, &init, Instant::now() + LOOK) {
                    Ok(()) => break,
                    Err(Stop::Deadline) if Instant::now() < self.deadline => {
                        self.check_others(cards.iter().enumerate())?;
                    }
                    Err(stop) => return Err(failed(stop, format!("rank {rank} was not ready"))),
                }
            }
        }
        Ok(())
    }

    /// Connects one socket to each rank in another process.
    fn connect(&self, listener: &TcpListener, cards: &[Card]) -> Result<Vec<Option<TcpStream>>> {
        let bootstrap = self.bootstrap;
        let (rank, world) = (bootstrap.launch.rank, bootstrap.launch.world_size);
        let mut sockets: Vec<Option<TcpStream>> = (0..world).map(|_| None).collect();
        let is_elsewhere = |other: &usize| cards[*other].process != self.this;
        for other in (0..rank).filter(is_elsewhere) {
            let card = &cards[other];
            let dialled = loop {
                let Some(address) = card.address else { break Err(ErrorKind::AddrNotAvailable.into()) };
                let left = self.deadline.saturating_duration_since(Instant::now());
                let left = left.max(Duration::from_millis(1));
                match dial(address, &card.token, rank, &cards[rank].token, other, left) {
                    // The other rank has closed this connection because it had too many unidentified connections, or
                    // because it has given up.
                    Err(error) if is_end(&error) && Instant::now() + AGAIN < self.deadline => {
                        self.check_others(cards.iter().enumerate())?;
                        std::thread::sleep(AGAIN);
                    }
                    dialled => break dialled,
                }
            };
            if dialled.is_err() {
                self.find_cause(cards)?;
            }
            let socket = dialled.map_err(|error| {
                let advice = match self.shares_host(other) {
                    true => "it has ended or was killed",
                    false => "set `address` in the options to an address that the other hosts can reach",
                };
                let address = card.address.map_or_else(String::new, |address| address.to_string());
                bootstrap.error(format!(
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
                        return Err(bootstrap.error(format!(
                            "{} did not connect to {} within {:?}; {} other connections were rejected",
                            ranks(&awaited),
                            cards[rank].address.map_or_else(String::new, |address| address.to_string()),
                            bootstrap.timeout,
                            strangers.refused(),
                        )));
                    }
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        }
        Ok(sockets)
    }

    /// Waits for the cards of all ranks; all ranks have already arrived. Rank 0 gathers the cards. If every rank read
    /// them directly, the number of store operations would be quadratic in the number of ranks.
    fn read_cards(&self, own: Card) -> Result<Vec<Card>> {
        let (bootstrap, store) = (self.bootstrap, self.met.store());
        let (rank, world) = (bootstrap.launch.rank, bootstrap.launch.world_size);
        let mut cards: Vec<Option<Card>> = (0..world).map(|_| None).collect();
        cards[rank] = Some(own);
        let chunks: Vec<String> = (0..world.div_ceil(CHUNK)).map(chunk_key).collect();
        let awaited = if rank == 0 { (1..world).map(card_key).collect() } else { chunks.clone() };
        let awaited: Vec<&str> = awaited.iter().map(String::as_str).collect();
        // While waiting, the loop also checks whether the ranks of these cards have exited.
        let of_collectors = if rank == 0 { 1..world } else { 0..1 };
        loop {
            let waited = store.wait(&awaited, self.deadline.min(Instant::now() + LOOK));
            let (is_late, last) = (Instant::now() >= self.deadline, deadline::with_last_word(self.deadline));
            match waited {
                Ok(()) => break,
                Err(error) if !is_late && !CollectiveError::is_store_timeout(&error) => return Err(error),
                Err(_) => {}
            }
            for other in of_collectors.clone() {
                if cards[other].is_none() && store.contains(&[&card_key(other)], last)? {
                    let card = parsed(bootstrap, other, &store.get(&card_key(other), last)?)?;
                    cards[other] = Some(checked(bootstrap, other, card, known(&cards))?);
                }
            }
            if self.count.read(last)? != self.number {
                return Err(self.is_there_twice());
            }
            self.check_others(known(&cards))?;
            if is_late {
                let is_missing = |other: &usize| !store.contains(&[&card_key(*other)], last).unwrap_or(false);
                let missing: Vec<usize> = (0..world).filter(is_missing).collect();
                let missing = if missing.is_empty() { vec![0] } else { missing };
                let (missing, timeout) = (ranks(&missing), bootstrap.timeout);
                return Err(
                    bootstrap.error(format!("{missing} did not continue the setup within {timeout:?}"))
                );
            }
        }
        let last = deadline::with_last_word(self.deadline);
        if rank > 0 {
            for (number, chunk) in chunks.iter().enumerate() {
                let collected = serde_json::from_slice::<Vec<Card>>(&store.get(chunk, last)?);
                let collected = collected.map_err(|_| unreadable(bootstrap, 0))?;
                for (other, card) in (number * CHUNK..world).zip(collected) {
                    let known_as = cards[other].as_ref().map(|known| &known.token);
                    if known_as.is_some_and(|token| *token != card.token) {
                        return Err(self.is_there_twice());
                    }
                    if cards[other].is_none() {
                        cards[other] = Some(checked(bootstrap, other, card, known(&cards))?);
                    }
                }
            }
        } else {
            for other in 1..world {
                if cards[other].is_none() {
                    let card = parsed(bootstrap, other, &store.get(&card_key(other), last)?)?;
                    cards[other] = Some(checked(bootstrap, other, card, known(&cards))?);
                }
            }
            for (chunk, cards) in chunks.iter().zip(cards.chunks(CHUNK)) {
                store.set(chunk, &serde_json::to_vec(cards).unwrap_or_default(), last)?;
            }
        }
        let cards: Vec<Card> = cards.into_iter().flatten().collect();
        if cards.len() < world {
            return Err(unreadable(bootstrap, 0));
        }
        Ok(cards)
    }

    /// Fails if a rank has given up or exited.
    fn check_others<'c>(&self, others: impl Iterator<Item = (usize, &'c Card)>) -> Result<()> {
        let (bootstrap, store) = (self.bootstrap, self.met.store());
        let last = deadline::with_last_word(self.deadline);
        if store.contains(&[BROKEN], last)? {
            let text = store.get(BROKEN, last)?;
            return Err(bootstrap
                .error(format!("the setup failed on another rank: {}", String::from_utf8_lossy(&text))));
        }
        let ended = |rank: usize, who: String| {
            bootstrap.error(format!("rank {rank} failed: {who} has ended or was killed"))
        };
        for (rank, card) in others {
            if card.process.has_ended(&self.this) {
                return Err(ended(rank, card.process.to_string()));
            }
        }
        match self.met.failed_ranks(last)?.first() {
            Some(&rank) => Err(ended(rank, "its process".to_owned())),
            None => Ok(()),
        }
    }

    /// Fails if a rejected connection has a more specific cause, for example if the other rank gave up because of a
    /// third one.
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

/// Returns the cards that are already available, with their ranks.
fn known(cards: &[Option<Card>]) -> impl Iterator<Item = (usize, &Card)> {
    cards.iter().enumerate().filter_map(|(rank, card)| Some((rank, card.as_ref()?)))
}

/// Parses another rank's card.
fn parsed(bootstrap: &Bootstrap<'_>, rank: usize, text: &[u8]) -> Result<Card> {
    serde_json::from_slice(text).map_err(|_| unreadable(bootstrap, rank))
}

fn unreadable(bootstrap: &Bootstrap<'_>, rank: usize) -> Error {
    bootstrap.error(format!("the value that rank {rank} wrote into the store is invalid"))
}

/// Returns the card of another rank if it is consistent with the known cards.
fn checked<'c>(
    bootstrap: &Bootstrap<'_>,
    rank: usize,
    card: Card,
    known: impl Iterator<Item = (usize, &'c Card)>,
) -> Result<Card> {
    if card.token.len() != TOKEN {
        return Err(unreadable(bootstrap, rank));
    }
    for (other, known) in known {
        if known.device.is_emulated != card.device.is_emulated {
            return Err(bootstrap.error(format!(
                "rank {other} uses {}, but rank {rank} uses {}; emulated devices and GPUs cannot be in one \
                 communicator",
                known.device.name, card.device.name
            )));
        }
        if known.process == card.process && known.device.stream == card.device.stream {
            return Err(bootstrap.error(format!(
                "ranks {other} and {rank} use the same stream and would wait for each other; create a separate \
                 stream for each rank"
            )));
        }
    }
    Ok(card)
}
