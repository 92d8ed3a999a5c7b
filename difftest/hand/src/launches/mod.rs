//! Kernels that test parameters and launches: shared arrays of all kinds, planes, views, atomics of all scopes,
//! barriers through `dyn`, many and large parameters, grids that wait.

#[cfg(not(target_arch = "nvptx64"))]
mod host;

use difftest_support::*;
use gpu_std::atomic::scope;

#[cfg(not(target_arch = "nvptx64"))]
pub use self::host::cases;

/// Sum of each element and its neighbors up to `reach` away, through dynamic shared memory.
#[kernel]
pub fn window_sums(reach: u32, data: &[u64], mut tile: Shared<[u64]>, mut out: DisjointMut<u64>) {
    let first = block::linear_index() * block::threads() as usize;
    let tile = tile
        .fill(|[i]| (first + i).checked_sub(reach as usize).and_then(|i| data.get(i)).copied().unwrap_or(1));
    let own = thread::linear_in_block() as usize;
    if let (Some(out), Some(window)) =
        (out.get_mut(thread::unique_index()), tile.get(own..own + 2 * reach as usize + 1))
    {
        *out = window.iter().fold(0, |sum, x| mix(sum, *x));
    }
}

/// Running sums in two alternating buffers.
#[kernel]
pub fn running_sums(data: &[u64], mut sums: DoubleBuffer<[u64]>, mut out: DisjointMut<u64>) {
    let len = sums.len();
    let first = block::linear_index() * len;
    sums.fill(|[i]| data.get(first + i).copied().unwrap_or(0));
    let mut distance = 1;
    while distance < len {
        sums.step(|old, [i]| if i < distance { old[i] } else { old[i].wrapping_add(old[i - distance]) });
        distance *= 2;
    }
    let own = thread::linear_in_block() as usize;
    if let (Some(out), Some(sum)) = (out.get_mut(thread::unique_index()), sums.current().get(own)) {
        *out = *sum;
    }
}

/// Transpose through padded tiles.
#[kernel(block(32, 8))]
pub fn transpose(
    image: Slice2<u64>,
    mut tile: Shared<Padded<u64, 32, 32>>,
    mut out: DisjointMut2<u64, TransposedTiles<32, 32>>,
) {
    let [left, top] = out.tile_origin();
    let tile = tile.fill(|[row, column]| image.get([top + row, left + column]).copied().unwrap_or(0));
    out.write_tile(|[row, column]| tile[column][row]);
}

/// Tiled matrix product.
#[kernel(block(16, 16))]
pub fn product(
    a: Slice2<u64>,
    b: Slice2<u64>,
    mut tiles: DoubleBuffer<[[[u64; 16]; 16]; 2]>,
    mut out: DisjointMut2<u64>,
) {
    let cell = thread::unique_2d();
    let (column, row) = (thread::thread_idx_x() as usize, thread::thread_idx_y() as usize);
    let (left, top) = (thread::block_idx_x() * 16, thread::block_idx_y() * 16);
    let (mut sum, mut first) = (0u64, 0);
    while first < a.columns() as u32 {
        let [of_a, of_b] = tiles.fill(|[which, row, column]| {
            let (row, column) = (row as u32, column as u32);
            let element = if which == 0 {
                a.get([top + row, first + column])
            } else {
                b.get([first + row, left + column])
            };
            element.copied().unwrap_or(0)
        });
        for (a, of_b) in of_a[row].iter().zip(of_b) {
            sum = sum.wrapping_add(a.wrapping_mul(of_b[column]));
        }
        first += 16;
    }
    if let Some(out) = out.get_mut(cell) {
        *out = sum;
    }
}

/// Counts in shared memory, then in device memory.
#[kernel]
pub fn count(data: &[u64], mut counts: Shared<[Atomic<u32, scope::Block>; 16]>, totals: &[Atomic<u64>]) {
    let counted = counts.zeroed();
    for i in thread::grid_stride(data.len()) {
        counted[data[i.get()] as usize % 16].fetch_add(1, Ordering::Relaxed);
    }
    counts.update(|count, [bin]| {
        if let Some(total) = totals.get(bin) {
            total.fetch_add(u64::from(count.load(Ordering::Relaxed)), Ordering::AcqRel);
        }
    });
}

/// Work of a block between barriers, called through a pointer.
trait Phase {
    fn run(&self, value: u64) -> u64;
}

struct Exchange(u32);
struct Sum;

impl Phase for Exchange {
    fn run(&self, value: u64) -> u64 {
        collective::exchange(value, self.0)
    }
}

impl Phase for Sum {
    fn run(&self, value: u64) -> u64 {
        collective::block_reduce(value, 3) ^ u64::from(block::sync_threads_count(value & 1 == 1))
    }
}

/// Barriers in methods of trait objects, in an order that the launch chooses.
#[kernel(stack = 4096)]
pub fn barriers_behind_dyn(order: u32, data: &[u64], mut out: DisjointMut<u64>) {
    let phases: [&dyn Phase; 3] = [&Exchange(5), &Sum, &Exchange(order)];
    let place = thread::unique_index();
    let mut value = data.get(place.get()).copied().unwrap_or(9);
    for k in 0..4 {
        value = mix(value, phases[((order >> (2 * k)) & 3) as usize % 3].run(value));
    }
    if let Some(out) = out.get_mut(place) {
        *out = value;
    }
}

/// Parameters of all sizes.
#[kernel]
pub fn many_parameters(
    a: u8,
    b: u16,
    c: u32,
    d: u64,
    e: i8,
    f: i16,
    g: i32,
    h: i64,
    i: bool,
    j: f32,
    k: f64,
    l: char,
    m: [u8; 3],
    n: [u16; 5],
    o: u128,
    p: i128,
    q: f16,
    r: bf16,
    x0: &[u64],
    x1: &[u64],
    x2: u8,
    x3: u64,
    x4: u8,
    x5: [u64; 2],
    x6: usize,
    x7: isize,
    x8: Option<&[u64]>,
    mut out: DisjointMut<u64>,
) {
    let place = thread::unique_index();
    let t = place.get() as u64;
    let mut s = t;
    for x in [
        u64::from(a),
        u64::from(b),
        u64::from(c),
        d,
        e as u64,
        f as u64,
        g as u64,
        h as u64,
        u64::from(i),
        bits32(j),
        bits64(k),
        l as u64,
    ] {
        s = mix(s, x);
    }
    for x in m.iter().map(|x| u64::from(*x)).chain(n.iter().map(|x| u64::from(*x))).chain(x5) {
        s = mix(s, x);
    }
    for x in [
        o as u64,
        (o >> 64) as u64,
        p as u64,
        (p >> 64) as u64,
        bits16(q),
        bitsb16(r),
        u64::from(x2),
        x3,
        u64::from(x4),
        x6 as u64,
        x7 as u64,
    ] {
        s = mix(s, x);
    }
    s = mix(s, x0.get(place.get()).copied().unwrap_or(1) ^ x1.get(3).copied().unwrap_or(2));
    s = mix(s, x8.map_or(77, |x| x.len() as u64));
    if let Some(out) = out.get_mut(place) {
        *out = s;
    }
}

/// A value of 1 KiB, passed by value.
#[derive(Clone, Copy, KernelType)]
#[repr(C)]
pub struct Large {
    words: [u64; 100],
    halves: [u32; 50],
    bytes: [u8; 24],
}

impl Large {
    fn new() -> Self {
        Large {
            words: core::array::from_fn(|i| mix(i as u64, 1)),
            halves: core::array::from_fn(|i| mix(i as u64, 2) as u32),
            bytes: core::array::from_fn(|i| mix(i as u64, 3) as u8),
        }
    }

    fn at(&self, t: usize) -> u64 {
        let rest = u64::from(self.halves[t % 50]) << 8 ^ u64::from(self.bytes[t % 24]);
        self.words.iter().skip(t % 90).take(9).fold(rest, |h, x| mix(h, *x))
    }
}

/// Each thread reads parts of the value.
#[kernel]
pub fn large_value(large: Large, mut out: DisjointMut<u64>) {
    let place = thread::unique_index();
    if let Some(out) = out.get_mut(place) {
        *out = large.at(place.get());
    }
}

/// Writes one value per block, a struct of several words.
#[kernel]
pub fn per_block(data: &[u64], mut out: DisjointMut<[u64; 3], PerBlock>) {
    let value = data.get(thread::unique_index().get()).copied().unwrap_or(0);
    let all = block::reduce([value, value, 1], |a, b| [a[0].wrapping_add(b[0]), a[1].max(b[1]), a[2] + b[2]]);
    if let Some(out) = out.get_mut(block::unique_index()) {
        *out = all;
    }
}

/// Three dimensions.
#[kernel]
pub fn planes(mut out: DisjointMut3<u64>) {
    let cell = thread::unique_3d();
    let [plane, row, column] = cell.get();
    if let Some(out) = out.get_mut(cell) {
        *out = mix(mix(plane as u64, row as u64), column as u64);
    }
}

/// Threads that return before the others read their elements.
#[kernel]
pub fn early_return(threads: u32, mut out: DisjointMut<u64>) {
    let shared = shared_array![u64; 256];
    let (own, threads) = (thread::thread_idx_x() as usize, threads as usize);
    if own >= threads {
        return;
    }
    let mut sum = 0;
    for round in 0..5 {
        // SAFETY: a block has 256 threads, each writes its own element, and barriers separate writes from reads.
        unsafe {
            shared.add(own).write(mix(own as u64, round));
            block::sync_threads();
            sum = mix(sum, shared.add((own + 1) % threads).read());
            block::sync_threads();
        }
    }
    if let Some(out) = out.get_mut(thread::unique_index()) {
        *out = sum;
    }
}

/// Kernel with 40 KiB of stack per thread.
#[kernel(stack = 49152)]
pub fn large_stack(data: &[u64], mut out: DisjointMut<u64>) {
    let place = thread::unique_index();
    let mut list = [0u64; 5000];
    let mut at = place.get();
    for (i, x) in data.iter().enumerate() {
        at = (at * 31 + *x as usize % 977) % 5000;
        list[at] = mix(list[at], *x ^ i as u64);
    }
    if let Some(out) = out.get_mut(place) {
        *out = list.iter().step_by(7).fold(0, |h, x| mix(h, *x));
    }
}

/// Rounds in which every thread takes the value of the next block's thread.
#[kernel(cooperative)]
pub fn grid_rounds(rounds: u32, values: &[Atomic<u64>], mut out: DisjointMut<u64>) {
    let place = thread::unique_index();
    let (own, len) = (place.get(), values.len());
    let mut value = own as u64;
    for round in 0..rounds {
        values[own].store(value, Ordering::Relaxed);
        grid::sync();
        let next = values[(own + block::threads() as usize) % len].load(Ordering::Relaxed);
        value = mix(next, u64::from(round));
        grid::sync();
    }
    if let Some(out) = out.get_mut(place) {
        *out = value;
    }
}

/// Counter under a lock that one thread of each block takes.
#[kernel]
pub fn locked_counter(rounds: u32, state: &[Atomic<u64>]) {
    if thread::linear_in_block() != 0 {
        return;
    }
    for _ in 0..rounds {
        while state[0].compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {}
        let old = state[1].load(Ordering::Relaxed);
        state[1].store(old + 3, Ordering::Relaxed);
        state[0].store(0, Ordering::Release);
    }
}

/// Minima and maxima of signed integers and floats.
#[kernel]
pub fn extremes(data: &[u64], ints: &[Atomic<i64>], words: &[Atomic<i32>], floats: &[Atomic<f32>]) {
    for i in thread::grid_stride(data.len()) {
        let x = data[i.get()];
        ints[0].fetch_min(x as i64, Ordering::Relaxed);
        ints[1].fetch_max(x as i64, Ordering::Relaxed);
        words[0].fetch_min(x as i32, Ordering::Relaxed);
        words[1].fetch_max((x >> 32) as i32, Ordering::Relaxed);
        floats[0].fetch_max((x as i32) as f32, Ordering::Relaxed);
        floats[1].fetch_min((x as i16) as f32, Ordering::Relaxed);
        floats[2].fetch_add((x & 15) as f32, Ordering::Relaxed);
    }
}

/// Striped elements per thread.
#[kernel]
pub fn striped(data: &[u64], mut out: DisjointMut<u64, Striped<4>>) {
    let place = thread::unique_index();
    for k in 0..4 {
        if let Some(x) = out.get_mut(place, k) {
            *x = mix(place.get() as u64, k as u64 ^ data.get(k).copied().unwrap_or(0));
        }
    }
}

/// Sorts rows of a plane, one per thread, and sums them.
#[kernel]
pub fn sorted_rows(mut rows: DisjointMut2<u64, Rows>) {
    if let Some(row) = rows.get_mut(thread::unique_index()) {
        row.sort_unstable();
    }
}
