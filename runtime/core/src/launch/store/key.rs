//! What something in the store is for, and the number by which it is looked up.
//!
//! Equal subjects have equal numbers, whether they come from a program or from a record that was kept.

use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};

use crate::driver::DeviceProperties;

/// The alignment in bytes from which on more makes no difference: that of the largest access.
const MOST_ALIGNMENT: u32 = 16;
/// The highest [`bucket`].
const MOST_BUCKET: u32 = 127;

/// What a tuned configuration is for.
///
/// A configuration is found again by the same of everything, where devices of one name, capability, number of
/// multiprocessors, L2 cache and major version of the driver are the same, and sizes are by [`TunedFor::n`].
#[derive(Debug, Clone, Copy)]
pub struct TunedFor<'a> {
    /// The device it was measured on, or is to run on.
    pub device: &'a DeviceProperties,
    /// The kernel's package, as in [`KernelInfo::package`](gpu_spec::KernelInfo::package).
    pub package: &'a str,
    /// The kernel's name in its source, which all its instances share.
    pub kernel: &'a str,
    /// The type arguments of its instances, joined by commas, such as `f32` or `f32,f64`.
    pub types: &'a str,
    /// The code, as [`Module::image_hash`](crate::Module::image_hash) gives it: 0 on an emulated device, where this
    /// crate's version takes its place.
    pub image: u64,
    /// The number of elements. Sizes share a configuration within half a power of two: 1024 to 1535, 1536 to 2047.
    pub n: u64,
    /// The alignment of all arrays in bytes, the least of them: a power of two. More than 16 counts as 16.
    pub alignment: u32,
}

/// Devices that share what was measured on one of them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DeviceClass<'a> {
    /// The product's name.
    pub name: Cow<'a, str>,
    /// The compute capability.
    pub capability: (u32, u32),
    /// The number of multiprocessors.
    pub multiprocessors: u32,
    /// The L2 cache in bytes.
    pub l2_bytes: u64,
    /// The driver's major version.
    pub driver: Cow<'a, str>,
}

/// Code that is the same.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Code<'a> {
    /// The kernel's package.
    pub package: Cow<'a, str>,
    /// The image's hash, 0 on an emulated device.
    pub image: u64,
    /// This crate's version where there is no image, else empty.
    pub runtime: Cow<'a, str>,
}

/// What the block and grid of an open launch are for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LaunchSubject<'a> {
    /// The device.
    pub device: DeviceClass<'a>,
    /// The code.
    pub code: Code<'a>,
    /// The instance's symbol.
    pub symbol: Cow<'a, str>,
    /// Whether the kernel loops over the items.
    pub is_loop: bool,
    /// Which sizes: two numbers for each power of two, 127 at most.
    pub bucket: u32,
}

/// What a tuned configuration is for, as it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TunedSubject<'a> {
    /// The device.
    pub device: DeviceClass<'a>,
    /// The code.
    pub code: Code<'a>,
    /// The kernel's name in its source.
    pub kernel: Cow<'a, str>,
    /// The type arguments of its instances.
    pub types: Cow<'a, str>,
    /// Which sizes: two numbers for each power of two, 127 at most.
    pub bucket: u32,
    /// The alignment of all arrays in bytes, 16 at most.
    pub alignment: u32,
}

/// Sizes that are measured together: two for each power of two.
pub(in crate::launch) fn bucket(n: u64) -> u32 {
    let log = n.max(1).ilog2();
    2 * log + u32::from(log > 0 && n >> (log - 1) & 1 == 1)
}

/// What is looked up by a key, which is a hash already.
pub(super) type ByKey<T> = HashMap<u64, T, BuildHasherDefault<Itself>>;

/// The hash of a key: the key.
#[derive(Debug, Default)]
pub(super) struct Itself(u64);

impl Hasher for Itself {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, key: u64) {
        self.0 = self.0.rotate_left(8) ^ key;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// A hash of eight bytes at a time, by the two halves of a product: some times as fast as the standard library's, which
/// a look-up at each launch of an operation would wait for.
#[derive(Default)]
struct Folded(u64);

impl Hasher for Folded {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        words.iter().for_each(|word| self.write_u64(u64::from_le_bytes(*word)));
        // With how many there are, so that zeros at the end count.
        let last = rest.iter().rev().fold(rest.len() as u64, |last, byte| last << 8 | u64::from(*byte));
        self.write_u64(last);
    }

    fn write_u64(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word ^ 0x2545_F491_4F6C_DD1D) * 0x9E37_79B9_7F4A_7C15;
        self.0 = (product as u64) ^ (product >> 64) as u64;
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(word.into());
    }

    fn write_u8(&mut self, word: u8) {
        self.write_u64(word.into());
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

fn key(subject: &impl Hash) -> u64 {
    let mut hasher = Folded::default();
    subject.hash(&mut hasher);
    hasher.finish()
}

impl<'a> DeviceClass<'a> {
    fn of(device: &'a DeviceProperties) -> Self {
        let DeviceProperties { name, capability, multiprocessors, l2_cache, driver_version, .. } = device;
        let driver = driver_version.split_once('.').map_or(driver_version.as_str(), |(major, _)| major);
        Self {
            name: name.into(),
            capability: *capability,
            multiprocessors: *multiprocessors,
            l2_bytes: *l2_cache,
            driver: driver.into(),
        }
    }
}

impl<'a> Code<'a> {
    fn of(package: &'a str, image: u64) -> Self {
        let runtime = if image == 0 { env!("CARGO_PKG_VERSION") } else { "" };
        Self { package: package.into(), image, runtime: runtime.into() }
    }
}

impl<'a> LaunchSubject<'a> {
    /// The instance `symbol` of a package's kernels for `n` threads, or items if it loops over them; `image` is the
    /// hash of its code, 0 for none.
    pub(in crate::launch) fn of(
        device: &'a DeviceProperties,
        (package, symbol): (&'a str, &'a str),
        image: u64,
        is_loop: bool,
        n: u64,
    ) -> Self {
        let (device, code) = (DeviceClass::of(device), Code::of(package, image));
        Self { device, code, symbol: symbol.into(), is_loop, bucket: bucket(n) }
    }

    pub(in crate::launch) fn key(&self) -> u64 {
        key(self)
    }

    pub(super) fn is_possible(&self) -> bool {
        self.bucket <= MOST_BUCKET
    }
}

impl<'a> TunedSubject<'a> {
    /// `None` for an alignment that is none.
    pub(super) fn of(subject: &TunedFor<'a>) -> Option<Self> {
        let TunedFor { device, package, kernel, types, image, n, alignment } = *subject;
        alignment.is_power_of_two().then(|| Self {
            device: DeviceClass::of(device),
            code: Code::of(package, image),
            kernel: kernel.into(),
            types: types.into(),
            bucket: bucket(n),
            alignment: alignment.min(MOST_ALIGNMENT),
        })
    }

    pub(in crate::launch) fn key(&self) -> u64 {
        key(self)
    }

    /// What the block and grid of an open launch of the instance `symbol` are for, for the same sizes.
    pub(super) fn launches(&self, symbol: &'a str, is_loop: bool) -> LaunchSubject<'a> {
        let Self { device, code, bucket, .. } = self.clone();
        LaunchSubject { device, code, symbol: symbol.into(), is_loop, bucket }
    }

    pub(super) fn is_possible(&self) -> bool {
        self.bucket <= MOST_BUCKET && self.alignment.is_power_of_two() && self.alignment <= MOST_ALIGNMENT
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::super::super::occupancy::tests::gpu;
    use super::*;

    #[test]
    fn sizes_share_a_bucket_within_half_a_power_of_two() {
        assert_eq!([0, 1, 2, 3, 4, 5, 6, 7, 8].map(bucket), [0, 0, 2, 3, 4, 4, 5, 5, 6]);
        assert_eq!(
            [bucket(1 << 20), bucket((3 << 19) - 1), bucket(3 << 19), bucket(u64::MAX)],
            [40, 40, 41, MOST_BUCKET]
        );
    }

    /// A device, and others that differ from it in one thing each.
    fn different(device: &DeviceProperties) -> [DeviceProperties; 6] {
        let device = || device.clone();
        [
            device(),
            DeviceProperties { name: "other".to_owned(), ..device() },
            DeviceProperties { capability: (9, 9), ..device() },
            DeviceProperties { multiprocessors: 7, ..device() },
            DeviceProperties { l2_cache: 7, ..device() },
            DeviceProperties { driver_version: "14.0".to_owned(), ..device() },
        ]
    }

    #[test]
    fn every_part_of_a_subject_tells_it_from_others() {
        let device = DeviceProperties { driver_version: "13.0".to_owned(), ..gpu((9, 0)) };
        let base = TunedFor {
            device: &device,
            package: "p",
            kernel: "k",
            types: "f32",
            image: 7,
            n: 1000,
            alignment: 16,
        };
        let of = |subject: TunedFor<'_>| TunedSubject::of(&subject).unwrap().key();
        let mut keys = vec![
            of(TunedFor { package: "q", ..base }),
            of(TunedFor { kernel: "l", ..base }),
            of(TunedFor { kernel: "kf", types: "32", ..base }),
            of(TunedFor { types: "f64", ..base }),
            of(TunedFor { image: 8, ..base }),
            of(TunedFor { image: 0, ..base }),
            of(TunedFor { n: 2000, ..base }),
            of(TunedFor { alignment: 4, ..base }),
        ];
        let devices = different(&device);
        keys.extend(devices.iter().map(|device| of(TunedFor { device, ..base })));
        let launch =
            |device, names, image, is_loop, n| LaunchSubject::of(device, names, image, is_loop, n).key();
        keys.extend([
            launch(&device, ("q", "k"), 7, false, 1000),
            launch(&device, ("p", "l"), 7, false, 1000),
            launch(&device, ("p", "k"), 8, false, 1000),
            launch(&device, ("p", "k"), 7, true, 1000),
            launch(&device, ("p", "k"), 7, false, 2000),
        ]);
        keys.extend(devices.iter().map(|device| launch(device, ("p", "k"), 7, false, 1000)));
        assert_eq!(keys.iter().collect::<HashSet<_>>().len(), keys.len(), "{keys:?}");
    }

    #[test]
    fn keys_of_texts_that_are_alike_differ() {
        let of = |text: &str| key(&text);
        let mut keys = HashSet::new();
        let texts = (0..=40).flat_map(|len| ["a", "b", "\0"].map(|letter| letter.repeat(len)));
        let numbers = (0..20_000).map(|number| format!("kernel-{number}"));
        let texts: HashSet<String> = texts.chain(numbers).collect();
        assert!(texts.iter().all(|text| keys.insert(of(text))));
        // As many of each half of the values, in the bits by which a table chooses places.
        for bit in [0, 7, 57, 63] {
            let ones = keys.iter().filter(|key| *key >> bit & 1 == 1).count();
            assert!((9_500..10_700).contains(&ones), "bit {bit}: {ones} of {}", keys.len());
        }
    }

    #[test]
    fn what_makes_no_difference_is_left_out() {
        let device = DeviceProperties { driver_version: "13.0".to_owned(), ..gpu((9, 0)) };
        let newer = DeviceProperties { driver_version: "13.1".to_owned(), uuid: [9; 16], ..device.clone() };
        let of = |device, n, alignment| {
            let subject =
                TunedFor { device, package: "p", kernel: "k", types: "f32", image: 7, n, alignment };
            TunedSubject::of(&subject).map(|subject| subject.key())
        };
        assert_eq!(of(&device, 1024, 16), of(&newer, 1535, 256));
        assert_eq!((of(&device, 1024, 0), of(&device, 1024, 12)), (None, None));
    }
}
