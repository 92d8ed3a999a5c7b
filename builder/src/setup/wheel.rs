//! Reads wheels, the archives in which Python packages are published: their hash and their files.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Component, Path};

/// A member of an archive: its name and its stored bytes.
struct Member<'a> {
    name: &'a str,
    is_program: bool,
    is_compressed: bool,
    len: usize,
    bytes: &'a [u8],
}

/// Writes the files of the wheel `bytes` into `folder`.
///
/// # Errors
/// Returns an error of kind [`InvalidData`](io::ErrorKind::InvalidData) if the wheel is damaged.
pub fn unpack(bytes: &[u8], folder: &Path) -> io::Result<()> {
    let damaged = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
    for member in members(bytes).ok_or_else(|| damaged("it is not a zip archive"))? {
        let name = Path::new(member.name);
        if !name.components().all(|part| matches!(part, Component::Normal(_))) {
            return Err(damaged(&format!("{} is outside the target folder", member.name)));
        }
        let path = folder.join(name);
        if member.name.ends_with('/') {
            fs::create_dir_all(path)?;
            continue;
        }
        let inflated;
        let contents = if member.is_compressed {
            inflated = miniz_oxide::inflate::decompress_to_vec_with_limit(member.bytes, member.len)
                .map_err(|_| damaged(&format!("{} is damaged", member.name)))?;
            &inflated
        } else {
            member.bytes
        };
        fs::create_dir_all(path.parent().unwrap_or(folder))?;
        let mut options = OpenOptions::new();
        set_mode(&mut options, member.is_program);
        options.write(true).create_new(true).open(path)?.write_all(contents)?;
    }
    Ok(())
}

/// Sets the permissions of a new file.
#[cfg(unix)]
fn set_mode(options: &mut OpenOptions, is_program: bool) {
    std::os::unix::fs::OpenOptionsExt::mode(options, if is_program { 0o755 } else { 0o644 });
}

/// Does nothing, because this system recognizes programs by their names.
#[cfg(not(unix))]
fn set_mode(_: &mut OpenOptions, _: bool) {}

/// Returns the members listed in the directory at the end of an archive.
fn members(bytes: &[u8]) -> Option<Vec<Member<'_>>> {
    let number = |at: usize, len: usize| {
        let bytes = bytes.get(at..at.checked_add(len)?)?;
        Some(bytes.iter().rev().fold(0, |number, byte| number << 8 | usize::from(*byte)))
    };
    let end = (0..=bytes.len().checked_sub(22)?).rev().find(|at| bytes[*at..].starts_with(b"PK\x05\x06"))?;
    let (count, mut at) = (number(end + 10, 2)?, number(end + 16, 4)?);
    let mut members = Vec::new();
    for _ in 0..count {
        if !bytes.get(at..)?.starts_with(b"PK\x01\x02") {
            return None;
        }
        let (method, packed, len) = (number(at + 10, 2)?, number(at + 20, 4)?, number(at + 24, 4)?);
        let name_len = number(at + 28, 2)?;
        let name = std::str::from_utf8(bytes.get(at + 46..at + 46 + name_len)?).ok()?;
        let local = number(at + 42, 4)?;
        if !bytes.get(local..)?.starts_with(b"PK\x03\x04") {
            return None;
        }
        let is_program = number(at + 38, 4)? >> 16 & 0o111 != 0;
        let start = local + 30 + number(local + 26, 2)? + number(local + 28, 2)?;
        let bytes = bytes.get(start..start.checked_add(packed)?)?;
        members.push(Member { name, is_program, is_compressed: method == 8, len, bytes });
        at += 46 + name_len + number(at + 30, 2)? + number(at + 32, 2)?;
    }
    Some(members)
}

/// Returns the SHA-256 hash in hexadecimal digits.
pub fn sha256(bytes: &[u8]) -> String {
    let mut state: [u32; 8] = [
        0x6a09_e667,
        0xbb67_ae85,
        0x3c6e_f372,
        0xa54f_f53a,
        0x510e_527f,
        0x9b05_688c,
        0x1f83_d9ab,
        0x5be0_cd19,
    ];
    let (blocks, rest) = bytes.as_chunks::<64>();
    blocks.iter().for_each(|block| add_block(&mut state, block));
    let mut end = rest.to_vec();
    end.push(0x80);
    end.resize((rest.len() + 9).next_multiple_of(64) - 8, 0);
    end.extend((bytes.len() as u64 * 8).to_be_bytes());
    end.as_chunks::<64>().0.iter().for_each(|block| add_block(&mut state, block));
    state.iter().map(|word| format!("{word:08x}")).collect()
}

/// First 32 fractional bits of the cube roots of the first 64 primes.
#[rustfmt::skip]
const ROUNDS: [u32; 64] = [
    0x428a_2f98, 0x7137_4491, 0xb5c0_fbcf, 0xe9b5_dba5, 0x3956_c25b, 0x59f1_11f1, 0x923f_82a4, 0xab1c_5ed5,
    0xd807_aa98, 0x1283_5b01, 0x2431_85be, 0x550c_7dc3, 0x72be_5d74, 0x80de_b1fe, 0x9bdc_06a7, 0xc19b_f174,
    0xe49b_69c1, 0xefbe_4786, 0x0fc1_9dc6, 0x240c_a1cc, 0x2de9_2c6f, 0x4a74_84aa, 0x5cb0_a9dc, 0x76f9_88da,
    0x983e_5152, 0xa831_c66d, 0xb003_27c8, 0xbf59_7fc7, 0xc6e0_0bf3, 0xd5a7_9147, 0x06ca_6351, 0x1429_2967,
    0x27b7_0a85, 0x2e1b_2138, 0x4d2c_6dfc, 0x5338_0d13, 0x650a_7354, 0x766a_0abb, 0x81c2_c92e, 0x9272_2c85,
    0xa2bf_e8a1, 0xa81a_664b, 0xc24b_8b70, 0xc76c_51a3, 0xd192_e819, 0xd699_0624, 0xf40e_3585, 0x106a_a070,
    0x19a4_c116, 0x1e37_6c08, 0x2748_774c, 0x34b0_bcb5, 0x391c_0cb3, 0x4ed8_aa4a, 0x5b9c_ca4f, 0x682e_6ff3,
    0x748f_82ee, 0x78a5_636f, 0x84c8_7814, 0x8cc7_0208, 0x90be_fffa, 0xa450_6ceb, 0xbef9_a3f7, 0xc671_78f2,
];

fn add_block(state: &mut [u32; 8], block: &[u8; 64]) {
    let mut words = [0; 64];
    for (word, bytes) in words.iter_mut().zip(block.as_chunks().0) {
        *word = u32::from_be_bytes(*bytes);
    }
    for i in 16..64 {
        let (a, b) = (words[i - 15], words[i - 2]);
        let a = a.rotate_right(7) ^ a.rotate_right(18) ^ a >> 3;
        let b = b.rotate_right(17) ^ b.rotate_right(19) ^ b >> 10;
        words[i] = words[i - 16].wrapping_add(a).wrapping_add(words[i - 7]).wrapping_add(b);
    }
    let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = *state;
    for (word, round) in words.iter().zip(ROUNDS) {
        let sum = e.rotate_right(6) ^ e.rotate_right(11) ^ e.rotate_right(25);
        let choice = e & f ^ !e & g;
        let first = h.wrapping_add(sum).wrapping_add(choice).wrapping_add(round).wrapping_add(*word);
        let sum = a.rotate_right(2) ^ a.rotate_right(13) ^ a.rotate_right(22);
        let majority = a & b ^ a & c ^ b & c;
        (h, g, f, e, d, c, b, a) =
            (g, f, e, d.wrapping_add(first), c, b, a, first.wrapping_add(sum).wrapping_add(majority));
    }
    for (sum, value) in state.iter_mut().zip([a, b, c, d, e, f, g, h]) {
        *sum = sum.wrapping_add(value);
    }
}

/// Creates an archive from a list of files, each with its name, its contents, and whether it is a program. Text of more
/// than 100 bytes is compressed.
#[cfg(test)]
pub fn archive(files: &[(&str, &[u8], bool)]) -> Vec<u8> {
    let (mut archive, mut directory) = (Vec::new(), Vec::new());
    for (name, contents, is_program) in files {
        let is_compressed = contents.len() > 100;
        let packed = if is_compressed {
            miniz_oxide::deflate::compress_to_vec(contents, 6)
        } else {
            contents.to_vec()
        };
        let method = if is_compressed { 8_u16 } else { 0 };
        let mut facts = vec![20, 0, 0, 0];
        facts.extend(method.to_le_bytes());
        facts.extend([0; 8]);
        facts.extend((packed.len() as u32).to_le_bytes());
        facts.extend((contents.len() as u32).to_le_bytes());
        facts.extend((name.len() as u16).to_le_bytes());
        facts.extend([0; 2]);
        let mode = if *is_program { 0o100_755_u32 } else { 0o100_644 };
        directory.extend(b"PK\x01\x02\x14\x03");
        directory.extend(&facts);
        directory.extend([0; 6]);
        directory.extend((mode << 16).to_le_bytes());
        directory.extend((archive.len() as u32).to_le_bytes());
        directory.extend(name.as_bytes());
        archive.extend(b"PK\x03\x04");
        archive.extend(facts);
        archive.extend(name.as_bytes());
        archive.extend(packed);
    }
    let (start, count) = (archive.len() as u32, files.len() as u16);
    archive.extend(&directory);
    archive.extend(b"PK\x05\x06\0\0\0\0");
    archive.extend([count.to_le_bytes(), count.to_le_bytes()].concat());
    archive.extend((directory.len() as u32).to_le_bytes());
    archive.extend(start.to_le_bytes());
    archive.extend([0; 2]);
    archive
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_the_standard() {
        assert_eq!(sha256(b""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        assert_eq!(sha256(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        let two_blocks = b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
        assert_eq!(sha256(two_blocks), "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
        assert_eq!(
            sha256(&vec![b'a'; 1_000_000]),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"
        );
    }

    #[test]
    fn files_are_unpacked_into_the_folder_alone() {
        let folder = std::env::temp_dir().join(format!("warpsmith-wheel-{}", std::process::id()));
        let text = b"some text ".repeat(100);
        let wheel = archive(&[("a/bin/ptxas", b"code", true), ("a/text", &text, false)]);
        unpack(&wheel, &folder).unwrap();
        assert_eq!(fs::read(folder.join("a/text")).unwrap(), text);
        let program = fs::metadata(folder.join("a/bin/ptxas")).unwrap();
        assert_eq!(program.len(), 4);
        #[cfg(unix)]
        assert_eq!(std::os::unix::fs::PermissionsExt::mode(&program.permissions()) & 0o777, 0o755);

        let error = |wheel: &[u8]| unpack(wheel, &folder.join("other")).unwrap_err().to_string();
        for bytes in [&b""[..], b"PK\x05\x06", &[0; 100], &wheel[..wheel.len() - 1], &wheel[10..]] {
            assert_eq!(error(bytes), "it is not a zip archive");
        }
        for name in ["../a", "/a", "a/../../b"] {
            assert!(error(&archive(&[(name, b"code", false)])).contains("outside"), "{name}");
        }
        // First byte of the compressed text.
        let mut damaged = archive(&[("a", &text, false)]);
        damaged[31] ^= 0xff;
        assert_eq!(error(&damaged), "a is damaged");
        assert!(!folder.join("other").exists() && !folder.join("b").exists());
        fs::remove_dir_all(folder).unwrap();
    }
}
