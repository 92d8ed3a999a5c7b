//! What a server does, without its sockets: the values, who waits for what, and what each client gets.
//!
//! Guarantees: what a client does wrong concerns that client alone, and [`Hub::receive`] refuses it; before a client
//! has proven the token it can send nothing but that; what clients can make the server hold is limited.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};

use super::protocol::{
    ALL_SET, CANCELED, LONGEST_REQUEST, MAGIC, Malformed, Parsed, Request, parse, write_text,
};
use crate::store::LONGEST_VALUE;
use crate::store::token::{End, PROOF, Token, nonce};
use crate::store::values::Values;

/// The number of a client's connection.
pub type Client = usize;

/// The longest request of a client that may not use the store yet.
const LONGEST_GREETING: usize = 64;
/// What the store holds at the most, in bytes.
const MOST_BYTES: usize = 256 << 20;
/// The most keys, and the most values in queues.
const MOST_VALUES: usize = 1 << 20;
/// How many bytes of replies wait for a client at the most.
const MOST_REPLIES: usize = 16 << 20;

/// How far a client's bytes were used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// The bytes that are done with.
    pub used: usize,
    /// How many of the rest there must be before it is worth calling again.
    pub needed: usize,
}

/// The state of a server.
#[derive(Debug, Default)]
pub struct Hub {
    token: Option<Token>,
    values: Values,
    queues: Queues,
    /// The clients that wait for each key. One that waits for a key twice is there twice.
    waiting: HashMap<Vec<u8>, Vec<Client>>,
    clients: HashMap<Client, State>,
    /// Clients that may have new replies.
    answered: Vec<Client>,
}

#[derive(Debug)]
struct State {
    stage: Stage,
    /// The keys of its wait, and how many of them are not set yet.
    awaited: Vec<Vec<u8>>,
    missing: usize,
    /// What is appended to which key when it leaves.
    will: Option<(Vec<u8>, Vec<u8>)>,
    replies: Vec<u8>,
}

/// What a client may do.
#[derive(Debug)]
enum Stage {
    /// Validate.
    New,
    /// Send a nonce.
    Valid,
    /// Prove that it knows the token, for these nonces: its own and the server's.
    Challenged([u8; PROOF], [u8; PROOF]),
    /// Use the store.
    Open,
}

impl Hub {
    /// A store without values, whose clients must prove the token if there is one.
    pub fn new(token: Option<Token>) -> Self {
        Self { token, ..Self::default() }
    }

    /// A client came.
    pub fn enter(&mut self, client: Client) {
        let state =
            State { stage: Stage::New, awaited: Vec::new(), missing: 0, will: None, replies: Vec::new() };
        self.clients.insert(client, state);
    }

    /// A client left: its wait ends, its will is done.
    pub fn leave(&mut self, client: Client) {
        self.cancel(client);
        let will = self.clients.remove(&client).and_then(|state| state.will);
        // Nobody is left to hear that the store is full.
        let _ = will.map(|(key, value)| self.append(&key, &value));
    }

    /// Whether a client may use the store.
    pub fn is_open(&self, client: Client) -> bool {
        self.clients.get(&client).is_some_and(|state| matches!(state.stage, Stage::Open))
    }

    /// The most bytes of a client that are kept until its request is whole.
    pub fn longest_request(&self, client: Client) -> usize {
        if self.is_open(client) { LONGEST_REQUEST } else { LONGEST_GREETING }
    }

    /// The clients that may have replies that were not taken yet.
    pub fn take_answered(&mut self) -> Vec<Client> {
        std::mem::take(&mut self.answered)
    }

    /// The replies that a client has not got yet. The caller removes what it has sent.
    pub fn replies(&mut self, client: Client) -> Option<&mut Vec<u8>> {
        self.clients.get_mut(&client).map(|state| &mut state.replies)
    }

    /// Does the requests at the beginning of a client's bytes.
    ///
    /// # Errors
    /// Bytes that the client should not have sent: its connection is to be closed.
    pub fn receive(&mut self, client: Client, bytes: &[u8]) -> Result<Progress, Malformed> {
        let mut used = 0;
        loop {
            match parse(&bytes[used..])? {
                Parsed::Request(request, length) => {
                    self.handle(client, request)?;
                    used += length;
                }
                Parsed::Unfinished(needed) if needed > self.longest_request(client) => {
                    return Err(Malformed("a request that the client may not send yet"));
                }
                Parsed::Unfinished(needed) => return Ok(Progress { used, needed }),
            }
        }
    }

    fn handle(&mut self, client: Client, request: Request<'_>) -> Result<(), Malformed> {
        let state = self.clients.get_mut(&client).ok_or(Malformed("a client that has left"))?;
        match (&state.stage, &request) {
            (Stage::Open, _) => {}
            (_, request) => return self.greet(client, request),
        }
        if state.missing > 0 && request != Request::CancelWait {
            return Err(Malformed("a request during a wait"));
        }
        match request {
            Request::Validate(_) | Request::Nonce(_) | Request::Proof(_) => {
                return Err(Malformed("a greeting in the middle"));
            }
            Request::Set { key, value } => self.set(key, value)?,
            Request::Append { key, value } => self.append(key, value)?,
            Request::MultiSet { values } => {
                values.iter().try_for_each(|(key, value)| self.set(key, value))?;
            }
            Request::CompareSet { key, expected, desired } => {
                self.check_room(key, desired)?;
                let (value, was_set) = self.values.compare_set(key, expected, desired);
                if was_set {
                    self.wake_all(key);
                }
                // PyTorch's servers answer with what was expected when the key is not set.
                self.reply_value(client, value.as_deref().unwrap_or(expected))?;
            }
            Request::Get { key } => self.reply_get(client, &[key])?,
            Request::MultiGet { keys } => self.reply_get(client, &keys)?,
            Request::Add { key, amount } => {
                self.check_room(key, &[0; 20])?;
                let sum = self.values.add(key, amount).ok_or(Malformed("an addition to no number"))?;
                self.wake_all(key);
                self.reply(client, &sum.to_le_bytes())?;
            }
            Request::Check { keys } => {
                let is_missing = keys.iter().any(|key| !self.has(key));
                self.reply(client, &[u8::from(is_missing)])?;
            }
            Request::Wait { keys } => self.wait(client, &keys)?,
            Request::CancelWait => {
                self.cancel(client);
                self.reply(client, &[CANCELED])?;
            }
            Request::Count => self.reply(client, &(self.values.count() as u64).to_le_bytes())?,
            Request::Delete { key } => {
                let removed = u64::from(self.values.delete(key));
                self.reply(client, &removed.to_le_bytes())?;
            }
            Request::Ping(number) => self.reply(client, &number.to_le_bytes())?,
            Request::QueuePush { key, value } => {
                self.check_room(key, value)?;
                self.queues.push(key, value);
                self.wake_one(key);
            }
            Request::QueuePop { key } => {
                self.reply(client, &(self.queues.length(key) as u64).to_le_bytes())?;
                if let Some(value) = self.queues.pop(key) {
                    self.reply_value(client, &value)?;
                }
            }
            Request::QueueLength { key } => {
                self.reply(client, &(self.queues.length(key) as u64).to_le_bytes())?;
            }
            Request::Will { key, value } => {
                let will = (!key.is_empty()).then(|| (key.to_vec(), value.to_vec()));
                self.clients.entry(client).and_modify(|state| state.will = will);
                self.reply(client, &[0])?;
            }
        }
        Ok(())
    }

    /// Does the requests with which a connection begins.
    fn greet(&mut self, client: Client, request: &Request<'_>) -> Result<(), Malformed> {
        let wrong = Malformed("a client that has not proven the token");
        let state = self.clients.get_mut(&client).ok_or(wrong)?;
        match (&state.stage, request, &self.token) {
            (Stage::New, Request::Validate(MAGIC), token) => {
                state.stage = if token.is_some() { Stage::Valid } else { Stage::Open };
                Ok(())
            }
            (Stage::Valid, Request::Nonce(theirs), Some(token)) => {
                let ours = nonce().map_err(|_| Malformed("no random numbers for a nonce"))?;
                let proof = token.proof(End::Server, theirs, &ours);
                let theirs = (*theirs).try_into().map_err(|_| Malformed("a nonce of a wrong length"))?;
                state.stage = Stage::Challenged(theirs, ours);
                self.reply(client, &[ours, proof].concat())
            }
            (Stage::Challenged(theirs, ours), Request::Proof(proof), Some(token))
                if token.accepts(proof, End::Client, theirs, ours) =>
            {
                state.stage = Stage::Open;
                self.reply(client, &[0])
            }
            (Stage::New, ..) => Err(Malformed("it does not begin as a client of a store")),
            _ => Err(Malformed("a client that has not proven the token")),
        }
    }

    fn has(&self, key: &[u8]) -> bool {
        self.values.contains(key) || self.queues.length(key) > 0
    }

    fn check_room(&self, key: &[u8], value: &[u8]) -> Result<(), Malformed> {
        let bytes = self.values.bytes() + self.queues.bytes + key.len() + value.len();
        match bytes <= MOST_BYTES && self.values.count() + self.queues.count < MOST_VALUES {
            true => Ok(()),
            false => Err(Malformed("the store is full")),
        }
    }

    fn set(&mut self, key: &[u8], value: &[u8]) -> Result<(), Malformed> {
        self.check_room(key, value)?;
        self.values.set(key, value.to_vec());
        self.wake_all(key);
        Ok(())
    }

    fn append(&mut self, key: &[u8], value: &[u8]) -> Result<(), Malformed> {
        self.check_room(key, value)?;
        if self.values.get(key).map_or(0, <[u8]>::len) + value.len() > LONGEST_VALUE {
            return Err(Malformed("a value that became too long"));
        }
        self.values.append(key, value);
        self.wake_all(key);
        Ok(())
    }

    fn wait(&mut self, client: Client, keys: &[&[u8]]) -> Result<(), Malformed> {
        let awaited: Vec<Vec<u8>> =
            keys.iter().filter(|key| !self.has(key)).map(|key| key.to_vec()).collect();
        if awaited.is_empty() {
            return self.reply(client, &[ALL_SET]);
        }
        for key in &awaited {
            self.waiting.entry(key.clone()).or_default().push(client);
        }
        let state = self.clients.get_mut(&client).ok_or(Malformed("a client that has left"))?;
        (state.missing, state.awaited) = (awaited.len(), awaited);
        Ok(())
    }

    /// Ends the wait of a client, if there is one.
    fn cancel(&mut self, client: Client) {
        let Some(state) = self.clients.get_mut(&client) else { return };
        state.missing = 0;
        for key in std::mem::take(&mut state.awaited) {
            if let Entry::Occupied(mut waiting) = self.waiting.entry(key) {
                waiting.get_mut().retain(|other| *other != client);
                if waiting.get().is_empty() {
                    waiting.remove();
                }
            }
        }
    }

    /// A key is set.
    fn wake_all(&mut self, key: &[u8]) {
        for client in self.waiting.remove(key).unwrap_or_default() {
            self.wake(client);
        }
    }

    /// A queue has one value more, which one client can have.
    fn wake_one(&mut self, key: &[u8]) {
        let Some(waiting) = self.waiting.get_mut(key) else { return };
        let client = waiting.remove(0);
        if waiting.is_empty() {
            self.waiting.remove(key);
        }
        self.wake(client);
    }

    fn wake(&mut self, client: Client) {
        let Some(state) = self.clients.get_mut(&client) else { return };
        state.missing = state.missing.saturating_sub(1);
        if state.missing == 0 {
            state.awaited.clear();
            state.replies.push(ALL_SET);
            self.answered.push(client);
        }
    }

    fn reply_get(&mut self, client: Client, keys: &[&[u8]]) -> Result<(), Malformed> {
        for key in keys {
            let value = self.values.get(key).unwrap_or_default().to_vec();
            self.reply_value(client, &value)?;
        }
        Ok(())
    }

    fn reply_value(&mut self, client: Client, value: &[u8]) -> Result<(), Malformed> {
        let mut text = Vec::with_capacity(size_of::<u64>() + value.len());
        write_text(&mut text, value);
        self.reply(client, &text)
    }

    fn reply(&mut self, client: Client, bytes: &[u8]) -> Result<(), Malformed> {
        let state = self.clients.get_mut(&client).ok_or(Malformed("a client that has left"))?;
        if state.replies.len() + bytes.len() > MOST_REPLIES {
            return Err(Malformed("more replies than the client reads"));
        }
        state.replies.extend_from_slice(bytes);
        self.answered.push(client);
        Ok(())
    }
}

/// Values in queues.
#[derive(Debug, Default)]
struct Queues {
    queues: HashMap<Vec<u8>, VecDeque<Vec<u8>>>,
    count: usize,
    bytes: usize,
}

impl Queues {
    fn length(&self, key: &[u8]) -> usize {
        self.queues.get(key).map_or(0, VecDeque::len)
    }

    fn push(&mut self, key: &[u8], value: &[u8]) {
        self.count += 1;
        self.bytes += key.len() + value.len();
        self.queues.entry(key.to_vec()).or_default().push_back(value.to_vec());
    }

    fn pop(&mut self, key: &[u8]) -> Option<Vec<u8>> {
        let queue = self.queues.get_mut(key)?;
        let value = queue.pop_front()?;
        if queue.is_empty() {
            self.queues.remove(key);
        }
        self.count -= 1;
        self.bytes -= key.len() + value.len();
        Some(value)
    }
}
