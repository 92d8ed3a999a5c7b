//! `CUDA_VISIBLE_DEVICES`: the devices visible to a process, parsed as in CUDA and PyTorch.
//!
//! The variable is a comma-separated list of either indices (`0,2`) or UUIDs (`GPU-8f12`). UUIDs may be abbreviated to
//! unambiguous prefixes. The first entry determines the form of the list. The process numbers its devices in the order
//! of the list. The first invalid entry ends the list; a negative index ends it deliberately. If an entry repeats a
//! device, all devices are hidden. If the variable is unset, all devices are visible; if it is empty, none are.
//!
//! An index is parsed as by C's `strtol`: leading whitespace, a sign and digits; the rest is ignored.

use crate::driver::cuda;

/// Name of the environment variable.
pub const VARIABLE: &str = "CUDA_VISIBLE_DEVICES";

/// The devices that a list makes visible.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Visible {
    /// Indices of the visible devices among all devices of the machine, in the order in which the process numbers them.
    pub devices: Vec<usize>,
    /// Zero-based position of the first invalid entry, which ends the list: an index out of range, an unknown or
    /// ambiguous UUID prefix, an index among UUIDs or vice versa, or a repeated device. `None` if the list ends at a
    /// negative index or contains no invalid entry.
    pub mistake: Option<usize>,
}

/// Returns the devices that are visible if the variable's value is `text`; `None` means that the variable is unset.
/// `machine` contains the machine's UUIDs: GPUs in index order, then MIG instances, which are not indexed.
///
/// ```
/// use warpsmith_runtime::device::visible::read;
///
/// let machine = ["GPU-8f12a0", "GPU-8f12c7", "GPU-0c55de"].map(str::to_owned);
/// assert_eq!(read(Some("2,0"), &machine).devices, [2, 0]);
/// let visible = read(Some("GPU-0c,GPU-8f12,GPU-8f12c"), &machine);
/// assert_eq!((visible.devices, visible.mistake), (vec![2], Some(1)));
/// ```
pub fn read(text: Option<&str>, machine: &[String]) -> Visible {
    let gpus = machine.iter().take_while(|identity| !identity.starts_with("MIG-")).count();
    let Some(text) = text else { return Visible { devices: (0..gpus).collect(), mistake: None } };
    let kind = ["GPU-", "MIG-"].into_iter().find(|kind| text.starts_with(kind));
    let mut visible = Visible::default();
    // An empty value hides all devices and is not a mistake.
    let entries = text.split(',').take(if text.is_empty() { 0 } else { usize::MAX });
    for (position, entry) in entries.enumerate() {
        let found = match kind {
            Some(kind) => by_identity(entry, kind, machine),
            None => match index(entry) {
                Some((true, 1..)) => return visible,
                Some((_, index)) => Some(index).filter(|index| *index < gpus),
                None => None,
            },
        };
        match found {
            Some(device) if !visible.devices.contains(&device) => visible.devices.push(device),
            Some(_) => return Visible { devices: Vec::new(), mistake: Some(position) },
            None => return Visible { mistake: Some(position), ..visible },
        }
    }
    visible
}

fn by_identity(entry: &str, kind: &str, machine: &[String]) -> Option<usize> {
    let mut fitting = machine.iter().enumerate().filter(|(_, identity)| identity.starts_with(entry));
    match (fitting.next(), fitting.next()) {
        (Some((device, _)), None) if entry.starts_with(kind) => Some(device),
        _ => None,
    }
}

/// Parses an entry as an index. Returns its sign (true if negative) and its absolute value.
fn index(entry: &str) -> Option<(bool, usize)> {
    let entry = entry.trim_start_matches([' ', '\t', '\n', '\x0b', '\x0c', '\r']);
    let unsigned = entry.strip_prefix(['+', '-']).unwrap_or(entry);
    let digits = unsigned.bytes().take_while(u8::is_ascii_digit).count();
    // A number that overflows the integer is out of range on every machine.
    let index = || unsigned[..digits].parse().unwrap_or(usize::MAX);
    (digits > 0).then(|| (entry.starts_with('-'), index()))
}

/// Returns the devices that the variable makes visible in this process. Queries the machine's devices from NVML, which
/// does not initialize CUDA; returns `None` if NVML is not available. Unless `CUDA_DEVICE_ORDER=PCI_BUS_ID` is set,
/// CUDA may number devices of different models in a different order.
pub fn here() -> Option<Visible> {
    let text = std::env::var_os(VARIABLE).map(|text| text.to_string_lossy().into_owned());
    Some(read(text.as_deref(), &cuda::machine_devices()?))
}
