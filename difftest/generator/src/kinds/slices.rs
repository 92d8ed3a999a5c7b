//! Arrays and slices.

use super::Writer;
use crate::expressions::{INTS, observe};

/// Sorts of all kinds, of up to 64 elements of any width.
pub fn sorts(w: &mut Writer) {
    let of = w.scope.any_int();
    let t = of.name;
    let len = match w.below(3) {
        0 => w.within(0, 20),
        1 => w.within(20, 40),
        _ => w.within(41, 64),
    };
    let array = w.array(of, len);
    w.line(format!("let mut a: [{t}; {len}] = {array};"));
    for _ in 0..w.within(1, 2) {
        let at = w.below(len.max(1));
        match w.below(10) {
            0 | 1 => w.line("a.sort_unstable();"),
            2 => w.line("a.sort_unstable_by(|x, y| y.cmp(x));"),
            3 => w.line("a.sort_unstable_by_key(|x| x.rotate_left(3));"),
            4 => w.line("a.sort_unstable_by_key(|x| (x.count_ones(), *x));"),
            5 if len > 0 => w.line(format!("{{ let (low, x, high) = a.select_nth_unstable({at}); {} s.add(low.iter().max().map_or(0, |x| *x as u64)); s.add(high.iter().min().map_or(0, |x| *x as u64));  }} a.sort_unstable();", observe("*x", t))),
            6 if len > 0 => w.line(format!("{{ let x = *a.select_nth_unstable_by({at}, |x, y| y.cmp(x)).1; {} }} a.sort_unstable();", observe("x", t))),
            7 if len > 0 => w.line(format!("a.rotate_left({at}); a.sort_unstable();")),
            8 => w.line(format!("{{ let mut p: [({t}, u8); {len}] = core::array::from_fn(|k| (a[k], k as u8)); p.sort_unstable(); for (i, (x, k)) in p.iter().enumerate() {{ a[i] = *x; s.add(*k as u64); }} }}")),
            _ => w.line(format!("{{ let mut p: [(u16, {t}); {len}] = core::array::from_fn(|k| ((a[k] as u16) & 3, a[k])); p.sort_unstable_by(|x, y| y.cmp(x)); for (i, x) in p.iter().enumerate() {{ a[i] = x.1; }} }}")),
        }
    }
    w.line("s.add(a.is_sorted() as u64);");
    w.line(format!("for x in a {{ {} }}", observe("x", t)));
}

/// In-place slice operations.
pub fn slices(w: &mut Writer) {
    let of = w.scope.any_int();
    let t = of.name;
    let len = w.within(1, 24);
    let array = w.array(of, len);
    w.line(format!("let mut a: [{t}; {len}] = {array};"));
    for _ in 0..w.within(2, 5) {
        let (word, at) = (w.word(), w.below(len));
        let value = w.scope.int(of, 1);
        match w.below(13) {
            0 => w.line(format!("a.rotate_left(c.w({word}) as usize % {});", len + 1)),
            1 => w.line(format!("a.rotate_right({at});")),
            2 => w.line("a.reverse();"),
            3 => w.line(format!("{{ let from = c.w({word}) as usize % {len}; a.copy_within(from.., (c.w({word}) >> 32) as usize % (from + 1)); }}")),
            4 => w.line(format!("a[{at}..].fill({value});")),
            5 => w.line(format!("a.swap({at}, c.w({word}) as usize % {len});")),
            6 => w.line(format!("{{ let (x, y) = a.split_at_mut({at}); for (x, y) in x.iter_mut().zip(y) {{ core::mem::swap(x, y); }} }}")),
            7 => w.line(format!("if let Some(x) = a.get_mut(c.w({word}) as usize % {}) {{ *x = {value}; }}", len + 3)),
            8 => w.line(format!("for (i, x) in a.iter_mut().enumerate().skip({at}) {{ *x = x.wrapping_add(i as {t}).wrapping_mul({value}); }}")),
            9 => w.line(format!("{{ let i = c.w({word}) as usize % {len}; a[i] = a[{at}] ^ ({value}); }}")),
            10 => w.line(format!("if let [first, .., last] = &mut a[..] {{ core::mem::swap(first, last); }} else {{ s.add({at}); }}")),
            11 => { let n = w.within(1, 7); w.line(format!("a = a.map(|x| x.wrapping_mul(7) ^ (x >> {}));", n)) },
            _ => w.line(format!("{{ let b = a; let from = c.w({word}) as usize % {len}; a[..from].copy_from_slice(&b[{len} - from..]); }}")),
        }
    }
    w.line(format!("for x in &a {{ {} }}", observe("*x", t)));
    w.line("s.v[1] = a[a.len() / 2] as u64;");
}

/// Searches and comparisons.
pub fn searches(w: &mut Writer) {
    let of = w.scope.any_int();
    let t = of.name;
    let len = w.within(1, 40);
    let (array, value) = (w.array(of, len), w.scope.input(of));
    w.line(format!("let mut a: [{t}; {len}] = {array};"));
    w.line(format!("let x: {t} = {value};"));
    w.line("a[a.len() / 3] = x;");
    for _ in 0..w.within(2, 5) {
        let word = w.word();
        match w.below(11) {
            0 => w.line("a.sort_unstable(); s.add(match a.binary_search(&x) { Ok(i) => 1000 + u64::from(a[i] == x), Err(i) => i as u64 });"),
            1 => w.line("a.sort_unstable(); s.add(a.partition_point(|y| *y < x) as u64);"),
            2 => w.line("s.add(a.iter().position(|y| *y == x).map_or(99, |i| i as u64));"),
            3 => w.line("s.add(a.iter().rposition(|y| *y <= x).map_or(99, |i| i as u64));"),
            4 => w.line(format!("s.add(a.contains(&(c.w({word}) as {t})) as u64);")),
            5 => w.line("s.add(a.iter().copied().max().unwrap_or(x) as u64); s.add(a.iter().copied().min_by_key(|y| y.count_ones()).unwrap_or(x) as u64);"),
            6 => w.line("s.add(a[..a.len() / 2].cmp(&a[a.len() / 2..]) as u64);"),
            7 => w.line("s.add(a.starts_with(&[x]) as u64 | (a.ends_with(&[x]) as u64) << 1);"),
            8 => w.line("s.add(a.split(|y| y & 1 == 0).fold(0, |h, part| mix(h, part.len() as u64)));"),
            9 => w.line("{ a.sort_unstable(); s.add(a.chunk_by(|x, y| x == y).fold(0, |h, part| mix(h, part.len() as u64))); }"),
            _ => w.line("s.add(a.iter().max_by(|x, y| x.rotate_left(1).cmp(&y.rotate_left(1))).map_or(3, |y| *y as u64));"),
        }
    }
    w.line(format!("for x in a.iter().step_by(3) {{ {} }}", observe("*x", t)));
}

/// Subslices.
pub fn chunks(w: &mut Writer) {
    let of = w.narrow();
    let t = of.name;
    let len = w.within(4, 30);
    let array = w.array(of, len);
    w.line(format!("let mut a: [{t}; {len}] = {array};"));
    for _ in 0..w.within(2, 4) {
        let n = w.within(1, 6);
        let end = w.within(1, len);
        let sum = "fold(0u64, |h, x| h.wrapping_mul(31).wrapping_add(*x as u64))";
        match w.below(9) {
            0 => w.line(format!("for part in a[..{end}].chunks({n}) {{ s.add(part.iter().{sum}); }}")),
            1 => w.line(format!("for part in a.rchunks({n}) {{ s.add(part.iter().{sum} ^ part.len() as u64); }}")),
            2 => w.line(format!("for part in a[..{end}].windows({n}) {{ s.add(part.iter().{sum}); }}")),
            3 => w.line(format!("for part in a.chunks_exact_mut({n}) {{ part.reverse(); }}")),
            4 => w.line(format!("{{ let parts = a.chunks_exact({n}); s.add(parts.remainder().iter().{sum}); for part in parts {{ s.add(part[0] as u64); }} }}")),
            5 => w.line(format!("{{ let (parts, rest) = a.as_chunks::<{n}>(); s.add(rest.len() as u64); for part in parts {{ s.add(part.iter().{sum}); }} }}")),
            6 => w.line(format!("for part in a.chunks_mut({n}) {{ part.sort_unstable(); }}")),
            7 => w.line(format!("if let Some((head, tail)) = a.split_first_chunk::<{n}>() {{ s.add(head.iter().{sum}); s.add(tail.iter().rev().{sum}); }} else {{ s.add(1); }}")),
            _ => w.line("for pair in a.windows(2) { if let [x, y] = pair { s.add((*x as u64).wrapping_sub(*y as u64)); } }"),
        }
    }
    {
        let n = w.within(1, 9);
        w.line(format!("s.add(a.iter().rev().take({}).fold(0, |h, x| mix(h, *x as u64)));", n))
    }
}

/// Two-dimensional arrays.
pub fn matrices(w: &mut Writer) {
    let of = if w.below(4) == 0 { INTS[8] } else { w.narrow() };
    let t = of.name;
    let (rows, columns) = (w.within(2, 5), w.within(2, 5));
    let array = w.array(of, columns);
    w.line(format!("let a: [[{t}; {columns}]; {rows}] = core::array::from_fn(|r| {{ let row: [{t}; {columns}] = {array}; row.map(|x| x.wrapping_add(r as {t})) }});"));
    w.line(format!("let mut b = [[0 as {t}; {rows}]; {columns}];"));
    w.line(format!(
        "for r in 0..{rows} {{ for k in 0..{columns} {{ b[k][r] = a[r][k].wrapping_mul(3); }} }}"
    ));
    {
        let n = w.below(rows);
        w.line(format!("for row in b.iter_mut() {{ row.rotate_left({}); }}", n))
    }
    let word = w.word();
    w.line(format!("{{ let (i, k) = (c.w({word}) as usize % {columns}, (c.w({word}) >> 20) as usize % {rows}); b[i][k] = a[k][i] ^ b[{columns} - 1 - i][{rows} - 1 - k]; }}"));
    w.line("b.reverse();");
    w.line(format!("{{ let mut p = [[0 as {t}; {rows}]; {rows}]; for (i, row) in p.iter_mut().enumerate() {{ for (k, x) in row.iter_mut().enumerate() {{ *x = (0..{columns}).fold(0 as {t}, |h, j| h.wrapping_add(a[i][j].wrapping_mul(b[j][k]))); }} }} for x in p.as_flattened() {{ {} }} }}", observe("*x", t)));
    w.line(format!("for x in b.iter().flatten() {{ {} }}", observe("*x", t)));
}

/// Slices of floats: sorted by `total_cmp`, summed in order, compared.
pub fn floats(w: &mut Writer) {
    let (of, bits, number) = w.pick(&[("f32", "bits32", "number32"), ("f64", "bits64", "number64")]);
    let (len, word, n) = (w.within(1, 40), w.word(), w.within(1, 5));
    w.line(format!(
        "let mut a: [{of}; {len}] = core::array::from_fn(|k| {number}(c.{of}(k as u64 + {word})));"
    ));
    for _ in 0..w.within(2, 4) {
        let word = w.word();
        match w.below(8) {
            0 => w.line("a.sort_unstable_by(|x, y| x.total_cmp(y));"),
            1 => w.line("a.sort_unstable_by(|x, y| y.total_cmp(x));"),
            2 => w.line(format!("s.add({bits}(a.iter().sum::<{of}>()));")),
            3 => w.line(format!("s.add(a.iter().copied().max_by(|x, y| x.total_cmp(y)).map_or(1, |x| {bits}(x)));")),
            4 => w.line(format!("for part in a.chunks({n}) {{ s.add({bits}(part.iter().fold(1.0, |p, x| p * x))); }}")),
            5 => w.line(format!("for x in a.iter_mut().step_by({n}) {{ *x = {number}(*x / 3.0 % 1.7); }}")),
            6 => w.line(format!("{{ let y = c.{of}({word}); s.add(a.iter().filter(|x| **x < y).count() as u64); s.add(a.iter().position(|x| *x == y).map_or(99, |i| i as u64)); }}")),
            _ => w.line("a.reverse(); s.add(a.windows(2).filter(|p| p[0] >= p[1]).count() as u64);"),
        }
    }
    w.line(format!("for x in a {{ s.add({bits}(x)); }}"));
}
