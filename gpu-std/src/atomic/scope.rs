//! Scopes: the sets of threads for which an operation is atomic.

/// The scope of an atomic operation: [`Block`], [`Device`] or [`System`].
///
/// ```
/// use gpu_std::atomic::{Atomic, Ordering, scope};
///
/// let word: Atomic<u32, scope::System> = Atomic::new(1);
/// word.store(2, Ordering::Release);
/// assert_eq!(word.load(Ordering::Acquire), 2);
/// ```
pub trait Scope: sealed::Sealed + 'static {
    #[doc(hidden)]
    const LEVEL: Level;
}

#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub enum Level {
    Block,
    Device,
    System,
}

/// The threads of the calling thread's block.
///
/// See the example of [`Scope`].
#[derive(Debug, Clone, Copy)]
pub enum Block {}

/// All threads on the device.
///
/// See the example of [`Scope`].
#[derive(Debug, Clone, Copy)]
pub enum Device {}

/// The host and all threads on all devices.
///
/// See the example of [`Scope`].
#[derive(Debug, Clone, Copy)]
pub enum System {}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Block {}
    impl Sealed for super::Device {}
    impl Sealed for super::System {}
}

impl Scope for Block {
    const LEVEL: Level = Level::Block;
}

impl Scope for Device {
    const LEVEL: Level = Level::Device;
}

impl Scope for System {
    const LEVEL: Level = Level::System;
}
