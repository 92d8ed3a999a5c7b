//! Cost of checking, in time and memory. Times are wall-clock time, and the CPU time of the calling thread, which runs
//! a checked launch alone. An unchecked launch runs on all cores, or on one with `RAYON_NUM_THREADS=1`.
//!
//! - `warpsmith check bench --package warpsmith-gpu-std --bench checked`: checked;
//! - the same with `WARPSMITH_CHECK=0` set for the program that it builds: instrumented but not checked;
//! - `cargo bench --package warpsmith-gpu-std --bench checked`: neither instrumented nor checked.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ffi::c_void;
use std::time::{Duration, Instant};

use gpu_std::Kernel;
use gpu_std::atomic::{Atomic, Ordering};
use gpu_std::prelude::*;
use warpsmith_emulator::{Launch, Order, check};

const LEN: usize = 1 << 20;

#[kernel]
fn saxpy(a: f32, x: &[f32], mut y: DisjointMut<f32>) {
    for i in thread::grid_stride(x.len()) {
        if let Some(y) = y.get_mut(i) {
            *y += a * x[i.get()];
        }
    }
}

/// # Safety
/// Blocks must have 256 threads.
#[kernel(launch_bounds(256))]
unsafe fn smooth(data: &[f32], mut out: DisjointMut<f32>) {
    let tile = shared_array![f32; 258];
    let index = thread::unique_index();
    let own = thread::linear_in_block() as usize;
    let at = |i: usize| data[i.min(data.len() - 1)];
    // SAFETY: each element is written by one thread, and read after the barrier.
    unsafe {
        tile.add(own + 1).write(at(index.get()));
        if own == 0 {
            tile.write(at(index.get().saturating_sub(1)));
            tile.add(257).write(at(index.get() + 256));
        }
    }
    thread::sync_threads();
    if let Some(out) = out.get_mut(index) {
        // SAFETY: as above.
        let [left, middle, right] = unsafe { [0, 1, 2].map(|offset| tile.add(own + offset).read()) };
        *out = (left + middle + right) / 3.0;
    }
}

#[kernel]
fn histogram(data: &[u32], bins: &[Atomic<u32>]) {
    for i in thread::grid_stride(data.len()) {
        bins[(data[i.get()] % 16) as usize].fetch_add(1, Ordering::Relaxed);
    }
}

/// # Safety
/// `parts` must have one more element than there are blocks.
#[kernel]
unsafe fn last_block(data: &[f32], parts: *mut f32, count: &[Atomic<u32>]) {
    let value = data.get(thread::unique_index().get()).copied().unwrap_or(0.0);
    let sum = block::reduce(value, |a, b| a + b);
    if thread::linear_in_block() == 0 {
        // SAFETY: each block writes its own part, which the last block reads after fences.
        unsafe {
            parts.add(1 + block::linear_index()).write(sum);
            thread::device_fence();
            let before = count[0].fetch_add(1, Ordering::Relaxed);
            thread::device_fence();
            if (before as usize + 1).is_multiple_of(grid::blocks()) {
                let total: f32 = (0..grid::blocks()).map(|i| parts.add(1 + i).read()).sum();
                parts.write(total);
            }
        }
    }
}

/// A zeroed buffer with red zones, as an emulated device allocates it for a check.
struct Buffer {
    address: *mut u8,
    bytes: usize,
    layout: (Layout, usize),
}

impl Buffer {
    fn zeros<T>(len: usize) -> Self {
        let bytes = len * size_of::<T>();
        let layout = check::with_red_zones(Layout::from_size_align(bytes, 512).unwrap()).unwrap();
        // SAFETY: the layout has a non-zero size; the buffer starts within it.
        let address = unsafe { alloc_zeroed(layout.0).add(layout.1) };
        check::allocated(address as usize, bytes);
        check::written(address as usize, bytes);
        Self { address, bytes, layout }
    }

    fn word(&self) -> u64 {
        self.address as u64
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        check::released(self.address as usize, self.bytes);
        // SAFETY: allocated with this layout, which starts `layout.1` bytes before the address.
        unsafe { dealloc(self.address.sub(self.layout.1), self.layout.0) };
    }
}

/// Returns the CPU time of this thread.
fn busy() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
}

/// Returns the shortest times of a launch: CPU time of the calling thread, and wall-clock time.
fn time<K: Kernel>(words: &[u64]) -> [Duration; 2] {
    let args: Vec<*const c_void> = words.iter().map(|word| std::ptr::from_ref(word).cast()).collect();
    let launch = Launch {
        kernel: K::spec(),
        grid: [(LEN / 256) as u32, 1, 1],
        block: [256, 1, 1],
        shared_bytes: 0,
        cluster: [1; 3],
        cooperative: false,
        args: &args,
        order: Order::Sequential,
    };
    let once = || {
        let (start, wall) = (busy(), Instant::now());
        // SAFETY: the words match the kernel's parameters.
        unsafe { warpsmith_emulator::run(&launch) }.unwrap();
        [busy() - start, wall.elapsed()]
    };
    (0..5).map(|_| once()).reduce(|a, b| [a[0].min(b[0]), a[1].min(b[1])]).unwrap()
}

fn main() {
    let only: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let buffers = [Buffer::zeros::<f32>(LEN), Buffer::zeros::<f32>(LEN), Buffer::zeros::<u32>(1)];
    let [x, y, count] = [0, 1, 2].map(|at| buffers[at].word());
    let len = LEN as u64;
    let on = if check::is_on() { "checked" } else { "not checked" };
    let peak = || {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        status.lines().find(|line| line.starts_with("VmHWM")).unwrap().to_owned()
    };
    println!("{on}: {}", peak());
    let run = |name: &str, time: fn(&[u64]) -> [Duration; 2], words: &[u64]| {
        if only.is_empty() || only.iter().any(|only| only == name) {
            let [thread, wall] = time(words);
            println!("{name}: {thread:?}, wall {wall:?}, {}", peak());
        }
    };
    run("saxpy", time::<saxpy>, &[2.0f32.to_bits().into(), x, len, y, len]);
    run("smooth", time::<smooth>, &[x, len, y, len]);
    run("histogram", time::<histogram>, &[x, len, y, 16]);
    run("last_block", time::<last_block>, &[x, len, y, count, 1]);
}
