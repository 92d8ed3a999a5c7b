//! Makes panics report their message without using `core::fmt`.
//!
//! core formats a panic's message, which pulls its formatting machinery into every kernel that indexes a slice:
//! hundreds of lines of PTX, stack and spills. Here the bodies of core's panic entry points become calls of three
//! reporters that gpu-std exports:
//!
//! | reporter | arguments |
//! | --- | --- |
//! | `__warpsmith_panic_bounds_check` | index, length, location |
//! | `__warpsmith_panic_slice` | kind, start, end, length, location; kind 0: start past the length, 1: end past the length, 2: start past the end |
//! | `__warpsmith_panic_str` | text, its length, location |
//!
//! A literal message is reported in full; a formatted one as its format string, with `{}` for the values. The values
//! are not computed.

use super::mangled;
use super::text;

/// Declarations of the reporters, for a module that lacks them.
pub const REPORTERS: [(&str, &str); 3] = [
    ("__warpsmith_panic_bounds_check", "declare void @__warpsmith_panic_bounds_check(i64, i64, ptr)"),
    ("__warpsmith_panic_slice", "declare void @__warpsmith_panic_slice(i32, i64, i64, i64, ptr)"),
    ("__warpsmith_panic_str", "declare void @__warpsmith_panic_str(ptr, i64, ptr)"),
];

/// Returns the `define` line of a reporter, changed so that LLVM drops the reporter if nothing calls it, even while it
/// is public.
pub fn rewrite_reporter(line: &str) -> Option<String> {
    let (name, _) = text::function(line)?;
    REPORTERS.iter().find(|(reporter, _)| *reporter == name)?;
    Some(line.replacen("define ", "define linkonce_odr ", 1))
}

/// A string for which the rewrite generates a constant.
struct Text {
    name: &'static str,
    text: &'static str,
}

const FORMATTED: Text = Text { name: "formatted", text: "panic with a formatted message" };
const ASSERTIONS: [Text; 3] = [
    Text { name: "assert_eq", text: "assertion `left == right` failed" },
    Text { name: "assert_ne", text: "assertion `left != right` failed" },
    Text { name: "assert_matches", text: "assertion `left matches right` failed" },
];

impl Text {
    fn pointer(&self) -> String {
        format!("ptr @__warpsmith_text_{}", self.name)
    }
}

/// Returns the constants that the replaced bodies use.
pub fn constants() -> String {
    let all = ASSERTIONS.iter().chain([&FORMATTED]);
    all.map(|text| constant(&format!("__warpsmith_text_{}", text.name), text.text)).collect()
}

fn constant(name: &str, text: &str) -> String {
    let (length, text) = (text.len() + 1, text::escape(text.as_bytes()));
    format!("@{name} = private unnamed_addr constant [{length} x i8] c\"{text}\\00\", align 1\n")
}

/// A panic entry point of core.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    /// `panic_bounds_check(index, len)`.
    BoundsCheck,
    /// `slice_index_fail(start, end, len)`.
    Slice,
    /// `expect_failed` and `unwrap_failed`: the message comes first.
    Message,
    /// `assert_failed(kind, left, right, Option<Arguments>)`.
    Assert,
    /// `panic_fmt` and `panic_nounwind_fmt`: the two words of `fmt::Arguments` come first.
    Formatted,
}

/// Returns the panic entry point with this symbol, if any.
pub fn entry(symbol: &str) -> Option<Entry> {
    let path = mangled::path_in(symbol, "4core")?;
    let table = [
        ("9panicking9panic_fmt", Entry::Formatted),
        ("9panicking18panic_nounwind_fmt", Entry::Formatted),
        ("9panicking18panic_bounds_check", Entry::BoundsCheck),
        ("5slice5index16slice_index_fail", Entry::Slice),
        ("6option13expect_failed", Entry::Message),
        ("6result13unwrap_failed", Entry::Message),
    ];
    match table.iter().find(|(function, _)| mangled::is(path, function)) {
        Some((_, entry)) => Some(*entry),
        None if path.starts_with("9panicking13assert_failed") => Some(Entry::Assert),
        None => None,
    }
}

impl Entry {
    /// Returns true if calls of the entry point are always inlined, so that the message known at the call can be used.
    pub fn is_inlined(self) -> bool {
        matches!(self, Entry::Formatted | Entry::Assert)
    }

    /// Returns the definition that replaces `symbol`, whose parameters have the types `types`. Returns `None` if the
    /// types do not match the entry point.
    pub fn replacement(self, symbol: &str, types: &[&str]) -> Option<String> {
        let fits = match self {
            Entry::BoundsCheck => types == ["i64", "i64", "ptr"],
            Entry::Slice => types == ["i64", "i64", "i64", "ptr"],
            Entry::Message => types.starts_with(&["ptr", "i64"]) && types.last() == Some(&"ptr"),
            Entry::Assert => types.first() == Some(&"i8") && types.ends_with(&["ptr", "ptr", "ptr"]),
            Entry::Formatted => types.starts_with(&["ptr", "ptr"]) && types.last() == Some(&"ptr"),
        };
        if !fits {
            return None;
        }
        let parameters: Vec<String> = types.iter().enumerate().map(|(i, ty)| format!("{ty} %p{i}")).collect();
        let last = types.len() - 1;
        let body = match self {
            Entry::BoundsCheck => {
                "  call void @__warpsmith_panic_bounds_check(i64 %p0, i64 %p1, ptr %p2)\n".to_owned()
            }
            Entry::Slice => "  %start_past_len = icmp ugt i64 %p0, %p2\n  \
                 %end_past_len = icmp ugt i64 %p1, %p2\n  \
                 %start_past_end = icmp ugt i64 %p0, %p1\n  \
                 %order = select i1 %start_past_end, i32 2, i32 1\n  \
                 %end = select i1 %end_past_len, i32 1, i32 %order\n  \
                 %kind = select i1 %start_past_len, i32 0, i32 %end\n  \
                 call void @__warpsmith_panic_slice(i32 %kind, i64 %p0, i64 %p1, i64 %p2, ptr %p3)\n"
                .to_owned(),
            Entry::Message => {
                format!("  call void @__warpsmith_panic_str(ptr %p0, i64 %p1, ptr %p{last})\n")
            }
            Entry::Assert => {
                let [equal, unequal, matches] = &ASSERTIONS;
                format!(
                    "  %equal = icmp eq i8 %p0, 0\n  \
                     %unequal = icmp eq i8 %p0, 1\n  \
                     %ne_text = select i1 %unequal, {}, {}\n  \
                     %ne_len = select i1 %unequal, i64 {}, i64 {}\n  \
                     %default_text = select i1 %equal, {}, ptr %ne_text\n  \
                     %default_len = select i1 %equal, i64 {}, i64 %ne_len\n{}",
                    unequal.pointer(),
                    matches.pointer(),
                    unequal.text.len(),
                    matches.text.len(),
                    equal.pointer(),
                    equal.text.len(),
                    literal_or(last - 2, "ptr %default_text", "i64 %default_len", last),
                )
            }
            Entry::Formatted => {
                literal_or(0, &FORMATTED.pointer(), &format!("i64 {}", FORMATTED.text.len()), last)
            }
        };
        let inlining = if self.is_inlined() { "alwaysinline" } else { "cold noinline" };
        Some(format!(
            "define internal void @{symbol}({}) {inlining} convergent noreturn nounwind {{\n{body}  unreachable\n}}",
            parameters.join(", ")
        ))
    }
}

/// Returns code that reports the literal in the two words of `fmt::Arguments` at parameters `first` and `first + 1`, or
/// otherwise `text`. The second word is `2 * length + 1` for a literal, and an aligned pointer otherwise. An absent
/// `Option<Arguments>` has a null first word and an undefined second word.
fn literal_or(first: usize, text: &str, length: &str, location: usize) -> String {
    let second = first + 1;
    format!(
        "  %present = icmp ne ptr %p{first}, null\n  \
         %word = freeze ptr %p{second}\n  \
         %bits = ptrtoint ptr %word to i64\n  \
         %odd = trunc i64 %bits to i1\n  \
         %literal = select i1 %present, i1 %odd, i1 false\n  \
         %bytes = lshr i64 %bits, 1\n  \
         %text = select i1 %literal, ptr %p{first}, {text}\n  \
         %length = select i1 %literal, i64 %bytes, {length}\n  \
         call void @__warpsmith_panic_str(ptr %text, i64 %length, ptr %p{location})\n"
    )
}

/// Returns true if a symbol is `fmt::Arguments::new`, whose first argument is a format string.
pub fn is_arguments_new(symbol: &str) -> bool {
    symbol.starts_with("_RINvM") && symbol.contains("_4core3fmt") && symbol.contains("9Arguments3new")
}

/// Returns the text to show for a format string as core encodes it (see `core::fmt::Arguments`): its literal pieces,
/// with `{}` for each value. Returns `None` if `template` is not a format string.
pub fn describe_template(template: &[u8]) -> Option<String> {
    let mut pieces = Vec::new();
    let mut rest = template;
    loop {
        let (&first, tail) = rest.split_first()?;
        rest = match first {
            0 => break,
            1..=127 => {
                let (piece, after) = tail.split_at_checked(first as usize)?;
                pieces.extend_from_slice(piece);
                after
            }
            128 => {
                let (length, after) = tail.split_at_checked(2)?;
                let length = u16::from_le_bytes([length[0], length[1]]) as usize;
                let (piece, after) = after.split_at_checked(length)?;
                pieces.extend_from_slice(piece);
                after
            }
            129..=191 => return None,
            placeholder => {
                pieces.extend_from_slice(b"{}");
                let fields = [(1, 4), (2, 2), (4, 2), (8, 2)];
                let skip =
                    fields.iter().filter(|(bit, _)| placeholder & bit != 0).map(|(_, bytes)| bytes).sum();
                tail.split_at_checked(skip)?.1
            }
        };
    }
    Some(format!("{}: {}", FORMATTED.text, String::from_utf8(pieces).ok()?))
}

/// Rewrites a call of an inlined entry point: removes the attributes that forbid inlining and, if `message` is given,
/// replaces its `fmt::Arguments` with that literal. Returns the new line and the constant it needs.
pub fn rewrite_call(line: &str, message: Option<(&str, usize)>) -> Option<(String, Option<String>)> {
    let open = line.find('@').and_then(|at| Some(at + line[at..].find('(')?))?;
    let (arguments, after) = text::parenthesised(&line[open..])?;
    let attributes = match after.trim_start().strip_prefix('#') {
        Some(group) => group.trim_start_matches(|c: char| c.is_ascii_digit()),
        None => after,
    };
    let head = &line[..open];
    let Some((message, number)) = message else {
        return Some((format!("{head}({arguments}) noreturn nounwind{attributes}"), None));
    };
    let name = format!("__warpsmith_text_{number}");
    let mut list: Vec<String> = text::list(arguments).into_iter().map(str::to_owned).collect();
    *list.get_mut(0)? = format!("ptr @{name}");
    *list.get_mut(1)? = format!("ptr inttoptr (i64 {} to ptr)", message.len() * 2 + 1);
    let call = format!("{head}({}) noreturn nounwind{attributes}", list.join(", "));
    Some((call, Some(constant(&name, message))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reporters_keep_their_parameters() {
        let line = "define void @__warpsmith_panic_str(ptr %0, i64 %1, ptr %2) unnamed_addr #3 {";
        let expected =
            "define linkonce_odr void @__warpsmith_panic_str(ptr %0, i64 %1, ptr %2) unnamed_addr #3 {";
        assert_eq!(rewrite_reporter(line).as_deref(), Some(expected));
        assert_eq!(rewrite_reporter("define void @mine(ptr %0) {"), None);
    }

    #[test]
    fn entry_points_by_name() {
        assert_eq!(entry("_RNvNtCsduW_4core9panicking18panic_bounds_check"), Some(Entry::BoundsCheck));
        assert_eq!(entry("_RNvNtNtCsduW_4core5slice5index16slice_index_fail"), Some(Entry::Slice));
        assert_eq!(entry("_RINvNtCsduW_4core9panicking13assert_failedjjEB4_"), Some(Entry::Assert));
        assert_eq!(entry("_RNvNtCsduW_4core9panicking9panic_fmt"), Some(Entry::Formatted));
        assert_eq!(entry("_RNvNtCsduW_4core9panicking5panic"), None);
        assert_eq!(entry("_RNvNtCsduW_4mine9panicking9panic_fmt"), None);
    }

    #[test]
    fn a_bounds_check_reports_index_length_location() {
        let text = Entry::BoundsCheck.replacement("f", &["i64", "i64", "ptr"]).unwrap();
        assert_eq!(
            text,
            "define internal void @f(i64 %p0, i64 %p1, ptr %p2) cold noinline convergent noreturn nounwind {
  call void @__warpsmith_panic_bounds_check(i64 %p0, i64 %p1, ptr %p2)
  unreachable
}"
        );
        assert_eq!(Entry::BoundsCheck.replacement("f", &["i32", "i64", "ptr"]), None);
        assert_eq!(Entry::Slice.replacement("f", &[]), None);
    }

    #[test]
    fn the_assertion_uses_its_last_three_parameters() {
        let text = Entry::Assert.replacement("f", &["i8", "ptr", "i64", "ptr", "ptr", "ptr", "ptr"]).unwrap();
        assert!(text.contains("%present = icmp ne ptr %p4, null"), "{text}");
        assert!(text.contains("%word = freeze ptr %p5"), "{text}");
        assert!(text.contains("ptr %length") || text.contains("i64 %length, ptr %p6)"), "{text}");
    }

    #[test]
    fn templates_show_their_pieces() {
        assert_eq!(
            describe_template(b"\x06hello \xC0\x01\n\0").unwrap(),
            "panic with a formatted message: hello {}\n"
        );
        let mut long = vec![0x80, 200, 0];
        long.extend([b'x'; 200]);
        long.extend([0xC3, 1, 2, 3, 4, 5, 6, 0]);
        assert_eq!(
            describe_template(&long).unwrap(),
            format!("panic with a formatted message: {}{{}}", "x".repeat(200))
        );
    }

    #[test]
    fn what_is_no_template_is_refused() {
        for bytes in [&b""[..], b"\x05ab", b"\x80", b"\x81\0", b"\x01\xff\0", b"\xC1\0"] {
            assert_eq!(describe_template(bytes), None, "{bytes:?}");
        }
    }

    #[test]
    fn a_call_loses_noinline_and_gains_its_message() {
        let line = "  call void @f(ptr noundef nonnull %75, ptr noundef nonnull %76, ptr align 8 captures(none) @loc) #30";
        assert_eq!(
            rewrite_call(line, None).unwrap().0,
            "  call void @f(ptr noundef nonnull %75, ptr noundef nonnull %76, ptr align 8 captures(none) @loc) noreturn nounwind"
        );
        let (call, constant) = rewrite_call(line, Some(("bad {}", 7))).unwrap();
        assert_eq!(
            call,
            "  call void @f(ptr @__warpsmith_text_7, ptr inttoptr (i64 13 to ptr), ptr align 8 captures(none) @loc) noreturn nounwind"
        );
        assert_eq!(
            constant.unwrap(),
            "@__warpsmith_text_7 = private unnamed_addr constant [7 x i8] c\"bad {}\\00\", align 1\n"
        );
    }
}
