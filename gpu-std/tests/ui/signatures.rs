use gpu_std::prelude::*;

#[address_space(constant)]
static A: core::mem::MaybeUninit<u32> = core::mem::MaybeUninit::uninit();

#[address_space(shared)]
static B: [f32; 4] = [0.0; 4];

#[kernel]
async fn asynchronous() {}

#[kernel]
const fn constant() {}

#[kernel]
extern "C" fn external() {}

#[kernel]
fn mutable_slice(x: &[f32], out: &mut [f32]) {}

#[kernel]
struct NotAFunction;

#[kernel]
fn odd_types(f: impl Fn(f32), g: fn(f32), h: DisjointMut, s: [f32]) {}

#[kernel]
fn patterns((a, b): (f32, f32), _: u32) {}

#[kernel]
fn pointer_in_safe_kernel(x: *const f32, out: *mut f32) {}

struct Owner;

impl Owner {
    #[kernel]
    fn receiver(&self, x: &[f32]) {}

    #[kernel]
    fn associated(x: &[f32]) {}
}

#[kernel]
fn optional(a: Option<DisjointMut>, b: Option<&mut [f32]>, c: Option<&f32>) {}

#[kernel]
fn references(a: &f32, b: &mut u32, c: &'static [f32], d: DisjointMut<'static, f32>) {}

#[kernel]
fn return_value(x: &[f32]) -> f32 {
    x[0]
}

fn main() {}
