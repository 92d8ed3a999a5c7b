//! Tests the conversion of published formats of quantized weights.

use half::f16;
use warpsmith_tensor::{Int4Host, Int8Host, PackedWords, TensorError};

/// A k x n matrix of codes in groups of rows, with scales and zero points, all row-major.
struct Source {
    k: usize,
    n: usize,
    group: usize,
    codes: Vec<u8>,
    scales: Vec<f16>,
    zeros: Vec<u8>,
}

impl Source {
    fn new([k, n]: [usize; 2], group: usize) -> Self {
        let mut random = fastrand::Rng::with_seed(3);
        let codes = (0..k * n).map(|_| random.u8(..16)).collect();
        let scales = (0..k / group * n).map(|_| f16::from_f32(random.f32())).collect();
        let zeros = (0..k / group * n).map(|_| random.u8(..16)).collect();
        Self { k, n, group, codes, scales, zeros }
    }

    /// Compares the weights with the source, element by element.
    fn matches(&self, host: &Int4Host<f16>) {
        for column in 0..self.n {
            for row in 0..self.k {
                let byte = host.codes[(column * self.k + row) / 2];
                let code = if row % 2 == 0 { byte & 15 } else { byte >> 4 };
                assert_eq!(code, self.codes[row * self.n + column], "code of {row}, {column}");
            }
            let groups = self.k / self.group;
            for group in 0..groups {
                let at = group * self.n + column;
                assert_eq!(
                    host.scales[column * groups + group],
                    self.scales[at],
                    "scale of {group}, {column}"
                );
                let zero = host.zeros.as_ref().map_or(8.0, |zeros| zeros[column * groups + group].to_f32());
                assert_eq!(zero, f32::from(self.zeros[at]), "zero point of {group}, {column}");
            }
        }
    }

    /// Packs eight columns of each row into a word; nibble i contains column `order[i]`.
    fn by_columns(&self, codes: &[u8], order: [usize; 8]) -> Vec<u32> {
        let words = codes.chunks(8);
        words.map(|eight| (0..8).fold(0, |word, i| word | u32::from(eight[order[i]]) << (4 * i))).collect()
    }
}

const NATURAL: [usize; 8] = [0, 1, 2, 3, 4, 5, 6, 7];
const OF_AWQ: [usize; 8] = [0, 2, 4, 6, 1, 3, 5, 7];

#[test]
fn gptq_is_converted() {
    for (shape, group) in [([8, 8], 8), ([256, 24], 32), ([128, 40], 128)] {
        let source = Source::new(shape, group);
        let Source { k, n, .. } = source;
        let word = |row: usize, column: usize| {
            (0..8).fold(0, |word, i| word | u32::from(source.codes[(8 * row + i) * n + column]) << (4 * i))
        };
        let qweight: Vec<u32> = (0..k / 8 * n).map(|i| word(i / n, i % n)).collect();
        // A zero point of 0 is stored as 15.
        let stored: Vec<u8> = source.zeros.iter().map(|zero| zero.wrapping_sub(1) & 15).collect();
        let qzeros = source.by_columns(&stored, NATURAL);
        let words = PackedWords { qweight: &qweight, qzeros: &qzeros, scales: &source.scales };
        source.matches(&Int4Host::from_gptq(shape, &words).unwrap());
    }
}

#[test]
fn awq_is_converted() {
    for (shape, group) in [([8, 8], 8), ([256, 24], 32), ([128, 40], 128)] {
        let source = Source::new(shape, group);
        let qweight = source.by_columns(&source.codes, OF_AWQ);
        let qzeros = source.by_columns(&source.zeros, OF_AWQ);
        let words = PackedWords { qweight: &qweight, qzeros: &qzeros, scales: &source.scales };
        source.matches(&Int4Host::from_awq(shape, &words).unwrap());
    }
}

#[test]
fn zero_points_of_symmetric_weights_are_omitted() {
    let scales = [f16::ONE; 8];
    let words = PackedWords { qweight: &[0; 16], qzeros: &[0x8888_8888], scales: &scales };
    assert_eq!(Int4Host::<f16>::from_awq([16, 8], &words).unwrap().zeros, None);
    let words = PackedWords { qzeros: &[0x7777_7777], ..words };
    assert_eq!(Int4Host::<f16>::from_gptq([16, 8], &words).unwrap().zeros, None);
}

#[test]
fn blocks_of_gguf_are_converted() {
    let mut random = fastrand::Rng::with_seed(4);
    let [k, n] = [96, 3];
    let blocks = k / 32 * n;
    let codes: Vec<u8> = (0..k * n).map(|_| random.u8(..)).collect();
    let scales: Vec<f16> = (0..blocks).map(|_| f16::from_f32(random.f32())).collect();
    let (mut q8_0, mut q4_0) = (Vec::new(), Vec::new());
    for (codes, scale) in codes.chunks(32).zip(&scales) {
        q8_0.extend(scale.to_le_bytes().iter().chain(codes));
        q4_0.extend(scale.to_le_bytes());
        q4_0.extend((0..16).map(|i| codes[i] & 15 | codes[i + 16] << 4));
    }
    let host = Int8Host::<f16>::from_q8_0([k, n], &q8_0).unwrap();
    let signed: Vec<i8> = codes.iter().map(|code| code.cast_signed()).collect();
    assert_eq!((host.codes, &host.scales), (signed, &scales));
    let host = Int4Host::<f16>::from_q4_0([k, n], &q4_0).unwrap();
    let expected: Vec<u8> = codes.chunks(2).map(|pair| pair[0] & 15 | pair[1] << 4).collect();
    assert_eq!((host.codes, host.scales, host.zeros), (expected, scales, None));
}

/// Unpacks a block of q4_K, weight after weight.
fn unpack_q4_k(block: &[u8]) -> Vec<f32> {
    let number = |at: usize| f16::from_le_bytes([block[at], block[at + 1]]).to_f32();
    // Bits of the 12 bytes of scales: 6 bits at `at`, or 4 low bits at `low` and 2 high bits at `high`.
    let bits = |at: usize, count: usize| {
        (0..count).fold(0, |number, i| number | u32::from(block[4 + (at + i) / 8] >> ((at + i) % 8) & 1) << i)
    };
    let scale = |group: usize| match group {
        0..4 => [bits(8 * group, 6), bits(8 * (group + 4), 6)],
        _ => {
            let (low, high) = (8 * (group + 4), 8 * (group - 4) + 6);
            [bits(low, 4) | bits(high, 2) << 4, bits(low + 4, 4) | bits(high + 32, 2) << 4]
        }
    };
    let weight = |i: usize| {
        let (of_64, in_64) = (i / 64, i % 64);
        let byte = block[16 + 32 * of_64 + in_64 % 32];
        let code = if in_64 < 32 { byte & 15 } else { byte >> 4 };
        let [scale, minimum] = scale(i / 32).map(|number| number as f32);
        number(0) * scale * f32::from(code) - number(2) * minimum
    };
    (0..256).map(weight).collect()
}

#[test]
fn super_blocks_of_gguf_are_converted() {
    let mut random = fastrand::Rng::with_seed(5);
    let [k, n] = [512, 5];
    let mut blocks: Vec<u8> = (0..k / 256 * n * 144).map(|_| random.u8(..)).collect();
    for (i, block) in blocks.chunks_mut(144).enumerate() {
        // One block has a scale of zero, and one has a scale that is too small for zero points.
        let d = [0.01 * random.f32(), 0.0, 1e-7][if i < 8 { 0 } else { i - 7 }];
        let dmin = 0.01 * random.f32();
        block[..2].copy_from_slice(&f16::from_f32(d).to_le_bytes());
        block[2..4].copy_from_slice(&f16::from_f32(dmin).to_le_bytes());
        if i == 3 {
            // Groups with a scale of zero, and with a minimum of zero.
            block[4..16].copy_from_slice(&[0, 63, 0, 1, 7, 0, 0, 63, 0x10, 0x01, 0x00, 0xff]);
        }
    }
    let host = Int4Host::<f16>::from_q4_k([k, n], &blocks).unwrap();
    let zeros = host.zeros.as_ref().unwrap();
    let expected = blocks.chunks(144).flat_map(unpack_q4_k);
    for (i, expected) in expected.enumerate() {
        let code = host.codes[i / 2] >> (4 * (i % 2)) & 15;
        let (scale, zero) = (host.scales[i / 32].to_f32(), zeros[i / 32].to_f32());
        let weight = scale * (f32::from(code) - zero);
        let largest = scale.abs() * (f32::from(code) + zero.abs());
        let error = (weight - expected).abs();
        assert!(error <= largest * 1e-3 + 1e-6, "{i}: {weight} instead of {expected}");
    }
    for (shape, bytes) in [([256, 1], 143), ([256, 2], 144), ([128, 2], 144)] {
        let error = Int4Host::<f16>::from_q4_k(shape, &blocks[..bytes]).unwrap_err().to_string();
        assert!(error.contains(&format!("there are {bytes} bytes for {} x", shape[0])), "{error}");
        assert!(error.contains("n * k / 256 blocks of 144 bytes"), "{error}");
    }
}

#[test]
fn weights_are_quantized_to_the_nearest_code() {
    let mut random = fastrand::Rng::with_seed(6);
    let ([k, n], group) = ([192, 5], 32);
    let mut weights: Vec<f16> = (0..k * n).map(|_| f16::from_f32(2.0 * random.f32() - 1.0)).collect();
    weights[group..2 * group].fill(f16::ZERO);
    let int4 = Int4Host::quantize([k, n], group, &weights).unwrap();
    let int8 = Int8Host::quantize([k, n], group, &weights).unwrap();
    let nibbles = int4.codes.iter().flat_map(|byte| [byte & 15, byte >> 4]);
    let of_4_bits: Vec<f32> = nibbles.map(|code| f32::from(code) - 8.0).collect();
    let of_8_bits: Vec<f32> = int8.codes.iter().map(|code| f32::from(*code)).collect();
    for (codes, scales, most) in [(of_4_bits, int4.scales, 7.0), (of_8_bits, int8.scales, 127.0)] {
        for (i, group) in codes.chunks(group).enumerate() {
            let weights = &weights[32 * i..][..32];
            let largest = weights.iter().fold(0f32, |max, x| max.max(x.to_f32().abs()));
            let scale = scales[i].to_f32();
            assert!((scale - largest / most).abs() <= 1e-3 * scale, "{scale}");
            assert!(group.iter().any(|code| code.abs() == most) || largest == 0.0);
            for (code, weight) in group.iter().zip(weights) {
                let error = (code * scale - weight.to_f32()).abs();
                assert!(error <= 0.51 * scale + 1e-3 * largest, "{code} * {scale} differs from {weight}");
            }
        }
    }
    for (format, error) in [
        ("int4", Int4Host::quantize([64, 2], 32, &weights[..100]).unwrap_err()),
        ("int8", Int8Host::quantize([48, 2], 32, &weights[..96]).unwrap_err()),
        ("int8", Int8Host::quantize([64, 2], 0, &weights[..128]).unwrap_err()),
    ] {
        let error = error.to_string();
        assert!(error.contains(&format!("weights in the format {format}: ")), "{error}");
        assert!(error.contains(" weights are not "), "{error}");
    }
    let error = Int4Host::quantize([3, 1], 3, &weights[..3]).unwrap_err().to_string();
    assert!(error.contains("groups have 3 weights, but the number must be even"), "{error}");
}

#[test]
fn parts_contain_the_weights_of_their_ranges() {
    let mut random = fastrand::Rng::with_seed(7);
    let ([k, n], group) = ([128, 6], 32);
    let weights: Vec<f16> = (0..k * n).map(|_| f16::from_f32(random.f32())).collect();
    let whole = Int4Host::quantize([k, n], group, &weights).unwrap();
    // The groups of the parts are those of the matrix.
    let (rows, columns) = (32..96, 2..5);
    let of_part: Vec<f16> =
        columns.clone().flat_map(|column| &weights[column * k..][rows.clone()]).copied().collect();
    let part = Int4Host::quantize([64, 3], group, &of_part).unwrap();
    assert_eq!(whole.part(k, rows, columns).unwrap(), part);
    let mut joined = whole.part(k, 0..k, 0..2).unwrap();
    joined.append(whole.part(k, 0..k, 2..n).unwrap());
    assert_eq!(joined, whole);
    for (rows, columns) in [(16..64, 0..n), (0..160, 0..n), (0..64, 0..7)] {
        let error = whole.part(k, rows, columns).unwrap_err().to_string();
        assert!(error.contains("128 x 6 weights in groups of 32 have no part"), "{error}");
    }
}

#[test]
fn wrong_lengths_are_named() {
    let (scales, words) = ([f16::ONE; 32], [0; 64]);
    let check = |shape, [weights, zeros, groups]: [usize; 3], expected: &str| {
        let packed =
            PackedWords { qweight: &words[..weights], qzeros: &words[..zeros], scales: &scales[..groups] };
        for error in [Int4Host::<f16>::from_gptq(shape, &packed), Int4Host::from_awq(shape, &packed)] {
            let error = error.unwrap_err();
            assert!(matches!(error.downcast_ref(), Some(TensorError::Weights { .. })), "{error}");
            assert!(error.to_string().contains(expected), "{error}");
        }
    };
    check([16, 12], [24, 1, 12], "the matrix is 16 x 12, but both sizes must be positive multiples of 8");
    check([0, 8], [0, 1, 8], "the matrix is 0 x 8, but");
    check([16, 8], [16, 1, 0], "there are 0 scales for 16 x 8 weights");
    check([16, 8], [16, 1, 12], "there are 12 scales for 16 x 8 weights");
    check([16, 8], [16, 3, 24], "there are 24 scales for 16 x 8 weights");
    check([16, 8], [15, 1, 8], "qweight has 15 words");
    check([16, 8], [16, 1, 16], "qzeros has 1 words");
    check([1 << 40, 1 << 40], [16, 1, 16], "there are 16 scales");
    for bytes in [0, 33, 35, 68] {
        let error = Int8Host::<f16>::from_q8_0([32, 1], &vec![0; bytes]).unwrap_err().to_string();
        assert!(error.contains(&format!("there are {bytes} bytes for 32 x 1 weights")), "{error}");
    }
    let error = Int4Host::<f16>::from_q4_0([33, 1], &[0; 18]).unwrap_err().to_string();
    assert!(error.contains("33 x 1 weights, which require n * k / 32 blocks of 18 bytes"), "{error}");
}
