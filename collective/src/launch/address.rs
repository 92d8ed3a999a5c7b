//! Address of the store through which the processes of a run rendezvous.

use std::fmt;

use super::launchers::Identity;
use super::variables::{Read, Variables};
use super::{Launcher, nodes};
use crate::error::{CollectiveError, Error, Result};

/// First port and number of ports for runs whose launcher does not specify a port. As in JAX, these ports are above the
/// ephemeral ports of Linux.
const PORTS: (u16, u64) = (61440, 4096);

/// Address of the store through which the processes of a run rendezvous.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreAddress {
    /// Host name or IP address of the server.
    pub host: String,
    /// Port of the server.
    pub port: u16,
    /// Process that serves the store.
    pub served_by: StoreHost,
}

/// Process that serves the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StoreHost {
    /// Rank 0 of the run.
    Rank0,
    /// `warpsmith launch`.
    Launcher,
    /// torchrun's agent, with PyTorch's server.
    Agent,
}

impl fmt::Display for StoreAddress {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port, .. } = self;
        if host.contains(':') { write!(out, "[{host}]:{port}") } else { write!(out, "{host}:{port}") }
    }
}

impl Variables {
    /// Returns the address of the store, or `None` for a single process if no variable specifies an address.
    pub(super) fn store(&self, identity: &Identity) -> Result<Option<StoreAddress>> {
        if let Some(text) = self.text("WARPSMITH_STORE") {
            return self.named(text).map(Some);
        }
        if self.has("MASTER_ADDR") || self.has("MASTER_PORT") {
            return self.master(identity).map(Some);
        }
        if identity.world_size.value == 1 {
            return Ok(None);
        }
        let present = self.shown(identity.rank.name);
        let missing =
            |missing, advice| Error::from(CollectiveError::MissingVariable { missing, present, advice });
        match identity.launcher {
            Launcher::Slurm => self.of_slurm_step().map(Some),
            Launcher::OpenMpi | Launcher::Mpich => {
                let is_local =
                    identity.local_world_size.is_some_and(|local| local.value == identity.world_size.value);
                let number = self.text("PMIX_NAMESPACE").map(hash).or(self.parent.map(u64::from));
                match number.filter(|_| is_local) {
                    Some(number) => Ok(Some(at("127.0.0.1".to_owned(), port(number)))),
                    None => Err(missing("WARPSMITH_STORE", OF_MPI)),
                }
            }
            Launcher::Torchrun => Err(missing(
                "MASTER_ADDR",
                "set it to the host of rank 0, and MASTER_PORT to a free port there",
            )),
            Launcher::Warpsmith | Launcher::Alone => Err(missing(
                "WARPSMITH_STORE",
                "set it to HOST:PORT, with the host of rank 0 and a free port there",
            )),
        }
    }

    fn named(&self, text: &str) -> Result<StoreAddress> {
        let wrong = |problem: &str| self.wrong("WARPSMITH_STORE", problem);
        let problem = "this must be HOST:PORT";
        let (host, port) = text.rsplit_once(':').ok_or_else(|| wrong(problem))?;
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let port = port.parse().ok().filter(|port| *port > 0).ok_or_else(|| wrong(problem))?;
        if host.is_empty() {
            return Err(wrong(problem));
        }
        let served_by = match self.text("WARPSMITH_STORE_SERVER") {
            None | Some("rank0") => StoreHost::Rank0,
            Some("launcher") => StoreHost::Launcher,
            Some(_) => return Err(self.wrong("WARPSMITH_STORE_SERVER", "this must be rank0 or launcher")),
        };
        Ok(StoreAddress { host: host.to_owned(), port, served_by })
    }

    /// Returns the address specified by torchrun or by the user.
    fn master(&self, identity: &Identity) -> Result<StoreAddress> {
        let missing = |missing, present| {
            Error::from(CollectiveError::MissingVariable {
                missing,
                present: self.shown(present),
                advice: "set both, to rank 0's host and a free port there",
            })
        };
        let host = self.text("MASTER_ADDR").ok_or_else(|| missing("MASTER_ADDR", "MASTER_PORT"))?.trim();
        let port = self.number::<u16>("MASTER_PORT")?.ok_or_else(|| missing("MASTER_PORT", "MASTER_ADDR"))?;
        if port.value == 0 {
            return Err(self.wrong("MASTER_PORT", "this must be a port, from 1 to 65535"));
        }
        if host.is_empty() || host.contains(char::is_whitespace) {
            return Err(self.wrong("MASTER_ADDR", "this must be a host name or address"));
        }
        let agent = "TORCHELASTIC_USE_AGENT_STORE";
        let served_by = match self.text(agent) {
            Some("True") if identity.launcher == Launcher::Torchrun => StoreHost::Agent,
            None | Some("True" | "False") => StoreHost::Rank0,
            Some(_) => return Err(self.wrong(agent, "this must be True or False")),
        };
        Ok(StoreAddress { host: host.to_owned(), port: port.value, served_by })
    }

    fn of_slurm_step(&self) -> Result<StoreAddress> {
        let missing = |missing| {
            Error::from(CollectiveError::MissingVariable {
                missing,
                present: self.shown("SLURM_STEP_ID"),
                advice: "start the program with srun, or set WARPSMITH_STORE to HOST:PORT of rank 0",
            })
        };
        let name = "SLURM_STEP_NODELIST";
        let list = self.text(name).ok_or_else(|| missing(name))?;
        let host = nodes::first_host(list).ok_or_else(|| self.wrong(name, "this is not a list of hosts"))?;
        let job: Read<u64> = self.number("SLURM_JOB_ID")?.ok_or_else(|| missing("SLURM_JOB_ID"))?;
        Ok(at(host, port(job.value)))
    }
}

const OF_MPI: &str = "mpirun does not provide the host of rank 0; set the variable for all processes to that host \
                      and a free port: mpirun -x WARPSMITH_STORE=HOST:PORT, mpiexec -genv WARPSMITH_STORE HOST:PORT";

fn at(host: String, port: u16) -> StoreAddress {
    StoreAddress { host, port, served_by: StoreHost::Rank0 }
}

fn port(number: u64) -> u16 {
    PORTS.0 + u16::try_from(number % PORTS.1).expect("less than the number of ports")
}

/// Computes the FNV-1a hash, which is the same in every process.
fn hash(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}
