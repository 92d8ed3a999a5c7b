//! Tests that a forked process cannot use devices that were opened earlier, and that nothing in it waits for them.
#![cfg(unix)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Once};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::alone::only_alone;
use crate::awaiting::{block_on, poll_until_registered};
use crate::common::*;
use warpsmith_runtime::emulated::{Call, EmulatedDriver};
use warpsmith_runtime::{
    Device, DeviceBuffer, DeviceId, Error, Launch, MappedBuffer, MemoryPool, PinnedBuffer, Result, Stream,
};

/// Seconds after which a waiting child counts as hung and is killed by the system.
const HUNG: u32 = 60;

/// True if this process is a forked copy.
static COPY: AtomicBool = AtomicBool::new(false);

/// Writes panics of a copy to the standard error stream without the locks that print macros acquire.
fn tell_panics_of_copies() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let others = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !COPY.load(Ordering::Relaxed) {
                return others(panic);
            }
            let text = format!("in the copy: {panic}\n");
            // SAFETY: the pointer and the length describe the text.
            unsafe { libc::write(2, text.as_ptr().cast(), text.len()) };
        }));
    });
}

/// Runs `work` in a forked copy of this process and fails unless it completes there. The copy contains only the thread
/// that forked, and ends without the test harness. If `work` moves values out of variables, this process still owns
/// them.
#[track_caller]
fn in_a_copy(work: impl FnOnce()) {
    tell_panics_of_copies();
    // SAFETY: the copy runs `work`, which uses only operations that the crate permits there, and then exits
    // immediately.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork failed");
    if child == 0 {
        COPY.store(true, Ordering::Relaxed);
        // SAFETY: the call has no preconditions.
        unsafe { libc::alarm(HUNG) };
        let done = catch_unwind(AssertUnwindSafe(work));
        // SAFETY: the copy has no work left.
        unsafe { libc::_exit(if done.is_ok() { 0 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: the child belongs to this process, and the pointer is to a local variable.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert!(!libc::WIFSIGNALED(status), "the copy hung or was stopped by signal {}", libc::WTERMSIG(status));
    assert_eq!(libc::WEXITSTATUS(status), 0, "the copy failed");
}

#[track_caller]
fn forked<T>(result: Result<T>) {
    match result {
        Err(Error::Forked) => {}
        Err(error) => panic!("another error: {error}"),
        Ok(_) => panic!("it worked"),
    }
}

#[track_caller]
fn no_calls(driver: &EmulatedDriver) {
    for call in Call::ALL {
        assert_eq!(driver.calls(*call), 0, "{}", call.name());
    }
}

/// Returns the output of a kernel.
fn numbers(device: &Device) -> Result<Vec<u32>> {
    let stream = Stream::new(device)?;
    let mut out = DeviceBuffer::uninit(&stream, 5)?;
    module(device).kernel::<Iota>()?.launch(&stream, Launch::auto(5), (&mut out,))?;
    out.to_host()
}

#[test]
fn every_call_on_a_device_from_before_fails() {
    only_alone!();
    let (driver, device, stream) = fixture();
    let mut buffer = DeviceBuffer::from_host(&stream, &[1.0f32; 100]).unwrap();
    let other = DeviceBuffer::from_host(&stream, &[1.0f32; 100]).unwrap();
    let event = stream.record_event().unwrap();
    let pinned = PinnedBuffer::<u8>::zeroed(&device, 100).unwrap();
    let pool = MemoryPool::new(&device).unwrap();
    let loaded = module(&device);
    let kernel = loaded.kernel::<Iota>().unwrap();
    let mut numbers = DeviceBuffer::<u32>::zeros(&stream, 5).unwrap();
    stream.synchronize().unwrap();
    let _guard = device.guard();
    driver.reset_calls();
    in_a_copy(|| {
        forked(device.synchronize());
        forked(device.memory_info());
        forked(device.load(&IMAGE));
        forked(device.can_access_peer(&device));
        forked(Device::current());
        forked(Stream::new(&device));
        forked(stream.synchronize());
        forked(stream.query());
        forked(stream.synchronize_timeout(Duration::from_secs(1)));
        forked(stream.record_event());
        forked(stream.wait_event(&event));
        forked(event.query());
        forked(event.synchronize());
        forked(event.elapsed_us(&event));
        forked(buffer.to_host());
        forked(stream.copy(&other, &mut buffer));
        forked(buffer.copy_from_host(&[0.0; 100]));
        forked(DeviceBuffer::<f32>::zeros(&stream, 100));
        forked(DeviceBuffer::<f32>::uninit(&device.default_stream(), 100));
        forked(PinnedBuffer::<u8>::zeroed(&device, 100));
        forked(pinned.record_use(&stream));
        forked(kernel.launch(&stream, Launch::auto(5), (&mut numbers,)));
        forked(MemoryPool::new(&device));
        forked(pool.enter());
        forked(pool.capture(&stream));
        forked(pool.empty_cache());
        forked(pool.release());
        let memory = device.memory();
        forked(memory.empty_cache());
        forked(memory.available());
        forked(memory.set_fraction(0.5));
        forked(memory.set_options(memory.options()));
        forked(memory.allow_peer(&device));
        forked(memory.allocate_raw(&stream, 512));
        forked(device.pinned_memory().empty_cache());
        no_calls(&driver);
    });
    assert_eq!(buffer.to_host().unwrap(), [1.0; 100], "this process goes on");
}

#[test]
fn no_device_opens_in_the_copy() {
    only_alone!();
    let device = Device::emulated(0).unwrap();
    let unopened = driver(2);
    in_a_copy(|| {
        forked(Device::emulated(0));
        forked(Device::open("cpu:0"));
        forked(Device::from_id(DeviceId::Emulated(7)));
        forked(Device::with_driver(unopened.clone(), 1));
        assert!(Device::list().iter().all(|info| !info.id.is_emulated()));
        assert_eq!(Device::emulated_count(), 0);
    });
    in_a_copy(|| in_a_copy(|| forked(Device::emulated(0))));
    assert_eq!(Device::emulated(0).unwrap(), device);
    assert_eq!(
        Device::emulated_count() as usize,
        Device::list().iter().filter(|d| d.id.is_emulated()).count()
    );
}

#[test]
fn drops_in_the_copy_call_no_driver() {
    only_alone!();
    let (driver, device) = device();
    let [stream, second] = [0; 2].map(|_| Stream::new(&device).unwrap());
    let mut buffer = DeviceBuffer::from_host(&stream, &[1.0f32; 100]).unwrap();
    let pinned = PinnedBuffer::<u8>::zeroed(&device, 100).unwrap();
    let pool = MemoryPool::new(&device).unwrap();
    let guard = pool.enter().unwrap();
    let pooled = DeviceBuffer::<f32>::zeros(&stream, 100).unwrap();
    drop(guard);
    let loaded = module(&device);
    let current = device.guard();
    stream.synchronize().unwrap();
    // This work never runs in the copy because its worker thread does not exist there.
    let hold = driver.hold();
    stream.memset(&mut buffer, 0).unwrap();
    buffer.record_stream(&second).unwrap();
    pinned.record_use(&stream).unwrap();
    let event = stream.record_event().unwrap();
    driver.reset_calls();

    let all = (buffer, pooled, pinned, event, pool, loaded, current, stream, second, device);
    let mut all = Some(all);
    // The hold is declared last, so that a failed check ends it before this process waits for the work.
    let hold = hold;
    in_a_copy(|| {
        let device = all.as_ref().map(|all| all.9.clone()).unwrap();
        drop(all.take());
        assert!(device.take_drop_error().is_none(), "nothing was tried");
        drop(device);
        no_calls(&driver);
    });
    drop(hold);
    drop(all);
    assert_eq!(driver.calls(Call::ContextRelease), 1, "this process closes its device as ever");
}

#[test]
fn foreign_owners_survive_drops_in_the_copy() {
    static DROPPED: AtomicBool = AtomicBool::new(false);
    struct Theirs(#[allow(dead_code, reason = "it keeps the memory")] DeviceBuffer<u32>);
    impl Drop for Theirs {
        fn drop(&mut self) {
            DROPPED.store(true, Ordering::Relaxed);
        }
    }

    let (driver, _, stream) = fixture();
    let theirs = DeviceBuffer::<u32>::zeros(&stream, 5).unwrap();
    let ptr = theirs.as_device_ptr();
    // SAFETY: the owner keeps the memory alive, and no other code uses it.
    let foreign = unsafe { DeviceBuffer::<u32>::from_raw(&stream, ptr, 5, Theirs(theirs)) }.unwrap();
    let mut mapped = MappedBuffer::register(&stream, vec![1u32; 5]).unwrap();
    driver.reset_calls();
    let mut foreign = Some(foreign);
    in_a_copy(|| {
        // SAFETY: the call fails before it accesses the address, which has no memory in the copy.
        forked(unsafe { DeviceBuffer::<u32>::from_raw(&stream, ptr, 5, ()) });
        forked(MappedBuffer::register(&stream, vec![1u32; 5]));
        forked(mapped.lock());
        drop((foreign.take(), mapped));
        assert!(!DROPPED.load(Ordering::Relaxed));
        no_calls(&driver);
    });
    assert!(!DROPPED.load(Ordering::Relaxed));
}

#[test]
fn pool_and_capture_guards_end_in_the_copy() {
    only_alone!();
    let (driver, device) = device();
    let [stream, other] = [0; 2].map(|_| Stream::new(&device).unwrap());
    let pool = MemoryPool::new(&device).unwrap();
    let guard = pool.enter().unwrap();
    let capture = pool.capture(&stream).unwrap();
    let buffer = DeviceBuffer::<f32>::uninit(&stream, 100).unwrap();
    buffer.record_stream(&other).unwrap();
    drop(buffer);
    driver.reset_calls();
    let mut guards = Some((capture, guard));
    in_a_copy(|| {
        drop(guards.take());
        assert!(device.take_drop_error().is_none(), "nothing was tried");
        no_calls(&driver);
    });
    drop(guards);
    assert!(driver.calls(Call::EventRecord) > 0, "this process does what the capture put off");
}

#[test]
fn a_held_lock_does_not_block_the_copy() {
    only_alone!();
    let (driver, device, stream) = fixture();
    let mut buffer = DeviceBuffer::<u8>::zeros(&stream, 100).unwrap();
    drop(DeviceBuffer::<u8>::zeros(&stream, 30 << 20).unwrap());
    stream.synchronize().unwrap();
    let hold = driver.hold();
    stream.memset(&mut buffer, 0).unwrap();
    let waits = driver.calls(Call::StreamSynchronize);
    std::thread::scope(|scope| {
        // This call waits for the stream while it holds the lock of the stream's memory.
        scope.spawn(|| device.memory().empty_cache().unwrap());
        let mut buffer = Some(buffer);
        // The hold is declared last, so that a failed check ends it before this process waits for the lock.
        let hold = hold;
        while driver.calls(Call::StreamSynchronize) == waits {
            std::thread::yield_now();
        }
        in_a_copy(|| {
            forked(DeviceBuffer::<u8>::zeros(&stream, 100));
            forked(device.memory().empty_cache());
            drop(buffer.take());
        });
        drop(hold);
    });
}

#[test]
fn a_fork_during_use_leaves_a_working_copy() {
    only_alone!();
    let (_driver, device, stream) = fixture();
    let stop = AtomicBool::new(false);
    /// Stops the threads even if a check fails.
    struct Stop<'a>(&'a AtomicBool);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    std::thread::scope(|scope| {
        let _stop = Stop(&stop);
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let buffer = DeviceBuffer::<u8>::zeros(&stream, 5000).unwrap();
                    let pinned = PinnedBuffer::<u8>::zeroed(&device, 100).unwrap();
                    pinned.record_use(&stream).unwrap();
                    drop((buffer, pinned));
                }
            });
        }
        for _ in 0..50 {
            let buffer = DeviceBuffer::<u8>::zeros(&stream, 5000).unwrap();
            let mut buffer = Some(buffer);
            in_a_copy(|| {
                forked(DeviceBuffer::<u8>::zeros(&stream, 5000));
                forked(device.memory().empty_cache());
                let buffer = buffer.take().unwrap();
                forked(buffer.to_host());
                drop(buffer);
            });
        }
    });
}

#[test]
fn a_copy_made_early_opens_its_own_device() {
    only_alone!();
    // Neither query uses a device.
    assert!(!Device::list().is_empty());
    assert!(Device::emulated_count() > 0);
    Device::is_available();
    in_a_copy(|| {
        let device = Device::emulated(0).unwrap();
        assert_eq!(numbers(&device).unwrap(), [0, 1, 2, 3, 4]);
        in_a_copy(|| forked(device.synchronize()));
        drop(device);
    });
    assert_eq!(numbers(&Device::emulated(0).unwrap()).unwrap(), [0, 1, 2, 3, 4]);
}

#[test]
fn the_best_device_fails_in_the_copy() {
    only_alone!();
    let best = Device::best().unwrap();
    let current = Device::current().unwrap();
    assert_eq!(best, current);
    in_a_copy(|| {
        forked(Device::best());
        forked(Device::current());
        if !best.is_emulated() {
            assert!(!Device::is_available());
        }
    });
}

#[test]
fn futures_fail_in_the_copy() {
    only_alone!();
    let (driver, _device, stream) = fixture();
    let hold = driver.hold();
    let mut completed = Box::pin(stream.completed());
    poll_until_registered(completed.as_mut(), &Arc::default());
    let mut completed = Some(completed);
    in_a_copy(|| {
        let mut completed = completed.take().unwrap();
        let polled = completed.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(polled, Poll::Ready(Err(Error::Forked))));
    });
    drop(hold);
    block_on(completed.unwrap()).unwrap();
}
