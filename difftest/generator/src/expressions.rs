//! Random numeric expressions. None of them panics, and none depends on behavior that Rust leaves unspecified.

use crate::random::Random;

/// An integer type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Int {
    pub name: &'static str,
    pub bits: u32,
    pub is_signed: bool,
}

macro_rules! ints {
    ($($name:ident)*) => {
        [$(Int { name: stringify!($name), bits: $name::BITS, is_signed: $name::MIN != 0 }),*]
    };
}

pub const INTS: [Int; 12] = ints!(u8 i8 u16 i16 u32 i32 u64 i64 u128 i128 usize isize);

/// Variables available to an expression, with their types.
pub struct Scope<'a> {
    pub random: &'a mut Random,
    pub variables: Vec<(String, &'static str)>,
}

impl<'a> Scope<'a> {
    pub fn new(random: &'a mut Random) -> Self {
        Scope { random, variables: Vec::new() }
    }

    pub fn any_int(&mut self) -> Int {
        self.random.pick(&INTS)
    }

    pub fn add(&mut self, name: impl Into<String>, of: &'static str) {
        self.variables.push((name.into(), of));
    }

    /// Picks a variable of the type.
    fn variable(&mut self, of: &str) -> Option<String> {
        let names: Vec<&String> =
            self.variables.iter().filter(|(_, ty)| *ty == of).map(|(name, _)| name).collect();
        if names.is_empty() { None } else { Some(names[self.random.below(names.len())].clone()) }
    }

    /// Index of an input word.
    pub fn word(&mut self) -> usize {
        self.random.below(512)
    }

    /// Random bits as a value of the type: input, or a value of an earlier step.
    pub fn input(&mut self, of: Int) -> String {
        let word = self.word();
        let low = if self.random.once_in(4) { format!("s.v[{}]", word % 4) } else { format!("c.w({word})") };
        match of.bits {
            128 if of.is_signed => format!("((({low} as u128) << 64 | c.w({}) as u128) as i128)", word + 1),
            128 => format!("(({low} as u128) << 64 | c.w({}) as u128)", word + 1),
            _ => format!("({low} as {})", of.name),
        }
    }

    fn literal(&mut self, of: Int) -> String {
        match self.random.below(8) {
            0 => format!("{}::MAX", of.name),
            1 => format!("{}::MIN", of.name),
            2 => format!("0{}", of.name),
            3 => format!("1{}", of.name),
            4 if of.is_signed => format!("(-1{})", of.name),
            5 => format!("(1{} << {})", of.name, self.random.below(of.bits as usize - 1)),
            _ => {
                let mask = u128::MAX >> (129 - of.bits);
                let x = u128::from(self.random.next()) << 64 | u128::from(self.random.next());
                let shift = self.random.below(of.bits as usize) as u32;
                format!("{}{}", (x & mask) >> shift, of.name)
            }
        }
    }

    fn int_leaf(&mut self, of: Int) -> String {
        match self.random.below(6) {
            0..=2 => self.variable(of.name).unwrap_or_else(|| self.input(of)),
            3 | 4 => self.input(of),
            _ => self.literal(of),
        }
    }

    /// Generates an integer of the type.
    pub fn int(&mut self, of: Int, depth: u32) -> String {
        if depth == 0 {
            return self.int_leaf(of);
        }
        let t = of.name;
        let a = self.int(of, depth - 1);
        match self.random.below(if of.is_signed { 30 } else { 34 }) {
            0..=3 => {
                let b = self.int(of, depth - 1);
                let op = self.random.pick(&["wrapping_add", "wrapping_sub", "wrapping_mul", "wrapping_mul"]);
                format!("({a}).{op}({b})")
            }
            4 => {
                let b = self.int(of, depth - 1);
                let op = self.random.pick(&["&", "|", "^"]);
                format!("(({a}) {op} ({b}))")
            }
            5 => {
                let b = self.int(of, depth - 1);
                let op = self.random.pick(&["saturating_add", "saturating_sub", "saturating_mul"]);
                format!("({a}).{op}({b})")
            }
            6 => {
                let (b, other) = (self.int(of, depth - 1), self.int_leaf(of));
                let op = self.random.pick(&["add", "sub", "mul", "div", "rem", "div_euclid", "rem_euclid"]);
                format!("({a}).checked_{op}({b}).unwrap_or({other})")
            }
            7 => {
                let b = self.int(of, depth - 1);
                let op = self.random.pick(&["add", "sub", "mul"]);
                format!("{{ let (x, over) = ({a}).overflowing_{op}({b}); if over {{ !x }} else {{ x }} }}")
            }
            8..=10 => {
                let b = self.int(of, depth - 1);
                let op = self.random.pick(&["div", "rem", "div_euclid", "rem_euclid"]);
                format!("({a}).wrapping_{op}(({b}) | 1)")
            }
            11 | 12 => {
                let n = self.int(INTS[4], 0);
                let op = self.random.pick(&["wrapping_shl", "wrapping_shr", "rotate_left", "rotate_right"]);
                format!("({a}).{op}({n})")
            }
            13 => {
                let n = self.int(INTS[4], 0);
                let op = self.random.pick(&["checked_shl", "checked_shr"]);
                format!("({a}).{op}({n} % {}).unwrap_or({t}::MAX)", 2 * of.bits)
            }
            14 => {
                let op = self.random.pick(&[
                    "leading_zeros",
                    "trailing_zeros",
                    "count_ones",
                    "leading_ones",
                    "trailing_ones",
                ]);
                format!("(({a}).{op}() as {t})")
            }
            15 => {
                let op = self.random.pick(&[
                    "swap_bytes()",
                    "reverse_bits()",
                    "to_be()",
                    "wrapping_neg()",
                    "wrapping_pow(3)",
                    "wrapping_pow(6)",
                ]);
                format!("({a}).{op}")
            }
            16 => {
                let b = self.int(of, depth - 1);
                let op = self.random.pick(&["min", "max"]);
                format!("({a}).{op}({b})")
            }
            17 => {
                let b = self.int(of, depth - 1);
                format!("(({a}).abs_diff({b}) as {t})")
            }
            18 | 19 => {
                let (x, y) = (self.int(of, depth - 1), self.int(of, depth - 1));
                let condition = self.condition(depth - 1);
                format!("(if {condition} {{ {x} }} else {{ {y} }} ^ ({a}))")
            }
            20..=22 => {
                let from = self.any_int();
                let x = self.int(from, depth - 1);
                format!("(({x} as {t}) ^ ({a}))")
            }
            23 => {
                let (low, high) = (self.int_leaf(of), self.int_leaf(of));
                format!("{{ let (p, q) = ({low}, {high}); ({a}).clamp(p.min(q), p.max(q)) }}")
            }
            24 => format!("(({a}).checked_ilog2().unwrap_or(77) as {t})"),
            25 => {
                let b = self.int(of, depth - 1);
                format!("(({a}).cmp(&({b})) as i8 as {t})")
            }
            26 => {
                let n = self.random.within(2, 9);
                format!(
                    "(match ({a}) & 7 {{ 0 => {}, 1 | 2 => {}, {n}.. => {}, _ => {} }})",
                    self.int_leaf(of),
                    self.int_leaf(of),
                    self.int_leaf(of),
                    self.int_leaf(of)
                )
            }
            27 => format!("(({a}).checked_ilog10().unwrap_or(99) as {t})"),
            28 if of.is_signed => {
                format!("({a}).wrapping_abs().signum().wrapping_add({})", self.int_leaf(of))
            }
            28 => format!("({a}).isqrt()"),
            29 if of.is_signed => format!("(({a}).unsigned_abs() as {t})"),
            29 => format!("({a}).checked_next_power_of_two().unwrap_or(3)"),
            30 => {
                let b = self.int(of, depth - 1);
                format!("({a}).div_ceil(({b}) | 1)")
            }
            31 => {
                let b = self.int_leaf(of);
                format!("({a}).checked_next_multiple_of({b}).unwrap_or({t}::MAX / 3)")
            }
            32 => {
                let b = self.int(of, depth - 1);
                format!("({a}).midpoint({b})")
            }
            _ => format!("(({a}).is_power_of_two() as {t})"),
        }
    }

    /// Generates a condition.
    pub fn condition(&mut self, depth: u32) -> String {
        match self.random.below(6) {
            0 => {
                let of = self.any_int();
                format!("({}) & 1 == 0", self.int(of, depth))
            }
            1 => {
                let float = self.random.pick(&["f32", "f64"]);
                let (x, y) = (self.float(float, depth.min(1)), self.float(float, 0));
                format!("({x}) {} ({y})", self.random.pick(&["<", "<=", ">", ">=", "==", "!="]))
            }
            2 if depth > 0 => {
                let (x, y) = (self.condition(depth - 1), self.condition(depth - 1));
                format!("({x}) {} ({y})", self.random.pick(&["&&", "||", "^", "!="]))
            }
            _ => {
                let of = self.any_int();
                let (x, y) = (self.int(of, depth), self.int_leaf(of));
                format!("({x}) {} ({y})", self.random.pick(&["<", "<=", ">", ">=", "==", "!="]))
            }
        }
    }

    fn float_leaf(&mut self, of: &'static str) -> String {
        let word = self.word();
        match self.random.below(8) {
            0..=2 => self.variable(of).unwrap_or_else(|| format!("c.{of}({word})")),
            3 | 4 => format!("c.{of}({word})"),
            5 => {
                let from = self.any_int();
                format!("({} as {of})", self.int(from, 0))
            }
            6 => {
                let constant =
                    self.random.pick(&["MAX", "MIN_POSITIVE", "EPSILON", "INFINITY", "NEG_INFINITY", "MIN"]);
                format!("{of}::{constant}")
            }
            _ => {
                let constant = self.random.pick(&[
                    "0.0",
                    "1.0",
                    "-1.0",
                    "0.1",
                    "3.0",
                    "0.5",
                    "1e9",
                    "-2.5",
                    "1e-30",
                    "16777217.0",
                    "1e30",
                ]);
                format!("({constant}{of})")
            }
        }
    }

    /// Generates a float of the type, `f32` or `f64`. Two operations are never contracted, see `Input::q32`.
    pub fn float(&mut self, of: &'static str, depth: u32) -> String {
        if depth == 0 {
            return self.float_leaf(of);
        }
        let q = if of == "f32" { "c.q32" } else { "c.q64" };
        let number = if of == "f32" { "number32" } else { "number64" };
        let a = self.float(of, depth - 1);
        match self.random.below(20) {
            0..=6 => {
                let b = self.float(of, depth - 1);
                let op = self.random.pick(&["+", "-", "*", "*", "/", "%", "%"]);
                format!("{q}(({a}) {op} ({b}))")
            }
            7 | 8 => format!("{q}(({a}).sqrt())"),
            9 => {
                let b = self.float(of, depth - 1);
                // Which of the two zeros is smaller is unspecified.
                format!("{q}(({a}).{}({b}) + 0.0)", self.random.pick(&["min", "max"]))
            }
            10 | 11 => {
                let op = self.random.pick(&[
                    "floor",
                    "ceil",
                    "trunc",
                    "round",
                    "round_ties_even",
                    "fract",
                    "recip",
                ]);
                format!("{q}(({a}).{op}())")
            }
            12 => format!("{q}(({a}).{}())", self.random.pick(&["abs", "signum"])),
            13 => {
                let b = self.float(of, depth - 1);
                format!("{q}(({a}).copysign({number}({b})))")
            }
            14 => {
                let (b, d) = (self.float(of, depth - 1), self.float_leaf(of));
                format!("{q}(({a}).mul_add({b}, {d}))")
            }
            15 => {
                let other = if of == "f32" { "f64" } else { "f32" };
                format!("{q}(({}) as {of})", self.float(other, depth - 1))
            }
            16 => {
                let from = self.any_int();
                format!("{q}(({}) as {of})", self.int(from, depth - 1))
            }
            17 => {
                let (x, y) = (self.float_leaf(of), self.float_leaf(of));
                format!("(if {} {{ {x} }} else {{ {y} }})", self.condition(depth - 1))
            }
            18 => {
                let b = self.float(of, depth - 1);
                format!("{q}(({a}).{}({b}))", self.random.pick(&["rem_euclid", "div_euclid"]))
            }
            _ => format!("{q}(({a}).clamp(-3.5, 1e6))"),
        }
    }

    /// Generates an integer from a float.
    pub fn int_of_float(&mut self, to: Int) -> String {
        let of = self.random.pick(&["f32", "f64"]);
        format!("(({}) as {})", self.float(of, 1), to.name)
    }
}

/// Statement that adds a value of a type to the hash.
pub fn observe(value: &str, of: &str) -> String {
    match of {
        "f32" => format!("s.add(bits32({value}));"),
        "f64" => format!("s.add(bits64({value}));"),
        "f16" => format!("s.add(bits16({value}));"),
        "bf16" => format!("s.add(bitsb16({value}));"),
        "u128" | "i128" => format!("s.add_wide(({value}) as u128);"),
        _ => format!("s.add(({value}) as u64);"),
    }
}
