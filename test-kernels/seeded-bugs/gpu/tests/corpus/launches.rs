//! Launches of the corpus: memory with red zones, in several thread orders.

use std::alloc::{Layout, alloc, dealloc};
use std::ffi::c_void;

use gpu_std::KernelSpec;
use seeded_bugs_gpu::case::{Case, Contents, Shape};
use warpsmith_emulator::{Fault, Launch, Order, check};

/// Launches a kernel in several thread orders, each time with new buffers.
pub fn launch(case: &Case) -> [Result<(), Fault>; 3] {
    [Order::Sequential, Order::Seeded(1), Order::Seeded(2)]
        .map(|order| launch_once((case.spec)(), case.shape, order))
}

/// Launches a kernel with new buffers.
pub fn launch_once(kernel: &'static KernelSpec, shape: Shape, order: Order) -> Result<(), Fault> {
    let buffers: Vec<Buffer> = shape.buffers.iter().map(Buffer::new).collect();
    let pointers = buffers.iter().map(|buffer| std::ptr::from_ref(&buffer.address).cast());
    let lengths = shape.lengths.iter().map(|length| std::ptr::from_ref(length).cast());
    let args: Vec<*const c_void> = pointers.chain(lengths).collect();
    let launch = Launch {
        kernel,
        grid: [shape.grid, 1, 1],
        block: [shape.block, 1, 1],
        shared_bytes: shape.shared_bytes,
        cluster: [shape.cluster, 1, 1],
        cooperative: kernel.cooperative,
        args: &args,
        order,
    };
    // SAFETY: the kernels take one pointer per buffer, and the lengths. Their faults stay within the red zones.
    unsafe { warpsmith_emulator::run(&launch) }
}

/// A device buffer.
struct Buffer {
    address: *mut u8,
    bytes: usize,
    layout: (Layout, usize),
}

impl Buffer {
    fn new(of: &seeded_bugs_gpu::case::Buffer) -> Self {
        let layout = check::with_red_zones(Layout::from_size_align(of.bytes, 512).unwrap()).unwrap();
        // SAFETY: the layout has a size; the buffer starts within it.
        let address = unsafe { alloc(layout.0).add(layout.1) };
        let fill = if of.contents == Contents::Uninit { check::FILL } else { 0 };
        // SAFETY: within the layout.
        unsafe { address.write_bytes(fill, of.bytes) };
        check::allocated(address as usize, of.bytes);
        match of.contents {
            Contents::Zeros => check::written(address as usize, of.bytes),
            Contents::Uninit => {}
            Contents::Freed => {
                check::written(address as usize, of.bytes);
                check::freed(address as usize, of.bytes);
            }
        }
        Self { address, bytes: of.bytes, layout }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        check::released(self.address as usize, self.bytes);
        // SAFETY: allocated with this layout, which starts `layout.1` bytes before the address.
        unsafe { dealloc(self.address.sub(self.layout.1), self.layout.0) };
    }
}
