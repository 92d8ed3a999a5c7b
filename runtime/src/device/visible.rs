//! `CUDA_VISIBLE_DEVICES`: which of a machine's devices a process sees, read as CUDA and PyTorch read it.
//!
//! The variable is a list with commas, of indices (`0,2`) or of identities (`GPU-8f12`), which may be cut short as long
//! as one device has them. Its first entry decides which. The process numbers its devices in the order of the list. The
//! list ends before the first entry that is no device: those before it count. A negative index ends it on purpose. A
//! device that is named twice hides all. Without the variable all are visible, with an empty one none.
//!
//! Of an index counts what C's `strtol` takes: blanks before it, a sign, digits; what follows is ignored.

use crate::driver::cuda;

/// The variable's name.
pub const VARIABLE: &str = "CUDA_VISIBLE_DEVICES";

/// The devices that a list makes visible.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Visible {
    /// The machine's devices, by index, that the process sees, in the order in which it numbers them.
    pub devices: Vec<usize>,
    /// The place of the entry, from 0, that is no device and ends the list: an index that is too far, an identity of
    /// none or several devices, one of the other form, a device that was named before. `None` for a negative index.
    pub mistake: Option<usize>,
}

/// The devices that the variable's `text` makes visible, `None` if it is not set, of those with the identities `machine`:
/// GPUs in the order of their indices, and then parts of GPUs (MIG), which have no index.
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
    // An empty text hides all, which is no mistake.
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

/// Whether there is a minus, and the number.
fn index(entry: &str) -> Option<(bool, usize)> {
    let entry = entry.trim_start_matches([' ', '\t', '\n', '\x0b', '\x0c', '\r']);
    let unsigned = entry.strip_prefix(['+', '-']).unwrap_or(entry);
    let digits = unsigned.bytes().take_while(u8::is_ascii_digit).count();
    // A number without a place in an integer is too far for any machine.
    let index = || unsigned[..digits].parse().unwrap_or(usize::MAX);
    (digits > 0).then(|| (entry.starts_with('-'), index()))
}

/// The identities of the machine's devices, hidden ones too, in the order of [`read`]: as the driver's management
/// library (NVML) reports them, without starting CUDA. `None` without that library. CUDA may number devices of different
/// models in another order, unless `CUDA_DEVICE_ORDER=PCI_BUS_ID` is set.
pub fn machine() -> Option<Vec<String>> {
    cuda::machine_devices()
}

/// The devices that the variable makes visible in this process. `None` if the machine's devices are not known.
pub fn here() -> Option<Visible> {
    let text = std::env::var_os(VARIABLE).map(|text| text.to_string_lossy().into_owned());
    Some(read(text.as_deref(), &machine()?))
}
