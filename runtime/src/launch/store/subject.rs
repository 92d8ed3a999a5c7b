//! Subjects of records (kernel, device, size) and their lookup keys.
//!
//! Equal subjects have equal keys, whether they come from a program or from the file.

use std::borrow::Cow;
use std::hash::{BuildHasher, Hash};

use crate::DeviceProperties;
use crate::launch::policy::{OpenLaunch, size_class};
use foldhash::quality::FixedState;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Largest distinguished alignment, in bytes: the size of the widest memory access.
const MAX_ALIGNMENT: u32 = 16;
const MAX_BUCKET: u32 = 127;

/// The subject of a tuned configuration.
///
/// A lookup finds a configuration with an equal key. Devices are equal if their name, compute capability, number of
/// SMs, L2 cache size and driver major version are equal. Sizes are compared as described for [`TuningKey::n`].
///
/// See the example of [`LaunchStore`](super::LaunchStore).
#[derive(Debug, Clone, Copy)]
pub struct TuningKey<'a> {
    /// Device on which the configuration was measured or will run.
    pub device: &'a DeviceProperties,
    /// The kernel's package, as in `KernelInfo::package`.
    pub package: &'a str,
    /// The kernel's name in its source, shared by all its instances.
    pub kernel: &'a str,
    /// The type arguments of the kernel's instance, separated by commas, such as `f32` or `f32,f64`.
    pub types: &'a str,
    /// Hash of the code, from [`Module::image_hash`](crate::Module::image_hash); 0 on an emulated device, where this
    /// crate's version identifies the code instead.
    pub image: u64,
    /// The number of elements. Sizes in the same half of a power-of-two range share a configuration, for example 1024
    /// to 1535.
    pub n: u64,
    /// Smallest alignment of the arrays in bytes, a power of two. Values above 16 count as 16.
    pub alignment: u32,
}

/// Identifies a class of devices that share measurements.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DeviceClass<'a> {
    pub name: Cow<'a, str>,
    pub capability: (u32, u32),
    pub multiprocessors: u32,
    pub l2_bytes: u64,
    /// The driver's major version.
    pub driver: Cow<'a, str>,
}

/// Identity of a kernel's code.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Code<'a> {
    pub package: Cow<'a, str>,
    /// The image's hash; 0 on an emulated device.
    #[serde(serialize_with = "to_hex", deserialize_with = "from_hex")]
    pub image: u64,
    /// The version of this crate if there is no image; empty otherwise.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub runtime: Cow<'a, str>,
}

/// Subject of a block and grid size for launches that do not specify them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LaunchSubject<'a> {
    pub device: DeviceClass<'a>,
    pub code: Code<'a>,
    pub symbol: Cow<'a, str>,
    pub is_loop: bool,
    /// The thread or item count, as a [`size_class`].
    pub bucket: u32,
}

/// Subject of a record that stores a tuned configuration.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TunedSubject<'a> {
    pub device: DeviceClass<'a>,
    pub code: Code<'a>,
    pub kernel: Cow<'a, str>,
    pub types: Cow<'a, str>,
    /// The element count, as a [`size_class`].
    pub bucket: u32,
    /// Smallest alignment of the arrays in bytes, at most 16.
    pub alignment: u32,
}

/// Returns the hash of a subject, the same in every process. Each launch of an operation performs a lookup, so the
/// standard library's hash function would be too slow.
fn key(subject: &impl Hash) -> u64 {
    FixedState::default().hash_one(subject)
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
    pub fn of(launch: &OpenLaunch<'a>) -> Self {
        let OpenLaunch { device, package, symbol, image, is_loop, n } = *launch;
        let (device, code) = (DeviceClass::of(device), Code::of(package, image));
        Self { device, code, symbol: symbol.into(), is_loop, bucket: size_class(n) }
    }

    pub fn key(&self) -> u64 {
        key(self)
    }
}

impl<'a> TunedSubject<'a> {
    /// Creates the subject for a key; `None` if the alignment is not a power of two.
    pub fn of(subject: &TuningKey<'a>) -> Option<Self> {
        let TuningKey { device, package, kernel, types, image, n, alignment } = *subject;
        alignment.is_power_of_two().then(|| Self {
            device: DeviceClass::of(device),
            code: Code::of(package, image),
            kernel: kernel.into(),
            types: types.into(),
            bucket: size_class(n),
            alignment: alignment.min(MAX_ALIGNMENT),
        })
    }

    pub fn key(&self) -> u64 {
        key(self)
    }

    /// Returns the subject under which the store keeps the block and grid size for open launches of the instance
    /// `symbol` with this many threads. `None` means one thread per element.
    pub fn launches(&self, symbol: &'a str, is_loop: bool, threads: Option<u64>) -> LaunchSubject<'a> {
        let Self { device, code, bucket, .. } = self.clone();
        let bucket = threads.map_or(bucket, size_class);
        LaunchSubject { device, code, symbol: symbol.into(), is_loop, bucket }
    }

    pub fn is_possible(&self) -> bool {
        self.bucket <= MAX_BUCKET && self.alignment.is_power_of_two() && self.alignment <= MAX_ALIGNMENT
    }
}

fn to_hex<S: Serializer>(image: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{image:016x}"))
}

fn from_hex<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let text = Cow::<str>::deserialize(deserializer)?;
    u64::from_str_radix(&text, 16)
        .map_err(|_| serde::de::Error::custom("the image is not a hexadecimal number"))
}

#[cfg(test)]
pub mod tests {
    use std::collections::HashSet;

    use super::*;

    /// Returns a device with an H200's properties if the capability is 9.0.
    pub fn gpu(capability: (u32, u32)) -> DeviceProperties {
        let emulated = crate::Device::emulated(0).unwrap();
        DeviceProperties { capability, driver_version: "13.0".to_owned(), ..emulated.properties().clone() }
    }

    /// Returns a device, and variants that differ from it in one property each.
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
        let device = gpu((9, 0));
        let base = TuningKey {
            device: &device,
            package: "p",
            kernel: "k",
            types: "f32",
            image: 7,
            n: 1000,
            alignment: 16,
        };
        let of = |subject: TuningKey<'_>| TunedSubject::of(&subject).unwrap().key();
        let mut keys = vec![
            of(TuningKey { package: "q", ..base }),
            of(TuningKey { kernel: "l", ..base }),
            of(TuningKey { kernel: "kf", types: "32", ..base }),
            of(TuningKey { types: "f64", ..base }),
            of(TuningKey { image: 8, ..base }),
            of(TuningKey { image: 0, ..base }),
            of(TuningKey { n: 2000, ..base }),
            of(TuningKey { alignment: 4, ..base }),
        ];
        let devices = different(&device);
        keys.extend(devices.iter().map(|device| of(TuningKey { device, ..base })));
        let launch = |device, (package, symbol), image, is_loop, n| {
            LaunchSubject::of(&OpenLaunch { device, package, symbol, image, is_loop, n }).key()
        };
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
    fn what_makes_no_difference_is_left_out() {
        let device = gpu((9, 0));
        let newer = DeviceProperties { driver_version: "13.1".to_owned(), uuid: [9; 16], ..device.clone() };
        let of = |device, n, alignment| {
            let subject =
                TuningKey { device, package: "p", kernel: "k", types: "f32", image: 7, n, alignment };
            TunedSubject::of(&subject).map(|subject| subject.key())
        };
        assert_eq!(of(&device, 1024, 16), of(&newer, 1535, 256));
        assert_eq!((of(&device, 1024, 0), of(&device, 1024, 12)), (None, None));
    }
}
