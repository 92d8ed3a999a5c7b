//! Checks the requirements of ranks on this machine's devices, for `warpsmith doctor`. The checks cover NCCL, shared
//! memory between processes, devices that map each other's memory, and the Peer backend, which computes a sum.
//!
//! The checked devices are the GPUs or, if there are no GPUs, the emulated devices.

use std::time::Duration;

use warpsmith::bench::size::format_bytes;
use warpsmith::collective::{BackendChoice, Communicator, CommunicatorOptions, ReduceOp};
use warpsmith::memory::SharedMemory;
use warpsmith::{Device, DeviceBuffer, Stream};

use crate::doctor::{Check, Status};
use crate::network;

/// Maximum number of ranks that the Peer backend supports.
const MAX_RANKS: usize = 8;
/// Time limit for computing a sum.
const TIMEOUT: Duration = Duration::from_secs(20);

pub fn checks() -> Vec<Check> {
    let has_gpus = Device::cuda_count().unwrap_or(0) > 0;
    let mut checks = Vec::new();
    if has_gpus {
        checks.push(match warpsmith::collective::nccl_library() {
            Ok(library) => Check::ok("NCCL", library.to_string()),
            Err(error) => Check::new("NCCL", Status::Note, error.to_string(), &[]),
        });
        checks.extend(shared_memory_bytes().map(shared_memory));
    }
    checks.extend(network::check());
    let ids = Device::list().into_iter().map(|info| info.id).filter(|id| id.is_emulated() != has_gpus);
    // A separate check covers opening the devices.
    let devices: Vec<_> = ids.filter_map(|id| Device::open(&id.to_string()).ok()).collect();
    if devices.is_empty() {
        return checks;
    }
    let mapped = mapped(&devices);
    let is_mapped = mapped.is_ok();
    checks.push(mapped_check(&devices, mapped));
    if is_mapped {
        checks.push(peer(&devices));
    }
    checks
}

fn names(devices: &[Device]) -> String {
    devices.iter().map(|device| device.id().to_string()).collect::<Vec<_>>().join(", ")
}

/// Checks that each device's memory can be exported as a file descriptor and mapped by each device.
fn mapped(devices: &[Device]) -> Result<(), String> {
    for owner in devices {
        let of =
            |what: &'static str| move |error: warpsmith::Error| format!("{what} {}: {error}", owner.id());
        if !SharedMemory::is_supported(owner).map_err(of("the memory of"))? {
            return Err(format!(
                "{} has no virtual memory management, or this system is not Linux",
                owner.id()
            ));
        }
        let memory = SharedMemory::allocate(owner, 1).map_err(of("memory to export on"))?;
        let exported = memory.export().map_err(of("a file descriptor of memory of"))?;
        for peer in devices {
            if !peer.can_access_peer(owner).map_err(of("access to"))? {
                return Err(format!("{} cannot access the memory of {}", peer.id(), owner.id()));
            }
            // SAFETY: `memory` has exported it.
            let imported = unsafe { SharedMemory::import(peer, &exported, memory.bytes()) };
            imported
                .map_err(|error| format!("{} cannot map memory of {}: {error}", peer.id(), owner.id()))?;
        }
    }
    Ok(())
}

fn mapped_check(devices: &[Device], mapped: Result<(), String>) -> Check {
    let what = "memory of ranks";
    match mapped {
        Ok(()) => {
            let each_other = if devices.len() == 1 { "itself" } else { "each other" };
            Check::ok(
                what,
                format!("{}: exported as file descriptors, and mapped by {each_other}", names(devices)),
            )
        }
        Err(reason) => {
            let detail = format!("{reason}: symmetric buffers and the Peer backend are not available");
            Check::new(what, Status::Note, detail, &[])
        }
    }
}

/// Checks a sum over ranks on these devices, with kernels that read each other's memory. A single device is used by two
/// ranks.
fn peer(devices: &[Device]) -> Check {
    let what = "Peer backend";
    let devices: Vec<_> = devices.iter().cycle().take(devices.len().clamp(2, MAX_RANKS)).cloned().collect();
    match sums(&devices) {
        Ok(true) => {
            Check::ok(what, format!("an all-reduce between ranks on {} gives correct sums", names(&devices)))
        }
        Ok(false) => {
            let fix = ["report this with the output of `warpsmith doctor --json`".to_owned()];
            Check::new(
                what,
                Status::Broken,
                format!("an all-reduce between ranks on {} gives incorrect sums", names(&devices)),
                &fix,
            )
        }
        Err(error) => Check::new(what, Status::Note, error.to_string(), &[]),
    }
}

fn sums(devices: &[Device]) -> warpsmith::Result<bool> {
    let streams = devices.iter().map(Stream::new).collect::<Result<Vec<_>, _>>()?;
    // `shared_gpu` also avoids starting NCCL, which takes seconds.
    let options = CommunicatorOptions::new().backend(BackendChoice::Peer).shared_gpu(true);
    let ranks = Communicator::init_all(&streams, &options.timeout(TIMEOUT).init_timeout(TIMEOUT))?;
    let sum = |mut ranks: Communicator| {
        let (rank, world) = (ranks.rank() as u32, ranks.world_size() as u32);
        let mut x = DeviceBuffer::from_host(ranks.stream(), &[rank + 1; 1000])?;
        ranks.all_reduce_in_place(ReduceOp::Sum, &mut x)?.wait(TIMEOUT)?;
        let is_correct = x.to_host()? == [world * (world + 1) / 2; 1000];
        ranks.finish().map(|()| is_correct)
    };
    std::thread::scope(|scope| {
        let sum = &sum;
        let ranks: Vec<_> = ranks.into_iter().map(|ranks| scope.spawn(move || sum(ranks))).collect();
        let results = ranks.into_iter().map(|rank| rank.join().unwrap_or(Ok(false)));
        results.collect::<warpsmith::Result<Vec<_>>>().map(|all| all.into_iter().all(|is_correct| is_correct))
    })
}

/// NCCL's ranks on one host use a few megabytes for each pair without a direct link.
fn shared_memory(bytes: u64) -> Check {
    let detail = format!("{} of shared memory for processes", format_bytes(bytes));
    if bytes >= 1 << 30 {
        return Check::ok("/dev/shm", detail);
    }
    let detail =
        format!("{detail}: may be too small for NCCL, which fails with a system error when it is full");
    let fix = ["docker run --shm-size=1g ..., or --ipc=host".to_string()];
    Check::new("/dev/shm", Status::Note, detail, &fix)
}

/// Returns the size of `/dev/shm`, if it exists.
#[cfg(unix)]
fn shared_memory_bytes() -> Option<u64> {
    // SAFETY: a structure of numbers, for which all zeros is valid.
    let mut found: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: the path is zero-terminated; the pointer is to a local variable.
    let status = unsafe { libc::statvfs(c"/dev/shm".as_ptr(), &mut found) };
    (status == 0).then(|| found.f_blocks as u64 * found.f_frsize as u64)
}

#[cfg(not(unix))]
fn shared_memory_bytes() -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use warpsmith::emulated::{Call, EmulatedDriver};

    use super::*;

    #[test]
    fn little_shared_memory_is_noted() {
        assert_eq!(shared_memory(8 << 30).status, Status::Ok);
        let little = shared_memory(64 << 20);
        assert_eq!(little.status, Status::Note);
        assert!(little.detail.contains("64") && little.fix[0].contains("--shm-size"), "{little:?}");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_size_of_shared_memory_is_known() {
        let known = shared_memory_bytes();
        assert_eq!(known.is_some(), std::path::Path::new("/dev/shm").exists());
        assert!(known.is_none_or(|bytes| bytes > 0), "{known:?}");
    }

    fn devices(driver: &std::sync::Arc<EmulatedDriver>, count: u32) -> Vec<Device> {
        (0..count).map(|ordinal| Device::with_driver(driver.clone(), ordinal).expect("a device")).collect()
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn ranks_map_memory_and_add() {
        for count in [1, 3] {
            let driver = EmulatedDriver::builder().devices(count).build();
            let devices = devices(&driver, count);
            assert_eq!(mapped(&devices), Ok(()));
            let peer = peer(&devices);
            assert_eq!(peer.status, Status::Ok, "{peer:?}");
            assert_eq!(driver.live_reservations(0), 0);
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn memory_that_is_not_shared_is_noted_with_the_reason() {
        for (call, reason) in [
            (Call::PhysicalCreateShareable, "memory to export on cpu:0"),
            (Call::PhysicalExport, "a file descriptor of memory of cpu:0"),
            (Call::PhysicalImport, "cannot map memory of cpu:0"),
        ] {
            let driver = EmulatedDriver::builder().devices(2).build();
            driver.fail_call(call, 0);
            let devices = devices(&driver, 2);
            let check = mapped_check(&devices, mapped(&devices));
            assert_eq!(check.status, Status::Note);
            assert!(
                check.detail.contains(reason) && check.detail.contains("the Peer backend are not available"),
                "{check:?}"
            );
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn ranks_that_cannot_connect_are_noted() {
        let driver = EmulatedDriver::builder().devices(2).build();
        driver.fail_call(Call::PhysicalCreateShareable, 1);
        let check = peer(&devices(&driver, 2));
        assert!(check.status == Status::Note && check.detail.contains("OUT_OF_MEMORY"), "{check:?}");
    }
}
