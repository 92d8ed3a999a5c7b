//! Rendezvous of ranks through the public API: environments, stores, the protocol, and the rendezvous itself. No test
//! needs a device.

#[path = "../../../runtime/tests/common/alone.rs"]
mod alone;
#[cfg(unix)]
mod fuzzed;
mod joining;
mod launch;
mod launch_store;
#[cfg(unix)]
mod processes;
mod server;
mod stores;
#[cfg(target_os = "linux")]
mod strangers;
mod wire;

use std::time::{Duration, Instant};

use warpsmith_collective::store::{ServerOptions, StoreServer, TcpStore, Token};

/// Returns a deadline that is this number of milliseconds from now.
fn within(milliseconds: u64) -> Instant {
    Instant::now() + Duration::from_millis(milliseconds)
}

/// Returns a deadline that is late enough for expected events.
fn soon() -> Instant {
    within(20_000)
}

/// Starts a server on a free port of the loopback interface.
fn server(token: Option<&str>) -> StoreServer {
    let token = token.map(|text| Token::new(text).unwrap());
    StoreServer::start("127.0.0.1:0".parse().unwrap(), ServerOptions { token, ..Default::default() }).unwrap()
}

/// Connects a client to a server without a token.
fn client(server: &StoreServer) -> TcpStore {
    TcpStore::connect(&server.address().to_string(), None, soon()).unwrap()
}
