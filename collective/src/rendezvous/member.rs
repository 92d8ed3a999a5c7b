//! [`Member`]: the data that a rank publishes first in a rendezvous.

use warpsmith_runtime::Uuid;

use crate::launch::Launch;
use crate::machine;
use crate::rendezvous_error::Place;

/// Version of the protocol that ranks use in the store.
const PROTOCOL: u32 = 1;

/// Rank that has arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Member {
    /// Rank, host and process.
    pub place: Place,
    /// Identifies the host by its boot ID and the namespaces of the process. Processes with the same identity can share
    /// memory and local sockets.
    pub host_identity: String,
    /// UUID of the GPU that the rank uses (`GPU-…`), if any.
    pub gpu: Option<String>,
    /// World size that the rank expects.
    pub(super) world_size: usize,
    /// Versions of Warpsmith and of the protocol.
    pub(super) version: String,
}

impl Member {
    /// Returns the member that describes this process.
    pub(super) fn here(launch: &Launch, gpu: Option<Uuid>) -> Self {
        Self {
            place: Place { rank: launch.rank, host: machine::name().to_owned(), process: std::process::id() },
            host_identity: machine::identity().to_owned(),
            gpu: gpu.map(|gpu| gpu.to_string()),
            world_size: launch.world_size,
            version: format!("{} (protocol {PROTOCOL})", env!("CARGO_PKG_VERSION")),
        }
    }

    /// Encodes the member for the store, with one line per field.
    pub(super) fn text(&self) -> String {
        let Self { place, host_identity, gpu, world_size, version } = self;
        let facts = [
            ("version", version.clone()),
            ("world_size", world_size.to_string()),
            ("rank", place.rank.to_string()),
            ("host", place.host.clone()),
            ("host_identity", host_identity.clone()),
            ("process", place.process.to_string()),
            ("gpu", gpu.clone().unwrap_or_default()),
        ];
        facts.iter().map(|(name, value)| format!("{name}={}\n", value.replace(['\n', '\0'], " "))).collect()
    }

    /// Decodes a member. Returns `None` if the text is malformed.
    pub(super) fn read(text: &[u8]) -> Option<Self> {
        let text = str::from_utf8(text).ok()?;
        let fact = |name: &str| {
            text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('=')).map(str::to_owned)
        };
        Some(Self {
            place: Place {
                rank: fact("rank")?.parse().ok()?,
                host: fact("host")?,
                process: fact("process")?.parse().ok()?,
            },
            host_identity: fact("host_identity")?,
            gpu: fact("gpu").filter(|gpu| !gpu.is_empty()),
            world_size: fact("world_size")?.parse().ok()?,
            version: fact("version")?,
        })
    }
}
