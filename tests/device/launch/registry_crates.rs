//! A kernel that uses crates from the registry, on the device under test.

use crate::common::{device, stream};
use test_kernels::IMAGE;
use test_kernels::registry_crates::{numbered_hash, numbered_hashes};
use warpsmith::prelude::*;

#[test]
fn texts_are_formatted_and_hashed() {
    const COUNT: usize = 1000;
    let kernel = device().load(&IMAGE).unwrap().kernel::<numbered_hashes>().unwrap();
    let mut digests = DeviceBuffer::<u8>::zeros(&stream(), 32 * COUNT).unwrap();
    kernel.launch(&stream(), Launch::auto(COUNT), (0xC0FFEE, &mut digests)).unwrap();
    let expected: Vec<u8> = (0..COUNT as u64).flat_map(|number| numbered_hash(0xC0FFEE, number)).collect();
    assert_eq!(digests.to_host().unwrap(), expected);
    // Of `printf %s 00c0ffee-999 | sha256sum`.
    let last = "ad485feee220c9faad693e630906d8a13bdc1ccc201428253e5f888b882b5360";
    let hex: String = expected[32 * (COUNT - 1)..].iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, last);
}
