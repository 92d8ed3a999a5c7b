//! Ranks as processes. This program runs one test again for each rank.

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use warpsmith_collective::store::{ServerOptions, StoreServer, TcpStore};
use warpsmith_collective::{CollectiveError, Communicator, CommunicatorOptions, Launch, ReduceOp, Store};
use warpsmith_runtime::{DeviceBuffer, Result};

use crate::alone::{self, this_test};
use crate::lives::{entries, resident, settle};
use crate::support::{LONG, on_ranks, streams, timeout};

const RANK: &str = "WARPSMITH_TEST_RANK";
const WORLD: &str = "WARPSMITH_TEST_WORLD";
const FOLDER: &str = "WARPSMITH_TEST_FOLDER";
const STORE: &str = "WARPSMITH_TEST_STORE";

/// Rank of this process in a test that starts processes; `None` in the process that starts them.
#[derive(Debug, Clone)]
pub struct Rank {
    pub rank: usize,
    world: usize,
    folder: PathBuf,
}

impl Rank {
    pub fn this() -> Option<Self> {
        let number = |name| std::env::var(name).ok()?.parse().ok();
        Some(Self { rank: number(RANK)?, world: number(WORLD)?, folder: std::env::var_os(FOLDER)?.into() })
    }

    pub fn launch(&self) -> Launch {
        let mut launch = Launch::single();
        (launch.rank, launch.world_size, launch.local_rank) = (self.rank, self.world, self.rank);
        launch
    }

    pub fn store(&self) -> Arc<dyn Store> {
        let address = std::env::var(STORE).expect("the address of the store");
        Arc::new(TcpStore::connect(&address, None, Instant::now() + LONG).expect("a store"))
    }

    fn hooked(&self, at: &'static str, hook: fn(&Self, &dyn Store)) -> Arc<dyn Store> {
        Arc::new(Hooked { store: self.store(), at, this: self.clone(), hook })
    }

    pub fn init(&self, options: &CommunicatorOptions) -> Result<Communicator> {
        Communicator::init(&streams(1)[0], &self.launch(), self.store(), options)
    }

    /// Kills this process as `kill -9` does, and records the time.
    pub fn die(&self) -> ! {
        std::fs::write(self.folder.join("killed"), now().to_string()).expect("the time is written");
        // SAFETY: the call sends a signal to this process.
        unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
        unreachable!("the process has ended")
    }

    /// Stops this process with `SIGSTOP` until it is killed.
    fn stop(&self) -> ! {
        // SAFETY: the call sends a signal to this process.
        unsafe { libc::kill(libc::getpid(), libc::SIGSTOP) };
        // This thread may continue to run for a moment.
        loop {
            std::thread::park();
        }
    }

    /// Asserts that less than 2 s have passed since a rank died.
    #[track_caller]
    pub fn assert_in_time(&self) {
        let killed: u64 =
            std::fs::read_to_string(self.folder.join("killed")).expect("the time").parse().expect("a number");
        let passed = now() - killed;
        assert!(passed < 2_000_000, "{passed} us after the kill");
    }
}

/// Returns options with short timeouts.
fn short() -> CommunicatorOptions {
    timeout(20_000).init_timeout(Duration::from_secs(20))
}

/// Returns the current time in microseconds.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a time after 1970").as_micros() as u64
}

/// Folder that is removed when the value is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Self {
        let name = format!("warpsmith-ranks-{}-{}", std::process::id(), test.replace("::", "-"));
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).expect("a folder");
        Self(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn server() -> StoreServer {
    let address = "127.0.0.1:0".parse().expect("an address");
    StoreServer::start(address, ServerOptions::default()).expect("a server")
}

fn start(test: &str, server: &StoreServer, folder: &Path, rank: usize, world: usize) -> Child {
    let mut command = command(test, server, folder, rank, world);
    command.spawn().expect("this program runs again")
}

fn command(test: &str, server: &StoreServer, folder: &Path, rank: usize, world: usize) -> Command {
    let mut command = alone::command(test);
    command.env(RANK, rank.to_string()).env(WORLD, world.to_string()).env(FOLDER, folder);
    command.env(STORE, server.address().to_string());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs a test as several processes. All processes except `killed` must pass, and `killed` must have been killed.
/// Returns the output of each process.
#[track_caller]
pub fn processes(test: &str, world: usize, killed: Option<usize>) -> Vec<String> {
    processes_on(test, world, killed, |_, _| {})
}

/// Like [`processes`], with a change to the command of each rank.
#[track_caller]
pub fn processes_on(
    test: &str,
    world: usize,
    killed: Option<usize>,
    change: impl Fn(usize, &mut Command),
) -> Vec<String> {
    let (folder, server) = (Folder::new(test), server());
    let start = |rank| {
        let mut command = command(test, &server, &folder.0, rank, world);
        change(rank, &mut command);
        command.spawn().expect("this program runs again")
    };
    let children: Vec<Child> = (0..world).map(start).collect();
    let ended: Vec<Output> =
        children.into_iter().map(|child| child.wait_with_output().expect("it ends")).collect();
    let text = |output: &Output| {
        [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned()).concat()
    };
    let all: Vec<String> = ended.iter().map(text).collect();
    for (rank, output) in ended.iter().enumerate() {
        let is_correct = match killed == Some(rank) {
            true => std::os::unix::process::ExitStatusExt::signal(&output.status) == Some(libc::SIGKILL),
            false => output.status.success() && all[rank].contains("1 passed"),
        };
        assert!(is_correct, "rank {rank}, {}:\n{}", output.status, all.join("\n----\n"));
    }
    all
}

/// Returns the bits of the results of a rank's operations.
fn work(ranks: &mut Communicator) -> Vec<u32> {
    let mut random = fastrand::Rng::with_seed(ranks.rank() as u64);
    let stream = ranks.stream().clone();
    let values: Vec<f32> = (0..200_000).map(|_| random.f32() - 0.5).collect();
    let x = DeviceBuffer::from_host(&stream, &values).expect("x");
    let mut y = DeviceBuffer::zeros(&stream, values.len()).expect("y");
    let mut all = DeviceBuffer::<f32>::zeros(&stream, ranks.world_size() * 1000).expect("all");
    drop(ranks.all_reduce(&x, ReduceOp::Sum, &mut y).expect("enqueued"));
    drop(ranks.broadcast(1, y.slice_mut(..50_000)).expect("enqueued"));
    let (next, before) = (
        (ranks.rank() + 1) % ranks.world_size(),
        (ranks.rank() + ranks.world_size() - 1) % ranks.world_size(),
    );
    let mut ring = DeviceBuffer::<f32>::zeros(&stream, values.len()).expect("ring");
    let sent = ranks.group(|group| {
        group.send(&x, next)?;
        group.recv(before, &mut ring)
    });
    drop(sent.expect("enqueued"));
    drop(ranks.all_gather(ring.slice(..1000), &mut all).expect("enqueued"));
    ranks.barrier().expect("enqueued").wait(LONG).expect("done");
    let values = [y.to_host().expect("y"), all.to_host().expect("all")].concat();
    values.into_iter().map(f32::to_bits).collect()
}

pub fn digest(bits: &[u32]) -> String {
    let hash = bits
        .iter()
        .fold(0xcbf2_9ce4_8422_2325u64, |hash, bits| (hash ^ u64::from(*bits)).wrapping_mul(0x100_0000_01b3));
    format!("digest {hash:016x}")
}

#[test]
fn processes_and_threads_have_the_same_bits() {
    if let Some(this) = Rank::this() {
        let mut ranks = this.init(&short()).expect("ranks connect");
        println!("{}", digest(&work(&mut ranks)));
        return ranks.finish().expect("the end in common");
    }
    let of_threads = on_ranks(3, &short(), |mut ranks| digest(&work(&mut ranks)));
    let of_processes = processes(this_test!(), 3, None);
    for (thread, process) in of_threads.iter().zip(&of_processes) {
        assert_eq!(thread, &of_threads[0]);
        assert!(process.contains(thread), "{thread} of a thread is not in\n{process}");
    }
}

/// Store that calls a hook after it has set a key.
#[derive(Debug)]
struct Hooked {
    store: Arc<dyn Store>,
    at: &'static str,
    this: Rank,
    hook: fn(&Rank, &dyn Store),
}

impl Store for Hooked {
    fn set(&self, key: &str, value: &[u8], deadline: Instant) -> Result<()> {
        self.store.set(key, value, deadline)
    }

    fn get(&self, key: &str, deadline: Instant) -> Result<Vec<u8>> {
        self.store.get(key, deadline)
    }

    fn wait(&self, keys: &[&str], deadline: Instant) -> Result<()> {
        self.store.wait(keys, deadline)
    }

    fn contains(&self, keys: &[&str], deadline: Instant) -> Result<bool> {
        self.store.contains(keys, deadline)
    }

    fn add(&self, key: &str, amount: i64, deadline: Instant) -> Result<i64> {
        self.store.add(key, amount, deadline)
    }

    fn compare_set(&self, key: &str, expected: &[u8], desired: &[u8], deadline: Instant) -> Result<Vec<u8>> {
        let present = self.store.compare_set(key, expected, desired, deadline)?;
        if key.ends_with(self.at) {
            (self.hook)(&self.this, &*self.store);
        }
        Ok(present)
    }

    fn delete(&self, key: &str, deadline: Instant) -> Result<bool> {
        self.store.delete(key, deadline)
    }
}

#[test]
fn a_rank_killed_in_init_is_named() {
    if let Some(this) = Rank::this() {
        let store: Arc<dyn Store> = match this.rank {
            // The other ranks read its card, but it does not connect.
            2 => this.hooked("card/2", |this, _| this.die()),
            _ => this.store(),
        };
        let error = Communicator::init(&streams(1)[0], &this.launch(), store, &short());
        this.assert_in_time();
        let error = error.expect_err("rank 2 failed").to_string();
        return assert!(
            error.contains("rank 2 failed: process ") || error.contains("cannot connect to rank 2, process "),
            "{error}"
        );
    }
    processes(this_test!(), 3, Some(2));
}

#[test]
fn a_rank_killed_in_an_operation_is_named_and_left_out() {
    if let Some(this) = Rank::this() {
        let mut ranks = this.init(&short()).expect("ranks connect");
        let stream = ranks.stream().clone();
        let mut x = DeviceBuffer::from_host(&stream, &vec![1.0f64; 1 << 20]).expect("x");
        drop(ranks.all_reduce_in_place(ReduceOp::Avg, &mut x).expect("enqueued"));
        ranks.barrier().expect("enqueued").wait(LONG).expect("done");
        if this.rank == 1 {
            // The other ranks have also finished the barrier.
            std::thread::sleep(Duration::from_millis(300));
            drop(ranks.all_reduce_in_place(ReduceOp::Avg, &mut x).expect("enqueued"));
            std::thread::sleep(Duration::from_millis(2));
            this.die();
        }
        // The rank has died during one of these operations.
        let works: Vec<_> = (0..2).map(|_| ranks.all_reduce_in_place(ReduceOp::Avg, &mut x)).collect();
        let error = works.into_iter().find_map(|work| work.and_then(|work| work.wait(LONG)).err());
        this.assert_in_time();
        let text = error.expect("rank 1 failed").to_string();
        assert!(text.contains("rank 1 failed: process "), "{text}");
        println!("{text}");

        let refused = ranks.shrink(&[0, 2].map(|rank| if rank == this.rank { 99 } else { rank }));
        let error = refused.expect_err("a list without the failed rank");
        let Some(CollectiveError::Argument { reason, .. }) = error.downcast_ref() else {
            panic!("another error: {error}");
        };
        assert!(reason.contains("99") || reason.contains("rank 1 failed"), "{reason}");
        let mut rest = ranks.shrink(&[1]).expect("the others connect");
        let mut x = DeviceBuffer::from_host(&stream, &[this.rank as u32]).expect("x");
        drop(rest.all_reduce_in_place(ReduceOp::Sum, &mut x).expect("enqueued"));
        assert_eq!(x.to_host().expect("x"), [2]);
        return rest.finish().expect("the end in common");
    }
    processes(this_test!(), 3, Some(1));
}

#[test]
fn a_rank_killed_in_finish_is_named() {
    if let Some(this) = Rank::this() {
        let mut ranks = this.init(&short()).expect("ranks connect");
        ranks.barrier().expect("enqueued").wait(LONG).expect("done");
        if this.rank == 0 {
            std::thread::sleep(Duration::from_millis(300));
            this.die();
        }
        let error = ranks.finish().expect_err("rank 0 failed").to_string();
        this.assert_in_time();
        return assert!(error.contains("rank 0 failed: process "), "{error}");
    }
    processes(this_test!(), 3, Some(0));
}

/// Stops the last ranks with `SIGSTOP`, and kills them after the other ranks have ended.
#[track_caller]
fn with_stopped(test: &str, world: usize, stopped: usize) {
    let (folder, server) = (Folder::new(test), server());
    let mut children: Vec<_> = (0..world).map(|rank| start(test, &server, &folder.0, rank, world)).collect();
    let stopped = children.split_off(world - stopped);
    let ended: Vec<_> =
        children.into_iter().map(|child| child.wait_with_output().expect("it ends")).collect();
    for mut child in stopped {
        child.kill().expect("killed");
        child.wait().expect("it ends");
    }
    for output in ended {
        let text = [&output.stdout, &output.stderr]
            .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
            .concat();
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
    }
}

#[test]
fn stopped_processes_are_asked_at_once() {
    if let Some(this) = Rank::this() {
        let mut ranks = this.init(&timeout(500)).expect("ranks connect");
        ranks.barrier().expect("enqueued").wait(LONG).expect("done");
        if this.rank > 0 {
            this.stop();
        }
        let start = Instant::now();
        let error = ranks.barrier().and_then(|work| work.wait(LONG));
        let text = error.expect_err("the others are stopped").to_string();
        assert!(start.elapsed() < Duration::from_millis(2500), "{:?}", start.elapsed());
        return (1..4).for_each(|rank| assert!(text.contains(&format!("rank {rank} (process ")), "{text}"));
    }
    with_stopped(this_test!(), 4, 3);
}

#[test]
fn a_stopped_process_is_a_timeout() {
    if let Some(this) = Rank::this() {
        let mut ranks = this.init(&timeout(500)).expect("ranks connect");
        ranks.barrier().expect("enqueued").wait(LONG).expect("done");
        if this.rank == 2 {
            this.stop();
        }
        let start = Instant::now();
        // This is more data than the socket buffer can store.
        let mut x = DeviceBuffer::from_host(ranks.stream(), &vec![0u8; 16 << 20]).expect("x");
        let error = ranks.all_reduce_in_place(ReduceOp::Sum, &mut x).and_then(|work| work.wait(LONG));
        let text = error.expect_err("rank 2 is stopped").to_string();
        assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
        return assert!(text.contains("rank 2 (process ") && text.contains("does not answer"), "{text}");
    }
    with_stopped(this_test!(), 3, 1);
}

/// Returns the address of rank 0, which waits for this rank.
fn address_of_rank_0(store: &dyn Store) -> String {
    let key = "warpsmith/alone/0/communicator/world#0/card/0";
    let card = store.get(key, Instant::now() + Duration::from_secs(20)).expect("rank 0's card");
    let card = String::from_utf8(card).expect("JSON");
    let address = card.split("\"address\":\"").nth(1).and_then(|rest| rest.split('"').next());
    let address = address.expect("an address");
    assert!(address.starts_with("127.0.0.1:"), "{address}");
    address.to_owned()
}

/// Opens connections of strangers to the port of rank 0. They stay open until the process ends.
fn bring_strangers(_this: &Rank, store: &dyn Store) {
    let address = address_of_rank_0(store);
    let garbage = [&b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n"[..], &[0xff; 4096], b"wsranks1"];
    // There are more silent connections than the rank keeps.
    for garbage in garbage.into_iter().chain([&b""[..]; 150]) {
        let mut stream = TcpStream::connect(&address).expect("connected");
        std::io::Write::write_all(&mut stream, garbage).expect("written");
        std::mem::forget(stream);
    }
}

#[test]
fn strangers_on_the_port_are_refused() {
    if let Some(this) = Rank::this() {
        let store = match this.rank {
            1 => this.hooked("card/1", bring_strangers),
            _ => this.store(),
        };
        let ranks = Communicator::init(&streams(1)[0], &this.launch(), store, &short());
        return ranks.expect("ranks connect").finish().expect("the end in common");
    }
    processes(this_test!(), 2, None);
}

/// Connects strangers to the port of rank 0, again and again as soon as they are rejected, until the process ends.
fn besiege(_this: &Rank, store: &dyn Store) {
    let address = address_of_rank_0(store);
    let mut held: Vec<TcpStream> = Vec::new();
    let is_open = |mut stream: &TcpStream| {
        let read = std::io::Read::read(&mut stream, &mut [0]);
        read.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
    };
    let mut come = move || {
        held.retain(is_open);
        let new = (held.len()..200).filter_map(|_| {
            let stream = TcpStream::connect(&address).ok()?;
            stream.set_nonblocking(true).ok().map(|()| stream)
        });
        held.extend(new);
    };
    come();
    std::thread::spawn(move || {
        loop {
            come();
            std::thread::sleep(Duration::from_millis(1));
        }
    });
}

#[test]
fn ranks_meet_during_a_siege() {
    if let Some(this) = Rank::this() {
        let store = match this.rank {
            1 => this.hooked("card/1", besiege),
            _ => this.store(),
        };
        if this.rank == 0 {
            let limit = libc::rlimit { rlim_cur: 128, rlim_max: 128 };
            // SAFETY: the pointer points to a local variable of this type.
            assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
        }
        let (stream, began) = (streams(1).remove(0), Instant::now());
        let ranks = Communicator::init(&stream, &this.launch(), store, &short()).expect("ranks connect");
        assert!(began.elapsed() < Duration::from_millis(800), "{:?}", began.elapsed());
        return ranks.finish().expect("the end in common");
    }
    processes(this_test!(), 2, None);
}

#[test]
#[cfg(target_os = "linux")]
fn communicators_of_processes_leave_nothing() {
    if let Some(this) = Rank::this() {
        let stream = streams(1).remove(0);
        let live = || {
            let options = CommunicatorOptions::new();
            let mut ranks =
                Communicator::init(&stream, &this.launch(), this.store(), &options).expect("ranks connect");
            let mut x = DeviceBuffer::from_host(&stream, &[1.0f32; 1000]).expect("x");
            drop(ranks.all_reduce_in_place(ReduceOp::Sum, &mut x).expect("enqueued"));
            ranks.finish().expect("the end in common");
        };
        (0..10).for_each(|_| live());
        settle(entries("/proc/self/task"), entries("/proc/self/fd"));
        std::thread::sleep(Duration::from_millis(100));
        let (threads, files, memory) = (entries("/proc/self/task"), entries("/proc/self/fd"), resident());
        (0..100).for_each(|_| live());
        settle(threads, files);
        let grown = resident().saturating_sub(memory);
        return assert!(grown < 4096, "{grown} KiB more than after 10 lives");
    }
    processes(this_test!(), 2, None);
}
