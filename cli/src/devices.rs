//! `warpsmith devices`: lists every device.

use serde_json::json;
use warpsmith::bench::size::format_bytes;
use warpsmith::memory::SharedMemory;
use warpsmith::{Device, DeviceInfo};

use crate::args::JsonArg;
use warpsmith::bench::command::failure::Failure;
use warpsmith::bench::command::output::{plain, print_form, table};

/// Prints the devices. If no CUDA device exists, also prints the reason.
pub fn run(args: &JsonArg) -> Result<(), Failure> {
    let devices = Device::list();
    let cuda_problem = match Device::cuda_count() {
        Ok(0) => Some("the CUDA driver works, but there is no CUDA device".to_string()),
        Ok(_) => None,
        Err(error) => Some(error.to_string()),
    };
    let text = if args.json {
        let list: Vec<_> = devices.iter().map(as_json).collect();
        let document = json!({
            "schema": 1,
            "devices": list,
            "links": links(&devices).iter().map(Link::as_json).collect::<Vec<_>>(),
            "no_cuda_because": cuda_problem,
        });
        serde_json::to_string_pretty(&document).expect("plain data always becomes JSON") + "\n"
    } else {
        let rows = devices.iter().map(|info| {
            let p = &info.properties;
            let of_a_gpu = |text: String| if info.id.is_emulated() { "-".to_string() } else { text };
            let bandwidth = match p.memory_bandwidth {
                0 => "unknown".to_string(),
                bandwidth => format!("{:.0} GB/s", bandwidth as f64 / 1e9),
            };
            let values = [
                info.id.to_string(),
                p.name.clone(),
                of_a_gpu(format!("{}.{}", p.capability.0, p.capability.1)),
                p.multiprocessors.to_string(),
                format_bytes(p.total_memory),
                of_a_gpu(format_bytes(p.l2_cache)),
                of_a_gpu(bandwidth),
                p.driver_version.clone(),
            ];
            values.into_iter().map(plain).collect()
        });
        let header = ["device", "name", "capability", "SMs", "memory", "L2", "bandwidth", "driver"];
        let mut text = table(&header, &[2, 3, 4, 5, 6], rows.collect());
        let links = links(&devices);
        if !links.is_empty() {
            let rows = links.iter().map(|link| link.row().into_iter().map(plain).collect()).collect();
            text.push_str(&format!(
                "\n{}",
                table(&["from", "to", "link", "reads and writes", "ranks"], &[], rows)
            ));
        }
        if let Some(problem) = cuda_problem {
            text.push_str(&format!("\nNo CUDA device: {problem}\n"));
        }
        text
    };
    Ok(print_form(&text, args.json)?)
}

struct Link {
    from: String,
    to: String,
    is_emulated: bool,
    nvlinks: u32,
    /// True if peer access is possible, or the reason why this is unknown.
    peer_access: Result<bool, String>,
    /// True if a rank on one device can map the memory of a rank on the other.
    is_mapped: bool,
}

impl Link {
    fn row(&self) -> [String; 5] {
        let link = match self.nvlinks {
            0 if self.is_emulated => "emulated".to_string(),
            0 => "PCIe, no NVLink".to_string(),
            nvlinks => format!("NVLink x {nvlinks}"),
        };
        let access = match &self.peer_access {
            Ok(true) => "directly".to_string(),
            Ok(false) => "through the host".to_string(),
            Err(error) => error.clone(),
        };
        let ranks = if self.is_mapped { "map its memory" } else { "copy" };
        [self.from.clone(), self.to.clone(), link, access, ranks.to_string()]
    }

    fn as_json(&self) -> serde_json::Value {
        json!({
            "from": self.from,
            "to": self.to,
            "nvlinks": self.nvlinks,
            "peer_access": self.peer_access.as_ref().ok(),
            "mapped_by_ranks": self.is_mapped,
        })
    }
}

/// Returns the connections between devices of one kind, in each direction.
fn links(devices: &[DeviceInfo]) -> Vec<Link> {
    let mut links = Vec::new();
    for (from, to) in devices.iter().flat_map(|from| devices.iter().map(move |to| (from.id, to.id))) {
        if from == to || from.is_emulated() != to.is_emulated() {
            continue;
        }
        let opened = Device::open(&from.to_string()).and_then(|x| Ok((x, Device::open(&to.to_string())?)));
        let (nvlinks, peer_access, is_shared) = match opened {
            Ok((x, y)) => {
                let is_shared =
                    [&x, &y].into_iter().all(|of| SharedMemory::is_supported(of).unwrap_or(false));
                (x.nvlinks(&y), x.can_access_peer(&y).map_err(|error| error.to_string()), is_shared)
            }
            Err(error) => (0, Err(error.to_string()), false),
        };
        let is_mapped = is_shared && peer_access == Ok(true);
        let (is_emulated, from, to) = (from.is_emulated(), from.to_string(), to.to_string());
        links.push(Link { from, to, is_emulated, nvlinks, peer_access, is_mapped });
    }
    links
}

fn as_json(info: &DeviceInfo) -> serde_json::Value {
    let p = &info.properties;
    let uuid: String = p.uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    json!({
        "id": info.id.to_string(),
        "name": p.name,
        "emulated": info.id.is_emulated(),
        "uuid": uuid,
        "capability": format!("{}.{}", p.capability.0, p.capability.1),
        "multiprocessors": p.multiprocessors,
        "memory": p.total_memory,
        "l2_cache": p.l2_cache,
        "memory_gbps": (!info.id.is_emulated() && p.memory_bandwidth > 0).then(|| p.memory_bandwidth as f64 / 1e9),
        "max_threads_per_block": p.max_threads_per_block,
        "max_threads_per_multiprocessor": p.max_threads_per_multiprocessor,
        "registers_per_multiprocessor": p.registers_per_multiprocessor,
        "shared_memory_per_block": p.shared_memory_per_block,
        "shared_memory_per_block_optin": p.shared_memory_per_block_optin,
        "shared_memory_per_multiprocessor": p.shared_memory_per_multiprocessor,
        "driver": p.driver_version,
    })
}
