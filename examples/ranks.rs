//! The ranks of a run rendezvous, and each of them adds its part to a sum in the store. Any launcher can start the
//! example, which can also run alone:
//!
//! ```text
//! warpsmith launch -n 4 target/release/examples/ranks
//! torchrun --no-python --nproc-per-node 4 target/release/examples/ranks
//! mpirun -n 4 target/release/examples/ranks
//! srun -n 4 target/release/examples/ranks
//! ```

use std::time::{Duration, Instant};

use warpsmith::collective::{Launch, Store, rendezvous};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let began = Instant::now();
    let deadline = began + Duration::from_secs(30);
    let launch = Launch::from_env()?;
    let store = launch.store(deadline)?;
    let rendezvous = rendezvous::join(&launch, store.shared(), "ranks", None, deadline)?;
    let (launcher, took) = (launch.launcher, began.elapsed());
    println!(
        "rank {} of {}, started by {launcher}, joined the others in {took:.1?}",
        launch.rank, launch.world_size
    );

    let (rank, ranks) = (i64::try_from(launch.rank)?, i64::try_from(launch.world_size)?);
    rendezvous.store().add("sum", rank + 1, deadline)?;
    if rendezvous.store().add("arrived", 1, deadline)? == ranks {
        rendezvous.store().set("all have arrived", b"", deadline)?;
    }
    rendezvous.store().wait(&["all have arrived"], deadline)?;
    let sum = rendezvous.store().add("sum", 0, deadline)?;
    assert_eq!(sum, ranks * (ranks + 1) / 2);
    if launch.rank == 0 {
        println!("the sum of 1 to {ranks} is {sum}");
    }
    store.finish(deadline)?;
    Ok(())
}
