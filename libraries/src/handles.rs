//! [`HandlePool`]: handles of a library on one device, each of which is used by one thread at a time.
//!
//! A handle is created if no handle is free. It returns to the pool when its guard is dropped. The pool prefers a
//! handle that was last used on the same stream, because that handle needs no setup. The number of handles never
//! exceeds the maximum number of concurrent calls. The handles are destroyed together with the device.

use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, PoisonError};

use super::pressure::with_memory;
use warpsmith_runtime::driver::StreamHandle;
use warpsmith_runtime::{Result, Stream};

/// A library handle. The device's context must be current when a handle is created, used or dropped.
pub(crate) trait LibraryHandle: Sized + Send {
    fn create() -> Result<Self>;
    /// Sets the stream on which later calls enqueue their work.
    fn set_stream(&mut self, stream: StreamHandle) -> Result<()>;
}

/// A pool of library handles. See the [module's documentation](self).
#[derive(Debug)]
pub(crate) struct HandlePool<H> {
    /// Unused handles, each with the stream to which it is set.
    spare: Mutex<Vec<(u64, H)>>,
}

impl<H> Default for HandlePool<H> {
    fn default() -> Self {
        Self { spare: Mutex::default() }
    }
}

impl<H: LibraryHandle> HandlePool<H> {
    /// Acquires a handle for `stream`. The device's context must be current.
    pub fn acquire(&self, stream: &Stream) -> Result<HandleGuard<'_, H>> {
        let id = stream.id();
        let spare = {
            let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
            match spare.iter().rposition(|(last, _)| *last == id) {
                Some(at) => Some(spare.swap_remove(at)),
                None => spare.pop(),
            }
        };
        let handle = match spare {
            Some((last, handle)) if last == id => handle,
            Some((_, mut handle)) => {
                handle.set_stream(stream.handle())?;
                handle
            }
            None => {
                let mut handle = with_memory(stream.device(), H::create)?;
                handle.set_stream(stream.handle())?;
                handle
            }
        };
        Ok(HandleGuard { pool: self, stream: id, handle: Some(handle) })
    }
}

/// A handle that returns to its pool when the guard is dropped.
#[derive(Debug)]
pub(crate) struct HandleGuard<'a, H> {
    pool: &'a HandlePool<H>,
    stream: u64,
    /// The handle, which is present until the guard is dropped.
    handle: Option<H>,
}

impl<H> Deref for HandleGuard<'_, H> {
    type Target = H;

    fn deref(&self) -> &H {
        let Some(handle) = &self.handle else { unreachable!("it is there until it is dropped") };
        handle
    }
}

impl<H> DerefMut for HandleGuard<'_, H> {
    fn deref_mut(&mut self) -> &mut H {
        let Some(handle) = &mut self.handle else { unreachable!("it is there until it is dropped") };
        handle
    }
}

impl<H> Drop for HandleGuard<'_, H> {
    fn drop(&mut self) {
        if let Some(handle) = self.handle.take() {
            self.pool.spare.lock().unwrap_or_else(PoisonError::into_inner).push((self.stream, handle));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use warpsmith_runtime::device::Device;
    use warpsmith_runtime::emulated::EmulatedDriver;

    static ALIVE: AtomicUsize = AtomicUsize::new(0);

    #[derive(Debug)]
    struct Counted(usize);

    impl LibraryHandle for Counted {
        fn create() -> Result<Self> {
            ALIVE.fetch_add(1, Ordering::Relaxed);
            Ok(Self(0))
        }

        fn set_stream(&mut self, _: StreamHandle) -> Result<()> {
            self.0 += 1;
            Ok(())
        }
    }

    impl Drop for Counted {
        fn drop(&mut self) {
            ALIVE.fetch_sub(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn handles_are_set_up_only_for_another_stream() -> Result<()> {
        let device = Device::with_driver(EmulatedDriver::builder().build(), 0)?;
        let (a, b) = (Stream::new(&device)?, Stream::new(&device)?);
        let pool = HandlePool::<Counted>::default();
        assert_eq!(pool.acquire(&a)?.0, 1);
        assert_eq!(pool.acquire(&a)?.0, 1);
        {
            let (first, second) = (pool.acquire(&a)?, pool.acquire(&b)?);
            assert_eq!((first.0, second.0), (1, 1));
        }
        assert_eq!((pool.acquire(&a)?.0, pool.acquire(&b)?.0), (1, 1));
        assert_eq!(ALIVE.load(Ordering::Relaxed), 2);
        let c = Stream::new(&device)?;
        assert_eq!(pool.acquire(&c)?.0, 2);
        drop(pool);
        assert_eq!(ALIVE.load(Ordering::Relaxed), 0);
        Ok(())
    }
}
