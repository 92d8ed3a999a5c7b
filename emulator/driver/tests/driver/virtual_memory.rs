//! Tests of reserved addresses, mapped memory, stream-ordered memory and peers, on the emulated driver.
//!
//! Safety, everywhere in this file: the emulated driver checks its arguments and refuses invalid ones. Host memory of
//! copies lives until the stream has been waited for.
#![allow(clippy::undocumented_unsafe_blocks, reason = "the argument is the same everywhere, see above")]

use crate::common::random;
use crate::rig::{Rig, refused};
use warpsmith_runtime::driver::{
    DevicePtr, Driver, MemoryDriver, PhysicalHandle, StreamDriver, StreamHandle,
};
use warpsmith_runtime::driver::{DriverError as Error, Result};
use warpsmith_runtime::emulated::EmulatedDriver;

const PAGE: usize = 2 << 20;
const TOTAL: u64 = 64 << 20;
const INVALID_VALUE: u32 = 1;
const OUT_OF_MEMORY: u32 = 2;
const INVALID_HANDLE: u32 = 400;
const NOT_SUPPORTED: u32 = 801;

fn rig() -> Rig {
    Rig::of(&EmulatedDriver::builder().memory(TOTAL).build(), 0)
}

impl Rig {
    fn reserve(&self, pages: usize) -> DevicePtr {
        self.driver.virtual_reserve(self.context, pages * PAGE).unwrap()
    }

    fn create(&self, pages: usize) -> PhysicalHandle {
        self.driver.physical_create(self.context, pages * PAGE).unwrap()
    }

    fn map(&self, ptr: DevicePtr, pages: usize, handle: PhysicalHandle) -> Result<()> {
        unsafe { self.driver.virtual_map(self.context, ptr, pages * PAGE, handle) }
    }

    fn access(&self, ptr: DevicePtr, pages: usize) -> Result<()> {
        unsafe { self.driver.virtual_set_access(self.context, ptr, pages * PAGE, &[self.ordinal]) }
    }

    fn unmap(&self, ptr: DevicePtr, pages: usize) -> Result<()> {
        unsafe { self.driver.virtual_unmap(self.context, ptr, pages * PAGE) }
    }

    fn release(&self, ptr: DevicePtr, pages: usize) -> Result<()> {
        unsafe { self.driver.virtual_release(self.context, ptr, pages * PAGE) }
    }

    fn release_handle(&self, handle: PhysicalHandle) -> Result<()> {
        unsafe { self.driver.physical_release(self.context, handle) }
    }

    /// Maps new memory at `ptr` that this device can use; returns its handle.
    fn grow(&self, ptr: DevicePtr, pages: usize) -> PhysicalHandle {
        let handle = self.create(pages);
        self.map(ptr, pages, handle).unwrap();
        self.access(ptr, pages).unwrap();
        handle
    }

    fn write(&self, ptr: DevicePtr, data: &[u8]) -> Result<()> {
        let src = data.as_ptr().cast();
        unsafe { self.driver.copy_to_device(self.context, ptr, src, data.len(), self.stream) }?;
        self.wait()
    }

    fn fill(&self, ptr: DevicePtr, bytes: usize) -> Result<()> {
        unsafe { self.driver.memset(self.context, ptr, 7, bytes, self.stream) }
    }

    fn stream_free(&self, ptr: DevicePtr, stream: StreamHandle) -> Result<()> {
        unsafe { self.driver.stream_free(self.context, ptr, stream) }
    }

    fn free_bytes(&self) -> u64 {
        self.driver.memory_info(self.context).unwrap().0
    }
}

#[test]
fn a_reservation_grows_and_keeps_its_data() {
    let rig = rig();
    assert_eq!(rig.driver.virtual_granularity(rig.context).unwrap(), Some(PAGE));
    let base = rig.reserve(1 << 20);
    assert_eq!(base.0 % PAGE as u64, 0);
    assert_eq!(rig.free_bytes(), TOTAL, "addresses cost nothing");

    let mut random = random();
    let data: Vec<u8> = (0..8 * PAGE).map(|_| random.u64(..) as u8).collect();
    for page in 0..8 {
        let at = base.offset(page * PAGE);
        rig.grow(at, 1);
        assert_eq!(rig.try_read(at.offset(PAGE - 5), 5).unwrap(), [0xFF; 5], "memory starts poisoned");
        rig.write(at, &data[page * PAGE..][..PAGE]).unwrap();
        assert_eq!(rig.free_bytes(), TOTAL - ((page + 1) * PAGE) as u64);
    }
    assert!(rig.try_read(base, 8 * PAGE).unwrap() == data, "one copy over all pages");

    // A hole in the middle, and new memory in it, do not affect the neighbors.
    rig.unmap(base.offset(3 * PAGE), 2).unwrap();
    assert!(rig.try_read(base, 3 * PAGE).unwrap() == data[..3 * PAGE]);
    rig.grow(base.offset(3 * PAGE), 2);
    let mut expected = data;
    expected[3 * PAGE..5 * PAGE].fill(0xFF);
    assert!(rig.try_read(base, 8 * PAGE).unwrap() == expected);

    rig.launch(base.offset(5 * PAGE - 8), 4).unwrap();
    let written = [0u32, 1, 2, 3].map(u32::to_ne_bytes).concat();
    assert_eq!(rig.try_read(base.offset(5 * PAGE - 8), 16).unwrap(), written, "a kernel over two mappings");
}

#[test]
fn addresses_without_memory_or_access_are_refused() {
    let rig = rig();
    let base = rig.reserve(4);
    let second = base.offset(PAGE);
    for ptr in [base, second] {
        refused(rig.write(ptr, &[1]), INVALID_VALUE, "no memory is mapped");
        refused(rig.try_read(ptr, 1), INVALID_VALUE, "no memory is mapped");
        refused(rig.fill(ptr, 1), INVALID_VALUE, "no memory is mapped");
        refused(rig.launch(ptr, 1), INVALID_VALUE, "no memory is mapped");
    }
    let handle = rig.create(1);
    rig.map(second, 1, handle).unwrap();
    refused(rig.write(second, &[1]), INVALID_VALUE, "not made accessible");
    refused(rig.launch(second, 1), INVALID_VALUE, "not made accessible");
    assert!(rig.driver.accessible_from(second).is_empty());
    rig.access(second, 1).unwrap();
    assert_eq!(rig.driver.accessible_from(second.offset(PAGE - 1)), [0]);
    rig.write(second, &[1]).unwrap();
    rig.launch(second, 1).unwrap();
    rig.wait().unwrap();

    // Accesses beyond the mapping's ends, and beyond the reservation.
    refused(rig.try_read(second.offset(PAGE - 1), 2), INVALID_VALUE, "no memory is mapped");
    refused(rig.try_read(DevicePtr(second.0 - 1), 2), INVALID_VALUE, "no memory is mapped");
    refused(rig.fill(second, usize::MAX), INVALID_VALUE, "beyond their reservation");
    refused(rig.try_read(second, 4 * PAGE), INVALID_VALUE, "beyond their reservation");

    rig.unmap(second, 1).unwrap();
    refused(rig.try_read(second, 1), INVALID_VALUE, "no memory is mapped");
    rig.release(base, 4).unwrap();
    refused(rig.try_read(second, 1), INVALID_VALUE, "not within a live block");
}

#[test]
fn wrong_maps_are_refused_and_change_nothing() {
    let rig = rig();
    let base = rig.reserve(4);
    let [one, two] = [1, 2].map(|pages| rig.create(pages));
    for bytes in [0, 1, PAGE - 1, PAGE + 1] {
        refused(rig.driver.virtual_reserve(rig.context, bytes), INVALID_VALUE, "granularity");
        refused(rig.driver.physical_create(rig.context, bytes), INVALID_VALUE, "granularity");
    }
    refused(rig.map(base, 1, two), INVALID_VALUE, "bytes, not");
    refused(rig.map(base.offset(PAGE / 2), 1, one), INVALID_VALUE, "multiple of the granularity");
    refused(rig.map(base.offset(3 * PAGE), 2, two), INVALID_VALUE, "not within a reservation");
    refused(rig.map(DevicePtr(base.0 - PAGE as u64), 1, one), INVALID_VALUE, "not within a reservation");
    refused(rig.map(base, 1, PhysicalHandle(u64::MAX)), INVALID_VALUE, "unknown");
    assert!((0..4).all(|page| rig.try_read(base.offset(page * PAGE), 1).is_err()));

    rig.map(base.offset(PAGE), 2, two).unwrap();
    refused(rig.map(base, 2, two), INVALID_VALUE, "mapped already");
    for page in [1, 2] {
        refused(rig.map(base.offset(page * PAGE), 1, one), INVALID_VALUE, "have memory mapped already");
    }
    let other = rig.create(2);
    refused(rig.map(base, 2, other), INVALID_VALUE, "have memory mapped already");
    rig.map(base, 1, one).unwrap();

    // Only whole mappings, but several at once.
    for (page, pages) in [(1, 1), (2, 1), (0, 2), (2, 2), (0, 4), (3, 1)] {
        let ptr = base.offset(page * PAGE);
        refused(rig.unmap(ptr, pages), INVALID_VALUE, "are not whole mappings");
        refused(rig.access(ptr, pages), INVALID_VALUE, "are not whole mappings");
    }
    refused(
        unsafe { rig.driver.virtual_set_access(rig.context, base, PAGE, &[0, 1]) },
        INVALID_VALUE,
        "no device 1",
    );
    assert!(rig.driver.accessible_from(base).is_empty());
    rig.access(base, 3).unwrap();
    rig.unmap(base, 3).unwrap();
    refused(rig.unmap(base, 3), INVALID_VALUE, "are not whole mappings");
}

#[test]
fn memory_counts_while_held_or_mapped() {
    let rig = rig();
    let base = rig.reserve(8);
    let free = |pages: usize| TOTAL - (pages * PAGE) as u64;
    let [first, second, third] = [1, 2, 3].map(|pages| rig.create(pages));
    assert_eq!((rig.free_bytes(), rig.driver.live_allocations(0)), (free(6), 3), "counted when made");

    rig.release_handle(first).unwrap();
    assert_eq!(rig.free_bytes(), free(5), "never mapped");
    refused(rig.release_handle(first), INVALID_VALUE, "released");
    refused(rig.map(base, 1, first), INVALID_VALUE, "released");

    // A handle released while mapped keeps the memory alive.
    rig.map(base, 2, second).unwrap();
    rig.access(base, 2).unwrap();
    rig.release_handle(second).unwrap();
    refused(rig.release_handle(second), INVALID_VALUE, "released");
    assert_eq!(rig.free_bytes(), free(5));
    rig.write(base, &[5; 100]).unwrap();
    assert_eq!(rig.try_read(base, 100).unwrap(), [5; 100]);
    rig.unmap(base, 2).unwrap();
    assert_eq!(rig.free_bytes(), free(3));

    // Memory unmapped while its handle is held can be mapped again elsewhere; access rights are not kept.
    rig.map(base, 3, third).unwrap();
    rig.access(base, 3).unwrap();
    refused(rig.release(base, 8), INVALID_VALUE, "memory is mapped");
    rig.unmap(base, 3).unwrap();
    assert_eq!(rig.free_bytes(), free(3));
    let elsewhere = base.offset(5 * PAGE);
    rig.map(elsewhere, 3, third).unwrap();
    refused(rig.try_read(elsewhere, 1), INVALID_VALUE, "not made accessible");
    rig.unmap(elsewhere, 3).unwrap();
    rig.release_handle(third).unwrap();
    assert_eq!((rig.free_bytes(), rig.driver.live_allocations(0)), (TOTAL, 0));

    for (offset, pages) in [(0, 7), (0, 9), (1, 7)] {
        refused(rig.release(base.offset(offset * PAGE), pages), INVALID_VALUE, "not a reservation");
    }
    assert_eq!(rig.driver.live_reservations(0), 1);
    rig.release(base, 8).unwrap();
    refused(rig.release(base, 8), INVALID_VALUE, "not a reservation");
    assert_eq!(rig.driver.live_reservations(0), 0);
}

#[test]
fn blocks_pools_and_mapped_memory_share_the_capacity() {
    let rig = rig();
    let too_much = TOTAL as usize + PAGE;
    refused(rig.driver.physical_create(rig.context, too_much), OUT_OF_MEMORY, "physical_create");
    let handle = rig.create(16);
    let block = rig.driver.memory_allocate(rig.context, 20 << 20).unwrap();
    refused(rig.driver.stream_allocate(rig.context, 20 << 20, rig.stream), OUT_OF_MEMORY, "stream_allocate");
    let pooled = rig.driver.stream_allocate(rig.context, 10 << 20, rig.stream).unwrap();
    refused(rig.driver.physical_create(rig.context, PAGE * 2), OUT_OF_MEMORY, "out of memory");
    rig.create(1);
    assert_eq!(rig.free_bytes(), 0);
    refused(rig.driver.memory_allocate(rig.context, 1), OUT_OF_MEMORY, "out of memory");
    rig.release_handle(handle).unwrap();
    unsafe { rig.driver.memory_free(rig.context, block) }.unwrap();
    unsafe { rig.driver.memory_free(rig.context, pooled) }.unwrap();
    assert_eq!(rig.free_bytes(), TOTAL - PAGE as u64);
}

#[test]
fn memory_that_enqueued_work_names_is_not_unmapped() {
    let rig = rig();
    let base = rig.reserve(3);
    for page in 0..3 {
        rig.grow(base.offset(page * PAGE), 1);
    }
    let hold = rig.driver.hold();
    rig.fill(base.offset(PAGE + 10), 1).unwrap();
    rig.launch(base.offset(2 * PAGE), 3).unwrap();
    refused(rig.unmap(base, 3), INVALID_VALUE, "still used");
    refused(rig.unmap(base.offset(PAGE), 1), INVALID_VALUE, "still used");
    refused(rig.unmap(base.offset(2 * PAGE), 1), INVALID_VALUE, "still used");
    rig.unmap(base, 1).unwrap();
    drop(hold);
    rig.wait().unwrap();
    assert_eq!(rig.try_read(base.offset(PAGE + 10), 1).unwrap(), [7]);
    rig.unmap(base.offset(PAGE), 2).unwrap();
}

#[test]
fn stream_ordered_memory_is_freed_in_order() {
    let rig = rig();
    let (driver, context) = (&rig.driver, rig.context);
    let [first, second] =
        [1000, 3000].map(|bytes| driver.stream_allocate(context, bytes, rig.stream).unwrap());
    assert_eq!(first.0 % 512, 0);
    assert_eq!(driver.stream_pool_info(context).unwrap(), (4000, 4000));
    rig.write(second, &[3; 3000]).unwrap();

    let hold = driver.hold();
    rig.fill(first, 1000).unwrap();
    rig.stream_free(first, rig.stream).unwrap();
    rig.fill(second, 10).unwrap();
    assert_eq!((rig.free_bytes(), driver.live_allocations(0)), (TOTAL - 4000, 2), "the stream stands still");
    refused(rig.fill(first, 1), INVALID_VALUE, "not within a live block");
    refused(rig.stream_free(first, rig.stream), INVALID_VALUE, "freed twice");
    refused(unsafe { driver.memory_free(context, first) }, INVALID_VALUE, "freed twice");
    drop(hold);
    rig.wait().unwrap();
    assert_eq!((rig.free_bytes(), driver.live_allocations(0)), (TOTAL - 3000, 1));
    assert_eq!(driver.stream_pool_info(context).unwrap(), (3000, 3000));
    assert_eq!(rig.try_read(second, 11).unwrap(), [7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 3]);
    driver.stream_pool_trim(context, 0).unwrap();

    // Another stream may free it after a wait.
    let other = driver.stream_create(context, 0).unwrap();
    let event = driver.event_create(context, false).unwrap();
    let hold = driver.hold();
    rig.fill(second, 3000).unwrap();
    driver.event_record(context, event, rig.stream).unwrap();
    driver.stream_wait_event(context, other, event).unwrap();
    rig.stream_free(second, other).unwrap();
    drop(hold);
    driver.stream_synchronize(context, other).unwrap();
    assert_eq!((rig.free_bytes(), driver.stream_pool_info(context).unwrap()), (TOTAL, (0, 0)));

    let plain = driver.memory_allocate(context, 1).unwrap();
    refused(rig.stream_free(plain, rig.stream), INVALID_VALUE, "not allocated in stream order");
    refused(driver.stream_allocate(context, 0, rig.stream), INVALID_VALUE, "zero bytes");
    refused(driver.stream_allocate(context, 1, StreamHandle(u64::MAX)), INVALID_HANDLE, "unknown");
    let pooled = driver.stream_allocate(context, 1, rig.stream).unwrap();
    refused(rig.stream_free(pooled, StreamHandle(u64::MAX)), INVALID_HANDLE, "unknown");
    rig.fill(pooled, 1).unwrap();
    rig.stream_free(pooled, rig.stream).unwrap();
    rig.wait().unwrap();
}

#[test]
fn an_unordered_free_stops_the_context() {
    let rig = rig();
    let other = rig.driver.stream_create(rig.context, 0).unwrap();
    let event = rig.driver.event_create(rig.context, false).unwrap();
    let ptr = rig.driver.stream_allocate(rig.context, 100, rig.stream).unwrap();
    // The kernel waits for an event recorded after the free, so it cannot have run when the free is reached.
    let hold = rig.driver.hold();
    rig.stream_free(ptr, other).unwrap();
    rig.driver.event_record(rig.context, event, other).unwrap();
    rig.driver.stream_wait_event(rig.context, rig.stream, event).unwrap();
    rig.launch(ptr, 25).unwrap();
    drop(hold);
    let error = rig.driver.context_synchronize(rig.context).unwrap_err();
    assert!(error.stops_context(), "{error}");
    let fault = rig.driver.take_fault(rig.context).unwrap();
    assert!(fault.message.contains("still used") && fault.message.contains("did not wait"), "{fault:?}");
    assert_eq!(rig.driver.live_allocations(0), 1, "the memory was not pulled away");
}

#[test]
fn a_stopped_context_takes_memory_back() {
    let rig = rig();
    let base = rig.reserve(1);
    let handle = rig.grow(base, 1);
    let pooled = rig.driver.stream_allocate(rig.context, 100, rig.stream).unwrap();
    let other = rig.driver.stream_create(rig.context, 0).unwrap();
    rig.poison();
    assert!(rig.driver.virtual_reserve(rig.context, PAGE).unwrap_err().stops_context());
    let results = [
        rig.stream_free(pooled, other),
        rig.unmap(base, 1),
        rig.release_handle(handle),
        rig.release(base, 1),
        rig.driver.stream_synchronize(rig.context, other),
    ];
    assert!(results.iter().all(|result| result.as_ref().is_err_and(Error::stops_context)), "{results:?}");
    assert_eq!((rig.driver.live_allocations(0), rig.driver.live_reservations(0)), (0, 0));
}

#[test]
fn peers_reach_what_they_were_let_into() {
    let driver = EmulatedDriver::builder().devices(3).memory(TOTAL).build();
    let [first, second] = [0, 1].map(|ordinal| Rig::of(&driver, ordinal));
    assert!(driver.peer_can_access(0, 1).unwrap() && driver.peer_can_access(2, 0).unwrap());
    assert!(!driver.peer_can_access(1, 1).unwrap());
    refused(driver.peer_can_access(0, 3), INVALID_VALUE, "no device 3");

    let block = second.driver.memory_allocate(second.context, 100).unwrap();
    second.write(block, &[4; 100]).unwrap();
    refused(first.try_read(block, 100), INVALID_VALUE, "not within a live block");
    refused(driver.peer_enable(first.context, first.context), INVALID_VALUE, "itself");
    driver.peer_enable(first.context, second.context).unwrap();
    driver.peer_enable(first.context, second.context).unwrap();
    assert_eq!(first.try_read(block, 100).unwrap(), [4; 100]);
    refused(first.try_read(block, 101), INVALID_VALUE, "not within a live block");
    let hold = driver.hold();
    first.fill(block, 1).unwrap();
    refused(unsafe { driver.memory_free(second.context, block) }, INVALID_VALUE, "still used");
    drop(hold);
    first.wait().unwrap();
    unsafe { driver.memory_free(second.context, block) }.unwrap();
    let own = driver.memory_allocate(first.context, 1).unwrap();
    refused(second.try_read(own, 1), INVALID_VALUE, "not within a live block");

    // Each range of mapped memory has its own access rights.
    let base = second.reserve(1);
    second.grow(base, 1);
    refused(first.write(base, &[1]), INVALID_VALUE, "not made accessible to device 0");
    unsafe { driver.virtual_set_access(second.context, base, PAGE, &[2, 0]) }.unwrap();
    assert_eq!(driver.accessible_from(base), [0, 1, 2]);
    first.write(base, &[1, 2]).unwrap();
    assert_eq!(second.try_read(base, 2).unwrap(), [1, 2]);
    let hold = driver.hold();
    first.fill(base, 1).unwrap();
    refused(second.unmap(base, 1), INVALID_VALUE, "still used");
    drop(hold);
    first.wait().unwrap();
}

#[test]
fn without_backing_terabytes_are_handed_out_unusable() {
    const TIB: usize = 1 << 40;
    let driver = EmulatedDriver::builder().memory(64 * TIB as u64).unbacked().build();
    let rig = Rig::of(&driver, 0);
    let block = driver.memory_allocate(rig.context, 20 * TIB).unwrap();
    let base = driver.virtual_reserve(rig.context, 30 * TIB).unwrap();
    let handle = driver.physical_create(rig.context, 30 * TIB).unwrap();
    rig.map(base, 30 * TIB / PAGE, handle).unwrap();
    rig.access(base, 30 * TIB / PAGE).unwrap();
    assert_eq!(rig.free_bytes(), 14 * TIB as u64);
    refused(driver.memory_allocate(rig.context, 15 * TIB), OUT_OF_MEMORY, "out of memory");
    for ptr in [block, base] {
        refused(rig.write(ptr, &[1]), NOT_SUPPORTED, "unbacked");
        refused(rig.try_read(ptr, 1), NOT_SUPPORTED, "unbacked");
        refused(rig.fill(ptr, 1), NOT_SUPPORTED, "unbacked");
        refused(rig.launch(ptr, 1), NOT_SUPPORTED, "unbacked");
    }
}

#[cfg(target_os = "linux")]
mod shared {
    use super::*;
    use warpsmith_runtime::driver::ExportedMemory;

    impl Rig {
        fn import(&self, memory: &ExportedMemory, pages: usize) -> Result<PhysicalHandle> {
            // SAFETY: the memory has this many pages.
            unsafe { self.driver.physical_import(self.context, memory, pages * PAGE) }
        }
    }

    #[test]
    fn imported_memory_is_the_same_memory() {
        let (one, other) = (rig(), rig());
        let (own, theirs) = (one.reserve(2), other.reserve(2));
        let handle = one.driver.physical_create_shareable(one.context, 2 * PAGE).unwrap();
        one.map(own, 2, handle).unwrap();
        one.access(own, 2).unwrap();
        assert_eq!(one.read(own, 1000), [0xFF; 1000]);
        let exported = one.driver.physical_export(one.context, handle).unwrap();
        let free = other.free_bytes();
        let imported = other.import(&exported, 2).unwrap();
        other.map(theirs, 2, imported).unwrap();
        other.access(theirs, 2).unwrap();
        // Memory counts where it was created.
        assert_eq!((other.free_bytes(), one.free_bytes()), (free, TOTAL - 2 * PAGE as u64));
        let data: Vec<u8> = {
            let mut random = random();
            (0..5000).map(|_| random.u8(..)).collect()
        };
        one.write(own.offset(PAGE), &data).unwrap();
        assert_eq!(other.read(theirs.offset(PAGE), 5000), data);
        // Memory stays while one process has it.
        one.unmap(own, 2).unwrap();
        one.release_handle(handle).unwrap();
        one.release(own, 2).unwrap();
        drop(exported);
        assert_eq!(one.free_bytes(), TOTAL);
        assert_eq!(other.read(theirs.offset(PAGE), 5000), data);
        other.unmap(theirs, 2).unwrap();
        other.release_handle(imported).unwrap();
        other.release(theirs, 2).unwrap();
    }

    #[test]
    fn what_is_not_exported_memory_is_refused() {
        let rig = rig();
        let plain = rig.create(1);
        refused(rig.driver.physical_export(rig.context, plain), INVALID_VALUE, "not created as shareable");
        let handle = rig.driver.physical_create_shareable(rig.context, PAGE).unwrap();
        let exported = rig.driver.physical_export(rig.context, handle).unwrap();
        refused(rig.import(&exported, 2), INVALID_VALUE, "2097152 bytes, not 4194304");
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        refused(rig.import(&ExportedMemory(file.into()), 1), INVALID_VALUE, "not of an emulated device");
        let too_much = TOTAL as usize;
        let created = rig.driver.physical_create_shareable(rig.context, too_much);
        refused(created, OUT_OF_MEMORY, "out of memory");
        let unbacked = Rig::of(&EmulatedDriver::builder().unbacked().build(), 0);
        let created = unbacked.driver.physical_create_shareable(unbacked.context, PAGE);
        refused(created, NOT_SUPPORTED, "unbacked");
    }
}
