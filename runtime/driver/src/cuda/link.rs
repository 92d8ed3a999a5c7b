//! Number of NVLinks between two devices, as reported by NVML.

use nvml_wrapper_sys::bindings::{
    NVML_NVLINK_MAX_LINKS, nvmlEnableState_enum_NVML_FEATURE_ENABLED as ENABLED,
};

use super::management;

/// PCIe address of a device: domain, bus and device number.
type Place = [u32; 3];

/// Returns the number of links that connect directly to the other device. If there are none but the two devices
/// communicate over NVLink, the links connect to switches; returns the number of active links.
pub(super) fn nvlinks(ordinal: u32, peer: u32) -> Option<u32> {
    let (device, peer) = (management::device(ordinal)?, management::device(peer)?);
    let place = peer.place()?;
    let active = (0..NVML_NVLINK_MAX_LINKS).filter(|link| device.link_state(*link) == Some(ENABLED));
    let ends: Vec<Option<Place>> = active.map(|link| device.end_of_link(link)).collect();
    let talk = || device.has_nvlink_to(&peer) == Some(true);
    Some(count(&ends, place, talk))
}

/// Returns the number of active links that connect to the device at `peer`, from the links' remote ends if known.
/// `talk` returns true if the two devices communicate over NVLink at all.
fn count(ends: &[Option<Place>], peer: Place, talk: impl FnOnce() -> bool) -> u32 {
    let direct = ends.iter().filter(|end| **end == Some(peer)).count();
    let count = if direct == 0 && !ends.is_empty() && talk() { ends.len() } else { direct };
    count as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: Place = [0, 0x1b, 0];
    const OTHER: Place = [0, 0x43, 0];

    #[test]
    fn links_count_that_lead_to_the_peer() {
        let ends = [Some(PEER), Some(OTHER), None, Some(PEER)];
        assert_eq!(count(&ends, PEER, || panic!("not asked")), 2);
        assert_eq!(count(&ends, OTHER, || panic!("not asked")), 1);
    }

    #[test]
    fn links_to_switches_count_if_the_devices_talk_over_them() {
        let ends = [Some(OTHER), None, Some(OTHER)];
        assert_eq!([true, false].map(|talk| count(&ends, PEER, || talk)), [3, 0]);
        assert_eq!(count(&[], PEER, || true), 0, "there is no link");
    }
}
