use gpu_std::dynamic;
use gpu_std::prelude::*;

#[kernel]
fn child(factor: f32, x: &[f32], mut out: DisjointMut<f32>) {
    if let Some(out) = out.get_mut(thread::unique_index()) {
        *out = factor * x[0];
    }
}

#[kernel]
fn parent(x: &[f32], y: &[u32], mut out: DisjointMut<f32>) {
    // SAFETY: none of these compiles.
    unsafe {
        // The second argument has another type.
        let _ = dynamic::launch::<child>(1, 32, 0, (2.0f32, y, &mut out));
        // A read-only slice cannot be passed for a mutable view.
        let _ = dynamic::launch::<child>(1, 32, 0, (2.0f32, x, x));
        // An argument is missing.
        let _ = dynamic::launch::<child>(1, 32, 0, (2.0f32, x));
    }
}

fn main() {}
