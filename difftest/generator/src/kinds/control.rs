//! Iterators, calls and loops.

use super::Writer;
use crate::expressions::observe;

/// Chains of adapters.
pub fn iterators(w: &mut Writer) {
    let of = w.narrow();
    let t = of.name;
    let len = w.within(1, 20);
    let array = w.array(of, len);
    w.line(format!("let a: [{t}; {len}] = {array};"));
    for _ in 0..w.within(2, 3) {
        let mut chain = match w.below(5) {
            0 => format!("(0..c.w({}) % 20).map(|x| x as {t})", w.word()),
            1 => format!("(0..={}u64).map(|k| c.w(k) as {t})", w.below(12)),
            2 => format!(
                "core::iter::successors(Some(c.w({}) as {t}), |x| (x & 7 != 3).then(|| x.wrapping_mul(5).wrapping_add(1))).take(12)",
                w.word()
            ),
            _ => "a.iter().copied()".to_owned(),
        };
        for _ in 0..w.within(1, 4) {
            let n = w.within(1, 6);
            chain += &match w.below(16) {
                0 => format!(".skip({n})"),
                1 => format!(".step_by({n})"),
                2 => format!(".take({})", n + 3),
                3 => ".filter(|x| x & 1 == 0)".to_owned(),
                4 => format!(".map(|x| x.rotate_left({n}))"),
                5 => format!(".zip(a.iter().skip({n})).map(|(x, y)| x ^ y)"),
                6 => format!(
                    ".scan(1 as {t}, |h, x| {{ *h = h.wrapping_add(x); (*h & 63 != 17).then_some(*h) }})"
                ),
                7 => ".take_while(|x| x & 15 != 9)".to_owned(),
                8 => ".skip_while(|x| x & 3 == 1)".to_owned(),
                9 => ".flat_map(|x| [x, x >> 1].into_iter().take((x & 3) as usize))".to_owned(),
                10 => ".chain(a)".to_owned(),
                11 => ".enumerate().map(|(i, x)| x.wrapping_add(i as _))".to_owned(),
                12 => format!(".filter_map(|x| x.checked_add({n}))"),
                13 => ".inspect(|x| h.set(mix(h.get(), *x as u64)))".to_owned(),
                14 => format!(".map_while(|x| x.checked_sub({n}).or((x & 1 == 0).then_some(x)))"),
                _ => format!(".chain(core::iter::repeat_n({n} as {t}, {n}))"),
            };
        }
        let end = match w.below(8) {
            0 => "s.add(i.fold(0u64, |h, x| mix(h, x as u64)));",
            1 => "s.add(i.count() as u64);",
            2 => "s.add(i.max().map_or(7, |x| x as u64));",
            3 => "s.add(i.min_by_key(|x| x.count_ones()).map_or(7, |x| x as u64));",
            4 => "s.add(i.last().map_or(7, |x| x as u64));",
            5 => "for x in i { s.add(x as u64); if s.h & 31 == 5 { break; } }",
            6 => {
                "{ let mut i = i.peekable(); while let Some(x) = i.next() { if let Some(y) = i.peek() { s.add((x ^ y) as u64); } else { s.add(3); } } }"
            }
            _ => {
                "s.add(i.try_fold(0u8, |n, x| { if x & 7 == 2 { None } else { n.checked_add(40) } }).map_or(9, |n| n as u64));"
            }
        };
        let binding = if end.contains("try_fold") { "let mut i" } else { "let i" };
        w.line(format!(
            "{{ let h = core::cell::Cell::new(0u64); {{ {binding} = {chain}; {end} }} s.add(h.get()); }}"
        ));
    }
    w.line("s.add(a.iter().rev().zip(a.iter()).filter(|(x, y)| x < y).count() as u64);");
    w.line("s.add(a.iter().any(|x| x & 7 == 1) as u64 | (a.iter().all(|x| x & 1 == 0) as u64) << 1);");
}

/// Closures that capture, are passed on and returned.
pub fn closures(w: &mut Writer) {
    let of = w.scope.any_int();
    let t = of.name;
    let (a, b) = (w.scope.input(of), w.scope.input(of));
    let n = w.within(1, 30);
    w.line(format!("let (a, mut b): ({t}, {t}) = ({a}, {b});"));
    w.line(format!("fn twice<F: Fn({t}) -> {t}>(f: F) -> impl Fn({t}) -> {t} {{ move |x| f(f(x)) }}"));
    w.line(
        "fn compose<A, B, C>(f: impl Fn(A) -> B, g: impl Fn(B) -> C) -> impl Fn(A) -> C { move |x| g(f(x)) }",
    );
    w.line("fn repeat(n: u64, f: &mut dyn FnMut(u64)) { for i in 0..n { f(i); } }");
    w.line(format!("let plus = move |x: {t}| x.wrapping_add(a).rotate_left({n});"));
    w.scope.add("a", t);
    let value = w.scope.int(of, 1).replace("s.v[", "v[");
    w.line("let v = s.v;");
    w.line(format!("let other = |x: {t}| x ^ ({value});"));
    for _ in 0..w.within(2, 4) {
        let word = w.word();
        match w.below(7) {
            0 => w.line("b = twice(plus)(b);"),
            1 => w.line("b = compose(plus, other)(b);"),
            2 => w.line(format!("repeat(c.w({word}) % 6, &mut |i| b = plus(b ^ i as {t}));")),
            3 => w.line("{ let mut count = 0; let mut tick = || { count += 3; count }; s.add(tick() + tick()); s.add(count); }"),
            4 => w.line("b = twice(twice(compose(other, plus)))(b);"),
            5 => w.line(format!("{{ let f: &dyn Fn({t}) -> {t} = if c.w({word}) & 1 == 0 {{ &plus }} else {{ &other }}; b = f(b); }}")),
            _ => w.line(format!("{{ let once = move |k: u64| mix(k, b as u64); s.add(once(c.w({word}))); }}")),
        }
    }
    w.observe("b", t);
}

/// Trait objects.
pub fn objects(w: &mut Writer) {
    let (p, q) = (w.scope.any_int(), w.narrow());
    let (t, u) = (p.name, q.name);
    let n = w.within(1, 7);
    w.line("trait Animal { fn sound(&self, h: u64) -> u64; fn grow(&mut self, by: u64); fn name(&self) -> &str { \"animal\" } }");
    w.line(format!(
        "struct Cat({t}, u8); struct Dog {{ age: {u}, toys: [u16; {n}] }} struct Fish<'a>(&'a [u64]);"
    ));
    w.line("impl Animal for Cat { fn sound(&self, h: u64) -> u64 { mix(h, self.0 as u64 ^ self.1 as u64) } fn grow(&mut self, by: u64) { self.0 = self.0.rotate_left(by as u32); self.1 = self.1.wrapping_add(by as u8); } fn name(&self) -> &str { \"cat\" } }");
    w.line(format!("impl Animal for Dog {{ fn sound(&self, h: u64) -> u64 {{ self.toys.iter().fold(h ^ self.age as u64, |h, x| mix(h, *x as u64)) }} fn grow(&mut self, by: u64) {{ self.age = self.age.wrapping_sub(by as {u}); self.toys.rotate_left(by as usize % {n}); }} }}"));
    w.line("impl Animal for Fish<'_> { fn sound(&self, h: u64) -> u64 { mix(h, self.0.get(h as usize % 512).copied().unwrap_or(1)) } fn grow(&mut self, _: u64) { self.0 = &self.0[self.0.len().min(1)..]; } fn name(&self) -> &str { \"fish, a\" } }");
    let (a, b, word) = (w.scope.input(p), w.scope.input(q), w.word());
    w.line(format!("let (mut cat, mut dog, mut fish) = (Cat({a}, 3), Dog {{ age: {b}, toys: core::array::from_fn(|k| c.w(k as u64 + {word}) as u16) }}, Fish(c.data));"));
    w.line("let mut all: [&mut dyn Animal; 3] = [&mut cat, &mut dog, &mut fish];");
    for _ in 0..w.within(2, 5) {
        let (word, at) = (w.word(), w.below(3));
        match w.below(5) {
            0 => w.line(format!("all[c.w({word}) as usize % 3].grow({at} + 1);")),
            1 => w.line(format!("for x in all.iter_mut() {{ x.grow(c.w({word}) & 7); }}")),
            2 => w.line(format!("s.h = all[c.w({word}) as usize % 3].sound(s.h);")),
            3 => w.line(format!("all.rotate_left({at});")),
            _ => w.line("s.add(all.iter().map(|x| x.name().len() as u64).fold(0, |h, n| h * 10 + n));"),
        }
    }
    w.line("for x in &all { s.h = x.sound(s.h); }");
}

/// Tables of functions.
pub fn pointers(w: &mut Writer) {
    let of = w.scope.any_int();
    let t = of.name;
    let (a, n) = (w.scope.input(of), w.within(1, 6));
    w.line(format!("fn up(x: {t}, k: u32) -> {t} {{ x.wrapping_add(k as {t}) }} fn turn(x: {t}, k: u32) -> {t} {{ x.rotate_left(k) }} fn flip(x: {t}, _: u32) -> {t} {{ !x }}"));
    w.line(format!("fn apply(f: fn({t}, u32) -> {t}, n: u32, x: {t}) -> {t} {{ (0..n).fold(x, f) }}"));
    w.line(format!(
        "let mut table: [fn({t}, u32) -> {t}; 4] = [up, turn, flip, |x, k| x.wrapping_mul(k as {t} | 1)];"
    ));
    w.line(format!("let mut x: {t} = {a};"));
    for _ in 0..w.within(2, 4) {
        let (word, at) = (w.word(), w.below(4));
        match w.below(5) {
            0 => w.line(format!("x = table[c.w({word}) as usize % 4](x, {n});")),
            1 => w.line(format!("x = apply(table[c.w({word}) as usize % 4], {n}, x);")),
            2 => w.line(format!("table.swap({at}, c.w({word}) as usize % 4);")),
            3 => w.line(format!("for f in table {{ x = f(x, {at}); }}")),
            _ => w.line(format!("x = (if c.w({word}) & 1 == 0 {{ apply }} else {{ |f: fn({t}, u32) -> {t}, _, x| f(x, 2) }})(table[{at}], 2, x);")),
        }
    }
    w.observe("x", t);
}

/// Functions that call themselves and each other.
pub fn recursion(w: &mut Writer) {
    let of = w.scope.any_int();
    let t = of.name;
    let input = w.scope.input(of);
    w.line("fn ackermann(m: u64, n: u64) -> u64 { if m == 0 { n + 1 } else if n == 0 { ackermann(m - 1, 1) } else { ackermann(m - 1, ackermann(m, n - 1)) } }");
    w.line(format!("fn even(x: {t}, n: u32) -> {t} {{ if n == 0 {{ x }} else {{ odd(x.wrapping_mul(3), n - 1) ^ x }} }} fn odd(x: {t}, n: u32) -> {t} {{ if n == 0 {{ !x }} else {{ even(x.rotate_left(n), n - 1).wrapping_add(1) }} }}"));
    w.line("fn walk(c: &Input, at: u64, depth: u32, path: &mut [u8; 12]) -> u64 { let x = c.w(at); path[depth as usize] = x as u8; if depth == 4 || x & 7 == 0 { return path.iter().fold(x, |h, b| mix(h, *b as u64)); } let left = walk(c, at * 2 + 1, depth + 1, path); let right = if x & 1 == 0 { walk(c, at * 2 + 2, depth + 1, path) } else { 1 }; mix(left, right) }");
    w.line("fn gcd(a: u128, b: u128) -> u128 { if b == 0 { a } else { gcd(b, a % b) } }");
    for _ in 0..w.within(1, 2) {
        let (a, b) = (w.word(), w.word());
        match w.below(4) {
            0 => w.line(format!("s.add(ackermann(c.w({a}) % 3, c.w({b}) % 3));")),
            1 => w.line(observe(&format!("even({input}, c.w({b}) as u32 % 12)"), t)),
            2 => w.line(format!("s.add(walk(c, {a}, 0, &mut [0; 12]));")),
            _ => w.line(format!("s.add_wide(gcd(c.w({a}) as u128 * {b}, c.w({b}) as u128));")),
        }
    }
}

/// Nested loops that break and continue by label.
pub fn loops(w: &mut Writer) {
    let of = w.scope.any_int();
    let t = of.name;
    let input = w.scope.input(of);
    w.line(format!("let mut x: {t} = {input};"));
    w.line("let mut n = 0u32;");
    w.scope.add("x", t);
    for _ in 0..w.within(1, 3) {
        let (a, b) = (w.within(1, 9), w.within(1, 7));
        let (value, condition) = (w.scope.int(of, 1), w.scope.condition(0));
        let word = w.word();
        match w.below(6) {
            0 => w.line(format!("'out: for i in 0..{a}u32 {{ for k in 0..{b}u32 {{ if (x >> (k & 7)) & 3 == 1 {{ continue 'out; }} if i * k > 30 && {condition} {{ break 'out; }} x = ({value}).wrapping_add(i as {t}); n += k; }} }}")),
            1 => w.line(format!("while x & 15 != 7 && n < {a}0 {{ x = x.wrapping_mul(13).wrapping_add({b}); n += 1; }}")),
            2 => w.line(format!("x = loop {{ n += 1; let y = {value}; if y & 3 == 0 || n % {a} == 0 {{ break y; }} x ^= y.rotate_left(n); }};")),
            3 => w.line(format!("let y = 'found: {{ for i in 0..{a} {{ if c.w(i + {word}) & 7 == {b} {{ break 'found i; }} }} 99 }}; s.add(y);")),
            4 => w.line(format!("for i in (0..c.w({word}) % 17).rev().step_by({b}) {{ if i & 3 == 2 {{ continue; }} x = x.rotate_right(i as u32) ^ ({value}); }}")),
            _ => w.line(format!("{{ let (mut low, mut high) = (0usize, 512usize); while low < high {{ let mid = low.midpoint(high); if c.data.get(mid).is_some_and(|y| *y as {t} > x) {{ high = mid; }} else {{ low = mid + 1; }} n += 1; }} s.add(low as u64); }}")),
        }
    }
    w.observe("x", t);
    w.line("s.add(n as u64);");
}

/// `?` in chains.
pub fn options(w: &mut Writer) {
    let of = w.scope.any_int();
    let t = of.name;
    let (a, b) = (w.scope.input(of), w.scope.input(of));
    let n = w.within(1, 9);
    w.line("#[derive(Clone, Copy)] enum Problem { Small(u8), Large { by: u64 }, Odd }");
    w.line("impl From<core::num::TryFromIntError> for Problem { fn from(_: core::num::TryFromIntError) -> Self { Problem::Odd } }");
    w.line("impl From<core::convert::Infallible> for Problem { fn from(_: core::convert::Infallible) -> Self { Problem::Odd } }");
    w.line(format!("fn narrow(x: {t}) -> Result<u8, Problem> {{ let y = u8::try_from(x)?; if y < {n} {{ return Err(Problem::Small(y)); }} Ok(y) }}"));
    w.line(format!("fn both(x: {t}, y: {t}) -> Result<u16, Problem> {{ let (p, q) = (narrow(x)?, narrow(y).or_else(|_| narrow(y & 63))?); (p as u16).checked_mul(q as u16).filter(|x| x & 1 == 0).ok_or(Problem::Large {{ by: p as u64 }}) }}"));
    w.line(format!("fn maybe(x: {t}) -> Option<{t}> {{ let y = x.checked_add({n})?.checked_mul(3)?; (y & 4 == 0).then_some(y).or(x.checked_sub(1)) }}"));
    w.line(format!("let (x, y): ({t}, {t}) = ({a}, {b});"));
    for _ in 0..w.within(2, 4) {
        let word = w.word();
        match w.below(6) {
            0 => w.line("s.add(match both(x, y) { Ok(x) => x as u64, Err(Problem::Small(x)) => 1000 + x as u64, Err(Problem::Large { by }) => 2000 + by, Err(Problem::Odd) => 3000 });"),
            1 => w.line("s.add(both(x & 63, y & 127).unwrap_or_else(|e| match e { Problem::Small(x) => x as u16, _ => 77 }) as u64);"),
            2 => w.line("s.add(maybe(x).and_then(maybe).xor(maybe(y)).map_or(5, |x| x as u64));"),
            3 => w.line("s.add(maybe(x).zip(maybe(y)).is_some_and(|(x, y)| x > y) as u64);"),
            4 => w.line(format!("s.add((0..6).map(|k| narrow((c.w(k + {word}) as {t}) & 63)).collect_sum());")),
            _ => w.line(format!("{{ let mut o = maybe(x); if let Some(x) = o.as_mut() {{ *x ^= {n}; }} s.add(o.take().map_or(1, |x| x as u64)); s.add(*o.get_or_insert(y) as u64); }}")),
        }
    }
    w.line("trait CollectSum { fn collect_sum(self) -> u64; } impl<I: Iterator<Item = Result<u8, Problem>>> CollectSum for I { fn collect_sum(self) -> u64 { self.map(|x| x.map(|x| x as u64)).sum::<Result<u64, Problem>>().unwrap_or(4) } }");
}

/// User-defined iterators, returned and walked from both ends.
pub fn own_iterators(w: &mut Writer) {
    let of = w.narrow();
    let t = of.name;
    let input = w.scope.input(of);
    let n = w.within(1, 9);
    w.line(format!("struct Walk {{ x: {t}, left: u8 }} impl Iterator for Walk {{ type Item = {t}; fn next(&mut self) -> Option<{t}> {{ self.left = self.left.checked_sub(1)?; self.x = self.x.wrapping_mul(5).wrapping_add({n}); Some(self.x) }} fn size_hint(&self) -> (usize, Option<usize>) {{ (self.left as usize, Some(self.left as usize)) }} }} impl ExactSizeIterator for Walk {{}} impl DoubleEndedIterator for Walk {{ fn next_back(&mut self) -> Option<{t}> {{ self.left = self.left.checked_sub(1)?; self.x = self.x.rotate_left(1); Some(!self.x) }} }}"));
    w.line(format!("fn odd(of: impl Iterator<Item = {t}>) -> impl Iterator<Item = {t}> {{ of.filter(|x| x & 1 == 1) }} fn sum(of: &mut dyn Iterator<Item = {t}>) -> u64 {{ let mut h = 1; for x in of {{ h = mix(h, x as u64); }} h }}"));
    w.line(format!("let x: {t} = {input};"));
    for _ in 0..w.within(2, 4) {
        let word = w.word();
        let walk = format!("Walk {{ x: x ^ c.w({word}) as {t}, left: c.w({word}) as u8 % 12 }}");
        match w.below(7) {
            0 => w.line(format!("s.add(sum(&mut odd({walk})));")),
            1 => w.line(format!("s.add(sum(&mut {walk}.rev().step_by(2)));")),
            2 => w.line(format!("{{ let mut i = {walk}; while let (Some(a), Some(b)) = (i.next(), i.next_back()) {{ s.add((a ^ b) as u64); }} s.add(i.len() as u64); }}")),
            3 => w.line(format!("{{ let mut i = {walk}; s.add(i.by_ref().take(3).fold(0, |h, x| mix(h, x as u64))); s.add(sum(&mut i)); }}")),
            4 => w.line(format!("s.add({walk}.zip({walk}.rev()).map(|(a, b)| (a > b) as u64).sum());")),
            5 => w.line(format!("{{ let (mut a, mut b) = ({walk}.peekable(), odd({walk})); while let Some(x) = a.next_if(|x| x & 3 != 0) {{ s.add(x as u64); }} s.add(b.next().map_or(2, |x| x as u64)); }}")),
            _ => w.line(format!("s.add({walk}.cmp({walk}.rev()) as u64 ^ {walk}.is_sorted() as u64);")),
        }
    }
}
