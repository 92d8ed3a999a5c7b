//! Server of the store with connections from strangers, which do not have the token.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use warpsmith_collective::store::{ServerOptions, Store, StoreServer, TcpStore, Token};

use crate::alone::{command, this_test};
use crate::within;

/// Maximum number of file descriptors of the server's process.
const DESCRIPTORS: u64 = 256;
/// Token of the run.
const SECRET: &str = "a secret of the run";
/// Environment variable that passes the token to the process of the server.
const SERVED: &str = "WARPSMITH_TEST_SERVED";
/// First bytes of a connection: the validation, and a nonce as a challenge to which the server responds.
const CHALLENGE: [u8; 38] = {
    let mut bytes = [7; 38];
    [bytes[0], bytes[1], bytes[2], bytes[3], bytes[4], bytes[5]] = [0, 0xce, 0xf7, 0x85, 0x3c, 160];
    bytes
};

/// Server in a separate process.
struct Server {
    process: Child,
    address: SocketAddr,
}

impl Server {
    /// Runs the test again as a process that [serves](serve) clients with the token, or all clients if the token is
    /// empty.
    fn start(test: &str, token: &str) -> Self {
        let mut program = command(test);
        program.env(SERVED, token).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = program.spawn().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines().map(Result::unwrap);
        let address = lines.into_iter().find_map(|line| line.strip_prefix('@')?.parse().ok());
        Self { process, address: address.expect("the server's address") }
    }

    fn descriptors(&self) -> u64 {
        std::fs::read_dir(format!("/proc/{}/fd", self.process.id())).unwrap().count() as u64
    }

    /// Checks that a rank with the token can use the store within a second.
    fn serve_a_rank(&self) {
        let began = Instant::now();
        let store = TcpStore::connect(&self.address.to_string(), Token::new(SECRET).as_ref(), within(1000));
        let set = store.and_then(|store| store.set("key", b"value", within(1000)));
        assert!(set.is_ok() && began.elapsed() < Duration::from_secs(1), "{set:?} {:?}", began.elapsed());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

/// If this process is the server's, serves until the test's process ends.
fn serve() {
    let Ok(token) = std::env::var(SERVED) else { return };
    let limit = libc::rlimit { rlim_cur: DESCRIPTORS, rlim_max: DESCRIPTORS };
    // SAFETY: the pointer points to a local variable of this type.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
    let options = ServerOptions { token: Token::new(token), ..Default::default() };
    let server = StoreServer::start("127.0.0.1:0".parse().unwrap(), options).unwrap();
    println!("\n@{}", server.address());
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
    std::process::exit(0);
}

/// Opens a connection of a stranger, which sends only these bytes.
fn stranger(address: SocketAddr, says: &[u8]) -> std::io::Result<TcpStream> {
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
    stream.write_all(says)?;
    stream.set_nonblocking(true)?;
    Ok(stream)
}

fn is_closed(mut stream: &TcpStream) -> bool {
    match stream.read(&mut [0; 128]) {
        Ok(0) => true,
        Ok(_) => false,
        Err(error) => error.kind() != ErrorKind::WouldBlock,
    }
}

#[test]
fn strangers_take_a_quarter_of_the_descriptors() {
    serve();
    let server = Server::start(this_test!(), SECRET);
    let before = server.descriptors();
    for says in [&[][..], &[0], &CHALLENGE] {
        // The server may already have closed a connection.
        let held: Vec<_> = (0..600).map(|_| stranger(server.address, says)).collect();
        server.serve_a_rank();
        let taken = server.descriptors() - before;
        assert!((1..=DESCRIPTORS / 4 + 1).contains(&taken), "{taken} descriptors, {says:?}");
        drop(held);
    }
}

#[test]
fn a_stranger_has_two_seconds_for_its_greeting() {
    serve();
    let server = Server::start(this_test!(), SECRET);
    let began = Instant::now();
    let mut held: Vec<_> =
        [&[][..], &[0], &CHALLENGE].map(|says| stranger(server.address, says).unwrap()).into();
    while !held.is_empty() {
        held.retain(|stream| !is_closed(stream));
        assert!(began.elapsed() < Duration::from_secs(8), "{held:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(began.elapsed() > Duration::from_secs(1), "{:?}", began.elapsed());
}

#[test]
fn ranks_get_in_during_a_siege() {
    serve();
    let server = Server::start(this_test!(), SECRET);
    let is_over = AtomicBool::new(false);
    // These strangers reconnect as soon as they are rejected.
    let besiege = |says: &'static [u8]| {
        let mut held: Vec<TcpStream> = Vec::new();
        while !is_over.load(Ordering::Relaxed) {
            held.retain(|stream| !is_closed(stream));
            held.extend((held.len()..200).filter_map(|_| stranger(server.address, says).ok()));
            std::thread::sleep(Duration::from_millis(2));
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| besiege(&[]));
        scope.spawn(|| besiege(&CHALLENGE));
        let ranks = scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(500));
            for _ in 0..20 {
                server.serve_a_rank();
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        let ranks = ranks.join();
        is_over.store(true, Ordering::Relaxed);
        ranks.unwrap();
    });
}

#[test]
fn clients_without_a_token_leave_a_quarter_of_the_descriptors() {
    serve();
    let server = Server::start(this_test!(), "");
    let held: Vec<_> = (0..600).map(|_| stranger(server.address, &CHALLENGE[..5])).collect();
    let until = Instant::now() + Duration::from_secs(10);
    // The last connection is closed immediately.
    while !held.last().is_some_and(|last| last.as_ref().map_or(true, is_closed)) {
        assert!(Instant::now() < until, "{} descriptors", server.descriptors());
        std::thread::sleep(Duration::from_millis(10));
    }
    let taken = server.descriptors();
    assert!((DESCRIPTORS / 2..DESCRIPTORS * 3 / 4 + 16).contains(&taken), "{taken} descriptors");
}
