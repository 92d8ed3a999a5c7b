//! Identity of a process according to each launcher, and selection of the launcher that applies.

use super::variables::{Read, Variables};
use super::{Launch, Launcher, nodes};
use crate::error::{CollectiveError, Error, Result};
use crate::store::Token;

/// First of the Slurm step IDs reserved for pseudo-steps, such as batch scripts and interactive shells of salloc.
const NO_STEPS: u64 = 0xffff_fff0;
/// Maximum length of a run's name, in bytes.
const LONGEST_RUN_ID: usize = 256;

/// Identity of a process according to one launcher.
#[derive(Debug)]
pub(super) struct Identity {
    pub launcher: Launcher,
    pub rank: Read<usize>,
    pub world_size: Read<usize>,
    pub local_rank: Option<Read<usize>>,
    pub local_world_size: Option<Read<usize>>,
}

impl Variables {
    /// Returns the process's rank and the other values of its launch.
    pub(super) fn launch(&self) -> Result<Launch> {
        let Some(identity) = self.identity()? else {
            return Ok(Launch { token: self.token()?, ..Launch::single() });
        };
        identity.check(self)?;
        let local_rank = match identity.local_rank {
            Some(local_rank) => local_rank.value,
            None if identity.world_size.value == 1 => 0,
            None => {
                let missing = match identity.launcher {
                    Launcher::Torchrun => "LOCAL_RANK",
                    _ => "WARPSMITH_LOCAL_RANK",
                };
                let advice = "set it to the index of this process on its host, starting with 0";
                return Err(CollectiveError::MissingVariable {
                    missing,
                    present: self.shown(identity.rank.name),
                    advice,
                }
                .into());
            }
        };
        let restarts = ["WARPSMITH_RESTART_COUNT", "TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT"];
        Ok(Launch {
            rank: identity.rank.value,
            world_size: identity.world_size.value,
            local_rank,
            local_world_size: identity.local_world_size.map(|size| size.value),
            store: self.store(&identity)?,
            run_id: self.run_id(identity.launcher)?,
            restart_count: self.first(&restarts)?.map_or(0, |count| count.value),
            launcher: identity.launcher,
            token: self.token()?,
        })
    }

    /// Returns the identity from the launcher that applies, completed with values from the other launchers.
    fn identity(&self) -> Result<Option<Identity>> {
        let found = match (self.of_warpsmith()?, self.of_torchrun()?) {
            (Some(own), _) if self.text("WARPSMITH_STORE_SERVER") == Some("launcher") => {
                return Ok(Some(own));
            }
            (None, Some(torchrun)) if self.has("TORCHELASTIC_RUN_ID") => return Ok(Some(torchrun)),
            (own, torchrun) => [own, torchrun, self.of_open_mpi()?, self.of_mpich()?],
        };
        let mut found = found.into_iter().flatten();
        let Some(mut first) = found.next() else { return self.of_slurm() };
        // A script can set its own variables in addition to Slurm's. The launchers themselves run in Slurm steps with
        // one task per host.
        let slurm = if first.launcher == Launcher::Warpsmith { self.of_slurm()? } else { None };
        for other in found.chain(slurm) {
            first.agree(&other, self)?;
            first.local_rank = first.local_rank.or(other.local_rank);
            first.local_world_size = first.local_world_size.or(other.local_world_size);
        }
        Ok(Some(first))
    }

    fn of(
        &self,
        launcher: Launcher,
        names: [&'static str; 4],
        advice: &'static str,
    ) -> Result<Option<Identity>> {
        let [rank, world_size, local_rank, local_world_size] = names;
        let (rank, world_size) = match (self.number(rank)?, self.number(world_size)?) {
            (None, None) => return Ok(None),
            (Some(rank), Some(world_size)) => (rank, world_size),
            (Some(_), None) => {
                return Err(CollectiveError::MissingVariable {
                    missing: world_size,
                    present: self.shown(rank),
                    advice,
                }
                .into());
            }
            (None, Some(_)) => {
                return Err(CollectiveError::MissingVariable {
                    missing: rank,
                    present: self.shown(world_size),
                    advice,
                }
                .into());
            }
        };
        let (local_rank, local_world_size) = (self.number(local_rank)?, self.number(local_world_size)?);
        Ok(Some(Identity { launcher, rank, world_size, local_rank, local_world_size }))
    }

    fn of_warpsmith(&self) -> Result<Option<Identity>> {
        const NAMES: [&str; 4] =
            ["WARPSMITH_RANK", "WARPSMITH_WORLD_SIZE", "WARPSMITH_LOCAL_RANK", "WARPSMITH_LOCAL_WORLD_SIZE"];
        self.of(Launcher::Warpsmith, NAMES, "set both, or neither")
    }

    fn of_torchrun(&self) -> Result<Option<Identity>> {
        const NAMES: [&str; 4] = ["RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"];
        self.of(Launcher::Torchrun, NAMES, "set both, as torchrun does, or neither")
    }

    fn of_open_mpi(&self) -> Result<Option<Identity>> {
        const NAMES: [&str; 4] = [
            "OMPI_COMM_WORLD_RANK",
            "OMPI_COMM_WORLD_SIZE",
            "OMPI_COMM_WORLD_LOCAL_RANK",
            "OMPI_COMM_WORLD_LOCAL_SIZE",
        ];
        self.of(Launcher::OpenMpi, NAMES, "mpirun sets both: pass its environment on")
    }

    fn of_mpich(&self) -> Result<Option<Identity>> {
        const NAMES: [&str; 4] = ["PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"];
        // srun also sets the first two of these variables.
        if self.is_slurm_step()? && !self.has(NAMES[2]) {
            return Ok(None);
        }
        self.of(Launcher::Mpich, NAMES, "mpiexec sets both: pass its environment on")
    }

    fn is_slurm_step(&self) -> Result<bool> {
        let step: Option<Read<u64>> = match self.text("SLURM_STEP_ID") {
            None => None,
            Some(_) => self.number("SLURM_STEP_ID")?,
        };
        Ok(step.is_some_and(|step| step.value < NO_STEPS))
    }

    fn of_slurm(&self) -> Result<Option<Identity>> {
        if !self.is_slurm_step()? {
            return Ok(None);
        }
        let missing = |missing| {
            Error::from(CollectiveError::MissingVariable {
                missing,
                present: self.shown("SLURM_STEP_ID"),
                advice: "srun sets it: pass its environment on",
            })
        };
        let tasks = ["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"];
        let nodes = ["SLURM_STEP_NUM_NODES", "SLURM_NNODES"];
        let rank = self.number("SLURM_PROCID")?.ok_or_else(|| missing("SLURM_PROCID"))?;
        let world_size = self.first(&tasks)?.ok_or_else(|| missing("SLURM_NTASKS"))?;
        let local_rank = self.number("SLURM_LOCALID")?.ok_or_else(|| missing("SLURM_LOCALID"))?;
        let counts = "SLURM_STEP_TASKS_PER_NODE";
        let node: Option<Read<usize>> = self.number("SLURM_NODEID")?;
        let local_world_size = match (self.text(counts), node) {
            (Some(list), Some(node)) => {
                let problem =
                    || format!("this is not a list of counts with an entry for {}", self.shown(node.name));
                let value =
                    nodes::count_of_node(list, node.value).ok_or_else(|| self.wrong(counts, problem()))?;
                Some(Read { name: counts, value })
            }
            _ => self.first::<usize>(&nodes)?.filter(|nodes| nodes.value == 1).map(|_| world_size),
        };
        Ok(Some(Identity {
            launcher: Launcher::Slurm,
            rank,
            world_size,
            local_rank: Some(local_rank),
            local_world_size,
        }))
    }

    fn run_id(&self, launcher: Launcher) -> Result<String> {
        let name = match launcher {
            _ if self.has("WARPSMITH_RUN_ID") => "WARPSMITH_RUN_ID",
            Launcher::Torchrun => "TORCHELASTIC_RUN_ID",
            Launcher::OpenMpi => "PMIX_NAMESPACE",
            _ => "",
        };
        match (self.text(name), launcher) {
            (Some(""), _) => Err(self.wrong(name, "the name of a run must not be empty")),
            (Some(id), _) if id.len() > LONGEST_RUN_ID => {
                Err(self.wrong(name, format!("the name of a run can have at most {LONGEST_RUN_ID} bytes")))
            }
            (Some(id), _) => Ok(id.to_owned()),
            (None, Launcher::Slurm) => {
                let part = |name| self.text(name).unwrap_or("0");
                Ok(format!("slurm-{}.{}", part("SLURM_JOB_ID"), part("SLURM_STEP_ID")))
            }
            (None, Launcher::OpenMpi | Launcher::Mpich)
                if !self.has("WARPSMITH_STORE") && !self.has("MASTER_ADDR") =>
            {
                Ok(format!("mpi-{}", self.parent.unwrap_or(0)))
            }
            (None, _) => Ok("run".to_owned()),
        }
    }

    fn token(&self) -> Result<Option<Token>> {
        let name = "WARPSMITH_TOKEN";
        let secret = || {
            Error::from(CollectiveError::Variable {
                name: name.to_owned(),
                value: "…".to_owned(),
                problem: "a token must have 1 to 256 bytes".to_owned(),
            })
        };
        self.text(name).map(|text| Token::new(text).ok_or_else(secret)).transpose()
    }
}

impl Identity {
    fn check(&self, variables: &Variables) -> Result<()> {
        let below = |low: Read<usize>, high: Read<usize>| {
            let problem = format!("this must be less than {}", variables.shown(high.name));
            if low.value < high.value { Ok(()) } else { Err(variables.wrong(low.name, problem)) }
        };
        below(self.rank, self.world_size)?;
        if let Some(local_rank) = self.local_rank {
            below(local_rank, self.local_world_size.unwrap_or(self.world_size))?;
        }
        match self.local_world_size {
            Some(local) if local.value > self.world_size.value => {
                let problem = format!("this must be at most {}", variables.shown(self.world_size.name));
                Err(variables.wrong(local.name, problem))
            }
            _ => Ok(()),
        }
    }

    /// Fails if two launchers specify different values for the same quantity.
    fn agree(&self, other: &Self, variables: &Variables) -> Result<()> {
        let pairs = [
            (Some(self.world_size), Some(other.world_size)),
            (Some(self.rank), Some(other.rank)),
            (self.local_world_size, other.local_world_size),
            (self.local_rank, other.local_rank),
        ];
        for pair in pairs {
            if let (Some(own), Some(others)) = pair
                && own.value != others.value
            {
                let said = |read: Read<usize>| {
                    (read.name.to_owned(), variables.text(read.name).unwrap_or_default().to_owned())
                };
                return Err(CollectiveError::Contradiction { first: said(own), second: said(others) }.into());
            }
        }
        Ok(())
    }
}
