//! Bytes of the protocol, as exchanged by the client of PyTorch 2.11 and both of its servers (libuv and threaded).

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use warpsmith_collective::store::{Store, TcpStore};

use crate::{server, soon, within};

/// Request of a client and reply of a server, in hexadecimal digits.
type Exchange = (&'static str, &'static str);

const GREETING: Exchange = ("00cef7853c0d66110000", "66110000");
const SET: Exchange = ("0102000000000000002f6b010000000000000076", "");
const WAIT: Exchange = ("06010000000000000002000000000000002f6b", "00");
const GET: Exchange = ("0302000000000000002f6b", "010000000000000076");
const ADD: Exchange = ("0402000000000000002f6e0500000000000000", "0500000000000000");
const CHECK: Exchange = ("05020000000000000002000000000000002f6b03000000000000002f7a7a", "01");
const COMPARE_SET_MISSING: Exchange =
    ("0202000000000000002f6d03000000000000006f6c6403000000000000006e6577", "03000000000000006f6c64");
const COMPARE_SET_NEW: Exchange =
    ("0202000000000000002f6d000000000000000003000000000000006e6577", "03000000000000006e6577");
const COMPARE_SET_SWAP: Exchange =
    ("0202000000000000002f6d03000000000000006e657705000000000000006e65776572", "05000000000000006e65776572");
const DELETE: Exchange = ("0802000000000000002f6b", "0100000000000000");
const COUNT: Exchange = ("07", "0200000000000000");
const WAIT_IN_VAIN: Exchange = ("06010000000000000002000000000000002f71", "");
const CANCEL: Exchange = ("0c", "01");
const APPEND: Exchange = ("0902000000000000002f6102000000000000007879", "");
const MULTI_SET: Exchange = (
    "0b020000000000000003000000000000002f613101000000000000003103000000000000002f6132010000000000000032",
    "",
);
const MULTI_GET: Exchange = (
    "0a020000000000000003000000000000002f613103000000000000002f6132",
    "010000000000000031010000000000000032",
);

fn bytes(digits: &str) -> Vec<u8> {
    (0..digits.len() / 2).map(|at| u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).unwrap()).collect()
}

fn digits(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn read(stream: &mut TcpStream, length: usize) -> String {
    let mut read = vec![0; length];
    stream.read_exact(&mut read).unwrap();
    digits(&read)
}

#[test]
fn the_server_answers_as_pytorch_does() {
    let server = server(None);
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
    for (asked, answer) in [
        GREETING,
        SET,
        WAIT,
        GET,
        ADD,
        CHECK,
        COMPARE_SET_MISSING,
        COMPARE_SET_NEW,
        COMPARE_SET_SWAP,
        DELETE,
        COUNT,
        WAIT_IN_VAIN,
        CANCEL,
        APPEND,
        MULTI_SET,
        MULTI_GET,
    ] {
        stream.write_all(&bytes(asked)).unwrap();
        assert_eq!(read(&mut stream, answer.len() / 2), answer, "{asked}");
    }
    // The stream must contain no further data.
    stream.set_nonblocking(true).unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
}

/// Replies to one client with the replies of PyTorch's server, if the requests match.
fn pytorch(exchanges: &'static [Exchange]) -> (String, std::thread::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let thread = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        for (asked, answer) in exchanges {
            assert_eq!(read(&mut stream, asked.len() / 2), *asked);
            stream.write_all(&bytes(answer)).unwrap();
            if asked.is_empty() {
                // This is a ping with the ID of this process.
                let ping = read(&mut stream, 5);
                assert_eq!(&ping[..2], "0d");
                stream.write_all(&bytes(&ping[2..])).unwrap();
            }
        }
        assert_eq!(stream.read(&mut [0]).unwrap(), 0, "the client sends more");
    });
    (address, thread)
}

/// Marks a ping and its reply, which contain the process ID.
const PING: Exchange = ("", "");

#[test]
fn the_client_asks_as_pytorch_does() {
    let (address, server) = pytorch(&[
        ("00cef7853c", ""),
        PING,
        SET,
        PING,
        WAIT,
        GET,
        ADD,
        CHECK,
        COMPARE_SET_MISSING,
        COMPARE_SET_NEW,
        COMPARE_SET_SWAP,
        DELETE,
        WAIT_IN_VAIN,
        CANCEL,
        ADD,
    ]);
    let store = TcpStore::connect(&address, None, soon()).unwrap();
    store.set("k", b"v", soon()).unwrap();
    assert_eq!(store.get("k", soon()).unwrap(), b"v");
    assert_eq!(store.add("n", 5, soon()).unwrap(), 5);
    assert!(!store.contains(&["k", "zz"], soon()).unwrap());
    assert_eq!(store.compare_set("m", b"old", b"new", soon()).unwrap(), b"");
    assert_eq!(store.compare_set("m", b"", b"new", soon()).unwrap(), b"new");
    assert_eq!(store.compare_set("m", b"new", b"newer", soon()).unwrap(), b"newer");
    assert!(store.delete("k", soon()).unwrap());
    store.get("q", within(50)).unwrap_err();
    assert_eq!(store.add("n", 5, soon()).unwrap(), 5);
    drop(store);
    server.join().unwrap();
}
