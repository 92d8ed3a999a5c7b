//! Rank, world size and rendezvous address of a process, as specified by the launcher that started it.
//!
//! Malformed, incomplete or contradictory environment variables cause an error that names them. Values that no launcher
//! specifies are never guessed.
//!
//! | launcher | variables |
//! | --- | --- |
//! | `warpsmith launch`, or set manually | `WARPSMITH_RANK`, `WARPSMITH_WORLD_SIZE`, `WARPSMITH_LOCAL_RANK`, `WARPSMITH_LOCAL_WORLD_SIZE`, `WARPSMITH_STORE`, `WARPSMITH_RUN_ID`, `WARPSMITH_RESTART_COUNT`, `WARPSMITH_TOKEN` |
//! | torchrun, Kubernetes, Ray | `RANK`, `WORLD_SIZE`, `LOCAL_RANK`, `LOCAL_WORLD_SIZE`, `MASTER_ADDR`, `MASTER_PORT`, `TORCHELASTIC_…` |
//! | mpirun of Open MPI | `OMPI_COMM_WORLD_RANK`, `…_SIZE`, `…_LOCAL_RANK`, `…_LOCAL_SIZE` |
//! | mpirun of MPICH and Intel | `PMI_RANK`, `PMI_SIZE`, `MPI_LOCALRANKID`, `MPI_LOCALNRANKS` |
//! | srun | `SLURM_PROCID`, `SLURM_NTASKS`, `SLURM_LOCALID`, `SLURM_STEP_NODELIST`; only in a step, with `SLURM_STEP_ID` |
//!
//! The launcher that applies is the first one in this table whose variables are set. Launchers can be nested: srun or
//! mpirun can start torchrun, and mpirun starts its processes through srun. If two launchers could both have started
//! this process and they disagree, an error is returned. Two exceptions apply. The variables that `warpsmith launch`
//! and torchrun set identify their launcher and take precedence over all others. The variables of all other launchers
//! take precedence over Slurm's.

mod address;
mod launchers;
mod nodes;
mod variables;

use std::collections::BTreeMap;
use std::fmt;

pub use self::address::{StoreAddress, StoreHost};
use self::variables::Variables;
use crate::error::Result;
use crate::store::Token;

/// Launcher of the processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Launcher {
    /// No launcher: a single process.
    Alone,
    /// `WARPSMITH_RANK` and `WARPSMITH_WORLD_SIZE`: `warpsmith launch`, or a script.
    Warpsmith,
    /// `RANK` and `WORLD_SIZE`: torchrun, or another program that sets the same variables.
    Torchrun,
    /// Open MPI's mpirun.
    OpenMpi,
    /// The mpirun of MPICH or Intel MPI.
    Mpich,
    /// A Slurm step: srun.
    Slurm,
}

impl fmt::Display for Launcher {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Alone => "no launcher",
            Self::Warpsmith => "Warpsmith",
            Self::Torchrun => "torchrun",
            Self::OpenMpi => "Open MPI",
            Self::Mpich => "MPICH",
            Self::Slurm => "Slurm",
        })
    }
}

/// Rank of a process in a run, together with the world size and the rendezvous address.
///
/// ```
/// use warpsmith_collective::Launch;
///
/// let launch = Launch::from_env()?;
/// println!("rank {} of {}", launch.rank, launch.world_size);
/// # assert_eq!(launch.world_size, 1);
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Launch {
    /// Rank of this process, starting at 0.
    pub rank: usize,
    /// Number of processes.
    pub world_size: usize,
    /// Rank of this process on its host, starting at 0. If each process uses one GPU, this is the index of that GPU.
    pub local_rank: usize,
    /// Number of processes on this host, if the launcher specifies it.
    pub local_world_size: Option<usize>,
    /// Address of the store. `None` for a single process.
    pub store: Option<StoreAddress>,
    /// Name of the run, which is part of the run's keys in the store.
    pub run_id: String,
    /// Number of times that the launcher has restarted the run.
    pub restart_count: u32,
    /// Launcher of the process.
    pub launcher: Launcher,
    /// Secret of the run, if any.
    pub token: Option<Token>,
}

impl Launch {
    /// Returns the launch of a single process.
    pub fn single() -> Self {
        Self {
            rank: 0,
            world_size: 1,
            local_rank: 0,
            local_world_size: Some(1),
            store: None,
            run_id: "alone".to_owned(),
            restart_count: 0,
            launcher: Launcher::Alone,
            token: None,
        }
    }

    /// Returns one launch for each of several threads of this process. The threads share a
    /// [`MemoryStore`](crate::store::MemoryStore).
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

    /// Reads the launch of this process from its environment. Without a launcher, returns the launch of a single
    /// process.
    ///
    /// # Errors
    /// Returns [`CollectiveError::Variable`](crate::CollectiveError::Variable),
    /// [`CollectiveError::MissingVariable`](crate::CollectiveError::MissingVariable), or
    /// [`CollectiveError::Contradiction`](crate::CollectiveError::Contradiction). Each error names the variables and
    /// their values.
    pub fn from_env() -> Result<Self> {
        Variables::of_process()?.launch()
    }

    /// Determines the launch of a process from these environment variables. `parent` is the ID of its parent process.
    /// Processes that mpirun started on the same host use this ID to find each other.
    ///
    /// ```
    /// use std::collections::BTreeMap;
    ///
    /// use warpsmith_collective::{Launcher, Launch};
    ///
    /// let variables = [("SLURM_STEP_ID", "0"), ("SLURM_JOB_ID", "4097"), ("SLURM_PROCID", "3"), ("SLURM_NTASKS", "8"),
    ///     ("SLURM_LOCALID", "1"), ("SLURM_STEP_NODELIST", "gpu[07-10]")];
    /// let variables = BTreeMap::from(variables.map(|(name, value)| (name.to_owned(), value.to_owned())));
    /// let launch = Launch::from_variables(&variables, None)?;
    /// assert_eq!((launch.rank, launch.world_size, launch.local_rank, launch.launcher), (3, 8, 1, Launcher::Slurm));
    /// assert_eq!(launch.store.unwrap().to_string(), "gpu07:61441");
    /// # Ok::<(), warpsmith_runtime::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns the same errors as [`Self::from_env`].
    pub fn from_variables(variables: &BTreeMap<String, String>, parent: Option<u32>) -> Result<Self> {
        Variables::new(variables, parent).launch()
    }

    /// Returns the prefix of this run's keys in the store: `warpsmith/RUN/RESTARTS`.
    pub fn key_prefix(&self) -> String {
        format!("warpsmith/{}/{}", self.run_id, self.restart_count)
    }
}
