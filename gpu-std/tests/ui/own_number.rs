use gpu_std::prelude::*;
use gpu_std::scalar::From64;

#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, bytemuck::Zeroable)]
#[repr(transparent)]
struct Mine(f32);

unsafe impl bytemuck::Pod for Mine {}
unsafe impl KernelValue for Mine {}
unsafe impl KernelType for Mine {}

impl From64 for Mine {
    fn from_i64(_: i64) -> Self {
        Self(0.0)
    }
    fn from_u64(_: u64) -> Self {
        Self(0.0)
    }
    fn from_f32(_: f32) -> Self {
        Self(0.0)
    }
    fn from_f64(_: f64) -> Self {
        Self(0.0)
    }
}

impl Scalar for Mine {
    const NAME: &'static str = "mine";
    const SIZE: usize = 1 << 20;
    const ZERO: Self = Self(0.0);
    const ONE: Self = Self(1.0);
    const MIN_IDENTITY: Self = Self(0.0);
    const MAX_IDENTITY: Self = Self(0.0);
    const EPSILON: f64 = 1e-7;
    type Accumulator = f32;
    fn to_acc(self) -> f32 {
        self.0
    }
    fn from_acc(value: f32) -> Self {
        Self(value)
    }
    fn wrapping_add(self, _: Self) -> Self {
        self
    }
    fn wrapping_mul(self, _: Self) -> Self {
        self
    }
    fn min_propagate(self, _: Self) -> Self {
        self
    }
    fn max_propagate(self, _: Self) -> Self {
        self
    }
    fn cast<U: Scalar>(self) -> U {
        U::ZERO
    }
}

fn main() {}
