//! The number of NVLinks between two devices, as far as the management library reports it.

use nvml_wrapper::enum_wrappers::device::{P2pCapabilitiesIndex, P2pStatus};

use super::management;

/// The most NVLinks of a device that the management library reports.
const MAX_NVLINKS: u32 = 18;

/// Where a device is on PCIe: domain, bus and number.
type Place = (u32, u32, u32);

/// The links that lead straight to the other device, else, where the library says that the two talk over NVLink, all
/// that are active, which then end at switches.
pub(super) fn nvlinks(ordinal: u32, peer: u32) -> Option<u32> {
    let (device, peer) = (management::device(ordinal)?, management::device(peer)?);
    let place = peer.pci_info().ok().map(|info| (info.domain, info.bus, info.device))?;
    let links = (0..MAX_NVLINKS).map(|index| device.link_wrapper_for(index));
    let active = links.filter(|link| matches!(link.is_active(), Ok(true)));
    let ends: Vec<Option<Place>> = active
        .map(|link| link.remote_pci_info().ok().map(|info| (info.domain, info.bus, info.device)))
        .collect();
    let talk = || matches!(device.p2p_status(&peer, P2pCapabilitiesIndex::NvLink), Ok(P2pStatus::Ok));
    Some(count(&ends, place, talk))
}

/// How many of the active links, by where they end if that is known, connect to the device at `peer`. `talk` says
/// whether the two devices talk over NVLink at all.
fn count(ends: &[Option<Place>], peer: Place, talk: impl FnOnce() -> bool) -> u32 {
    let direct = ends.iter().filter(|end| **end == Some(peer)).count();
    let count = if direct == 0 && !ends.is_empty() && talk() { ends.len() } else { direct };
    count as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: Place = (0, 0x1b, 0);
    const OTHER: Place = (0, 0x43, 0);

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
