//! [`Door`]: exchange of file descriptors between the processes of a host, over sockets.
//!
//! The sockets are in a folder to which only this user has access. A process that connects must present the token that
//! all ranks share, and the kernel must report that it belongs to the same user. Every operation returns before its
//! deadline. No files are left in the file system.

use std::ffi::c_int;
use std::fs::DirBuilder;
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Size of a token, in bytes.
pub(super) const TOKEN: usize = 16;
/// Size of the message that precedes the descriptor, in bytes. The message consists of the token and the rank.
const HELLO: usize = TOKEN + 4;
/// Time within which a process must identify itself after it has connected.
const HELLO_TIME: Duration = Duration::from_secs(2);
/// Size of a control message that contains a descriptor, in bytes.
const CONTROL: usize = 64;

/// Socket to which ranks of other processes connect.
#[derive(Debug)]
pub(super) struct Door {
    listener: UnixListener,
    folder: PathBuf,
}

impl Drop for Door {
    fn drop(&mut self) {
        // An error can be ignored, because a leftover folder has no effect.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Returns an error for a problem that this module has detected.
fn refused(text: impl Into<String>) -> Error {
    Error::other(text.into())
}

impl Door {
    pub fn open() -> Result<Self> {
        static DOORS: AtomicU64 = AtomicU64::new(0);
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(|error| refused(error.to_string()))?;
        let number = DOORS.fetch_add(1, Ordering::Relaxed);
        let name = format!("warpsmith-{}-{number}-{:016x}", std::process::id(), u64::from_ne_bytes(random));
        let folder = std::env::temp_dir().join(name);
        DirBuilder::new().mode(0o700).create(&folder)?;
        let listener = UnixListener::bind(folder.join("door"));
        let opened = listener
            .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
            .inspect_err(|_| {
                let _ = std::fs::remove_dir_all(&folder);
            });
        Ok(Self { listener: opened?, folder })
    }

    pub fn path(&self) -> PathBuf {
        self.folder.join("door")
    }

    /// Accepts the next process that presents the token. Returns its rank and descriptor. Rejects other processes.
    pub fn accept(
        &self,
        token: &[u8; TOKEN],
        deadline: Instant,
        mut may_wait: impl FnMut() -> Result<()>,
    ) -> Result<(usize, OwnedFd, UnixStream)> {
        loop {
            match self.listener.accept() {
                Ok((socket, _)) => {
                    let end = deadline.min(Instant::now() + HELLO_TIME);
                    if let Ok((rank, descriptor)) = admitted(&socket, token, end) {
                        return Ok((rank, descriptor, socket));
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    may_wait()?;
                    if Instant::now() >= deadline {
                        return Err(ErrorKind::TimedOut.into());
                    }
                    std::thread::sleep(Duration::from_micros(200));
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// Reads the first message from the other end, provided that the process there belongs to this user.
fn admitted(socket: &UnixStream, token: &[u8; TOKEN], deadline: Instant) -> Result<(usize, OwnedFd)> {
    check_user(socket)?;
    let mut hello = [0; HELLO];
    read(socket, &mut hello, deadline)?;
    if &hello[..TOKEN] != token {
        return Err(refused("it sent a different token"));
    }
    let rank = u32::from_le_bytes([hello[TOKEN], hello[TOKEN + 1], hello[TOKEN + 2], hello[TOKEN + 3]]);
    Ok((rank as usize, receive(socket, deadline)?))
}

/// Connects to the [`Door`] of another rank and sends a descriptor to that rank. The other rank responds with its own
/// descriptor, which [`receive`] reads.
pub(super) fn call(
    path: &Path,
    token: &[u8; TOKEN],
    rank: usize,
    descriptor: BorrowedFd<'_>,
    deadline: Instant,
) -> Result<UnixStream> {
    let socket = UnixStream::connect(path)?;
    check_user(&socket)?;
    socket.set_write_timeout(Some(left(deadline)?))?;
    let mut hello = token.to_vec();
    hello.extend((rank as u32).to_le_bytes());
    (&socket).write_all(&hello)?;
    send(&socket, descriptor)?;
    Ok(socket)
}

/// Returns the time left until a deadline.
fn left(deadline: Instant) -> Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}

fn read(mut socket: &UnixStream, bytes: &mut [u8], deadline: Instant) -> Result<()> {
    socket.set_nonblocking(false)?;
    socket.set_read_timeout(Some(left(deadline)?))?;
    socket.read_exact(bytes)
}

/// Fails unless the process at the other end belongs to the same user.
fn check_user(socket: &UnixStream) -> Result<()> {
    let mut credentials = MaybeUninit::<libc::ucred>::zeroed();
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the pointers point to local variables, and the length is the size of the first one.
    let result = unsafe {
        let value = credentials.as_mut_ptr().cast();
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, value, &mut len)
    };
    if result != 0 {
        return Err(Error::last_os_error());
    }
    // SAFETY: the call has initialized the credentials, for which all zeros is also a valid value; the second call has
    // no preconditions.
    let (theirs, ours) = unsafe { (credentials.assume_init().uid, libc::geteuid()) };
    match theirs == ours {
        true => Ok(()),
        false => Err(refused(format!("the peer process belongs to user {theirs}, not {ours}"))),
    }
}

/// One-byte message with room for a descriptor.
struct Envelope {
    byte: [u8; 1],
    /// Control data, aligned as its header requires.
    control: [u64; CONTROL / 8],
}

impl Envelope {
    /// Calls a system function with the message as its argument.
    fn with(&mut self, call: impl FnOnce(&mut libc::msghdr) -> isize) -> Result<usize> {
        let mut part = libc::iovec { iov_base: self.byte.as_mut_ptr().cast(), iov_len: 1 };
        // SAFETY: all zeros is a valid value.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = self.control.as_mut_ptr().cast();
        message.msg_controllen = CONTROL as _;
        usize::try_from(call(&mut message)).map_err(|_| Error::last_os_error())
    }
}

pub(super) fn send(socket: &UnixStream, descriptor: BorrowedFd<'_>) -> Result<()> {
    let mut envelope = Envelope { byte: [0], control: [0; CONTROL / 8] };
    let sent = envelope.with(|message| {
        // SAFETY: the constants ensure that the control data has room for one descriptor. The message consists of local
        // variables.
        unsafe {
            message.msg_controllen = libc::CMSG_SPACE(size_of::<c_int>() as u32) as _;
            let header = libc::CMSG_FIRSTHDR(message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(size_of::<c_int>() as u32) as _;
            libc::CMSG_DATA(header).cast::<c_int>().write_unaligned(descriptor.as_raw_fd());
            libc::sendmsg(socket.as_raw_fd(), message, libc::MSG_NOSIGNAL)
        }
    })?;
    if sent == 1 { Ok(()) } else { Err(ErrorKind::WriteZero.into()) }
}

pub(super) fn receive(socket: &UnixStream, deadline: Instant) -> Result<OwnedFd> {
    socket.set_nonblocking(false)?;
    socket.set_read_timeout(Some(left(deadline)?))?;
    let mut envelope = Envelope { byte: [0], control: [0; CONTROL / 8] };
    let mut received = None;
    let bytes = envelope.with(|message| {
        // SAFETY: the message consists of local variables. A control message with this kind and length contains a
        // descriptor that the system has opened for this process.
        unsafe {
            let bytes = libc::recvmsg(socket.as_raw_fd(), message, libc::MSG_CMSG_CLOEXEC);
            let header = libc::CMSG_FIRSTHDR(message);
            if bytes == 1
                && !header.is_null()
                && (*header).cmsg_level == libc::SOL_SOCKET
                && (*header).cmsg_type == libc::SCM_RIGHTS
                && (*header).cmsg_len as usize == libc::CMSG_LEN(size_of::<c_int>() as u32) as usize
            {
                let descriptor = libc::CMSG_DATA(header).cast::<c_int>().read_unaligned();
                received = Some(OwnedFd::from_raw_fd(descriptor));
            }
            bytes
        }
    })?;
    match (received, bytes) {
        (Some(descriptor), _) => Ok(descriptor),
        (None, 0) => Err(ErrorKind::UnexpectedEof.into()),
        (None, _) => Err(refused("it sent no file descriptor")),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;

    use super::*;

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(20)
    }

    #[test]
    fn descriptors_pass_both_ways() {
        let door = Door::open().expect("a door");
        let (path, token) = (door.path(), [7; TOKEN]);
        let (mut pipe, other) = std::io::pipe().expect("a pipe");
        let caller = std::thread::spawn(move || {
            let socket = call(&path, &token, 3, other.as_fd(), soon()).expect("connected");
            File::from(receive(&socket, soon()).expect("an answer")).metadata().expect("a file").len()
        });
        let (rank, descriptor, socket) = door.accept(&token, soon(), || Ok(())).expect("it comes");
        assert_eq!(rank, 3);
        File::from(descriptor).write_all(b"through the pipe").expect("it is the pipe's end");
        let file = File::open("/proc/self/exe").expect("this program");
        send(&socket, file.as_fd()).expect("sent");
        assert_eq!(caller.join().expect("no panic"), file.metadata().expect("a file").len());
        let mut text = [0; 16];
        pipe.read_exact(&mut text).expect("the text");
        assert_eq!(&text, b"through the pipe");
    }

    #[test]
    fn another_token_is_turned_away() {
        let door = Door::open().expect("a door");
        let file = File::open("/proc/self/exe").expect("this program");
        let stranger = call(&door.path(), &[1; TOKEN], 0, file.as_fd(), soon()).expect("connected");
        let garbage = UnixStream::connect(door.path()).expect("connected");
        drop((&garbage).write_all(b"GET / HTTP/1.1\r\n\r\n"));
        drop(garbage);
        let _right = call(&door.path(), &[2; TOKEN], 5, file.as_fd(), soon()).expect("connected");
        let (rank, ..) = door.accept(&[2; TOKEN], soon(), || Ok(())).expect("the right one");
        assert_eq!(rank, 5);
        assert!(receive(&stranger, soon()).is_err());
        let late = Instant::now() + Duration::from_millis(20);
        let error = door.accept(&[2; TOKEN], late, || Ok(())).expect_err("no one comes");
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        let folder = door.folder.clone();
        drop(door);
        assert!(!folder.exists());
    }
}
