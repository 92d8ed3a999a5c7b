//! User-defined types in kernels.

use super::Writer;
use crate::expressions::{INTS, observe};

/// An enum with fields, made from input and matched.
pub fn enums(w: &mut Writer) {
    let (p, q) = (w.narrow(), w.scope.any_int());
    let (t, u) = (p.name, q.name);
    let float = w.pick(&["f32", "f64"]);
    w.line(format!("#[derive(Clone, Copy, PartialEq)] enum Shape {{ Dot, One({t}), Two {{ a: {u}, b: {t} }}, Part({float}, bool), Nested(Option<{t}>) }}"));
    let words: Vec<usize> = (0..4).map(|_| w.word()).collect();
    w.line(format!(
        "let make = |k: u64| match c.w(k) % 6 {{ 0 => Shape::Dot, 1 => Shape::One(c.w(k + {}) as {t}), 2 => Shape::Two {{ a: c.w(k + {}) as {u}, b: c.w(k) as {t} }}, 3 => Shape::Part(c.{float}(k), c.w(k + 1) & 1 == 0), 4 => Shape::Nested(None), _ => Shape::Nested(Some(c.w(k + {}) as {t})) }};",
        words[0], words[1], words[2]
    ));
    w.line(format!("let mut x = make({});", words[3]));
    w.line(format!("let mut list = [make({}), make({}), make({})];", words[0], words[1], words[2]));
    for _ in 0..w.within(2, 4) {
        let (word, at) = (w.word(), w.below(3));
        w.scope.variables.clear();
        match w.below(7) {
            0 => w.line(format!("x = make({word});")),
            1 => w.line("x = match x { Shape::Dot => list[0], Shape::One(n) if n & 1 == 0 => Shape::Nested(Some(n)), Shape::One(n) => Shape::One(!n), Shape::Two { a, b } => Shape::Two { a: !a, b: b.wrapping_add(a as _) }, other => other };"),
            2 => w.line(format!("list[{at}] = x;")),
            3 => w.line(format!("if let Shape::Nested(Some(ref mut n)) | Shape::One(ref mut n) = list[{at}] {{ *n = n.rotate_left(3); }}")),
            4 => w.line("s.add(matches!(x, Shape::Part(_, true) | Shape::Nested(None)) as u64);"),
            5 => w.line(format!("{{ let i = c.w({word}) as usize % 3; core::mem::swap(&mut x, &mut list[i]); }}")),
            _ => w.line("s.add(list.iter().filter(|y| core::mem::discriminant(*y) == core::mem::discriminant(&x)).count() as u64);"),
        }
    }
    w.line(format!(
        "for y in list.iter().chain([&x]) {{ match *y {{ Shape::Dot => s.add(1), Shape::One(n) => {{ {} }} Shape::Two {{ a, b }} => {{ {} {} }} Shape::Part(f, true) => {{ {} }} Shape::Part(f, false) => s.add((f > 0.0) as u64), Shape::Nested(n) => s.add(n.map_or(8, |n| n as u64)) }} }}",
        observe("n", t), observe("a", u), observe("b", t), observe("f", float)
    ));
}

/// Structs with methods, in arrays, by value and by reference.
pub fn structs(w: &mut Writer) {
    let types = [w.scope.any_int(), w.narrow(), w.narrow()];
    let [t, u, v] = types.map(|of| of.name);
    let attribute = w.pick(&["", "#[repr(C)] ", "#[repr(C, packed)] "]);
    let n = w.within(1, 4);
    w.line(format!("{attribute}#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)] struct Pair {{ a: {t}, b: ({u}, bool), d: [{v}; {n}] }}"));
    w.line(format!("impl Pair {{ fn shuffle(self, by: u32) -> Self {{ Pair {{ a: self.a.rotate_left(by), b: (!self.b.0, !self.b.1), ..self }} }} fn turn(&mut self) {{ let mut d = self.d; d.reverse(); self.d = d; self.a = self.a.wrapping_add(self.b.0 as {t}); }} }}"));
    let (x, y, z) = (w.scope.input(types[0]), w.scope.input(types[1]), w.array(types[2], n));
    w.line(format!("let mut p = Pair {{ a: {x}, b: ({y}, true), d: {z} }};"));
    {
        let n = w.within(1, 5);
        w.line(format!("let mut list = [Pair::default(), p, Pair {{ a: 1, ..p }}, p.shuffle({})];", n))
    }
    for _ in 0..w.within(3, 5) {
        let (word, at) = (w.word(), w.below(4));
        match w.below(8) {
            0 => w.line(format!("p = p.shuffle(c.w({word}) as u32);")),
            1 => w.line(format!("list[{at}].turn();")),
            2 => w.line(format!("p = list[c.w({word}) as usize % 4];")),
            3 => w.line(format!("list[{at}] = Pair {{ b: (c.w({word}) as {u}, false), ..p }};")),
            4 => w.line("list.sort_unstable();"),
            5 => w.line("s.add(list.iter().filter(|y| **y > p).count() as u64);"),
            6 => w.line(format!("list.swap({at}, c.w({word}) as usize % 4);")),
            _ => {
                let n = w.below(n);
                w.line(format!("{{ let mut d = p.d; d[{}] = c.w({word}) as {v}; p.d = d; }}", n))
            }
        }
    }
    w.line(format!("for y in list.iter().chain([&p]) {{ let Pair {{ a, b, d }} = *y; {} {} s.add(b.1 as u64); for x in d {{ {} }} }}", observe("a", t), observe("b.0", u), observe("x", v)));
}

/// A trait with an associated constant, implemented for several types and used by generic functions.
pub fn generics(w: &mut Writer) {
    let (p, q) = (w.scope.any_int(), w.narrow());
    let (t, u) = (p.name, q.name);
    let (n, k) = (w.within(1, 6), w.within(1, 9));
    w.line("trait Stepped: Copy { const STEP: u64; type Wide; fn wide(self) -> Self::Wide; fn hash(self, h: u64) -> u64; fn next(self) -> Self; }");
    w.line(format!("impl Stepped for {t} {{ const STEP: u64 = {k}; type Wide = u128; fn wide(self) -> u128 {{ self as u128 }} fn hash(self, h: u64) -> u64 {{ mix(h, self as u64) }} fn next(self) -> Self {{ self.wrapping_mul(5) ^ {k} }} }}"));
    w.line("impl Stepped for bool { const STEP: u64 = 2; type Wide = u8; fn wide(self) -> u8 { self as u8 } fn hash(self, h: u64) -> u64 { if self { h.rotate_left(1) } else { !h } } fn next(self) -> Self { !self } }");
    w.line("impl<A: Stepped, B: Stepped> Stepped for (A, B) { const STEP: u64 = A::STEP * 3 + B::STEP; type Wide = (B::Wide, A::Wide); fn wide(self) -> Self::Wide { (self.1.wide(), self.0.wide()) } fn hash(self, h: u64) -> u64 { self.1.hash(self.0.hash(h)) } fn next(self) -> Self { (self.0.next(), self.1.next()) } }");
    w.line("impl<A: Stepped, const N: usize> Stepped for [A; N] { const STEP: u64 = N as u64 + A::STEP; type Wide = [A::Wide; N]; fn wide(self) -> Self::Wide { self.map(|x| x.wide()) } fn hash(self, h: u64) -> u64 { self.into_iter().fold(h, |h, x| x.hash(h)) } fn next(mut self) -> Self { self.rotate_left(N.min(1)); self.map(|x| x.next()) } }");
    w.line("fn run<T: Stepped>(mut x: T, rounds: u64, h: u64) -> u64 { let mut h = h; for _ in 0..rounds { x = x.next(); h = x.hash(h).wrapping_add(T::STEP); } h }");
    let (a, array) = (w.scope.input(p), w.array(p, n));
    w.line(format!("let a: {t} = {a};"));
    w.line(format!("let list: [{t}; {n}] = {array};"));
    _ = u;
    for _ in 0..w.within(2, 4) {
        let word = w.word();
        let value = w.pick(&[
            "a",
            "(a, true)",
            "list",
            "[(a, list), (a.next(), list)]",
            "((a, false), (list, a))",
            "[[a; 2]; 3]",
        ]);
        match w.below(3) {
            0 => w.line(format!("s.h = run({value}, c.w({word}) % 4, s.h);")),
            1 => w.line(format!("s.h = {value}.next().hash(s.h);")),
            _ => w.line("{ let (list, (_, x)) = ((a, true), list).wide(); for y in list { s.add_wide(y); } s.add_wide(x); }"),
        }
    }
}

/// The order in which values are dropped.
pub fn drops(w: &mut Writer) {
    w.line("use core::cell::Cell;");
    w.line("struct Noisy<'a>(u64, &'a Cell<u64>);");
    w.line("impl Drop for Noisy<'_> { fn drop(&mut self) { self.1.set(mix(self.1.get(), self.0)); } }");
    w.line("let log = Cell::new(s.h);");
    for _ in 0..w.within(2, 5) {
        let (a, b) = (w.word(), w.word());
        match w.below(7) {
            0 => w.line(format!("{{ let _a = Noisy(c.w({a}), &log); let _b = Noisy({b}, &log); }}")),
            1 => w.line(format!("{{ let list: [_; 3] = core::array::from_fn(|k| Noisy(c.w(k as u64 + {a}), &log)); if c.w({b}) & 1 == 0 {{ drop(list); log.set(!log.get()); }} }}")),
            2 => w.line(format!("{{ let mut x = Some(Noisy(c.w({a}), &log)); if c.w({b}) % 3 == 0 {{ x = None; }} log.set(log.get() ^ 1); _ = x.take(); log.set(log.get().rotate_left(1)); }}")),
            3 => w.line(format!("for i in 0..c.w({a}) % 5 {{ let x = Noisy(i, &log); if i == 3 {{ break; }} if i & 1 == 0 {{ core::mem::forget(x); continue; }} log.set(log.get() ^ i); }}")),
            4 => w.line(format!("{{ let mut x = Noisy(c.w({a}), &log); x = Noisy(c.w({b}), &log); log.set(log.get().wrapping_add(x.0)); }}")),
            5 => w.line(format!("{{ let x = core::mem::ManuallyDrop::new(Noisy(c.w({a}), &log)); if x.0 > c.w({b}) {{ drop(core::mem::ManuallyDrop::into_inner(x)); }} }}")),
            _ => w.line(format!("{{ let give = |n| if n & 1 == 0 {{ Ok(Noisy(n, &log)) }} else {{ Err(Noisy(!n, &log)) }}; match give(c.w({a})) {{ Ok(x) if x.0 & 2 == 0 => log.set(log.get() ^ x.0), Ok(_) => log.set(1), Err(ref x) => log.set(x.0) }} }}")),
        }
    }
    let of = INTS[6];
    w.observe("log.get()", of.name);
}

/// Patterns over tuples, slices, ranges and text, with guards and bindings.
pub fn patterns(w: &mut Writer) {
    let of = w.narrow();
    let t = of.name;
    let (a, b, array) = (w.scope.input(of), w.scope.input(of), w.array(of, 5));
    w.line(format!("let (mut x, y): ({t}, {t}) = ({a}, {b});"));
    w.line(format!("let list: [{t}; 5] = {array};"));
    for _ in 0..w.within(3, 5) {
        let (word, low, high) = (w.word(), w.within(1, 20), w.within(30, 100));
        match w.below(8) {
            0 => w.line(format!("s.add(match (x & 3, y) {{ (0, _) => 1, (1, n @ {low}..={high}) => n as u64, (n, 0) if n > 1 => 3, (n, m) => (n ^ m) as u64 }});")),
            1 => w.line(format!("s.add(match list[..c.w({word}) as usize % 6] {{ [] => 1, [x] => x as u64, [first, .., last] if first > last => 2, [_, ref rest @ ..] => rest.len() as u64 * 10 }});")),
            2 => w.line("s.add(match list { [p, q, ..] if p == q => 1, [.., p, _] if p & 1 == 0 => p as u64, [_, middle @ .., _] => middle.iter().fold(0, |h, x| mix(h, *x as u64)) });"),
            3 => w.line(format!("x = match x {{ 0 => y, {low}..={high} => x.wrapping_mul(3), {t}::MAX => 1, n if n.count_ones() & 1 == 0 => !n, _ => x.rotate_left(1) }};")),
            4 => w.line(format!("s.add(match [\"one\", \"two\", \"three\", \"\", \"one more\"][c.w({word}) as usize % 5] {{ \"one\" | \"two\" => 1, \"\" => 2, text if text.starts_with(\"one\") => 3, text => text.len() as u64 }});")),
            5 => w.line(format!("let Some(n) = list.get(c.w({word}) as usize % 7) else {{ s.add({low}); return; }}; x ^= *n;")),
            6 => w.line(format!("s.add(match (x.checked_sub(y), list.iter().max()) {{ (Some(d @ 0..={low}), _) => d as u64, (Some(_), Some(m)) if *m == x => 7, (None, Some(&m)) => m as u64, (_, _) => 8 }});")),
            _ => w.line(format!("s.add(match char::from(c.w({word}) as u8) {{ 'a'..='z' => 1, 'A'..='Z' | '_' => 2, n @ '0'..='9' => n as u64, '\\0'..='\\x1f' => 4, _ => 5 }});")),
        }
    }
    w.observe("x", t);
}

/// Constants and statics: tables that the compiler computes, indexed by input.
pub fn tables(w: &mut Writer) {
    let of = w.scope.any_int();
    let t = of.name;
    let (len, k, n) = (w.within(3, 70), w.within(3, 99), w.within(1, 7));
    w.line(format!("const fn table() -> [{t}; {len}] {{ let mut a = [1; {len}]; let mut i = 1; while i < {len} {{ a[i] = (a[i - 1] as {t}).wrapping_mul({k}).wrapping_add(i as {t}); i += 1; }} a }}"));
    w.line(format!("const FIRST: [{t}; {len}] = table(); static SECOND: [{t}; {len}] = table(); static NAMES: [&str; 4] = [\"a\", \"bcd\", \"ef\", \"\"]; static NESTED: [[u16; 3]; 4] = [[1, 2, 3], [40, 50, 60], [700, 800, 900], [7, 7, 7]];"));
    let input = w.scope.input(of);
    w.line(format!("let mut x: {t} = {input};"));
    for _ in 0..w.within(2, 4) {
        let word = w.word();
        match w.below(6) {
            0 => w.line(format!("x ^= FIRST[c.w({word}) as usize % {len}];")),
            1 => w.line(format!("x = x.wrapping_add(SECOND[c.w({word}) as usize % {len}]);")),
            2 => w.line(format!("for y in SECOND.iter().skip(c.w({word}) as usize % {len}).step_by({n}) {{ x = x.rotate_left(1) ^ y; }}")),
            3 => w.line(format!("s.add(NAMES[c.w({word}) as usize % 4].bytes().fold(0, |h, b| mix(h, b as u64)));")),
            4 => w.line(format!("s.add(NESTED[c.w({word}) as usize % 4][(c.w({word}) >> 40) as usize % 3] as u64);")),
            _ => w.line(format!("s.add(SECOND.get(c.w({word}) as usize & 127).map_or(3, |x| *x as u64));")),
        }
    }
    w.observe("x", t);
}
