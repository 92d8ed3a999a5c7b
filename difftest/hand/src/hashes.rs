//! Kernels that use crates of hashes, checksums and ciphers.

use core::hash::{BuildHasher, Hash, Hasher};

use aes::cipher::{BlockDecrypt, BlockEncrypt, KeyInit, KeyIvInit, StreamCipher};
use blake2::{Blake2b512, Blake2s256};
use difftest_support::*;
use generic_array::GenericArray;
use hmac::{Hmac, Mac};
use md5::Md5;
use sha1::Sha1;
use sha2::{Digest, Sha256, Sha512};
use sha3::Keccak256;

/// Bytes of input.
fn bytes<const N: usize>(c: &Input, from: u64) -> [u8; N] {
    core::array::from_fn(|k| c.w(from + k as u64 / 8).to_le_bytes()[k % 8])
}

/// A hash of bytes.
fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |h, b| mix(h, u64::from(*b)))
}

kernels! {
    /// `sha2`.
    sha2_digests(c, s) {
        s.add(sum(&Sha256::digest(bytes::<70>(c, 1))));
        s.add(sum(&Sha512::digest(&bytes::<130>(c, 2)[..c.w(3) as usize % 130])));
    }
    /// `sha1`.
    sha1_digests(c, s) {
        let mut hasher = Sha1::new();
        for k in 0..3 { hasher.update(&bytes::<30>(c, k)[..(c.w(k) % 30) as usize]); }
        s.add(sum(&hasher.finalize()));
    }
    /// `sha3`.
    sha3_keccak(c, s) { s.add(sum(&Keccak256::digest(bytes::<40>(c, 1)))); }
    /// `md-5`.
    md5_digests(c, s) { s.add(sum(&Md5::digest(&bytes::<70>(c, 1)[..(c.w(2) % 70) as usize]))); }
    /// `blake2`.
    blake2_digests(c, s) {
        s.add(sum(&Blake2s256::digest(bytes::<50>(c, 1))));
        s.add(sum(&Blake2b512::digest(bytes::<90>(c, 1))));
    }
    /// `hmac`.
    hmac_sha256(c, s) {
        if let Ok(mut mac) = <Hmac<Sha256> as Mac>::new_from_slice(&bytes::<20>(c, 1)) {
            mac.update(&bytes::<33>(c, 9));
            s.add(sum(&mac.finalize().into_bytes()));
        }
    }
    /// `aes`: encryption and decryption of a block.
    aes_blocks(c, s) {
        let cipher = aes::Aes128::new(&GenericArray::from(bytes::<16>(c, 1)));
        let mut block = GenericArray::from(bytes::<16>(c, 3));
        cipher.encrypt_block(&mut block);
        s.add(sum(&block));
        cipher.decrypt_block(&mut block);
        s.add(sum(&block));
    }
    /// `chacha20`: a stream.
    chacha20_stream(c, s) {
        let mut cipher = chacha20::ChaCha20::new(&bytes::<32>(c, 1).into(), &bytes::<12>(c, 7).into());
        let mut data = bytes::<100>(c, 9);
        cipher.apply_keystream(&mut data);
        s.add(sum(&data));
    }
    /// `crc`.
    crc_sums(c, s) {
        const FIRST: crc::Crc<u32> = crc::Crc::<u32>::new(&crc::CRC_32_ISCSI);
        const SECOND: crc::Crc<u64> = crc::Crc::<u64>::new(&crc::CRC_64_ECMA_182);
        const THIRD: crc::Crc<u16> = crc::Crc::<u16>::new(&crc::CRC_16_IBM_SDLC);
        s.add(FIRST.checksum(&bytes::<33>(c, 1)) as u64);
        s.add(SECOND.checksum(&bytes::<20>(c, 2)));
        s.add(THIRD.checksum(&bytes::<9>(c, 3)) as u64);
    }
    /// `crc32fast`.
    crc32fast_sums(c, s) {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&bytes::<77>(c, 1));
        hasher.update(&bytes::<5>(c, 30));
        s.add(hasher.finalize() as u64);
    }
    /// `adler2`.
    adler2_sums(c, s) { s.add(adler2::adler32_slice(&bytes::<100>(c, 1)) as u64); }
    /// `siphasher`.
    siphasher_hashes(c, s) {
        let mut hasher = siphasher::sip::SipHasher13::new_with_keys(c.w(1), c.w(2));
        (c.w(3), c.w(4) as u8, "text", [c.w(5) as u16; 3]).hash(&mut hasher);
        s.add(hasher.finish());
    }
    /// `fnv`.
    fnv_hashes(c, s) {
        let mut hasher = fnv::FnvHasher::default();
        hasher.write(&bytes::<21>(c, 1));
        Some(c.w(2) as i32).hash(&mut hasher);
        s.add(hasher.finish());
    }
    /// `hash32`.
    hash32_hashes(c, s) {
        use hash32::Hasher as _;
        let mut hasher = hash32::Murmur3Hasher::default();
        core::hash::Hasher::write(&mut hasher, &bytes::<19>(c, 1));
        s.add(hasher.finish32() as u64);
    }
    /// `xxhash-rust`.
    xxhash_hashes(c, s) {
        s.add(xxhash_rust::xxh3::xxh3_64_with_seed(&bytes::<100>(c, 1), c.w(2)));
        s.add(xxhash_rust::xxh64::xxh64(&bytes::<40>(c, 3), 5));
        s.add(xxhash_rust::xxh32::xxh32(&bytes::<17>(c, 4), 6) as u64);
        s.add_wide(xxhash_rust::xxh3::xxh3_128(&bytes::<12>(c, 5)));
    }
    /// `twox-hash`.
    twox_hashes(c, s) {
        s.add(twox_hash::XxHash64::oneshot(c.w(1), &bytes::<50>(c, 2)));
        s.add(twox_hash::XxHash32::oneshot(c.w(1) as u32, &bytes::<50>(c, 2)) as u64);
    }
    /// `wyhash`.
    wyhash_hashes(c, s) {
        s.add(wyhash::wyhash(&bytes::<60>(c, 1), c.w(2)));
        let mut seed = c.w(3);
        s.add(wyhash::wyrng(&mut seed));
    }
    /// `subtle`: choices without branches.
    subtle_choices(c, s) {
        use subtle::{ConditionallySelectable, ConstantTimeEq, ConstantTimeLess};
        let same = bytes::<16>(c, 1).ct_eq(&bytes::<16>(c, c.w(2) % 3));
        s.add(u64::conditional_select(&c.w(3), &c.w(4), same));
        s.add(c.w(5).ct_lt(&c.w(6)).unwrap_u8() as u64);
    }
    /// `core::hash` with a hasher of a crate.
    build_hasher(c, s) {
        let builder = fnv::FnvBuildHasher::default();
        s.add(builder.hash_one((c.w(1), [c.w(2) as u8; 5], true)));
        s.add(builder.hash_one("a text"));
    }
}
