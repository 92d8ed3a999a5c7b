//! Which devices reach each other's memory, and how they are connected: for `warpsmith devices`.
//!
//! Peers that a device sees alike share a row, so that a machine with many devices takes one or two for each.

use serde_json::{Value, json};
use warpsmith::DeviceId;
use warpsmith::device::PeerInfo;
use warpsmith::driver::LinkKind;

use warpsmith::bench::command::output::{plain, table};

/// A table; empty without peers.
pub fn as_text(peers: &[PeerInfo]) -> String {
    let mut rows: Vec<(&PeerInfo, Vec<DeviceId>)> = Vec::new();
    for pair in peers {
        let alike = |(first, _): &&mut (&PeerInfo, _)| {
            (first.device, first.link, first.access) == (pair.device, pair.link, pair.access)
        };
        match rows.iter_mut().find(alike) {
            Some((_, ids)) => ids.push(pair.peer),
            None => rows.push((pair, vec![pair.peer])),
        }
    }
    if rows.is_empty() {
        return String::new();
    }
    let cells = rows.iter().map(|(pair, ids)| {
        let access = if pair.access { "yes" } else { "no" };
        let values = [pair.device.to_string(), ranges(ids), pair.link.to_string(), access.to_string()];
        values.into_iter().map(plain).collect()
    });
    table(&["device", "peers", "link", "direct access"], &[], cells.collect())
}

/// `cuda:0, cuda:2 to cuda:7`.
fn ranges(ids: &[DeviceId]) -> String {
    let mut runs: Vec<[DeviceId; 2]> = Vec::new();
    for &id in ids {
        match runs.last_mut() {
            Some([_, last]) if last.ordinal() + 1 == id.ordinal() => *last = id,
            _ => runs.push([id, id]),
        }
    }
    let text = runs.iter().map(|[first, last]| match last.ordinal() - first.ordinal() {
        0 => first.to_string(),
        1 => format!("{first}, {last}"),
        _ => format!("{first} to {last}"),
    });
    text.collect::<Vec<_>>().join(", ")
}

/// One object a pair.
pub fn as_json(peers: &[PeerInfo]) -> Value {
    let pair = |pair: &PeerInfo| {
        let (link, nvlinks) = match pair.link {
            LinkKind::Same => ("same", None),
            LinkKind::NvLink(links) => ("nvlink", Some(links)),
            LinkKind::PcieSwitch => ("pcie_switch", None),
            LinkKind::PcieHost => ("pcie_host", None),
            LinkKind::System => ("system", None),
            LinkKind::Emulated => ("emulated", None),
            LinkKind::Unknown => ("unknown", None),
        };
        json!({
            "device": pair.device.to_string(),
            "peer": pair.peer.to_string(),
            "access": pair.access,
            "link": link,
            "nvlinks": nvlinks,
        })
    };
    peers.iter().map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All pairs of `count` devices.
    fn machine(count: u32, seen: impl Fn(u32, u32) -> (LinkKind, bool)) -> Vec<PeerInfo> {
        let pairs = (0..count).flat_map(|a| (0..count).map(move |b| (a, b))).filter(|(a, b)| a != b);
        let pair = |(a, b)| {
            let (link, access) = seen(a, b);
            PeerInfo { device: DeviceId::Cuda(a), peer: DeviceId::Cuda(b), access, link }
        };
        pairs.map(pair).collect()
    }

    #[test]
    fn one_device_has_no_table() {
        assert_eq!(as_text(&[]), "");
        assert_eq!(as_json(&[]), json!([]));
    }

    #[test]
    fn peers_that_are_seen_alike_share_a_row() {
        let text = as_text(&machine(8, |_, _| (LinkKind::NvLink(18), true)));
        let lines: Vec<Vec<&str>> = text
            .lines()
            .map(|line| line.split("  ").filter(|cell| !cell.is_empty()).map(str::trim).collect())
            .collect();
        assert_eq!(lines.len(), 9, "{text}");
        assert_eq!(lines[1], ["cuda:0", "cuda:1 to cuda:7", "NVLink x18", "yes"], "{text}");
        assert_eq!(lines[3], ["cuda:2", "cuda:0, cuda:1, cuda:3 to cuda:7", "NVLink x18", "yes"], "{text}");
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
    }

    #[test]
    fn unreachable_peers_have_their_own_row() {
        let pair = |a, b| if a / 2 == b / 2 { (LinkKind::PcieHost, true) } else { (LinkKind::System, false) };
        let text = as_text(&machine(4, pair));
        assert_eq!(text.lines().count(), 9, "{text}");
        let row = text.lines().find(|line| line.starts_with("cuda:1") && line.ends_with("no")).unwrap();
        assert!(row.contains("cuda:2, cuda:3") && row.contains("between CPUs"), "{text}");
    }

    #[test]
    fn json_has_one_object_for_each_pair() {
        let document = as_json(&machine(2, |a, _| (LinkKind::NvLink(4 + a), a == 0)));
        let pair = |device: &str, peer: &str, access, nvlinks| json!({"device": device, "peer": peer, "access": access, "link": "nvlink", "nvlinks": nvlinks});
        assert_eq!(document, json!([pair("cuda:0", "cuda:1", true, 4), pair("cuda:1", "cuda:0", false, 5)]));
    }
}
