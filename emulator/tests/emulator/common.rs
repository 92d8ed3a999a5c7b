//! Hand-written kernels. They equal the code that `#[kernel]` would generate, except that every parameter is a word of
//! 8 bytes.

use std::ffi::c_void;

use gpu_spec::{HostEntry, KernelSpec, LaunchBounds, ParamKind, ParamSpec};
use warpsmith_emulator::{Fault, Launch, Order, run, thread};

const WORD: ParamSpec =
    ParamSpec { name: "p", kind: ParamKind::PointerMut, type_name: "word", size: 1, align: 1, signature: 0 };
static WORDS: [ParamSpec; 4] = [WORD; 4];

pub const fn spec(name: &'static str, entry: HostEntry, params: usize) -> KernelSpec {
    let mut spec = KernelSpec::new("tests", "0.0.0", name, WORDS.split_at(params).0, entry);
    spec.info.is_safe = false;
    spec
}

pub const fn bounded(mut spec: KernelSpec, max_threads: u32) -> KernelSpec {
    spec.info.launch_bounds = Some(LaunchBounds { max_threads, min_blocks: 0 });
    spec
}

/// Defines the spec `NAME` of a kernel whose body binds its parameters, each one word, to patterns.
macro_rules! kernel {
    (static $spec:ident = $name:literal ($($param:ident: $type:ty),*) $body:block) => {
        static $spec: gpu_spec::KernelSpec = {
            #[allow(unused_variables, unused_mut, unused_assignments)]
            unsafe fn entry(args: *const *const std::ffi::c_void) {
                let mut next = 0;
                $(
                    // SAFETY: `launch` passes one word for each parameter of the spec, each of this type.
                    let $param = unsafe { *(*args.add(next)).cast::<$type>() };
                    next += 1;
                )*
                $body
            }
            $crate::common::spec($name, entry, <[&str]>::len(&[$(stringify!($param)),*]))
        };
    };
}

pub fn launch(
    kernel: &'static KernelSpec,
    grid: [u32; 3],
    block: [u32; 3],
    args: &[u64],
) -> Result<(), Fault> {
    launch_as(kernel, grid, block, 0, Order::Sequential, args)
}

pub fn launch_as(
    kernel: &'static KernelSpec,
    grid: [u32; 3],
    block: [u32; 3],
    shared_bytes: u32,
    order: Order,
    args: &[u64],
) -> Result<(), Fault> {
    let args: Vec<*const c_void> = args.iter().map(|word| std::ptr::from_ref(word).cast()).collect();
    // SAFETY: the tests pass words of the types that the kernel reads; pointers refer to memory that outlives it.
    unsafe {
        run(&Launch {
            kernel,
            grid,
            block,
            shared_bytes,
            cluster: [1; 3],
            cooperative: false,
            args: &args,
            order,
        })
    }
}

pub fn word<T>(data: &mut [T]) -> u64 {
    data.as_mut_ptr() as u64
}

/// Memory that threads read and write unchecked, as kernels do. The tests ensure that elements exist and that no two
/// threads use one at the same time.
#[repr(transparent)]
pub struct Elements<T>(pub *mut T);

impl<T> Clone for Elements<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Elements<T> {}

impl<T: Copy> Elements<T> {
    pub fn get(self, index: usize) -> T {
        // SAFETY: see the type.
        unsafe { self.0.add(index).read() }
    }

    pub fn set(self, index: usize, value: T) {
        // SAFETY: see the type.
        unsafe { self.0.add(index).write(value) }
    }
}

/// Returns the linear index of the block in the grid.
pub fn block() -> usize {
    let ([x, y, z], [width, height, _]) = (thread::block_index(), thread::grid_dim());
    (x + width * (y + height * z)) as usize
}

/// Returns the linear index of the thread in the grid.
pub fn global() -> usize {
    let [x, y, z] = thread::block_dim();
    block() * (x * y * z) as usize + thread::linear_index() as usize
}

/// Returns random numbers that differ from run to run.
pub fn fresh(count: usize) -> Vec<u64> {
    use std::hash::{BuildHasher, RandomState};
    let state = RandomState::new();
    (0..count).map(|i| state.hash_one(i)).collect()
}

pub const SHAPES: [[u32; 3]; 13] = [
    [1, 1, 1],
    [31, 1, 1],
    [32, 1, 1],
    [33, 1, 1],
    [64, 1, 1],
    [1000, 1, 1],
    [1024, 1, 1],
    [1, 1, 64],
    [3, 5, 7],
    [32, 32, 1],
    [8, 8, 16],
    [1, 33, 1],
    [10, 10, 10],
];

pub const ORDERS: [Order; 4] =
    [Order::Sequential, Order::Seeded(0), Order::Seeded(1), Order::Seeded(0xdead_beef)];

/// Runs a launch whose blocks run concurrently, either within each cluster or all of them.
pub fn launch_at_once(
    kernel: &'static KernelSpec,
    grid: [u32; 3],
    block: [u32; 3],
    cluster: [u32; 3],
    cooperative: bool,
    order: Order,
    args: &[u64],
) -> Result<(), Fault> {
    let args: Vec<*const c_void> = args.iter().map(|word| std::ptr::from_ref(word).cast()).collect();
    // SAFETY: same as in `launch_as`.
    unsafe {
        run(&Launch { kernel, grid, block, shared_bytes: 64, cluster, cooperative, args: &args, order })
    }
}
