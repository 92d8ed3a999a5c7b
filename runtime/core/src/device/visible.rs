//! `CUDA_VISIBLE_DEVICES`: which of a machine's devices a process sees, read as CUDA and PyTorch read it.
//!
//! The variable is a list with commas, of indices (`0,2`) or of identities (`GPU-8f12`), which may be cut short as long
//! as one device has them. Its first entry says which. The process numbers its devices in the order of the list. The
//! list ends before the first entry that is no device: those before it count. A negative index ends it on purpose. A
//! device that is named twice hides all. Without the variable all are visible, with an empty one none.
//!
//! Of an index counts what C's `strtol` takes: blanks before it, a sign, digits; what follows is ignored.

use std::fmt;

use crate::driver::cuda;

/// The variable's name.
pub const VARIABLE: &str = "CUDA_VISIBLE_DEVICES";

/// What a list makes visible.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Visible {
    /// The machine's devices, by index, that the process sees, in the order in which it numbers them.
    pub devices: Vec<usize>,
    /// The entry that ended the list early, if one did.
    pub end: Option<End>,
}

/// An entry that ended a list early.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct End {
    /// The entry's place in the list, from 0.
    pub position: usize,
    /// The entry as it is written.
    pub entry: String,
    /// Why it ended the list.
    pub reason: EndReason,
}

/// Why an entry ended a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndReason {
    /// A negative index, which hides what follows on purpose.
    Negative,
    /// It is no entry of the form that the first one has.
    NoDevice,
    /// There are only so many devices.
    NoSuchIndex(usize),
    /// No device has this identity.
    UnknownIdentity,
    /// Several devices have an identity that begins so.
    AmbiguousIdentity,
    /// The same device was named before, which hides all.
    Repeated,
}

impl End {
    /// Whether it is a mistake; a negative index is none.
    pub fn is_mistake(&self) -> bool {
        self.reason != EndReason::Negative
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "entry {}, `{}`, ", self.position + 1, self.entry)?;
        match self.reason {
            EndReason::Negative => f.write_str("hides what follows"),
            EndReason::NoDevice => {
                f.write_str("is not of the form of the first: all indices or all identities")
            }
            EndReason::NoSuchIndex(0) => f.write_str("is too far: the machine has no device"),
            EndReason::NoSuchIndex(1) => f.write_str("is too far: the machine has one device, 0"),
            EndReason::NoSuchIndex(count) => {
                write!(f, "is too far: the machine has {count} devices, 0 to {}", count - 1)
            }
            EndReason::UnknownIdentity => f.write_str("is the identity of no device"),
            EndReason::AmbiguousIdentity => f.write_str("fits several devices: write more of the identity"),
            EndReason::Repeated => f.write_str("names a device twice, which hides all of them"),
        }
    }
}

/// What the variable's `text` makes visible, `None` if it is not set, of the devices with the identities `machine`:
/// GPUs in the order of their indices, and then parts of GPUs (MIG), which have no index.
///
/// ```
/// use warpsmith_runtime::device::visible::{EndReason, read};
///
/// let machine = ["GPU-8f12a0", "GPU-8f12c7", "GPU-0c55de"].map(str::to_owned);
/// assert_eq!(read(Some("2,0"), &machine).devices, [2, 0]);
/// let visible = read(Some("GPU-0c,GPU-8f12,GPU-8f12c"), &machine);
/// assert_eq!(visible.devices, [2]);
/// assert_eq!(visible.end.unwrap().reason, EndReason::AmbiguousIdentity);
/// ```
pub fn read(text: Option<&str>, machine: &[String]) -> Visible {
    let gpus = machine.iter().take_while(|identity| !identity.starts_with("MIG-")).count();
    let Some(text) = text else { return Visible { devices: (0..gpus).collect(), end: None } };
    let find: &dyn Fn(&str) -> Result<usize, EndReason> =
        match ["GPU-", "MIG-"].map(|kind| text.starts_with(kind)) {
            [true, _] => &|entry| by_identity(entry, "GPU-", machine),
            [_, true] => &|entry| by_identity(entry, "MIG-", machine),
            _ => &|entry| by_index(entry, gpus),
        };
    let mut devices = Vec::new();
    // An empty text hides all, which is no mistake.
    let entries = text.split(',').take(if text.is_empty() { 0 } else { usize::MAX });
    for (position, entry) in entries.enumerate() {
        let found = match find(entry) {
            Ok(device) if devices.contains(&device) => {
                devices.clear();
                Err(EndReason::Repeated)
            }
            found => found,
        };
        match found {
            Ok(device) => devices.push(device),
            Err(reason) => {
                let end = End { position, entry: entry.to_owned(), reason };
                return Visible { devices, end: Some(end) };
            }
        }
    }
    Visible { devices, end: None }
}

fn by_identity(entry: &str, kind: &str, machine: &[String]) -> Result<usize, EndReason> {
    if !entry.starts_with(kind) {
        return Err(EndReason::NoDevice);
    }
    let mut fitting = machine.iter().enumerate().filter(|(_, identity)| identity.starts_with(entry));
    match (fitting.next(), fitting.next()) {
        (Some((device, _)), None) => Ok(device),
        (Some(_), Some(_)) => Err(EndReason::AmbiguousIdentity),
        (None, _) => Err(EndReason::UnknownIdentity),
    }
}

fn by_index(entry: &str, count: usize) -> Result<usize, EndReason> {
    let entry = entry.trim_start_matches([' ', '\t', '\n', '\x0b', '\x0c', '\r']);
    let unsigned = entry.strip_prefix(['+', '-']).unwrap_or(entry);
    let digits = unsigned.bytes().take_while(u8::is_ascii_digit).count();
    if digits == 0 {
        return Err(EndReason::NoDevice);
    }
    // A number without a place in an integer is too far for any machine.
    let index = unsigned[..digits].parse::<usize>().unwrap_or(usize::MAX);
    if entry.starts_with('-') && index != 0 {
        return Err(EndReason::Negative);
    }
    if index < count { Ok(index) } else { Err(EndReason::NoSuchIndex(count)) }
}

/// The variable's text in this process, `None` if it is not set. What is no Unicode in it is replaced.
pub fn text() -> Option<String> {
    std::env::var_os(VARIABLE).map(|text| text.to_string_lossy().into_owned())
}

/// The identities of the machine's devices, hidden ones too, in the order of [`read`]: as the driver's management
/// library (NVML) tells them, without starting CUDA. `None` without that library. CUDA may number devices of different
/// models in another order, unless `CUDA_DEVICE_ORDER=PCI_BUS_ID` is set.
pub fn machine() -> Option<Vec<String>> {
    cuda::machine_devices()
}

/// What the variable makes visible in this process. `None` if the machine's devices are not known.
pub fn here() -> Option<Visible> {
    Some(read(text().as_deref(), &machine()?))
}

#[cfg(test)]
mod tests {
    use super::EndReason::*;
    use super::*;

    /// Two GPUs whose identities begin alike, one apart, and two parts of it.
    fn machine() -> Vec<String> {
        ["GPU-aa11-0", "GPU-aa12-1", "GPU-bb00-2", "MIG-cc10", "MIG-cc20"].map(str::to_owned).into()
    }

    /// The devices, and place and reason of the entry that ended the list.
    fn seen(text: &str) -> (Vec<usize>, Option<(usize, EndReason)>) {
        let visible = read(Some(text), &machine());
        (visible.devices, visible.end.map(|end| (end.position, end.reason)))
    }

    #[test]
    fn without_the_variable_all_gpus_are_visible_and_with_an_empty_one_none() {
        assert_eq!(read(None, &machine()), Visible { devices: vec![0, 1, 2], end: None });
        assert_eq!(seen(""), (vec![], None));
        assert_eq!(read(None, &[]).devices.len(), 0);
    }

    #[test]
    fn indices_choose_and_order() {
        assert_eq!(seen("0"), (vec![0], None));
        assert_eq!(seen("2,0,1"), (vec![2, 0, 1], None));
        assert_eq!(seen(" 1,\t+2 , 0"), (vec![1, 2, 0], None));
        assert_eq!(seen("1gpu2,2ampere,0x1"), (vec![1, 2, 0], None));
        assert_eq!(seen("002,-0"), (vec![2, 0], None));
    }

    #[test]
    fn the_first_bad_index_ends_the_list() {
        assert_eq!(seen("1,3,0"), (vec![1], Some((1, NoSuchIndex(3)))));
        assert_eq!(seen("7"), (vec![], Some((0, NoSuchIndex(3)))));
        assert_eq!(seen("0,99999999999999999999999,1"), (vec![0], Some((1, NoSuchIndex(3)))));
        for bad in ["1,,2", "1,x,2", "1, ,2", "1,GPU-aa11,2", "1,+,2", "1,\u{a0}2", "1,é"] {
            assert_eq!(seen(bad), (vec![1], Some((1, NoDevice))), "{bad:?}");
        }
        for bad in [",0", " ", "all", "none", "NoDevFiles", "gpu-aa11", " GPU-aa11", "--1"] {
            assert_eq!(seen(bad), (vec![], Some((0, NoDevice))), "{bad:?}");
        }
    }

    #[test]
    fn a_negative_index_hides_what_follows_and_is_no_mistake() {
        assert_eq!(seen("-1"), (vec![], Some((0, Negative))));
        assert_eq!(seen("2,-1,0"), (vec![2], Some((1, Negative))));
        assert_eq!(seen("0,-99999999999999999999999"), (vec![0], Some((1, Negative))));
        assert!(!read(Some("-1"), &machine()).end.unwrap().is_mistake());
        assert!(read(Some("9"), &machine()).end.unwrap().is_mistake());
    }

    #[test]
    fn a_device_named_twice_hides_all() {
        assert_eq!(seen("0,1,0"), (vec![], Some((2, Repeated))));
        assert_eq!(seen("1,+1"), (vec![], Some((1, Repeated))));
        assert_eq!(seen("GPU-aa11,GPU-bb,GPU-aa11-0"), (vec![], Some((2, Repeated))));
        assert_eq!(seen("0,-1,0"), (vec![0], Some((1, Negative))), "the list had ended before");
    }

    #[test]
    fn identities_may_be_cut_short_while_one_device_has_them() {
        assert_eq!(seen("GPU-bb00-2"), (vec![2], None));
        assert_eq!(seen("GPU-b,GPU-aa12"), (vec![2, 1], None));
        assert_eq!(seen("GPU-bb,GPU-aa1,GPU-aa12"), (vec![2], Some((1, AmbiguousIdentity))));
        assert_eq!(seen("GPU-"), (vec![], Some((0, AmbiguousIdentity))));
        assert_eq!(seen("GPU-dd"), (vec![], Some((0, UnknownIdentity))));
        assert_eq!(seen("GPU-bb00-22"), (vec![], Some((0, UnknownIdentity))));
        assert_eq!(seen("GPU-BB"), (vec![], Some((0, UnknownIdentity))), "case counts");
    }

    #[test]
    fn the_first_identity_says_what_the_others_are() {
        assert_eq!(seen("GPU-bb,0"), (vec![2], Some((1, NoDevice))));
        assert_eq!(seen("GPU-bb, GPU-aa11"), (vec![2], Some((1, NoDevice))));
        assert_eq!(seen("GPU-bb,"), (vec![2], Some((1, NoDevice))));
        assert_eq!(seen("GPU-bb,MIG-cc10"), (vec![2], Some((1, NoDevice))));
        assert_eq!(seen("MIG-cc2,MIG-cc10"), (vec![4, 3], None));
        assert_eq!(seen("MIG-cc"), (vec![], Some((0, AmbiguousIdentity))));
        assert_eq!(seen("3"), (vec![], Some((0, NoSuchIndex(3)))), "parts have no index");
    }

    #[test]
    fn the_end_says_where_and_why() {
        let end = |text| read(Some(text), &machine()).end.unwrap().to_string();
        assert_eq!(end("0,7"), "entry 2, `7`, is too far: the machine has 3 devices, 0 to 2");
        assert!(end("GPU-aa").contains("fits several devices"));
        let none = read(Some("0"), &[]).end.unwrap().to_string();
        assert_eq!(none, "entry 1, `0`, is too far: the machine has no device");
        let one = read(Some("1"), &machine()[..1]).end.unwrap().to_string();
        assert_eq!(one, "entry 1, `1`, is too far: the machine has one device, 0");
    }

    #[test]
    fn any_text_is_read() {
        let pieces =
            ["", "0", "1", "-1", "+", " ", ",", "GPU-", "aa", "MIG-", "é", "\0", "18446744073709551616"];
        let mut random = 1u64;
        for _ in 0..20_000 {
            let text: String = (0..6)
                .map(|_| {
                    random = random
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1_442_695_040_888_963_407);
                    pieces[(random >> 33) as usize % pieces.len()]
                })
                .collect();
            let (devices, _) = seen(&text);
            assert!(devices.iter().all(|device| *device < 5), "{text:?}");
            let mut once = devices.clone();
            once.sort_unstable();
            once.dedup();
            assert_eq!(once.len(), devices.len(), "{text:?}");
        }
    }
}
