//! Launching kernels on the emulator, and random numbers.

use std::ffi::c_void;

use gpu_std::Kernel;
use warpsmith_emulator::{Fault, Launch, Order};

/// Pointers to arguments, kept alive with them.
#[derive(Default)]
pub struct Args(Vec<Box<dyn std::any::Any>>, Vec<*const c_void>);

impl Args {
    pub fn new() -> Self {
        Self::default()
    }

    /// The pointers, as a launch takes them.
    pub fn pointers(&self) -> &[*const c_void] {
        &self.1
    }

    /// By value.
    pub fn value<T: 'static>(mut self, value: T) -> Self {
        let boxed = Box::new(value);
        self.1.push((&raw const *boxed).cast());
        self.0.push(boxed);
        self
    }

    /// A slice: pointer and length.
    pub fn slice<T: 'static>(self, slice: &[T]) -> Self {
        self.value(slice.as_ptr()).value(slice.len())
    }

    /// A mutable view: pointer and length.
    pub fn view<T: 'static>(self, slice: &mut [T]) -> Self {
        self.value(slice.as_mut_ptr()).value(slice.len())
    }
}

/// Runs `K` with threads of a block in sequential and in a random order; the arguments are made anew for each.
pub fn launch_shared<K: Kernel>(
    grid: [u32; 3],
    block: [u32; 3],
    shared_bytes: u32,
    args: &Args,
) -> Result<(), Fault> {
    run::<K>(grid, block, shared_bytes, [1; 3], args)
}

/// Runs `K` in clusters, cooperatively if the kernel says so, and as [`launch_shared`].
pub fn launch_clusters<K: Kernel>(
    grid: [u32; 3],
    block: [u32; 3],
    cluster: [u32; 3],
    args: &Args,
) -> Result<(), Fault> {
    run::<K>(grid, block, 0, cluster, args)
}

fn run<K: Kernel>(
    grid: [u32; 3],
    block: [u32; 3],
    shared_bytes: u32,
    cluster: [u32; 3],
    args: &Args,
) -> Result<(), Fault> {
    let order = if random().is_multiple_of(2) { Order::Sequential } else { Order::Seeded(random()) };
    let cooperative = K::spec().cooperative;
    let launch =
        Launch { kernel: K::spec(), grid, block, shared_bytes, cluster, cooperative, args: &args.1, order };
    // SAFETY: the tests pass what the kernel's parameters say.
    unsafe { warpsmith_emulator::run(&launch) }
}

/// As [`launch_shared`], without dynamic shared memory, and it must succeed.
pub fn launch<K: Kernel>(grid: [u32; 3], block: [u32; 3], args: &Args) {
    if let Err(fault) = launch_shared::<K>(grid, block, 0, args) {
        panic!("{fault}");
    }
}

/// A number that differs from run to run.
pub fn random() -> u64 {
    fastrand::u64(..)
}

/// `n` numbers that differ from run to run. The seed is in the output of a test that fails.
pub fn randoms(n: usize) -> Vec<u64> {
    let seed = random();
    println!("seed {seed:#x}");
    let mut random = fastrand::Rng::with_seed(seed);
    (0..n).map(|_| random.u64(..)).collect()
}

/// `n` floats between -8 and 8.
pub fn floats(n: usize) -> Vec<f32> {
    randoms(n).into_iter().map(|bits| (bits >> 40) as f32 / (1 << 20) as f32 - 8.0).collect()
}
