//! [`Wire`]: the connection to another rank.

use std::io::{ErrorKind, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use super::frame::Frame;
use super::member::Member;
use crate::keepalive;

/// Interval at which a stalled write checks whether to continue.
pub(super) const WRITE_POLL: Duration = Duration::from_millis(100);

/// Maximum time that [`Connection::send_now`] waits for the lock and for space in the send buffer.
const MOMENT: Duration = Duration::from_millis(5);

/// Connection to another rank, or to this rank itself.
#[derive(Debug)]
pub(super) enum Wire {
    /// A rank in this process.
    Memory(Arc<Member>),
    /// A rank in another process.
    Socket(Connection),
}

/// Socket to another process. A thread reads from a second handle of the socket.
#[derive(Debug)]
pub(super) struct Connection {
    writer: Mutex<TcpStream>,
    /// Handle of the same socket, through which it can be shut down while a thread is writing.
    socket: TcpStream,
}

/// Reason why a frame was not sent.
pub(super) enum Unsent {
    /// The connection accepts no more data.
    Closed(String),
    /// The other process does not read, and the sender has stopped waiting.
    Deadline,
}

impl Connection {
    /// Creates the connection. Fails if the process has no free file descriptors.
    pub fn new(socket: TcpStream) -> std::io::Result<Self> {
        socket.set_nodelay(true)?;
        keepalive::watch(&socket);
        socket.set_write_timeout(Some(WRITE_POLL))?;
        Ok(Self { writer: Mutex::new(socket.try_clone()?), socket })
    }

    /// Writes a frame. Stops waiting as soon as `goes_on` returns false. If a frame has been written only partially,
    /// the connection is closed.
    pub fn send(&self, frame: &Frame, deadline: Instant, goes_on: impl Fn() -> bool) -> Result<(), Unsent> {
        let bytes = frame.encode();
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let mut written = 0;
        while written < bytes.len() {
            match writer.write(&bytes[written..]) {
                Ok(0) => return Err(Unsent::Closed("it is closed".to_owned())),
                Ok(more) => written += more,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    if Instant::now() >= deadline || !goes_on() {
                        if written > 0 {
                            self.close();
                        }
                        return Err(Unsent::Deadline);
                    }
                }
                Err(error) => return Err(Unsent::Closed(error.to_string())),
            }
        }
        Ok(())
    }

    /// Writes a short frame if the connection becomes free within a few milliseconds. Returns whether the frame was
    /// sent.
    pub fn send_now(&self, frame: &Frame) -> bool {
        let end = Instant::now() + MOMENT;
        let mut writer = loop {
            match self.writer.try_lock() {
                Ok(writer) => break writer,
                Err(TryLockError::Poisoned(writer)) => break writer.into_inner(),
                Err(TryLockError::WouldBlock) if Instant::now() >= end => return false,
                Err(TryLockError::WouldBlock) => std::thread::sleep(MOMENT / 10),
            }
        };
        let bytes = frame.encode();
        let _ = writer.set_write_timeout(Some(MOMENT));
        let written = loop {
            match writer.write(&bytes) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                written => break written,
            }
        };
        let _ = writer.set_write_timeout(Some(WRITE_POLL));
        match written {
            Ok(written) if written == bytes.len() => true,
            Ok(0) | Err(_) => false,
            Ok(_) => {
                // A partially written frame makes the connection unusable.
                drop(writer);
                self.close();
                false
            }
        }
    }

    /// Sends a last frame if this takes only a few milliseconds, and shuts the connection down for writing.
    pub fn send_last(&self, frame: &Frame) {
        let end = Instant::now() + WRITE_POLL;
        loop {
            if let Ok(mut writer) = self.writer.try_lock() {
                // An error can be ignored, because the other rank detects the end of the connection anyway.
                let _ = writer.write_all(&frame.encode());
                break;
            }
            if Instant::now() >= end {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let _ = self.socket.shutdown(Shutdown::Write);
    }

    /// Shuts the connection down in both directions immediately, even while other threads use it.
    pub fn close(&self) {
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}
