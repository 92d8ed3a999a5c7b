//! Kernels launched by kernels, and graph conditions, on the emulated device.

use std::sync::atomic::AtomicU32;

use crate::common::{Args, launch, random};
use gpu_std::Kernel;
use gpu_std::atomic::{Atomic, Ordering};
use gpu_std::dynamic::{self, LaunchError, MAX_PENDING};
use gpu_std::graph::set_condition;
use gpu_std::prelude::*;
use warpsmith_emulator::{Fault, Launch, Order};

fn run<K: Kernel>(grid: [u32; 3], block: [u32; 3], args: &Args, order: Order) -> Result<(), Fault> {
    let args = args.pointers();
    let (cluster, cooperative) = ([1; 3], false);
    let launch =
        Launch { kernel: K::spec(), grid, block, shared_bytes: 0, cluster, cooperative, args, order };
    // SAFETY: the tests pass arguments that match the kernel's parameters.
    unsafe { warpsmith_emulator::run(&launch) }
}

/// Takes one of each kind of parameter, at alignments that leave gaps.
#[kernel(types(T = f16), consts(N = 3))]
unsafe fn every_parameter<T: Scalar, const N: usize>(
    byte: u8,
    wide: u64,
    half: T,
    array: [u16; N],
    slice: &[u32],
    last: u8,
    counts: &[Atomic<u32>],
    mut view: DisjointMut<u64>,
    pointer: *const u32,
    out: *mut u64,
) {
    if thread::index_1d() == 0 {
        counts[0].fetch_add(slice.len() as u32, Ordering::Relaxed);
        // SAFETY: the launching side passes valid pointers.
        unsafe {
            let sum = u64::from(byte) + wide + u64::from(array[N - 1]) + u64::from(slice[1]);
            *out = sum + u64::from(last) + u64::from(*pointer) + u64::from(f16_bits(half));
        }
    }
    if let Some(x) = view.get_mut(thread::unique_index()) {
        *x += 1;
    }
}

fn f16_bits<T: Scalar>(x: T) -> u16 {
    // SAFETY: the only instance is for f16, which has 2 bytes.
    unsafe { std::mem::transmute_copy(&x) }
}

#[kernel]
unsafe fn pass_every_parameter(
    slice: &[u32],
    counts: &[Atomic<u32>],
    mut view: DisjointMut<u64>,
    pointer: *const u32,
    out: *mut u64,
) {
    if thread::index_1d() == 0 {
        let half = f16::from_bits(0x3c00);
        let arguments =
            (200u8, 1u64 << 40, half, [1u16, 2, 3], slice, 100u8, counts, &mut view, pointer, out);
        // SAFETY: no other child uses the memory.
        let launched = unsafe { dynamic::launch::<every_parameter<f16, 3>>(1, 32, 0, arguments) };
        assert_eq!(launched, Ok(()));
    }
}

#[test]
fn parameters_of_every_kind_arrive() {
    let (slice, counts, mut view, pointer, mut out) =
        ([1u32, 2, 3], [Atomic::new(0u32)], [7u64; 20], 50u32, 0u64);
    let args = Args::new()
        .slice(&slice)
        .slice::<Atomic<u32>>(&counts)
        .view(&mut view)
        .value(&raw const pointer)
        .value(&raw mut out);
    launch::<pass_every_parameter>([2, 1, 1], [8, 1, 1], &args);
    assert_eq!(out, 200 + (1 << 40) + 3 + 2 + 100 + 50 + 0x3c00);
    assert_eq!(counts[0].load(Ordering::Relaxed), 3);
    assert_eq!(view, [8; 20]);
}

/// Records its position in the order of the children.
#[kernel]
fn note_order(number: u32, next: &[Atomic<u32>], order: &[Atomic<u32>]) {
    order[next[0].fetch_add(1, Ordering::Relaxed) as usize].store(number, Ordering::Relaxed);
}

/// Every thread launches two children; tail launches have numbers from 1000.
#[kernel]
fn launch_in_order(next: &[Atomic<u32>], order: &[Atomic<u32>]) {
    let me = thread::index_1d();
    // SAFETY: all accesses are atomic.
    unsafe {
        assert!(dynamic::launch_tail::<note_order>(1, 1, 0, (1000 + me, next, order)).is_ok());
        assert!(dynamic::launch::<note_order>(1, 1, 0, (2 * me, next, order)).is_ok());
        assert!(dynamic::launch::<note_order>(1, 1, 0, (2 * me + 1, next, order)).is_ok());
    }
}

fn order_of(order: Order) -> Vec<u32> {
    let next = [Atomic::new(0u32)];
    let numbers: Vec<Atomic<u32>> = (0..3 * 96).map(|_| Atomic::new(0)).collect();
    let args = Args::new().slice::<Atomic<u32>>(&next).slice(&numbers);
    run::<launch_in_order>([3, 1, 1], [32, 1, 1], &args, order).unwrap();
    numbers.iter().map(|x| x.load(Ordering::Relaxed)).collect()
}

#[test]
fn children_run_in_order_and_tails_last() {
    let expected: Vec<u32> = (0..2 * 96).chain(1000..1096).collect();
    assert_eq!(order_of(Order::Sequential), expected);
}

#[test]
fn a_seed_shuffles_children_but_not_tails() {
    let seed = random();
    let (first, again) = (order_of(Order::Seeded(seed)), order_of(Order::Seeded(seed)));
    assert_eq!(first, again, "the same seed gives the same run");
    let mut now = first[..192].to_vec();
    assert!(!now.is_sorted() || order_of(Order::Seeded(seed + 1))[..192] != now);
    now.sort_unstable();
    assert!(now.into_iter().eq(0..192), "seed {seed}: {first:?}");
    assert!(first[192..].iter().copied().eq(1000..1096), "seed {seed}: {first:?}");
}

/// Each child launches `then` children in turn, so that launches are pending at every depth.
#[kernel]
fn flood(launches: u32, then: u32, levels: u32, ran: &[Atomic<u32>], refused: &[Atomic<u32>]) {
    ran[0].fetch_add(1, Ordering::Relaxed);
    for _ in 0..if levels > 0 { launches } else { 0 } {
        // SAFETY: all accesses are atomic.
        let launched = unsafe { dynamic::launch::<flood>(1, 1, 0, (then, then, levels - 1, ran, refused)) };
        if let Err(error) = launched {
            refused[error.code() as usize].fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[test]
fn launches_that_wait_are_counted_over_all_depths() {
    let (ran, refused) = ([Atomic::new(0u32)], [const { Atomic::new(0u32) }; 100]);
    let (launches, then) = (MAX_PENDING - 10, 20u32);
    let args = Args::new().value(launches).value(then).value(2u32);
    let args = args.slice::<Atomic<u32>>(&ran).slice::<Atomic<u32>>(&refused);
    run::<flood>([1, 1, 1], [1, 1, 1], &args, Order::Sequential).unwrap();
    // The first child finds 11 free entries, and each further child one more, because the children before it have run.
    let found: u32 = (0..launches).map(|i| (11 + i).min(then)).sum();
    assert_eq!(ran[0].load(Ordering::Relaxed), 1 + launches + found);
    let too_many = refused[LaunchError::TOO_MANY_PENDING.code() as usize].load(Ordering::Relaxed);
    assert_eq!(too_many, launches * then - found);
}

#[kernel(launch_bounds(64))]
fn bounded() {}

#[kernel(cooperative)]
fn together() {}

#[kernel]
fn impossible(refused: &[Atomic<u32>]) {
    // SAFETY: the children use no memory.
    let launched = unsafe {
        [
            dynamic::launch::<bounded>(1, 65, 0, ()),
            dynamic::launch::<bounded>(0, 64, 0, ()),
            dynamic::launch::<bounded>((1, 1, 0), 64, 0, ()),
            dynamic::launch::<bounded>((1, 65536), 64, 0, ()),
            dynamic::launch::<bounded>(1, (64, 0), 0, ()),
            dynamic::launch::<bounded>(1, [u32::MAX; 3], 0, ()),
            // These are 2^64 + 4 threads in total.
            dynamic::launch::<bounded>([2147418113, 49477, 34724], 5, 0, ()),
            dynamic::launch::<bounded>(1, 64, 48 * 1024 + 1, ()),
            dynamic::launch::<together>(1, 64, 0, ()),
        ]
    };
    for error in launched {
        assert_eq!(error, Err(LaunchError::INVALID_CONFIGURATION));
        refused[0].fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn impossible_launches_are_refused() {
    let refused = [Atomic::new(0u32)];
    launch::<impossible>([1, 1, 1], [1, 1, 1], &Args::new().slice::<Atomic<u32>>(&refused));
    assert_eq!(refused[0].load(Ordering::Relaxed), 9);
}

/// Measures a child's view of its launch: its sizes and shared memory.
#[kernel]
fn measure(seen: &[Atomic<u32>]) {
    let shared = gpu_std::shared::dynamic::<u32>();
    if thread::linear_in_block() == 0 {
        // SAFETY: only one thread writes, and the memory is large enough.
        unsafe { shared.add(63).write(1) };
        seen[0].fetch_add(gpu_std::shared::dynamic_bytes() / 4, Ordering::Relaxed);
    }
    seen[1].fetch_add(1, Ordering::Relaxed);
}

#[kernel]
fn launch_measure(seen: &[Atomic<u32>]) {
    if thread::index_1d() == 0 {
        // SAFETY: all accesses are atomic.
        assert!(unsafe { dynamic::launch::<measure>((2, 3), (4, 2, 2), 256, (seen,)) }.is_ok());
    }
}

#[test]
fn a_child_has_its_own_shape_and_memory() {
    let seen = [Atomic::new(0u32), Atomic::new(0)];
    launch::<launch_measure>([4, 1, 1], [4, 1, 1], &Args::new().slice::<Atomic<u32>>(&seen));
    assert_eq!([0, 1].map(|i: usize| seen[i].load(Ordering::Relaxed)), [6 * 64, 6 * 16]);
}

#[kernel]
fn fail(ran: &[Atomic<u32>]) {
    ran[0].fetch_add(1, Ordering::Relaxed);
    assert!(thread::index_1d() != 3, "the child fails");
}

#[kernel]
fn launch_failing(ran: &[Atomic<u32>], first: u32) {
    for _ in 0..2 {
        // SAFETY: all accesses are atomic.
        assert!(unsafe { dynamic::launch::<fail>(1, 8, 0, (ran,)) }.is_ok());
    }
    assert!(first == 0, "the parent fails");
}

#[test]
fn a_fault_of_a_child_stops_the_rest() {
    let ran = [Atomic::new(0u32)];
    let args = Args::new().slice::<Atomic<u32>>(&ran).value(0u32);
    let fault = run::<launch_failing>([1, 1, 1], [1, 1, 1], &args, Order::Sequential).unwrap_err();
    assert_eq!((fault.kernel(), fault.thread()), ("fail", Some([3, 0, 0])));
    assert!(fault.to_string().contains("the child fails"), "{fault}");
    assert!(ran[0].load(Ordering::Relaxed) <= 8, "the second child did not run");
}

#[test]
fn children_of_a_failed_kernel_do_not_run() {
    let ran = [Atomic::new(0u32)];
    let args = Args::new().slice::<Atomic<u32>>(&ran).value(1u32);
    let fault = run::<launch_failing>([1, 1, 1], [1, 1, 1], &args, Order::Sequential).unwrap_err();
    assert_eq!(fault.kernel(), "launch_failing");
    assert_eq!(ran[0].load(Ordering::Relaxed), 0);
}

#[test]
#[should_panic(expected = "outside a kernel")]
fn only_a_kernel_launches_so() {
    // SAFETY: the child uses no memory.
    let _ = unsafe { dynamic::launch::<bounded>(1, 1, 0, ()) };
}

#[kernel]
unsafe fn set(condition: u64, value: u32) {
    if thread::index_1d() == 0 {
        // SAFETY: guaranteed by the caller.
        unsafe { set_condition(condition, value) };
    }
}

#[test]
fn a_condition_is_set() {
    let condition = AtomicU32::new(7);
    let handle = (&raw const condition).expose_provenance() as u64;
    launch::<set>([1, 1, 1], [4, 1, 1], &Args::new().value(handle).value(3u32));
    assert_eq!(condition.load(Ordering::Acquire), 3);
    let fault =
        run::<set>([1; 3], [1; 3], &Args::new().value(0u64).value(3u32), Order::Sequential).unwrap_err();
    assert!(fault.to_string().contains("0 is not a condition handle of a graph"), "{fault}");
}

#[kernel]
fn add_rows(byte: u8, from: Slice2<u32>, mut to: DisjointMut2<u32>) {
    let cell = thread::unique_2d();
    if let (Some(from), Some(to)) = (from.get(cell.get()), to.get_mut(cell)) {
        *to = from + u32::from(byte);
    }
}

#[kernel]
fn launch_rows(from: Slice2<u32>, mut to: DisjointMut2<u32>) {
    if thread::index_2d() == [0, 0] {
        // SAFETY: this kernel uses none of the elements.
        unsafe {
            let deep = dynamic::launch::<add_rows>((1, 1, 2), (4, 4), 0, (5, from, &mut to));
            assert_eq!(deep, Err(LaunchError::INVALID_CONFIGURATION));
            dynamic::launch::<add_rows>((2, 2), (4, 4), 0, (5, from, &mut to)).unwrap();
        }
    }
}

#[test]
fn views_of_rows_go_to_children() {
    let (from, mut to): (Vec<u32>, Vec<u32>) = ((0..48).collect(), vec![0; 48]);
    let extents = gpu_std::Extents2::new(6, 7, 8).unwrap();
    let args = Args::new().value(from.as_ptr()).value(extents).value(to.as_mut_ptr()).value(extents);
    launch::<launch_rows>([1, 1, 1], [2, 2, 1], &args);
    for (i, found) in to.into_iter().enumerate() {
        assert_eq!(found as usize, if i % 8 < 7 { i + 5 } else { 0 }, "element {i}");
    }
}
