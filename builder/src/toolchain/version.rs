//! Parses versions of compilers and tools from their output.

use std::fmt;

/// A version, `major.minor.patch`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// Major version.
    pub major: u32,
    /// Minor version.
    pub minor: u32,
    /// Patch version.
    pub patch: u32,
}

impl Version {
    /// Returns the first `a.b` or `a.b.c` in `text` whose numbers are at the start of a word. Suffixes (`-nightly`,
    /// `+deb`) are ignored.
    ///
    /// ```
    /// use warpsmith_builder::toolchain::Version;
    /// let version = Version::find_in("LLVM version: 22.1.8").unwrap();
    /// assert_eq!((version.major, version.minor, version.patch), (22, 1, 8));
    /// ```
    pub fn find_in(text: &str) -> Option<Version> {
        text.split(|c: char| c.is_whitespace() || c == ',').find_map(|word| {
            let word = word.trim_start_matches(['v', 'V', '(']);
            let end = word.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(word.len());
            let mut numbers = word[..end].split('.').map(str::parse::<u32>);
            let major = numbers.next()?.ok()?;
            let minor = numbers.next()?.ok()?;
            let patch = numbers.next().and_then(Result::ok).unwrap_or(0);
            Some(Version { major, minor, patch })
        })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

#[cfg(test)]
mod tests {
    use super::Version;

    fn find(text: &str) -> Option<(u32, u32, u32)> {
        Version::find_in(text).map(|v| (v.major, v.minor, v.patch))
    }

    #[test]
    fn reads_what_the_tools_print() {
        assert_eq!(find("rustc 1.96.0 (ac68faa20 2026-05-25)"), Some((1, 96, 0)));
        assert_eq!(find("release: 1.97.0-nightly"), Some((1, 97, 0)));
        assert_eq!(find("Debian LLVM version 22.1.8"), Some((22, 1, 8)));
        assert_eq!(find("Cuda compilation tools, release 13.0, V13.0.88"), Some((13, 0, 0)));
        assert_eq!(find("no version here"), None);
        assert_eq!(find(""), None);
        assert_eq!(find("22"), None);
    }
}
