//! Store of a run, opened according to the environment.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::Deref;
use std::sync::Arc;
use std::time::Instant;

use super::{FAILED_RANKS, FINISHED, LOOK, failed_ranks};
use crate::deadline;
use crate::error::{CollectiveError, Error, Result};
use crate::launch::{Launch, StoreAddress, StoreHost};
use crate::machine;
use crate::store::{MemoryStore, PrefixStore, ServerOptions, Store, StoreServer, TcpStore, Will, resolve};

/// Store that the processes of a run share. The end of a process is reported to the other processes, except with
/// torchrun's agent.
///
/// Dropping the store without calling [`finish`](Self::finish) reports to the other processes that this process has
/// exited. On rank 0, dropping the store can also shut its server down.
#[derive(Debug)]
pub struct RunStore {
    // The fields must be dropped in this order.
    will: Option<Will>,
    store: Arc<dyn Store>,
    server: Option<StoreServer>,
    launch: Launch,
}

impl Launch {
    /// Opens the store of the run before the deadline. Rank 0 serves the store unless the launcher does; other ranks
    /// connect to it. A single process uses a [`MemoryStore`].
    ///
    /// The server listens on the address to which its host name resolves. If this is a loopback address and the host
    /// name is not `localhost`, the server also listens on the address of the default route. If the run has a token,
    /// the server serves only this run.
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    ///
    /// use warpsmith_collective::{Launch, Store};
    ///
    /// let deadline = Instant::now() + Duration::from_secs(30);
    /// let launch = Launch::from_env()?;
    /// let store = launch.store(deadline)?;
    /// store.set("ready", b"yes", deadline)?;
    /// store.finish(deadline)?;
    /// # Ok::<(), warpsmith_runtime::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`CollectiveError::Listen`] if the port is in use or the host is a different machine; the errors of
    /// [`TcpStore::connect`]; or [`CollectiveError::NoStore`] if the run has several ranks but no address.
    pub fn store(&self, deadline: Instant) -> Result<RunStore> {
        let (mut will, mut server) = (None, None);
        let store: Arc<dyn Store> = match &self.store {
            None if self.world_size == 1 => Arc::new(MemoryStore::new()),
            None => {
                return Err(CollectiveError::NoStore { rank: self.rank, world_size: self.world_size }.into());
            }
            Some(address @ StoreAddress { host, served_by, .. }) => {
                let mut target = address.to_string();
                if self.rank == 0 && *served_by == StoreHost::Rank0 {
                    let options = ServerOptions { token: self.token.clone(), ..ServerOptions::default() };
                    let started = serve(&target, host, options, deadline)?;
                    target = started.address().to_string();
                    server = Some(started);
                }
                let is_ours = *served_by != StoreHost::Agent;
                let store = TcpStore::connect(&target, self.token.as_ref().filter(|_| is_ours), deadline)?;
                if is_ours {
                    let key = format!("{}/{FAILED_RANKS}", self.key_prefix());
                    will = Some(store.leave_will(&key, format!("{},", self.rank).as_bytes(), deadline)?);
                }
                Arc::new(store)
            }
        };
        Ok(RunStore { will, store, server, launch: self.clone() })
    }
}

impl RunStore {
    /// Returns a shared handle to the store. The handle must not be used after this object has been dropped.
    pub fn shared(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    /// Finishes using the store, so that the other processes do not treat the exit of this process as a failure. The
    /// process that serves the store waits until all other processes have also finished or exited.
    ///
    /// # Errors
    /// Returns an error if the store cannot be reached, or [`CollectiveError::StoreTimeout`] if other processes are
    /// still using the store at the deadline.
    pub fn finish(mut self, deadline: Instant) -> Result<()> {
        let run = PrefixStore::new(self.launch.key_prefix(), self.store.clone());
        let rank = self.launch.rank;
        if let Some(will) = &mut self.will {
            // From now on, a closed connection means that the rank has finished or exited.
            let finished = format!("{}/{FINISHED}/{rank}", self.launch.key_prefix());
            let key = if rank > 0 { finished.as_str() } else { "" };
            let address = self.launch.store.as_ref().map(ToString::to_string).unwrap_or_default();
            will.replace(key, b"", deadline).map_err(|source| CollectiveError::StoreSilent {
                address,
                operation: "finish",
                source,
            })?;
        }
        match &self.server {
            Some(_) => wait_for_others(&run, self.launch.world_size, deadline),
            None => Ok(()),
        }
    }
}

/// Waits until each rank except rank 0 has finished using the store or has exited.
fn wait_for_others(run: &PrefixStore, world_size: usize, deadline: Instant) -> Result<()> {
    loop {
        let failed_ranks = failed_ranks(run, deadline::with_last_word(deadline))?;
        let used_by = (1..world_size).filter(|rank| !failed_ranks.contains(rank));
        let keys: Vec<String> = used_by.map(|rank| format!("{FINISHED}/{rank}")).collect();
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        if keys.is_empty() {
            return Ok(());
        }
        let waited = run.wait(&keys, deadline.min(Instant::now() + LOOK));
        let is_late = Instant::now() >= deadline;
        match waited {
            Err(_) if is_late => {
                let last = deadline::with_last_word(deadline);
                let is_missing = |key: &&str| !run.contains(&[key], last).unwrap_or(false);
                let missing: Vec<&str> = keys.into_iter().filter(is_missing).collect();
                return match missing.is_empty() {
                    true => Ok(()),
                    false => Err(CollectiveError::StoreTimeout { key: missing.join("`, `") }.into()),
                };
            }
            Err(error) if CollectiveError::is_store_timeout(&error) => {}
            ended => return ended,
        }
    }
}

impl Deref for RunStore {
    type Target = dyn Store;

    fn deref(&self) -> &(dyn Store + 'static) {
        &*self.store
    }
}

/// Returns whether the error means that the address belongs to a different machine.
fn is_elsewhere(error: &Error) -> bool {
    let listened = error.downcast_ref();
    matches!(listened, Some(CollectiveError::Listen { source, .. }) if source.kind() == io::ErrorKind::AddrNotAvailable)
}

/// Starts a server on the first of the host name's addresses that belongs to this machine.
fn serve(address: &str, host: &str, options: ServerOptions, deadline: Instant) -> Result<StoreServer> {
    let failed = |source| Error::from(CollectiveError::Listen { address: address.to_owned(), source });
    let targets = resolve(address, deadline).map_err(failed)?;
    // Many systems resolve their own name to a loopback address, which other hosts cannot reach.
    let is_name = host != "localhost" && host.parse::<IpAddr>().is_err();
    let is_inward = is_name && targets.iter().all(|target| target.ip().is_loopback());
    let port = targets.first().filter(|_| is_inward).map(SocketAddr::port);
    let outward = port.and_then(|port| Some(SocketAddr::new(machine::outward_address()?, port)));
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for target in targets {
        let both: Vec<SocketAddr> = [target].into_iter().chain(outward).collect();
        match StoreServer::start_at(&both, options.clone()) {
            Ok(server) => return Ok(server),
            Err(error) if is_elsewhere(&error) => {
                let here = machine::name();
                let why = format!(
                    "{target} is not an address of this host ({here}): run rank 0 on the host with that address"
                );
                last = io::Error::new(io::ErrorKind::AddrNotAvailable, why);
            }
            Err(error) => return Err(error),
        }
    }
    Err(failed(last))
}
