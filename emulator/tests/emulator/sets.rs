//! Tests of concurrently running blocks: the grid barrier, clusters and their shared memory.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::{Elements, ORDERS, block, fresh, global, launch, launch_at_once, word};
use warpsmith_emulator::collective::{
    barrier, cluster_arrive, cluster_wait, grid_barrier, spin_hint, warp_exchange,
};
use warpsmith_emulator::{FaultKind, Order, shared, thread};

const ONE: [u32; 3] = [1; 3];

/// Returns the number of threads of the launch.
fn threads() -> usize {
    let product = |[x, y, z]: [u32; 3]| (x * y * z) as usize;
    product(thread::grid_dim()) * product(thread::block_dim())
}

kernel!(static GRID_CHAIN = "grid_chain"(values: Elements<u64>, out: Elements<u64>, rounds: u64) {
    let (me, all) = (global(), threads());
    let mut value = values.get(me);
    for round in 0..rounds {
        values.set((round as usize + 1) % 2 * all + me, value);
        grid_barrier();
        // Value of a distant thread, in another block if there are several.
        value = values.get((round as usize + 1) % 2 * all + (me + all / 2 + 1) % all).wrapping_mul(3) + round;
    }
    out.set(me, value);
});

#[test]
fn the_grid_meets_repeatedly_in_every_order() {
    for (grid, size) in
        [(ONE, [1, 1, 1]), ([5, 1, 1], [1, 1, 1]), ([3, 2, 2], [33, 1, 1]), ([40, 1, 1], [8, 2, 4])]
    {
        for order in ORDERS {
            let all = (grid.iter().product::<u32>() * size.iter().product::<u32>()) as usize;
            let first = fresh(all);
            let mut values = [first.clone(), first.clone()].concat();
            let mut out = vec![0u64; all];
            let args = [word(&mut values), word(&mut out), 7];
            launch_at_once(&GRID_CHAIN, grid, size, ONE, true, order, &args).unwrap();
            let mut expected = first;
            for round in 0..7 {
                expected = (0..all)
                    .map(|me| expected[(me + all / 2 + 1) % all].wrapping_mul(3).wrapping_add(round))
                    .collect();
            }
            assert_eq!(out, expected, "{grid:?} {size:?} {order:?}");
        }
    }
}

kernel!(static PLACES = "places"(out: Elements<[u32; 4]>) {
    let size = thread::cluster_dim();
    let within = [0, 1, 2].map(|i| thread::block_index()[i] % size[i]);
    assert_eq!(thread::cluster_rank(), within[0] + size[0] * (within[1] + size[1] * within[2]));
    let [x, y, z] = size;
    out.set(block(), [x, y, z, thread::cluster_rank() + 1]);
});

#[test]
fn every_block_knows_its_cluster() {
    for (grid, cluster) in
        [([8, 1, 1], [4, 1, 1]), ([4, 6, 2], [2, 3, 1]), ([4, 4, 4], [1, 2, 4]), ([6, 1, 1], ONE)]
    {
        for order in ORDERS {
            for cooperative in [false, true] {
                let mut out = vec![[0u32; 4]; grid.iter().product::<u32>() as usize];
                launch_at_once(&PLACES, grid, [33, 1, 1], cluster, cooperative, order, &[word(&mut out)])
                    .unwrap();
                let blocks = cluster.iter().product::<u32>();
                for rank in 0..blocks {
                    let found = out.iter().filter(|place| place[3] == rank + 1).count();
                    assert_eq!(found, out.len() / blocks as usize, "{grid:?} {cluster:?} {order:?}");
                }
                assert!(out.iter().all(|place| place[..3] == cluster));
            }
        }
    }
}

kernel!(static CLUSTER_CHAIN = "cluster_chain"(out: Elements<u64>, rounds: u64) {
    static SITE: u8 = 0;
    let (rank, me) = (thread::cluster_rank(), thread::linear_index() as usize);
    let blocks = thread::cluster_dim().iter().product::<u32>();
    // Half of the threads request the memory before the others, in an order that differs from block to block.
    let (fixed, dynamic) = if rank.is_multiple_of(2) {
        (shared::static_memory(&SITE, 2 * 32 * 8, 8), shared::dynamic_memory())
    } else {
        let dynamic = shared::dynamic_memory();
        (shared::static_memory(&SITE, 2 * 32 * 8, 8), dynamic)
    };
    cluster_arrive("arrive");
    cluster_wait("wait");
    let mut value = global() as u64;
    for round in 0..rounds {
        let slot = round as usize % 2 * 32 + me;
        Elements(fixed.cast::<u64>()).set(slot, value);
        if me == 0 {
            Elements(dynamic).set(round as usize % 2 + 8, rank as u8);
        }
        cluster_arrive("arrive");
        let next = (rank + 1) % blocks;
        let other = shared::map_shared(fixed.wrapping_add(8 * slot), next);
        assert_eq!(shared::shared_rank(other), next);
        cluster_wait("wait");
        value = Elements(other.cast::<u64>()).get(0).wrapping_mul(5) + round;
        let rank_of_next = shared::map_shared(dynamic.wrapping_add(round as usize % 2 + 8), next);
        assert_eq!(u32::from(Elements(rank_of_next).get(0)), next);
    }
    out.set(global(), value);
    cluster_arrive("arrive");
    cluster_wait("wait");
});

#[test]
fn clusters_reach_each_others_shared_memory() {
    for (grid, cluster) in [(12, 4), (16, 16), (300, 2), (5, 1)] {
        for order in ORDERS {
            for cooperative in [false, true] {
                let mut out = vec![0u64; grid as usize * 32];
                let args = [word(&mut out), 5];
                let (grid, cluster) = ([grid, 1, 1], [cluster, 1, 1]);
                launch_at_once(&CLUSTER_CHAIN, grid, [32, 1, 1], cluster, cooperative, order, &args).unwrap();
                let width = 32 * cluster[0] as usize;
                let mut expected: Vec<u64> = (0..out.len() as u64).collect();
                for round in 0..5 {
                    expected = (0..out.len())
                        .map(|i| i / width * width + (i % width + 32) % width)
                        .map(|next| expected[next].wrapping_mul(5) + round)
                        .collect();
                }
                assert_eq!(out, expected, "{grid:?} {cluster:?} {order:?}");
            }
        }
    }
}

kernel!(static EARLY_EXITS = "early_exits"(out: Elements<u64>) {
    // In every block a different subset of threads exits before each barrier; some blocks exit as a whole.
    let (rank, me) = (thread::cluster_rank(), thread::linear_index());
    for round in 0..4 {
        if me % 7 == round || (rank == 3 && round == 2) {
            return;
        }
        if me % 7 == 6 && round == 3 {
            // Arrives, but does not wait for the others.
            cluster_arrive("arrive");
            return;
        }
        cluster_arrive("arrive");
        cluster_wait("wait");
    }
    out.set(global(), 1);
});

#[test]
fn exited_threads_do_not_hold_up_a_cluster() {
    for order in ORDERS {
        let mut out = vec![0u64; 8 * 70];
        launch_at_once(&EARLY_EXITS, [8, 1, 1], [70, 1, 1], [4, 1, 1], false, order, &[word(&mut out)])
            .unwrap();
        for (i, &value) in out.iter().enumerate() {
            assert_eq!(value == 1, (i % 70 % 7) > 3 && i % 70 % 7 != 6 && i / 70 % 4 != 3, "{i} {order:?}");
        }
    }
}

kernel!(static SPINS = "spins"(flags: &'static [AtomicU64; 8]) {
    // The first block waits for the last through memory, and the last for the first.
    let last = thread::grid_dim()[0] as usize - 1;
    for round in 1..=20 {
        let (own, other) = if block() == 0 { (0, 1) } else { (1, 0) };
        if block() == 0 || block() == last {
            if own == 0 {
                flags[own].fetch_add(1, Ordering::AcqRel);
            }
            while flags[other].load(Ordering::Acquire) < round * 40 {
                spin_hint();
            }
            if own == 1 {
                flags[own].fetch_add(1, Ordering::AcqRel);
            }
            // Neither thread may run ahead of the other.
            while flags[own].load(Ordering::Acquire) < round * 40 {
                spin_hint();
            }
        }
        grid_barrier();
    }
});

#[test]
fn blocks_of_a_cooperative_launch_may_spin() {
    for order in ORDERS {
        let flags: [AtomicU64; 8] = Default::default();
        let args = [std::ptr::from_ref(&flags) as u64];
        launch_at_once(&SPINS, [6, 1, 1], [40, 1, 1], ONE, true, order, &args).unwrap();
        assert_eq!(flags[0].load(Ordering::Relaxed), 800);
    }
}

kernel!(static ONE_EXITS = "one_exits"(who: u64) {
    if global() as u64 == who {
        return;
    }
    grid_barrier();
});

#[test]
fn an_exit_before_the_grid_barrier_deadlocks() {
    for order in ORDERS {
        let fault = launch_at_once(&ONE_EXITS, [3, 1, 1], [40, 1, 1], ONE, true, order, &[50]).unwrap_err();
        let text = fault.to_string();
        assert!(matches!(fault.kind, FaultKind::Deadlock { .. }), "{fault:?}");
        assert_eq!(fault.block, Some([0, 0, 0]));
        assert!(
            text.contains("80 threads are in grid::sync at ")
                && text.contains(": threads 0-39 of blocks 0, 2"),
            "{text}"
        );
        assert!(
            text.contains("39 threads are in grid::sync at ")
                && text.contains(": threads 0-9, 11-39 of block 1"),
            "{text}"
        );
        assert!(text.ends_with("but 1 exited without it, the first of them in block [1,0,0]"), "{text}");
    }
}

kernel!(static MIXED = "mixed"() {
    match block() {
        0 => grid_barrier(),
        1 => _ = barrier(true),
        _ => {
            cluster_arrive("cluster::sync");
            cluster_wait("cluster::sync");
        }
    }
    if block() == 1 && thread::linear_index() < 16 {
        warp_exchange(u32::MAX, "shuffle", 0);
    }
    grid_barrier();
});

#[test]
fn a_deadlock_among_blocks_says_who_waits_where() {
    let fault =
        launch_at_once(&MIXED, [4, 1, 1], [32, 1, 1], [2, 1, 1], true, Order::Sequential, &[]).unwrap_err();
    let text = fault.to_string();
    for (part, place) in [
        ("64 threads are in grid::sync at ", ": threads 0-31 of blocks 2-3"),
        ("32 threads are in grid::sync at ", ": threads 0-31 of block 0"),
        ("16 threads are in grid::sync at ", ": threads 16-31 of block 1"),
        ("16 threads are in shuffle, mask 0xffffffff at ", ": threads 0-15 of block 1"),
    ] {
        let found = text.lines().any(|line| line.trim().starts_with(part) && line.ends_with(place));
        assert!(found, "`{part}` `{place}`: {text}");
    }
    assert_eq!(text.lines().count(), 5, "{text}");
}

kernel!(static WRONG = "wrong"(how: u64) {
    static SITE: u8 = 0;
    let memory = shared::static_memory(&SITE, 8, 8);
    match how {
        0 => cluster_wait("cluster::wait"),
        1 => {
            cluster_arrive("cluster::arrive");
            cluster_arrive("cluster::arrive");
        }
        2 => _ = shared::map_shared(memory, 2),
        3 => _ = shared::map_shared(memory.wrapping_add(9), 0),
        4 => _ = shared::shared_rank(std::ptr::from_ref(&how).cast()),
        5 if thread::cluster_rank() == 0 => {
            // The other block ends without a barrier.
            while thread::cluster_rank() == 0 {
                shared::map_shared(memory, 1);
                spin_hint();
            }
        }
        6 => grid_barrier(),
        _ => {}
    }
});

#[test]
fn misuse_is_reported() {
    for (how, part) in [
        "cluster::wait was called by a thread that has not arrived",
        "cluster::arrive was called by a thread that has already arrived",
        "map_shared was called for block 2 of a cluster of 2 blocks",
        "map_shared was called with an address outside the shared memory of the calling block",
        "shared_rank was called with an address outside the shared memory of the cluster",
        "map_shared was called for block 1 of the cluster, which has exited",
        "launch the kernel cooperatively",
    ]
    .iter()
    .enumerate()
    {
        for order in ORDERS {
            let fault = launch_at_once(&WRONG, [4, 1, 1], [2, 1, 1], [2, 1, 1], false, order, &[how as u64]);
            let fault = fault.unwrap_err();
            assert!(fault.to_string().contains(part), "{fault}");
            assert!(fault.location().is_some_and(|at| at.contains("sets.rs")), "{fault}");
        }
    }
}

struct Counted<'a>(&'a AtomicU64);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
        // Collectives in a destructor have no effect while a failed launch is cleaned up.
        grid_barrier();
        cluster_arrive("arrive");
        cluster_wait("wait");
    }
}

kernel!(static DROPS = "drops"(alive: &'static AtomicU64) {
    alive.fetch_add(1, Ordering::Relaxed);
    let _counted = Counted(alive);
    grid_barrier();
    if global() == 77 {
        panic!("enough");
    }
    grid_barrier();
});

#[test]
fn a_failing_grid_drops_values_on_its_stacks() {
    for order in ORDERS {
        let alive = AtomicU64::new(0);
        let args = [std::ptr::from_ref(&alive) as u64];
        let fault = launch_at_once(&DROPS, [9, 1, 1], [30, 1, 1], [3, 1, 1], true, order, &args).unwrap_err();
        assert_eq!((fault.message(), fault.block), ("enough".to_owned(), Some([2, 0, 0])));
        assert_eq!(alive.load(Ordering::Relaxed), 0, "{order:?}");
    }
}

kernel!(static NOTHING = "nothing"() {});

#[test]
fn impossible_launches_are_refused() {
    for (grid, cluster, cooperative, part) in [
        ([6, 1, 1], [4, 1, 1], false, "is not a multiple of the cluster"),
        ([6, 3, 1], [1, 2, 1], false, "is not a multiple of the cluster"),
        ([32, 1, 1], [32, 1, 1], false, "the cluster [32, 1, 1] must have 1 to 16 blocks"),
        ([32, 1, 1], [0, 1, 1], false, "the cluster [0, 1, 1] must have 1 to 16 blocks"),
        ([32, 1, 1], [u32::MAX; 3], false, "must have 1 to 16 blocks"),
        (
            [100_000, 1, 1],
            ONE,
            true,
            "a cooperative grid of 100000 blocks of 64 threads exceeds the maximum of 448 concurrent blocks",
        ),
    ] {
        let fault = launch_at_once(&NOTHING, grid, [64, 1, 1], cluster, cooperative, Order::Sequential, &[])
            .unwrap_err();
        assert!(matches!(fault.kind, FaultKind::InvalidLaunch(_)), "{fault:?}");
        assert!(fault.to_string().contains(part), "{fault}");
    }
}

#[test]
fn a_failed_launch_does_not_affect_the_next() {
    for order in ORDERS {
        launch_at_once(&ONE_EXITS, [3, 1, 1], [40, 1, 1], ONE, true, order, &[50]).unwrap_err();
        launch_at_once(&ONE_EXITS, [3, 1, 1], [40, 1, 1], ONE, true, order, &[u64::MAX]).unwrap();
        let fault = launch(&ONE_EXITS, [2, 1, 1], [40, 1, 1], &[u64::MAX]).unwrap_err();
        assert!(fault.message().contains("launch the kernel cooperatively"), "{fault}");
        launch(&ONE_EXITS, ONE, [40, 1, 1], &[u64::MAX]).unwrap();
    }
}
