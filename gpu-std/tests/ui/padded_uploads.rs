use gpu_std::__private::DeviceCopy;
use gpu_std::prelude::*;

#[derive(Clone, Copy, KernelType)]
#[repr(C)]
struct Pair<T>(u32, T);

#[derive(Clone, Copy, KernelType)]
#[repr(C)]
struct Plain {
    pair: [u32; 2],
}

#[derive(Clone, Copy, bytemuck::AnyBitPattern)]
#[repr(C)]
struct Padded {
    kind: u8,
    mass: u64,
}

const fn upload<T: DeviceCopy>() {
    let () = T::CHECKED;
}

const _: () = upload::<Plain>();
const _: () = upload::<Pair<f32>>();
const _: () = upload::<Pair<f64>>();
const _: () = upload::<Padded>();
const _: () = upload::<glam::Affine2>();
const _: () = upload::<bool>();

fn main() {}
