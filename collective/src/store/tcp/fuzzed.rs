//! Properties that must hold for arbitrary bytes on the wire. They are checked by the fuzz targets and by the tests
//! that replay the corpora of these targets.

use std::io;
use std::time::{Duration, Instant};

use super::connection::{Connection, Wire};
use super::hub::Hub;
use super::protocol::{MAGIC, Parsed, Request, parse};

/// Feeds the bytes of two clients to a server. The first byte determines how the remaining bytes are split into pieces.
pub fn server(bytes: &[u8]) {
    let Some((&seed, bytes)) = bytes.split_first() else { return };
    if let Ok(Parsed::Request(request, length)) = parse(bytes) {
        let mut written = Vec::new();
        request.write(&mut written);
        assert_eq!(written, bytes[..length], "{request:?}");
    }
    let mut whole = Hub::new(None);
    let mut pieces = Hub::new(None);
    for hub in [&mut whole, &mut pieces] {
        let mut greeting = Vec::new();
        Request::Validate(MAGIC).write(&mut greeting);
        for client in [1, 2] {
            hub.enter(client);
            assert!(hub.receive(client, &greeting).is_ok() && hub.is_open(client));
        }
    }
    // Whether the same bytes arrive in one piece or in several, they must have the same effect, up to the first
    // rejected request.
    let at_once = whole.receive(1, bytes);
    let mut unfinished = Vec::new();
    let mut used = 0;
    let mut refused = false;
    for piece in bytes.chunks(1 + usize::from(seed)) {
        unfinished.extend(piece);
        match pieces.receive(1, &unfinished) {
            Ok(progress) => {
                assert!(
                    progress.used <= unfinished.len() && progress.needed > unfinished.len() - progress.used
                );
                used += progress.used;
                unfinished.drain(..progress.used);
            }
            Err(_) => {
                refused = true;
                break;
            }
        }
    }
    match at_once {
        Ok(progress) => assert!(!refused && progress.used == used, "{progress:?}, {used} in pieces"),
        Err(_) => assert!(refused),
    }
    assert_eq!(whole.replies(1).unwrap(), pieces.replies(1).unwrap());
    // Neither the other client nor a client without a handshake must affect this client.
    let _ = whole.receive(2, bytes);
    whole.enter(3);
    let _ = whole.receive(3, bytes);
    assert!(whole.replies(3).unwrap().is_empty() || whole.is_open(3));
    [1, 2, 3].into_iter().for_each(|client| whole.leave(client));
    assert!(whole.replies(1).is_none());
}

/// Feeds the bytes of a server to a client that runs every operation.
pub fn client(bytes: &[u8]) {
    let wire = Recorded { bytes: bytes.to_vec(), at: 0 };
    let deadline = Instant::now() + Duration::from_secs(60);
    let Ok(mut connection) = Connection::greet(wire, None, deadline) else { return };
    let key = b"/key".as_slice();
    loop {
        let done = connection.set(key, b"value", deadline).is_ok()
            && connection.wait(&[key, key], deadline).is_ok()
            && connection.get(key, deadline).is_ok()
            && connection.check(&[key], deadline).is_ok()
            && connection.add(key, 1, deadline).is_ok()
            && connection.compare_set(key, b"", b"value", deadline).is_ok()
            && connection.delete(key, deadline).is_ok()
            && connection.will(key, b"value", deadline).is_ok();
        if !done {
            return;
        }
    }
}

/// Server that replays recorded bytes, but replies to pings. At the end, it closes the connection.
struct Recorded {
    bytes: Vec<u8>,
    at: usize,
}

impl Wire for Recorded {
    fn send(&mut self, bytes: &[u8], _: Instant) -> io::Result<()> {
        if let [.., 13, a, b, c, d] = *bytes {
            self.bytes.splice(self.at..self.at, [a, b, c, d]);
        }
        Ok(())
    }

    fn receive(&mut self, bytes: &mut [u8], _: Instant) -> io::Result<()> {
        let recorded = self.bytes.get(self.at..self.at + bytes.len());
        bytes.copy_from_slice(recorded.ok_or(io::ErrorKind::ConnectionAborted)?);
        self.at += bytes.len();
        Ok(())
    }
}
