//! Every operation, for every type and 1 to 8 ranks, compared with plain loops over the same numbers.

use std::fmt::Debug;

use half::{bf16, f16};
use warpsmith_collective::{
    BackendChoice, CollectiveError, Communicator, CommunicatorOptions, F8E4M3, F8E5M2, ReduceOp, Reducible,
};
use warpsmith_runtime::{DeviceBuffer, DeviceSliceMut, Result};

use crate::nccl_work::OPERATORS;
use crate::support::{LONG, on_ranks, streams};

const LENGTHS: [usize; 5] = [0, 1, 31, 33, 257];

/// Element type with a second implementation of its arithmetic.
trait Plain: Reducible + Debug {
    fn any(random: &mut fastrand::Rng) -> Self;
    fn bits(self) -> u64;
    /// Returns the reduction of the ranks' elements in rank order.
    fn reduced(operator: ReduceOp, of_ranks: &[Self]) -> Self;
}

macro_rules! integers {
    ($($type:ident),*) => { $(
        impl Plain for $type {
            fn any(random: &mut fastrand::Rng) -> Self {
                random.$type(..)
            }

            fn bits(self) -> u64 {
                self as u64
            }

            fn reduced(operator: ReduceOp, of_ranks: &[Self]) -> Self {
                let mut value = of_ranks[0];
                for next in &of_ranks[1..] {
                    value = match operator {
                        ReduceOp::Sum | ReduceOp::Avg => value.wrapping_add(*next),
                        ReduceOp::Prod => value.wrapping_mul(*next),
                        ReduceOp::Min => value.min(*next),
                        ReduceOp::Max => value.max(*next),
                    };
                }
                if operator == ReduceOp::Avg { (i128::from(value) / of_ranks.len() as i128) as Self } else { value }
            }
        }
    )* };
}

integers!(i8, u8, i32, u32, i64, u64);

macro_rules! floats {
    ($($type:ident, $wide:ident, |$x:ident| $widen:expr, |$y:ident| $narrow:expr;)*) => { $(
        impl Plain for $type {
            fn any(random: &mut fastrand::Rng) -> Self {
                let $y = (random.f64() * 4.0 - 2.0) as $wide;
                $narrow
            }

            fn bits(self) -> u64 {
                self.to_bits().into()
            }

            fn reduced(operator: ReduceOp, of_ranks: &[Self]) -> Self {
                let widen = |$x: Self| -> $wide { $widen };
                let narrow = |$y: $wide| -> Self { $narrow };
                let mut value = widen(of_ranks[0]);
                for next in of_ranks[1..].iter().map(|next| widen(*next)) {
                    value = match operator {
                        ReduceOp::Sum | ReduceOp::Avg => value + next,
                        ReduceOp::Prod => value * next,
                        ReduceOp::Min => value.min(next),
                        ReduceOp::Max => value.max(next),
                    };
                }
                narrow(if operator == ReduceOp::Avg { value / of_ranks.len() as $wide } else { value })
            }
        }
    )* };
}

floats! {
    f16, f32, |x| x.to_f32(), |x| f16::from_f32(x);
    f32, f32, |x| x, |x| x;
    f64, f64, |x| x, |x| x;
    bf16, f32, |x| x.to_f32(), |x| bf16::from_f32(x);
    F8E4M3, f32, |x| x.to_f32(), |x| F8E4M3::from_f32(x);
    F8E5M2, f32, |x| x.to_f32(), |x| F8E5M2::from_f32(x);
}

/// Returns the elements of each rank.
fn data<T: Plain>(world: usize, len: usize, seed: u64) -> Vec<Vec<T>> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..world).map(|_| (0..len).map(|_| T::any(&mut random)).collect()).collect()
}

fn bits<T: Plain>(values: &[T]) -> Vec<u64> {
    values.iter().map(|value| value.bits()).collect()
}

fn reduced<T: Plain>(operator: ReduceOp, of_ranks: &[Vec<T>]) -> Vec<u64> {
    let mut values = Vec::with_capacity(of_ranks.len());
    let one = |index: usize| {
        values.clear();
        values.extend(of_ranks.iter().map(|values| values[index]));
        T::reduced(operator, &values).bits()
    };
    (0..of_ranks[0].len()).map(one).collect()
}

fn on_device<T: Plain>(ranks: &Communicator, values: &[T]) -> DeviceBuffer<T> {
    DeviceBuffer::from_host(ranks.stream(), values).expect("a buffer")
}

/// Runs all reductions of a type with these lengths and operators.
fn reductions<T: Plain>(world: usize, lengths: &[usize], operators: &[ReduceOp]) {
    on_ranks(world, &CommunicatorOptions::new(), |mut ranks| {
        let rank = ranks.rank();
        for (case, &len) in lengths.iter().enumerate() {
            for &op in operators {
                let seed = (world * 1000 + case * 10 + op as usize) as u64;
                let what = format!("{}, {world} ranks, {len} elements, {op:?}", std::any::type_name::<T>());
                let all = data::<T>(world, len, seed);
                let expected = reduced(op, &all);

                let x = on_device(&ranks, &all[rank]);
                let mut y = on_device(&ranks, &data::<T>(1, len, !seed)[0]);
                ranks.all_reduce(&x, op, &mut y).expect("all_reduce").wait(LONG).expect("all_reduce");
                assert_eq!(bits(&y.to_host().expect("y")), expected, "all_reduce of {what}");
                assert_eq!(bits(&x.to_host().expect("x")), bits(&all[rank]), "the source of {what}");

                let mut x = x;
                drop(ranks.all_reduce_in_place(op, &mut x).expect("all_reduce"));
                assert_eq!(bits(&x.to_host().expect("x")), expected, "all_reduce in place of {what}");

                let root = case % world;
                let x = on_device(&ranks, &all[rank]);
                let before = y.to_host().expect("y");
                drop(ranks.reduce(&x, op, root, Some(y.as_mut_slice())).expect("reduce"));
                let y = bits(&y.to_host().expect("y"));
                assert_eq!(y, if rank == root { expected } else { bits(&before) }, "reduce of {what}");

                let all = data::<T>(world, len * world, seed);
                let expected = reduced(op, &all);
                let x = on_device(&ranks, &all[rank]);
                let mut y = DeviceBuffer::<T>::uninit(ranks.stream(), len).expect("a buffer");
                drop(ranks.reduce_scatter(&x, op, &mut y).expect("reduce_scatter"));
                let block = &expected[rank * len..(rank + 1) * len];
                assert_eq!(bits(&y.to_host().expect("y")), block, "reduce_scatter of {what}");

                let mut x = x;
                drop(ranks.reduce_scatter_in_place(op, &mut x).expect("reduce_scatter"));
                let x = x.to_host().expect("x");
                assert_eq!(
                    bits(&x[rank * len..(rank + 1) * len]),
                    block,
                    "reduce_scatter in place of {what}"
                );
            }
        }
        ranks.finish().expect("the end in common");
    });
}

macro_rules! reduces {
    ($($name:ident, $type:ty;)*) => { $(
        #[test]
        fn $name() {
            (1..=8).for_each(|world| reductions::<$type>(world, &LENGTHS[..if world < 4 { 5 } else { 3 }], &OPERATORS));
        }
    )* };
}

reduces! {
    i8_is_reduced_in_rank_order, i8;
    u8_is_reduced_in_rank_order, u8;
    i32_is_reduced_in_rank_order, i32;
    u32_is_reduced_in_rank_order, u32;
    i64_is_reduced_in_rank_order, i64;
    u64_is_reduced_in_rank_order, u64;
    f16_is_reduced_in_rank_order, f16;
    f32_is_reduced_in_rank_order, f32;
    f64_is_reduced_in_rank_order, f64;
    bf16_is_reduced_in_rank_order, bf16;
    f8_e4m3_is_reduced_in_rank_order, F8E4M3;
    f8_e5m2_is_reduced_in_rank_order, F8E5M2;
}

#[test]
fn reductions_longer_than_a_part_are_whole() {
    // A chunk has 256 KiB, so these reductions need several chunks.
    reductions::<f64>(2, &[(256 << 10) / 8 * 3 + 1], &[ReduceOp::Avg]);
    reductions::<u8>(3, &[(256 << 10) + 1], &[ReduceOp::Sum]);
}

#[test]
fn sums_of_8_bits_are_rounded_once_and_saturate() {
    // The Peer backend passes these operations to the Host backend.
    for backend in [BackendChoice::Host, BackendChoice::Peer] {
        on_ranks(3, &CommunicatorOptions::new().backend(backend), |mut ranks| {
            let of_ranks = [[448.0, 16.0, -448.0], [448.0, 0.75, -1.0], [-448.0, 0.75, 449.0]];
            let mut y = on_device(&ranks, &of_ranks[ranks.rank()].map(F8E4M3::from_f32));
            drop(ranks.all_reduce_in_place(ReduceOp::Sum, &mut y).expect("enqueued"));
            let sums: Vec<f32> = y.to_host().expect("y").iter().map(|sum| sum.to_f32()).collect();
            // With rounding after each addition, the second sum would be 16.
            assert_eq!(sums, [448.0, 18.0, -1.0]);
            let mut y = on_device(&ranks, &[F8E5M2::from_f32(57344.0)]);
            drop(ranks.all_reduce_in_place(ReduceOp::Sum, &mut y).expect("enqueued"));
            assert_eq!(y.to_host().expect("y")[0].to_f32(), 57344.0);
        });
    }
}

#[test]
fn numbers_win_over_nan() {
    on_ranks(3, &CommunicatorOptions::new(), |mut ranks| {
        let nan = f32::NAN;
        let x = on_device(&ranks, &[[nan, 1.0, nan], [2.0, nan, nan], [1.0, nan, nan]][ranks.rank()]);
        let mut y = on_device(&ranks, &[0.0; 3]);
        drop(ranks.all_reduce(&x, ReduceOp::Min, &mut y).expect("min"));
        let minimum = y.to_host().expect("y");
        drop(ranks.all_reduce(&x, ReduceOp::Max, &mut y).expect("max"));
        let largest = y.to_host().expect("y");
        assert_eq!((&minimum[..2], &largest[..2]), (&[1.0f32, 1.0][..], &[2.0f32, 1.0][..]));
        assert!(minimum[2].is_nan() && largest[2].is_nan());
    });
}

/// Type that cannot be reduced.
#[derive(Debug, Clone, Copy, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, packed)]
struct Particle {
    kind: u16,
    charge: i8,
}

#[test]
fn elements_of_any_type_move() {
    let lengths = [0, 1, 7, 100_001];
    for world in [1, 2, 3, 5, 8] {
        on_ranks(world, &CommunicatorOptions::new(), |mut ranks| {
            let rank = ranks.rank();
            for (case, &len) in lengths[..if world < 4 { 4 } else { 3 }].iter().enumerate() {
                let particle = |of: usize, index: usize| Particle { kind: index as u16, charge: of as i8 };
                let of =
                    |rank: usize, len: usize| (0..len).map(|index| particle(rank, index)).collect::<Vec<_>>();
                let stream = ranks.stream().clone();
                let buffer =
                    |values: &[Particle]| DeviceBuffer::from_host(&stream, values).expect("a buffer");
                let all: Vec<_> = (0..world).flat_map(|rank| of(rank, len)).collect();
                let root = (case + 1) % world;

                let mut x = buffer(&of(rank, len));
                let mut y = buffer(&of(99, len * world));
                drop(ranks.all_gather(&x, &mut y).expect("all_gather"));
                assert_eq!(y.to_host().expect("y"), all);

                let mut y = buffer(&of(99, len * world));
                stream.copy(&x, y.slice_mut(rank * len..(rank + 1) * len)).expect("the own block");
                drop(ranks.all_gather_in_place(&mut y).expect("all_gather"));
                assert_eq!(y.to_host().expect("y"), all);

                let mut y = buffer(&of(99, len * world));
                drop(ranks.gather(&x, root, Some(y.as_mut_slice())).expect("gather"));
                assert_eq!(
                    y.to_host().expect("y"),
                    if rank == root { all.clone() } else { of(99, len * world) }
                );

                let source = buffer(&all);
                let mut y = buffer(&of(99, len));
                drop(ranks.scatter(Some(source.as_slice()), root, &mut y).expect("scatter"));
                assert_eq!(y.to_host().expect("y"), of(rank, len));

                // Block r of rank s must come from block s of rank r.
                let source: Vec<_> = (0..world * len).map(|index| particle(rank, index)).collect();
                let mut y = buffer(&all);
                drop(ranks.all_to_all(&buffer(&source), &mut y).expect("all_to_all"));
                let from =
                    |other: usize| (rank * len..(rank + 1) * len).map(move |index| particle(other, index));
                assert_eq!(y.to_host().expect("y"), (0..world).flat_map(from).collect::<Vec<_>>());

                drop(ranks.broadcast(root, &mut x).expect("broadcast"));
                assert_eq!(x.to_host().expect("x"), of(root, len));

                if world > 1 {
                    let (left, right) = ((rank + world - 1) % world, (rank + 1) % world);
                    let mut y = buffer(&of(99, len));
                    let x = buffer(&of(rank, len));
                    let ring = ranks.group(|group| {
                        group.send(&x, right)?;
                        group.recv(left, &mut y)
                    });
                    drop(ring.expect("a ring"));
                    assert_eq!(y.to_host().expect("y"), of(left, len));
                }
            }
            ranks.finish().expect("the end in common");
        });
    }
}

#[test]
fn views_begin_anywhere() {
    on_ranks(3, &CommunicatorOptions::new(), |mut ranks| {
        let values: Vec<f32> = (0..64).map(|index| index as f32 * (ranks.rank() + 1) as f32).collect();
        let mut x = on_device(&ranks, &values);
        let (mut before, after) = x.as_mut_slice().split_at_mut(33);
        let target: DeviceSliceMut<'_, f32> = before.reborrow().into_slice(1..31);
        drop(ranks.all_reduce(after.as_slice().slice(1..31), ReduceOp::Sum, target).expect("all_reduce"));
        let result = x.to_host().expect("x");
        for index in 0..64 {
            let expected = match index {
                1..31 => 6.0 * (33 + index) as f32,
                _ => values[index],
            };
            assert_eq!(result[index], expected, "element {index}");
        }
    });
}

#[test]
fn one_thread_can_have_all_ranks() {
    let mut ranks = Communicator::init_all(&streams(4), &CommunicatorOptions::new()).expect("ranks connect");
    let mut buffers: Vec<_> =
        ranks.iter().map(|rank| on_device(rank, &[rank.rank() as i32 + 1; 5])).collect();
    let works: Vec<_> = ranks
        .iter_mut()
        .zip(&mut buffers)
        .map(|(rank, buffer)| rank.all_reduce_in_place(ReduceOp::Prod, buffer).expect("enqueued"))
        .collect();
    works.iter().for_each(|work| work.wait(LONG).expect("done"));
    assert!(works.iter().all(|work| work.query().expect("no error")));
    buffers.iter().for_each(|buffer| assert_eq!(buffer.to_host().expect("x"), [24; 5]));
}

#[test]
fn arguments_that_do_not_fit_are_named() {
    on_ranks(2, &CommunicatorOptions::new(), |mut ranks| {
        let rank = ranks.rank();
        let x = on_device(&ranks, &[1.0f32; 4]);
        let (mut y, mut odd) = (on_device(&ranks, &[0.0f32; 4]), on_device(&ranks, &[0.0f32; 3]));
        let text = |result: Result<warpsmith_collective::Work>| match result {
            Err(error) if matches!(error.downcast_ref(), Some(CollectiveError::Argument { .. })) => {
                error.to_string()
            }
            other => panic!("{other:?}"),
        };
        let equal = "the source has 4 elements, but the target has 3; the lengths must be equal";
        assert_eq!(
            text(ranks.all_reduce(&x, ReduceOp::Sum, &mut odd)),
            format!("all_reduce on rank {rank}: {equal}")
        );
        let blocks = "the target has 4 elements and the source has 4; with 2 ranks, the target must have 2 times the elements of the source";
        assert_eq!(text(ranks.all_gather(&x, &mut y)), format!("all_gather on rank {rank}: {blocks}"));
        let blocks = "the source has 4 elements and the target has 3; with 2 ranks, the source must have 2 times the elements of the target";
        let scattered = text(ranks.reduce_scatter(&x, ReduceOp::Sum, &mut odd));
        assert_eq!(scattered, format!("reduce_scatter on rank {rank}: {blocks}"));
        let three = on_device(&ranks, &[0.0f32; 3]);
        let divided = "3 elements cannot be divided evenly among 2 ranks";
        assert_eq!(text(ranks.all_to_all(&three, &mut odd)), format!("all_to_all on rank {rank}: {divided}"));
        let gathered = text(ranks.all_gather_in_place(&mut odd));
        assert_eq!(gathered, format!("all_gather on rank {rank}: {divided}"));
        let scattered = text(ranks.reduce_scatter_in_place(ReduceOp::Sum, &mut odd));
        assert_eq!(scattered, format!("reduce_scatter on rank {rank}: {divided}"));
        let root = "the root is rank 2, but the ranks are 0 to 1";
        assert_eq!(text(ranks.broadcast(2, &mut y)), format!("broadcast on rank {rank}: {root}"));
        let given = "this rank is the root, so it must pass a target, not `None`";
        assert_eq!(text(ranks.gather(&x, rank, None)), format!("gather on rank {rank}: {given}"));
        let itself = "a rank can send to itself only in a group that contains both the `send` and the `recv`";
        assert_eq!(text(ranks.send(&x, rank)), format!("send on rank {rank}: {itself}"));

        let elsewhere = &streams(1)[0];
        let mut other = DeviceBuffer::from_host(elsewhere, &[0.0f32; 4]).expect("a buffer");
        let error = ranks.broadcast(0, &mut other).expect_err("of another device");
        assert!(
            error.to_string().starts_with("broadcast: a buffer is on cpu:0, but the stream is on cpu"),
            "{error}"
        );

        // None of these calls was sent, so the communicator remains usable.
        drop(ranks.all_reduce(&x, ReduceOp::Sum, &mut y).expect("it works on"));
        assert_eq!(y.to_host().expect("y"), [2.0; 4]);
        ranks.finish().expect("the end in common");
    });
}
