use cuda_std::kernel;

#[kernel]
pub fn safe(x: &[f32]) {}

#[kernel]
pub unsafe fn mutable_slice(x: &mut [f32]) {}

#[kernel]
pub unsafe fn mutable_reference(x: &mut f32) {}

#[kernel]
pub unsafe fn returns() -> u32 {
    0
}

#[kernel]
pub unsafe fn generic<T: Copy>(x: &[T]) {}

#[kernel(launch_bounds = 256)]
pub unsafe fn unknown_hint() {}

#[kernel(grid_dim = 4d)]
pub unsafe fn wrong_hint() {}

struct Methods;

impl Methods {
    #[kernel]
    pub unsafe fn method(&self) {}
}

#[kernel]
struct NoFunction;

fn main() {}
