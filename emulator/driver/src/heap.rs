//! Device memory of an emulated device, which consists of host allocations that count against a capacity.
//!
//! Every block is aligned to 512 bytes and filled with `0xFF` (NaN in floats), which reveals a kernel's reads of
//! uninitialized memory. A range is checked against the live blocks before it is copied or freed, so a foreign or stale
//! pointer causes an error instead of a crash. Memory owned by other modules also counts against the capacity
//! ([`Heap::take`]). A block that was freed in stream order must no longer be used, although it stays allocated until
//! its stream reaches the free.
//!
//! [Red zones](redzone) surround every block. The red zones are checked when the block is freed, and for some blocks
//! also when the host waits ([`Heap::inspect`]). Damage is stored until [`Heap::take_damage`] is called.

use std::alloc::Layout;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use warpsmith_emulator::{check, redzone};

use super::control::Call;
use super::control::driver_error;
use super::pages::{ALIGN, Backing};
use warpsmith_driver::DevicePtr;
use warpsmith_driver::error::{DriverError, Result, code};

/// Memory of one context.
#[derive(Debug)]
pub(super) struct Heap {
    /// Name of this kind of block, for messages.
    of: &'static str,
    capacity: u64,
    backing: Backing,
    blocks: Mutex<Blocks>,
}

#[derive(Debug, Default)]
struct Blocks {
    used: u64,
    /// Total size of blocks that were allocated in stream order, in bytes.
    pooled: u64,
    /// Live blocks, keyed by address.
    live: BTreeMap<u64, Block>,
    /// Address at which the next inspection starts.
    inspected: u64,
    /// Description of damage that was found, until it is taken.
    damage: Option<String>,
}

#[derive(Debug, Clone, Copy)]
struct Block {
    bytes: usize,
    kind: Kind,
}

/// Allocation kind of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Plain,
    /// Allocated in stream order.
    Pooled,
    /// Allocated in stream order and freed, but its stream has not reached the free yet.
    Leaving,
}

/// Number of blocks that one call of [`Heap::inspect`] checks.
const INSPECTED: usize = 16;

/// Returns the layout of a block with its red zones, and the offset of the block in the layout.
fn layout(bytes: usize) -> Option<(Layout, usize)> {
    let layout = Layout::from_size_align(bytes, ALIGN).ok().filter(|layout| layout.size() > 0)?;
    if check::is_on() { check::with_red_zones(layout) } else { redzone::around(layout) }
}

fn out_of_memory(call: Call) -> DriverError {
    driver_error(call.name(), code::OUT_OF_MEMORY, "out of memory")
}

fn not_live(call: Call, ptr: DevicePtr) -> DriverError {
    let text = format!("{:#x} is not a live block: it was freed twice, or belongs to another device", ptr.0);
    driver_error(call.name(), code::INVALID_VALUE, text)
}

fn still_used(call: Call, ptr: DevicePtr) -> DriverError {
    driver_error(call.name(), code::INVALID_VALUE, format!("{:#x} is still used by enqueued work", ptr.0))
}

impl Blocks {
    /// Checks the red zones of a block that has host memory.
    fn compare(&mut self, of: &str, address: u64, bytes: usize) {
        let start = std::ptr::with_exposed_provenance_mut(address as usize);
        // SAFETY: `host_block` allocated the block with its zones and painted them.
        if let Some(damage) = unsafe { redzone::damage(start, bytes) } {
            let text = damage.of(format_args!("{of} of {bytes} bytes at {address:#x}"));
            self.damage.get_or_insert(text);
            // The zones are painted again, so that damage is reported only once. SAFETY: as above; only kernels that
            // access memory out of bounds access the zones.
            unsafe { redzone::paint(start, bytes) };
        }
    }
}

impl Heap {
    pub(super) fn new(of: &'static str, capacity: u64, backing: Backing) -> Self {
        Self { of, capacity, backing, blocks: Mutex::default() }
    }

    fn blocks(&self) -> std::sync::MutexGuard<'_, Blocks> {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of free bytes and the capacity, in bytes.
    pub(super) fn info(&self) -> (u64, u64) {
        (self.capacity - self.blocks().used, self.capacity)
    }

    /// Returns the total size of blocks that were allocated in stream order, in bytes.
    pub(super) fn pooled(&self) -> u64 {
        self.blocks().pooled
    }

    /// Returns the number of live blocks.
    pub(super) fn live(&self) -> usize {
        self.blocks().live.len()
    }

    /// Counts bytes that are not part of a block against the capacity.
    pub(super) fn take(&self, call: Call, bytes: usize) -> Result<()> {
        let mut blocks = self.blocks();
        if bytes as u64 > self.capacity - blocks.used {
            return Err(out_of_memory(call));
        }
        blocks.used += bytes as u64;
        Ok(())
    }

    /// Releases bytes that [`Self::take`] has counted.
    pub(super) fn give(&self, bytes: usize) {
        self.blocks().used -= bytes as u64;
    }

    /// Allocates a block. Blocks that are allocated for [`Call::StreamAllocate`] can be freed in stream order.
    pub(super) fn allocate(&self, call: Call, bytes: usize) -> Result<DevicePtr> {
        if bytes == 0 {
            return Err(driver_error(call.name(), code::INVALID_VALUE, "zero bytes"));
        }
        let mut blocks = self.blocks();
        if bytes as u64 > self.capacity - blocks.used {
            return Err(out_of_memory(call));
        }
        let address = match &self.backing {
            Backing::Host => host_block(bytes).inspect(|address| {
                check::allocated(*address as usize, bytes);
                if call == Call::PinnedAllocate {
                    // The host may write to the block at any time.
                    check::written(*address as usize, bytes);
                }
            }),
            Backing::Numbers(numbers) => numbers.take(bytes),
        };
        let address = address.ok_or_else(|| out_of_memory(call))?;
        blocks.used += bytes as u64;
        let kind = if call == Call::StreamAllocate { Kind::Pooled } else { Kind::Plain };
        if kind == Kind::Pooled {
            blocks.pooled += bytes as u64;
        }
        blocks.live.insert(address, Block { bytes, kind });
        Ok(DevicePtr(address))
    }

    /// Frees a block. `busy` returns true if pending work uses a range of addresses.
    ///
    /// # Safety
    /// The block's memory must no longer be in use.
    pub(super) unsafe fn free(
        &self,
        call: Call,
        ptr: DevicePtr,
        busy: impl FnOnce(u64, u64) -> bool,
    ) -> Result<()> {
        let mut blocks = self.blocks();
        let block = blocks.live.get(&ptr.0).copied().filter(|block| block.kind != Kind::Leaving);
        let block = block.ok_or_else(|| not_live(call, ptr))?;
        if busy(ptr.0, ptr.0 + block.bytes as u64) {
            return Err(still_used(call, ptr));
        }
        // SAFETY: guaranteed by the caller.
        unsafe { self.remove(&mut blocks, ptr.0, block) };
        Ok(())
    }

    /// Marks a block as freed in stream order, so that it must no longer be used. Returns its size in bytes.
    pub(super) fn leave(&self, ptr: DevicePtr) -> Result<usize> {
        match self.blocks().live.get_mut(&ptr.0) {
            Some(block) if block.kind == Kind::Pooled => {
                block.kind = Kind::Leaving;
                Ok(block.bytes)
            }
            Some(Block { kind: Kind::Plain, .. }) => {
                let text = format!("{:#x} was not allocated in stream order", ptr.0);
                Err(driver_error(Call::StreamFree.name(), code::INVALID_VALUE, text))
            }
            _ => Err(not_live(Call::StreamFree, ptr)),
        }
    }

    /// Undoes [`Self::leave`].
    pub(super) fn stay(&self, ptr: DevicePtr) {
        if let Some(block) = self.blocks().live.get_mut(&ptr.0) {
            block.kind = Kind::Pooled;
        }
    }

    /// Frees a block that [`Self::leave`] marked, after its stream has reached the free. A block that other work still
    /// uses, according to `busy`, is kept until the heap is dropped.
    ///
    /// # Safety
    /// The block's memory must no longer be in use.
    pub(super) unsafe fn left(&self, ptr: DevicePtr, busy: impl FnOnce(u64, u64) -> bool) -> Result<()> {
        let mut blocks = self.blocks();
        let block = blocks.live.get(&ptr.0).copied().filter(|block| block.kind == Kind::Leaving);
        let block = block.ok_or_else(|| not_live(Call::StreamFree, ptr))?;
        if busy(ptr.0, ptr.0 + block.bytes as u64) {
            return Err(still_used(Call::StreamFree, ptr));
        }
        // SAFETY: guaranteed by the caller.
        unsafe { self.remove(&mut blocks, ptr.0, block) };
        Ok(())
    }

    /// # Safety
    /// The block must be live, and its memory must no longer be in use.
    unsafe fn remove(&self, blocks: &mut Blocks, address: u64, block: Block) {
        blocks.live.remove(&address);
        blocks.used -= block.bytes as u64;
        if block.kind != Kind::Plain {
            blocks.pooled -= block.bytes as u64;
        }
        if matches!(self.backing, Backing::Host) {
            blocks.compare(self.of, address, block.bytes);
            // SAFETY: the block was allocated with this size, and the caller guarantees that it is not in use.
            unsafe { release(address, block.bytes) };
        }
    }

    /// Checks the red zones of some blocks. Each call continues where the previous one stopped. Returns true if the
    /// check has reached the last block.
    pub(super) fn inspect(&self) -> bool {
        if matches!(self.backing, Backing::Numbers(_)) {
            return true;
        }
        let mut blocks = self.blocks();
        for _ in 0..INSPECTED {
            let Some((&address, &Block { bytes, .. })) = blocks.live.range(blocks.inspected..).next() else {
                blocks.inspected = 0;
                return true;
            };
            blocks.compare(self.of, address, bytes);
            blocks.inspected = address + 1;
        }
        false
    }

    /// Returns a description of the damage around blocks that was found since the last call.
    pub(super) fn take_damage(&self) -> Option<String> {
        self.blocks().damage.take()
    }

    /// Returns true if a range is within one live block.
    pub(super) fn holds(&self, ptr: DevicePtr, bytes: usize) -> bool {
        let blocks = self.blocks();
        blocks.live.range(..=ptr.0).next_back().is_some_and(|(start, block)| {
            let end = start + block.bytes as u64;
            block.kind != Kind::Leaving && ptr.0.checked_add(bytes as u64).is_some_and(|last| last <= end)
        })
    }
}

/// Allocates a block in process memory, filled with `0xFF`. `bytes` must not be 0.
fn host_block(bytes: usize) -> Option<u64> {
    let (layout, before) = layout(bytes)?;
    // SAFETY: the layout's size is not zero.
    let pointer = unsafe { std::alloc::alloc(layout) };
    if pointer.is_null() {
        return None;
    }
    // SAFETY: the block was just allocated with this size, `bytes` plus the red zones. In a checked program, the red
    // zones of the layout are larger.
    unsafe {
        pointer.write_bytes(0xFF, layout.size());
        redzone::paint(pointer.add(before), bytes);
    }
    Some((pointer.expose_provenance() + before) as u64)
}

/// Freed blocks of checked programs, in the order in which they were freed, with their total size in bytes. They are
/// kept so that a kernel that still uses one of them is detected.
static FREED: Mutex<(VecDeque<(u64, usize)>, usize)> = Mutex::new((VecDeque::new(), 0));
/// Maximum total size of freed blocks that are kept, in bytes.
const KEPT_FREED: usize = 64 << 20;

/// # Safety
/// `address` and `bytes` must belong to a block from [`host_block`] that is no longer used.
unsafe fn release(address: u64, bytes: usize) {
    if !check::is_on() {
        // SAFETY: guaranteed by the caller.
        return unsafe { deallocate(address, bytes) };
    }
    check::freed(address as usize, bytes);
    let mut freed = FREED.lock().unwrap_or_else(PoisonError::into_inner);
    freed.0.push_back((address, bytes));
    freed.1 += bytes;
    while freed.1 > KEPT_FREED
        && let Some((address, bytes)) = freed.0.pop_front()
    {
        freed.1 -= bytes;
        check::released(address as usize, bytes);
        // SAFETY: guaranteed by the caller that freed the block.
        unsafe { deallocate(address, bytes) };
    }
}

/// # Safety
/// The caller must uphold the safety contract of [`release`].
unsafe fn deallocate(address: u64, bytes: usize) {
    if let Some((layout, before)) = layout(bytes) {
        let start = std::ptr::with_exposed_provenance_mut(address as usize - before);
        // SAFETY: the block was allocated by `host_block` with the same layout.
        unsafe { std::alloc::dealloc(start, layout) };
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        if matches!(self.backing, Backing::Numbers(_)) {
            return;
        }
        let mut blocks = self.blocks();
        for (address, block) in std::mem::take(&mut blocks.live) {
            blocks.compare(self.of, address, block.bytes);
            // SAFETY: the heap is dropped with its context, after the context's streams have finished their work.
            unsafe { release(address, block.bytes) };
        }
        if let Some(damage) = blocks.damage.take() {
            // No later call can report the damage, so it is printed.
            eprintln!("warpsmith: emulated device: {damage}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALL: Call = Call::MemoryAllocate;

    #[test]
    fn what_is_not_a_live_block_is_refused() {
        let heap = Heap::new("memory", 1 << 20, Backing::Host);
        let block = heap.allocate(CALL, 1000).unwrap();
        assert_eq!((heap.live(), heap.info()), (1, ((1 << 20) - 1000, 1 << 20)));
        assert!(heap.holds(block.offset(999), 1));
        for (offset, bytes) in [(999, 2), (1000, 1), (0, 1001), (0, usize::MAX)] {
            assert!(!heap.holds(block.offset(offset), bytes), "{bytes} bytes at {offset}");
        }
        // SAFETY: the block is not in use; all frees but the last one fail.
        unsafe {
            heap.free(Call::MemoryFree, block.offset(256), |_, _| false).unwrap_err();
            heap.free(Call::MemoryFree, DevicePtr::NULL, |_, _| false).unwrap_err();
            let busy = heap
                .free(Call::MemoryFree, block, |start, end| (start, end) == (block.0, block.0 + 1000))
                .unwrap_err();
            assert!(busy.to_string().contains("still used"), "{busy}");
            heap.free(Call::MemoryFree, block, |_, _| false).unwrap();
            heap.free(Call::MemoryFree, block, |_, _| false).unwrap_err();
        }
        assert_eq!((heap.live(), heap.info().0), (0, 1 << 20));
    }

    #[test]
    fn the_capacity_is_the_limit() {
        let heap = Heap::new("memory", 1000, Backing::Host);
        let first = heap.allocate(CALL, 600).unwrap();
        assert_eq!(heap.allocate(CALL, 401).unwrap_err().code(), Some(code::OUT_OF_MEMORY));
        heap.allocate(CALL, 400).unwrap();
        assert_eq!(heap.allocate(CALL, 1).unwrap_err().code(), Some(code::OUT_OF_MEMORY));
        // SAFETY: the block is not in use.
        unsafe { heap.free(Call::MemoryFree, first, |_, _| false) }.unwrap();
        assert_eq!(heap.info(), (600, 1000));
        assert_eq!(heap.allocate(CALL, 0).unwrap_err().code(), Some(code::INVALID_VALUE));
    }
}
