//! [`Wire`]: the way to another rank.

use std::io::{ErrorKind, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::frame::Frame;
use super::member::Member;

/// How often a write that makes no progress looks whether to go on.
pub(super) const WRITE_POLL: Duration = Duration::from_millis(100);

/// The way to another rank, or to the rank itself.
#[derive(Debug)]
pub(super) enum Wire {
    /// A thread of this process.
    Memory(Arc<Member>),
    /// Another process.
    Socket(Connection),
}

/// A socket to another process. Another handle of it is read by a thread.
#[derive(Debug)]
pub(super) struct Connection {
    writer: Mutex<TcpStream>,
    /// The same socket, to end it while a thread writes.
    socket: TcpStream,
}

/// Why a frame was not sent.
pub(super) enum Unsent {
    /// The connection does not take anything any more.
    Closed(String),
    /// The other process does not read, and the sender was to wait no longer.
    Deadline,
}

impl Connection {
    /// Errors when the system has no more handles.
    pub fn new(socket: TcpStream) -> std::io::Result<Self> {
        socket.set_nodelay(true)?;
        socket.set_write_timeout(Some(WRITE_POLL))?;
        Ok(Self { writer: Mutex::new(socket.try_clone()?), socket })
    }

    /// Writes a frame, as long as `goes_on` says so. A frame that was written in part breaks the connection.
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

    /// Sends the last frame if that takes next to no time, and ends the connection for writing.
    pub fn send_last(&self, frame: &Frame) {
        let end = Instant::now() + WRITE_POLL;
        loop {
            if let Ok(mut writer) = self.writer.try_lock() {
                // The other side sees the end of the connection at any rate.
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

    /// Ends the connection in both directions, at once, also for threads that use it.
    pub fn close(&self) {
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}
