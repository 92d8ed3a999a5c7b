//! Prints how fast the emulator runs `y = a x + y` with one element a thread, and how fast threads pass barriers
//! and warp exchanges. Run it with `--release`; `taskset -c 0` shows one core.

use std::ffi::c_void;
use std::time::Instant;

use gpu_spec::{HostEntry, KernelInfo, KernelSpec, ParamKind, ParamSpec};
use warpsmith_emulator::{Launch, Order, collective, run, thread};

const N: usize = 1 << 24;
const BLOCK: u32 = 256;
const ROUNDS: u32 = 10;
const REPEATS: usize = 5;

/// Parameters: a: f32, x: *const f32, y: *mut f32, n: usize.
unsafe fn axpy(args: *const *const c_void) {
    // SAFETY: `main` passes four arguments of these types; every thread has its own element of `y`.
    unsafe {
        let a = **args.cast::<*const f32>();
        let x = **args.add(1).cast::<*const *const f32>();
        let y = **args.add(2).cast::<*const *mut f32>();
        let n = **args.add(3).cast::<*const usize>();
        let i = (thread::block_index()[0] * thread::block_dim()[0] + thread::thread_index()[0]) as usize;
        if i < n {
            *y.add(i) += a * *x.add(i);
        }
    }
}

unsafe fn barriers(_: *const *const c_void) {
    for _ in 0..ROUNDS {
        collective::barrier(true);
    }
}

unsafe fn exchanges(_: *const *const c_void) {
    for _ in 0..ROUNDS {
        collective::warp_exchange(u32::MAX, "shuffle", u64::from(thread::lane()));
    }
}

const fn spec(name: &'static str, entry: HostEntry, params: &'static [ParamSpec]) -> KernelSpec {
    KernelSpec {
        info: KernelInfo {
            name,
            symbol: name,
            package: "examples",
            version: "0.0.0",
            types: &[],
            consts: &[],
            params,
            launch_bounds: None,
            stack: None,
            min_arch: 0,
            is_safe: false,
            cooperative: false,
            dependent: false,
        },
        entry,
    }
}

const WORD: ParamSpec = ParamSpec { name: "p", kind: ParamKind::Value, type_name: "word", size: 8, align: 8 };
static AXPY: KernelSpec = spec("axpy", axpy, &[WORD; 4]);
static BARRIERS: KernelSpec = spec("barriers", barriers, &[]);
static EXCHANGES: KernelSpec = spec("exchanges", exchanges, &[]);

/// The least time of a few runs in seconds.
fn seconds(kernel: &'static KernelSpec, blocks: u32, args: &[*const c_void]) -> f64 {
    let once = |_| {
        let launch = Launch {
            kernel,
            grid: [blocks, 1, 1],
            block: [BLOCK, 1, 1],
            shared_bytes: 0,
            cluster: [1; 3],
            cooperative: false,
            args,
            order: Order::Sequential,
        };
        let start = Instant::now();
        // SAFETY: the arguments are those the kernel reads.
        unsafe { run(&launch) }.expect("the kernel runs");
        start.elapsed().as_secs_f64()
    };
    (0..REPEATS).map(once).fold(f64::INFINITY, f64::min)
}

fn main() {
    let (a, x) = (2.0f32, vec![1.5f32; N]);
    let mut y = vec![1.0f32; N];
    let (x_ptr, y_ptr, n) = (x.as_ptr(), y.as_mut_ptr(), N);
    let args =
        [(&raw const a).cast(), (&raw const x_ptr).cast(), (&raw const y_ptr).cast(), (&raw const n).cast()];
    let time = seconds(&AXPY, (N as u32).div_ceil(BLOCK), &args);
    assert!(y.iter().all(|&v| v == 1.0 + 3.0 * REPEATS as f32), "wrong result");
    println!("axpy: {:.0} million elements/s", N as f64 / time / 1e6);

    const BLOCKS: u32 = 1000;
    let passes = f64::from(BLOCKS * BLOCK * ROUNDS);
    println!("barrier: {:.1} ns a thread", seconds(&BARRIERS, BLOCKS, &[]) / passes * 1e9);
    println!("warp exchange: {:.1} ns a thread", seconds(&EXCHANGES, BLOCKS, &[]) / passes * 1e9);
    let calls = 10_000;
    let start = Instant::now();
    for _ in 0..calls {
        seconds(&BARRIERS, 1, &[]);
    }
    let launches = f64::from(calls) * REPEATS as f64;
    println!(
        "launch of one block of {BLOCK} with {ROUNDS} barriers: {:.1} us",
        start.elapsed().as_secs_f64() / launches * 1e6
    );
}
