//! Shared memory of a block.
//!
//! At the start of every block, its shared memory is filled with [`POISON`], which reveals reads of memory that was not
//! written. Static memory is identified by its declaration, and each block has its own copy. Each piece has [red
//! zones](redzone), which are checked when a block finishes. All functions panic outside of
//! a kernel.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::cell::{Cell, RefCell};
use std::panic::Location;
use std::ptr::{self, NonNull};

use crate::check;
use crate::redzone::{self, Damage};
use crate::registers::{registers, running};

/// Value of every byte of shared memory at the start of a block.
pub const POISON: u8 = 0xa5;

/// Maximum static shared memory per block, in bytes, which is the limit of every CUDA GPU.
pub const STATIC_LIMIT: usize = 48 * 1024;

/// Alignment of dynamic shared memory in bytes.
pub const DYNAMIC_ALIGN: usize = 1024;

/// Returns the block's memory for the declaration `site`. The memory has the same address for every thread of the
/// block. `site` must be the address of a static that only this declaration uses. If a site requests several sizes,
/// each of them has separate memory.
///
/// # Panics
/// Panics outside of a kernel, if the block's static memory exceeds [`STATIC_LIMIT`], or if `align` is not a power of
/// two.
#[track_caller]
pub fn static_memory(site: *const u8, bytes: usize, align: usize) -> *mut u8 {
    let registers = running("static_memory");
    registers.set().check_time("a use of shared memory", Location::caller());
    registers.block().shared.static_array(site, bytes, align, Location::caller())
}

/// Returns the dynamic shared memory of the block, aligned to [`DYNAMIC_ALIGN`] bytes. The launch specifies its size.
/// If the size is 0, the returned address must not be read.
pub fn dynamic_memory() -> *mut u8 {
    let registers = running("dynamic_memory");
    registers.block().shared.dynamic(registers.shared_bytes.get() as usize)
}

/// Returns the memory of the block for an array in dynamic shared memory. On a GPU, the array starts `offset` bytes
/// after the start of the block's dynamic memory. In the emulator, each array has separate memory, so that an access
/// past the end of one array is not an access to the next array. `site` has the same meaning as for [`static_memory`].
///
/// # Panics
/// Panics outside of a kernel, or if the array extends past the end of the dynamic memory that the launch requested.
#[track_caller]
pub fn dynamic_array(site: *const u8, offset: u32, bytes: usize, align: usize) -> *mut u8 {
    let registers = running("dynamic_array");
    let (end, requested) = (bytes.saturating_add(offset as usize), registers.shared_bytes.get());
    assert!(
        end <= requested as usize,
        "the kernel's shared arrays need at least {end} bytes of dynamic shared memory, but the launch requested \
         {requested}"
    );
    registers.block().shared.site(site, layout_of(bytes, align), Location::caller()).0
}

/// Maps `pointer`, which must point into shared memory of the calling block or to its end, to the same address in block
/// `rank` of the cluster (`mapa`). A fault occurs if the pointer points elsewhere, the rank does not exist, or all
/// threads of that block have exited.
#[track_caller]
pub fn map_shared(pointer: *const u8, rank: u32) -> *mut u8 {
    let location = Location::caller();
    let registers = running("map_shared");
    let (block, set) = (registers.block(), registers.set());
    let cluster = set.cluster(block);
    let fail = |message: String| -> ! {
        set.fail_here(set.misuse(block, registers.linear.get(), message, location))
    };
    let Some(other) = cluster.get(rank as usize) else {
        fail(format!("map_shared was called for block {rank} of a cluster of {} blocks", cluster.len()))
    };
    if other.alive() == 0 {
        fail(format!(
            "map_shared was called for block {rank} of the cluster, which has exited, so its shared memory no longer \
             exists"
        ))
    }
    match block.shared.find(pointer) {
        Some((place, offset)) => other.shared.address(place).wrapping_add(offset),
        None => fail(
            "map_shared was called with an address outside the shared memory of the calling block".to_owned(),
        ),
    }
}

/// Returns the cluster rank of the block into whose shared memory `pointer` points. A fault occurs if the pointer
/// points elsewhere.
#[track_caller]
pub fn shared_rank(pointer: *const u8) -> u32 {
    let location = Location::caller();
    let registers = running("shared_rank");
    let (block, set) = (registers.block(), registers.set());
    // The end of one block's memory may coincide with the start of another block's memory.
    let rank = |is_inside: bool| {
        set.cluster(block).iter().position(|block| {
            block.shared.find(pointer).is_some_and(|(place, offset)| (offset < place.bytes()) == is_inside)
        })
    };
    match rank(true).or_else(|| rank(false)) {
        Some(rank) => rank as u32,
        None => {
            let message =
                "shared_rank was called with an address outside the shared memory of the cluster".to_owned();
            set.fail_here(set.misuse(block, registers.linear.get(), message, location))
        }
    }
}

/// A piece of shared memory, which has a different address in each block.
enum Place {
    Site { key: *const u8, layout: Layout, location: &'static Location<'static> },
    Dynamic { bytes: usize },
}

impl Place {
    fn bytes(&self) -> usize {
        match self {
            Place::Site { layout, .. } => layout.size(),
            Place::Dynamic { bytes } => *bytes,
        }
    }
}

/// Shared memory that is used by one block after another on a worker.
#[derive(Default)]
pub(crate) struct Shared {
    sites: RefCell<Vec<Site>>,
    dynamic: RefCell<Option<Memory>>,
    /// Address of `dynamic` after this block has requested it; null before.
    dynamic_ready: Cell<*mut u8>,
    /// Number of bytes of static memory that this block has requested.
    static_bytes: Cell<usize>,
    /// True if any block has requested a piece since this value was created.
    is_used: Cell<bool>,
    /// True if this block has requested any of `sites`.
    has_sites: Cell<bool>,
}

struct Site {
    key: *const u8,
    /// Location of the first request.
    location: &'static Location<'static>,
    memory: Memory,
    /// True if this block has requested this piece.
    ready: bool,
}

impl Site {
    #[inline]
    fn damage(&self) -> Option<String> {
        let damage = self.memory.damage()?;
        let (bytes, location) = (self.memory.layout.size(), self.location);
        Some(damage.of(format_args!("a shared array of {bytes} bytes ({location})")))
    }
}

impl Shared {
    /// Prepares the memory for the next block.
    pub fn begin_block(&self) {
        self.dynamic_ready.set(ptr::null_mut());
        self.static_bytes.set(0);
        if self.has_sites.replace(false) {
            self.sites.borrow_mut().iter_mut().for_each(|site| site.ready = false);
        }
    }

    fn static_array(
        &self,
        key: *const u8,
        bytes: usize,
        align: usize,
        location: &'static Location<'static>,
    ) -> *mut u8 {
        let (address, is_new) = self.site(key, layout_of(bytes, align), location);
        if is_new {
            let total = self.static_bytes.get() + bytes.max(1);
            self.static_bytes.set(total);
            assert!(
                total <= STATIC_LIMIT,
                "the block needs {total} bytes of static shared memory, but a GPU has {STATIC_LIMIT}: use dynamic \
                 shared memory"
            );
        }
        address
    }

    /// Returns the memory of a site, and true if this is the block's first request for it.
    fn site(&self, key: *const u8, layout: Layout, location: &'static Location<'static>) -> (*mut u8, bool) {
        let mut sites = self.sites.borrow_mut();
        let found = sites.iter().position(|site| site.key == key && site.memory.layout == layout);
        let index = found.unwrap_or_else(|| {
            self.is_used.set(true);
            sites.push(Site { key, location, memory: Memory::new(layout), ready: false });
            sites.len() - 1
        });
        let site = &mut sites[index];
        let is_new = !site.ready;
        if is_new {
            site.ready = true;
            self.has_sites.set(true);
            site.memory.poison();
        }
        (site.memory.address.as_ptr(), is_new)
    }

    /// Returns the requested piece into which `pointer` points or, if it points into no piece, the piece to whose end
    /// it points. Also returns the offset in the piece.
    fn find(&self, pointer: *const u8) -> Option<(Place, usize)> {
        let sites = self.sites.borrow();
        let sites = sites.iter().filter(|site| site.ready).map(|Site { key, location, memory, .. }| {
            (
                Place::Site { key: *key, layout: memory.layout, location },
                memory.address.as_ptr().addr(),
                memory.layout.size(),
            )
        });
        let dynamic = self.dynamic.borrow();
        let dynamic = dynamic.iter().filter(|_| !self.dynamic_ready.get().is_null()).map(|memory| {
            let bytes = memory.layout.size();
            (Place::Dynamic { bytes }, memory.address.as_ptr().addr(), bytes)
        });
        let mut at_end = None;
        for (place, start, bytes) in sites.chain(dynamic) {
            match pointer.addr().checked_sub(start) {
                Some(offset) if offset < bytes => return Some((place, offset)),
                Some(offset) if offset == bytes => at_end = Some((place, offset)),
                _ => {}
            }
        }
        at_end
    }

    /// Returns a description of the overwritten bytes around a piece.
    pub fn damage(&self) -> Option<String> {
        let damage = self.sites.borrow().iter().find_map(Site::damage);
        damage.or_else(|| {
            let dynamic = self.dynamic.borrow();
            let memory = dynamic.as_ref()?;
            let bytes = memory.layout.size();
            Some(memory.damage()?.of(format_args!("the dynamic shared memory of {bytes} bytes")))
        })
    }

    /// Returns true if any block has requested a piece since this value was created.
    #[inline(always)]
    pub fn is_used(&self) -> bool {
        self.is_used.get()
    }

    /// Returns the address of a piece in this block.
    fn address(&self, place: Place) -> *mut u8 {
        match place {
            Place::Site { key, layout, location } => self.site(key, layout, location).0,
            Place::Dynamic { bytes } => self.dynamic(bytes),
        }
    }

    fn dynamic(&self, bytes: usize) -> *mut u8 {
        if !self.dynamic_ready.get().is_null() {
            return self.dynamic_ready.get();
        }
        let layout = Layout::from_size_align(bytes, DYNAMIC_ALIGN).expect("the launch was checked");
        let mut dynamic = self.dynamic.borrow_mut();
        let memory = dynamic.get_or_insert_with(|| Memory::new(layout));
        memory.poison();
        self.is_used.set(true);
        self.dynamic_ready.set(memory.address.as_ptr());
        memory.address.as_ptr()
    }
}

/// Returns the layout of an array, with a size of at least one byte.
fn layout_of(bytes: usize, align: usize) -> Layout {
    Layout::from_size_align(bytes.max(1), align).expect("a shared array's size and alignment")
}

/// Memory that kernels access through raw pointers, with red zones around it.
struct Memory {
    address: NonNull<u8>,
    layout: Layout,
    /// Layout of the entire allocation, which starts `before` bytes before the address.
    whole: Layout,
    before: usize,
}

impl Memory {
    fn new(layout: Layout) -> Self {
        let is_checked = !registers().checker.get().is_null();
        let around = if is_checked { check::with_red_zones(layout) } else { redzone::around(layout) };
        let (whole, before) = around.expect("shared memory is small");
        // SAFETY: the layout's size is not zero.
        let start = unsafe { alloc(whole) };
        let start = NonNull::new(start).unwrap_or_else(|| handle_alloc_error(whole));
        // SAFETY: the address is within the allocation.
        let address = unsafe { start.add(before) };
        // SAFETY: the zones were just allocated, and the zones of a checked launch are even larger.
        unsafe { redzone::paint(address.as_ptr(), layout.size()) };
        Self { address, layout, whole, before }
    }

    fn damage(&self) -> Option<Damage> {
        // SAFETY: `new` has allocated and painted the zones.
        unsafe { redzone::damage(self.address.as_ptr(), self.layout.size()) }
    }

    fn poison(&mut self) {
        let address = self.address.as_ptr().addr();
        registers().with_checker(|checker| checker.fresh(address, self.layout.size()));
        // SAFETY: the memory has this length, and no thread of the new block knows its address yet.
        unsafe { ptr::write_bytes(self.address.as_ptr(), POISON, self.layout.size()) };
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let address = self.address.as_ptr().addr();
        registers().with_checker(|checker| checker.gone(address, self.layout.size()));
        // SAFETY: `new` allocated `self.before` bytes before the address, with this layout.
        unsafe { dealloc(self.address.as_ptr().sub(self.before), self.whole) };
    }
}
