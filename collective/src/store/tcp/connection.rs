//! Connection of a client, which sends requests and receives replies.
//!
//! No call exceeds its deadline. The length of a reply is checked against a limit before it is used.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::protocol::{ALL_SET, CANCELED, MAGIC, Request, TURNED_AWAY, length};
use crate::store::LONGEST_VALUE;
use crate::store::token::{End, PROOF, Token, nonce};

/// Byte stream to and from a server. Each operation has a deadline.
pub trait Wire {
    /// Sends all bytes.
    fn send(&mut self, bytes: &[u8], deadline: Instant) -> io::Result<()>;

    /// Fills the whole buffer.
    fn receive(&mut self, bytes: &mut [u8], deadline: Instant) -> io::Result<()>;
}

impl Wire for TcpStream {
    fn send(&mut self, mut bytes: &[u8], deadline: Instant) -> io::Result<()> {
        while !bytes.is_empty() {
            self.set_write_timeout(Some(left(deadline)?))?;
            match self.write(bytes) {
                Ok(0) => return Err(io::ErrorKind::ConnectionAborted.into()),
                Ok(sent) => bytes = &bytes[sent..],
                Err(error) if is_passing(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn receive(&mut self, bytes: &mut [u8], deadline: Instant) -> io::Result<()> {
        let mut filled = 0;
        while filled < bytes.len() {
            self.set_read_timeout(Some(left(deadline)?))?;
            match self.read(&mut bytes[filled..]) {
                Ok(0) => return Err(io::ErrorKind::ConnectionAborted.into()),
                Ok(read) => filled += read,
                Err(error) if is_passing(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Returns the time left until a deadline. Fails if the deadline has passed.
pub fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    match left.is_zero() {
        true => Err(io::ErrorKind::TimedOut.into()),
        // The system would round shorter times to zero, which disables the timeout.
        false => Ok(left.max(Duration::from_millis(1))),
    }
}

/// Returns whether the operation can be retried until the deadline.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted)
}

/// Reason why a request has no reply.
#[derive(Debug)]
pub enum Failure {
    /// The connection ended, or the deadline passed.
    Wire(io::Error),
    /// The keys had not been set when the deadline passed. The connection remains usable.
    NotSet,
    /// The other end sent data that stores never send.
    Strange(&'static str),
    /// The other end does not know the token.
    WrongToken,
    /// The server had no room or no time for the connection. Another attempt may succeed.
    TurnedAway,
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Wire(error)
    }
}

/// Connection after its handshake.
#[derive(Debug)]
pub struct Connection<W> {
    wire: W,
    /// True if the reply to a canceled wait has not been read yet.
    is_canceling: bool,
}

type Reply<T> = Result<T, Failure>;

impl<W: Wire> Connection<W> {
    /// Performs the handshake with the server and, if there is a token, proves that this client knows it.
    pub fn greet(wire: W, token: Option<&Token>, deadline: Instant) -> Reply<Self> {
        let mut connection = Self { wire, is_canceling: false };
        let mut out = Vec::new();
        Request::Validate(MAGIC).write(&mut out);
        match token {
            Some(token) => connection.prove(token, out, deadline)?,
            None => connection.ping(out, deadline).map_err(|failure| match failure {
                Failure::Wire(error) => ended(error, Failure::TurnedAway),
                other => other,
            })?,
        }
        Ok(connection)
    }

    fn prove(&mut self, token: &Token, mut out: Vec<u8>, deadline: Instant) -> Reply<()> {
        let ours = nonce().map_err(|error| Failure::Wire(io::Error::other(error)))?;
        Request::Nonce(&ours).write(&mut out);
        self.wire.send(&out, deadline).map_err(|error| ended(error, Failure::TurnedAway))?;
        let mut theirs = [0; PROOF];
        let (first, rest) = theirs.split_at_mut(1);
        self.wire.receive(first, deadline).map_err(|error| ended(error, Failure::WrongToken))?;
        let why = if first == [TURNED_AWAY] { Failure::TurnedAway } else { Failure::WrongToken };
        self.wire.receive(rest, deadline).map_err(|error| ended(error, why))?;
        let mut proof = [0; PROOF];
        self.wire.receive(&mut proof, deadline).map_err(|error| ended(error, Failure::WrongToken))?;
        if !token.accepts(&proof, End::Server, &ours, &theirs) {
            return Err(Failure::WrongToken);
        }
        out.clear();
        Request::Proof(&token.proof(End::Client, &ours, &theirs)).write(&mut out);
        // The server knows the token, so it accepts this proof unless it has no room or no time for the connection.
        self.wire.send(&out, deadline).map_err(|error| ended(error, Failure::TurnedAway))?;
        let mut answer = [0];
        self.wire.receive(&mut answer, deadline).map_err(|error| ended(error, Failure::TurnedAway))?;
        match answer {
            [0] => Ok(()),
            [TURNED_AWAY] => Err(Failure::TurnedAway),
            _ => Err(Failure::Strange("an invalid answer to a proof")),
        }
    }

    /// Sends requests that have no reply, followed by a ping, and waits until the server has processed all of them.
    fn ping(&mut self, mut out: Vec<u8>, deadline: Instant) -> Reply<()> {
        let number = std::process::id();
        Request::Ping(number).write(&mut out);
        self.wire.send(&out, deadline)?;
        match self.array(deadline)? == number.to_le_bytes() {
            true => Ok(()),
            false => Err(Failure::Strange("an invalid answer to a ping")),
        }
    }

    fn send(&mut self, request: &Request<'_>, deadline: Instant) -> Reply<()> {
        let mut out = Vec::new();
        request.write(&mut out);
        Ok(self.wire.send(&out, deadline)?)
    }

    fn array<const N: usize>(&mut self, deadline: Instant) -> Reply<[u8; N]> {
        let mut bytes = [0; N];
        self.wire.receive(&mut bytes, deadline)?;
        Ok(bytes)
    }

    fn value(&mut self, deadline: Instant) -> Reply<Vec<u8>> {
        let length = length(self.array(deadline)?, LONGEST_VALUE)
            .ok_or(Failure::Strange("a value longer than the maximum"))?;
        let mut value = vec![0; length];
        self.wire.receive(&mut value, deadline)?;
        Ok(value)
    }

    /// Reads pending replies of canceled waits.
    fn settle(&mut self, deadline: Instant) -> Reply<()> {
        while self.is_canceling {
            match self.array(deadline)? {
                [ALL_SET] => {}
                [CANCELED] => self.is_canceling = false,
                _ => return Err(Failure::Strange("an invalid answer to a wait")),
            }
        }
        Ok(())
    }

    /// Sets a key. Returns after the server has set the key.
    pub fn set(&mut self, key: &[u8], value: &[u8], deadline: Instant) -> Reply<()> {
        self.settle(deadline)?;
        let mut out = Vec::new();
        Request::Set { key, value }.write(&mut out);
        self.ping(out, deadline)
    }

    /// Waits until all of these keys are set.
    pub fn wait(&mut self, keys: &[&[u8]], deadline: Instant) -> Reply<()> {
        self.settle(deadline)?;
        self.send(&Request::Wait { keys: keys.to_vec() }, deadline)?;
        match self.array(deadline) {
            Ok([ALL_SET]) => Ok(()),
            Ok(_) => Err(Failure::Strange("an invalid answer to a wait")),
            Err(Failure::Wire(error)) if error.kind() == io::ErrorKind::TimedOut => {
                // A single byte fits into any socket buffer. The reply is read before the next request is sent.
                self.send(&Request::CancelWait, Instant::now() + Duration::from_millis(100))?;
                self.is_canceling = true;
                Err(Failure::NotSet)
            }
            Err(failure) => Err(failure),
        }
    }

    /// Returns the value of a key. The key must be set.
    pub fn get(&mut self, key: &[u8], deadline: Instant) -> Reply<Vec<u8>> {
        self.settle(deadline)?;
        self.send(&Request::Get { key }, deadline)?;
        self.value(deadline)
    }

    /// Returns whether all of these keys are set.
    pub fn check(&mut self, keys: &[&[u8]], deadline: Instant) -> Reply<bool> {
        self.settle(deadline)?;
        self.send(&Request::Check { keys: keys.to_vec() }, deadline)?;
        match self.array(deadline)? {
            [0] => Ok(true),
            [1] => Ok(false),
            _ => Err(Failure::Strange("an invalid answer to a check")),
        }
    }

    /// Adds to the number stored under a key and returns the sum.
    pub fn add(&mut self, key: &[u8], amount: i64, deadline: Instant) -> Reply<i64> {
        self.settle(deadline)?;
        self.send(&Request::Add { key, amount }, deadline)?;
        Ok(i64::from_le_bytes(self.array(deadline)?))
    }

    /// Compares and sets a key. Returns the server's reply.
    pub fn compare_set(
        &mut self,
        key: &[u8],
        expected: &[u8],
        desired: &[u8],
        deadline: Instant,
    ) -> Reply<Vec<u8>> {
        self.settle(deadline)?;
        self.send(&Request::CompareSet { key, expected, desired }, deadline)?;
        self.value(deadline)
    }

    /// Removes a key. Returns whether the key was set before the call.
    pub fn delete(&mut self, key: &[u8], deadline: Instant) -> Reply<bool> {
        self.settle(deadline)?;
        self.send(&Request::Delete { key }, deadline)?;
        Ok(u64::from_le_bytes(self.array(deadline)?) > 0)
    }

    /// Makes the server append a value to a key when this connection ends. An empty key cancels the previous call.
    pub fn will(&mut self, key: &[u8], value: &[u8], deadline: Instant) -> Reply<()> {
        self.settle(deadline)?;
        self.send(&Request::Will { key, value }, deadline)?;
        match self.array(deadline)? {
            [0] => Ok(()),
            _ => Err(Failure::Strange("an invalid answer to a will")),
        }
    }
}

/// Returns `why` if the other end has closed the connection; otherwise returns the error itself.
fn ended(error: io::Error, why: Failure) -> Failure {
    if is_end(&error) { why } else { Failure::Wire(error) }
}

/// Returns whether the error means that the other end has closed the connection.
pub fn is_end(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::UnexpectedEof
    )
}
