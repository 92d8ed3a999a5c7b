//! Launches that are read from the environments of launchers.

use std::collections::BTreeMap;

use warpsmith_collective::{Launch, Launcher, StoreAddress, StoreHost};

use crate::alone::only_alone;

const TORCHRUN: &str = "RANK=5 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=4 GROUP_RANK=1 MASTER_ADDR=gpu01 MASTER_PORT=29400 \
                        TORCHELASTIC_USE_AGENT_STORE=True TORCHELASTIC_RESTART_COUNT=2 TORCHELASTIC_MAX_RESTARTS=3 \
                        TORCHELASTIC_RUN_ID=run-9";
const SLURM: &str = "SLURM_JOB_ID=10000 SLURM_STEP_ID=3 SLURM_PROCID=6 SLURM_NTASKS=11 SLURM_LOCALID=2 SLURM_NODEID=1 \
                     SLURM_STEP_NODELIST=gpu[03-04,7] SLURM_STEP_TASKS_PER_NODE=4(x2),3 SLURM_NNODES=3";
const OPEN_MPI: &str = "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=1 \
                        OMPI_COMM_WORLD_LOCAL_SIZE=2 PMIX_NAMESPACE=prterun-vm-1961@1 PMIX_RANK=1";
const MPICH: &str = "PMI_RANK=1 PMI_SIZE=2 PMI_FD=9 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2";
const BY_HAND: &str =
    "WARPSMITH_RANK=1 WARPSMITH_WORLD_SIZE=2 WARPSMITH_LOCAL_RANK=0 WARPSMITH_STORE=gpu01:4711";

fn launch(texts: &[&str]) -> Result<Launch, String> {
    let variables: BTreeMap<String, String> = texts
        .iter()
        .flat_map(|text| text.split_whitespace())
        .map(|variable| variable.split_once('=').unwrap())
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    Launch::from_variables(&variables, Some(4097)).map_err(|error| error.to_string())
}

/// Returns the rank, the world size, the local rank and the local world size.
fn place(launch: &Launch) -> (usize, usize, usize, Option<usize>) {
    (launch.rank, launch.world_size, launch.local_rank, launch.local_world_size)
}

fn store(launch: &Launch) -> String {
    launch.store.as_ref().unwrap().to_string()
}

#[test]
fn no_variables_are_a_process_alone() {
    let alone = launch(&[]).unwrap();
    assert_eq!(alone, Launch::single());
    assert_eq!((place(&alone), alone.store, alone.launcher), ((0, 1, 0, Some(1)), None, Launcher::Alone));
    // These are Slurm's variables in a shell of salloc, and in a batch script.
    let shell = "SLURM_JOB_ID=7 SLURM_PROCID=0 SLURM_NTASKS=8 SLURM_LOCALID=0 SLURM_NNODES=2";
    assert_eq!(launch(&[shell]).unwrap().launcher, Launcher::Alone);
    assert_eq!(launch(&[shell, "SLURM_STEP_ID=4294967291"]).unwrap().launcher, Launcher::Alone);
    assert_eq!(launch(&[shell, "SLURM_STEP_ID=4294967290"]).unwrap().launcher, Launcher::Alone);
}

#[test]
fn torchrun_is_understood() {
    let run = launch(&[TORCHRUN]).unwrap();
    assert_eq!((place(&run), run.launcher), ((5, 8, 1, Some(4)), Launcher::Torchrun));
    assert_eq!((store(&run), run.run_id.as_str(), run.restart_count), ("gpu01:29400".to_owned(), "run-9", 2));
    assert_eq!(run.key_prefix(), "warpsmith/run-9/2");
    assert!(matches!(run.store, Some(StoreAddress { served_by: StoreHost::Agent, .. })));
    let own = launch(&[TORCHRUN, "TORCHELASTIC_USE_AGENT_STORE=False"]).unwrap();
    assert!(matches!(own.store, Some(StoreAddress { served_by: StoreHost::Rank0, .. })));
}

#[test]
fn a_slurm_step_is_understood() {
    let run = launch(&[SLURM]).unwrap();
    assert_eq!((place(&run), run.launcher), ((6, 11, 2, Some(4)), Launcher::Slurm));
    assert_eq!(
        (store(&run), run.run_id.as_str()),
        (format!("gpu03:{}", 61440 + 10000 % 4096), "slurm-10000.3")
    );
    assert_eq!(place(&launch(&[SLURM, "SLURM_NODEID=2 SLURM_LOCALID=0 SLURM_PROCID=8"]).unwrap()).3, Some(3));
    assert_eq!(store(&launch(&[SLURM, "MASTER_ADDR=head MASTER_PORT=9"]).unwrap()), "head:9");
}

#[test]
fn mpi_on_one_host_is_understood() {
    let open_mpi = launch(&[OPEN_MPI]).unwrap();
    assert_eq!((place(&open_mpi), open_mpi.launcher), ((1, 2, 1, Some(2)), Launcher::OpenMpi));
    assert_eq!(open_mpi.run_id, "prterun-vm-1961@1");
    let same = launch(&[OPEN_MPI, "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_LOCAL_RANK=0"]).unwrap();
    assert_eq!((same.store, &same.run_id), (open_mpi.store.clone(), &open_mpi.run_id));
    assert!(store(&open_mpi).starts_with("127.0.0.1:6"), "{}", store(&open_mpi));
    let mpich = launch(&[MPICH]).unwrap();
    assert_eq!((place(&mpich), mpich.launcher), ((1, 2, 1, Some(2)), Launcher::Mpich));
    assert_eq!((store(&mpich), mpich.run_id.as_str()), ("127.0.0.1:61441".to_owned(), "mpi-4097"));
}

#[test]
fn mpi_on_several_hosts_needs_an_address() {
    let far = "OMPI_COMM_WORLD_SIZE=4";
    let error = launch(&[OPEN_MPI, far]).unwrap_err();
    assert!(error.contains("OMPI_COMM_WORLD_RANK=1 is set but WARPSMITH_STORE is not"), "{error}");
    assert!(error.contains("mpirun -x WARPSMITH_STORE=HOST:PORT"), "{error}");
    assert_eq!(store(&launch(&[OPEN_MPI, far, "MASTER_ADDR=gpu01 MASTER_PORT=4711"]).unwrap()), "gpu01:4711");
    let run = launch(&[OPEN_MPI, far, "WARPSMITH_STORE=[fe80::1]:4711"]).unwrap();
    assert_eq!(store(&run), "[fe80::1]:4711");
}

#[test]
fn variables_set_by_hand_are_understood() {
    let run = launch(&[BY_HAND]).unwrap();
    assert_eq!((place(&run), run.launcher), ((1, 2, 0, None), Launcher::Warpsmith));
    assert_eq!((store(&run), run.run_id.as_str(), run.token), ("gpu01:4711".to_owned(), "run", None));
    let run = launch(&[BY_HAND, "WARPSMITH_TOKEN=abc WARPSMITH_RUN_ID=r1"]).unwrap();
    assert_eq!(run.run_id, "r1");
    assert_eq!(
        (format!("{:?}", run.token), run.token.unwrap().secret()),
        ("Some(Token(…))".to_owned(), "abc")
    );
}

#[test]
fn launchers_that_name_themselves_win() {
    let inside = launch(&[TORCHRUN, SLURM, OPEN_MPI]).unwrap();
    assert_eq!((place(&inside), inside.launcher), ((5, 8, 1, Some(4)), Launcher::Torchrun));
    let own = "WARPSMITH_STORE_SERVER=launcher WARPSMITH_LOCAL_WORLD_SIZE=2";
    let inside = launch(&[BY_HAND, own, TORCHRUN, SLURM, OPEN_MPI]).unwrap();
    assert_eq!((inside.rank, inside.world_size, inside.launcher), (1, 2, Launcher::Warpsmith));
    assert!(matches!(inside.store, Some(StoreAddress { served_by: StoreHost::Launcher, .. })));
    // mpirun starts one process per host through srun, and this process starts the ranks. The second case has
    // torchrun's variables without its name.
    let in_slurm = "SLURM_PROCID=0 SLURM_NTASKS=1 SLURM_LOCALID=0";
    assert_eq!(launch(&[SLURM, in_slurm, OPEN_MPI]).unwrap().launcher, Launcher::OpenMpi);
    let env = "RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 MASTER_ADDR=a MASTER_PORT=1";
    assert_eq!(launch(&[SLURM, in_slurm, env]).unwrap().launcher, Launcher::Torchrun);
    // srun also sets the variables of PMI.
    assert_eq!(launch(&[SLURM, "PMI_RANK=6 PMI_SIZE=11"]).unwrap().launcher, Launcher::Slurm);
}

#[test]
fn contradictions_name_both_variables() {
    let error =
        launch(&["RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=a MASTER_PORT=1", OPEN_MPI]).unwrap_err();
    assert!(error.starts_with("RANK=0, but OMPI_COMM_WORLD_RANK=1"), "{error}");
    let error = launch(&[BY_HAND, SLURM]).unwrap_err();
    assert!(error.starts_with("WARPSMITH_WORLD_SIZE=2, but SLURM_NTASKS=11"), "{error}");
    let error = launch(&[BY_HAND, "RANK=1 WORLD_SIZE=2 LOCAL_RANK=1"]).unwrap_err();
    assert!(error.starts_with("WARPSMITH_LOCAL_RANK=0, but LOCAL_RANK=1"), "{error}");
    let error = launch(&[OPEN_MPI, MPICH, "PMI_SIZE=3"]).unwrap_err();
    assert!(error.starts_with("OMPI_COMM_WORLD_SIZE=2, but PMI_SIZE=3"), "{error}");
    // Variables without contradictions complement each other.
    let both = launch(&["RANK=1 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=1", OPEN_MPI]).unwrap();
    assert_eq!((place(&both), both.launcher), ((1, 2, 1, Some(2)), Launcher::Torchrun));
}

#[test]
fn malformed_values_are_named() {
    for (variable, problem) in [
        ("RANK=x", "non-negative integer"),
        ("RANK=-1", "non-negative integer"),
        ("RANK=", "non-negative integer"),
        ("RANK=8", "less than WORLD_SIZE=8"),
        ("WORLD_SIZE=0", "RANK=5"),
        ("WORLD_SIZE=99999999999999999999999", "non-negative integer"),
        ("LOCAL_RANK=4", "less than LOCAL_WORLD_SIZE=4"),
        ("LOCAL_WORLD_SIZE=9", "at most WORLD_SIZE=8"),
        ("MASTER_PORT=65536", "non-negative integer"),
        ("MASTER_PORT=0", "from 1 to 65535"),
        ("MASTER_ADDR=", "host name or address"),
        ("TORCHELASTIC_USE_AGENT_STORE=yes", "True or False"),
        ("TORCHELASTIC_RESTART_COUNT=-1", "non-negative integer"),
        ("TORCHELASTIC_RUN_ID=", "must not be empty"),
        ("WARPSMITH_STORE=gpu01", "HOST:PORT"),
        ("WARPSMITH_STORE=:1", "HOST:PORT"),
        ("WARPSMITH_STORE=a:0", "HOST:PORT"),
        ("WARPSMITH_STORE=a:b", "HOST:PORT"),
        ("WARPSMITH_RANK=1 WARPSMITH_WORLD_SIZE=x", "non-negative integer"),
    ] {
        let error = launch(&[TORCHRUN, variable]).unwrap_err();
        assert!(
            error.contains(variable.split(' ').next_back().unwrap()) || error.contains(problem),
            "{error}"
        );
        assert!(error.contains(problem), "{variable}: {error}");
    }
    for (variable, problem) in [
        ("SLURM_STEP_NODELIST=gpu[1-", "SLURM_STEP_NODELIST=gpu[1-: this is not a list of hosts"),
        ("SLURM_STEP_TASKS_PER_NODE=4(y)", "SLURM_STEP_TASKS_PER_NODE=4(y): this is not a list of counts"),
        ("SLURM_JOB_ID=abc", "SLURM_JOB_ID=abc: this must be a non-negative integer"),
        ("SLURM_STEP_ID=abc", "SLURM_STEP_ID=abc: this must be a non-negative integer"),
    ] {
        let error = launch(&[SLURM, variable]).unwrap_err();
        assert!(error.contains(problem), "{variable}: {error}");
    }
    let error = launch(&[BY_HAND, "WARPSMITH_STORE_SERVER=me"]).unwrap_err();
    assert!(error.contains("WARPSMITH_STORE_SERVER=me: this must be rank0 or launcher"), "{error}");
    let error = launch(&["WARPSMITH_TOKEN="]).unwrap_err();
    assert!(error.contains("WARPSMITH_TOKEN=…: a token must have 1 to 256 bytes"), "{error}");
}

#[test]
fn missing_variables_are_named() {
    for (variables, missing) in [
        ("RANK=1", "RANK=1 is set but WORLD_SIZE is not"),
        ("WORLD_SIZE=2", "WORLD_SIZE=2 is set but RANK is not"),
        ("RANK=1 WORLD_SIZE=2 LOCAL_RANK=0", "RANK=1 is set but MASTER_ADDR is not"),
        ("RANK=1 WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=a", "MASTER_ADDR=a is set but MASTER_PORT is not"),
        ("RANK=1 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=1", "RANK=1 is set but LOCAL_RANK is not"),
        ("WARPSMITH_RANK=1", "WARPSMITH_RANK=1 is set but WARPSMITH_WORLD_SIZE is not"),
        (
            "WARPSMITH_RANK=1 WARPSMITH_WORLD_SIZE=2",
            "WARPSMITH_RANK=1 is set but WARPSMITH_LOCAL_RANK is not",
        ),
        ("SLURM_STEP_ID=0", "SLURM_STEP_ID=0 is set but SLURM_PROCID is not"),
        ("SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_LOCALID=0", "but SLURM_STEP_NODELIST is not"),
        ("OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_SIZE=2 is set but OMPI_COMM_WORLD_RANK is not"),
        ("PMI_RANK=0", "PMI_RANK=0 is set but PMI_SIZE is not"),
    ] {
        let error = launch(&[variables]).unwrap_err();
        assert!(error.contains(missing), "{variables}: {error}");
    }
}

#[test]
fn the_environment_of_the_process_counts() {
    only_alone!("WARPSMITH_RANK" => "2", "WARPSMITH_WORLD_SIZE" => "3", "WARPSMITH_LOCAL_RANK" => "0",
        "WARPSMITH_STORE" => "127.0.0.1:4711", "WARPSMITH_STORE_SERVER" => "launcher");
    assert_eq!(place(&Launch::from_env().unwrap()), (2, 3, 0, None));
}

#[cfg(unix)]
#[test]
fn values_that_are_no_text_are_named() {
    use std::os::unix::ffi::OsStrExt;
    only_alone!("RANK" => std::ffi::OsStr::from_bytes(b"1\xff"));
    let error = Launch::from_env().unwrap_err().to_string();
    assert_eq!(error, "RANK=1\u{fffd}: this is not UTF-8");
}
