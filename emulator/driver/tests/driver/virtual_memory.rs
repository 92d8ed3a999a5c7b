//! Tests of reserved addresses, mapped memory, stream-ordered memory and peers, on the emulated driver.
//!
//! Safety, everywhere in this file: the emulated driver checks its arguments and rejects invalid ones. Host memory of
//! copies lives until the stream has been waited for.
#![allow(clippy::undocumented_unsafe_blocks, reason = "the argument is the same everywhere, see above")]

use crate::common::random;
use crate::fixture::{Fixture, refused};
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

fn fixture() -> Fixture {
    Fixture::of(&EmulatedDriver::builder().memory(TOTAL).build(), 0)
}

impl Fixture {
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
    let fixture = fixture();
    assert_eq!(fixture.driver.virtual_granularity(fixture.context).unwrap(), Some(PAGE));
    let base = fixture.reserve(1 << 20);
    assert_eq!(base.0 % PAGE as u64, 0);
    assert_eq!(fixture.free_bytes(), TOTAL, "addresses cost nothing");

    let mut random = random();
    let data: Vec<u8> = (0..8 * PAGE).map(|_| random.u64(..) as u8).collect();
    for page in 0..8 {
        let at = base.offset(page * PAGE);
        fixture.grow(at, 1);
        assert_eq!(fixture.try_read(at.offset(PAGE - 5), 5).unwrap(), [0xFF; 5], "memory starts poisoned");
        fixture.write(at, &data[page * PAGE..][..PAGE]).unwrap();
        assert_eq!(fixture.free_bytes(), TOTAL - ((page + 1) * PAGE) as u64);
    }
    assert!(fixture.try_read(base, 8 * PAGE).unwrap() == data, "one copy over all pages");

    // A hole in the middle, and new memory mapped there, must not affect the neighbors.
    fixture.unmap(base.offset(3 * PAGE), 2).unwrap();
    assert!(fixture.try_read(base, 3 * PAGE).unwrap() == data[..3 * PAGE]);
    fixture.grow(base.offset(3 * PAGE), 2);
    let mut expected = data;
    expected[3 * PAGE..5 * PAGE].fill(0xFF);
    assert!(fixture.try_read(base, 8 * PAGE).unwrap() == expected);

    fixture.launch(base.offset(5 * PAGE - 8), 4).unwrap();
    let written = [0u32, 1, 2, 3].map(u32::to_ne_bytes).concat();
    assert_eq!(
        fixture.try_read(base.offset(5 * PAGE - 8), 16).unwrap(),
        written,
        "a kernel over two mappings"
    );
}

#[test]
fn addresses_without_memory_or_access_are_refused() {
    let fixture = fixture();
    let base = fixture.reserve(4);
    let second = base.offset(PAGE);
    for ptr in [base, second] {
        refused(fixture.write(ptr, &[1]), INVALID_VALUE, "no memory is mapped");
        refused(fixture.try_read(ptr, 1), INVALID_VALUE, "no memory is mapped");
        refused(fixture.fill(ptr, 1), INVALID_VALUE, "no memory is mapped");
        refused(fixture.launch(ptr, 1), INVALID_VALUE, "no memory is mapped");
    }
    let handle = fixture.create(1);
    fixture.map(second, 1, handle).unwrap();
    refused(fixture.write(second, &[1]), INVALID_VALUE, "not made accessible");
    refused(fixture.launch(second, 1), INVALID_VALUE, "not made accessible");
    assert!(fixture.driver.accessible_from(second).is_empty());
    fixture.access(second, 1).unwrap();
    assert_eq!(fixture.driver.accessible_from(second.offset(PAGE - 1)), [0]);
    fixture.write(second, &[1]).unwrap();
    fixture.launch(second, 1).unwrap();
    fixture.wait().unwrap();

    // Accesses beyond the mapping's ends, and beyond the reservation.
    refused(fixture.try_read(second.offset(PAGE - 1), 2), INVALID_VALUE, "no memory is mapped");
    refused(fixture.try_read(DevicePtr(second.0 - 1), 2), INVALID_VALUE, "no memory is mapped");
    refused(fixture.fill(second, usize::MAX), INVALID_VALUE, "beyond their reservation");
    refused(fixture.try_read(second, 4 * PAGE), INVALID_VALUE, "beyond their reservation");

    fixture.unmap(second, 1).unwrap();
    refused(fixture.try_read(second, 1), INVALID_VALUE, "no memory is mapped");
    fixture.release(base, 4).unwrap();
    refused(fixture.try_read(second, 1), INVALID_VALUE, "not within a live block");
}

#[test]
fn wrong_maps_are_refused_and_change_nothing() {
    let fixture = fixture();
    let base = fixture.reserve(4);
    let [one, two] = [1, 2].map(|pages| fixture.create(pages));
    for bytes in [0, 1, PAGE - 1, PAGE + 1] {
        refused(fixture.driver.virtual_reserve(fixture.context, bytes), INVALID_VALUE, "granularity");
        refused(fixture.driver.physical_create(fixture.context, bytes), INVALID_VALUE, "granularity");
    }
    refused(fixture.map(base, 1, two), INVALID_VALUE, "bytes, not");
    refused(fixture.map(base.offset(PAGE / 2), 1, one), INVALID_VALUE, "multiple of the granularity");
    refused(fixture.map(base.offset(3 * PAGE), 2, two), INVALID_VALUE, "not within a reservation");
    refused(fixture.map(DevicePtr(base.0 - PAGE as u64), 1, one), INVALID_VALUE, "not within a reservation");
    refused(fixture.map(base, 1, PhysicalHandle(u64::MAX)), INVALID_VALUE, "unknown");
    assert!((0..4).all(|page| fixture.try_read(base.offset(page * PAGE), 1).is_err()));

    fixture.map(base.offset(PAGE), 2, two).unwrap();
    refused(fixture.map(base, 2, two), INVALID_VALUE, "already mapped");
    for page in [1, 2] {
        refused(fixture.map(base.offset(page * PAGE), 1, one), INVALID_VALUE, "already have memory mapped");
    }
    let other = fixture.create(2);
    refused(fixture.map(base, 2, other), INVALID_VALUE, "already have memory mapped");
    fixture.map(base, 1, one).unwrap();

    // Unmapping requires whole mappings, but can cover several of them.
    for (page, pages) in [(1, 1), (2, 1), (0, 2), (2, 2), (0, 4), (3, 1)] {
        let ptr = base.offset(page * PAGE);
        refused(fixture.unmap(ptr, pages), INVALID_VALUE, "are not whole mappings");
        refused(fixture.access(ptr, pages), INVALID_VALUE, "are not whole mappings");
    }
    refused(
        unsafe { fixture.driver.virtual_set_access(fixture.context, base, PAGE, &[0, 1]) },
        INVALID_VALUE,
        "no device 1",
    );
    assert!(fixture.driver.accessible_from(base).is_empty());
    fixture.access(base, 3).unwrap();
    fixture.unmap(base, 3).unwrap();
    refused(fixture.unmap(base, 3), INVALID_VALUE, "are not whole mappings");
}

#[test]
fn memory_counts_while_held_or_mapped() {
    let fixture = fixture();
    let base = fixture.reserve(8);
    let free = |pages: usize| TOTAL - (pages * PAGE) as u64;
    let [first, second, third] = [1, 2, 3].map(|pages| fixture.create(pages));
    assert_eq!((fixture.free_bytes(), fixture.driver.live_allocations(0)), (free(6), 3), "counted when made");

    fixture.release_handle(first).unwrap();
    assert_eq!(fixture.free_bytes(), free(5), "never mapped");
    refused(fixture.release_handle(first), INVALID_VALUE, "released");
    refused(fixture.map(base, 1, first), INVALID_VALUE, "released");

    // Memory stays alive while it is mapped, even if its handle is released.
    fixture.map(base, 2, second).unwrap();
    fixture.access(base, 2).unwrap();
    fixture.release_handle(second).unwrap();
    refused(fixture.release_handle(second), INVALID_VALUE, "released");
    assert_eq!(fixture.free_bytes(), free(5));
    fixture.write(base, &[5; 100]).unwrap();
    assert_eq!(fixture.try_read(base, 100).unwrap(), [5; 100]);
    fixture.unmap(base, 2).unwrap();
    assert_eq!(fixture.free_bytes(), free(3));

    // Memory that is unmapped while its handle exists can be mapped again elsewhere, but without its access rights.
    fixture.map(base, 3, third).unwrap();
    fixture.access(base, 3).unwrap();
    refused(fixture.release(base, 8), INVALID_VALUE, "memory is mapped");
    fixture.unmap(base, 3).unwrap();
    assert_eq!(fixture.free_bytes(), free(3));
    let elsewhere = base.offset(5 * PAGE);
    fixture.map(elsewhere, 3, third).unwrap();
    refused(fixture.try_read(elsewhere, 1), INVALID_VALUE, "not made accessible");
    fixture.unmap(elsewhere, 3).unwrap();
    fixture.release_handle(third).unwrap();
    assert_eq!((fixture.free_bytes(), fixture.driver.live_allocations(0)), (TOTAL, 0));

    for (offset, pages) in [(0, 7), (0, 9), (1, 7)] {
        refused(fixture.release(base.offset(offset * PAGE), pages), INVALID_VALUE, "not a reservation");
    }
    assert_eq!(fixture.driver.live_reservations(0), 1);
    fixture.release(base, 8).unwrap();
    refused(fixture.release(base, 8), INVALID_VALUE, "not a reservation");
    assert_eq!(fixture.driver.live_reservations(0), 0);
}

#[test]
fn blocks_pools_and_mapped_memory_share_the_capacity() {
    let fixture = fixture();
    let too_much = TOTAL as usize + PAGE;
    refused(fixture.driver.physical_create(fixture.context, too_much), OUT_OF_MEMORY, "physical_create");
    let handle = fixture.create(16);
    let block = fixture.driver.memory_allocate(fixture.context, 20 << 20).unwrap();
    refused(
        fixture.driver.stream_allocate(fixture.context, 20 << 20, fixture.stream),
        OUT_OF_MEMORY,
        "stream_allocate",
    );
    let pooled = fixture.driver.stream_allocate(fixture.context, 10 << 20, fixture.stream).unwrap();
    refused(fixture.driver.physical_create(fixture.context, PAGE * 2), OUT_OF_MEMORY, "out of memory");
    fixture.create(1);
    assert_eq!(fixture.free_bytes(), 0);
    refused(fixture.driver.memory_allocate(fixture.context, 1), OUT_OF_MEMORY, "out of memory");
    fixture.release_handle(handle).unwrap();
    unsafe { fixture.driver.memory_free(fixture.context, block) }.unwrap();
    unsafe { fixture.driver.memory_free(fixture.context, pooled) }.unwrap();
    assert_eq!(fixture.free_bytes(), TOTAL - PAGE as u64);
}

#[test]
fn memory_that_enqueued_work_names_is_not_unmapped() {
    let fixture = fixture();
    let base = fixture.reserve(3);
    for page in 0..3 {
        fixture.grow(base.offset(page * PAGE), 1);
    }
    let hold = fixture.driver.hold();
    fixture.fill(base.offset(PAGE + 10), 1).unwrap();
    fixture.launch(base.offset(2 * PAGE), 3).unwrap();
    refused(fixture.unmap(base, 3), INVALID_VALUE, "still used");
    refused(fixture.unmap(base.offset(PAGE), 1), INVALID_VALUE, "still used");
    refused(fixture.unmap(base.offset(2 * PAGE), 1), INVALID_VALUE, "still used");
    fixture.unmap(base, 1).unwrap();
    drop(hold);
    fixture.wait().unwrap();
    assert_eq!(fixture.try_read(base.offset(PAGE + 10), 1).unwrap(), [7]);
    fixture.unmap(base.offset(PAGE), 2).unwrap();
}

#[test]
fn stream_ordered_memory_is_freed_in_order() {
    let fixture = fixture();
    let (driver, context) = (&fixture.driver, fixture.context);
    let [first, second] =
        [1000, 3000].map(|bytes| driver.stream_allocate(context, bytes, fixture.stream).unwrap());
    assert_eq!(first.0 % 512, 0);
    assert_eq!(driver.stream_pool_info(context).unwrap(), (4000, 4000));
    fixture.write(second, &[3; 3000]).unwrap();

    let hold = driver.hold();
    fixture.fill(first, 1000).unwrap();
    fixture.stream_free(first, fixture.stream).unwrap();
    fixture.fill(second, 10).unwrap();
    assert_eq!(
        (fixture.free_bytes(), driver.live_allocations(0)),
        (TOTAL - 4000, 2),
        "the stream stands still"
    );
    refused(fixture.fill(first, 1), INVALID_VALUE, "not within a live block");
    refused(fixture.stream_free(first, fixture.stream), INVALID_VALUE, "freed twice");
    refused(unsafe { driver.memory_free(context, first) }, INVALID_VALUE, "freed twice");
    drop(hold);
    fixture.wait().unwrap();
    assert_eq!((fixture.free_bytes(), driver.live_allocations(0)), (TOTAL - 3000, 1));
    assert_eq!(driver.stream_pool_info(context).unwrap(), (3000, 3000));
    assert_eq!(fixture.try_read(second, 11).unwrap(), [7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 3]);
    driver.stream_pool_trim(context, 0).unwrap();

    // Another stream may free it after a wait.
    let other = driver.stream_create(context, 0).unwrap();
    let event = driver.event_create(context, false).unwrap();
    let hold = driver.hold();
    fixture.fill(second, 3000).unwrap();
    driver.event_record(context, event, fixture.stream).unwrap();
    driver.stream_wait_event(context, other, event).unwrap();
    fixture.stream_free(second, other).unwrap();
    drop(hold);
    driver.stream_synchronize(context, other).unwrap();
    assert_eq!((fixture.free_bytes(), driver.stream_pool_info(context).unwrap()), (TOTAL, (0, 0)));

    let plain = driver.memory_allocate(context, 1).unwrap();
    refused(fixture.stream_free(plain, fixture.stream), INVALID_VALUE, "not allocated in stream order");
    refused(driver.stream_allocate(context, 0, fixture.stream), INVALID_VALUE, "zero bytes");
    refused(driver.stream_allocate(context, 1, StreamHandle(u64::MAX)), INVALID_HANDLE, "unknown");
    let pooled = driver.stream_allocate(context, 1, fixture.stream).unwrap();
    refused(fixture.stream_free(pooled, StreamHandle(u64::MAX)), INVALID_HANDLE, "unknown");
    fixture.fill(pooled, 1).unwrap();
    fixture.stream_free(pooled, fixture.stream).unwrap();
    fixture.wait().unwrap();
}

#[test]
fn an_unordered_free_stops_the_context() {
    let fixture = fixture();
    let other = fixture.driver.stream_create(fixture.context, 0).unwrap();
    let event = fixture.driver.event_create(fixture.context, false).unwrap();
    let ptr = fixture.driver.stream_allocate(fixture.context, 100, fixture.stream).unwrap();
    // The kernel waits for an event recorded after the free, so it cannot have run when the free is reached.
    let hold = fixture.driver.hold();
    fixture.stream_free(ptr, other).unwrap();
    fixture.driver.event_record(fixture.context, event, other).unwrap();
    fixture.driver.stream_wait_event(fixture.context, fixture.stream, event).unwrap();
    fixture.launch(ptr, 25).unwrap();
    drop(hold);
    let error = fixture.driver.context_synchronize(fixture.context).unwrap_err();
    assert!(error.stops_context(), "{error}");
    let fault = fixture.driver.take_fault(fixture.context).unwrap();
    assert!(fault.message.contains("still used") && fault.message.contains("did not wait"), "{fault:?}");
    assert_eq!(fixture.driver.live_allocations(0), 1, "the memory was not pulled away");
}

#[test]
fn a_stopped_context_takes_memory_back() {
    let fixture = fixture();
    let base = fixture.reserve(1);
    let handle = fixture.grow(base, 1);
    let pooled = fixture.driver.stream_allocate(fixture.context, 100, fixture.stream).unwrap();
    let other = fixture.driver.stream_create(fixture.context, 0).unwrap();
    fixture.poison();
    assert!(fixture.driver.virtual_reserve(fixture.context, PAGE).unwrap_err().stops_context());
    let results = [
        fixture.stream_free(pooled, other),
        fixture.unmap(base, 1),
        fixture.release_handle(handle),
        fixture.release(base, 1),
        fixture.driver.stream_synchronize(fixture.context, other),
    ];
    assert!(results.iter().all(|result| result.as_ref().is_err_and(Error::stops_context)), "{results:?}");
    assert_eq!((fixture.driver.live_allocations(0), fixture.driver.live_reservations(0)), (0, 0));
}

#[test]
fn peers_reach_what_they_were_let_into() {
    let driver = EmulatedDriver::builder().devices(3).memory(TOTAL).build();
    let [first, second] = [0, 1].map(|ordinal| Fixture::of(&driver, ordinal));
    assert!(driver.peer_can_access(0, 1).unwrap() && driver.peer_can_access(2, 0).unwrap());
    assert!(!driver.peer_can_access(1, 1).unwrap());
    refused(driver.peer_can_access(0, 3), INVALID_VALUE, "no device 3");

    let block = second.driver.memory_allocate(second.context, 100).unwrap();
    second.write(block, &[4; 100]).unwrap();
    refused(first.try_read(block, 100), INVALID_VALUE, "not within a live block");
    refused(driver.peer_enable(first.context, first.context), INVALID_VALUE, "its own peer");
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
    let fixture = Fixture::of(&driver, 0);
    let block = driver.memory_allocate(fixture.context, 20 * TIB).unwrap();
    let base = driver.virtual_reserve(fixture.context, 30 * TIB).unwrap();
    let handle = driver.physical_create(fixture.context, 30 * TIB).unwrap();
    fixture.map(base, 30 * TIB / PAGE, handle).unwrap();
    fixture.access(base, 30 * TIB / PAGE).unwrap();
    assert_eq!(fixture.free_bytes(), 14 * TIB as u64);
    refused(driver.memory_allocate(fixture.context, 15 * TIB), OUT_OF_MEMORY, "out of memory");
    for ptr in [block, base] {
        refused(fixture.write(ptr, &[1]), NOT_SUPPORTED, "unbacked");
        refused(fixture.try_read(ptr, 1), NOT_SUPPORTED, "unbacked");
        refused(fixture.fill(ptr, 1), NOT_SUPPORTED, "unbacked");
        refused(fixture.launch(ptr, 1), NOT_SUPPORTED, "unbacked");
    }
}

#[cfg(target_os = "linux")]
mod shared {
    use super::*;
    use warpsmith_runtime::driver::ExportedMemory;

    impl Fixture {
        fn import(&self, memory: &ExportedMemory, pages: usize) -> Result<PhysicalHandle> {
            // SAFETY: the memory has this many pages.
            unsafe { self.driver.physical_import(self.context, memory, pages * PAGE) }
        }
    }

    #[test]
    fn imported_memory_is_the_same_memory() {
        let (one, other) = (fixture(), fixture());
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
        // Memory counts toward the device on which it was created.
        assert_eq!((other.free_bytes(), one.free_bytes()), (free, TOTAL - 2 * PAGE as u64));
        let data: Vec<u8> = {
            let mut random = random();
            (0..5000).map(|_| random.u8(..)).collect()
        };
        one.write(own.offset(PAGE), &data).unwrap();
        assert_eq!(other.read(theirs.offset(PAGE), 5000), data);
        // Memory stays alive while one process has a handle to it.
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
        let fixture = fixture();
        let plain = fixture.create(1);
        refused(
            fixture.driver.physical_export(fixture.context, plain),
            INVALID_VALUE,
            "not created as shareable",
        );
        let handle = fixture.driver.physical_create_shareable(fixture.context, PAGE).unwrap();
        let exported = fixture.driver.physical_export(fixture.context, handle).unwrap();
        refused(fixture.import(&exported, 2), INVALID_VALUE, "2097152 bytes, not 4194304");
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        refused(
            fixture.import(&ExportedMemory(file.into()), 1),
            INVALID_VALUE,
            "does not refer to an emulated device's memory",
        );
        let too_much = TOTAL as usize;
        let created = fixture.driver.physical_create_shareable(fixture.context, too_much);
        refused(created, OUT_OF_MEMORY, "out of memory");
        let unbacked = Fixture::of(&EmulatedDriver::builder().unbacked().build(), 0);
        let created = unbacked.driver.physical_create_shareable(unbacked.context, PAGE);
        refused(created, NOT_SUPPORTED, "unbacked");
    }
}
