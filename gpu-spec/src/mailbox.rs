//! Mailbox in which a kernel that panics stores its message.
//!
//! Every GPU image that contains kernels has one global, [`MAILBOX_SYMBOL`]. The global is a pointer to a [`Mailbox`]
//! in host memory that the GPU can write. The runtime sets the pointer after it has loaded a module. The first thread
//! that panics changes `state` from [`EMPTY`] to [`WRITING`], fills the other fields, makes them visible to the host,
//! sets [`READY`] and traps. Host memory outlives the poisoned context, so the host can still read the message.

/// Symbol of the global, a `*mut Mailbox` that is null until the runtime sets it.
pub const MAILBOX_SYMBOL: &str = "__warpsmith_mailbox";

/// Value of `state` if no thread has panicked.
pub const EMPTY: u32 = 0;
/// Value of `state` while a thread is writing its message.
pub const WRITING: u32 = 1;
/// Value of `state` when the message is complete.
pub const READY: u32 = 2;

/// Maximum size of a message in bytes. Longer messages are truncated.
pub const MESSAGE_BYTES: usize = 512;
/// Maximum size of a file name in bytes. If a name is longer, only its end is kept.
pub const FILE_BYTES: usize = 256;

/// The data of one panic, written by the GPU.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Mailbox {
    /// State of the mailbox: [`EMPTY`], [`WRITING`] or [`READY`].
    pub state: u32,
    /// Line number of the panic, starting at 1.
    pub line: u32,
    /// Column number of the panic, starting at 1.
    pub column: u32,
    /// Index of the block.
    pub block: [u32; 3],
    /// Index of the thread in its block.
    pub thread: [u32; 3],
    /// Number of bytes used in `message`.
    pub message_len: u32,
    /// Number of bytes used in `file`.
    pub file_len: u32,
    /// Message text, UTF-8.
    pub message: [u8; MESSAGE_BYTES],
    /// Source file, UTF-8.
    pub file: [u8; FILE_BYTES],
}

impl Mailbox {
    /// Creates a mailbox in which nothing has been written.
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
