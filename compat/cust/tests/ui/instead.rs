//! What this crate has not says what to use instead.
use cust::graph::Graph;
use cust::memory::array::ArrayObject;
use cust::texture::Texture;

fn main() {
    let array = ArrayObject::new([1, 2]);
    let _ = Texture::from_array(array);
    let _ = Graph::new();
}
