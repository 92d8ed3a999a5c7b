//! Appends a trailing NUL to byte strings, so that a `str` literal can be passed to `__assertfail` and `vprintf`.

use super::text;

/// A private byte string: its symbol, and its text as LLVM writes it.
pub struct ByteString<'a> {
    /// Symbol of the string.
    pub name: &'a str,
    /// Text between `c"` and `"`.
    pub text: &'a str,
    length: usize,
    before: &'a str,
    after: &'a str,
}

/// Parses `@name = private unnamed_addr constant [N x i8] c"…", align 1`.
pub fn parse(line: &str) -> Option<ByteString<'_>> {
    let (name, rest) = text::symbol(line.strip_prefix('@')?)?;
    let rest = rest.strip_prefix(" = private unnamed_addr constant [")?;
    let (length, rest) = rest.split_once(" x i8] c\"")?;
    let end = rest.find('"')?;
    let before = &line[..line.find(" constant [")? + " constant [".len()];
    Some(ByteString {
        name,
        text: &rest[..end],
        length: length.parse().ok()?,
        before,
        after: &rest[end + 1..],
    })
}

/// Returns the line with a NUL appended to its string, or `None` if the string already ends with NUL.
pub fn terminate(string: &ByteString<'_>) -> Option<String> {
    if string.text.ends_with("\\00") && text::unescape(string.text).last() == Some(&0) {
        return None;
    }
    let ByteString { before, length, text, after, .. } = string;
    let length = length.checked_add(1)?;
    Some(format!("{before}{length} x i8] c\"{text}\\00\"{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_literal_gets_a_nul() {
        let line = "@anon.1 = private unnamed_addr constant [5 x i8] c\"hello\", align 1";
        assert_eq!(
            terminate(&parse(line).unwrap()).unwrap(),
            "@anon.1 = private unnamed_addr constant [6 x i8] c\"hello\\00\", align 1"
        );
    }

    #[test]
    fn strings_with_a_nul_stay_unchanged() {
        let has = parse("@a = private unnamed_addr constant [2 x i8] c\"x\\00\", align 1").unwrap();
        assert_eq!(terminate(&has), None);
        let backslash = parse("@a = private unnamed_addr constant [3 x i8] c\"\\\\00\", align 1").unwrap();
        assert_eq!(
            terminate(&backslash).unwrap(),
            "@a = private unnamed_addr constant [4 x i8] c\"\\\\00\\00\", align 1"
        );
    }

    #[test]
    fn other_constants_are_not_strings() {
        assert!(parse("@a = private unnamed_addr constant <{ ptr }> <{ ptr @b }>, align 8").is_none());
        assert!(parse("@a = internal global [2 x i8] c\"ab\", align 1").is_none());
    }
}
