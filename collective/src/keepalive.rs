//! TCP keepalive: connections end when the other host has vanished.
//!
//! A process that ends closes its connections. A host that loses power or network closes none: a read would wait until
//! the operation's deadline, and a write would fail only after 15 minutes.

#[cfg(target_os = "linux")]
use std::time::Duration;

/// Time without an answer after which a host counts as vanished.
#[cfg(target_os = "linux")]
const VANISHED: Duration = Duration::from_secs(30);

/// Enables TCP keepalive: the system ends a connection on which the other host has not answered for 30 seconds. Idle
/// connections are probed. On systems other than Linux only the deadlines of operations apply.
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
    // TCP sends no probes while sent data is unacknowledged: that case has its own timeout.
    let watched = watched.and_then(|()| sockopt::set_tcp_user_timeout(socket, VANISHED.as_millis() as u32));
    if let Err(error) = watched {
        tracing::debug!("a connection is not watched for the end of its host: {error}");
    }
}

/// Does nothing: keepalive is Linux only.
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
