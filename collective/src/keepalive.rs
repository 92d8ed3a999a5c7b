//! TCP keepalive, which closes connections to hosts that have vanished.
//!
//! When a process ends, its operating system closes its connections. When a host loses power or its network, however,
//! its connections stay open: a read would block until the operation's deadline, and a write would fail only after 15
//! minutes.

#[cfg(target_os = "linux")]
use std::time::Duration;

/// Time without a response after which a host is considered vanished.
#[cfg(target_os = "linux")]
const VANISHED: Duration = Duration::from_secs(30);

/// Enables TCP keepalive, so that the system probes idle connections and closes them if the other host has not
/// responded for 30 seconds. On systems other than Linux, only the deadlines of the operations apply.
#[cfg(target_os = "linux")]
pub fn watch(socket: &impl std::os::fd::AsFd) {
    use rustix::net::sockopt;

    /// Idle time before the first probe.
    const IDLE: Duration = Duration::from_secs(15);
    const BETWEEN: Duration = Duration::from_secs(5);
    let probes = (VANISHED - IDLE).as_secs() / BETWEEN.as_secs();
    let watched = sockopt::set_socket_keepalive(socket, true)
        .and_then(|()| sockopt::set_tcp_keepidle(socket, IDLE))
        .and_then(|()| sockopt::set_tcp_keepintvl(socket, BETWEEN))
        .and_then(|()| sockopt::set_tcp_keepcnt(socket, probes as u32));
    // TCP sends no keepalive probes while sent data is unacknowledged, so this case requires a separate timeout.
    let watched = watched.and_then(|()| sockopt::set_tcp_user_timeout(socket, VANISHED.as_millis() as u32));
    if let Err(error) = watched {
        tracing::debug!(
            "TCP keepalive could not be enabled, so the loss of the other host is not detected: {error}"
        );
    }
}

/// Does nothing, because keepalive is implemented only for Linux.
#[cfg(not(target_os = "linux"))]
pub fn watch<S>(_socket: &S) {}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use rustix::net::sockopt;

    use super::*;

    #[test]
    fn watched_connections_end_after_half_a_minute() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let socket = TcpStream::connect(listener.local_addr().expect("an address")).expect("connected");
        assert!(!sockopt::socket_keepalive(&socket).expect("an option"));
        watch(&socket);
        assert!(sockopt::socket_keepalive(&socket).expect("an option"));
        let asked = sockopt::tcp_keepintvl(&socket).expect("an option")
            * sockopt::tcp_keepcnt(&socket).expect("an option");
        assert_eq!(sockopt::tcp_keepidle(&socket).expect("an option") + asked, VANISHED);
        let unanswered = sockopt::tcp_user_timeout(&socket).expect("an option");
        assert_eq!(Duration::from_millis(unanswered.into()), VANISHED);
    }
}
