//! Collective operations as plain functions of the values of a block, computed sequentially.

use super::compose;

/// Applies `f` to the values of each warp.
fn by_warp(v: &[u64], f: impl Fn(&[u64]) -> Vec<u64>) -> Vec<u64> {
    v.chunks(32).flat_map(f).collect()
}

/// Computes a value for each element of `v`, from its index.
fn each(v: &[u64], f: impl Fn(usize) -> u64) -> Vec<u64> {
    (0..v.len()).map(f).collect()
}

fn all_same(v: &[u64], value: u64) -> Vec<u64> {
    vec![value; v.len()]
}

fn mask(v: &[u64], f: impl Fn(u64) -> bool) -> u32 {
    v.iter().enumerate().fold(0, |mask, (lane, v)| mask | u32::from(f(*v)) << lane)
}

fn scan(v: impl IntoIterator<Item = u64>) -> Vec<u64> {
    let mut total = None;
    v.into_iter()
        .map(|v| {
            let next = total.map_or(v, |total| compose(total, v));
            total = Some(next);
            next
        })
        .collect()
}

fn scan_from(first: u64, v: &[u64]) -> Vec<u64> {
    let mut total = first;
    v.iter()
        .map(|v| {
            let before = total;
            total = compose(total, *v);
            before
        })
        .collect()
}

macro_rules! models {
    ($(fn $name:ident($v:ident, $n:ident) $body:block)*) => { $(
        #[doc = concat!("The model of [`", stringify!($name), "`](super::", stringify!($name), "()).")]
        pub fn $name($v: &[u64], $n: u32) -> Vec<u64> $body
    )* };
}

models! {
    fn shuffle(v, n) { by_warp(v, |v| all_same(v, v[n as usize % v.len()])) }
    fn gather(v, n) { by_warp(v, |v| each(v, |i| v[(v[i] as u32 ^ n) as usize % v.len()])) }
    fn shuffle_up(v, n) { by_warp(v, |v| each(v, |i| v[i.checked_sub(n as usize % 32).unwrap_or(i)])) }
    fn shuffle_down(v, n) { by_warp(v, |v| each(v, |i| *v.get(i + n as usize % 32).unwrap_or(&v[i]))) }
    fn shuffle_xor(v, n) { by_warp(v, |v| each(v, |i| *v.get(i ^ (n as usize % 32)).unwrap_or(&v[i]))) }
    fn shuffle_types(v, n) {
        let n = ((n % 32) | 1) as usize;
        by_warp(v, |v| each(v, |i| {
            let o = v[i ^ n];
            let near = v[i ^ (n % 8)];
            u64::from(o as u8) ^ ((o >> 8) as i16 as u64) ^ o ^ o.wrapping_mul(3).rotate_left(5) ^ (!o).rotate_left(9)
                ^ f64::from((o >> 24) as u32).to_bits() ^ near.rotate_left(33)
        }))
    }
    fn ballot(v, n) { by_warp(v, |v| all_same(v, u64::from(mask(v, |v| v >> (n % 64) & 1 == 1)))) }
    fn all_any(v, n) {
        by_warp(v, |v| {
            let some = |v: &u64| v >> (n % 62) & 3 != 0;
            all_same(v, u64::from(v.iter().all(some)) << 1 | u64::from(!v.iter().all(some)))
        })
    }
    fn match_any(v, n) {
        let low = |v: u64| v & ((2 << (n % 3)) - 1);
        by_warp(v, |v| each(v, |i| u64::from(mask(v, |x| low(x) == low(v[i]))) * 0x1_0000_0001))
    }
    fn match_bits(v, n) {
        let low = |v: u64| (v as u32 ^ n) & 7;
        by_warp(v, |v| each(v, |i| u64::from(mask(v, |x| low(x) == low(v[i]))) << 32
            | u64::from(v.iter().all(|x| x >> 62 == v[0] >> 62))))
    }
    fn reduce_numbers(v, n) {
        by_warp(v, |v| {
            let it = v.iter().copied();
            let value = match n % 8 {
                0 => u64::from(it.fold(0, |s: u32, v| s.wrapping_add(v as u32))),
                1 => it.fold(0, u64::wrapping_add),
                2 => it.map(|v| v as i32).min().unwrap_or(0) as u64,
                3 => u64::from(it.map(|v| v as u32).max().unwrap_or(0)),
                4 => it.map(|v| v as i64).min().unwrap_or(0) as u64,
                5 => u64::from(it.map(|v| v as u16).max().unwrap_or(0)),
                6 => u64::from(it.fold(0, |s: u8, v| s.wrapping_add(v as u8))),
                _ => it.map(|v| v as i8).max().unwrap_or(0) as u64,
            };
            all_same(v, value)
        })
    }
    fn reduce_xor(v, n) { by_warp(v, |v| all_same(v, v.iter().fold(0, |x, v| x ^ v.rotate_left(n)))) }
    fn reduce_first(v, n) {
        by_warp(v, |v| all_same(v, v[..n as usize % 32 + 1].iter().copied().reduce(compose).unwrap_or(0)))
    }
    fn warp_scan(v, n) { by_warp(v, |v| scan(v.iter().map(|v| v.rotate_left(n)))) }
    fn warp_exclusive_scan(v, n) { by_warp(v, |v| scan_from(u64::from(n) | 1 << 32, v)) }
    fn diverged(v, n) {
        by_warp(v, |v| {
            let is_set = |v: u64| v >> (n % 64) & 1 == 1;
            let set: Vec<u64> = v.iter().copied().filter(|v| is_set(*v)).collect();
            let of_set = set.iter().fold(1, |product: u64, v| product.wrapping_mul(v | 1));
            let first = v.iter().position(|v| is_set(*v));
            let rest = v.iter().filter(|v| !is_set(**v)).fold(0, |s: u32, v| s.wrapping_add(*v as u32));
            let mut sum = 0u64;
            each(v, |i| if is_set(v[i]) { of_set.wrapping_add(u64::from(first == Some(i))) } else { 0 })
                .into_iter()
                .zip(v)
                .map(|(of_set, v)| {
                    if is_set(*v) {
                        return of_set;
                    }
                    sum = sum.wrapping_add(*v);
                    sum ^ u64::from(rest)
                })
                .collect()
        })
    }
    fn leave_one_by_one(v, n) {
        by_warp(v, |v| each(v, |i| {
            let left = |v: u64| (v as u32 ^ n) % 7;
            (0..=left(v[i])).fold(v[i], |hash, round| hash.rotate_left(7) ^ u64::from(mask(v, |v| round < left(v))))
        }))
    }
    fn tiles(v, n) {
        v.chunks(8)
            .flat_map(|v| {
                let sum = v.iter().fold(0, |s: u64, v| s.wrapping_add(*v));
                let scan = scan(v.iter().copied());
                let odd = u64::from(mask(v, |v| v & 1 == 1));
                each(v, |i| {
                    let before = v[..i].iter().fold(n, |s, v| s.wrapping_add(*v as u32));
                    sum ^ scan[i].rotate_left(11) ^ u64::from(before) ^ v[i ^ 1].rotate_left(23) ^ odd << 40
                })
            })
            .collect()
    }
    fn block_reduce(v, n) {
        all_same(v, v.iter().map(|v| v.rotate_left(n)).reduce(compose).unwrap_or(0))
    }
    fn block_extremes(v, n) {
        let turned = || v.iter().map(|v| v.rotate_left(n));
        all_same(v, turned().min().unwrap_or(0) ^ turned().max().unwrap_or(0).rotate_left(1))
    }
    fn block_scan(v, n) { scan(v.iter().map(|v| v.rotate_left(n))) }
    fn block_exclusive_scan(v, n) { scan_from(u64::from(n) | 3 << 32, v) }
    fn broadcast(v, n) { all_same(v, v[n as usize % v.len()]) }
    fn count(v, n) {
        let count = v.iter().filter(|v| **v >> (n % 64) & 1 == 1).count();
        all_same(v, (count as u64) << 2 | u64::from(count == v.len()) << 1 | u64::from(count > 0))
    }
    fn exchange(v, n) { each(v, |i| v[(3 * i + n as usize) % v.len()]) }
    fn stencil(v, n) {
        let mut x: Vec<u32> = v.iter().map(|v| *v as u32).collect();
        let len = x.len();
        for round in 0..n % 4 + 1 {
            let old = x.clone();
            for (i, x) in x.iter_mut().enumerate() {
                let (right, left) = (old[(i + 1) % len], old[(i + len - 1) % len] as u8);
                *x = x.wrapping_mul(5).wrapping_add(right ^ u32::from(left)).rotate_left(round);
            }
        }
        x.into_iter().map(u64::from).collect()
    }
    fn histogram(v, n) {
        let mut counts = [0u32; 8];
        for v in v {
            let count = &mut counts[(v >> (n % 60)) as usize % 8];
            *count = count.wrapping_add(*v as u32 | 1);
        }
        let all = v.iter().fold(0, |x, v| x ^ v);
        let largest = v.iter().copied().max().unwrap_or(0);
        let sum = v.iter().fold(0, |s: u64, v| s.wrapping_add(*v));
        each(v, |i| u64::from(counts[i % 8]) ^ all ^ largest.rotate_left(21) ^ sum.rotate_left(42))
    }
    fn sort(v, n) {
        let mut sorted: Vec<u64> = v.iter().map(|v| v.rotate_left(n)).collect();
        sorted.sort();
        sorted
    }
}
