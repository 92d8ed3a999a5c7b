//! Shared memory of a block.
//!
//! Every block finds its shared memory filled with [`POISON`], so that a kernel that reads before it writes
//! shows. Static memory is told apart by its place in the source; each block has its own copy.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::cell::{Cell, RefCell};
use std::ptr::{self, NonNull};

use crate::registers::running;

/// What every byte of shared memory is at the start of a block.
pub const POISON: u8 = 0xa5;

/// Static shared memory a block can have, in bytes; the limit of every CUDA GPU.
pub const STATIC_LIMIT: usize = 48 * 1024;

/// Alignment of dynamic shared memory in bytes.
pub const DYNAMIC_ALIGN: usize = 128;

/// The block's memory for the declaration `site`: the same address for every thread of the block. `site` is the
/// address of a static that only this declaration has; a site that asks for several sizes gets memory for each.
///
/// # Panics
/// Outside a kernel; when the block's static memory exceeds [`STATIC_LIMIT`]; when `align` is no power of two.
pub fn static_memory(site: *const u8, bytes: usize, align: usize) -> *mut u8 {
    running("static_memory").block().shared.site(site, bytes, align)
}

/// The block's dynamic shared memory, of the size given at launch, aligned to [`DYNAMIC_ALIGN`] bytes. Without
/// any it is an address that must not be read.
///
/// # Panics
/// Outside a kernel.
pub fn dynamic_memory() -> *mut u8 {
    let registers = running("dynamic_memory");
    registers.block().shared.dynamic(registers.shared_bytes.get() as usize)
}

/// The shared memory of the blocks that run one after the other on a worker.
#[derive(Default)]
pub(crate) struct Shared {
    sites: RefCell<Vec<Site>>,
    dynamic: RefCell<Option<Memory>>,
    /// Address of `dynamic` once this block has asked for it, else null.
    dynamic_ready: Cell<*mut u8>,
    /// Static bytes that this block has asked for.
    static_bytes: Cell<usize>,
}

struct Site {
    key: *const u8,
    memory: Memory,
    /// Whether this block has asked for it.
    ready: bool,
}

impl Shared {
    /// Prepares for the next block.
    pub fn begin_block(&self) {
        self.dynamic_ready.set(ptr::null_mut());
        if self.static_bytes.replace(0) != 0 {
            self.sites.borrow_mut().iter_mut().for_each(|site| site.ready = false);
        }
    }

    fn site(&self, key: *const u8, bytes: usize, align: usize) -> *mut u8 {
        let layout =
            Layout::from_size_align(bytes.max(1), align).expect("a shared array's size and alignment");
        let mut sites = self.sites.borrow_mut();
        let found = sites.iter().position(|site| site.key == key && site.memory.layout == layout);
        let index = found.unwrap_or_else(|| {
            sites.push(Site { key, memory: Memory::new(layout), ready: false });
            sites.len() - 1
        });
        let site = &mut sites[index];
        if !site.ready {
            site.ready = true;
            site.memory.poison();
            let total = self.static_bytes.get() + layout.size();
            self.static_bytes.set(total);
            assert!(
                total <= STATIC_LIMIT,
                "the block needs {total} bytes of static shared memory, a GPU has {STATIC_LIMIT}: use dynamic shared memory"
            );
        }
        site.memory.address.as_ptr()
    }

    fn dynamic(&self, bytes: usize) -> *mut u8 {
        if !self.dynamic_ready.get().is_null() {
            return self.dynamic_ready.get();
        }
        let layout = Layout::from_size_align(bytes.max(1), DYNAMIC_ALIGN).expect("the launch was checked");
        let mut dynamic = self.dynamic.borrow_mut();
        let memory = dynamic.get_or_insert_with(|| Memory::new(layout));
        memory.poison();
        self.dynamic_ready.set(memory.address.as_ptr());
        memory.address.as_ptr()
    }
}

/// Bytes that kernels reach through raw pointers.
struct Memory {
    address: NonNull<u8>,
    layout: Layout,
}

impl Memory {
    /// `layout` has a size.
    fn new(layout: Layout) -> Self {
        // SAFETY: the layout's size is not zero.
        let address = unsafe { alloc(layout) };
        Self { address: NonNull::new(address).unwrap_or_else(|| handle_alloc_error(layout)), layout }
    }

    fn poison(&mut self) {
        // SAFETY: the memory is this long, and no thread of the new block has its address yet.
        unsafe { ptr::write_bytes(self.address.as_ptr(), POISON, self.layout.size()) };
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout.
        unsafe { dealloc(self.address.as_ptr(), self.layout) };
    }
}
