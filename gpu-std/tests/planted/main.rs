#![cfg(warpsmith_check)]
#[path = "../emulated/common.rs"]
mod common;
use common::*;
use gpu_std::prelude::*;

/// Histogram that loses updates.
#[kernel]
unsafe fn lossy(data: &[u32], bins: *mut u32) {
    for i in thread::grid_stride(data.len()) {
        let bin = bins.wrapping_add((data[i.get()] % 16) as usize);
        unsafe { *bin += 1 };
    }
}

#[kernel]
pub fn beyond(mut out: DisjointMut<f32>) {
    let tile = shared_array![f32; 256];
    let own = thread::linear_in_block() as usize;
    unsafe { tile.add(own + 1).write(own as f32) };
    thread::sync_threads();
    let index = thread::unique_index();
    if let Some(out) = out.get_mut(index) {
        *out = unsafe { tile.add(own).read() };
    }
}

#[test]
fn first() {
    let data: Vec<u32> = (0..1000).collect();
    let mut bins = vec![0u32; 16];
    let args = Args::new().slice(&data).value(bins.as_mut_ptr());
    println!("{}", launch_shared::<lossy>([4, 1, 1], [256, 1, 1], 0, &args).unwrap_err());
    let mut out = vec![0f32; 1024];
    let args = Args::new().view(&mut out);
    println!("{}", launch_shared::<beyond>([4, 1, 1], [256, 1, 1], 0, &args).unwrap_err());
}
