//! Kernels that use crates of text, bytes and bits.

use ascii::AsciiStr;
use base64::Engine;
use bit_field::BitField;
use bitflags::bitflags;
use bytemuck::{Pod, Zeroable};
use byteorder::{BigEndian, ByteOrder, LittleEndian};
use difftest_support::*;
use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthStr;
use zerocopy::{FromBytes, IntoBytes};

bitflags! {
    /// Some flags.
    #[derive(Clone, Copy, PartialEq, Eq)]
    pub struct Flags: u16 {
        /// One bit.
        const A = 1;
        /// Two bits.
        const B = 0b110;
        /// Highest bit.
        const C = 1 << 15;
    }
}

/// Plain data.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Plain {
    a: u32,
    b: [u16; 2],
    c: u64,
}

/// Plain data for `zerocopy`.
#[derive(
    Clone, Copy, zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable, zerocopy::KnownLayout,
)]
#[repr(C)]
pub struct Header {
    length: zerocopy::big_endian::U16,
    kind: [u8; 2],
    value: zerocopy::little_endian::U32,
}

/// Bytes of input.
fn bytes<const N: usize>(c: &Input, from: u64) -> [u8; N] {
    core::array::from_fn(|k| c.w(from + k as u64 / 8).to_le_bytes()[k % 8])
}

/// A hash of bytes.
fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(bytes.len() as u64, |h, b| mix(h, u64::from(*b)))
}

kernels! {
    /// `itoa`.
    itoa_texts(c, s) {
        let mut buffer = itoa::Buffer::new();
        s.add(sum(buffer.format(c.w(1) as i64).as_bytes()));
        s.add(sum(buffer.format(c.w(1) as u128 * c.w(2) as u128).as_bytes()));
        s.add(sum(buffer.format(c.w(3) as i8).as_bytes()));
    }
    /// `ryu`.
    ryu_texts(c, s) {
        let mut buffer = ryu::Buffer::new();
        s.add(sum(buffer.format(number64(c.f64(1))).as_bytes()));
        s.add(sum(buffer.format(number32(c.f32(2))).as_bytes()));
    }
    /// `hex`.
    hex_texts(c, s) {
        let mut text = [0; 24];
        s.add(hex::encode_to_slice(bytes::<12>(c, 1), &mut text).is_ok() as u64);
        s.add(sum(&text));
        let mut back = [0; 12];
        if c.w(3) & 1 == 0 { text[5] = b'x'; }
        s.add(hex::decode_to_slice(text, &mut back).is_ok() as u64);
        s.add(sum(&back[..2]));
    }
    /// `base64`.
    base64_texts(c, s) {
        let engine = base64::engine::general_purpose::STANDARD_NO_PAD;
        let mut text = [0; 40];
        let len = engine.encode_slice(&bytes::<25>(c, 1)[..c.w(2) as usize % 26], &mut text).unwrap_or(0);
        s.add(sum(&text[..len]));
        let mut back = [0; 40];
        s.add(engine.decode_slice(&text[..len], &mut back).map_or(99, |n| n as u64));
        s.add(sum(&back));
    }
    /// `atoi`.
    atoi_numbers(c, s) {
        let mut buffer = itoa::Buffer::new();
        let text = buffer.format(c.w(1) as i32);
        s.add(atoi::atoi::<i32>(text.as_bytes()).map_or(1, |x| x as u64));
        s.add(atoi::atoi::<u8>(text.as_bytes()).map_or(2, u64::from));
    }
    /// `memchr`.
    memchr_searches(c, s) {
        let text: [u8; 60] = bytes(c, 1).map(|b: u8| b % 5 + b'a');
        s.add(memchr::memchr(b'c', &text).map_or(99, |i| i as u64));
        s.add(memchr::memrchr2(b'a', b'e', &text[..40]).map_or(99, |i| i as u64));
        s.add(memchr::memchr_iter(b'b', &text).fold(0, |h, i| mix(h, i as u64)));
        s.add(memchr::memmem::find(&text, b"ab").map_or(99, |i| i as u64));
    }
    /// `byteorder`.
    byteorder_numbers(c, s) {
        let mut data = bytes::<20>(c, 1);
        s.add(BigEndian::read_u32(&data[3..]) as u64);
        s.add(LittleEndian::read_i16(&data[5..]) as u64);
        s.add(BigEndian::read_uint(&data[1..], 6));
        LittleEndian::write_u64(&mut data[7..], c.w(9));
        BigEndian::write_f32(&mut data, number32(c.f32(10)));
        s.add_wide(BigEndian::read_u128(&data));
        s.add(sum(&data));
    }
    /// `bytemuck`.
    bytemuck_casts(c, s) {
        let plain: [Plain; 2] = bytemuck::cast([c.w(1), c.w(2), c.w(3), c.w(4)]);
        s.add(plain[1].a as u64 ^ plain[0].b[1] as u64 ^ plain[1].c);
        let words: &[u16] = bytemuck::cast_slice(&plain);
        s.add(words.iter().fold(0, |h, x| mix(h, *x as u64)));
        s.add(bytemuck::try_from_bytes::<u64>(&bytemuck::bytes_of(&plain)[4..8]).is_err() as u64);
        s.add(bytemuck::pod_read_unaligned::<u64>(&bytes::<12>(c, 5)[3..11]));
    }
    /// `zerocopy`.
    zerocopy_headers(c, s) {
        let data = bytes::<20>(c, 1);
        if let Ok((header, rest)) = Header::read_from_prefix(&data[1..]) {
            s.add(header.length.get() as u64 ^ (header.value.get() as u64) << 16 ^ header.kind[1] as u64);
            s.add(sum(rest));
            s.add(sum(header.as_bytes()));
        }
    }
    /// `bitflags`.
    bitflags_sets(c, s) {
        let mut flags = Flags::from_bits_truncate(c.w(1) as u16);
        s.add(Flags::from_bits(c.w(2) as u16).is_some() as u64);
        flags.toggle(Flags::B);
        s.add(flags.contains(Flags::A | Flags::C) as u64);
        s.add((flags - Flags::A).bits() as u64 ^ (!flags).bits() as u64);
        for flag in flags.iter() { s.add(flag.bits() as u64); }
    }
    /// `bit_field`.
    bit_fields(c, s) {
        let mut x = c.w(1);
        x.set_bits(3..17, c.w(2) & 0x3fff).set_bit(40, c.w(3) & 1 == 0);
        s.add(x);
        s.add(x.get_bits(7..=22) ^ (x as u8).get_bit(3) as u64);
    }
    /// `ascii`.
    ascii_texts(c, s) {
        let data = bytes::<16>(c, 1);
        match AsciiStr::from_ascii(&data) { Ok(_) => s.add(1), Err(error) => s.add(error.valid_up_to() as u64) }
        let clean = data.map(|b| b & 0x7f);
        if let Ok(text) = AsciiStr::from_ascii(&clean) {
            s.add(text.chars().filter(|symbol| symbol.is_alphabetic()).count() as u64);
            s.add(text.trim().len() as u64);
        }
    }
    /// `unicode-segmentation` and `unicode-width`.
    unicode_widths(c, s) {
        let text = ["ab c", "g\u{308}ö", "日本語, x", "e\u{301}🇩🇪!"][c.w(1) as usize % 4];
        s.add(text.width() as u64);
        s.add(text.graphemes(true).count() as u64);
        s.add(text.unicode_words().fold(0, |h, word| mix(h, word.len() as u64)));
    }
    /// `uuid`: from names and from random bytes.
    uuid_texts(c, s) {
        let first = uuid::Uuid::new_v5(&uuid::Uuid::NAMESPACE_DNS, &bytes::<10>(c, 1));
        s.add_wide(first.as_u128());
        let mut buffer = uuid::Uuid::encode_buffer();
        let text = uuid::Builder::from_random_bytes(bytes(c, 3)).into_uuid().hyphenated().encode_lower(&mut buffer);
        s.add(sum(text.as_bytes()));
        s.add(uuid::Uuid::parse_str(text).map_or(1, |x| x.as_u128() as u64));
    }
    /// `time`: dates.
    time_dates(c, s) {
        if let Ok(date) = time::Date::from_julian_day((c.w(1) % 4_000_000) as i32) {
            let (year, week, day) = date.to_iso_week_date();
            s.add(year as u64 ^ (week as u64) << 20 ^ (day.number_from_monday() as u64) << 30);
            s.add(date.ordinal() as u64 ^ (date.day() as u64) << 16);
            if let Some(next) = date.checked_add(time::Duration::days((c.w(2) % 1000) as i64)) { s.add(next.to_julian_day() as u64); }
        }
        let duration = time::Duration::seconds(c.w(3) as i32 as i64 * 3) + time::Duration::milliseconds(c.w(4) as i16 as i64);
        s.add(duration.whole_minutes() as u64 ^ duration.subsec_nanoseconds() as u64);
    }
}
