//! Connection handshake, in which each end proves that it knows the token of the other end.

use std::collections::VecDeque;
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use crate::machine;

const MAGIC: [u8; 8] = *b"wsranks1";
/// Size of a token in bytes. Each token is a store token, written in hexadecimal digits.
pub(super) const TOKEN: usize = 64;
const HELLO: usize = MAGIC.len() + TOKEN + 4;
/// Time limit for the handshake of a new connection.
const HELLO_TIME: Duration = Duration::from_secs(2);
/// Maximum number of unidentified connections in addition to one per rank.
const MAX_STRANGERS: usize = 64;
/// Unidentified connections may use at most 1/`SHARE` of the process's file descriptors.
const SHARE: usize = 4;

/// Backlog: number of connections that the system queues until they are accepted.
#[cfg(target_os = "linux")]
const BACKLOG: i32 = 4096;

/// Listens on a free port. The listener is non-blocking.
pub(super) fn listen(ip: IpAddr) -> Result<TcpListener> {
    let listener = TcpListener::bind((ip, 0))?;
    listener.set_nonblocking(true)?;
    // The standard library's backlog is 128. If more connections than this arrive at once, some ranks retry only after
    // a second.
    #[cfg(target_os = "linux")]
    rustix::net::listen(&listener, BACKLOG)?;
    Ok(listener)
}

/// Returns the handshake message that rank `rank` sends to the rank whose token is `token`.
fn hello(token: &str, rank: usize) -> [u8; HELLO] {
    let mut hello = [0; HELLO];
    hello[..8].copy_from_slice(&MAGIC);
    hello[8..8 + TOKEN].copy_from_slice(token.as_bytes());
    hello[8 + TOKEN..].copy_from_slice(&(rank as u32).to_le_bytes());
    hello
}

/// Connects to the listener of rank `other` and performs the handshake with the tokens of both ranks.
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
        return Err(Error::new(ErrorKind::InvalidData, "a different program responds at this address"));
    }
    socket.set_read_timeout(None)?;
    Ok(socket)
}

/// Connections that have not identified themselves yet. They are polled in turn without blocking.
///
/// If there are too many connections, the one that has been silent longest is closed. Strangers therefore cannot keep
/// ranks out, because a rank sends its handshake immediately.
pub(super) struct Strangers {
    rank: usize,
    /// Tokens of all ranks.
    tokens: Vec<String>,
    /// Maximum number of connections that may wait for their handshake.
    most: usize,
    /// Connections whose handshake is pending, oldest first.
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
    /// Creates the queue for the listener of rank `rank`. `tokens` are the tokens of all ranks.
    pub fn new(rank: usize, tokens: Vec<String>) -> Self {
        let most = (MAX_STRANGERS + tokens.len()).min(machine::max_descriptors() / SHARE).max(1);
        Self { rank, tokens, most, waiting: VecDeque::new(), refused: 0 }
    }

    /// Returns the number of rejected connections.
    pub fn refused(&self) -> usize {
        self.refused
    }

    /// Returns a rank that has connected, with its connection, or `None`. It does not block.
    pub fn accepted(&mut self, listener: &TcpListener) -> Option<(usize, TcpStream)> {
        if let Some(known) = self.known() {
            return Some(known);
        }
        for _ in 0..self.most {
            let Ok((socket, _)) = listener.accept() else { break };
            if self.waiting.len() >= self.most {
                self.waiting.pop_front();
                self.refused += 1;
            }
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

    /// Returns the first connection that has identified itself as a rank. Connections that cannot belong to ranks are
    /// closed.
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

    /// Verifies the handshake of a connection and responds to it. Returns `None` if the peer does not know the token.
    fn welcome(&self, stranger: Stranger) -> Option<(usize, TcpStream)> {
        let Stranger { mut socket, said, .. } = stranger;
        let other = u32::from_le_bytes(*said.last_chunk()?) as usize;
        // Every byte is compared (constant-time comparison), so that the timing does not reveal how many bytes are
        // correct.
        let expected = hello(&self.tokens[self.rank], other);
        let differing =
            said.iter().zip(expected).fold(0, |differing, (said, expected)| differing | (said ^ expected));
        if differing != 0 || other <= self.rank {
            return None;
        }
        // The response fits into the send buffer of a new connection, so this write does not block.
        socket.write_all(&hello(self.tokens.get(other)?, self.rank)).ok()?;
        socket.set_nonblocking(false).ok()?;
        Some((other, socket))
    }
}

impl Stranger {
    /// Reads the available data. Returns true if the handshake is complete. Fails if the connection ended before the
    /// handshake was complete.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_are_few_at_any_time() {
        let listener = listen([127, 0, 0, 1].into()).expect("a port");
        let address = listener.local_addr().expect("an address");
        let tokens = ["a", "b"].map(|letter| letter.repeat(TOKEN)).to_vec();
        let mut strangers = Strangers::new(0, tokens.clone());
        assert!((1..=MAX_STRANGERS + 2).contains(&strangers.most), "{}", strangers.most);
        let mut held = Vec::new();
        for _ in 0..5 {
            // This exceeds the backlog of the standard library.
            held.extend((0..300).map(|_| TcpStream::connect(address).expect("connected")));
            assert!(strangers.accepted(&listener).is_none());
            assert!(strangers.waiting.len() <= strangers.most, "{}", strangers.waiting.len());
        }
        // A connection with the correct token must still be accepted.
        let dialled = std::thread::spawn(move || {
            dial(address, &tokens[0], 1, &tokens[1], 0, Duration::from_secs(20)).expect("a welcome")
        });
        let until = Instant::now() + Duration::from_secs(20);
        let known = std::iter::repeat_with(|| strangers.accepted(&listener))
            .take_while(|_| Instant::now() < until)
            .find_map(|known| known);
        assert_eq!(known.expect("a rank").0, 1);
        dialled.join().expect("no panic");
    }
}
