//! Text: formatted into a fixed buffer, parsed, and its bytes.

use super::Writer;

/// Formatting with `core::fmt`.
pub fn formatted(w: &mut Writer) {
    let of = w.scope.any_int();
    let (x, word) = (w.scope.input(of), w.word());
    w.line("use core::fmt::Write;");
    w.line(format!("let (x, y): ({}, u64) = ({x}, c.w({word}));", of.name));
    w.line("let mut text = Text::new();");
    for _ in 0..w.within(1, 2) {
        let width = w.within(1, 24);
        let format = match w.below(12) {
            0 => "\"{x}\"".to_owned(),
            1 => format!("\"{{x:>{width}}}\""),
            2 => "\"{x:#x} {y:o}\"".to_owned(),
            3 => format!("\"{{:+}}|{{:^{width}}}\", x, y"),
            4 => "\"{:?}\", Some((y as u8, x))".to_owned(),
            5 => format!("\"{{:*<{width}}}\", y as i32"),
            6 => "\"{:?} {:?}\", [y as i8, x as i8], y as u8 as char".to_owned(),
            7 => "\"{}\", y as u8 & 1 == 0".to_owned(),
            8 => format!("\"{{:.*}}\", {}, ((y as i32) as f64) / 64.0", w.below(6)),
            9 => "\"{:e}\", y as u32".to_owned(),
            10 => "\"{}\", (y as i16) as f32 / 8.0".to_owned(),
            _ => format!(
                "\"{{:#010x}}/{{:>width$}}\", y as u16, x as u8, width = (y as usize >> 32) % {width}"
            ),
        };
        w.line(format!("s.add(write!(text, {format}).is_ok() as u64);"));
    }
    w.line("s.add(text.hash());");
    w.line("s.add(text.as_str().bytes().filter(|b| *b == b'1').count() as u64);");
}

/// Parsing with `str::parse`.
pub fn parsed(w: &mut Writer) {
    let of = w.scope.any_int();
    let t = of.name;
    let (x, word) = (w.scope.input(of), w.word());
    w.line("use core::fmt::Write;");
    w.line(format!("let x: {t} = {x};"));
    w.line("let mut text = Text::new();");
    match w.below(3) {
        0 => w.line("_ = write!(text, \"{x}\");"),
        1 => w.line(format!("_ = write!(text, \"{{}}{{}}\", if c.w({word}) & 1 == 0 {{ \"-\" }} else {{ \"+\" }}, c.w({word}) as u8);")),
        _ => w.line(format!("_ = write!(text, \"{{}}.{{}}\", c.w({word}) as i16, c.w({word}) as u8);")),
    }
    for _ in 0..w.within(1, 3) {
        let other = w.scope.any_int().name;
        match w.below(5) {
            0 => w.line(format!("s.add(text.as_str().parse::<{t}>().map_or(1, |x| x as u64));")),
            1 => w.line(format!("s.add(text.as_str().parse::<{other}>().map_or(2, |x| x as u64));")),
            2 => w.line("s.add(text.as_str().parse::<f64>().map_or(3, |x| bits64(x)));"),
            3 => w.line(
                "s.add(text.as_str().split('.').map(|x| x.parse::<i64>().unwrap_or(5) as u64).fold(0, mix));",
            ),
            _ => {
                let n = w.within(2, 36);
                w.line(format!("s.add({other}::from_str_radix(text.as_str().trim_start_matches('-'), {}).map_or(4, |x| x as u64));", n))
            }
        }
    }
}

/// Characters, and possibly invalid bytes.
pub fn utf8(w: &mut Writer) {
    let (len, word, mask) = (w.within(1, 12), w.word(), w.pick(&["", " & 0x7f", " & 0x3f"]));
    w.line(format!(
        "let mut bytes: [u8; {len}] = core::array::from_fn(|k| (c.w(k as u64 + {word}){mask}) as u8);"
    ));
    for _ in 0..w.within(2, 4) {
        let other = w.word();
        match w.below(8) {
            0 => w.line("match core::str::from_utf8(&bytes) { Ok(text) => s.add(text.chars().count() as u64), Err(error) => { s.add(error.valid_up_to() as u64); s.add(error.error_len().map_or(9, |n| n as u64)); } }"),
            1 => w.line("for part in bytes.utf8_chunks() { s.add(part.valid().len() as u64 * 8 + part.invalid().len() as u64); }"),
            2 => w.line(format!("if let Some(x) = char::from_u32(c.w({other}) as u32 % 0x11_0000) {{ let mut b = [0; 4]; for x in x.encode_utf8(&mut b).bytes() {{ s.add(x as u64); }} s.add(x.len_utf16() as u64); }}")),
            3 => w.line(format!("{{ let x = char::from(c.w({other}) as u8); s.add(x.is_alphabetic() as u64 | (x.is_ascii_punctuation() as u64) << 1 | (x.is_whitespace() as u64) << 2); for y in x.to_uppercase() {{ s.add(y as u64); }} }}")),
            4 => { let n = w.below(len); w.line(format!("bytes[{}] = c.w({other}) as u8;", n)) },
            5 => w.line(format!("{{ let x = char::from_u32(c.w({other}) as u32 & 0x7ff).unwrap_or('ß'); for y in x.to_lowercase() {{ s.add(y as u64); }} s.add(x.is_numeric() as u64); s.add(x.to_digit(36).unwrap_or(40) as u64); }}")),
            6 => w.line("{ let text = core::str::from_utf8(&bytes).unwrap_or(\"groß und 小さい\"); for (i, x) in text.char_indices().rev() { s.add(i as u64 ^ (x as u64) << 8); } }"),
            _ => w.line("{ let text = core::str::from_utf8(&bytes).unwrap_or(\"naïve\"); for x in text.encode_utf16() { s.add(x as u64); } }"),
        }
    }
    w.line("for x in bytes { s.add(x as u64); }");
}

/// ASCII bytes and methods of `str`.
pub fn bytes(w: &mut Writer) {
    let word = w.word();
    let alphabet = w.pick(&["abc ,ABC\\n01", "0123456789--", "xyzzyxyxyx, "]);
    w.line(format!("let bytes: [u8; 24] = core::array::from_fn(|k| b\"{alphabet}\"[c.w(k as u64 + {word}) as usize % 12 % {}]);", if alphabet.contains('\\') { 11 } else { 12 }));
    w.line("let text = core::str::from_utf8(&bytes).unwrap_or(\"\");");
    for _ in 0..w.within(2, 5) {
        match w.below(11) {
            0 => w.line("for part in text.split(',') { s.add(part.len() as u64); }"),
            1 => w.line("for part in text.split_whitespace() { s.add(part.bytes().fold(1, |h, b| mix(h, b as u64))); }"),
            2 => w.line("s.add(text.find(\"xy\").map_or(50, |i| i as u64)); s.add(text.rfind(|x: char| x.is_ascii_digit()).map_or(50, |i| i as u64));"),
            3 => w.line("s.add(text.matches('a').count() as u64 ^ text.lines().count() as u64);"),
            4 => w.line("s.add(text.trim_matches(|x| x == ' ' || x == 'a').len() as u64);"),
            5 => w.line("if let Some((a, b)) = text.split_once('-') { s.add(a.len() as u64 * 100 + b.len() as u64); }"),
            6 => w.line("s.add(text.eq_ignore_ascii_case(\"abc\") as u64); s.add(bytes.to_ascii_uppercase_hash());"),
            7 => w.line("s.add(text[..12].cmp(&text[12..]) as u64);"),
            8 => w.line("s.add(text.strip_prefix('x').map_or(1, |x| x.len() as u64));"),
            9 => w.line("for part in text.rsplitn(3, 'y') { s.add(part.len() as u64); }"),
            _ => w.line("s.add(text.char_indices().filter(|(_, x)| x.is_ascii_uppercase()).fold(0, |h, (i, _)| h << 1 ^ i as u64));"),
        }
    }
    w.line("trait Upper { fn to_ascii_uppercase_hash(&self) -> u64; } impl Upper for [u8; 24] { fn to_ascii_uppercase_hash(&self) -> u64 { let mut b = *self; b.make_ascii_uppercase(); b.iter().fold(0, |h, x| mix(h, *x as u64)) } }");
}
