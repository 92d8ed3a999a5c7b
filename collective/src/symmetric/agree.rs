//! [`Agreement`]: an exchange of data between all ranks within a call.

use std::sync::Arc;

use crate::error::{CollectiveError, Result};
use crate::exchange::{Bytes, Message, Term, exchange};
use crate::fingerprint::Fingerprint;
use crate::mesh::{Lane, Mesh};

/// Size of a rank's message including its header, in bytes.
const SAID: usize = 512;
/// Maximum size of the data in a message, in bytes.
const MAX_SAID: usize = SAID - 3;

/// Call that all ranks make, on threads that may block.
#[derive(Debug)]
pub(crate) struct Agreement<'a> {
    pub mesh: &'a Mesh,
    /// The operation. If a rank calls a different operation, the error names both.
    pub operation: Arc<Fingerprint>,
    pub term: Term,
}

impl Agreement<'_> {
    /// Sends this rank's data to all ranks, or the reason why this rank has no data, and waits for the other ranks'
    /// data.
    ///
    /// # Errors
    /// If a rank has no data, returns [`CollectiveError::Symmetric`] on all ranks; the error names the first such rank.
    /// Can also return [`CommunicatorError`](crate::CommunicatorError).
    pub fn share(&self, own: Result<Vec<u8>, String>) -> Result<Vec<Vec<u8>>> {
        let (rank, world) = (self.mesh.rank(), self.mesh.world());
        let (is_there, bytes) = match &own {
            Ok(bytes) => (1, &bytes[..]),
            Err(reason) => (0, reason.as_bytes()),
        };
        let len = bytes.len().min(MAX_SAID);
        let mut said = vec![0; SAID];
        said[0] = is_there;
        said[1..3].copy_from_slice(&(len as u16).to_le_bytes());
        said[3..3 + len].copy_from_slice(&bytes[..len]);
        let mut heard = vec![0; world * SAID];
        heard[rank * SAID..(rank + 1) * SAID].copy_from_slice(&said);
        let (all, from) = (Bytes::of(&mut said), Bytes::of(&mut heard));
        let sends = self.mesh.others().map(|other| Message::new(other, all, &self.operation)).collect();
        let receives = self.mesh.others();
        let receives = receives
            .map(|other| Message::new(other, from.part(other * SAID, SAID), &self.operation))
            .collect();
        exchange(self.mesh, Lane::Setup, sends, receives, self.term)
            .map_err(|failure| self.mesh.error(Some((*self.operation).clone()), self.mesh.fail(failure)))?;
        let mut of_ranks = Vec::with_capacity(world);
        for (rank, said) in heard.chunks(SAID).enumerate() {
            let len = usize::from(u16::from_le_bytes([said[1], said[2]])).min(MAX_SAID);
            let bytes = &said[3..3 + len];
            if said[0] == 0 {
                let reason = String::from_utf8_lossy(bytes).into_owned();
                return Err(CollectiveError::Symmetric { rank, reason }.into());
            }
            of_ranks.push(bytes.to_vec());
        }
        Ok(of_ranks)
    }
}
