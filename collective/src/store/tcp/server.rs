//! The server of a store: a thread that owns the sockets.
//!
//! Guarantees: it listens on the addresses that it is given, never on all of the machine; a connection that sends what
//! it should not, stays in the middle of a request or does not read is closed, and the others go on; nothing waits for
//! a connection; strangers, who have not proven the token, keep neither clients out nor the process from opening files.

use std::collections::{HashMap, VecDeque};
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Waker};

use super::hub::{Client, Hub};
use super::protocol::TURNED_AWAY;
use crate::error::{Error, Result};
use crate::store::Token;
use crate::{keepalive, machine};

/// How long a client may take for its greeting.
const GREETING: Duration = Duration::from_secs(2);
/// How long a client may take for the rest of a request, and to read replies.
const PATIENCE: Duration = Duration::from_secs(10);
/// The connections that may be in their greeting at once.
const MOST_STRANGERS: usize = 128;
/// The connections that are accepted before the others have their turn.
const ACCEPTED: usize = 64;
/// How long it does not accept after the system had no socket for a connection.
const PAUSE: Duration = Duration::from_millis(50);
/// Bytes that are read at once, and from one connection before the others have their turn.
const CHUNK: usize = 64 << 10;
const TURN: usize = 16 * CHUNK;
/// What unfinished requests of all connections take at the most, in bytes.
const MOST_UNFINISHED: usize = 256 << 20;

/// Listeners, then clients, come after it.
const STOP: mio::Token = mio::Token(0);

/// How a server serves.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// Serves only clients with this token; without one, every client that can reach it, as PyTorch's servers do.
    pub token: Option<Token>,
    /// Closes further connections. Three quarters of the file descriptors that the process may have (`ulimit -n`) are
    /// the limit in any case.
    pub most_connections: usize,
}

impl Default for ServerOptions {
    /// No token, 16384 connections.
    fn default() -> Self {
        Self { token: None, most_connections: 16 << 10 }
    }
}

/// A server for [`TcpStore`](super::TcpStore) and PyTorch's `TCPStore`. Dropping it ends it, and the connections with
/// it.
#[derive(Debug)]
pub struct StoreServer {
    address: SocketAddr,
    stop: Waker,
    thread: Option<JoinHandle<()>>,
}

impl StoreServer {
    /// Listens on an address of this machine; on a free port when the port is 0.
    ///
    /// # Errors
    /// [`Error::Listen`]: the port is in use, the address is not one of this machine, or it stands for all of them,
    /// from which networks could reach the store that are not meant to.
    pub fn start(address: SocketAddr, options: ServerOptions) -> Result<Self> {
        Self::start_at(&[address], options)
    }

    /// Listens on several addresses, of which the first is its own.
    pub(crate) fn start_at(addresses: &[SocketAddr], options: ServerOptions) -> Result<Self> {
        let shown = || addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let failed = |source| Error::Listen { address: shown(), source };
        let poll = Poll::new().map_err(failed)?;
        let mut listeners = Vec::new();
        for (number, address) in addresses.iter().enumerate() {
            if address.ip().is_unspecified() {
                let why = "this stands for every network of the machine; give the address of one";
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
        let quarter = machine::most_descriptors() / 4;
        let serving = Serving {
            poll,
            next: STOP.0 + 1 + listeners.len(),
            listeners,
            hub: Hub::new(options.token),
            most_connections: options.most_connections.min(quarter.saturating_mul(3)),
            most_strangers: MOST_STRANGERS.min(quarter).max(1),
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

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for StoreServer {
    fn drop(&mut self) {
        if self.stop.wake().is_ok()
            && let Some(thread) = self.thread.take()
        {
            // The thread waits for nothing but events; one that panicked has ended as well.
            let _ = thread.join();
        }
    }
}

struct Serving {
    poll: Poll,
    listeners: Vec<TcpListener>,
    hub: Hub,
    most_connections: usize,
    most_strangers: usize,
    connections: HashMap<Client, Connection>,
    /// The clients that may not use the store yet, the first that came first.
    strangers: VecDeque<Client>,
    next: Client,
    /// Connections with more to read than fit into their turn.
    again: Vec<Client>,
    /// When to accept again.
    accept_at: Option<Instant>,
    /// The bytes of unfinished requests.
    unfinished: usize,
}

struct Connection {
    stream: TcpStream,
    unfinished: Vec<u8>,
    /// How many unfinished bytes there must be before they are looked at.
    needed: usize,
    /// Whether it may not use the store yet.
    is_stranger: bool,
    /// Since when it owes a greeting or the rest of a request.
    owes: Option<Instant>,
    /// Since when it has not read.
    stalls: Option<Instant>,
}

impl Serving {
    fn run(mut self) {
        let mut events = Events::with_capacity(1024);
        loop {
            match self.poll.poll(&mut events, self.timeout()) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return tracing::error!("the server of the store ends: {error}"),
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
        // A millisecond more, so that it has passed by then.
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
                        tracing::warn!("the server of the store has no socket for a connection: {error}");
                        self.accept_at = Some(Instant::now() + PAUSE);
                        return;
                    }
                },
            };
            let is_full = self.connections.len() >= self.most_connections;
            if (is_full || self.strangers.len() >= self.most_strangers) && !self.turn_one_away() {
                tracing::warn!("the server of the store has {} connections already", self.most_connections);
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
            // A client greets at once. It is heard before others come, who could take its place.
            self.read(client);
            self.write(client);
        }
        // There may be more.
        self.accept_at = self.accept_at.or(Some(Instant::now()));
    }

    /// Ends the connection of a stranger, so that there is room for another: of the one that came first of those that
    /// have said the least. Whether there was one.
    fn turn_one_away(&mut self) -> bool {
        let is_silent = |client: &Client| !self.hub.is_challenged(*client);
        let place = self.strangers.iter().position(is_silent).unwrap_or(0);
        let Some(client) = self.strangers.get(place).copied() else { return false };
        self.turn_away(client, "others need its place");
        true
    }

    /// Ends the connection of a client, which may try again if it has not proven the token yet.
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
            Turn::Over if self.unfinished > MOST_UNFINISHED => {
                return self.close(client, connection, "unfinished requests take too much memory");
            }
            Turn::Over => {}
            Turn::More => self.again.push(client),
        }
        if connection.is_stranger && self.hub.is_open(client) {
            connection.is_stranger = false;
            self.strangers.retain(|stranger| *stranger != client);
            // Without it replies come later, but they come.
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
                Ok(0) => break Some("it takes no more".to_owned()),
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

    /// Closes what owes something for too long.
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
        // It is closed in any case when it is dropped.
        let _ = self.poll.registry().deregister(&mut connection.stream);
        if connection.is_stranger {
            self.strangers.retain(|stranger| *stranger != client);
        }
        drop(connection);
        self.hub.leave(client);
    }
}

/// Tells a client that it may try again. One that cannot be told sees that the connection ends.
fn say_turned_away(stream: &mut TcpStream) {
    let _ = stream.write(&[TURNED_AWAY]);
}

/// How a connection's turn ended.
enum Turn {
    /// There is no more to read now.
    Over,
    /// There may be.
    More,
    /// It is to be closed, for this reason.
    Closed(String),
}

impl Connection {
    /// When it is closed, unless the client does what it owes.
    fn end(&self) -> Option<Instant> {
        let patience = if self.is_stranger { GREETING } else { PATIENCE };
        self.owes.into_iter().chain(self.stalls).min().map(|since| since + patience)
    }

    /// Reads, and does what the client asks for.
    fn turn(&mut self, client: Client, hub: &mut Hub) -> Turn {
        let mut chunk = [0; CHUNK];
        for _ in 0..TURN / CHUNK {
            match self.stream.read(&mut chunk) {
                Ok(0) => return Turn::Closed("its end closed it".to_owned()),
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
                // A new request has the whole time; one that goes on, and a greeting, have what is left of it.
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
