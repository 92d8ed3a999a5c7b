use gpu_std::prelude::*;

#[derive(Clone, Copy, KernelType)]
#[repr(C, packed(2))]
struct Inside {
    kind: u8,
    mass: u32,
}

#[derive(Clone, Copy, KernelType)]
#[repr(packed(4), C)]
struct AtTheEnd(u64, [u8; 2]);

#[derive(Clone, Copy, KernelType)]
#[repr(C)]
#[repr(packed(8))]
struct Marked {
    kind: u8,
    marker: [u16; 0],
}

#[derive(Clone, Copy, KernelType)]
#[repr(C, packed(2))]
struct Pair<T>(u8, T);

#[kernel]
fn generic(_fits: &[Pair<u8>], _padded: DisjointMut<Pair<u16>>) {}

#[derive(Clone, Copy, KernelType)]
#[repr(packed)]
struct WithoutC(u8, u32);

#[derive(Clone, Copy, KernelType)]
#[repr(C)]
union Either {
    number: u32,
    bytes: [u8; 4],
}

fn main() {}
