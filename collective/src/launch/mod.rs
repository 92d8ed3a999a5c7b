//! Which rank a process is, of how many, and where they meet: from the engine that started it.
//!
//! Guarantees: variables of the environment that are malformed, incomplete or contradict each other are an error that
//! names them; what no engine says is not guessed.
//!
//! | engine | variables |
//! | --- | --- |
//! | `warpsmith launch`, or by hand | `WARPSMITH_RANK`, `WARPSMITH_WORLD_SIZE`, `WARPSMITH_LOCAL_RANK`, `WARPSMITH_LOCAL_WORLD_SIZE`, `WARPSMITH_STORE`, `WARPSMITH_RUN_ID`, `WARPSMITH_RESTART_COUNT`, `WARPSMITH_TOKEN` |
//! | torchrun, Kubernetes, Ray | `RANK`, `WORLD_SIZE`, `LOCAL_RANK`, `LOCAL_WORLD_SIZE`, `MASTER_ADDR`, `MASTER_PORT`, `TORCHELASTIC_…` |
//! | mpirun of Open MPI | `OMPI_COMM_WORLD_RANK`, `…_SIZE`, `…_LOCAL_RANK`, `…_LOCAL_SIZE` |
//! | mpirun of MPICH and Intel | `PMI_RANK`, `PMI_SIZE`, `MPI_LOCALRANKID`, `MPI_LOCALNRANKS` |
//! | srun | `SLURM_PROCID`, `SLURM_NTASKS`, `SLURM_LOCALID`, `SLURM_STEP_NODELIST`, in a step only: `SLURM_STEP_ID` |
//!
//! The first of them that there is decides. One engine may run inside another: torchrun may be what srun or mpirun
//! started, mpirun starts its processes through srun. Where both could have started this process and they do not agree,
//! that is an error: the variables of `warpsmith launch` and torchrun, which name their engine, win over all others;
//! those of any engine win over Slurm's.

mod address;
mod engines;
mod nodes;
mod variables;

use std::collections::BTreeMap;
use std::fmt;

pub use self::address::{StoreAddress, StoreHost};
use self::variables::Variables;
use crate::error::Result;
use crate::store::Token;

/// What started the processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Engine {
    /// Nothing: a process alone.
    Alone,
    /// `WARPSMITH_RANK` and `WARPSMITH_WORLD_SIZE`: `warpsmith launch`, or a script.
    Warpsmith,
    /// `RANK` and `WORLD_SIZE`: torchrun, or what sets its variables.
    Torchrun,
    /// Open MPI's mpirun.
    OpenMpi,
    /// The mpirun of MPICH, and of Intel MPI.
    Mpich,
    /// A step of Slurm: srun.
    Slurm,
}

impl fmt::Display for Engine {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Alone => "no engine",
            Self::Warpsmith => "Warpsmith",
            Self::Torchrun => "torchrun",
            Self::OpenMpi => "Open MPI",
            Self::Mpich => "MPICH",
            Self::Slurm => "Slurm",
        })
    }
}

/// The place of a process among those that were started together.
///
/// ```
/// use warpsmith_collective::Launch;
///
/// # fn main() -> warpsmith_collective::Result<()> {
/// let launch = Launch::from_env()?;
/// println!("rank {} of {}", launch.rank, launch.world_size);
/// # assert_eq!(launch.world_size, 1);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Launch {
    /// This process, from 0.
    pub rank: usize,
    /// The number of processes.
    pub world_size: usize,
    /// This process among those of its host, from 0: the number of its GPU, where each process has one.
    pub local_rank: usize,
    /// The number of processes on its host, if the engine says.
    pub local_world_size: Option<usize>,
    /// Where the processes meet. `None` for a process alone.
    pub store: Option<StoreAddress>,
    /// The name of the run, which its keys in the store have.
    pub run_id: String,
    /// How often the engine has started the run again.
    pub restart_count: u32,
    /// What started the process.
    pub engine: Engine,
    /// The secret of the run, if it has one.
    pub token: Option<Token>,
}

impl Launch {
    /// A process alone.
    pub fn single() -> Self {
        Self {
            rank: 0,
            world_size: 1,
            local_rank: 0,
            local_world_size: Some(1),
            store: None,
            run_id: "alone".to_owned(),
            restart_count: 0,
            engine: Engine::Alone,
            token: None,
        }
    }

    /// The places of threads of this process, which share a [`MemoryStore`](crate::store::MemoryStore).
    pub fn threads(world_size: usize) -> impl Iterator<Item = Self> {
        (0..world_size).map(move |rank| Self {
            rank,
            world_size,
            local_rank: rank,
            local_world_size: Some(world_size),
            run_id: "threads".to_owned(),
            ..Self::single()
        })
    }

    /// The place of this process, from its environment; a process alone if no engine started it.
    ///
    /// # Errors
    /// [`Error::Variable`](crate::Error::Variable), [`Error::MissingVariable`](crate::Error::MissingVariable),
    /// [`Error::Contradiction`](crate::Error::Contradiction): each names variables and their values.
    pub fn from_env() -> Result<Self> {
        Variables::of_process()?.launch()
    }

    /// The place of a process with these environment variables, which `parent` started: processes that mpirun started
    /// on one host find each other by the number of the process that started them.
    ///
    /// ```
    /// use std::collections::BTreeMap;
    ///
    /// use warpsmith_collective::{Engine, Launch};
    ///
    /// # fn main() -> warpsmith_collective::Result<()> {
    /// let variables = [("SLURM_STEP_ID", "0"), ("SLURM_JOB_ID", "4097"), ("SLURM_PROCID", "3"), ("SLURM_NTASKS", "8"),
    ///     ("SLURM_LOCALID", "1"), ("SLURM_STEP_NODELIST", "gpu[07-10]")];
    /// let variables = BTreeMap::from(variables.map(|(name, value)| (name.to_owned(), value.to_owned())));
    /// let launch = Launch::from_variables(&variables, None)?;
    /// assert_eq!((launch.rank, launch.world_size, launch.local_rank, launch.engine), (3, 8, 1, Engine::Slurm));
    /// assert_eq!(launch.store.unwrap().to_string(), "gpu07:61441");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Self::from_env`].
    pub fn from_variables(variables: &BTreeMap<String, String>, parent: Option<u32>) -> Result<Self> {
        Variables::new(variables, parent).launch()
    }

    /// Begins the keys of this run in a store: `warpsmith/RUN/RESTARTS`.
    pub fn key_prefix(&self) -> String {
        format!("warpsmith/{}/{}", self.run_id, self.restart_count)
    }
}
