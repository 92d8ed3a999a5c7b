//! The Peer backend on emulated devices.

use std::fmt::Debug;

use half::{bf16, f16};
use warpsmith_collective::{BackendChoice, Communicator, CommunicatorOptions, Element, ReduceOp};
use warpsmith_runtime::DeviceBuffer;

use crate::support::{LONG, on_ranks, timeout};

/// Options of the Peer backend.
pub fn peer() -> CommunicatorOptions {
    timeout(60_000).backend(BackendChoice::Peer)
}

/// Elements by number, and their bits.
pub trait Numbers: Element + Debug {
    fn any(random: &mut fastrand::Rng) -> Self;
    fn bits(self) -> u64;
}

macro_rules! numbers {
    ($($type:ident, |$random:ident| $any:expr, |$x:ident| $bits:expr;)*) => { $(
        impl Numbers for $type {
            fn any($random: &mut fastrand::Rng) -> Self {
                $any
            }

            fn bits(self) -> u64 {
                let $x = self;
                $bits
            }
        }
    )* };
}

numbers! {
    i8, |random| random.i8(..), |x| x as u64;
    u8, |random| random.u8(..), |x| x.into();
    i32, |random| random.i32(..), |x| x as u64;
    u32, |random| random.u32(..), |x| x.into();
    i64, |random| random.i64(..), |x| x as u64;
    u64, |random| random.u64(..), |x| x;
    f16, |random| f16::from_f32(random.f32() * 4.0 - 2.0), |x| x.to_bits().into();
    f32, |random| random.f32() * 4.0 - 2.0, |x| x.to_bits().into();
    f64, |random| random.f64() * 4.0 - 2.0, |x| x.to_bits();
    bf16, |random| bf16::from_f32(random.f32() * 4.0 - 2.0), |x| x.to_bits().into();
}

/// Without elements, less than a vector, several vectors, two shots, and more than one launch has room for.
pub const LENGTHS: [usize; 7] = [0, 1, 3, 257, 1024, 5003, 300_001];

/// What `all_reduce` makes of a rank's numbers, as bits: all operators and lengths, from aligned and unaligned starts, in
/// place and not.
pub fn reduced<T: Numbers>(ranks: &mut Communicator, lengths: &[usize]) -> Vec<u64> {
    let mut random = fastrand::Rng::with_seed(7 + ranks.rank() as u64);
    let stream = ranks.stream().clone();
    let factor = T::any(&mut random);
    let mut bits = Vec::new();
    for &len in lengths {
        let ops = [
            ReduceOp::Sum,
            ReduceOp::Prod,
            ReduceOp::Min,
            ReduceOp::Max,
            ReduceOp::Avg,
            ReduceOp::PreMulSum(factor),
        ];
        for (number, op) in ops.into_iter().enumerate() {
            let start = number % 3;
            let values: Vec<T> = (0..start + len).map(|_| T::any(&mut random)).collect();
            let mut x = DeviceBuffer::from_host(&stream, &values).expect("x");
            if number % 2 == 0 {
                let mut y = DeviceBuffer::<T>::zeros(&stream, len + 1).expect("y");
                let work = ranks.all_reduce(x.slice(start..), y.slice_mut(1..), op).expect("enqueued");
                work.wait(LONG).expect("done");
                bits.extend(y.to_host().expect("y").into_iter().skip(1).map(Numbers::bits));
            } else {
                let work = ranks.all_reduce_in_place(x.slice_mut(start..), op).expect("enqueued");
                work.wait(LONG).expect("done");
                bits.extend(x.to_host().expect("x").into_iter().skip(start).map(Numbers::bits));
            }
        }
    }
    bits
}

/// Compares the bits of Peer and Host on all ranks.
fn compare<T: Numbers>(worlds: &[usize], lengths: &[usize]) {
    for &world in worlds {
        let by_host = on_ranks(world, &timeout(60_000), |mut ranks| reduced::<T>(&mut ranks, lengths));
        let by_peer = on_ranks(world, &peer(), |mut ranks| reduced::<T>(&mut ranks, lengths));
        for (rank, bits) in by_peer.iter().enumerate() {
            assert!(*bits == by_host[0], "{} on rank {rank} of {world}", std::any::type_name::<T>());
        }
    }
}

#[test]
fn sums_have_the_bits_of_host() {
    compare::<f32>(&[1, 2, 3, 4], &LENGTHS);
}

#[test]
fn all_types_have_the_bits_of_host() {
    let (worlds, lengths) = ([2, 5], [1, 257, 5003]);
    compare::<i8>(&worlds, &lengths);
    compare::<u8>(&worlds, &lengths);
    compare::<i32>(&worlds, &lengths);
    compare::<u32>(&worlds, &lengths);
    compare::<i64>(&worlds, &lengths);
    compare::<u64>(&worlds, &lengths);
    compare::<f16>(&worlds, &lengths);
    compare::<f64>(&worlds, &lengths);
    compare::<bf16>(&worlds, &lengths);
}
