use core::marker::PhantomData;

use gpu_std::prelude::*;

#[derive(Clone, Copy, KernelType)]
#[repr(C)]
struct Empty {}

#[derive(Clone, Copy, KernelType)]
#[repr(C, align(32))]
struct Wide([u8; 32]);

#[derive(Clone, Copy, KernelType)]
#[repr(C, align(4096))]
struct Page([u64; 512]);

#[kernel]
fn unit(_unit: ()) {}

#[kernel]
fn empty_array(_array: [f32; 0]) {}

#[kernel]
fn marker(_marker: PhantomData<u32>) {}

#[kernel]
fn empty_struct(_empty: Empty) {}

#[kernel(consts(N = 1, 0))]
fn empty_instance<const N: usize>(_coefficients: [f32; N]) {}

#[kernel]
fn aligned_value(_value: Wide) {}

#[kernel]
fn aligned_elements(_elements: &[Wide], _pages: &[Page]) {}

#[kernel]
fn aligned_view(_out: DisjointMut<Page>) {}

#[kernel]
fn too_large(_table: [u64; 500], _x: &[f32], _y: &[f32], _z: &[f32], _w: &[f32], _v: &[f32], _u: &[f32], _n: u8) {}

// The parameters take exactly 4096 bytes.
#[kernel]
fn large(_table: [u64; 500], _x: &[f32], _y: &[f32], _z: &[f32], _w: &[f32], _v: &[f32], _u: &[f32]) {}

fn main() {}
