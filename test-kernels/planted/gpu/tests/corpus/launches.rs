//! Launches of the corpus: memory with red zones, in several orders.

use std::alloc::{Layout, alloc, dealloc};
use std::ffi::c_void;

use planted_gpu::case::{Case, Contents};
use warpsmith_emulator::{Fault, Launch, Order, check};

/// Launches a kernel in several orders, each time with new buffers.
pub fn launch(case: &Case) -> [Result<(), Fault>; 3] {
    [Order::Sequential, Order::Seeded(1), Order::Seeded(2)].map(|order| {
        let buffers: Vec<Buffer> = case.shape.buffers.iter().map(Buffer::new).collect();
        let args: Vec<*const c_void> =
            buffers.iter().map(|buffer| std::ptr::from_ref(&buffer.address).cast()).collect();
        let kernel = (case.spec)();
        let launch = Launch {
            kernel,
            grid: [case.shape.grid, 1, 1],
            block: [case.shape.block, 1, 1],
            shared_bytes: case.shape.shared_bytes,
            cluster: [case.shape.cluster, 1, 1],
            cooperative: kernel.cooperative,
            args: &args,
            order,
        };
        // SAFETY: the kernels take one pointer for each buffer. Their faults stay within the red zones.
        unsafe { warpsmith_emulator::run(&launch) }
    })
}

/// A buffer of the device.
struct Buffer {
    address: *mut u8,
    layout: (Layout, usize),
}

impl Buffer {
    fn new(of: &planted_gpu::case::Buffer) -> Self {
        let layout = check::with_red_zones(Layout::from_size_align(of.bytes, 512).unwrap()).unwrap();
        // SAFETY: the layout has a size; the buffer begins within it.
        let address = unsafe { alloc(layout.0).add(layout.1) };
        // SAFETY: within the layout.
        unsafe { address.write_bytes(0, of.bytes) };
        check::allocated(address as usize, of.bytes);
        match of.contents {
            Contents::Zeros => check::written(address as usize, of.bytes),
            Contents::Uninit => {}
            Contents::Freed => {
                check::written(address as usize, of.bytes);
                check::freed(address as usize);
            }
        }
        Self { address, layout }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        check::released(self.address as usize);
        // SAFETY: allocated with this layout, which begins `layout.1` bytes before the address.
        unsafe { dealloc(self.address.sub(self.layout.1), self.layout.0) };
    }
}
