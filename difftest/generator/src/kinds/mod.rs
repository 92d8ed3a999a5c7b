//! Kinds of steps. Each is a function that writes statements.

mod control;
mod data;
mod memory;
mod numbers;
mod slices;
mod text;

use crate::expressions::{Int, Scope, observe};
use crate::kernel::Step;
use crate::random::Random;

/// Writer of a step.
struct Writer<'a> {
    scope: Scope<'a>,
    lines: Vec<String>,
}

impl Writer<'_> {
    /// Writes a statement.
    fn line(&mut self, text: impl Into<String>) {
        self.lines.push(text.into());
    }

    /// Adds a value to the hash.
    fn observe(&mut self, value: &str, of: &str) {
        self.line(observe(value, of));
    }

    fn random(&mut self) -> &mut Random {
        self.scope.random
    }

    fn word(&mut self) -> usize {
        self.scope.word()
    }

    /// Random number below `end`.
    fn below(&mut self, end: usize) -> usize {
        self.random().below(end)
    }

    fn within(&mut self, first: usize, last: usize) -> usize {
        self.random().within(first, last)
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        self.random().pick(of)
    }

    /// Random integer type of at most 64 bits.
    fn narrow(&mut self) -> Int {
        loop {
            let of = self.scope.any_int();
            if of.bits <= 64 {
                return of;
            }
        }
    }

    /// Array `[…; len]` of input, as an expression.
    fn array(&mut self, of: Int, len: usize) -> String {
        let (word, mask) = (self.word(), self.pick(&["", "", " & 7", " & 63", " % 11"]));
        let high = if of.bits == 128 {
            format!(" << 61 ^ c.w(k as u64 + {word}) as {}", of.name)
        } else {
            String::new()
        };
        format!(
            "core::array::from_fn::<{0}, {len}, _>(|k| ((c.w(k as u64 * 3 + {word}) as {0}){mask}){high})",
            of.name
        )
    }
}

/// Kind of a step: name, relative frequency, and writer function.
type Kind = (&'static str, usize, fn(&mut Writer));

/// All kinds except collective operations.
const KINDS: &[Kind] = &[
    ("integers", 6, numbers::integers),
    ("integers of several widths", 4, numbers::mixed),
    ("results and options of checked operations", 2, numbers::checked),
    ("wrapping, saturating and non-zero numbers", 2, numbers::wrappers),
    ("floats", 6, numbers::floats),
    ("halves", 4, numbers::halves),
    ("casts of floats", 4, numbers::casts),
    ("sorts", 5, slices::sorts),
    ("slices", 5, slices::slices),
    ("searches in slices", 2, slices::searches),
    ("chunks and windows", 3, slices::chunks),
    ("arrays of arrays", 2, slices::matrices),
    ("slices of floats", 3, slices::floats),
    ("raw pointers", 2, memory::pointers),
    ("enums", 3, data::enums),
    ("patterns", 3, data::patterns),
    ("tables of constants", 2, data::tables),
    ("iterators of its own", 2, control::own_iterators),
    ("structs", 3, data::structs),
    ("generics", 2, data::generics),
    ("values that are dropped", 2, data::drops),
    ("iterators", 5, control::iterators),
    ("closures", 3, control::closures),
    ("dyn", 3, control::objects),
    ("function pointers", 2, control::pointers),
    ("recursion", 2, control::recursion),
    ("loops with labels", 3, control::loops),
    ("options and results", 2, control::options),
    ("formatted text", 2, text::formatted),
    ("parsed text", 2, text::parsed),
    ("utf-8", 2, text::utf8),
    ("bytes as text", 2, text::bytes),
    ("local atomics", 3, memory::local_atomics),
    ("atomics of all threads", 3, memory::global_atomics),
    ("cells", 2, memory::cells),
    ("bytes of numbers", 2, memory::bytes),
];

/// Collective operations for any block size; the list below needs whole warps.
const ANY_BLOCK: &[&str] = &[
    "shuffle",
    "gather",
    "shuffle_up",
    "shuffle_down",
    "shuffle_xor",
    "ballot",
    "all_any",
    "match_any",
    "match_bits",
    "reduce_numbers",
    "reduce_xor",
    "warp_scan",
    "warp_exclusive_scan",
    "diverged",
    "leave_one_by_one",
    "block_reduce",
    "block_extremes",
    "block_scan",
    "block_exclusive_scan",
    "broadcast",
    "count",
    "exchange",
    "stencil",
    "histogram",
    "sort",
];
const WHOLE_WARPS: &[&str] = &["shuffle_types", "reduce_first", "tiles"];

/// Random step of any kind, for blocks of this many threads.
pub fn step(random: &mut Random, threads: u32) -> Step {
    let total: usize = KINDS.iter().map(|kind| kind.1).sum();
    // One in six is a collective operation.
    if random.once_in(6) {
        let operations =
            if threads.is_multiple_of(32) { [ANY_BLOCK, WHOLE_WARPS].concat() } else { ANY_BLOCK.to_vec() };
        let operation = random.pick(&operations);
        let number = random.below(64) as u32;
        let lines = write(random, numbers::integers);
        return Step { kind: operation, collective: Some((operation, number)), is_apart: false, lines };
    }
    let mut chosen = random.below(total);
    let kind = KINDS.iter().find(|kind| match chosen.checked_sub(kind.1) {
        Some(rest) => {
            chosen = rest;
            false
        }
        None => true,
    });
    let (name, _, writes) = kind.expect("the choice is below the sum");
    let lines = write(random, *writes);
    Step { kind: name, collective: None, is_apart: random.once_in(4), lines }
}

fn write(random: &mut Random, writes: fn(&mut Writer)) -> Vec<String> {
    let mut writer = Writer { scope: Scope::new(random), lines: Vec::new() };
    writes(&mut writer);
    writer.lines
}

/// Names of all kinds.
#[cfg(test)]
pub fn names() -> impl Iterator<Item = &'static str> {
    KINDS.iter().map(|kind| kind.0).chain(ANY_BLOCK.iter().chain(WHOLE_WARPS).copied())
}
