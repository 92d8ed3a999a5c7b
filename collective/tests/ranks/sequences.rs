//! Random sequences of operations. At the end, all ranks must have the values of a model.

use warpsmith_collective::{Communicator, CommunicatorOptions, ReduceOp, Work};
use warpsmith_runtime::DeviceBuffer;

use crate::peer::peer;
use crate::support::{LONG, on_ranks};

/// Arrays of the ranks. Each rank has three arrays of `world` times `block` elements.
struct Model {
    world: usize,
    block: usize,
    arrays: Vec<[Vec<u32>; 3]>,
}

#[derive(Debug, Clone, Copy)]
struct Step {
    operation: usize,
    from: usize,
    to: usize,
    root: usize,
}

fn steps(seed: u64, world: usize) -> Vec<Step> {
    let mut random = fastrand::Rng::with_seed(seed);
    let step = |_| {
        let from = random.usize(..3);
        let to = (from + random.usize(1..3)) % 3;
        Step { operation: random.usize(..10), from, to, root: random.usize(..world) }
    };
    (0..40).map(step).collect()
}

impl Model {
    fn new(seed: u64, world: usize, block: usize) -> Self {
        let mut random = fastrand::Rng::with_seed(!seed);
        let mut array = || (0..world * block).map(|_| random.u32(..)).collect::<Vec<_>>();
        let arrays = (0..world).map(|_| [array(), array(), array()]).collect();
        Self { world, block, arrays }
    }

    fn apply(&mut self, Step { operation, from, to, root }: Step) {
        let (world, block) = (self.world, self.block);
        let x: Vec<Vec<u32>> = self.arrays.iter().map(|arrays| arrays[from].clone()).collect();
        let at = |rank: usize| rank * block..(rank + 1) * block;
        let sum = |index: usize| x.iter().fold(0u32, |sum, x| sum.wrapping_add(x[index]));
        for rank in 0..world {
            let y = &mut self.arrays[rank][to];
            match operation {
                0 => (0..world * block).for_each(|index| y[index] = sum(index)),
                1 => (0..world * block).filter(|_| rank == root).for_each(|index| y[index] = sum(index)),
                3 => (0..world).for_each(|other| y[at(other)].copy_from_slice(&x[other][..block])),
                4 => y[..block].iter_mut().zip(at(rank)).for_each(|(y, index)| *y = sum(index)),
                5 => (0..world).for_each(|other| y[at(other)].copy_from_slice(&x[other][at(rank)])),
                6 if rank == root => {
                    (0..world).for_each(|other| y[at(other)].copy_from_slice(&x[other][..block]))
                }
                7 => y[..block].copy_from_slice(&x[root][at(rank)]),
                8 => y.copy_from_slice(&x[(rank + world - 1) % world]),
                _ => {}
            }
        }
        if operation == 2 {
            let of_root = self.arrays[root][to].clone();
            self.arrays.iter_mut().for_each(|arrays| arrays[to].copy_from_slice(&of_root));
        }
    }
}

fn call(
    ranks: &mut Communicator,
    arrays: &mut [DeviceBuffer<u32>],
    block: usize,
    Step { operation, from, to, root }: Step,
) -> warpsmith_runtime::Result<Work> {
    let (world, rank) = (ranks.world_size(), ranks.rank());
    let [x, y] = arrays.get_disjoint_mut([from, to]).expect("two arrays");
    match operation {
        0 => ranks.all_reduce(&*x, ReduceOp::Sum, y),
        1 => ranks.reduce(&*x, ReduceOp::Sum, root, Some(y.as_mut_slice())),
        2 => ranks.broadcast(root, y),
        3 => ranks.all_gather(x.slice(..block), y),
        4 => ranks.reduce_scatter(&*x, ReduceOp::Sum, y.slice_mut(..block)),
        5 => ranks.all_to_all(&*x, y),
        6 => ranks.gather(x.slice(..block), root, (rank == root).then(|| y.as_mut_slice())),
        7 => ranks.scatter((rank == root).then(|| x.as_slice()), root, y.slice_mut(..block)),
        8 => ranks.group(|group| {
            group.send(&*x, (rank + 1) % world)?;
            group.recv((rank + world - 1) % world, y)
        }),
        _ => ranks.barrier(),
    }
}

#[test]
fn random_sequences_agree_with_a_model() {
    for case in 0..12u64 {
        agrees(case, 400, &CommunicatorOptions::new().checked(case % 2 == 0));
    }
}

/// The algorithms of the kernels can follow each other in any order.
#[test]
fn random_sequences_by_peer_agree_with_a_model() {
    for case in 0..12u64 {
        agrees(case, [100, 400, 3000][case as usize % 3], &peer());
    }
}

/// Runs one case, with blocks of fewer than `blocks` elements.
fn agrees(case: u64, blocks: usize, options: &CommunicatorOptions) {
    let mut random = fastrand::Rng::with_seed(case);
    let (world, block) = (random.usize(1..=6), random.usize(1..blocks));
    let steps = steps(case, world);
    let mut model = Model::new(case, world, block);
    let initial: Vec<_> = model.arrays.clone();
    steps.iter().for_each(|step| model.apply(*step));
    on_ranks(world, options, |mut ranks| {
        let rank = ranks.rank();
        let stream = ranks.stream().clone();
        let buffer = |values: &Vec<u32>| DeviceBuffer::from_host(&stream, values).expect("a buffer");
        let mut arrays: Vec<_> = initial[rank].iter().map(buffer).collect();
        for step in &steps {
            // The host runs ahead, so the streams must preserve the order.
            drop(call(&mut ranks, &mut arrays, block, *step).expect("enqueued"));
        }
        let last = ranks.barrier().expect("enqueued");
        last.wait(LONG).expect("done");
        for (array, expected) in arrays.iter().zip(&model.arrays[rank]) {
            assert!(
                &array.to_host().expect("x") == expected,
                "case {case}, rank {rank} of {world}: {steps:?}"
            );
        }
        ranks.finish().expect("the end in common");
    });
}
