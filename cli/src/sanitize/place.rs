//! Parses source locations and thread indices in compute-sanitizer's reports.

use std::path::Path;

use warpsmith_check::Frame;

/// Parses the location of an access, for which versions of compute-sanitizer use these formats:
///
/// ```text
/// smooth+0x90 in /home/me/kernels/src/lib.rs:27
/// smooth(float *)+0x90 in lib.rs:27
/// smooth():0x90 in lib.rs:27
/// 0x90 in lib.rs:27:smooth(float *)
/// lib.rs:27:smooth(float *) (smooth(float *) : 0x90)
/// 0x90 in smooth(float *)
/// smooth+0x90
/// ```
///
/// Paths below `folder` become relative to it.
pub fn frame(text: &str, folder: &Path) -> Frame {
    let text = text.trim().trim_end_matches('.');
    let alone = if file_and_line(text).is_some() { ("", text) } else { (text, "") };
    let (left, right) = text.rsplit_once(" in ").unwrap_or(alone);
    let function = without_offset(left);
    let Some((file, line, rest)) = file_and_line(right) else {
        return Frame {
            function: named(if function.is_empty() { right } else { function }),
            file: String::new(),
            line: 0,
        };
    };
    let path = Path::new(file);
    let file = path.strip_prefix(folder).unwrap_or(path).display().to_string();
    Frame { function: named(if function.is_empty() { rest } else { function }), file, line }
}

/// Parses a host frame such as `main in main.rs:8 [0x8a04] in program`. Everything except the name may be missing.
pub fn host_frame(text: &str, folder: &Path) -> Frame {
    let text = text.trim();
    let (place, _) = text.split_once(" [0x").unwrap_or((text, ""));
    frame(place, folder)
}

/// Returns the index of the frame to show first: the innermost frame that has a line outside of Warpsmith's and Rust's
/// libraries.
pub fn first_of(frames: &[Frame]) -> usize {
    let is_library =
        |file: &str| ["gpu-std/src/", "/library/core/src/", "/rustc/"].iter().any(|part| file.contains(part));
    frames.iter().position(|frame| frame.line != 0 && !is_library(&frame.file)).unwrap_or(0)
}

/// Parses the three numbers in parentheses after `word`: `thread (3,0,0)`, `block (0, 1, 0)`.
pub fn index(text: &str, word: &str) -> Option<[u32; 3]> {
    let (_, rest) = text.split_once(word)?;
    let inside = rest.trim_start().strip_prefix('(')?.split(')').next()?;
    let numbers: Vec<u32> = inside.split(',').filter_map(|number| number.trim().parse().ok()).collect();
    numbers.try_into().ok()
}

/// Removes an instruction offset from the end of a function name (`+0x90` or `:0x90`). Returns an empty string for an
/// offset alone.
fn without_offset(text: &str) -> &str {
    let text = text.trim();
    let Some(at) = text.rfind("0x") else { return text };
    if !text[at + 2..].chars().all(|c| c.is_ascii_hexdigit()) {
        return text;
    }
    text[..at].trim_end_matches(['+', ':', ' '])
}

/// Splits `file:line` or `file:line:function`.
fn file_and_line(text: &str) -> Option<(&str, u32, &str)> {
    text.match_indices(':').find_map(|(at, _)| {
        let rest = &text[at + 1..];
        let (line, function) = rest.split_once(':').unwrap_or((rest, ""));
        Some((text[..at].trim(), line.trim().parse().ok()?, function))
    })
}

/// Returns a function's name without parameters, and without the hash at the end of Rust's symbols.
fn named(function: &str) -> String {
    let function = function.trim();
    let name = match function.find('(') {
        Some(at) if !function.starts_with(['<', '(']) => &function[..at],
        _ => function,
    };
    let (path, last) = name.rsplit_once("::h").unwrap_or((name, ""));
    let is_hash = last.len() == 16 && last.chars().all(|c| c.is_ascii_hexdigit());
    let name = if is_hash { path } else { name };
    if name.is_empty() { "an unknown function".to_owned() } else { name.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_all_versions_are_read() {
        for text in [
            "smooth+0x90 in /home/me/kernels/src/lib.rs:27",
            "smooth(float *, int)+0x90 in /home/me/kernels/src/lib.rs:27",
            "smooth():0x90 in /home/me/kernels/src/lib.rs:27",
            "0x00000090 in /home/me/kernels/src/lib.rs:27:smooth(float *)",
            "/home/me/kernels/src/lib.rs:27:smooth(float *) (smooth(float *) : 0x90)",
            "  smooth+0x90   in  /home/me/kernels/src/lib.rs:27  ",
        ] {
            let found = frame(text, Path::new("/home/me"));
            let read = (found.function.as_str(), found.file.as_str(), found.line);
            assert_eq!(read, ("smooth", "kernels/src/lib.rs", 27), "{text}");
        }
        for text in ["smooth+0x90", "0x3b0 in smooth(float *)", "smooth(int)+0x90"] {
            let found = frame(text, Path::new("/"));
            assert_eq!((found.function.as_str(), found.line), ("smooth", 0), "{text}");
        }
        assert_eq!(frame("0x79d8", Path::new("/")).function, "an unknown function");
        let mangled = frame("kernels::inner::h0123456789abcdef+0x10 in lib.rs:3", Path::new("/"));
        assert_eq!(mangled.function, "kernels::inner");
    }

    #[test]
    fn indices_may_have_spaces() {
        assert_eq!(index("by thread (3,0,0) in block (1, 2, 0)", "thread"), Some([3, 0, 0]));
        assert_eq!(index("by thread (3,0,0) in block (1, 2, 0)", "block"), Some([1, 2, 0]));
        assert_eq!(index("by a thread", "thread"), None);
    }
}
