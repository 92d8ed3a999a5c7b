//! Recursion whose lanes return one after the other, before code that holds values of the whole warp: k0466 of seed 261126.

use difftest_support::mix;

/// The function by Ackermann and Péter.
fn ackermann(m: u64, n: u64) -> u64 {
    match (m, n) {
        (0, _) => n + 1,
        (_, 0) => ackermann(m - 1, 1),
        _ => ackermann(m - 1, ackermann(m, n - 1)),
    }
}

/// A hash of a tree that the thread's words span.
fn walk(c: &difftest_support::Input, at: u64, depth: u32, path: &mut [u8; 12]) -> u64 {
    let x = c.w(at);
    path[depth as usize] = x as u8;
    if depth == 4 || x & 7 == 0 {
        return path.iter().fold(x, |h, b| mix(h, *b as u64));
    }
    let left = walk(c, at * 2 + 1, depth + 1, path);
    let right = if x & 1 == 0 { walk(c, at * 2 + 2, depth + 1, path) } else { 1 };
    mix(left, right)
}

#[derive(Clone, Copy, Default)]
struct Pair {
    a: u128,
    b: (i64, bool),
    d: [i8; 2],
}

impl Pair {
    fn twist(self, by: u32) -> Self {
        Pair { a: self.a.rotate_left(by), b: (!self.b.0, !self.b.1), ..self }
    }
}

/// Structs in an array, each of which the thread reads back.
fn pairs(c: &difftest_support::Input, s: &mut difftest_support::State) {
    let mut p = Pair {
        a: (c.w(292) as u128) << 64 | c.w(293) as u128,
        b: (c.w(381) as i64, true),
        d: core::array::from_fn(|k| c.w(k as u64 * 3 + 55) as i8 % 11),
    };
    let mut list = [Pair::default(), p, Pair { a: 1, ..p }, p.twist(2)];
    p = p.twist(c.w(374) as u32);
    list[1] = Pair { b: (c.w(433) as i64, false), ..p };
    p.d[0] = c.w(387) as i8;
    for Pair { a, b, d } in list.iter().chain([&p]) {
        s.add_wide(*a);
        s.add(b.0 as u64);
        s.add(b.1 as u64);
        d.iter().for_each(|x| s.add(*x as u64));
    }
}

/// Text of the thread's words, piece by piece.
fn text(c: &difftest_support::Input, s: &mut difftest_support::State) {
    let bytes: [u8; 11] = core::array::from_fn(|k| (c.w(k as u64 + 18) & 0x3f) as u8);
    let x = char::from(c.w(373) as u8);
    s.add(x.is_alphabetic() as u64 | (x.is_ascii_punctuation() as u64) << 1 | (x.is_whitespace() as u64) << 2);
    x.to_uppercase().for_each(|y| s.add(y as u64));
    for part in bytes.utf8_chunks() {
        s.add(part.valid().len() as u64 * 8 + part.invalid().len() as u64);
    }
    if let Some(x) = char::from_u32(c.w(213) as u32 % 0x11_0000) {
        x.encode_utf8(&mut [0; 4]).bytes().for_each(|x| s.add(x as u64));
        s.add(x.len_utf16() as u64);
    }
    match core::str::from_utf8(&bytes) {
        Ok(text) => s.add(text.chars().count() as u64),
        Err(error) => s.add(error.valid_up_to() as u64),
    }
    bytes.into_iter().for_each(|x| s.add(x as u64));
}

kernels! {
    /// Lanes that return from different depths of a function, then arrays.
    return_from_depths(c, s) {
        s.add(ackermann(c.w(317) % 3, c.w(262) % 3));
        pairs(c, s);
        text(c, s);
    }
    /// Lanes that return from different depths of a tree, then arrays.
    return_from_a_tree(c, s) {
        s.add(ackermann(c.w(317) % 3, c.w(262) % 3));
        s.add(walk(c, 389, 0, &mut [0; 12]));
        pairs(c, s);
        text(c, s);
    }
}
