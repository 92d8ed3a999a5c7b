//! Where a panicking kernel leaves its message.
//!
//! Every GPU image with kernels has one global, [`MAILBOX_SYMBOL`], a pointer to a [`Mailbox`] in host memory
//! that the GPU can write. The runtime sets it after loading a module. The first thread to panic moves
//! `state` from [`EMPTY`] to [`WRITING`], fills the rest, makes it visible to the host, sets [`READY`] and
//! traps. Host memory outlives the poisoned context, so the text can still be read.

/// The global's symbol: a `*mut Mailbox`, null until the runtime sets it.
pub const MAILBOX_SYMBOL: &str = "__warpsmith_mailbox";

/// `state`: no thread has panicked.
pub const EMPTY: u32 = 0;
/// `state`: a thread is writing its message.
pub const WRITING: u32 = 1;
/// `state`: the message is complete.
pub const READY: u32 = 2;

/// Bytes of message kept; longer ones are cut.
pub const MESSAGE_BYTES: usize = 512;
/// Bytes of file name kept; of longer ones the end is kept.
pub const FILE_BYTES: usize = 256;

/// One panic, as the GPU writes it.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Mailbox {
    /// [`EMPTY`], [`WRITING`] or [`READY`].
    pub state: u32,
    /// Line of the panic, from 1.
    pub line: u32,
    /// Column of the panic, from 1.
    pub column: u32,
    /// Index of the block.
    pub block: [u32; 3],
    /// Index of the thread in its block.
    pub thread: [u32; 3],
    /// Bytes used in `message`.
    pub message_len: u32,
    /// Bytes used in `file`.
    pub file_len: u32,
    /// The text, UTF-8.
    pub message: [u8; MESSAGE_BYTES],
    /// The source file, UTF-8.
    pub file: [u8; FILE_BYTES],
}

impl Mailbox {
    /// A mailbox that has not been written.
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
