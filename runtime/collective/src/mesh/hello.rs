//! The first words on a connection: both ends show that they know the other's token.

use std::collections::VecDeque;
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

const MAGIC: [u8; 8] = *b"wsranks1";
/// The bytes of a token: that of a store, in hexadecimal digits.
pub(super) const TOKEN: usize = 64;
const HELLO: usize = MAGIC.len() + TOKEN + 4;
/// The time that a connection has to say who it is.
const HELLO_TIME: Duration = Duration::from_secs(2);
/// The connections beyond the number of ranks that may not have said who they are.
const MOST_STRANGERS: usize = 64;

/// What a rank says to one with this token.
fn hello(token: &str, rank: usize) -> [u8; HELLO] {
    let mut hello = [0; HELLO];
    hello[..8].copy_from_slice(&MAGIC);
    hello[8..8 + TOKEN].copy_from_slice(token.as_bytes());
    hello[8 + TOKEN..].copy_from_slice(&(rank as u32).to_le_bytes());
    hello
}

/// Connects to the listener of rank `other`, which has that token; this rank has the other.
pub(super) fn dial(
    address: SocketAddr,
    other_token: &str,
    rank: usize,
    token: &str,
    other: usize,
    left: Duration,
) -> Result<TcpStream> {
    let mut socket = TcpStream::connect_timeout(&address, left)?;
    socket.set_write_timeout(Some(left))?;
    socket.set_read_timeout(Some(left))?;
    socket.write_all(&hello(other_token, rank))?;
    let mut answer = [0; HELLO];
    socket.read_exact(&mut answer)?;
    if answer != hello(token, other) {
        return Err(Error::new(ErrorKind::InvalidData, "another program answers there"));
    }
    socket.set_read_timeout(None)?;
    Ok(socket)
}

/// Connections that have not said who they are. Nothing waits for them: they are looked at in turn.
///
/// Where there are too many, the one that is silent for the longest gives way, so strangers cannot keep ranks out: a rank
/// speaks at once.
pub(super) struct Strangers {
    rank: usize,
    /// Those of all ranks.
    tokens: Vec<String>,
    /// The first has come first.
    waiting: VecDeque<Stranger>,
    refused: usize,
}

struct Stranger {
    socket: TcpStream,
    said: [u8; HELLO],
    read: usize,
    since: Instant,
}

impl Strangers {
    /// For the listener of this rank; the tokens are those of all ranks.
    pub fn new(rank: usize, tokens: Vec<String>) -> Self {
        Self { rank, tokens, waiting: VecDeque::new(), refused: 0 }
    }

    /// The number of connections that were refused.
    pub fn refused(&self) -> usize {
        self.refused
    }

    /// A rank that has connected, if there is one. Does not wait.
    pub fn accepted(&mut self, listener: &TcpListener) -> Option<(usize, TcpStream)> {
        if let Some(known) = self.known() {
            return Some(known);
        }
        let most = MOST_STRANGERS + self.tokens.len();
        while self.waiting.len() > most {
            self.waiting.pop_front();
            self.refused += 1;
        }
        for _ in 0..most {
            let Ok((socket, _)) = listener.accept() else { break };
            match socket.set_nonblocking(true) {
                Ok(()) => {
                    let (said, read, since) = ([0; HELLO], 0, Instant::now());
                    self.waiting.push_back(Stranger { socket, said, read, since });
                }
                Err(_) => self.refused += 1,
            }
        }
        self.known()
    }

    /// The first that what it has said shows to be a rank. Those that cannot be one are refused.
    fn known(&mut self) -> Option<(usize, TcpStream)> {
        let mut at = 0;
        while let Some(stranger) = self.waiting.get_mut(at) {
            let read = stranger.read();
            if matches!(read, Ok(false)) && stranger.since.elapsed() < HELLO_TIME {
                at += 1;
                continue;
            }
            let stranger = self.waiting.remove(at)?;
            match read.is_ok_and(|is_all| is_all).then(|| self.welcome(stranger)).flatten() {
                Some(known) => return Some(known),
                None => self.refused += 1,
            }
        }
        None
    }

    /// Compares who has connected, and answers. `None` for who does not know the token.
    fn welcome(&self, stranger: Stranger) -> Option<(usize, TcpStream)> {
        let Stranger { mut socket, said, .. } = stranger;
        let other = u32::from_le_bytes(*said.last_chunk()?) as usize;
        // Every byte is compared, so that the time says nothing about how many are right.
        let expected = hello(&self.tokens[self.rank], other);
        let differing =
            said.iter().zip(expected).fold(0, |differing, (said, expected)| differing | (said ^ expected));
        if differing != 0 || other <= self.rank {
            return None;
        }
        // It fits into what the system keeps for a new connection.
        socket.write_all(&hello(self.tokens.get(other)?, self.rank)).ok()?;
        socket.set_nonblocking(false).ok()?;
        Some((other, socket))
    }
}

impl Stranger {
    /// Reads what has come. Whether that is all that it has to say; an error if it says no more.
    fn read(&mut self) -> Result<bool> {
        while self.read < HELLO {
            match self.socket.read(&mut self.said[self.read..]) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(more) => self.read += more,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}
