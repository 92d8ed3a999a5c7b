//! The first words on a connection: both ends show that they know the other's token.

use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use super::process;

const MAGIC: [u8; 8] = *b"wsranks1";
/// The bytes of a token.
pub(super) const TOKEN: usize = 32;
const HELLO: usize = MAGIC.len() + TOKEN + 4;
/// The time that a connection has to say who it is.
const HELLO_TIME: Duration = Duration::from_secs(2);
/// The most connections that have not said who they are.
const MOST_STRANGERS: usize = 64;

/// A new token.
pub(super) fn token() -> String {
    (0..TOKEN / 16).map(|_| format!("{:016x}", process::random())).collect()
}

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

/// Connections that have not said who they are.
pub(super) struct Strangers {
    rank: usize,
    tokens: Arc<Vec<String>>,
    refused: Arc<AtomicUsize>,
    waiting: Arc<AtomicUsize>,
    sender: Sender<(usize, TcpStream)>,
    known: Receiver<(usize, TcpStream)>,
}

impl Strangers {
    /// For the listener of this rank; the tokens are those of all ranks.
    pub fn new(rank: usize, tokens: Vec<String>) -> Self {
        let (sender, known) = channel();
        let (tokens, refused, waiting) = (Arc::new(tokens), Arc::default(), Arc::default());
        Self { rank, tokens, refused, waiting, sender, known }
    }

    /// The number of connections that were refused.
    pub fn refused(&self) -> usize {
        self.refused.load(Ordering::Relaxed)
    }

    /// A rank that has connected, if there is one. Does not wait.
    pub fn accepted(&mut self, listener: &TcpListener) -> Option<(usize, TcpStream)> {
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
