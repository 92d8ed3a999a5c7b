use gpu_std::prelude::*;

#[kernel]
fn wrong(i: i32, x: f32) {
    printf!("%d %d\n", i);
    printf!("%d\n", i, x);
    printf!("%d\n", x);
    printf!("%f\n", i);
    printf!("%q\n", i);
    printf!("%*d\n", 3, i);
    printf!("100%");
    printf!(i);
}

fn main() {}
