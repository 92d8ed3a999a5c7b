use gpu_std::prelude::*;

struct Owner;

impl Owner {
    #[kernel]
    fn wrong(&self, x: &[f32]) {}
}

fn main() {}
