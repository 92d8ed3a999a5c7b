//! Structs, enums and `bool`: as parameters and elements, between threads, and in block-wide results.

use crate::common::{Args, launch, launch_shared, random};
use gpu_std::prelude::*;
use gpu_std::{Checked, Kernel, warp};

#[derive(Debug, Clone, Copy, PartialEq, KernelType)]
#[repr(C)]
pub struct Pair<T> {
    key: u64,
    value: T,
}

#[derive(Debug, Clone, Copy, PartialEq, KernelType)]
#[repr(transparent)]
pub struct Metres(f64);

#[derive(Debug, Clone, Copy, PartialEq, KernelType)]
#[repr(C, align(16))]
pub struct Row {
    pairs: [Pair<Metres>; 2],
    total: Metres,
    is_closed: Checked<bool>,
    _padding: [u8; 7],
}

#[kernel]
fn total(row: Row, rows: &[Row], mut out: DisjointMut<Row>) {
    let i = thread::unique_index();
    if let Some(out) = out.get_mut(i) {
        *out = rows[i.get()];
        out.pairs[1] = row.pairs[1];
        out.total.0 = out.pairs.iter().map(|pair| pair.value.0).sum();
        out.is_closed = (out.is_closed.get() == Some(false)).into();
    }
}

#[test]
fn derived_structs_are_parameters_and_elements() {
    let row = |key: u8| {
        let pair = |key: u8| Pair { key: key.into(), value: Metres(key.into()) };
        let pairs = [pair(key), pair(key + 1)];
        Row { pairs, total: Metres(0.0), is_closed: (key == 20).into(), _padding: [0; 7] }
    };
    let rows = [row(10), row(20), row(30)];
    let mut out = [row(0); 3];
    launch::<total>([1, 1, 1], [3, 1, 1], &Args::new().value(row(4)).slice(&rows).view(&mut out));
    assert_eq!(out.map(|row| row.total.0), [15.0, 25.0, 35.0]);
    assert_eq!(out.map(|row| row.pairs[1].key), [5; 3]);
    assert_eq!(out.map(|row| row.is_closed.get()), [Some(true), Some(false), Some(true)]);
    // The derive also implements the bytemuck traits for the host.
    assert_eq!(bytemuck::bytes_of(&row(1)).len(), 48);
    let layout = |index: usize| {
        let abi = <total as Kernel>::spec().params[index].abi();
        (abi.kind, abi.size, abi.align)
    };
    assert_eq!([layout(0), layout(2)], [(0, 48, 16), (2, 48, 16)]);
}

#[derive(Debug, Clone, Copy, PartialEq, KernelValue)]
#[repr(i16)]
pub enum Mode {
    Add = -5,
    Multiply,
    Keep = 300,
}

#[test]
fn bytes_that_are_no_value_are_none() {
    let modes = [Checked::new(Mode::Add), bytemuck::cast(7_i16)];
    assert_eq!(format!("{modes:?}"), "[Add, invalid(7)]");
    for bits in 0..=u8::MAX {
        let expected = [Some(false), Some(true)].get(bits as usize).copied().flatten();
        assert_eq!(bytemuck::cast::<u8, Checked<bool>>(bits).get(), expected);
    }
    for bits in i16::MIN..=i16::MAX {
        let expected = match bits {
            -5 => Some(Mode::Add),
            -4 => Some(Mode::Multiply),
            300 => Some(Mode::Keep),
            _ => None,
        };
        assert_eq!(bytemuck::cast::<i16, Checked<Mode>>(bits).get(), expected);
    }
}

/// A type with an associative, non-commutative operation.
pub trait Chain: KernelType + PartialEq + core::fmt::Debug {
    const START: Self;
    fn of(bits: u64) -> Self;
    fn then(self, next: Self) -> Self;
}

/// Linear functions of integers, and a count.
macro_rules! chains {
    ($($name:ident, $t:ty, $count:literal;)*) => { $(
        #[derive(Debug, Clone, Copy, PartialEq, KernelType)]
        #[repr(C)]
        pub struct $name {
            scale: $t,
            offset: $t,
            counts: [$t; $count],
        }

        impl Chain for $name {
            const START: Self = Self { scale: 1, offset: 0, counts: [0; $count] };

            fn of(bits: u64) -> Self {
                let counts = core::array::from_fn(|i| (bits >> (i % 7)) as $t);
                Self { scale: bits as $t | 1, offset: (bits >> 32) as $t, counts }
            }
            fn then(self, next: Self) -> Self {
                Self {
                    scale: self.scale.wrapping_mul(next.scale),
                    offset: self.offset.wrapping_mul(next.scale).wrapping_add(next.offset),
                    counts: core::array::from_fn(|i| self.counts[i].wrapping_add(next.counts[i])),
                }
            }
        }
    )* };
}
// The sizes are 3, 6, 8, 12, 20 and 256 bytes.
chains! {
    Bytes, u8, 1; Halves, u16, 1; Words, u32, 0; Three, u32, 1; Five, u32, 3; Large, u64, 30;
}

#[kernel(types(T = Bytes, Halves, Words, Three, Five, Large))]
fn chain_lanes<T: Chain>(mask: u32, input: &[T], mut out: DisjointMut<[T; 4]>) {
    let lane = warp::lane_id();
    if mask >> lane & 1 == 1 {
        let value = input[lane as usize];
        // The full mask is combined in a tree, so the operation must be commutative.
        let first = |a: T, _: T| a;
        let results = [
            warp::inclusive_scan(mask, value, T::then),
            warp::exclusive_scan(mask, value, T::START, T::then),
            if mask == warp::FULL_MASK {
                warp::shuffle(mask, value, 0)
            } else {
                warp::reduce(mask, value, T::then)
            },
            warp::shuffle_xor(mask, warp::reduce(mask, value, first), 0),
        ];
        if let Some(out) = out.get_mut(thread::unique_index()) {
            *out = results;
        }
        assert_eq!(warp::match_any(mask, value), 1 << lane);
    }
}

#[kernel(types(T = Bytes, Halves, Words, Three, Five, Large))]
fn chain_tiles<T: Chain>(input: &[T], mut out: DisjointMut<[T; 3]>) {
    let tile = Tile::<8>::current();
    let value = input[thread::linear_in_block() as usize];
    let results = [
        tile.inclusive_scan(value, T::then),
        tile.exclusive_scan(value, T::START, T::then),
        tile.shuffle_down(value, 1),
    ];
    if let Some(out) = out.get_mut(thread::unique_index()) {
        *out = results;
    }
}

#[kernel(types(T = Bytes, Halves, Words, Three, Five, Large))]
fn chain_blocks<T: Chain>(input: &[T], mut out: DisjointMut<[T; 2]>, mut totals: DisjointMut<T, PerBlock>) {
    let me = thread::unique_index();
    let value = input[me.get()];
    let results = [block::inclusive_scan(value, T::then), block::exclusive_scan(value, T::START, T::then)];
    if let Some(out) = out.get_mut(me) {
        *out = results;
    }
    let total = block::reduce(value, T::then);
    if let Some(out) = totals.get_mut(block::unique_index()) {
        *out = total;
    }
}

/// Returns the expected scans, inclusive and exclusive.
fn scanned<T: Chain>(values: &[T]) -> Vec<[T; 2]> {
    let mut before = T::START;
    values
        .iter()
        .map(|value| {
            let result = [before.then(*value), before];
            before = result[0];
            result
        })
        .collect()
}

fn different<T: Chain>(len: usize) -> Vec<T> {
    let mut values: Vec<T> = Vec::new();
    while values.len() < len {
        let value = T::of(random());
        if len > 32 || !values.contains(&value) {
            values.push(value);
        }
    }
    values
}

fn check_chains<W: Kernel, L: Kernel, B: Kernel, T: Chain>() {
    for round in 0..6 {
        let mask = [u32::MAX, 0x7FFF, 1, random() as u32 | 2][round % 4];
        let input = different::<T>(32);
        let mut out = vec![[T::START; 4]; 32];
        launch::<W>([1, 1, 1], [32, 1, 1], &Args::new().value(mask).slice(&input).view(&mut out));
        let lanes: Vec<usize> = (0..32).filter(|lane| mask >> lane & 1 == 1).collect();
        let members: Vec<T> = lanes.iter().map(|&lane| input[lane]).collect();
        let expected = scanned(&members);
        let last = expected[members.len() - 1][0];
        for (&lane, scanned) in lanes.iter().zip(expected) {
            assert_eq!(out[lane][..2], scanned, "lane {lane} of {mask:#x}");
            assert_eq!(out[lane][2], if mask == u32::MAX { input[0] } else { last });
            if mask != u32::MAX {
                assert_eq!(out[lane][3], members[0]);
            }
        }
    }
    let input = different::<T>(32);
    let mut out = vec![[T::START; 3]; 32];
    launch::<L>([1, 1, 1], [32, 1, 1], &Args::new().slice(&input).view(&mut out));
    for (values, out) in input.chunks(8).zip(out.chunks(8)) {
        for (rank, (scanned, out)) in scanned(values).into_iter().zip(out).enumerate() {
            assert_eq!((out[..2].to_vec(), out[2]), (scanned.to_vec(), values[(rank + 1).min(7)]));
        }
    }
    let shapes = [1, 31, 32, 33, 95, 256].map(|threads| [threads, 1, 1]);
    for block in shapes.into_iter().chain([[5, 4, 7], [10, 10, 10]]) {
        let threads = block.iter().product::<u32>() as usize;
        let input = different::<T>(3 * threads);
        let (mut out, mut totals) = (vec![[T::START; 2]; 3 * threads], [T::START; 4]);
        let args = Args::new().slice(&input).view(&mut out).view(&mut totals);
        launch::<B>([3, 1, 1], block, &args);
        for (index, values) in input.chunks(threads).enumerate() {
            let expected = scanned(values);
            assert_eq!(out[index * threads..][..threads], expected, "block {index} of {block:?}");
            assert_eq!(totals[index], expected[threads - 1][0]);
        }
        assert_eq!(totals[3], T::START);
    }
}

#[test]
fn structs_are_exchanged_reduced_and_scanned() {
    check_chains::<chain_lanes<Bytes>, chain_tiles<Bytes>, chain_blocks<Bytes>, Bytes>();
    check_chains::<chain_lanes<Halves>, chain_tiles<Halves>, chain_blocks<Halves>, Halves>();
    check_chains::<chain_lanes<Words>, chain_tiles<Words>, chain_blocks<Words>, Words>();
    check_chains::<chain_lanes<Three>, chain_tiles<Three>, chain_blocks<Three>, Three>();
    check_chains::<chain_lanes<Five>, chain_tiles<Five>, chain_blocks<Five>, Five>();
    check_chains::<chain_lanes<Large>, chain_tiles<Large>, chain_blocks<Large>, Large>();
}

std::thread_local! {
    static KEPT: std::cell::Cell<Option<gpu_std::per_block::BlockIndex>> = const { std::cell::Cell::new(None) };
}

#[kernel]
fn keeps_an_index(mut out: DisjointMut<u32, PerBlock>) {
    // warpsmith-check: allow the threads of this test share the host's storage on purpose
    let index = KEPT.get().unwrap_or(block::unique_index());
    // warpsmith-check: allow the threads of this test share the host's storage on purpose
    KEPT.set(Some(index));
    if let Some(out) = out.get_mut(index) {
        *out += 1;
    }
}

#[test]
fn another_blocks_index_is_refused() {
    KEPT.set(None);
    let mut out = [0; 2];
    let fault =
        launch_shared::<keeps_an_index>([2, 1, 1], [1, 1, 1], 0, &Args::new().view(&mut out)).unwrap_err();
    assert!(fault.message().contains("belongs to another block"), "{fault}");
}

/// Packed structs without padding between their fields.
mod packed {
    use gpu_std::prelude::*;

    macro_rules! packed {
        ($($name:ident: [$($repr:tt)*] $bytes:literal;)*) => {
            $(
                #[derive(Clone, Copy, KernelType)]
                $($repr)*
                pub struct $name {
                    pub a: u8,
                    pub b: [u16; 2],
                    pub c: u8,
                    pub d: u64,
                }
            )*

            #[test]
            fn packed_structs_without_padding_are_plain() {
                $(
                    let value = $name { a: 1, b: [0x0203, 0x0405], c: 6, d: 0x0708 };
                    assert_eq!(bytemuck::bytes_of(&value), [1, 3, 2, 5, 4, 6, 8, 7, 0, 0, 0, 0, 0, 0], "{}", stringify!($name));
                    assert_eq!(size_of::<$name>(), $bytes);
                )*
            }
        };
    }
    packed! {
        Packed: [#[repr(C, packed)]] 14;
        Packed1: [#[repr(packed(1), C)]] 14;
        Apart: [#[repr(C)] #[repr(packed)]] 14;
    }

    #[derive(Clone, Copy, KernelType)]
    #[repr(C, packed(2))]
    pub struct Even {
        pub a: [u8; 2],
        pub b: u64,
    }

    #[derive(Clone, Copy, KernelType)]
    #[repr(C, packed(4))]
    pub struct Generic<T>(pub T, pub u32);

    #[kernel]
    fn takes(_even: &[Even], _generic: &[Generic<u64>]) {}

    #[test]
    fn packed_to_more_is_plain_where_the_fields_fit() {
        let even = Even { a: [1, 2], b: 3 };
        assert_eq!(bytemuck::bytes_of(&even), [1, 2, 3, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!((size_of::<Generic<u64>>(), align_of::<Generic<u64>>()), (12, 4));
    }
}
