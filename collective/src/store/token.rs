//! [`Token`]: the secret of a run, with which the two ends of a store connection authenticate each other.
//!
//! The secret itself is never sent, and never appears in messages. Proofs are compared in constant time.

use std::fmt;
use std::io;

use hmac::{Hmac, Mac};
use sha2::Sha256;

use crate::error::{CollectiveError, Result};

/// Size of a nonce, and of a proof, in bytes.
pub(super) const PROOF: usize = 32;
/// Maximum length of a token, in bytes.
const LONGEST: usize = 256;

/// Secret of a run. A server that has a token serves only clients with the same token. `warpsmith launch` generates one
/// token per run and passes it in `WARPSMITH_TOKEN`.
///
/// ```
/// use warpsmith_collective::store::Token;
///
/// let token = Token::generate()?;
/// assert_eq!(Token::new(token.secret()), Some(token));
/// assert!(Token::new("").is_none());
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// Generates a token from 256 random bits provided by the operating system.
    ///
    /// # Errors
    /// Returns [`CollectiveError::NoRandomness`] if the operating system provides no random numbers.
    pub fn generate() -> Result<Self> {
        Ok(Self(nonce()?.iter().map(|byte| format!("{byte:02x}")).collect()))
    }

    /// Creates a token from a string of 1 to 256 bytes. Returns `None` for other lengths.
    pub fn new(text: impl Into<String>) -> Option<Self> {
        let text = text.into();
        (1..=LONGEST).contains(&text.len()).then_some(Self(text))
    }

    /// Returns the secret string.
    pub fn secret(&self) -> &str {
        &self.0
    }

    /// Returns the proof that end `end` of a connection knows the token. The proof depends on the nonces of both ends.
    pub(super) fn proof(&self, end: End, client: &[u8], server: &[u8]) -> [u8; PROOF] {
        self.mac(end, client, server).finalize().into_bytes().into()
    }

    /// Returns whether a proof of the end `end` is valid.
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

/// The end of a connection that sends a proof. Because the proof depends on it, one end cannot reflect the proof of the
/// other.
#[derive(Debug, Clone, Copy)]
pub(super) enum End {
    Client,
    Server,
}

/// Returns random bytes that must be used only once.
pub(super) fn nonce() -> Result<[u8; PROOF]> {
    let mut bytes = [0; PROOF];
    getrandom::fill(&mut bytes)
        .map_err(|error| CollectiveError::NoRandomness { source: io::Error::other(error) })?;
    Ok(bytes)
}
