//! Store that several processes access over TCP: a client and a server for PyTorch's `TCPStore` protocol. Both
//! interoperate with PyTorch 2.4 or later.

mod connection;
#[cfg(feature = "fuzzing")]
pub mod fuzzed;
mod hub;
mod protocol;
mod server;

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

pub(crate) use self::connection::is_end;
use self::connection::{Connection, Failure, left};
use self::protocol::{KEY_PREFIX, MAX_KEYS};
pub use self::server::{ServerOptions, StoreServer};
use super::values::number;
use super::{Store, Token, check};
use crate::error::{CollectiveError, Error, Result};
use crate::keepalive;

/// Pauses between attempts to connect.
const PAUSES: [Duration; 2] = [Duration::from_millis(2), Duration::from_millis(100)];

/// Client of a [`StoreServer`], or of PyTorch's `TCPStore`.
///
/// Threads can use the client concurrently, because each operation uses its own connection, which is then kept for
/// reuse.
///
/// If the server and its clients have the same [`Token`], they prove this to each other when they connect. Data sent
/// after that is neither encrypted nor authenticated, so the network must be trusted.
#[derive(Debug)]
pub struct TcpStore {
    /// `HOST:PORT`
    address: String,
    targets: Vec<SocketAddr>,
    token: Option<Token>,
    idle: Mutex<Vec<Connection<TcpStream>>>,
}

impl TcpStore {
    /// Connects to the server at `HOST:PORT`; an IPv6 address must be in brackets. The call retries until the deadline,
    /// so clients can start before the server.
    ///
    /// # Errors
    /// Returns [`CollectiveError::StoreUnreachable`]; [`CollectiveError::StoreClosed`] if the server has no room for
    /// the connection or requires a token; [`CollectiveError::NotAStore`] if a different program responds; or
    /// [`CollectiveError::WrongToken`].
    pub fn connect(address: &str, token: Option<&Token>, deadline: Instant) -> Result<Self> {
        let began = Instant::now();
        let unreachable = |source: io::Error| {
            Error::from(CollectiveError::StoreUnreachable {
                address: address.to_owned(),
                seconds: began.elapsed().as_secs_f64(),
                source,
            })
        };
        let mut store = Self {
            address: address.to_owned(),
            targets: Vec::new(),
            token: token.cloned(),
            idle: Mutex::default(),
        };
        let mut pause = PAUSES[0];
        loop {
            let attempt = resolve(address, deadline).map_err(Failure::Wire).and_then(|targets| {
                store.targets = targets;
                store.open(deadline)
            });
            let failure = match attempt {
                Ok(connection) => {
                    store.idle.get_mut().unwrap_or_else(PoisonError::into_inner).push(connection);
                    return Ok(store);
                }
                Err(Failure::Wire(error)) => error,
                Err(failure) => return Err(store.error(failure, &[], "a greeting")),
            };
            if failure.kind() == io::ErrorKind::InvalidInput || Instant::now() + pause >= deadline {
                return Err(match is_end(&failure) {
                    true => store.error(failure.into(), &[], "a greeting"),
                    false => unreachable(failure),
                });
            }
            std::thread::sleep(pause);
            pause = (2 * pause).min(PAUSES[1]);
        }
    }

    /// Returns the address of the server as `HOST:PORT`.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Opens a connection. If the server has no room for the connection, retries until the deadline.
    fn open(&self, deadline: Instant) -> Result<Connection<TcpStream>, Failure> {
        let mut pause = PAUSES[0];
        loop {
            match self.attempt(deadline) {
                Err(Failure::TurnedAway) if Instant::now() + pause < deadline => {}
                opened => return opened,
            }
            std::thread::sleep(pause);
            pause = (2 * pause).min(PAUSES[1]);
        }
    }

    fn attempt(&self, deadline: Instant) -> Result<Connection<TcpStream>, Failure> {
        let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for (index, target) in self.targets.iter().enumerate() {
            // The remaining time is divided evenly among the remaining targets.
            let others = u32::try_from(self.targets.len() - index).unwrap_or(u32::MAX);
            match TcpStream::connect_timeout(target, left(deadline)?.div_f64(f64::from(others))) {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    keepalive::watch(&stream);
                    return Connection::greet(stream, self.token.as_ref(), deadline);
                }
                Err(error) => last = error,
            }
        }
        Err(last.into())
    }

    /// Runs an operation on a connection that no other operation is using.
    fn run<T>(
        &self,
        keys: &[&str],
        operation: &'static str,
        deadline: Instant,
        run: impl FnOnce(&mut Connection<TcpStream>, &[Vec<u8>]) -> Result<T, Failure>,
    ) -> Result<T> {
        let idle = || self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = idle().pop();
        let connection = kept.map_or_else(|| self.open(deadline), Ok);
        let wire_keys: Vec<Vec<u8>> = keys.iter().map(|key| wire_key(key)).collect();
        let outcome = connection.and_then(|mut connection| {
            let outcome = run(&mut connection, &wire_keys);
            if matches!(outcome, Ok(_) | Err(Failure::NotSet)) {
                idle().push(connection);
            }
            outcome
        });
        outcome.map_err(|failure| self.error(failure, keys, operation))
    }

    fn error(&self, failure: Failure, keys: &[&str], operation: &'static str) -> Error {
        let address = self.address.clone();
        let error = match failure {
            Failure::NotSet => CollectiveError::StoreTimeout { key: keys.join("`, `") },
            Failure::WrongToken => CollectiveError::WrongToken { address },
            Failure::TurnedAway => CollectiveError::StoreClosed { address, operation },
            Failure::Strange(what) => CollectiveError::NotAStore { address, what },
            Failure::Wire(error) if is_end(&error) => CollectiveError::StoreClosed { address, operation },
            Failure::Wire(source) => CollectiveError::StoreSilent { address, operation, source },
        };
        error.into()
    }

    /// Makes the server append a value to a key when this process exits for any reason or the returned object is
    /// dropped.
    pub(crate) fn leave_will(&self, key: &str, value: &[u8], deadline: Instant) -> Result<Will> {
        let outcome = self.open(deadline).and_then(|mut connection| {
            connection.will(&wire_key(key), value, deadline)?;
            Ok(Will { connection })
        });
        outcome.map_err(|failure| self.error(failure, &[key], "a will"))
    }
}

/// Append operation that the server executes when this object is dropped or the process exits.
#[derive(Debug)]
pub(crate) struct Will {
    connection: Connection<TcpStream>,
}

impl Will {
    /// Replaces the will. From then on, the server appends to this key instead; if the key is empty, it appends
    /// nothing.
    pub fn replace(&mut self, key: &str, value: &[u8], deadline: Instant) -> io::Result<()> {
        let key = if key.is_empty() { Vec::new() } else { wire_key(key) };
        match self.connection.will(&key, value, deadline) {
            Ok(()) => Ok(()),
            Err(Failure::Wire(error)) => Err(error),
            Err(other) => Err(io::Error::other(format!("{other:?}"))),
        }
    }
}

impl Store for TcpStore {
    fn set(&self, key: &str, value: &[u8], deadline: Instant) -> Result<()> {
        check(key, &[value])?;
        self.run(&[key], "set", deadline, |connection, keys| connection.set(&keys[0], value, deadline))
    }

    fn get(&self, key: &str, deadline: Instant) -> Result<Vec<u8>> {
        check(key, &[])?;
        self.run(&[key], "get", deadline, |connection, keys| {
            connection.wait(&[&keys[0]], deadline)?;
            connection.get(&keys[0], deadline)
        })
    }

    fn wait(&self, keys: &[&str], deadline: Instant) -> Result<()> {
        for keys in keys.chunks(MAX_KEYS) {
            keys.iter().try_for_each(|key| check(key, &[]))?;
            self.run(keys, "wait", deadline, |connection, keys| {
                connection.wait(&keys.iter().map(Vec::as_slice).collect::<Vec<_>>(), deadline)
            })?;
        }
        Ok(())
    }

    fn contains(&self, keys: &[&str], deadline: Instant) -> Result<bool> {
        for keys in keys.chunks(MAX_KEYS) {
            keys.iter().try_for_each(|key| check(key, &[]))?;
            let is_set = self.run(keys, "check", deadline, |connection, keys| {
                connection.check(&keys.iter().map(Vec::as_slice).collect::<Vec<_>>(), deadline)
            })?;
            if !is_set {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn add(&self, key: &str, amount: i64, deadline: Instant) -> Result<i64> {
        check(key, &[])?;
        let sum =
            self.run(&[key], "add", deadline, |connection, keys| connection.add(&keys[0], amount, deadline));
        // If a client adds to a value that is not a number, servers close the connection of the client.
        let is_closed =
            |error: &Error| matches!(error.downcast_ref(), Some(CollectiveError::StoreClosed { .. }));
        if sum.as_ref().is_err_and(is_closed) && self.contains(&[key], deadline)? {
            let value = self.get(key, deadline)?;
            if number(&value).is_none() {
                return Err(CollectiveError::NotANumber { key: key.to_owned() }.into());
            }
        }
        sum
    }

    fn compare_set(&self, key: &str, expected: &[u8], desired: &[u8], deadline: Instant) -> Result<Vec<u8>> {
        check(key, &[expected, desired])?;
        let value = self.run(&[key], "compare and set", deadline, |connection, keys| {
            connection.compare_set(&keys[0], expected, desired, deadline)
        })?;
        // If the key is not set, servers reply with the expected value.
        let may_be_unset = !expected.is_empty() && value == expected;
        match may_be_unset && (expected != desired || !self.contains(&[key], deadline)?) {
            true => Ok(Vec::new()),
            false => Ok(value),
        }
    }

    fn delete(&self, key: &str, deadline: Instant) -> Result<bool> {
        check(key, &[])?;
        self.run(&[key], "delete", deadline, |connection, keys| connection.delete(&keys[0], deadline))
    }
}

/// Encodes a key as PyTorch's clients do.
fn wire_key(key: &str) -> Vec<u8> {
    [&[KEY_PREFIX], key.as_bytes()].concat()
}

/// Resolves `HOST:PORT` before the deadline. The resolver of the system does not support deadlines, so it runs on a
/// separate thread.
pub(crate) fn resolve(address: &str, deadline: Instant) -> io::Result<Vec<SocketAddr>> {
    let invalid = |why: &str| {
        io::Error::new(io::ErrorKind::InvalidInput, format!("`{address}` is not HOST:PORT: {why}"))
    };
    let (host, port) = address.rsplit_once(':').ok_or_else(|| invalid("there is no `:`"))?;
    let port: u16 = port.parse().map_err(|_| invalid("the port is not a number up to 65535"))?;
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    if host.is_empty() {
        return Err(invalid("the host is missing"));
    }
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let (found, finds) = mpsc::channel();
    let name = (host.to_owned(), port);
    std::thread::Builder::new().name("warpsmith-resolver".to_owned()).spawn(move || {
        // The receiver may have stopped waiting.
        let _ = found.send(name.to_socket_addrs().map(Iterator::collect::<Vec<_>>));
    })?;
    match finds.recv_timeout(left(deadline)?) {
        Ok(Ok(addresses)) if addresses.is_empty() => {
            Err(io::Error::new(io::ErrorKind::NotFound, format!("the name `{host}` has no address")))
        }
        Ok(Ok(addresses)) => Ok(addresses),
        Ok(Err(error)) => {
            Err(io::Error::new(error.kind(), format!("the name `{host}` has no address: {error}")))
        }
        Err(_) => {
            let why = format!("the name `{host}` was not resolved in time");
            Err(io::Error::new(io::ErrorKind::TimedOut, why))
        }
    }
}
