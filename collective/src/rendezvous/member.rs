//! What ranks say about themselves before anything else.

use warpsmith_runtime::Uuid;

use crate::launch::Launch;
use crate::machine;
use crate::rendezvous_error::Place;

/// The version of what ranks say to each other in the store.
const PROTOCOL: u32 = 1;

/// A rank that has come.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Member {
    /// Its number, host and process.
    pub place: Place,
    /// Equal for processes that can share memory and local sockets: the boot of the system, and its namespaces.
    pub host_identity: String,
    /// Its GPU, `GPU-…`, if it has one.
    pub gpu: Option<String>,
    /// The number of ranks that it expects.
    pub(super) world_size: usize,
    /// Warpsmith's version and that of the protocol.
    pub(super) version: String,
}

impl Member {
    /// This process.
    pub(super) fn here(launch: &Launch, gpu: Option<Uuid>) -> Self {
        Self {
            place: Place { rank: launch.rank, host: machine::name().to_owned(), process: std::process::id() },
            host_identity: machine::identity().to_owned(),
            gpu: gpu.map(|gpu| gpu.to_string()),
            world_size: launch.world_size,
            version: format!("{} (protocol {PROTOCOL})", env!("CARGO_PKG_VERSION")),
        }
    }

    /// Its text in the store: a line for each fact.
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

    /// Reads the text of a rank. `None` when it is not one's.
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
