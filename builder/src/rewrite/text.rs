//! Reads LLVM's text form one line at a time: symbols, parameter lists, byte strings.
//!
//! This module covers only the part of the grammar that rustc's output uses. Every function is linear in its input.

/// Parses the symbol at the start of `text`, which follows an `@`, and returns two parts: the name (with its quotes, if
/// any) and the rest of the text.
pub fn symbol(text: &str) -> Option<(&str, &str)> {
    let bytes = text.as_bytes();
    let end = if bytes.first() == Some(&b'"') {
        2 + text[1..].find('"')?
    } else {
        bytes.iter().position(|&b| !is_symbol_byte(b)).unwrap_or(bytes.len())
    };
    (end > 0).then(|| text.split_at(end))
}

fn is_symbol_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'$' | b'-')
}

/// Returns the function name of a `define` or `declare` line, and the line from its `(` on.
pub fn function(line: &str) -> Option<(&str, &str)> {
    symbol(&line[line.find('@')? + 1..])
}

/// Splits `text`, which starts with `(`, at the matching `)`, and returns the text inside and the text after it.
pub fn parenthesised(text: &str) -> Option<(&str, &str)> {
    let mut depth = 0usize;
    let mut quoted = false;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'"' => quoted = !quoted,
            _ if quoted => {}
            b'(' => depth += 1,
            b')' => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some((&text[1..at], &text[at + 1..]));
                }
            }
            _ => {}
        }
        if depth == 0 && !quoted {
            return None;
        }
    }
    None
}

/// Splits a list at the commas outside brackets and quotes, and trims the items.
pub fn list(text: &str) -> Vec<&str> {
    let mut items = Vec::new();
    let (mut depth, mut quoted, mut start) = (0usize, false, 0);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'"' => quoted = !quoted,
            _ if quoted => {}
            b'(' | b'[' | b'{' | b'<' => depth += 1,
            b')' | b']' | b'}' | b'>' => depth = depth.saturating_sub(1),
            b',' if depth == 0 => {
                items.push(text[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    let last = text[start..].trim();
    if !last.is_empty() {
        items.push(last);
    }
    items
}

/// Returns the types of a parameter list, without attributes and names: `ptr noundef %0` is `ptr`.
pub fn parameter_types(parameters: &str) -> Vec<&str> {
    list(parameters).into_iter().map(|item| item.split(' ').next().unwrap_or(item)).collect()
}

/// Returns the instruction of a line in a function's body, without the leading `%name = `.
pub fn instruction(line: &str) -> &str {
    let line = line.trim_start();
    match line.strip_prefix('%').and_then(|rest| rest.split_once(" = ")) {
        Some((_, instruction)) => instruction,
        None => line,
    }
}

/// Returns the local that a line defines, including its `%`.
pub fn defined_local(line: &str) -> Option<&str> {
    let line = line.trim_start();
    line.starts_with('%').then(|| line.split_once(" = ")).flatten().map(|(local, _)| local)
}

/// Returns true if an instruction is a call, of any tail kind.
pub fn is_call(instruction: &str) -> bool {
    ["call ", "tail call ", "notail call ", "musttail call "].iter().any(|form| instruction.starts_with(form))
}

/// Returns the bytes of a string as LLVM writes it between `c"` and `"`: `\\` is a backslash, `\1F` a byte.
pub fn unescape(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first != b'\\' {
            bytes.push(*first);
            continue;
        }
        match tail {
            [b'\\', after @ ..] => {
                bytes.push(b'\\');
                rest = after;
            }
            [high, low, after @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                let digit = |b: u8| (b as char).to_digit(16).unwrap_or(0) as u8;
                bytes.push(digit(*high) * 16 + digit(*low));
                rest = after;
            }
            _ => bytes.push(b'\\'),
        }
    }
    bytes
}

/// Inverse of [`unescape`].
pub fn escape(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for &byte in bytes {
        match byte {
            b'\\' => text.push_str("\\\\"),
            b' '..=b'~' if byte != b'"' => text.push(byte as char),
            _ => text.push_str(&format!("\\{byte:02X}")),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols() {
        assert_eq!(symbol("_RNvC1k4TILE = internal"), Some(("_RNvC1k4TILE", " = internal")));
        assert_eq!(symbol("\"odd name\"(i32)"), Some(("\"odd name\"", "(i32)")));
        assert_eq!(symbol(" x"), None);
        assert_eq!(function("define void @f(i64 %0) #1 {"), Some(("f", "(i64 %0) #1 {")));
    }

    #[test]
    fn parentheses_nest_and_ignore_strings() {
        assert_eq!(parenthesised("(a(b), \")\") c"), Some(("a(b), \")\"", " c")));
        assert_eq!(parenthesised("()"), Some(("", "")));
        assert_eq!(parenthesised("(a"), None);
        assert_eq!(parenthesised("a"), None);
    }

    #[test]
    fn lists_split_at_outer_commas_only() {
        assert_eq!(
            list("i64 noundef %0, ptr captures(address, read_provenance) %1, { i8, i8 } %2"),
            ["i64 noundef %0", "ptr captures(address, read_provenance) %1", "{ i8, i8 } %2"]
        );
        assert!(list("").is_empty());
        assert_eq!(parameter_types("i64 noundef %0, ptr align 8 %1"), ["i64", "ptr"]);
    }

    #[test]
    fn instructions() {
        assert_eq!(instruction("  %5 = call i32 @f()"), "call i32 @f()");
        assert_eq!(instruction("  store i32 %5, ptr %6"), "store i32 %5, ptr %6");
        assert_eq!(defined_local("  %5 = call i32 @f()"), Some("%5"));
        assert_eq!(defined_local("  store i32 %5, ptr %6"), None);
        assert!(is_call("tail call void @f()") && !is_call("callbr void asm"));
    }

    #[test]
    fn strings_survive_both_ways() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(unescape(&escape(&all)), all);
        assert_eq!(unescape("a\\\\00\\00"), b"a\\00\0");
    }
}
