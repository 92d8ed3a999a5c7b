use gpu_std::atomic::{Atomic, scope};
use gpu_std::element::SliceElement;
use gpu_std::group::Group;
use gpu_std::param;
use gpu_std::prelude::*;
use gpu_std::printf::CInteger;

#[derive(Clone, Copy)]
struct Mine(u64);

impl SliceElement for Mine {
    type Param = param::Slice<u64>;
}

impl Group for Mine {
    fn size(&self) -> usize {
        0
    }
    fn thread_rank(&self) -> usize {
        1
    }
    fn sync(&self) {}
}

impl CInteger for Mine {
    fn signed(self) -> i64 {
        0
    }
    fn unsigned(self) -> u64 {
        0
    }
}

#[derive(Clone, Copy)]
struct Padded(u8, u32);

unsafe impl KernelValue for Padded {}
unsafe impl KernelType for Padded {}

fn exchange() {
    gpu_std::warp::shuffle(gpu_std::warp::FULL_MASK, Mine(1), 0);
    gpu_std::block::reduce(Padded(1, 2), |a, _| a);
}

#[kernel]
fn of_block(_counts: &[Atomic<u32, scope::Block>]) {}

#[kernel]
fn of_all(_counts: &[Atomic<u32>], _system: &[Atomic<u32, scope::System>]) {}

fn main() {}
