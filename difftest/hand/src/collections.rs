//! Kernels that use crates of collections and iterators.

use arrayvec::{ArrayString, ArrayVec};
use bitvec::prelude::*;
use difftest_support::*;
use either::Either;
use enum_map::{Enum, EnumMap};
use generic_array::GenericArray;
use generic_array::typenum::{U5, U12};
use heapless::binary_heap::{BinaryHeap, Max};
use heapless::index_map::FnvIndexMap;
use heapless::{Deque, String, Vec as HeaplessVec};
use itertools::Itertools;

kernels! {
    /// `arrayvec`.
    arrayvec_lists(c, s) {
        let mut list = ArrayVec::<u32, 16>::new();
        for k in 0..20 { if list.try_push(c.w(k) as u32).is_err() { s.add(k); break; } }
        list.retain(|x| *x & 3 != 1);
        list.insert(list.len() / 2, 77);
        if let Some(x) = list.pop_at(c.w(3) as usize % 18) { s.add(x as u64); }
        list.sort_unstable();
        s.add(list.drain(..list.len() / 2).fold(0, |h, x| mix(h, x as u64)));
        s.add(list.iter().fold(0, |h, x| mix(h, *x as u64)));
        let mut text = ArrayString::<12>::new();
        for k in 0..20 { if text.try_push(char::from(b'a' + (c.w(k) % 26) as u8)).is_err() { break; } }
        s.add(text.bytes().fold(text.len() as u64, |h, b| mix(h, b as u64)));
    }
    /// `heapless`: vectors, queues, heaps, maps, text.
    heapless_lists(c, s) {
        let mut list = HeaplessVec::<u16, 12>::new();
        for k in 0..15 { if list.push(c.w(k) as u16).is_err() { s.add(k); } }
        if !list.is_empty() { s.add(list.swap_remove(c.w(1) as usize % list.len()) as u64); }
        s.add(list.iter().fold(0, |h, x| mix(h, *x as u64)));
        let mut queue = Deque::<u64, 5>::new();
        for k in 0..9 {
            if c.w(k) & 1 == 0 { _ = queue.push_back(k); } else { _ = queue.push_front(k); }
            if c.w(k) & 6 == 0 { s.add(queue.pop_front().unwrap_or(70)); }
        }
        s.add(queue.iter().fold(0, |h, x| mix(h, *x)));
        let mut heap = BinaryHeap::<u32, Max, 8>::new();
        for k in 0..12 { if heap.push(c.w(k) as u32).is_err() { s.add(heap.pop().unwrap_or(0) as u64); } }
        while let Some(x) = heap.pop() { s.add(x as u64); }
    }
    /// `heapless`: a map, and text.
    heapless_maps(c, s) {
        let mut map = FnvIndexMap::<u16, u64, 16>::new();
        for k in 0..20 { if map.insert((c.w(k) % 13) as u16, k).is_err() { s.add(1); } }
        _ = map.remove(&((c.w(1) % 13) as u16));
        for k in 0..13u16 { s.add(map.get(&k).copied().unwrap_or(99)); }
        let mut text = String::<10>::new();
        for k in 0..7 { s.add(text.push_str(["a", "bcd", "ü"][c.w(k) as usize % 3]).is_ok() as u64); }
        s.add(text.pop().map_or(1, |x| x as u64));
        s.add(text.len() as u64);
    }
    /// `tinyvec`.
    tinyvec_lists(c, s) {
        let mut list = tinyvec::ArrayVec::<[u64; 10]>::new();
        for k in 0..14 { if let Some(x) = list.try_push(c.w(k)) { s.add(x); } }
        list.truncate(c.w(1) as usize % 12);
        list.extend([1, 2].into_iter().take(10 - list.len()));
        list.reverse();
        for x in list { s.add(x); }
    }
    /// `bitvec`: an array of bits.
    bitvec_arrays(c, s) {
        let mut bits = bitarr![u32, Lsb0; 0; 96];
        for k in 0..30 { bits.set(c.w(k) as usize % 96, c.w(k) & 64 == 0); }
        s.add(bits.count_ones() as u64);
        s.add(bits.first_one().map_or(200, |i| i as u64));
        s.add(bits[10..50].load_le::<u64>());
        bits[20..60].reverse();
        s.add(bits.iter_ones().fold(0, |h, i| mix(h, i as u64)));
        s.add(bits[5..70].leading_zeros() as u64);
    }
    /// `either`.
    either_iterators(c, s) {
        for k in 0..4 {
            let n = c.w(k);
            let list = if n & 1 == 0 { Either::Left((0..n % 9).rev()) } else { Either::Right(core::iter::once(n)) };
            s.add(list.map(|x| x.wrapping_mul(3)).fold(0, mix));
        }
        let x: Either<u8, u64> = if c.w(5) & 1 == 0 { Either::Left(3) } else { Either::Right(c.w(6)) };
        s.add(x.either(u64::from, |x| !x));
    }
    /// `itertools`: adapters that do not allocate.
    itertools_adapters(c, s) {
        let list: [u64; 12] = core::array::from_fn(|k| c.w(k as u64) % 7);
        for (a, b) in list.iter().tuple_windows() { s.add(a * 8 + b); }
        s.add(list.iter().dedup().count() as u64);
        s.add(list.iter().copied().tree_reduce(|a, b| mix(a, b)).unwrap_or(1));
        match list.iter().minmax() { itertools::MinMaxResult::MinMax(a, b) => s.add(a * 8 + b), _ => s.add(9) }
        for x in list.iter().interleave([100, 200].iter()) { s.add(*x); }
        for (a, b) in (0..3u64).cartesian_product(0..c.w(1) % 3) { s.add(a << b); }
        s.add(list.iter().positions(|x| *x == 3).fold(0, |h, i| mix(h, i as u64)));
        s.add(list.iter().merge([2, 4, 6].iter()).fold(0, |h, x| mix(h, *x)));
        s.add(list.iter().all_equal() as u64);
    }
    /// `enum-map`.
    enum_map_counts(c, s) {
        #[derive(Enum, Clone, Copy)]
        enum Color { Red, Green, Blue }
        let mut counts: EnumMap<Color, u64> = EnumMap::default();
        for k in 0..10 {
            let color = match c.w(k) % 3 { 0 => Color::Red, 1 => Color::Green, _ => Color::Blue };
            counts[color] = counts[color].wrapping_mul(5) + k;
        }
        for (color, count) in counts { s.add(color as u64 ^ count << 2); }
    }
    /// `generic-array` and `typenum`.
    generic_arrays(c, s) {
        let list: GenericArray<u32, U12> = GenericArray::from_exact_iter((0..12).map(|k| c.w(k) as u32)).unwrap_or_default();
        let (a, b): (GenericArray<u32, U5>, GenericArray<u32, generic_array::typenum::U7>) = generic_array::sequence::Split::split(list);
        s.add(a.iter().fold(0, |h, x| mix(h, *x as u64)));
        s.add(b.iter().rev().fold(0, |h, x| mix(h, *x as u64)));
    }
    /// `scopeguard`.
    scope_guards(c, s) {
        let log = core::cell::Cell::new(c.w(1));
        {
            let _guard = scopeguard::guard(c.w(2), |x| log.set(mix(log.get(), x)));
            log.set(!log.get());
            let inner = scopeguard::guard(5, |x| log.set(log.get().wrapping_add(x)));
            if c.w(3) & 1 == 0 { s.add(scopeguard::ScopeGuard::into_inner(inner)); }
        }
        s.add(log.get());
    }
    /// `fixed` lists sorted through `core`, as strings of `heapless`: several crates combined.
    crates_together(c, s) {
        let mut list: ArrayVec<(fixed::types::I8F8, Either<u8, bool>), 24> = (0..24)
            .map(|k| (fixed::types::I8F8::from_bits(c.w(k) as i16), if k & 1 == 0 { Either::Left(k as u8) } else { Either::Right(true) }))
            .collect();
        list.sort_unstable_by(|a, b| b.0.cmp(&a.0).then(a.1.is_left().cmp(&b.1.is_left())));
        for (x, _) in &list { s.add(x.to_bits() as u64); }
    }
}
