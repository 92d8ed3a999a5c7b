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

#[derive(Clone, Copy, KernelValue)]
#[repr(u8)]
enum Flag {
    Off,
    On,
}

#[derive(Clone, Copy, KernelValue)]
enum WithoutNumbers {
    Off,
    On,
}

#[derive(Clone, Copy, KernelValue)]
#[repr(u8)]
enum WithFields {
    Off,
    On(u8),
}

#[derive(Clone, Copy, KernelValue)]
#[repr(u8)]
enum Never {}

#[derive(Clone, Copy, KernelValue)]
struct Settings {
    flag: bool,
}

#[derive(Clone, Copy, KernelValue)]
#[repr(C)]
struct Borrowed(&'static u32);

#[kernel]
fn elements(_flags: &[Flag], _bools: &[bool], mut _out: DisjointMut<Flag>) {}

fn main() {}
