//! Selection of a communicator's backend. All ranks use the same inputs and therefore select the same backend.

use std::sync::Arc;

use warpsmith_runtime::Stream;

use super::options::{BackendChoice, CommunicatorOptions};
use crate::backend::Backend;
use crate::error::{CollectiveError, Error, Result};
use crate::host::HostBackend;
use crate::mesh::{DeviceFacts, Mesh};
use crate::nccl::{self, NcclBackend};
use crate::peer::{self, PeerBackend};

/// Inputs of the backend selection, which are available after the rendezvous.
pub(super) struct Choosing<'a> {
    pub stream: &'a Stream,
    pub options: &'a CommunicatorOptions,
    pub mesh: &'a Arc<Mesh>,
    /// Device facts of all ranks.
    pub devices: &'a [DeviceFacts],
}

impl Choosing<'_> {
    /// Returns the backend that the options select for these devices.
    pub fn backend(&self) -> Result<Box<dyn Backend>> {
        let is_emulated = self.devices.iter().all(|device| device.is_emulated && device.nccl.is_none());
        if self.options.shares_gpu && !is_emulated && self.options.backend == BackendChoice::Auto {
            let reason = "`Auto` does not let ranks share a GPU: remove `shared_gpu`, or add \
                          `backend(BackendChoice::Peer)`";
            return Err(self.refused(reason.to_owned()));
        }
        match self.options.backend {
            BackendChoice::Host => self.host(),
            BackendChoice::Auto if is_emulated => self.host(),
            BackendChoice::Nccl => self.nccl(),
            BackendChoice::Auto => {
                let nccl = self.nccl()?;
                // A single rank has no peers.
                if self.mesh.world() == 1 || self.why_no_peers().is_some() {
                    return Ok(nccl);
                }
                match PeerBackend::new(self.peers(true)) {
                    Ok(peer) => Ok(Box::new(peer.with_rest(Some(nccl)))),
                    Err(error) => match error.downcast_ref() {
                        Some(CollectiveError::Symmetric { rank, reason }) => {
                            let name = &self.options.name;
                            tracing::warn!(
                                communicator = name,
                                rank,
                                "the Peer backend is not used, only NCCL: \
                                                                       {reason}"
                            );
                            Ok(nccl)
                        }
                        _ => Err(error),
                    },
                }
            }
            BackendChoice::Peer => {
                if let Some(reason) = self.why_no_peers() {
                    return Err(self.refused(format!("the Peer backend cannot be used: {reason}")));
                }
                let rest = match is_emulated {
                    true => Some(self.host()?),
                    // A rank without NCCL has reported this in its device facts.
                    false if self.devices.iter().all(|device| matches!(device.nccl, Some(Ok(_)))) => {
                        Some(self.nccl()?)
                    }
                    false => None,
                };
                let peer =
                    PeerBackend::new(self.peers(false)).map_err(|error| match error.downcast_ref() {
                        Some(CollectiveError::Symmetric { .. }) => {
                            self.refused(format!("the Peer backend cannot be used: {error}"))
                        }
                        _ => error,
                    })?;
                Ok(Box::new(peer.with_rest(rest)))
            }
        }
    }

    fn refused(&self, reason: String) -> Error {
        let (rank, world_size) = (self.mesh.rank(), self.mesh.world());
        CollectiveError::Init { communicator: self.options.name.clone(), rank, world_size, reason }.into()
    }

    fn peers(&self, is_auto: bool) -> peer::Making<'_> {
        let (mesh, stream, timeout) = (self.mesh, self.stream, self.options.init_timeout);
        peer::Making { mesh, stream, timeout, is_auto }
    }

    /// Returns the reason why the ranks cannot access each other's memory, if it is known in advance.
    fn why_no_peers(&self) -> Option<String> {
        if self.devices.len() > peer::MAX_RANKS {
            return Some(format!(
                "it supports at most {} ranks, but the communicator has {}",
                peer::MAX_RANKS,
                self.devices.len()
            ));
        }
        let mut first = None;
        for (rank, device) in self.devices.iter().enumerate() {
            match &device.shares {
                None => return Some(format!("rank {rank} requested another backend")),
                Some(Err(reason)) => return Some(format!("rank {rank}: {reason}")),
                Some(Ok(host)) => {
                    if host != *first.get_or_insert(host) {
                        return Some(format!(
                            "ranks 0 and {rank} are on different hosts or in different containers"
                        ));
                    }
                }
            }
        }
        None
    }

    fn host(&self) -> Result<Box<dyn Backend>> {
        if let Some(device) = self.devices.iter().find(|device| !device.is_emulated) {
            let name = &device.name;
            return Err(self.refused(format!("the Host backend supports only emulated devices, not {name}")));
        }
        Ok(Box::new(HostBackend::new(Arc::clone(self.mesh), self.options.is_checked)))
    }

    fn nccl(&self) -> Result<Box<dyn Backend>> {
        let mut versions = Vec::new();
        for (rank, device) in self.devices.iter().enumerate() {
            match &device.nccl {
                Some(Ok(version)) => versions.push((rank, *version)),
                Some(Err(reason)) => return Err(self.refused(format!("rank {rank}: {reason}"))),
                None => {
                    let reason = format!("NCCL supports only GPUs, but rank {rank} uses {}", device.name);
                    return Err(self.refused(reason));
                }
            }
        }
        if let Some((other, theirs)) = versions.iter().find(|(_, version)| *version != versions[0].1) {
            return Err(self.refused(format!(
                "rank 0 has NCCL {}, but rank {other} has NCCL {}; install the same version on all ranks",
                nccl::version_text(versions[0].1),
                nccl::version_text(*theirs)
            )));
        }
        let (mesh, stream) = (self.mesh, self.stream);
        let (timeout, is_checked) = (self.options.init_timeout, self.options.is_checked);
        let nccl = self.options.nccl().map_err(|error| self.refused(error.to_string()))?;
        Ok(Box::new(NcclBackend::new(nccl::Making { nccl, mesh, stream, timeout, is_checked })?))
    }
}
