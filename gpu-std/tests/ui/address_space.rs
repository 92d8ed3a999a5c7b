use gpu_std::prelude::*;

#[address_space(constant)]
static A: core::mem::MaybeUninit<u32> = core::mem::MaybeUninit::uninit();

#[address_space(shared)]
static B: [f32; 4] = [0.0; 4];

fn main() {}
