//! Items that this crate lacks name their replacement.
use cust::graph::Graph;
use cust::memory::array::ArrayObject;
use cust::texture::Texture;

fn main() {
    let array = ArrayObject::new([1, 2]);
    let _ = Texture::from_array(array);
    let _ = Graph::new();
}
