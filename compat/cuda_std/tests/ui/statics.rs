use core::mem::MaybeUninit;

use cuda_std::{address_space, externally_visible};

#[address_space(shared)]
static READABLE: [f32; 4] = [0.0; 4];

#[address_space(shared)]
static RIGHT: MaybeUninit<[f32; 4]> = MaybeUninit::uninit();

#[address_space(local)]
static mut LOCAL: u32 = 0;

#[address_space(texture)]
static mut TEXTURE: u32 = 0;

#[address_space(shared)]
fn no_static() {}

#[externally_visible]
#[unsafe(no_mangle)]
pub fn device_function() {}

fn main() {}
