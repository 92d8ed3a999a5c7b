//! Tests of indices, barriers and shared memory.

use crate::common::{Elements, ORDERS, SHAPES, block, bounded, fresh, global, launch, launch_as, spec, word};
use warpsmith_emulator::collective::{BarrierResult, barrier};
use warpsmith_emulator::{Fault, FaultKind, Order, shared, thread};

kernel!(static INDICES = "indices"(out: Elements<[[u32; 3]; 4]>) {
    let value = [thread::thread_index(), thread::block_index(), thread::block_dim(), thread::grid_dim()];
    assert_eq!(thread::lane(), thread::linear_index() % 32);
    out.set(global(), value);
});

#[test]
fn every_thread_runs_once_with_its_indices() {
    for block_shape in SHAPES {
        for grid in [[1, 1, 1], [7, 1, 1], [2, 3, 5], [1, 1, 9]] {
            for order in ORDERS {
                let blocks = grid.iter().product::<u32>() as usize;
                let threads = block_shape.iter().product::<u32>() as usize;
                let mut out = vec![[[u32::MAX; 3]; 4]; blocks * threads];
                launch_as(&INDICES, grid, block_shape, 0, order, &[word(&mut out)]).unwrap();
                let place = |i: usize, [x, y, _]: [u32; 3]| {
                    let i = i as u32;
                    [i % x, i / x % y, i / (x * y)]
                };
                for (i, got) in out.iter().enumerate() {
                    let want = [place(i % threads, block_shape), place(i / threads, grid), block_shape, grid];
                    assert_eq!(*got, want, "{block_shape:?} {grid:?} {order:?} {i}");
                }
            }
        }
    }
}

kernel!(static REDUCE = "reduce"(input: Elements<u64>, out: Elements<u64>) {
    static SITE: u8 = 0;
    let [x, y, z] = thread::block_dim();
    let (threads, me) = ((x * y * z) as usize, thread::linear_index() as usize);
    let memory = Elements(shared::static_memory(&SITE, 1024 * 4, 8).cast::<u32>());
    memory.set(me, input.get(global()) as u32);
    barrier(true);
    let mut width = threads.next_power_of_two() / 2;
    while width > 0 {
        if me < width && me + width < threads {
            memory.set(me, memory.get(me).wrapping_add(memory.get(me + width)));
        }
        barrier(true);
        width /= 2;
    }
    if me == 0 {
        out.set(block(), u64::from(memory.get(0)));
    }
});

#[test]
fn shared_memory_reductions_are_correct_in_every_order() {
    for shape in SHAPES {
        let threads = shape.iter().product::<u32>() as usize;
        for order in ORDERS {
            let mut input = fresh(threads * 5);
            let want: Vec<u64> = input
                .chunks(threads)
                .map(|chunk| u64::from(chunk.iter().fold(0u32, |sum, &v| sum.wrapping_add(v as u32))))
                .collect();
            let mut out = vec![u64::MAX; 5];
            launch_as(&REDUCE, [5, 1, 1], shape, 0, order, &[word(&mut input), word(&mut out)]).unwrap();
            assert_eq!(out, want, "{shape:?} {order:?}");
        }
    }
}

kernel!(static VOTE = "vote"(input: Elements<u64>, rounds: u64, out: Elements<BarrierResult>) {
    let me = thread::linear_index() as usize;
    for round in 0..rounds as usize {
        // Threads exit one after the other.
        if me < round {
            return;
        }
        let result = barrier(input.get(me) >> round & 1 == 1);
        out.set(me * rounds as usize + round, result);
    }
});

#[test]
fn barriers_count_and_forget_threads_that_have_exited() {
    for threads in [1usize, 31, 32, 33, 64, 257] {
        for order in ORDERS {
            let rounds = threads.min(60);
            let mut input = fresh(threads);
            let mut out = vec![BarrierResult::default(); threads * rounds];
            let args = [word(&mut input), rounds as u64, word(&mut out)];
            launch_as(&VOTE, [1, 1, 1], [threads as u32, 1, 1], 0, order, &args).unwrap();
            for round in 0..rounds {
                let holds = input[round..].iter().filter(|&v| v >> round & 1 == 1).count();
                let want =
                    BarrierResult { count: holds as u32, and: holds == threads - round, or: holds > 0 };
                for me in round..threads {
                    assert_eq!(out[me * rounds + round], want, "{threads} {order:?} {round} {me}");
                }
            }
        }
    }
}

kernel!(static POISON = "poison"(out: Elements<[u8; 4]>) {
    static A: u8 = 0;
    static B: u8 = 1;
    let [a, b, dynamic] =
        [shared::static_memory(&A, 77, 16), shared::static_memory(&B, 3, 1), shared::dynamic_memory()];
    assert_eq!(thread::dynamic_shared_bytes(), 1000);
    assert_eq!((a as usize % 16, dynamic as usize % 128), (0, 0));
    let [a, b, dynamic] = [Elements(a), Elements(b), Elements(dynamic)];
    if thread::linear_index() == 0 {
        out.set(block(), [a.get(0), a.get(76), b.get(0), dynamic.get(999)]);
        (0..77).for_each(|i| a.set(i, 1));
        (0..3).for_each(|i| b.set(i, 2));
        (0..1000).for_each(|i| dynamic.set(i, 3));
    }
    barrier(true);
    assert_eq!([a.get(76), b.get(2), dynamic.get(0), dynamic.get(999)], [1, 2, 3, 3]);
});

#[test]
fn each_block_has_its_own_poisoned_shared_memory() {
    let mut out = vec![[0u8; 4]; 300];
    launch_as(&POISON, [300, 1, 1], [40, 1, 1], 1000, Order::Sequential, &[word(&mut out)]).unwrap();
    assert!(out.iter().all(|v| *v == [shared::POISON; 4]));
}

kernel!(static GREEDY = "greedy"() {
    static SITE: u8 = 0;
    shared::static_memory(&SITE, 48 * 1024 + 1, 1);
});

#[test]
fn too_much_static_shared_memory_is_a_fault() {
    let text = launch(&GREEDY, [1, 1, 1], [1, 1, 1], &[]).unwrap_err().to_string();
    assert!(text.contains("needs 49153 bytes of static shared memory, but a GPU has 49152"), "{text}");
}

kernel!(static NOTE_ORDER = "note_order"(log: Elements<u64>) {
    // The first word counts the entries. No atomics are necessary because the launch runs on one core.
    let entries = log.get(0) + 1;
    log.set(0, entries);
    log.set(entries as usize, global() as u64);
    barrier(true);
});

#[test]
fn a_seed_determines_the_order() {
    let order_of = |seed| {
        let mut log = vec![0u64; 4 * 100 + 1];
        launch_as(&NOTE_ORDER, [4, 1, 1], [100, 1, 1], 0, Order::Seeded(seed), &[word(&mut log)]).unwrap();
        log.split_off(1)
    };
    let (first, again, other) = (order_of(1), order_of(1), order_of(2));
    assert_eq!(first, again);
    assert_ne!(first, other);
    let mut sorted = first.clone();
    sorted.sort_unstable();
    assert!(sorted.iter().copied().eq(0..400));
    let blocks: Vec<u64> = first.iter().step_by(100).map(|thread| thread / 100).collect();
    assert_eq!(blocks.len(), 4);
    assert!((0..20).any(|seed| order_of(seed)[0] / 100 != 0), "blocks are permuted too");
}

static LIMITED: gpu_spec::KernelSpec = bounded(spec("limited", nothing, 2), 64);

unsafe fn nothing(_: *const *const std::ffi::c_void) {}

#[test]
fn impossible_launches_say_what_is_wrong() {
    let failure = |grid, block, args: &[u64]| match launch(&LIMITED, grid, block, args) {
        Err(Fault { kernel: "limited", kind: FaultKind::InvalidLaunch(message), .. }) => message,
        other => panic!("{other:?}"),
    };
    assert!(launch(&LIMITED, [1; 3], [64, 1, 1], &[1, 2]).is_ok());
    for (grid, block) in [([0, 1, 1], [1, 1, 1]), ([1, 1, 0], [1; 3]), ([1; 3], [32, 0, 1])] {
        assert!(failure(grid, block, &[1, 2]).contains("must be at least 1"));
    }
    assert!(
        failure([1; 3], [32, 33, 1], &[1, 2]).contains("32 x 33 x 1 threads exceeds the maximum of 1024")
    );
    assert!(failure([1; 3], [u32::MAX; 3], &[1, 2]).contains("maximum of 1024"));
    assert!(failure([u32::MAX; 3], [1; 3], &[1, 2]).contains("too many blocks"));
    assert!(failure([1; 3], [65, 1, 1], &[1, 2]).contains("exceeds the kernel's launch bounds of 64"));
    assert!(
        failure([1; 3], [1; 3], &[1])
            .contains("the launch has 1 kernel arguments, but the kernel has 2 parameters")
    );
}

#[test]
fn calls_outside_a_kernel_say_so() {
    let text = |body: fn()| {
        *std::panic::catch_unwind(body).unwrap_err().downcast::<String>().expect("a formatted text")
    };
    assert_eq!(
        text(|| _ = thread::thread_index()),
        "thread_index was called outside a kernel: call it from a kernel that is launched on a device"
    );
    assert!(text(|| _ = barrier(true)).starts_with("sync_threads was called outside a kernel"));
    assert!(text(|| _ = shared::dynamic_memory()).starts_with("dynamic_memory was called outside"));
    assert!(text(|| warpsmith_emulator::output::print("x")).starts_with("print was called outside"));
    warpsmith_emulator::collective::spin_hint();
}
