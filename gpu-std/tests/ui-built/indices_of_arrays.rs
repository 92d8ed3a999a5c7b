use gpu_std::prelude::*;

#[kernel]
fn pairs(mut tile: Shared<[[[f32; 2]; 18]; 18]>) {
    let tile = tile.fill(|[row, column]| [row as f32, column as f32]);
    assert!(tile[0][0][0] == 0.0);
}

#[kernel]
fn steps(mut pair: DoubleBuffer<[[f32; 2]; 64]>) {
    pair.step(|old, [i]| old[i]);
}

fn main() {
    println!("{} {}", <pairs as gpu_std::Kernel>::spec().symbol, <steps as gpu_std::Kernel>::spec().symbol);
}
