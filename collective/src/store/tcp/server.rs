//! Server of a store, with a thread that owns the sockets.
//!
//! The server listens only on the given addresses, never on all addresses of the machine. It closes any connection that
//! sends invalid data, stalls within a request, or does not read its replies; other connections are not affected. No
//! operation blocks on a connection. Unauthenticated connections can neither keep clients out nor exhaust the file
//! descriptors of the process.

use std::collections::{HashMap, VecDeque};
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Waker};

use super::hub::{Client, Hub};
use super::protocol::TURNED_AWAY;
use crate::error::{CollectiveError, Error, Result};
use crate::store::Token;
use crate::{keepalive, machine};

/// Time limit for the handshake of a client.
const GREETING: Duration = Duration::from_secs(2);
/// Time limit for the rest of a request and for reading the replies.
const PATIENCE: Duration = Duration::from_secs(10);
/// Maximum number of connections whose handshake is pending.
const MAX_STRANGERS: usize = 128;
/// Maximum number of connections accepted per turn.
const ACCEPTED: usize = 64;
/// Time to wait before accepting connections again after the system has run out of sockets.
const PAUSE: Duration = Duration::from_millis(50);
/// Number of bytes per read, and maximum number of bytes read from a connection per turn.
const CHUNK: usize = 64 << 10;
const TURN: usize = 16 * CHUNK;
/// Maximum total size of incomplete requests over all connections, in bytes.
const MAX_UNFINISHED: usize = 256 << 20;

/// Token of the stop event. The tokens of listeners and clients follow this one.
const STOP: mio::Token = mio::Token(0);

/// Options of a server.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// Token that clients must know. Without a token, the server serves every client that can reach it, as PyTorch's
    /// servers do.
    pub token: Option<Token>,
    /// Maximum number of connections; further connections are closed. Regardless of this limit, the server uses at most
    /// three quarters of the file descriptors of the process (`ulimit -n`).
    pub max_connections: usize,
}

impl Default for ServerOptions {
    /// Returns the defaults: no token, and 16384 connections.
    fn default() -> Self {
        Self { token: None, max_connections: 16 << 10 }
    }
}

/// Server for [`TcpStore`](super::TcpStore) and for clients of PyTorch's `TCPStore`. Dropping the server stops it and
/// closes its connections.
#[derive(Debug)]
pub struct StoreServer {
    address: SocketAddr,
    stop: Waker,
    thread: Option<JoinHandle<()>>,
}

impl StoreServer {
    /// Starts a server that listens on an address of this machine. Port 0 selects a free port.
    ///
    /// # Errors
    /// Returns [`CollectiveError::Listen`] if the port is in use, if the address does not belong to this machine, or if
    /// it is a wildcard address. Wildcard addresses are rejected because they would expose the store to unintended
    /// networks.
    pub fn start(address: SocketAddr, options: ServerOptions) -> Result<Self> {
        Self::start_at(&[address], options)
    }

    /// Listens on several addresses. [`Self::address`] returns the first of these addresses.
    pub(crate) fn start_at(addresses: &[SocketAddr], options: ServerOptions) -> Result<Self> {
        let shown = || addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let failed = |source| Error::from(CollectiveError::Listen { address: shown(), source });
        let poll = Poll::new().map_err(failed)?;
        let mut listeners = Vec::new();
        for (number, address) in addresses.iter().enumerate() {
            if address.ip().is_unspecified() {
                let why = "this address selects every network interface; give the address of one interface";
                return Err(failed(io::Error::new(io::ErrorKind::InvalidInput, why)));
            }
            let mut listener = TcpListener::bind(*address).map_err(failed)?;
            let token = mio::Token(STOP.0 + 1 + number);
            poll.registry().register(&mut listener, token, Interest::READABLE).map_err(failed)?;
            listeners.push(listener);
        }
        let none = || io::Error::from(io::ErrorKind::AddrNotAvailable);
        let address = listeners.first().ok_or_else(none).and_then(TcpListener::local_addr).map_err(failed)?;
        let stop = Waker::new(poll.registry(), STOP).map_err(failed)?;
        let quarter = machine::max_descriptors() / 4;
        let serving = Serving {
            poll,
            next: STOP.0 + 1 + listeners.len(),
            listeners,
            hub: Hub::new(options.token),
            max_connections: options.max_connections.min(quarter.saturating_mul(3)),
            max_strangers: MAX_STRANGERS.min(quarter).max(1),
            connections: HashMap::new(),
            strangers: VecDeque::new(),
            again: Vec::new(),
            accept_at: None,
            unfinished: 0,
        };
        let thread = std::thread::Builder::new().name("warpsmith-store".to_owned());
        let thread = thread.spawn(move || serving.run()).map_err(failed)?;
        Ok(Self { address, stop, thread: Some(thread) })
    }

    /// Returns the address on which the server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for StoreServer {
    fn drop(&mut self) {
        if self.stop.wake().is_ok()
            && let Some(thread) = self.thread.take()
        {
            // Joining cannot hang, because the thread blocks only while it waits for events. A thread that has panicked
            // has also ended.
            let _ = thread.join();
        }
    }
}

struct Serving {
    poll: Poll,
    listeners: Vec<TcpListener>,
    hub: Hub,
    max_connections: usize,
    max_strangers: usize,
    connections: HashMap<Client, Connection>,
    /// Clients that have not authenticated yet, oldest first.
    strangers: VecDeque<Client>,
    next: Client,
    /// Connections with more data than one turn can read.
    again: Vec<Client>,
    /// Time at which the server resumes accepting connections.
    accept_at: Option<Instant>,
    /// Total size of incomplete requests over all connections, in bytes.
    unfinished: usize,
}

struct Connection {
    stream: TcpStream,
    unfinished: Vec<u8>,
    /// Number of pending bytes that must be available before parsing can continue.
    needed: usize,
    /// True if the client has not authenticated yet.
    is_stranger: bool,
    /// Time at which the server started to wait for the handshake or the rest of a request.
    owes: Option<Instant>,
    /// Time at which the client stopped reading its replies.
    stalls: Option<Instant>,
}

impl Serving {
    fn run(mut self) {
        let mut events = Events::with_capacity(1024);
        loop {
            match self.poll.poll(&mut events, self.timeout()) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return tracing::error!("the store's server stops: {error}"),
            }
            for client in std::mem::take(&mut self.again) {
                self.read(client);
            }
            for event in &events {
                match event.token() {
                    STOP => return,
                    mio::Token(number) if number <= self.listeners.len() => self.accept(),
                    mio::Token(client) => {
                        self.read(client);
                        self.write(client);
                    }
                }
            }
            if self.accept_at.is_some_and(|at| at <= Instant::now()) {
                self.accept();
            }
            for client in self.hub.take_answered() {
                self.write(client);
            }
            self.expire();
        }
    }

    fn timeout(&self) -> Option<Duration> {
        if !self.again.is_empty() {
            return Some(Duration::ZERO);
        }
        let first = self.connections.values().filter_map(Connection::end).min();
        let ends = first.into_iter().chain(self.accept_at).min();
        // One millisecond is added, so that the deadline has passed at the wake-up.
        ends.map(|end| end.saturating_duration_since(Instant::now()) + Duration::from_millis(1))
    }

    fn accept(&mut self) {
        self.accept_at = None;
        for listener in 0..self.listeners.len() {
            self.accept_from(listener);
        }
    }

    fn accept_from(&mut self, listener: usize) {
        for _ in 0..ACCEPTED {
            let mut stream = match self.listeners[listener].accept() {
                Ok((stream, _)) => stream,
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return,
                    io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted => continue,
                    _ if self.turn_one_away() => continue,
                    _ => {
                        tracing::warn!("the store's server cannot accept a connection: {error}");
                        self.accept_at = Some(Instant::now() + PAUSE);
                        return;
                    }
                },
            };
            let is_full = self.connections.len() >= self.max_connections;
            if (is_full || self.strangers.len() >= self.max_strangers) && !self.turn_one_away() {
                tracing::warn!(
                    "the store's server has reached its maximum of {} connections",
                    self.max_connections
                );
                say_turned_away(&mut stream);
                continue;
            }
            let client = self.next;
            let interest = Interest::READABLE | Interest::WRITABLE;
            if self.poll.registry().register(&mut stream, mio::Token(client), interest).is_err() {
                continue;
            }
            self.next += 1;
            self.hub.enter(client);
            self.strangers.push_back(client);
            let (unfinished, owes) = (Vec::new(), Some(Instant::now()));
            let connection =
                Connection { stream, unfinished, needed: 1, is_stranger: true, owes, stalls: None };
            self.connections.insert(client, connection);
            // A client sends its handshake immediately after connecting. The handshake is read before new connections
            // are accepted, because one of these could evict the client.
            self.read(client);
            self.write(client);
        }
        // More connections may be pending.
        self.accept_at = self.accept_at.or(Some(Instant::now()));
    }

    /// Evicts an unauthenticated connection to free its slot for another one: the oldest of those that are furthest
    /// from authentication. Returns whether a connection was evicted.
    fn turn_one_away(&mut self) -> bool {
        let is_silent = |client: &Client| !self.hub.is_challenged(*client);
        let place = self.strangers.iter().position(is_silent).unwrap_or(0);
        let Some(client) = self.strangers.get(place).copied() else { return false };
        self.turn_away(client, "other connections need its slot");
        true
    }

    /// Closes a client's connection. If the client has not yet proven that it knows the token, it may retry.
    fn turn_away(&mut self, client: Client, why: &str) {
        let Some(mut connection) = self.connections.remove(&client) else { return };
        if connection.is_stranger {
            say_turned_away(&mut connection.stream);
        }
        self.close(client, connection, why);
    }

    fn read(&mut self, client: Client) {
        let Some(mut connection) = self.connections.remove(&client) else { return };
        let before = connection.unfinished.len();
        let turn = connection.turn(client, &mut self.hub);
        self.unfinished = self.unfinished - before + connection.unfinished.len();
        match turn {
            Turn::Closed(why) => return self.close(client, connection, &why),
            Turn::Over if self.unfinished > MAX_UNFINISHED => {
                return self.close(client, connection, "unfinished requests take too much memory");
            }
            Turn::Over => {}
            Turn::More => self.again.push(client),
        }
        if connection.is_stranger && self.hub.is_open(client) {
            connection.is_stranger = false;
            self.strangers.retain(|stranger| *stranger != client);
            // If this option cannot be set, replies are delayed but still arrive.
            let _ = connection.stream.set_nodelay(true);
            keepalive::watch(&connection.stream);
        }
        self.connections.insert(client, connection);
    }

    fn write(&mut self, client: Client) {
        let Some(replies) = self.hub.replies(client).filter(|replies| !replies.is_empty()) else { return };
        let Some(connection) = self.connections.get_mut(&client) else { return };
        let mut sent = 0;
        let problem = loop {
            match connection.stream.write(&replies[sent..]) {
                Ok(0) => break Some("it accepts no more data".to_owned()),
                Ok(more) => sent += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break None,
                Err(error) => break Some(error.to_string()),
            }
            if sent == replies.len() {
                break None;
            }
        };
        connection.stalls = match sent == replies.len() {
            true => None,
            false if sent > 0 => Some(Instant::now()),
            false => connection.stalls.or(Some(Instant::now())),
        };
        self.hub.sent(client, sent);
        if let Some(problem) = problem
            && let Some(connection) = self.connections.remove(&client)
        {
            self.close(client, connection, &problem);
        }
    }

    /// Closes connections whose time limits have passed.
    fn expire(&mut self) {
        let now = Instant::now();
        let late = |connection: &Connection| connection.end().is_some_and(|end| end <= now);
        let late: Vec<Client> =
            self.connections.iter().filter(|(_, one)| late(one)).map(|(client, _)| *client).collect();
        late.into_iter().for_each(|client| self.turn_away(client, "it is too slow"));
    }

    fn close(&mut self, client: Client, mut connection: Connection, why: &str) {
        tracing::debug!("a connection to the store is closed: {why}");
        self.unfinished -= connection.unfinished.len();
        // An error can be ignored, because dropping the stream closes the connection anyway.
        let _ = self.poll.registry().deregister(&mut connection.stream);
        if connection.is_stranger {
            self.strangers.retain(|stranger| *stranger != client);
        }
        drop(connection);
        self.hub.leave(client);
    }
}

/// Notifies a client that it may connect again. If the notification fails, the client sees only the end of the
/// connection.
fn say_turned_away(stream: &mut TcpStream) {
    let _ = stream.write(&[TURNED_AWAY]);
}

/// Result of a connection's turn.
enum Turn {
    /// No more data can be read at the moment.
    Over,
    /// There may be more data.
    More,
    /// The connection must be closed for this reason.
    Closed(String),
}

impl Connection {
    /// Returns the time at which the connection will be closed if the client makes no progress.
    fn end(&self) -> Option<Instant> {
        let patience = if self.is_stranger { GREETING } else { PATIENCE };
        self.owes.into_iter().chain(self.stalls).min().map(|since| since + patience)
    }

    /// Reads data from a client and executes the client's requests.
    fn turn(&mut self, client: Client, hub: &mut Hub) -> Turn {
        let mut chunk = [0; CHUNK];
        for _ in 0..TURN / CHUNK {
            match self.stream.read(&mut chunk) {
                Ok(0) => return Turn::Closed("the client closed it".to_owned()),
                Ok(read) => self.unfinished.extend_from_slice(&chunk[..read]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Turn::Over,
                Err(error) => return Turn::Closed(error.to_string()),
            }
            if self.unfinished.len() < self.needed {
                continue;
            }
            let was_open = hub.is_open(client);
            let progress = match hub.receive(client, &self.unfinished) {
                Ok(progress) => progress,
                Err(refused) => return Turn::Closed(refused.0.to_owned()),
            };
            self.unfinished.drain(..progress.used);
            self.needed = progress.needed;
            self.owes = match (hub.is_open(client), self.unfinished.is_empty()) {
                (true, true) => None,
                // A new request is given the full time limit. A continued request and a handshake are given only the
                // remaining time.
                (true, false) if progress.used > 0 || !was_open => Some(Instant::now()),
                _ => self.owes.or(Some(Instant::now())),
            };
            if self.unfinished.is_empty() {
                self.unfinished.shrink_to(CHUNK);
            }
        }
        Turn::More
    }
}
