//! Settings of the emulator from the environment.
//!
//! | variable | meaning | default |
//! | --- | --- | --- |
//! | `WARPSMITH_EMULATOR_STACK` | stack of a GPU thread in bytes, at most 1073741824 | 262144 |
//! | `WARPSMITH_EMULATOR_SPIN_LIMIT` | reads of atomics in a block, with none of its threads getting anywhere, after which the block counts as stuck; when every running block is, the launch fails | 268435456 |
//!
//! Both are read once, at the first launch. A value that is not a number, or is too large, makes launches fail with
//! a text that names the variable.
//!
//! A kernel that uses more stack than it has, through deep recursion or large local arrays, runs into a guard
//! page and the process ends with a segmentation fault; a larger `WARPSMITH_EMULATOR_STACK` is the remedy.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

const STACK: &str = "WARPSMITH_EMULATOR_STACK";
const SPIN_LIMIT: &str = "WARPSMITH_EMULATOR_SPIN_LIMIT";

/// Large enough for formatting in debug builds; only the pages that are touched take memory.
const DEFAULT_STACK: u64 = 256 * 1024;
const MOST_STACK: u64 = 1 << 30;
const DEFAULT_SPIN_LIMIT: u64 = 1 << 28;

#[derive(Clone, Copy)]
pub(crate) struct Settings {
    pub stack_bytes: usize,
    pub spin_limit: u64,
}

/// Overrides the variable when it is not zero.
static SPIN_LIMIT_OVERRIDE: AtomicU64 = AtomicU64::new(0);

/// Sets the spin limit for the launches that follow in this process, whatever the environment says; 0 goes back
/// to the environment's.
pub fn set_spin_limit(reads: u64) {
    SPIN_LIMIT_OVERRIDE.store(reads, Ordering::Relaxed);
}

/// The settings, or what is wrong with them.
pub(crate) fn settings() -> Result<Settings, String> {
    static SETTINGS: OnceLock<Result<Settings, String>> = OnceLock::new();
    let mut settings = SETTINGS
        .get_or_init(|| {
            Ok(Settings {
                stack_bytes: number(STACK, std::env::var(STACK).ok(), DEFAULT_STACK, MOST_STACK)? as usize,
                spin_limit: number(SPIN_LIMIT, std::env::var(SPIN_LIMIT).ok(), DEFAULT_SPIN_LIMIT, u64::MAX)?,
            })
        })
        .clone()?;
    let limit = SPIN_LIMIT_OVERRIDE.load(Ordering::Relaxed);
    if limit != 0 {
        settings.spin_limit = limit;
    }
    Ok(settings)
}

fn number(name: &str, value: Option<String>, default: u64, most: u64) -> Result<u64, String> {
    let Some(value) = value else { return Ok(default) };
    match value.trim().parse() {
        Ok(number) if number > most => {
            Err(format!("{name} is `{value}`: give at most {most}, for example {default}"))
        }
        Ok(0) | Err(_) => {
            Err(format!("{name} is `{value}`: give a whole number above 0, for example {default}"))
        }
        Ok(number) => Ok(number),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_nonsense() {
        assert_eq!(number("X", None, 7, 9999), Ok(7));
        assert_eq!(number("X", Some(" 12 ".into()), 7, 9999), Ok(12));
        for bad in ["", "0", "-1", "1e30", "64K", "10000", "99999999999999999999999"] {
            let text = number("X", Some(bad.into()), 7, 9999).unwrap_err();
            assert!(text.contains(&format!("X is `{bad}`")), "{text}");
        }
    }

    #[test]
    fn a_huge_stack_is_an_error() {
        let stack = |bytes: u64| number(STACK, Some(bytes.to_string()), DEFAULT_STACK, MOST_STACK);
        for bytes in [u64::MAX, isize::MAX as u64, MOST_STACK + 1] {
            let text = stack(bytes).unwrap_err();
            assert!(text.contains(&format!("{STACK} is `{bytes}`: give at most {MOST_STACK}")), "{text}");
        }
        // An accepted value makes a stack or an error, but no panic.
        let bytes = stack(MOST_STACK).unwrap() as usize;
        drop(corosensei::stack::DefaultStack::new(bytes));
    }
}
