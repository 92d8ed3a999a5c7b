//! Reserved addresses of an emulated device, and the memory that is mapped to them. Arguments are checked at least as
//! strictly as on a GPU.
//!
//! Memory counts against the heap's capacity from its creation until its handle has been released and it has been
//! unmapped, in either order. Imported memory counts only for the device on which it was created. Mapped memory is
//! initially filled with `0xFF`, and accesses to addresses without memory fault. A failed call has no effect.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::control::Call;
use super::control::driver_error;
use super::heap::Heap;
use super::pages::{Backing, GRANULARITY, Reserved};
use super::shared_pages::SharedPages;
use warpsmith_driver::error::{DriverError, Result, code};
use warpsmith_driver::{DevicePtr, ExportedMemory, PhysicalHandle};

/// Reserved addresses of one context.
#[derive(Debug)]
pub(super) struct AddressSpace {
    backing: Backing,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Reservations, keyed by start address. Mappings are keyed in the same way.
    reservations: BTreeMap<u64, Reserved>,
    mappings: BTreeMap<u64, Mapping>,
    physical: HashMap<u64, Physical>,
}

/// Memory that is mapped at an address.
#[derive(Debug)]
struct Mapping {
    bytes: usize,
    handle: u64,
    /// Ordinals of the devices that have access to the memory.
    ordinals: BTreeSet<u32>,
}

/// Physical memory, mapped or unmapped.
#[derive(Debug)]
struct Physical {
    bytes: usize,
    /// True if the memory counts against the heap's capacity. Memory of other processes and drivers does not count.
    counts: bool,
    /// Shared pages, if the memory can be exported or was imported.
    shared: Option<SharedPages>,
    /// True until the handle of the memory is released.
    held: bool,
    mapped: bool,
}

fn invalid(call: Call, text: String) -> DriverError {
    driver_error(call.name(), code::INVALID_VALUE, text)
}

/// Checks that a size is a multiple of the granularity.
fn whole_units(call: Call, bytes: usize) -> Result<()> {
    if bytes == 0 || !bytes.is_multiple_of(GRANULARITY) {
        let text = format!("{bytes} bytes are not a positive multiple of the granularity of {GRANULARITY}");
        return Err(invalid(call, text));
    }
    Ok(())
}

impl State {
    /// Returns the reservation that contains a range.
    fn reservation(&self, ptr: DevicePtr, bytes: usize) -> Option<&Reserved> {
        let (_, reserved) = self.reservations.range(..=ptr.0).next_back()?;
        reserved.contains(ptr.0, bytes).then_some(reserved)
    }

    /// Returns the mapping that contains an address, with its start address.
    fn mapping(&self, address: u64) -> Option<(u64, &Mapping)> {
        let (&start, mapping) = self.mappings.range(..=address).next_back()?;
        (address < start + mapping.bytes as u64).then_some((start, mapping))
    }

    /// Checks that a range is within one reservation and consists of entire mappings. Returns the addresses of these
    /// mappings.
    fn whole_mappings(&self, call: Call, ptr: DevicePtr, bytes: usize) -> Result<Vec<u64>> {
        whole_units(call, bytes)?;
        let refused = |why| invalid(call, format!("{bytes} bytes at {:#x} {why}", ptr.0));
        self.reservation(ptr, bytes).ok_or_else(|| refused("are not within a reservation"))?;
        let end = ptr.0 + bytes as u64;
        let mut starts = Vec::new();
        let mut at = ptr.0;
        while at < end {
            match self.mapping(at) {
                Some((start, mapping)) if start == at => {
                    starts.push(start);
                    at += mapping.bytes as u64;
                }
                _ => return Err(refused("are not whole mappings")),
            }
        }
        if at == end { Ok(starts) } else { Err(refused("are not whole mappings")) }
    }

    /// Frees memory whose handle was released and that is not mapped.
    fn settle(&mut self, handle: u64, heap: &Heap) {
        if let Some(physical) = self.physical.get(&handle)
            && !physical.held
            && !physical.mapped
        {
            if physical.counts {
                heap.give(physical.bytes);
            }
            self.physical.remove(&handle);
        }
    }
}

impl AddressSpace {
    pub(super) fn new(backing: Backing) -> Self {
        Self { backing, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of reservations.
    pub(super) fn reservations(&self) -> usize {
        self.state().reservations.len()
    }

    /// Returns the number of live physical allocations.
    pub(super) fn live(&self) -> usize {
        self.state().physical.len()
    }

    pub(super) fn reserve(&self, bytes: usize) -> Result<DevicePtr> {
        let call = Call::VirtualReserve;
        whole_units(call, bytes)?;
        let reserved = self.backing.reserve(bytes).ok_or_else(|| {
            driver_error(
                call.name(),
                code::OUT_OF_MEMORY,
                format!("no range of {bytes} bytes of addresses is free"),
            )
        })?;
        let address = reserved.address();
        self.state().reservations.insert(address, reserved);
        Ok(DevicePtr(address))
    }

    pub(super) fn release(&self, ptr: DevicePtr, bytes: usize) -> Result<()> {
        let call = Call::VirtualRelease;
        let mut state = self.state();
        if state.reservations.get(&ptr.0).is_none_or(|reserved| reserved.bytes() != bytes) {
            return Err(invalid(call, format!("{bytes} bytes at {:#x} are not a reservation", ptr.0)));
        }
        if state.mappings.range(ptr.0..ptr.0 + bytes as u64).next().is_some() {
            return Err(invalid(call, format!("memory is mapped in the reservation at {:#x}", ptr.0)));
        }
        state.reservations.remove(&ptr.0);
        Ok(())
    }

    pub(super) fn create(&self, bytes: usize, heap: &Heap) -> Result<PhysicalHandle> {
        whole_units(Call::PhysicalCreate, bytes)?;
        heap.take(Call::PhysicalCreate, bytes)?;
        Ok(self.add(bytes, true, None))
    }

    pub(super) fn create_shareable(&self, bytes: usize, heap: &Heap) -> Result<PhysicalHandle> {
        let call = Call::PhysicalCreateShareable;
        whole_units(call, bytes)?;
        if matches!(self.backing, Backing::Numbers(_)) {
            let text = "this driver was built without backing memory (`unbacked`)";
            return Err(driver_error(call.name(), code::NOT_SUPPORTED, text));
        }
        heap.take(call, bytes)?;
        match SharedPages::create(bytes) {
            Ok(shared) => Ok(self.add(bytes, true, Some(shared))),
            Err(error) => {
                heap.give(bytes);
                let is_missing = error.kind() == std::io::ErrorKind::Unsupported;
                let code = if is_missing { code::NOT_SUPPORTED } else { code::OUT_OF_MEMORY };
                Err(driver_error(call.name(), code, error.to_string()))
            }
        }
    }

    pub(super) fn export(&self, handle: PhysicalHandle) -> Result<ExportedMemory> {
        let call = Call::PhysicalExport;
        let state = self.state();
        let physical = state.physical.get(&handle.0).filter(|physical| physical.held);
        let physical = physical.ok_or_else(|| unknown(call, handle))?;
        let Some(shared) = &physical.shared else {
            return Err(invalid(call, format!("handle {} was not created as shareable", handle.0)));
        };
        shared.export().map_err(|error| driver_error(call.name(), code::UNKNOWN, error.to_string()))
    }

    pub(super) fn import(&self, memory: &ExportedMemory, bytes: usize) -> Result<PhysicalHandle> {
        let call = Call::PhysicalImport;
        whole_units(call, bytes)?;
        let shared = SharedPages::import(memory, bytes).map_err(|error| invalid(call, error.to_string()))?;
        Ok(self.add(bytes, false, Some(shared)))
    }

    fn add(&self, bytes: usize, counts: bool, shared: Option<SharedPages>) -> PhysicalHandle {
        /// Handles are unique across contexts and drivers.
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let handle = NEXT.fetch_add(1, Ordering::Relaxed);
        self.state().physical.insert(handle, Physical { bytes, counts, shared, held: true, mapped: false });
        PhysicalHandle(handle)
    }

    pub(super) fn release_handle(&self, handle: PhysicalHandle, heap: &Heap) -> Result<()> {
        let mut state = self.state();
        let physical = state.physical.get_mut(&handle.0).filter(|physical| physical.held);
        let physical = physical.ok_or_else(|| unknown(Call::PhysicalRelease, handle))?;
        physical.held = false;
        state.settle(handle.0, heap);
        Ok(())
    }

    /// # Safety
    /// No work may use the range.
    pub(super) unsafe fn map(&self, ptr: DevicePtr, bytes: usize, handle: PhysicalHandle) -> Result<()> {
        let call = Call::VirtualMap;
        whole_units(call, bytes)?;
        let mut state = self.state();
        let physical = state.physical.get(&handle.0).filter(|physical| physical.held);
        let physical = physical.ok_or_else(|| unknown(call, handle))?;
        if physical.mapped {
            return Err(invalid(call, format!("the memory of handle {} is already mapped", handle.0)));
        }
        if physical.bytes != bytes {
            let text = format!("handle {} has {} bytes, not {bytes}", handle.0, physical.bytes);
            return Err(invalid(call, text));
        }
        let refused = |why| invalid(call, format!("{bytes} bytes at {:#x} {why}", ptr.0));
        let reserved =
            state.reservation(ptr, bytes).ok_or_else(|| refused("are not within a reservation"))?;
        if !ptr.0.is_multiple_of(GRANULARITY as u64) {
            return Err(refused("do not start on a multiple of the granularity"));
        }
        let end = ptr.0 + bytes as u64;
        if state.mapping(ptr.0).is_some() || state.mappings.range(ptr.0..end).next().is_some() {
            return Err(refused("already have memory mapped"));
        }
        // SAFETY: nothing is mapped in the range, and the caller guarantees that it is not in use.
        let is_there = unsafe {
            match &physical.shared {
                Some(shared) => reserved.map(ptr.0, bytes, shared),
                None => reserved.commit(ptr.0, bytes),
            }
        };
        if !is_there {
            return Err(driver_error(call.name(), code::OUT_OF_MEMORY, "the system provides no more memory"));
        }
        state.mappings.insert(ptr.0, Mapping { bytes, handle: handle.0, ordinals: BTreeSet::new() });
        if let Some(physical) = state.physical.get_mut(&handle.0) {
            physical.mapped = true;
        }
        Ok(())
    }

    /// Unmaps entire mappings. `busy` returns true if pending work uses a range of addresses.
    ///
    /// # Safety
    /// No work may use the range.
    pub(super) unsafe fn unmap(
        &self,
        ptr: DevicePtr,
        bytes: usize,
        heap: &Heap,
        busy: impl FnOnce(u64, u64) -> bool,
    ) -> Result<()> {
        let call = Call::VirtualUnmap;
        let mut state = self.state();
        let starts = state.whole_mappings(call, ptr, bytes)?;
        if busy(ptr.0, ptr.0 + bytes as u64) {
            let text = format!("{bytes} bytes at {:#x} are still used by enqueued work", ptr.0);
            return Err(invalid(call, text));
        }
        // SAFETY: the caller guarantees that the range is not in use.
        let gone = state.reservation(ptr, bytes).is_some_and(|r| unsafe { r.decommit(ptr.0, bytes) });
        if !gone {
            return Err(driver_error(call.name(), code::UNKNOWN, "the system failed to unmap the memory"));
        }
        for start in starts {
            if let Some(mapping) = state.mappings.remove(&start) {
                if let Some(physical) = state.physical.get_mut(&mapping.handle) {
                    physical.mapped = false;
                }
                state.settle(mapping.handle, heap);
            }
        }
        Ok(())
    }

    pub(super) fn set_access(&self, ptr: DevicePtr, bytes: usize, ordinals: &[u32]) -> Result<()> {
        let mut state = self.state();
        for start in state.whole_mappings(Call::VirtualSetAccess, ptr, bytes)? {
            if let Some(mapping) = state.mappings.get_mut(&start) {
                mapping.ordinals.extend(ordinals);
            }
        }
        Ok(())
    }

    /// Returns the devices that have access to an address; `None` if nothing is mapped there.
    pub(super) fn accessible_from(&self, ptr: DevicePtr) -> Option<Vec<u32>> {
        self.state().mapping(ptr.0).map(|(_, mapping)| mapping.ordinals.iter().copied().collect())
    }

    /// Checks that device `ordinal` may use a range. Returns `None` if the range does not start at reserved addresses.
    pub(super) fn check(&self, call: Call, ordinal: u32, ptr: DevicePtr, bytes: usize) -> Option<Result<()>> {
        let state = self.state();
        state.reservation(ptr, 1)?;
        let refused = |why| Err(invalid(call, format!("{bytes} bytes at {:#x} {why}", ptr.0)));
        if state.reservation(ptr, bytes).is_none() {
            return Some(refused("reach beyond their reservation".to_owned()));
        }
        let end = ptr.0 + bytes as u64;
        let mut at = ptr.0;
        while at < end {
            match state.mapping(at) {
                None => return Some(refused("are reserved, but no memory is mapped there".to_owned())),
                Some((_, mapping)) if !mapping.ordinals.contains(&ordinal) => {
                    return Some(refused(format!("were not made accessible to device {ordinal}")));
                }
                Some((start, mapping)) => at = start + mapping.bytes as u64,
            }
        }
        Some(Ok(()))
    }
}

fn unknown(call: Call, handle: PhysicalHandle) -> DriverError {
    invalid(call, format!("handle {} is unknown or was released", handle.0))
}
