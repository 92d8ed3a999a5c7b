//! Mailbox in which a panicking kernel stores its message.
//!
//! Every GPU image with kernels contains one global, [`MAILBOX_SYMBOL`]. It is a pointer to a [`Mailbox`] in host
//! memory that the GPU can write. The runtime sets the pointer after it has loaded a module. The first thread to panic
//! moves `state` from [`EMPTY`] to [`WRITING`], fills the other fields, makes them visible to the host, sets [`READY`]
//! and traps. Host memory outlives the poisoned context, so the text can still be read.

/// Symbol of the global: a `*mut Mailbox`, null until the runtime sets it.
pub const MAILBOX_SYMBOL: &str = "__warpsmith_mailbox";

/// Value of `state`: no thread has panicked.
pub const EMPTY: u32 = 0;
/// Value of `state`: a thread is writing its message.
pub const WRITING: u32 = 1;
/// Value of `state`: the message is complete.
pub const READY: u32 = 2;

/// Maximum bytes of a message; longer messages are truncated.
pub const MESSAGE_BYTES: usize = 512;
/// Maximum bytes of a file name; only the end of a longer name is kept.
pub const FILE_BYTES: usize = 256;

/// One panic, as written by the GPU.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Mailbox {
    /// State of the mailbox: [`EMPTY`], [`WRITING`] or [`READY`].
    pub state: u32,
    /// Line of the panic, 1-based.
    pub line: u32,
    /// Column of the panic, 1-based.
    pub column: u32,
    /// Index of the block.
    pub block: [u32; 3],
    /// Index of the thread in its block.
    pub thread: [u32; 3],
    /// Bytes used in `message`.
    pub message_len: u32,
    /// Bytes used in `file`.
    pub file_len: u32,
    /// Message text, UTF-8.
    pub message: [u8; MESSAGE_BYTES],
    /// Source file, UTF-8.
    pub file: [u8; FILE_BYTES],
}

impl Mailbox {
    /// Creates a mailbox that has not been written.
    pub const fn empty() -> Self {
        Self {
            state: EMPTY,
            line: 0,
            column: 0,
            block: [0; 3],
            thread: [0; 3],
            message_len: 0,
            file_len: 0,
            message: [0; MESSAGE_BYTES],
            file: [0; FILE_BYTES],
        }
    }
}
