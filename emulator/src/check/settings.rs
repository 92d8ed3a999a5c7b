//! Settings of the checker, read from environment variables that `warpsmith check` sets.
//!
//! | variable | meaning | default |
//! | --- | --- | --- |
//! | `WARPSMITH_CHECK` | with `1`, launches are checked; with `first`, they also stop at the first finding | not checked |
//! | `WARPSMITH_CHECK_LIMIT` | maximum number of findings that are kept per launch; further findings are only counted | 100 |
//! | `WARPSMITH_CHECK_MEMORY` | maximum shadow memory in MiB; 8 bytes are used for each byte that running launches access | 3/4 of the available memory |
//! | `WARPSMITH_CHECK_REPORT` | file to which each finding is appended, as a line of JSON | none |
//! | `WARPSMITH_CHECK_ROOT` | directory to which relative source paths refer | the current directory |

use std::path::PathBuf;
use std::sync::OnceLock;

/// Settings of the checker.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub first: bool,
    pub limit: usize,
    /// Maximum bytes of shadow memory.
    pub memory: usize,
    pub report: Option<PathBuf>,
    pub root: PathBuf,
}

/// Returns the settings; `None` if launches are not checked. If the settings are invalid, every launch fails.
pub(crate) fn settings() -> Result<Option<&'static Settings>, String> {
    static SETTINGS: OnceLock<Result<Option<Settings>, String>> = OnceLock::new();
    let settings = SETTINGS.get_or_init(|| read(|name| std::env::var(name).ok()));
    settings.as_ref().map(Option::as_ref).map_err(Clone::clone)
}

/// Returns true if launches are checked, that is, if `warpsmith check` started the process.
pub fn is_on() -> bool {
    matches!(settings(), Ok(Some(_)))
}

fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Settings>, String> {
    let number = |name: &str| match variable(name).map(|text| (text.trim().parse::<u64>(), text)) {
        None => Ok(None),
        Some((Ok(number), _)) => Ok(Some(number)),
        Some((Err(_), text)) => Err(format!("{name} is `{text}`: give a whole number")),
    };
    let first = match variable("WARPSMITH_CHECK").as_deref() {
        None | Some("" | "0") => return Ok(None),
        Some("1") => false,
        Some("first") => true,
        Some(text) => return Err(format!("WARPSMITH_CHECK is `{text}`: give 1 or first")),
    };
    Ok(Some(Settings {
        first,
        limit: number("WARPSMITH_CHECK_LIMIT")?.unwrap_or(100).max(1) as usize,
        memory: match number("WARPSMITH_CHECK_MEMORY")? {
            Some(mib) => usize::try_from(mib).unwrap_or(usize::MAX).saturating_mul(1 << 20),
            None => crate::machine::memory().map_or(usize::MAX, |memory| (memory.available / 4 * 3) as usize),
        },
        report: variable("WARPSMITH_CHECK_REPORT").map(PathBuf::from),
        root: variable("WARPSMITH_CHECK_ROOT").map(PathBuf::from).unwrap_or_default(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonsense_is_named() {
        assert!(read(|_| None).unwrap().is_none());
        let only = |key: &'static str, value: &'static str| {
            read(move |name| match name {
                _ if name == key => Some(value.to_owned()),
                "WARPSMITH_CHECK" => Some("1".to_owned()),
                _ => None,
            })
        };
        assert!(only("WARPSMITH_CHECK", "first").unwrap().unwrap().first);
        assert!(only("WARPSMITH_CHECK", "yes").unwrap_err().contains("WARPSMITH_CHECK is `yes`"));
        assert!(only("WARPSMITH_CHECK_LIMIT", "-1").unwrap_err().contains("WARPSMITH_CHECK_LIMIT is `-1`"));
        assert_eq!(only("WARPSMITH_CHECK_LIMIT", "0").unwrap().unwrap().limit, 1);
        assert!(only("WARPSMITH_CHECK_MEMORY", "1G").unwrap_err().contains("WARPSMITH_CHECK_MEMORY is `1G`"));
        assert_eq!(only("WARPSMITH_CHECK_MEMORY", "3").unwrap().unwrap().memory, 3 << 20);
    }
}
