//! Rendezvous of ranks through the public API: environments, stores, the protocol, and the rendezvous itself. No test
//! needs a device.

#[path = "../../../runtime/tests/common/alone.rs"]
mod alone;
#[cfg(unix)]
mod folders;
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

/// New temporary folder that only this user can access. It is removed at the end of a passing test.
struct Folder(std::path::PathBuf);

impl Folder {
    fn new() -> Self {
        use std::sync::atomic::{AtomicU32, Ordering};
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("warpsmith-stores-{}-{number}", std::process::id()));
        let mut builder = std::fs::DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            std::fs::remove_dir_all(&self.0).unwrap();
        }
    }
}
