use gpu_std::prelude::*;

#[kernel]
fn twice(mut out: DisjointMut<u32>) {
    let i = thread::unique_index();
    let a = out.get_mut(i);
    let b = out.get_mut(i);
    drop((a, b));
}

#[kernel]
fn copied(out: DisjointMut<u32>) {
    drop(out);
    drop(out);
}

fn main() {}
