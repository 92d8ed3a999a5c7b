//! Kernel launches on the emulator, and random numbers.

use std::ffi::c_void;

use gpu_std::Kernel;
use warpsmith_emulator::{Fault, Launch, Order};

/// Argument values, and the pointers to them.
#[derive(Default)]
pub struct Args(Vec<Box<dyn std::any::Any>>, Vec<*const c_void>);

impl Args {
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the pointers, as a launch takes them.
    pub fn pointers(&self) -> &[*const c_void] {
        &self.1
    }

    /// Appends a by-value argument.
    pub fn value<T: 'static>(mut self, value: T) -> Self {
        let boxed = Box::new(value);
        self.1.push((&raw const *boxed).cast());
        self.0.push(boxed);
        self
    }

    /// Appends a slice: pointer and length.
    pub fn slice<T: 'static>(self, slice: &[T]) -> Self {
        self.value(slice.as_ptr()).value(slice.len())
    }

    /// Appends a mutable view: pointer and length.
    pub fn view<T: 'static>(self, slice: &mut [T]) -> Self {
        self.value(slice.as_mut_ptr()).value(slice.len())
    }
}

/// Runs `K` with the threads of a block in sequential and in random order, with new arguments for each run.
pub fn launch_shared<K: Kernel>(
    grid: [u32; 3],
    block: [u32; 3],
    shared_bytes: u32,
    args: &Args,
) -> Result<(), Fault> {
    run::<K>(grid, block, shared_bytes, [1; 3], args)
}

/// Runs `K` in clusters like [`launch_shared`], and cooperatively if the kernel is cooperative.
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
    // SAFETY: the tests pass arguments that match the kernel's parameters.
    unsafe { warpsmith_emulator::run(&launch) }
}

/// Runs `K` like [`launch_shared`], without dynamic shared memory; the launch must succeed.
pub fn launch<K: Kernel>(grid: [u32; 3], block: [u32; 3], args: &Args) {
    if let Err(fault) = launch_shared::<K>(grid, block, 0, args) {
        panic!("{fault}");
    }
}

/// Returns a number that differs from run to run.
pub fn random() -> u64 {
    fastrand::u64(..)
}

/// Returns `n` numbers that differ from run to run. The output of a failing test contains the seed.
pub fn randoms(n: usize) -> Vec<u64> {
    let seed = random();
    println!("seed {seed:#x}");
    let mut random = fastrand::Rng::with_seed(seed);
    (0..n).map(|_| random.u64(..)).collect()
}

/// Returns `n` floats between -8 and 8.
pub fn floats(n: usize) -> Vec<f32> {
    randoms(n).into_iter().map(|bits| (bits >> 40) as f32 / (1 << 20) as f32 - 8.0).collect()
}
