//! [`HostMemory`]: memory that can be moved into a copy between host and device.

use crate::error::Result;
use crate::memory::{DeviceCopy, PinnedBuffer, PinnedRange};
use crate::stream::Stream;

use self::sealed::Memory;

/// Host memory that [`Stream::copy_from_host_async`] and [`Stream::copy_to_host_async`] accept and return:
/// [`PinnedBuffer`], [`PinnedRange`], `Vec` and `Box<[T]>`.
///
/// See the examples of [`Stream::copy_from_host_async`] and [`Stream::copy_to_host_async`].
///
/// # Safety
/// The trait is sealed. The value must own the memory that the methods of the sealed trait return. Moving the value
/// must not move the memory, and the elements must not need dropping.
pub unsafe trait HostMemory: Memory + Send + 'static {
    /// The type of the elements.
    type Element: DeviceCopy;
}

pub(super) mod sealed {
    use super::{Result, Stream};

    /// Type-erased access to the memory.
    pub trait Memory {
        /// True if the device can access the memory; otherwise, copies are staged.
        const PINNED: bool;
        fn elements(&self) -> usize;
        /// Returns the address of the first element.
        fn source(&self) -> *const u8;
        /// Returns the address of the first element, for writing.
        fn target(&mut self) -> *mut u8;
        /// Keeps pinned memory from being reused before the stream has finished the work enqueued so far.
        fn keep(&self, stream: &Stream) -> Result<()>;
    }
}

impl<T: DeviceCopy> Memory for PinnedBuffer<T> {
    const PINNED: bool = true;

    fn elements(&self) -> usize {
        self.len()
    }

    fn source(&self) -> *const u8 {
        self.address().cast()
    }

    fn target(&mut self) -> *mut u8 {
        self.address().cast()
    }

    fn keep(&self, stream: &Stream) -> Result<()> {
        self.record_use(stream)
    }
}

// SAFETY: a pinned buffer owns its block of the allocator.
unsafe impl<T: DeviceCopy> HostMemory for PinnedBuffer<T> {
    type Element = T;
}

impl<T: DeviceCopy> Memory for PinnedRange<T> {
    const PINNED: bool = true;

    fn elements(&self) -> usize {
        self.range().len()
    }

    fn source(&self) -> *const u8 {
        self.address().cast()
    }

    fn target(&mut self) -> *mut u8 {
        self.address().cast()
    }

    fn keep(&self, stream: &Stream) -> Result<()> {
        self.buffer().record_use(stream)
    }
}

// SAFETY: the range owns a pinned buffer.
unsafe impl<T: DeviceCopy> HostMemory for PinnedRange<T> {
    type Element = T;
}

macro_rules! pageable {
    ($($memory:ty),*) => {$(
        impl<T: DeviceCopy> Memory for $memory {
            const PINNED: bool = false;

            fn elements(&self) -> usize {
                self.len()
            }

            fn source(&self) -> *const u8 {
                self.as_ptr().cast()
            }

            fn target(&mut self) -> *mut u8 {
                self.as_mut_ptr().cast()
            }

            fn keep(&self, _stream: &Stream) -> Result<()> {
                Ok(())
            }
        }

        // SAFETY: the value owns its memory on the heap, and elements are `Copy`.
        unsafe impl<T: DeviceCopy> HostMemory for $memory {
            type Element = T;
        }
    )*};
}

pageable!(Vec<T>, Box<[T]>);
