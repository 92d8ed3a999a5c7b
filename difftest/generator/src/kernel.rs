//! [`Kernel`]s and their source text.

use std::fmt::Write;

use crate::kinds;
use crate::random::Random;

/// Maximum steps per kernel; a thread writes one word for each.
const STEPS: usize = 4;

/// A part of a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Kind of the step, as named in reports.
    pub kind: &'static str,
    /// Operation of `support::collective` and its number, applied to the hashes of all threads.
    pub collective: Option<(&'static str, u32)>,
    /// True if the step is a function that is not inlined.
    pub is_apart: bool,
    /// Statements of the step.
    pub lines: Vec<String>,
}

/// A kernel and its launch configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kernel {
    /// Name, unique in a project.
    pub name: String,
    /// Block size in threads.
    pub threads: u32,
    /// Grid size in blocks.
    pub grid: u32,
    /// Steps in order.
    pub steps: Vec<Step>,
}

/// First `count` kernels of a seed.
pub fn kernels(seed: u64, count: usize) -> Vec<Kernel> {
    (0..count).map(|index| Kernel::random(seed, index)).collect()
}

impl Kernel {
    /// Kernel `index` of a seed.
    pub fn random(seed: u64, index: usize) -> Self {
        let mut random = Random::new(seed, index as u64);
        let (threads, grid) = random.pick(&[(64, 3), (96, 2), (128, 2), (256, 1), (70, 3), (32, 6)]);
        let count = random.within(2, STEPS);
        let steps = (0..count).map(|_| kinds::step(&mut random, threads)).collect();
        Kernel { name: format!("k{index:04}"), threads, grid, steps }
    }

    /// Source text of the kernel and its functions.
    pub fn source(&self) -> String {
        let name = &self.name;
        let mut text = String::new();
        let mut calls = String::new();
        for (index, step) in self.steps.iter().enumerate() {
            let attribute = if step.is_apart { "#[inline(never)]\n" } else { "" };
            let result = if step.collective.is_some() { " -> u64" } else { "" };
            _ = writeln!(
                text,
                "/// {}.\n{attribute}pub fn {name}_s{index}(c: &Input, s: &mut State){result} {{",
                step.kind
            );
            for line in &step.lines {
                _ = writeln!(text, "    {line}");
            }
            text += if step.collective.is_some() { "    s.h\n}\n\n" } else { "}\n\n" };
            calls += &match step.collective {
                Some((operation, number)) => format!(
                    "    let value = {name}_s{index}(&c, &mut s);\n    s.add(collective::{operation}(value, {number}));\n"
                ),
                None => format!("    {name}_s{index}(&c, &mut s);\n"),
            };
            _ = writeln!(calls, "    words[{index}] = s.h;");
        }
        _ = write!(
            text,
            "#[kernel(stack = 16384)]
pub fn {name}(data: &[u64], atomics: &[Atomic<u64>], zero: u64, mut out: DisjointMut<u64, Chunks<WORDS>>) {{
    let place = thread::unique_index();
    let c = Input {{ data, atomics, zero, thread: place.get() as u64 }};
    let mut s = State::new(c.thread);
    let mut words = [0; WORDS];
{calls}    if let Some(out) = out.get_mut(place) {{
        out.copy_from_slice(&words);
    }}
}}
"
        );
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_has_one_text() {
        let text = |seed, count| kernels(seed, count).iter().map(Kernel::source).collect::<Vec<_>>();
        assert_eq!(text(7, 20), text(7, 30)[..20]);
        assert_ne!(text(7, 20), text(8, 20));
        let mut all = text(7, 200);
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 200);
    }

    #[test]
    fn every_kind_of_step_is_made() {
        let kernels = kernels(1, 400);
        let made = |kind: &str| kernels.iter().flat_map(|kernel| &kernel.steps).any(|step| step.kind == kind);
        for kind in kinds::names() {
            assert!(made(kind), "{kind}");
        }
    }
}
