use gpu_std::prelude::*;

#[derive(Clone, Copy, KernelType)]
struct Unordered {
    a: u8,
    b: u32,
}

#[derive(Clone, Copy, KernelType)]
#[repr(align(8))]
struct Single(u32);

#[derive(Clone, Copy, KernelType)]
#[repr(C)]
struct Flagged {
    number: u32,
    flag: bool,
}

#[derive(KernelType)]
#[repr(C)]
struct NotCopy(u32);

#[derive(Clone, Copy, KernelType)]
#[repr(u8)]
enum Choice {
    One,
    Two,
}

#[derive(Clone, Copy, KernelType)]
#[repr(C)]
union Either {
    a: u32,
    b: f32,
}

#[derive(Clone, Copy, KernelType)]
#[repr(C)]
struct Plain<T>(u32, T);

#[kernel]
fn takes(_plain: Plain<f32>, _flags: &[Plain<bool>]) {}

fn main() {}
