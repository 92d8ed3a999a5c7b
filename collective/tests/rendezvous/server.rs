//! Servers and clients of the store that receive invalid data, or none.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use warpsmith_collective::CollectiveError;
use warpsmith_collective::store::{ServerOptions, Store, StoreServer, TcpStore, Token};

use crate::{client, server, soon, within};

/// First bytes of a connection.
const GREETING: [u8; 5] = [0, 0xce, 0xf7, 0x85, 0x3c];

fn token(text: &str) -> Token {
    Token::new(text).unwrap()
}

/// Returns whether the other end closes a connection. Data that the other end sends before is ignored.
fn is_closed(stream: &mut TcpStream, within: Duration) -> bool {
    stream.set_read_timeout(Some(within)).unwrap();
    let mut chunk = [0; 4096];
    loop {
        match stream.read(&mut chunk) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}

#[test]
fn garbage_closes_its_connection_only() {
    let server = server(None);
    let store = client(&server);
    store.set("key", b"value", soon()).unwrap();
    let mut random = fastrand::Rng::with_seed(7);
    let noise: Vec<u8> = (0..100_000).map(|_| random.u8(17..160)).collect();
    let long = |code: u8, length: u64| [&GREETING[..], &[code], &length.to_le_bytes()].concat();
    for (what, bytes) in [
        ("a request of HTTP", b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_vec()),
        ("TLS", vec![0x16, 3, 1, 2, 0, 1, 0]),
        ("another magic number", vec![0, 1, 2, 3, 4]),
        ("noise", noise.clone()),
        ("noise after a greeting", [&GREETING[..], &noise].concat()),
        ("two greetings", [GREETING, GREETING].concat()),
        ("no greeting", vec![1, 1, 0, 0, 0, 0, 0, 0, 0, b'k', 0, 0, 0, 0, 0, 0, 0, 0]),
        ("a key that is too long", long(3, 4098)),
        ("a key of all memory", long(1, u64::MAX)),
        ("a value of all memory", [long(1, 1), vec![b'k'], u64::MAX.to_le_bytes().to_vec()].concat()),
        (
            "an append that makes the value too long",
            [long(9, 1), vec![b'k'], (1u64 << 20 | 1).to_le_bytes().to_vec()].concat(),
        ),
        ("too many keys", long(5, 16385)),
        ("keys of all memory", long(6, u64::MAX)),
        (
            "an addition to a value that is not a number",
            [long(4, 4), b"/key".to_vec(), vec![1, 0, 0, 0, 0, 0, 0, 0]].concat(),
        ),
        ("a nonce without a token", [GREETING.to_vec(), vec![160], vec![0; 32]].concat()),
        ("a request during a wait", [long(6, 1), 1u64.to_le_bytes().to_vec(), vec![b'w', 7]].concat()),
    ] {
        let mut stream = TcpStream::connect(server.address()).unwrap();
        // The server may close the connection before all bytes are written.
        let _ = stream.write_all(&bytes);
        assert!(is_closed(&mut stream, Duration::from_secs(5)), "{what}");
        assert_eq!(store.get("key", soon()).unwrap(), b"value", "{what}");
    }
}

#[test]
fn a_truncated_request_has_no_effect() {
    let server = server(None);
    let store = client(&server);
    let whole =
        [&GREETING[..], &[1, 2, 0, 0, 0, 0, 0, 0, 0, b'/', b'k', 1, 0, 0, 0, 0, 0, 0, 0, b'v']].concat();
    for length in 0..whole.len() {
        TcpStream::connect(server.address()).unwrap().write_all(&whole[..length]).unwrap();
    }
    assert!(!store.contains(&["k"], soon()).unwrap());
    // The same bytes, sent one at a time, are a valid request.
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.set_nodelay(true).unwrap();
    whole.iter().for_each(|byte| stream.write_all(&[*byte]).unwrap());
    assert_eq!(store.get("k", soon()).unwrap(), b"v");
}

#[test]
fn slow_clients_are_closed_idle_ones_are_not() {
    let server = server(None);
    let store = client(&server);
    let connect = |bytes: &[u8]| {
        let mut stream = TcpStream::connect(server.address()).unwrap();
        stream.write_all(bytes).unwrap();
        stream
    };
    let began = Instant::now();
    let mut half_a_request = connect(&[&GREETING[..], &[1, 200]].concat());
    let mut idle = connect(&GREETING);
    assert!(is_closed(&mut half_a_request, Duration::from_secs(30)));
    assert!((9..25).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
    idle.write_all(&[13, 1, 2, 3, 4]).unwrap();
    let mut answer = [0; 4];
    idle.read_exact(&mut answer).unwrap();
    assert_eq!(answer, [1, 2, 3, 4]);
    store.set("key", b"value", soon()).unwrap();
}

#[test]
fn a_client_that_reads_no_replies_is_closed() {
    let server = server(None);
    let store = client(&server);
    store.set("k", &vec![1; 1 << 20], soon()).unwrap();
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
    stream.write_all(&GREETING).unwrap();
    let get = [3, 2, 0, 0, 0, 0, 0, 0, 0, b'/', b'k'];
    let gets = get.repeat(64);
    let _ = stream.write_all(&gets);
    assert_eq!(store.get("k", soon()).unwrap().len(), 1 << 20, "others are served");
    assert!(is_closed(&mut stream, Duration::from_secs(20)));
}

#[test]
fn connections_beyond_the_limit_are_closed() {
    let options = ServerOptions { max_connections: 2, ..Default::default() };
    let server = StoreServer::start("127.0.0.1:0".parse().unwrap(), options).unwrap();
    let stores = [client(&server), client(&server)];
    let error = TcpStore::connect(&server.address().to_string(), None, within(300)).unwrap_err();
    assert!(error.to_string().contains("too many connections"), "{error}");
    let [first, second] = stores;
    drop(first);
    let third = client(&server);
    third.set("key", b"value", soon()).unwrap();
    assert_eq!(second.get("key", soon()).unwrap(), b"value");
}

#[test]
fn both_ends_must_have_the_token() {
    let with = server(Some("secret of the run"));
    let address = with.address().to_string();
    let store = TcpStore::connect(&address, Some(&token("secret of the run")), soon()).unwrap();
    store.set("key", b"value", soon()).unwrap();
    let error = TcpStore::connect(&address, Some(&token("secret of the rum")), soon()).unwrap_err();
    assert!(matches!(error.downcast_ref(), Some(CollectiveError::WrongToken { .. })), "{error}");
    let error = TcpStore::connect(&address, None, within(300)).unwrap_err();
    assert!(error.to_string().contains("requires a token"), "{error}");
    let without = server(None);
    let error = TcpStore::connect(&without.address().to_string(), Some(&token("a")), soon()).unwrap_err();
    assert!(matches!(error.downcast_ref(), Some(CollectiveError::WrongToken { .. })), "{error}");
    assert_eq!(store.get("key", soon()).unwrap(), b"value");
}

#[test]
fn no_request_is_done_before_the_token_is_proven() {
    let server = server(Some("secret"));
    let store = TcpStore::connect(&server.address().to_string(), Some(&token("secret")), soon()).unwrap();
    let set = [1, 2, 0, 0, 0, 0, 0, 0, 0, b'/', b'k', 1, 0, 0, 0, 0, 0, 0, 0, b'v'];
    let nonce = [[160].as_slice(), &[7; 32]].concat();
    let proof = [[161].as_slice(), &[7; 32]].concat();
    for bytes in [
        [&GREETING[..], &set].concat(),
        [&GREETING[..], &nonce, &set].concat(),
        [&GREETING[..], &proof, &set].concat(),
        [&GREETING[..], &nonce, &proof, &set].concat(),
        [&GREETING[..], &nonce, &nonce, &set].concat(),
        [&GREETING[..], &[1, 0, 16]].concat(),
    ] {
        let mut stream = TcpStream::connect(server.address()).unwrap();
        let _ = stream.write_all(&bytes);
        assert!(is_closed(&mut stream, Duration::from_secs(15)), "{bytes:?}");
    }
    assert!(!store.contains(&["k"], soon()).unwrap());
}

#[test]
fn an_impostor_without_the_token_is_found_out() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut stream, _) = listener.accept().unwrap();
            let mut greeting = [0; 38];
            stream.read_exact(&mut greeting).unwrap();
            // This sends the client's own nonce and an invalid proof.
            stream.write_all(&[&greeting[6..], &[0; 32]].concat()).unwrap();
        });
        let error = TcpStore::connect(&address, Some(&token("secret")), soon()).unwrap_err();
        assert!(matches!(error.downcast_ref(), Some(CollectiveError::WrongToken { .. })), "{error}");
    });
}

#[test]
fn a_port_in_use_is_named() {
    let server = server(None);
    let error = StoreServer::start(server.address(), ServerOptions::default()).unwrap_err().to_string();
    assert!(error.contains(&server.address().to_string()) && error.contains("in use"), "{error}");
}

#[test]
fn the_address_of_all_networks_is_refused() {
    for address in ["0.0.0.0:0", "[::]:0"] {
        let error =
            StoreServer::start(address.parse().unwrap(), ServerOptions::default()).unwrap_err().to_string();
        assert!(error.contains("every network"), "{error}");
    }
}

#[test]
fn an_unreachable_server_is_named_at_the_deadline() {
    let free = server(None).address().to_string();
    for address in [free.as_str(), "192.0.2.1:9", "no-such-host.invalid:9"] {
        let began = Instant::now();
        let error = TcpStore::connect(address, None, within(400)).unwrap_err();
        assert!(matches!(error.downcast_ref(), Some(CollectiveError::StoreUnreachable { .. })), "{error}");
        assert!(error.to_string().contains(address), "{error}");
        assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    }
    for address in ["host", "host:", "host:port", ":1", "host:65536"] {
        let error = TcpStore::connect(address, None, soon()).unwrap_err().to_string();
        assert!(error.contains(&format!("`{address}` is not HOST:PORT")), "{error}");
    }
}

#[test]
fn a_client_may_come_before_the_server() {
    let address = server(None).address();
    std::thread::scope(|scope| {
        let early = scope.spawn(|| TcpStore::connect(&address.to_string(), None, soon()).unwrap());
        std::thread::sleep(Duration::from_millis(150));
        let server = StoreServer::start(address, ServerOptions::default()).unwrap();
        early.join().unwrap().set("key", b"value", soon()).unwrap();
        drop(server);
    });
}

#[test]
fn what_is_no_store_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(b"SSH-2.0-OpenSSH_9.2\r\n").unwrap();
            // This waits until the client has read the data.
            is_closed(&mut stream, Duration::from_secs(20));
        });
        let error = TcpStore::connect(&address, None, soon()).unwrap_err();
        assert!(matches!(error.downcast_ref(), Some(CollectiveError::NotAStore { .. })), "{error}");
    });
}

#[test]
fn a_silent_server_ends_the_wait_at_the_deadline() {
    // The system accepts connections, but no program replies.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let began = Instant::now();
    let error =
        TcpStore::connect(&listener.local_addr().unwrap().to_string(), None, within(300)).unwrap_err();
    assert!(matches!(error.downcast_ref(), Some(CollectiveError::StoreUnreachable { .. })), "{error}");
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
}

#[test]
fn a_server_that_falls_silent_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::scope(|scope| {
        let peer = scope.spawn(|| {
            let (mut stream, _) = listener.accept().unwrap();
            let mut greeting = [0; 10];
            stream.read_exact(&mut greeting).unwrap();
            stream.write_all(&greeting[6..]).unwrap();
            stream
        });
        let store = TcpStore::connect(&address, None, soon()).unwrap();
        let _stream = peer.join().unwrap();
        let error = store.add("n", 1, within(100)).unwrap_err();
        assert!(
            matches!(error.downcast_ref(), Some(CollectiveError::StoreSilent { operation: "add", .. })),
            "{error}"
        );
    });
}

#[test]
fn the_end_of_the_server_ends_waits_at_once() {
    let server = server(None);
    let store = client(&server);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| store.get("key", soon()).unwrap_err());
        std::thread::sleep(Duration::from_millis(50));
        let began = Instant::now();
        drop(server);
        let error = waits.join().unwrap();
        assert!(
            matches!(error.downcast_ref(), Some(CollectiveError::StoreClosed { operation: "get", .. })),
            "{error}"
        );
        assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    });
}

#[test]
fn threads_that_wait_do_not_hold_up_others() {
    let server = server(None);
    let store = client(&server);
    std::thread::scope(|scope| {
        let waits: Vec<_> = (0..8).map(|_| scope.spawn(|| store.get("key", soon()).unwrap())).collect();
        let began = Instant::now();
        for number in 1..=100 {
            assert_eq!(store.add("n", 1, soon()).unwrap(), number);
        }
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
        store.set("key", b"value", soon()).unwrap();
        waits.into_iter().for_each(|thread| assert_eq!(thread.join().unwrap(), b"value"));
    });
}
