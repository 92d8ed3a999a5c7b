//! Kernels that host and GPU treat as the same: two modules contain a kernel of the same name and layout, as if two
//! compilers had compiled it.

use gpu_std::{Kernel, ParamSpec};

/// Returns the records that the host compares with the image.
fn abi<K: Kernel>() -> Vec<gpu_std::__private::AbiParam> {
    K::spec().params.iter().map(ParamSpec::abi).collect()
}

/// Two kernels whose parameters have the same kinds, sizes and alignments.
macro_rules! pair {
    ($name:ident: {$($first:tt)*} {$($second:tt)*} => $same:literal) => {
        #[test]
        #[allow(dead_code, unused_variables, unused_imports)]
        fn $name() {
            mod first {
                use gpu_std::atomic::{Atomic, scope};
                use gpu_std::disjoint::{Rows, Tiles, TransposedTiles, Unclaimed};
                use gpu_std::prelude::*;
                use gpu_std::{Checked, TensorMap};
                $($first)*
            }
            mod second {
                use gpu_std::atomic::{Atomic, scope};
                use gpu_std::disjoint::{Rows, Tiles, TransposedTiles, Unclaimed};
                use gpu_std::prelude::*;
                use gpu_std::{Checked, TensorMap};
                $($second)*
            }
            let (first, second) = (abi::<first::k>(), abi::<second::k>());
            let layouts = |of: &[gpu_std::__private::AbiParam]| -> Vec<_> {
                of.iter().map(|param| (param.kind, param.size, param.align)).collect()
            };
            assert_eq!(layouts(&first), layouts(&second), "the sizes would tell them apart");
            assert_eq!(first == second, $same);
        }
    };
}

pair!(a_kernel_is_itself: {#[kernel] pub fn k(x: &[f32], b: bool, y: DisjointMut<u64, Chunks<4>>) {}}
    {#[kernel] pub fn k(x: &[f32], b: bool, y: DisjointMut<u64, Chunks<4>>) {}} => true);
pair!(a_bool_is_no_byte: {#[kernel] pub fn k(flag: bool) {}} {#[kernel] pub fn k(flag: u8) {}} => false);
pair!(a_bool_is_no_byte_by_another_name: {type Flag = bool; #[kernel] pub fn k(flag: Flag) {}}
    {type Flag = u8; #[kernel] pub fn k(flag: Flag) {}} => false);
pair!(a_char_is_no_number: {#[kernel] pub fn k(c: [char; 2]) {}} {#[kernel] pub fn k(c: [u32; 2]) {}} => false);
pair!(numbers_differ: {#[kernel] pub fn k(x: &[f32]) {}} {#[kernel] pub fn k(x: &[u32]) {}} => false);
pair!(signs_differ: {#[kernel] pub fn k(y: DisjointMut2<i64>) {}} {#[kernel] pub fn k(y: DisjointMut2<u64>) {}} => false);
pair!(checked_is_no_byte: {#[kernel] pub fn k(x: &[Checked<bool>]) {}} {#[kernel] pub fn k(x: &[u8]) {}} => false);
pair!(atomics_differ: {#[kernel] pub fn k(x: &[Atomic<u32>]) {}}
    {#[kernel] pub fn k(x: &[Atomic<u32, scope::System>]) {}} => false);
pair!(an_atomic_is_no_number: {#[kernel] pub fn k(x: &[Atomic<u32>]) {}} {#[kernel] pub fn k(x: &[u32]) {}} => false);
pair!(variants_count:
    {#[derive(Clone, Copy, KernelValue)] #[repr(u8)] pub enum E { A, B } #[kernel] pub fn k(e: E) {}}
    {#[derive(Clone, Copy, KernelValue)] #[repr(u8)] pub enum E { A, B, C } #[kernel] pub fn k(e: E) {}} => false);
pair!(numbers_of_variants_count:
    {#[derive(Clone, Copy, KernelValue)] #[repr(i64)] pub enum E { A, B = -2 } #[kernel] pub fn k(e: E) {}}
    {#[derive(Clone, Copy, KernelValue)] #[repr(i64)] pub enum E { A, B = 0xffff_fffe } #[kernel] pub fn k(e: E) {}}
    => false);
pair!(an_enum_in_a_struct_counts:
    {#[derive(Clone, Copy, KernelValue)] #[repr(u8)] pub enum E { A }
     #[derive(Clone, Copy, KernelValue)] #[repr(C)] pub struct S { e: E, x: f32 } #[kernel] pub fn k(s: S) {}}
    {#[derive(Clone, Copy, KernelValue)] #[repr(u8)] pub enum E { A, B }
     #[derive(Clone, Copy, KernelValue)] #[repr(C)] pub struct S { e: E, x: f32 } #[kernel] pub fn k(s: S) {}} => false);
pair!(an_enum_in_a_buffer_counts:
    {#[derive(Clone, Copy, KernelValue)] #[repr(u8)] pub enum E { A } #[kernel] pub fn k(e: &[Checked<E>]) {}}
    {#[derive(Clone, Copy, KernelValue)] #[repr(u8)] pub enum E { A, B } #[kernel] pub fn k(e: &[Checked<E>]) {}}
    => false);
pair!(fields_have_an_order:
    {#[derive(Clone, Copy, KernelType)] #[repr(C)] pub struct S { x: f32, y: f32 } #[kernel] pub fn k(s: &[S]) {}}
    {#[derive(Clone, Copy, KernelType)] #[repr(C)] pub struct S { y: f32, x: f32 } #[kernel] pub fn k(s: &[S]) {}}
    => false);
pair!(fields_have_types:
    {#[derive(Clone, Copy, KernelType)] #[repr(C)] pub struct S(f32, u32); #[kernel] pub fn k(s: &[S]) {}}
    {#[derive(Clone, Copy, KernelType)] #[repr(C)] pub struct S(u32, f32); #[kernel] pub fn k(s: &[S]) {}} => false);
pair!(structs_have_names:
    {#[derive(Clone, Copy, KernelType)] #[repr(C)] pub struct A(u64); #[kernel] pub fn k(s: A) {}}
    {#[derive(Clone, Copy, KernelType)] #[repr(C)] pub struct B(u64); #[kernel] pub fn k(s: B) {}} => false);
pair!(generic_structs_have_arguments:
    {#[derive(Clone, Copy, KernelType)] #[repr(C)] pub struct P<T>(T); #[kernel] pub fn k(s: P<u32>) {}}
    {#[derive(Clone, Copy, KernelType)] #[repr(C)] pub struct P<T>(T); #[kernel] pub fn k(s: P<f32>) {}} => false);
pair!(mappings_differ: {#[kernel] pub fn k(y: DisjointMut<u32>) {}}
    {#[kernel] pub fn k(y: DisjointMut<u32, PerBlock>) {}} => false);
pair!(lengths_of_chunks_differ: {#[kernel] pub fn k(y: DisjointMut<u32, Chunks<4>>) {}}
    {#[kernel] pub fn k(y: DisjointMut<u32, Chunks<8>>) {}} => false);
pair!(large_chunks_differ: {#[kernel] pub fn k(y: DisjointMut<u32, Chunks<4>>) {}}
    {#[kernel] pub fn k(y: DisjointMut<u32, Chunks<{ 4 + (1 << 32) }>>) {}} => false);
pair!(sides_of_tiles_differ: {#[kernel] pub fn k(y: DisjointMut2<u32, Tiles<8, 4>>) {}}
    {#[kernel] pub fn k(y: DisjointMut2<u32, Tiles<4, 8>>) {}} => false);
pair!(tiles_are_not_transposed: {#[kernel] pub fn k(y: DisjointMut2<u32, Tiles<8, 8>>) {}}
    {#[kernel] pub fn k(y: DisjointMut2<u32, TransposedTiles<8, 8>>) {}} => false);
pair!(what_is_optional_counts: {#[kernel] pub fn k(x: &[u32]) {}} {#[kernel] pub fn k(x: Option<&[u32]>) {}} => false);
pair!(dimensions_of_tensors_count: {#[kernel] pub unsafe fn k(x: &TensorMap<bf16, 2>) {}}
    {#[kernel] pub unsafe fn k(x: &TensorMap<bf16, 3>) {}} => false);
pair!(safety_counts: {#[kernel] pub fn k(x: &[u32]) {}} {#[kernel] pub unsafe fn k(x: &[u32]) {}} => false);
pair!(waiting_counts: {#[kernel(dependent)] pub fn k(x: &[u32]) {}} {#[kernel] pub fn k(x: &[u32]) {}} => false);
pair!(cooperation_counts: {#[kernel(cooperative)] pub fn k(x: &[u32]) {}} {#[kernel] pub fn k(x: &[u32]) {}} => false);
