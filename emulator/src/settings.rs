//! Settings of the emulator, read from environment variables.
//!
//! | variable | meaning | default |
//! | --- | --- | --- |
//! | `WARPSMITH_EMULATOR_STACK` | stack size of a GPU thread in bytes, at most 1073741824 | 262144 |
//! | `WARPSMITH_EMULATOR_SPIN_LIMIT` | number of atomic reads without progress of any thread in a block, after which the block counts as stuck; if every running block is stuck, the launch fails | 268435456 |
//! | `WARPSMITH_EMULATOR_TIME_LIMIT` | seconds for which a block, or the blocks that run concurrently with it, may run before the launch fails; `off` for no limit | 300 |
//! | `WARPSMITH_EMULATOR_SEED` | [order](crate::Order) of launches for which the program does not select an order ([`order`]): a number, or `off` for the sequential order | drawn at random for each process; sequential under `warpsmith check` |
//!
//! The variables are read once, at the first launch. If a value is invalid or too large, launches fail with a message
//! that names the variable.
//!
//! A kernel that overflows its stack, through deep recursion or large local arrays, hits a guard page, and the process
//! ends with a segmentation fault. To avoid this, set `WARPSMITH_EMULATOR_STACK` to a larger value.

use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::check;
use crate::order::Order;

const STACK: &str = "WARPSMITH_EMULATOR_STACK";
const SPIN_LIMIT: &str = "WARPSMITH_EMULATOR_SPIN_LIMIT";
const TIME_LIMIT: &str = "WARPSMITH_EMULATOR_TIME_LIMIT";
const SEED: &str = "WARPSMITH_EMULATOR_SEED";

/// Default stack size, which is large enough for formatting text in debug builds. Only accessed pages occupy memory.
const DEFAULT_STACK: u64 = 256 * 1024;
const MAX_STACK: u64 = 1 << 30;
const DEFAULT_SPIN_LIMIT: u64 = 1 << 28;
const DEFAULT_TIME_LIMIT: u64 = 300;
/// Maximum time limit in seconds, about thirty years.
const MAX_TIME_LIMIT: u64 = 1_000_000_000;

#[derive(Clone, Copy)]
pub(crate) struct Settings {
    pub stack_bytes: usize,
    pub spin_limit: u64,
    /// Time limit for a set of blocks.
    pub time_limit: Option<Duration>,
}

/// Spin limit that overrides the environment variable unless it is 0.
static SPIN_LIMIT_OVERRIDE: AtomicU64 = AtomicU64::new(0);

/// Sets the spin limit for subsequent launches of this process, overriding the environment; 0 restores the
/// environment's limit.
pub fn set_spin_limit(reads: u64) {
    SPIN_LIMIT_OVERRIDE.store(reads, Ordering::Relaxed);
}

/// Returns the settings, or a description of the error in them.
pub(crate) fn settings() -> Result<Settings, String> {
    static SETTINGS: OnceLock<Result<Settings, String>> = OnceLock::new();
    let mut settings = SETTINGS
        .get_or_init(|| {
            seed(std::env::var(SEED).ok())?;
            Ok(Settings {
                stack_bytes: number(STACK, std::env::var(STACK).ok(), DEFAULT_STACK, MAX_STACK)? as usize,
                spin_limit: number(SPIN_LIMIT, std::env::var(SPIN_LIMIT).ok(), DEFAULT_SPIN_LIMIT, u64::MAX)?,
                time_limit: time_limit(std::env::var(TIME_LIMIT).ok())?,
            })
        })
        .clone()?;
    let limit = SPIN_LIMIT_OVERRIDE.load(Ordering::Relaxed);
    if limit != 0 {
        settings.spin_limit = limit;
    }
    Ok(settings)
}

fn time_limit(value: Option<String>) -> Result<Option<Duration>, String> {
    if value.as_deref().map(str::trim) == Some("off") {
        return Ok(None);
    }
    let seconds = number(TIME_LIMIT, value, DEFAULT_TIME_LIMIT, MAX_TIME_LIMIT);
    seconds.map(|seconds| Some(Duration::from_secs(seconds))).map_err(|error| format!("{error}, or `off`"))
}

/// Random seed of a process without a configured seed, so that each run has a different order.
static DRAWN: OnceLock<u64> = OnceLock::new();

/// Returns the order that the environment specifies for launches for which the program does not select one.
pub fn order() -> Order {
    match seed(std::env::var(SEED).ok()) {
        Ok(Seed::Of(seed)) => Order::Seeded(seed),
        Ok(Seed::Drawn) if !check::is_on() => {
            // The seed has at most six digits, so that it is easy to type.
            Order::Varied(*DRAWN.get_or_init(|| RandomState::new().hash_one(std::process::id()) % 1_000_000))
        }
        // If the settings are invalid, launches fail with a description of the error.
        Ok(Seed::Drawn | Seed::Off) | Err(_) => Order::Sequential,
    }
}

/// Returns a note on how to repeat the order of this process, if its launches have a random order.
pub fn seed_note() -> Option<String> {
    DRAWN.get().map(|seed| format!("seed {seed}: run again with {SEED}={seed}"))
}

/// Value of the seed variable.
#[derive(Debug, PartialEq)]
enum Seed {
    Drawn,
    Off,
    Of(u64),
}

fn seed(value: Option<String>) -> Result<Seed, String> {
    match value.as_deref().map(str::trim) {
        None | Some("") => Ok(Seed::Drawn),
        Some("off") => Ok(Seed::Off),
        Some(text) => text.parse().map(Seed::Of).map_err(|_| {
            format!("{SEED} is `{text}`: give a whole number, or `off` for the sequential order")
        }),
    }
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
    fn the_time_limit_is_seconds_or_off() {
        assert_eq!(time_limit(None), Ok(Some(Duration::from_secs(300))));
        assert_eq!(time_limit(Some("2".into())), Ok(Some(Duration::from_secs(2))));
        assert_eq!(time_limit(Some("off".into())), Ok(None));
        let text = time_limit(Some("soon".into())).unwrap_err();
        assert!(text.contains(&format!("{TIME_LIMIT} is `soon`")) && text.ends_with("or `off`"), "{text}");
    }

    #[test]
    fn seeds_are_numbers_or_off() {
        assert_eq!(seed(None), Ok(Seed::Drawn));
        assert_eq!(seed(Some(" ".into())), Ok(Seed::Drawn));
        assert_eq!(seed(Some("off".into())), Ok(Seed::Off));
        assert_eq!(seed(Some("0".into())), Ok(Seed::Of(0)));
        assert_eq!(seed(Some(u64::MAX.to_string())), Ok(Seed::Of(u64::MAX)));
        for bad in ["-1", "on", "1.5", "18446744073709551616"] {
            let text = seed(Some(bad.into())).unwrap_err();
            assert!(text.contains(&format!("{SEED} is `{bad}`")), "{text}");
        }
    }

    #[test]
    fn a_huge_stack_is_an_error() {
        let stack = |bytes: u64| number(STACK, Some(bytes.to_string()), DEFAULT_STACK, MAX_STACK);
        for bytes in [u64::MAX, isize::MAX as u64, MAX_STACK + 1] {
            let text = stack(bytes).unwrap_err();
            assert!(text.contains(&format!("{STACK} is `{bytes}`: give at most {MAX_STACK}")), "{text}");
        }
        // An accepted value results in a stack or an error, but not in a panic.
        let bytes = stack(MAX_STACK).unwrap() as usize;
        drop(corosensei::stack::DefaultStack::new(bytes));
    }
}
