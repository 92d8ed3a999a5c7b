//! The secret of a run, with which the two ends of a store prove to each other that they belong to it.
//!
//! Guarantees: the secret itself never goes over the wire, nor into text for people; proofs are compared in constant
//! time.

use std::fmt;
use std::io;

use hmac::{Hmac, Mac};
use sha2::Sha256;

use crate::error::{Error, Result};

/// The bytes of a nonce, and of a proof.
pub(super) const PROOF: usize = 32;
/// The longest token, in bytes.
const LONGEST: usize = 256;

/// The secret of a run: a server that has one serves only clients that have the same. `warpsmith launch` makes one for
/// each run, in `WARPSMITH_TOKEN`.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// A new token: 256 random bits of the operating system.
    ///
    /// # Errors
    /// [`Error::NoRandomness`] when it has none.
    pub fn generate() -> Result<Self> {
        Ok(Self(nonce()?.iter().map(|byte| format!("{byte:02x}")).collect()))
    }

    /// The token of this text, of 1 to 256 bytes. `None` for other lengths.
    pub fn new(text: impl Into<String>) -> Option<Self> {
        let text = text.into();
        (1..=LONGEST).contains(&text.len()).then_some(Self(text))
    }

    /// The text: a secret.
    pub fn secret(&self) -> &str {
        &self.0
    }

    /// The proof that `end` knows the token, for the nonces of both ends.
    pub(super) fn proof(&self, end: End, client: &[u8], server: &[u8]) -> [u8; PROOF] {
        self.mac(end, client, server).finalize().into_bytes().into()
    }

    /// Whether a proof is that of `end`.
    pub(super) fn accepts(&self, proof: &[u8], end: End, client: &[u8], server: &[u8]) -> bool {
        self.mac(end, client, server).verify_slice(proof).is_ok()
    }

    fn mac(&self, end: End, client: &[u8], server: &[u8]) -> Hmac<Sha256> {
        let mut mac =
            Hmac::<Sha256>::new_from_slice(self.0.as_bytes()).expect("HMAC takes keys of any length");
        mac.update(match end {
            End::Client => b"warpsmith store client",
            End::Server => b"warpsmith store server",
        });
        mac.update(client);
        mac.update(server);
        mac
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Token(…)")
    }
}

/// The end of a connection whose proof it is, so that none can send the other's back.
#[derive(Debug, Clone, Copy)]
pub(super) enum End {
    Client,
    Server,
}

/// Random bytes that are used once.
pub(super) fn nonce() -> Result<[u8; PROOF]> {
    let mut bytes = [0; PROOF];
    getrandom::fill(&mut bytes).map_err(|error| Error::NoRandomness { source: io::Error::other(error) })?;
    Ok(bytes)
}
