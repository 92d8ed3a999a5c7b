//! Integers, floats, and conversions between them.

use super::Writer;
use crate::expressions::INTS;

/// Variables of one type, changed by expressions.
pub fn integers(w: &mut Writer) {
    let of = w.scope.any_int();
    let count = w.within(2, 3);
    for i in 0..count {
        let input = w.scope.input(of);
        w.line(format!("let mut x{i}: {} = {input};", of.name));
        w.scope.add(format!("x{i}"), of.name);
    }
    for _ in 0..w.within(2, 4) {
        let depth = w.within(1, 2) as u32;
        let (target, value) = (w.below(count), w.scope.int(of, depth));
        w.line(format!("x{target} = {value};"));
    }
    for i in 0..count {
        w.observe(&format!("x{i}"), of.name);
    }
    let last = w.below(4);
    w.line(format!("s.v[{last}] = x0 as u64;"));
}

/// Variables of several types.
pub fn mixed(w: &mut Writer) {
    let types: Vec<_> = (0..3).map(|_| w.scope.any_int()).collect();
    for (i, of) in types.iter().enumerate() {
        let input = w.scope.input(*of);
        w.line(format!("let mut x{i}: {} = {input};", of.name));
        w.scope.add(format!("x{i}"), of.name);
    }
    for _ in 0..w.within(3, 5) {
        let target = w.below(3);
        let value = w.scope.int(types[target], 1);
        let condition = w.scope.condition(1);
        match w.below(3) {
            0 => w.line(format!("if {condition} {{ x{target} = {value}; }}")),
            1 => {
                let other = w.below(3);
                w.line(format!("x{target} = (x{other} as {}).wrapping_add({value});", types[target].name));
            }
            _ => w.line(format!("x{target} = {value};")),
        }
    }
    for (i, of) in types.iter().enumerate() {
        w.observe(&format!("x{i}"), of.name);
    }
}

/// `checked_…` and `overflowing_…` operations, each with its result.
pub fn checked(w: &mut Writer) {
    let of = w.scope.any_int();
    let t = of.name;
    for name in ["a", "b"] {
        let input = w.scope.input(of);
        w.line(format!("let {name}: {t} = {input};"));
        w.scope.add(name, t);
    }
    for _ in 0..w.within(2, 4) {
        let (x, y) = (w.scope.int(of, 1), w.scope.int(of, 0));
        let op = w.pick(&["add", "sub", "mul", "div", "rem"]);
        match w.below(4) {
            0 => w.line(format!(
                "if let Some(x) = ({x}).checked_{op}({y}) {{ {} }} else {{ s.add(11); }}",
                crate::expressions::observe("x", t)
            )),
            1 => {
                let op = w.pick(&["add", "sub", "mul"]);
                w.line(format!(
                    "{{ let (x, over) = ({x}).overflowing_{op}({y}); s.add(over as u64); {} }}",
                    crate::expressions::observe("x", t)
                ));
            }
            2 => w.line(format!(
                "s.add(({x}).checked_{op}({y}).and_then(|x| x.checked_mul(3)).map_or(5, |x| x as u64));"
            )),
            _ => w.line(format!("s.add(({x}).checked_pow(({y}) as u32 & 31).map_or(6, |x| x as u64));")),
        }
    }
}

/// `Wrapping`, `Saturating` and `NonZero`.
pub fn wrappers(w: &mut Writer) {
    let of = w.scope.any_int();
    let t = of.name;
    let (a, b) = (w.scope.input(of), w.scope.input(of));
    w.line(format!("let (a, b): ({t}, {t}) = ({a}, {b});"));
    w.line("use core::num::{NonZero, Saturating, Wrapping};");
    w.line("let (mut x, mut y) = (Wrapping(a), Saturating(b));");
    for _ in 0..w.within(2, 4) {
        let op = w.pick(&["+", "-", "*"]);
        match w.below(4) {
            0 => { let n = w.within(1, 70); w.line(format!("x = x {op} Wrapping(b) ^ (x << {});", n)) },
            1 => w.line(format!("y = y {op} Saturating(a);")),
            2 => w.line(format!("x = Wrapping(y.0) {op} x;")),
            _ => w.line("if let Some(n) = NonZero::new(x.0) { s.add(n.leading_zeros() as u64); s.add(n.trailing_zeros() as u64); y = y / Saturating(n.get()); } else { s.add(9); }"),
        }
    }
    w.observe("x.0", t);
    w.observe("y.0", t);
}

/// Variables of one float type.
pub fn floats(w: &mut Writer) {
    let of = w.pick(&["f32", "f64"]);
    let count = w.within(2, 3);
    for i in 0..count {
        let word = w.word();
        w.line(format!("let mut x{i}: {of} = c.{of}({word});"));
        w.scope.add(format!("x{i}"), of);
    }
    for _ in 0..w.within(2, 4) {
        let depth = w.within(1, 2) as u32;
        let (target, value) = (w.below(count), w.scope.float(of, depth));
        w.line(format!("x{target} = {value};"));
    }
    for i in 0..count {
        w.observe(&format!("x{i}"), of);
    }
    let condition = w.scope.condition(1);
    w.line(format!("s.add(({condition}) as u64);"));
}

/// `f16` and `bf16`.
pub fn halves(w: &mut Writer) {
    let (of, q) = w.pick(&[("f16", "c.q16"), ("bf16", "c.qb16")]);
    for i in 0..3 {
        let (word, other) = (w.word(), w.word());
        let value = match w.below(4) {
            0 => format!("{of}::from_bits(c.w({word}) as u16)"),
            1 => format!("{of}::from_f64(c.f64({word}))"),
            2 => format!("{of}::from_f32((c.w({other}) as i16) as f32)"),
            _ => format!("{of}::from_f32(c.f32({word}))"),
        };
        w.line(format!("let mut x{i}: {of} = {q}({value});"));
    }
    for _ in 0..w.within(3, 5) {
        let (target, a, b) = (w.below(3), w.below(3), w.below(3));
        match w.below(8) {
            0..=3 => {
                let op = w.pick(&["+", "-", "*", "/", "%"]);
                w.line(format!("x{target} = {q}(x{a} {op} x{b});"));
            }
            4 => w.line(format!("x{target} = {q}(-x{a});")),
            5 => w.line(format!(
                "s.add((x{a} < x{b}) as u64 | ((x{a} == x{b}) as u64) << 1 | ((x{a} >= x{b}) as u64) << 2);"
            )),
            6 => w.line(format!(
                "x{target} = if x{a} > x{b} {{ x{a} }} else {{ {q}({of}::from_f32(x{b}.to_f32() * 0.75)) }};"
            )),
            _ => {
                let to = w.narrow();
                w.line(format!("s.add((x{a}.to_f32() as {}) as u64);", to.name));
            }
        }
    }
    for i in 0..3 {
        w.observe(&format!("x{i}"), of);
        w.line(format!("s.add(bits64(x{i}.to_f64()));"));
    }
}

/// Conversions from floats to integers of all widths, and back.
pub fn casts(w: &mut Writer) {
    for i in 0..2 {
        let (of, word) = (w.pick(&["f32", "f64"]), w.word());
        w.line(format!("let x{i}: {of} = c.{of}({word});"));
        w.scope.add(format!("x{i}"), of);
    }
    for _ in 0..w.within(3, 5) {
        let (int, other) = (w.scope.any_int(), w.scope.any_int());
        let float = w.pick(&["f32", "f64"]);
        match w.below(3) {
            0 => {
                let value = w.scope.int_of_float(int);
                w.observe(&value, int.name);
            }
            1 => {
                let value = w.scope.input(int);
                w.observe(&format!("({value} as {float})"), float);
            }
            _ => {
                let value = w.scope.int_of_float(int);
                w.observe(&format!("(({value} as {float}) as {})", other.name), other.name);
            }
        }
    }
    let wide = w.scope.int_of_float(INTS[8]);
    w.observe(&wide, "u128");
}
