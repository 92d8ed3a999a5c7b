//! [`PeerMemory`]: memory of each rank, which all ranks map.
//!
//! The memory of each rank stays allocated for as long as any rank maps it. If a rank drops its memory, or its process
//! ends, the other ranks are not affected. A problem on one rank causes an error on all ranks. After a failed exchange,
//! no memory remains allocated.

use std::collections::HashMap;
#[cfg(target_os = "linux")]
use std::io::ErrorKind;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use warpsmith_runtime::memory::SharedMemory;
use warpsmith_runtime::{Device, DevicePtr, Stream};

use super::agree::Agreement;
#[cfg(target_os = "linux")]
use super::descriptors::{Door, TOKEN, call, receive, send};
use crate::error::Result;
#[cfg(target_os = "linux")]
use crate::error::{CollectiveError, Error};

/// Memory on each rank that all ranks map. See the [module documentation](self).
#[derive(Debug)]
pub(crate) struct PeerMemory {
    /// Memory of the ranks, in rank order.
    of_ranks: Vec<Arc<SharedMemory>>,
    rank: usize,
}

/// Memory of the ranks in this process. Other ranks in the same process look it up here.
static OFFERED: Mutex<Option<HashMap<u64, Weak<SharedMemory>>>> = Mutex::new(None);

/// Registration of memory in [`OFFERED`].
struct Offer(u64);

impl Offer {
    fn new(memory: &Arc<SharedMemory>) -> Self {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let mut offered = OFFERED.lock().unwrap_or_else(PoisonError::into_inner);
        offered.get_or_insert_default().insert(number, Arc::downgrade(memory));
        Self(number)
    }

    fn find(number: u64) -> Option<Arc<SharedMemory>> {
        let offered = OFFERED.lock().unwrap_or_else(PoisonError::into_inner);
        offered.as_ref()?.get(&number)?.upgrade()
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        if let Some(offered) = OFFERED.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            offered.remove(&self.0);
        }
    }
}

/// Memory of this rank and the data that other ranks need to map it.
struct Own {
    memory: Arc<SharedMemory>,
    offer: Offer,
    #[cfg(target_os = "linux")]
    door: Option<Door>,
    #[cfg(target_os = "linux")]
    token: [u8; TOKEN],
}

impl PeerMemory {
    /// Allocates `bytes` bytes of zeroed memory on this rank and maps the memory of the other ranks. All ranks must
    /// make this call.
    pub fn rendezvous(agreement: &Agreement<'_>, device: &Device, bytes: usize) -> Result<Self> {
        let mesh = agreement.mesh;
        let own = Own::make(agreement, device, bytes).map_err(|error| error.to_string());
        let said = own.as_ref().map(Own::address).map_err(Clone::clone);
        let addresses = agreement.share(said)?;
        let Ok(own) = own else { unreachable!("a rank that has nothing ends the rendezvous above") };
        let mapped = own.map_all(agreement, device, &addresses);
        // This call also acts as a barrier: afterwards, all ranks have taken the offered memory.
        let said = mapped.as_ref().map(|_| Vec::new()).map_err(Clone::clone);
        agreement.share(said)?;
        let Ok(of_ranks) = mapped else { unreachable!("as above") };
        Ok(Self { of_ranks, rank: mesh.rank() })
    }

    /// Returns the address at which this rank has mapped the memory of rank `rank`.
    pub fn address(&self, rank: usize) -> DevicePtr {
        self.of_ranks[rank].address()
    }

    /// Returns the address of this rank's own memory.
    pub fn own(&self) -> DevicePtr {
        self.address(self.rank)
    }

    pub fn world(&self) -> usize {
        self.of_ranks.len()
    }
}

/// Fills memory with zeros.
///
/// # Safety
/// The memory must be valid, and nothing else may use it during the call.
unsafe fn clear(device: &Device, address: DevicePtr, bytes: usize) -> warpsmith_runtime::Result<()> {
    // This operation uses a separate stream, because the communicator's stream may be waiting for other ranks.
    let stream = Stream::new(device)?;
    // SAFETY: guaranteed by the caller. The stream is synchronized afterwards, and the context is used while the device
    // is alive.
    unsafe {
        let (driver, context) = device.driver();
        stream.enqueue(&[], |handle| {
            driver.memset(context, address, 0, bytes, handle).map_err(warpsmith_runtime::Error::from)
        })?;
    }
    stream.synchronize()
}

impl Own {
    fn make(agreement: &Agreement<'_>, device: &Device, bytes: usize) -> Result<Self> {
        let memory = Arc::new(SharedMemory::allocate(device, bytes)?);
        // SAFETY: the memory belongs to this value and is not in use yet.
        unsafe { clear(device, memory.address(), memory.bytes()) }?;
        let offer = Offer::new(&memory);
        #[cfg(target_os = "linux")]
        {
            let system = |error| {
                Error::from(CollectiveError::Listen { address: "a local socket".to_owned(), source: error })
            };
            let mesh = agreement.mesh;
            let is_alone = mesh.others().all(|other| mesh.is_of_process(other));
            let door = if is_alone { None } else { Some(Door::open().map_err(system)?) };
            let mut token = [0; TOKEN];
            getrandom::fill(&mut token).map_err(|error| system(std::io::Error::other(error.to_string())))?;
            Ok(Self { memory, offer, door, token })
        }
        #[cfg(not(target_os = "linux"))]
        {
            let _ = agreement;
            Ok(Self { memory, offer })
        }
    }

    /// Encodes the data that other ranks need to map the memory. For ranks of this process, the data is the ID of the
    /// offer; for other ranks, it is the size, the token and the path.
    fn address(&self) -> Vec<u8> {
        let mut address = self.offer.0.to_le_bytes().to_vec();
        address.extend((self.memory.bytes() as u64).to_le_bytes());
        #[cfg(target_os = "linux")]
        {
            use std::os::unix::ffi::OsStrExt;
            address.extend(self.token);
            if let Some(door) = &self.door {
                address.extend(door.path().as_os_str().as_bytes());
            }
        }
        address
    }

    /// Maps the memory of all ranks, in rank order.
    fn map_all(
        &self,
        agreement: &Agreement<'_>,
        device: &Device,
        addresses: &[Vec<u8>],
    ) -> Result<Vec<Arc<SharedMemory>>, String> {
        let mesh = agreement.mesh;
        let number = |address: &[u8], at: usize| {
            address.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes)
        };
        let mut of_ranks: Vec<Option<Arc<SharedMemory>>> = vec![None; addresses.len()];
        for (rank, address) in addresses.iter().enumerate() {
            if number(address, 8) != self.memory.bytes() as u64 {
                return Err(format!(
                    "its memory has {} bytes, but the memory of rank {rank} has {}: their devices have different \
                     page sizes",
                    self.memory.bytes(),
                    number(address, 8)
                ));
            }
            if rank == mesh.rank() {
                of_ranks[rank] = Some(Arc::clone(&self.memory));
            } else if mesh.is_of_process(rank) {
                let offered = Offer::find(number(address, 0));
                let theirs = offered.ok_or_else(|| format!("rank {rank} has freed its memory"))?;
                of_ranks[rank] = Some(reached(device, theirs).map_err(|error| error.to_string())?);
            }
        }
        self.map_others(agreement, device, addresses, &mut of_ranks)?;
        Ok(of_ranks.into_iter().flatten().collect())
    }

    #[cfg(not(target_os = "linux"))]
    fn map_others(
        &self,
        _agreement: &Agreement<'_>,
        _device: &Device,
        _addresses: &[Vec<u8>],
        of_ranks: &mut [Option<Arc<SharedMemory>>],
    ) -> Result<(), String> {
        match of_ranks.iter().position(Option::is_none) {
            None => Ok(()),
            Some(rank) => Err(format!(
                "rank {rank} is another process, and this system cannot share device memory \
                                       between processes"
            )),
        }
    }

    /// Maps the memory of ranks in other processes. Each rank connects to lower ranks and accepts connections from
    /// higher ranks.
    #[cfg(target_os = "linux")]
    fn map_others(
        &self,
        agreement: &Agreement<'_>,
        device: &Device,
        addresses: &[Vec<u8>],
        of_ranks: &mut [Option<Arc<SharedMemory>>],
    ) -> Result<(), String> {
        use std::os::fd::AsFd;
        use std::os::unix::ffi::OsStrExt;
        let Some(door) = &self.door else { return Ok(()) };
        let (mesh, deadline) = (agreement.mesh, agreement.term.deadline);
        let exported = self.memory.export().map_err(|error| error.to_string())?;
        let system = |what: &'static str| move |error: std::io::Error| format!("{what}: {error}");
        let import = |descriptor| {
            let memory = warpsmith_runtime::driver::ExportedMemory(descriptor);
            // SAFETY: the other rank has exported the memory. Its size equals the size of this rank's memory, because
            // the ranks have compared the sizes.
            let imported = unsafe { SharedMemory::import(device, &memory, self.memory.bytes()) };
            imported.map(Arc::new).map_err(|error| error.to_string())
        };
        let missing: Vec<usize> = (0..of_ranks.len()).filter(|rank| of_ranks[*rank].is_none()).collect();
        let mut called = Vec::new();
        for &rank in missing.iter().filter(|rank| **rank < mesh.rank()) {
            let Some((token, path)) = addresses[rank][16..].split_at_checked(TOKEN) else {
                return Err(format!("rank {rank} did not publish the address of its memory"));
            };
            let token = token.try_into().unwrap_or_default();
            let path = std::path::Path::new(std::ffi::OsStr::from_bytes(path));
            let socket = call(path, &token, mesh.rank(), exported.0.as_fd(), deadline)
                .map_err(system("cannot send a file descriptor to another process"))?;
            called.push((rank, socket));
        }
        let behind: Vec<usize> = missing.iter().copied().filter(|rank| *rank > mesh.rank()).collect();
        while behind.iter().any(|rank| of_ranks[*rank].is_none()) {
            let may_wait = || match mesh.member.failure() {
                None => Ok(()),
                Some(failure) => Err(std::io::Error::new(ErrorKind::ConnectionAborted, failure.to_string())),
            };
            let (rank, descriptor, socket) = door
                .accept(&self.token, deadline, may_wait)
                .map_err(system("no file descriptor was received from another process"))?;
            if !behind.contains(&rank) || of_ranks[rank].is_some() {
                continue;
            }
            send(&socket, exported.0.as_fd()).map_err(system("cannot send a file descriptor"))?;
            of_ranks[rank] = Some(import(descriptor)?);
        }
        for (rank, socket) in called {
            let descriptor = receive(&socket, deadline)
                .map_err(system("no file descriptor was received from another process"))?;
            of_ranks[rank] = Some(import(descriptor)?);
        }
        Ok(())
    }
}

/// Makes another rank's memory, in this process, accessible to this rank's device.
fn reached(device: &Device, theirs: Arc<SharedMemory>) -> warpsmith_runtime::Result<Arc<SharedMemory>> {
    match theirs.allow(device) {
        Ok(()) => Ok(theirs),
        Err(warpsmith_runtime::Error::NoPeerAccess { .. }) if device.is_emulated() => {
            // The memory may belong to another driver, so it is exported and imported. SAFETY: the exported memory
            // belongs to this value and has its size.
            unsafe { SharedMemory::import(device, &theirs.export()?, theirs.bytes()) }.map(Arc::new)
        }
        Err(error) => Err(error),
    }
}
