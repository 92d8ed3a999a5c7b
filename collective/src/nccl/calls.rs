//! Operations as NCCL calls.
//!
//! Operations that only move data are issued on bytes, so elements can have any type. All-to-all, gather and scatter are
//! groups of sends and receives.

use std::ffi::{c_int, c_void};

use super::sys::{self, BYTES, Comm, CudaStream, Nccl, Status, status};
use crate::backend::{Call, Kind, Memory};
use crate::element::Reduction;

/// NCCL call that failed, with its name and its status.
#[derive(Debug, Clone, Copy)]
pub(super) struct Refused {
    pub call: &'static str,
    pub status: Status,
}

/// Checks the status returned by a call.
pub(super) fn checked(call: &'static str, status: Status) -> Result<(), Refused> {
    match status {
        status::SUCCESS => Ok(()),
        status => Err(Refused { call, status }),
    }
}

/// NCCL communicator, together with the data that its operations need.
#[derive(Debug, Clone, Copy)]
pub(super) struct Target<'n> {
    pub nccl: &'n Nccl,
    pub comm: Comm,
    pub stream: CudaStream,
    pub rank: usize,
    pub world: usize,
    /// Scratch memory for barriers.
    pub scratch: *mut c_void,
}

/// Returns a pointer to a byte offset in the memory.
fn at(memory: Memory, offset: usize) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut((memory.address as usize).wrapping_add(offset))
}

/// Returns whether a call consists of several NCCL calls.
fn is_several(call: &Call) -> bool {
    matches!(call.kind, Kind::AllToAll | Kind::Gather { .. } | Kind::Scatter { .. })
}

impl Target<'_> {
    /// Enqueues the calls, as a group if there are several.
    ///
    /// # Safety
    /// The communicator must be blocking, and no other thread may be using it. The memory of the calls must stay valid
    /// until the stream has executed them.
    pub unsafe fn enqueue(&self, calls: &[Call]) -> Result<(), Refused> {
        if let [call] = calls
            && !is_several(call)
        {
            // SAFETY: guaranteed by the caller.
            return unsafe { self.issue(call) };
        }
        // SAFETY: each thread has its own group, and this one is ended below in every case.
        checked("ncclGroupStart", unsafe { (self.nccl.group_start)() })?;
        let issued = calls.iter().try_for_each(|call| {
            // SAFETY: guaranteed by the caller.
            unsafe { self.issue(call) }
        });
        // SAFETY: the group was started above.
        let ended = checked("ncclGroupEnd", unsafe { (self.nccl.group_end)() });
        issued.and(ended)
    }

    /// Returns the `ncclRedOp_t` of a reduction.
    fn operator(&self, reduction: Reduction) -> c_int {
        // The average over one rank is that rank's elements. NCCL would multiply the elements by 1 in a kernel that, up
        // to version 2.28, omits the last elements if their number is not a multiple of its blocks (`onerank.cu`).
        if self.world == 1 { sys::SUM } else { sys::operator(reduction.operator) }
    }

    /// # Safety
    /// The caller must uphold the safety contract of [`Self::enqueue`]. If the call [consists of several NCCL
    /// calls](is_several), a group must be open.
    unsafe fn issue(&self, call: &Call) -> Result<(), Refused> {
        let Self { nccl, comm, stream, rank, world, scratch } = *self;
        let (x, y) = (at(call.from, 0), at(call.to, 0));
        let count = call.fingerprint.count as usize;
        let (data_type, operator) = call.reduction.map_or((BYTES, sys::SUM), |reduction| {
            (sys::data_type(reduction.element), self.operator(reduction))
        });
        let (from, to) = (call.from.bytes, call.to.bytes);
        // SAFETY: the memory has the length that each function expects. All lengths have been checked, including that
        // there is one block per rank. No function accesses memory that this rank has not passed.
        unsafe {
            match call.kind {
                Kind::AllReduce => checked(
                    "ncclAllReduce",
                    (nccl.all_reduce)(x, y, count, data_type, operator, comm, stream),
                ),
                Kind::Reduce { root } => {
                    let root = root as c_int;
                    checked("ncclReduce", (nccl.reduce)(x, y, count, data_type, operator, root, comm, stream))
                }
                Kind::ReduceScatter => checked(
                    "ncclReduceScatter",
                    (nccl.reduce_scatter)(x, y, count, data_type, operator, comm, stream),
                ),
                Kind::Broadcast { root } => {
                    checked("ncclBroadcast", (nccl.broadcast)(y, y, to, BYTES, root as c_int, comm, stream))
                }
                Kind::AllGather => {
                    checked("ncclAllGather", (nccl.all_gather)(x, y, from, BYTES, comm, stream))
                }
                Kind::AllToAll => self.exchange(call, 0..world, 0..world),
                Kind::Gather { root } => {
                    self.exchange(call, root..root + 1, if root == rank { 0..world } else { 0..0 })
                }
                Kind::Scatter { root } => {
                    self.exchange(call, if root == rank { 0..world } else { 0..0 }, root..root + 1)
                }
                Kind::Send { to } => {
                    checked("ncclSend", (nccl.send)(x, from, BYTES, to as c_int, comm, stream))
                }
                Kind::Receive { from } => {
                    checked("ncclRecv", (nccl.recv)(y, to, BYTES, from as c_int, comm, stream))
                }
                Kind::Barrier => {
                    let reduced = (nccl.all_reduce)(scratch, scratch, 1, BYTES, sys::SUM, comm, stream);
                    checked("ncclAllReduce", reduced)
                }
            }
        }
    }

    /// Sends one part of `from` to each receiver and receives one part of `to` from each sender.
    ///
    /// # Safety
    /// The caller must uphold the safety contract of [`Self::issue`].
    unsafe fn exchange(
        &self,
        call: &Call,
        receivers: std::ops::Range<usize>,
        senders: std::ops::Range<usize>,
    ) -> Result<(), Refused> {
        let Self { nccl, comm, stream, .. } = *self;
        let part = |memory: Memory, peers: &std::ops::Range<usize>| memory.bytes / peers.len().max(1);
        let (sent, received) = (part(call.from, &receivers), part(call.to, &senders));
        for (index, peer) in receivers.enumerate() {
            let x = at(call.from, index * sent);
            // SAFETY: the memory contains one part per rank.
            checked("ncclSend", unsafe { (nccl.send)(x, sent, BYTES, peer as c_int, comm, stream) })?;
        }
        for (index, peer) in senders.enumerate() {
            let y = at(call.to, index * received);
            // SAFETY: as above.
            checked("ncclRecv", unsafe { (nccl.recv)(y, received, BYTES, peer as c_int, comm, stream) })?;
        }
        Ok(())
    }
}
