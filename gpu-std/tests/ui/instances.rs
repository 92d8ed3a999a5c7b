use gpu_std::prelude::*;
use gpu_std::{Instance, Kernel, SafeKernel};

#[kernel(types(T = f32, f64))]
fn scale<T: Float>(_a: T, _x: DisjointMut<T>) {}

/// # Safety
///
/// There are no conditions.
#[kernel]
unsafe fn raw(_x: *const f32) {}

fn launch<K: SafeKernel>() {}

fn generic<T: Float>() {
    launch::<scale<T>>();
}

#[kernel]
fn by_number(mut x: DisjointMut<f32>, i: u32) {
    if let Some(x) = x.get_mut(i as usize) {
        *x = 0.0;
    }
}

fn main() {
    launch::<raw>();
    launch::<scale<f16>>();
    let _ = <scale<f32> as Kernel>::spec();
    fn is_instance<K: Instance>() {}
    is_instance::<scale<u32>>();
}
