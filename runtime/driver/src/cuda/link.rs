//! How two devices are connected, as far as the management library tells.
//!
//! NVLinks come first: those that lead straight to the other device, else, where the library says that the two talk
//! over NVLink, all that are active, which then end at switches. Without NVLink it is what PCIe has between them.

use nvml_wrapper::Device;
use nvml_wrapper::enum_wrappers::device::{P2pCapabilitiesIndex, P2pStatus};

use super::management;
use crate::LinkKind;

/// The most NVLinks that the management library tells of a device.
const MAX_NVLINKS: u32 = 18;

/// Where a device is on PCIe: domain, bus and number.
type Place = (u32, u32, u32);

/// How devices `ordinal` and `peer` are connected.
pub(super) fn between(ordinal: u32, peer: u32) -> LinkKind {
    if ordinal == peer {
        return LinkKind::Same;
    }
    let devices = management::device(ordinal).zip(management::device(peer));
    devices
        .and_then(|(device, peer)| nvlink(&device, &peer).or_else(|| pcie(&device, peer)))
        .unwrap_or(LinkKind::Unknown)
}

fn nvlink(device: &Device<'_>, peer: &Device<'_>) -> Option<LinkKind> {
    let place = peer.pci_info().ok().map(|info| (info.domain, info.bus, info.device))?;
    let links = (0..MAX_NVLINKS).map(|index| device.link_wrapper_for(index));
    let active = links.filter(|link| matches!(link.is_active(), Ok(true)));
    let ends: Vec<Option<Place>> = active
        .map(|link| link.remote_pci_info().ok().map(|info| (info.domain, info.bus, info.device)))
        .collect();
    let talk = || matches!(device.p2p_status(peer, P2pCapabilitiesIndex::NvLink), Ok(P2pStatus::Ok));
    let count = nvlinks(&ends, place, talk);
    (count > 0).then_some(LinkKind::NvLink(count))
}

/// How many of the active links, by where they end if that is known, connect to the device at `peer`. `talk` says
/// whether the two devices talk over NVLink at all.
fn nvlinks(ends: &[Option<Place>], peer: Place, talk: impl FnOnce() -> bool) -> u32 {
    let direct = ends.iter().filter(|end| **end == Some(peer)).count();
    let count = if direct == 0 && !ends.is_empty() && talk() { ends.len() } else { direct };
    count as u32
}

#[cfg(target_os = "linux")]
fn pcie(device: &Device<'_>, peer: Device<'_>) -> Option<LinkKind> {
    use nvml_wrapper::enum_wrappers::device::TopologyLevel;

    Some(match device.topology_common_ancestor(peer).ok()? {
        TopologyLevel::Internal | TopologyLevel::Single | TopologyLevel::Multiple => LinkKind::PcieSwitch,
        TopologyLevel::HostBridge | TopologyLevel::Node => LinkKind::PcieHost,
        TopologyLevel::System => LinkKind::System,
    })
}

/// The management library tells on Linux only.
#[cfg(not(target_os = "linux"))]
fn pcie(_device: &Device<'_>, _peer: Device<'_>) -> Option<LinkKind> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: Place = (0, 0x1b, 0);
    const OTHER: Place = (0, 0x43, 0);

    #[test]
    fn links_to_the_peer_count_whatever_else_there_is() {
        let ends = [Some(PEER), Some(OTHER), None, Some(PEER)];
        assert_eq!(nvlinks(&ends, PEER, || panic!("not asked")), 2);
        assert_eq!(nvlinks(&ends, OTHER, || panic!("not asked")), 1);
    }

    #[test]
    fn links_to_switches_count_if_the_devices_talk_over_them() {
        let ends = [Some(OTHER), None, Some(OTHER)];
        assert_eq!(nvlinks(&ends, PEER, || true), 3);
        assert_eq!(nvlinks(&ends, PEER, || false), 0);
        assert_eq!(nvlinks(&[], PEER, || true), 0, "there is no link");
    }

    #[test]
    fn a_device_is_the_same_as_itself_without_any_library() {
        assert_eq!(between(3, 3), LinkKind::Same);
    }
}
