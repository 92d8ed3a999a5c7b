//! Type signatures: numbers that show whether two compilers refer to the same type.

/// Computes the signature of a type from its name and the signatures of its parts, as a 32-bit FNV-1a hash.
///
/// The host compiler and the device compiler each compute the signature of every parameter of a kernel. If the two
/// signatures differ, the image does not belong to the kernel. A type that has no signature counts as 0.
pub const fn signature(name: &str, parts: &[u32]) -> u32 {
    let (name, mut hash, mut i) = (name.as_bytes(), 0x811c_9dc5, 0);
    while i < name.len() {
        hash = add(hash, name[i]);
        i += 1;
    }
    // UTF-8 text never contains this byte, so the parts cannot be mistaken for a continuation of the name.
    hash = add(hash, 0xff);
    i = 0;
    while i < 4 * parts.len() {
        hash = add(hash, parts[i / 4].to_le_bytes()[i % 4]);
        i += 1;
    }
    hash
}

const fn add(hash: u32, byte: u8) -> u32 {
    (hash ^ byte as u32).wrapping_mul(0x0100_0193)
}

#[cfg(test)]
mod tests {
    use super::signature;

    #[test]
    fn names_and_parts_count_in_their_order() {
        // The FNV-1a hash of the bytes `61 ff`.
        assert_eq!(signature("a", &[]), 0xd225_d729);
        let all = [
            signature("", &[]),
            signature("a", &[]),
            signature("b", &[]),
            signature("ab", &[]),
            signature("ba", &[]),
            signature("a", &[0]),
            signature("a", &[1]),
            signature("a", &[1, 0]),
            signature("a", &[0, 1]),
            signature("a", &[0x100]),
        ];
        for (i, one) in all.iter().enumerate() {
            assert!(!all[..i].contains(one), "{i}");
        }
    }
}
