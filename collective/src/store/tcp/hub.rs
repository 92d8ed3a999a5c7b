//! State of a server, apart from its sockets: the values, the waiting clients, and the replies.
//!
//! An invalid request affects only the client that sent it; [`Hub::receive`] rejects it. Until a client has proven that
//! it knows the token, only handshake requests are accepted. The amount of memory that clients can make the server
//! allocate is limited.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::protocol::{
    ALL_SET, CANCELED, LONGEST_REQUEST, MAGIC, Malformed, Parsed, Request, parse, write_text,
};
use crate::store::LONGEST_VALUE;
use crate::store::token::{End, PROOF, Token, nonce};
use crate::store::values::Values;

/// Number that identifies the connection of a client.
pub type Client = usize;

/// Maximum size of a request, in bytes, while the client has not authenticated yet.
const LONGEST_GREETING: usize = 64;
/// Maximum memory usage of the store, in bytes. It includes the values, and the keys that clients wait for or have
/// named in wills.
const MAX_BYTES: usize = if cfg!(test) { 1 << 20 } else { 256 << 20 };
/// Overhead per awaited key, in bytes, in addition to twice the length of the key.
const AWAITED_KEY: usize = 64;
/// Maximum number of keys.
const MAX_VALUES: usize = 1 << 20;
/// Maximum size of unsent replies, in bytes, per client and in total.
const MAX_REPLIES: usize = if cfg!(test) { 1 << 20 } else { 16 << 20 };
const MAX_REPLIES_OF_ALL: usize = 16 * MAX_REPLIES;

/// Buffer capacity, in bytes, retained for a client's replies after all of them have been sent.
const KEPT: usize = 64 << 10;

/// Number of bytes that a call has consumed, and number of bytes that the next call requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Number of consumed bytes.
    pub used: usize,
    /// Number of unconsumed bytes that must be available before the next call can make progress.
    pub needed: usize,
}

/// State of a server.
#[derive(Debug, Default)]
pub struct Hub {
    token: Option<Token>,
    values: Values,
    /// Waiting clients per key. A client that waits twice for the same key is listed twice.
    waiting: HashMap<Vec<u8>, Vec<Client>>,
    clients: HashMap<Client, State>,
    /// Number of bytes reserved for awaited keys and wills.
    promised: usize,
    /// Total size of the pending replies, in bytes.
    replies: usize,
    /// Clients for which there may be new replies to send.
    answered: Vec<Client>,
}

#[derive(Debug)]
struct State {
    stage: Stage,
    /// Keys that the client is waiting for, and the number of those that are not set yet.
    awaited: Vec<Vec<u8>>,
    missing: usize,
    /// Key and value to append when the client disconnects.
    will: Option<(Vec<u8>, Vec<u8>)>,
    replies: Vec<u8>,
}

/// Stages of the handshake, which determine the requests that a client may send.
#[derive(Debug)]
enum Stage {
    /// The client must send the magic number.
    New,
    /// The client must send a nonce.
    Valid,
    /// The client must prove that it knows the token. The proof depends on these nonces, the client's and the server's.
    Challenged([u8; PROOF], [u8; PROOF]),
    /// The client may use all operations of the store.
    Open,
}

impl Hub {
    /// Creates an empty store. If there is a token, clients must prove that they know it.
    pub fn new(token: Option<Token>) -> Self {
        Self { token, ..Self::default() }
    }

    /// Adds a client.
    pub fn enter(&mut self, client: Client) {
        let state =
            State { stage: Stage::New, awaited: Vec::new(), missing: 0, will: None, replies: Vec::new() };
        self.clients.insert(client, state);
    }

    /// Removes a client. The client's wait ends and its will is executed.
    pub fn leave(&mut self, client: Client) {
        self.cancel(client);
        let Some(state) = self.clients.remove(&client) else { return };
        self.replies -= state.replies.len();
        if let Some((key, value)) = state.will {
            self.promised -= key.len() + value.len();
            // The space for this value was reserved together with the will. If the value becomes too long, there is no
            // client to notify.
            let _ = self.append(&key, &value);
        }
    }

    /// Returns whether a client has authenticated and may use the store.
    pub fn is_open(&self, client: Client) -> bool {
        self.clients.get(&client).is_some_and(|state| matches!(state.stage, Stage::Open))
    }

    /// Returns whether a client has requested the server's proof but has not sent its own yet.
    pub fn is_challenged(&self, client: Client) -> bool {
        self.clients.get(&client).is_some_and(|state| matches!(state.stage, Stage::Challenged(..)))
    }

    /// Returns the maximum number of bytes that the caller must retain for a client until its request is complete.
    pub fn longest_request(&self, client: Client) -> usize {
        if self.is_open(client) { LONGEST_REQUEST } else { LONGEST_GREETING }
    }

    /// Takes the list of clients for which there may be unsent replies.
    pub fn take_answered(&mut self) -> Vec<Client> {
        std::mem::take(&mut self.answered)
    }

    /// Returns the unsent replies of a client.
    pub fn replies(&self, client: Client) -> Option<&[u8]> {
        self.clients.get(&client).map(|state| &*state.replies)
    }

    /// Removes the given number of sent bytes from a client's replies.
    pub fn sent(&mut self, client: Client, bytes: usize) {
        let Some(state) = self.clients.get_mut(&client) else { return };
        state.replies.drain(..bytes);
        self.replies -= bytes;
        if state.replies.is_empty() {
            state.replies.shrink_to(KEPT);
        }
    }

    /// Processes the complete requests among the bytes that a client has sent.
    ///
    /// # Errors
    /// Fails if the bytes are invalid. In this case, the caller must close the connection of the client.
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
        let state = self.clients.get_mut(&client).ok_or(Malformed("the client has left"))?;
        match (&state.stage, &request) {
            (Stage::Open, _) => {}
            (_, request) => return self.greet(client, request),
        }
        if state.missing > 0 && request != Request::CancelWait {
            return Err(Malformed("a request during a wait"));
        }
        match request {
            Request::Validate(_) | Request::Nonce(_) | Request::Proof(_) => {
                return Err(Malformed("a handshake request after the handshake"));
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
                // PyTorch's servers reply with the expected value if the key is not set.
                self.reply_value(client, value.as_deref().unwrap_or(expected))?;
            }
            Request::Get { key } => self.reply_get(client, &[key])?,
            Request::MultiGet { keys } => self.reply_get(client, &keys)?,
            Request::Add { key, amount } => {
                self.check_room(key, &[0; 20])?;
                let sum = self
                    .values
                    .add(key, amount)
                    .ok_or(Malformed("an addition to a value that is not a number"))?;
                self.wake_all(key);
                self.reply(client, &sum.to_le_bytes())?;
            }
            Request::Check { keys } => {
                let is_missing = keys.iter().any(|key| !self.values.contains(key));
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
            Request::Will { key, value } => {
                self.leave_will(client, key, value)?;
                self.reply(client, &[0])?;
            }
        }
        Ok(())
    }

    /// Processes a request of a client that has not completed the handshake.
    fn greet(&mut self, client: Client, request: &Request<'_>) -> Result<(), Malformed> {
        let wrong = Malformed("the client has not proven that it knows the token");
        let state = self.clients.get_mut(&client).ok_or(wrong)?;
        match (&state.stage, request, &self.token) {
            (Stage::New, Request::Validate(MAGIC), token) => {
                state.stage = if token.is_some() { Stage::Valid } else { Stage::Open };
                Ok(())
            }
            (Stage::Valid, Request::Nonce(theirs), Some(token)) => {
                let ours = nonce().map_err(|_| Malformed("no random numbers for a nonce"))?;
                let proof = token.proof(End::Server, theirs, &ours);
                let theirs = (*theirs).try_into().map_err(|_| Malformed("a nonce of the wrong length"))?;
                state.stage = Stage::Challenged(theirs, ours);
                self.reply(client, &[ours, proof].concat())
            }
            (Stage::Challenged(theirs, ours), Request::Proof(proof), Some(token))
                if token.accepts(proof, End::Client, theirs, ours) =>
            {
                state.stage = Stage::Open;
                self.reply(client, &[0])
            }
            (Stage::New, ..) => Err(Malformed("it does not start with the handshake of a store client")),
            _ => Err(Malformed("the client has not proven that it knows the token")),
        }
    }

    fn bytes(&self) -> usize {
        self.values.bytes() + self.promised
    }

    fn check_room(&self, key: &[u8], value: &[u8]) -> Result<(), Malformed> {
        let bytes = self.bytes() + key.len() + value.len();
        match bytes <= MAX_BYTES && self.values.count() < MAX_VALUES {
            true => Ok(()),
            false => Err(Malformed("the store is full")),
        }
    }

    /// Replaces a client's will. An empty key removes the will.
    fn leave_will(&mut self, client: Client, key: &[u8], value: &[u8]) -> Result<(), Malformed> {
        let state = self.clients.get_mut(&client).ok_or(Malformed("the client has left"))?;
        if let Some((key, value)) = state.will.take() {
            self.promised -= key.len() + value.len();
        }
        if !key.is_empty() {
            self.check_room(key, value)?;
            self.promised += key.len() + value.len();
            let will = Some((key.to_vec(), value.to_vec()));
            self.clients.entry(client).and_modify(|state| state.will = will);
        }
        Ok(())
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
            return Err(Malformed("an append that makes the value too long"));
        }
        self.values.append(key, value);
        self.wake_all(key);
        Ok(())
    }

    fn wait(&mut self, client: Client, keys: &[&[u8]]) -> Result<(), Malformed> {
        let awaited: Vec<Vec<u8>> =
            keys.iter().filter(|key| !self.values.contains(key)).map(|key| key.to_vec()).collect();
        if awaited.is_empty() {
            return self.reply(client, &[ALL_SET]);
        }
        let bytes = awaited_bytes(&awaited);
        if self.bytes() + bytes > MAX_BYTES {
            return Err(Malformed("the store is full"));
        }
        self.promised += bytes;
        for key in &awaited {
            self.waiting.entry(key.clone()).or_default().push(client);
        }
        let state = self.clients.get_mut(&client).ok_or(Malformed("the client has left"))?;
        (state.missing, state.awaited) = (awaited.len(), awaited);
        Ok(())
    }

    /// Cancels the client's wait, if any.
    fn cancel(&mut self, client: Client) {
        let Some(state) = self.clients.get_mut(&client) else { return };
        state.missing = 0;
        let awaited = std::mem::take(&mut state.awaited);
        self.promised -= awaited_bytes(&awaited);
        for key in awaited {
            if let Entry::Occupied(mut waiting) = self.waiting.entry(key) {
                waiting.get_mut().retain(|other| *other != client);
                if waiting.get().is_empty() {
                    waiting.remove();
                }
            }
        }
    }

    /// Wakes all clients that are waiting for a key. Called after the key has been set.
    fn wake_all(&mut self, key: &[u8]) {
        for client in self.waiting.remove(key).unwrap_or_default() {
            self.wake(client);
        }
    }

    fn wake(&mut self, client: Client) {
        let Some(state) = self.clients.get_mut(&client) else { return };
        state.missing = state.missing.saturating_sub(1);
        if state.missing == 0 {
            self.promised -= awaited_bytes(&std::mem::take(&mut state.awaited));
            self.replies += 1;
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
        let state = self.clients.get_mut(&client).ok_or(Malformed("the client has left"))?;
        if state.replies.len() + bytes.len() > MAX_REPLIES {
            return Err(Malformed("the client does not read its replies"));
        }
        if self.replies + bytes.len() > MAX_REPLIES_OF_ALL {
            return Err(Malformed("too many unread replies to all clients"));
        }
        self.replies += bytes.len();
        state.replies.extend_from_slice(bytes);
        self.answered.push(client);
        Ok(())
    }
}

/// Returns the number of bytes that the hub uses for the awaited keys of a client: in the client's state and in the
/// lists of waiting clients per key.
fn awaited_bytes(keys: &[Vec<u8>]) -> usize {
    keys.iter().map(|key| 2 * key.len() + AWAITED_KEY).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates a hub with clients that may use the store.
    fn hub(clients: usize) -> Hub {
        let mut hub = Hub::new(None);
        for client in 0..clients {
            hub.enter(client);
            send(&mut hub, client, &Request::Validate(MAGIC)).expect("a greeting");
        }
        hub
    }

    fn send(hub: &mut Hub, client: Client, request: &Request<'_>) -> Result<(), Malformed> {
        let mut bytes = Vec::new();
        request.write(&mut bytes);
        let progress = hub.receive(client, &bytes)?;
        assert_eq!(progress.used, bytes.len());
        Ok(())
    }

    /// Sends one request per client. Returns the number of clients whose request the hub accepts and the reason for the
    /// first rejection.
    fn taken(hub: &mut Hub, clients: usize, request: &Request<'_>) -> (usize, &'static str) {
        let refused = (0..clients).find_map(|client| Some((client, send(hub, client, request).err()?)));
        let (client, why) = refused.expect("a limit");
        hub.leave(client);
        (client, why.0)
    }

    #[test]
    fn replies_of_all_clients_are_limited() {
        let mut hub = hub(40);
        let value = vec![7; MAX_REPLIES / 2];
        send(&mut hub, 0, &Request::Set { key: b"key", value: &value }).expect("set");
        let (clients, why) = taken(&mut hub, 40, &Request::Get { key: b"key" });
        assert_eq!((clients, why), (31, "too many unread replies to all clients"));
        // One client reads its replies, which frees space for another client.
        let replies = hub.replies(3).expect("a client").len();
        hub.sent(3, replies);
        send(&mut hub, 35, &Request::Get { key: b"key" }).expect("room");
        (0..40).for_each(|client| hub.leave(client));
        assert_eq!((hub.replies, hub.promised), (0, 0));
    }

    #[test]
    fn awaited_keys_of_all_clients_are_limited() {
        let mut hub = hub(40);
        let key = vec![b'k'; 4000];
        let keys: Vec<&[u8]> = vec![&key; 10];
        let (clients, why) = taken(&mut hub, 40, &Request::Wait { keys });
        assert_eq!((clients, why), (MAX_BYTES / (10 * 8064), "the store is full"));
        // Space is freed when a client stops waiting, and when a key is set.
        send(&mut hub, 0, &Request::CancelWait).expect("canceled");
        send(&mut hub, 30, &Request::Wait { keys: vec![&key; 10] }).expect("room");
        hub.leave(1);
        send(&mut hub, 31, &Request::Set { key: &key, value: b"" }).expect("room");
        assert_eq!(hub.promised, 0);
    }

    #[test]
    fn wills_of_all_clients_are_limited() {
        let mut hub = hub(40);
        let value = vec![0; 50_000];
        let will = Request::Will { key: b"key", value: &value };
        let (clients, why) = taken(&mut hub, 40, &will);
        assert_eq!((clients, why), (MAX_BYTES / 50_003, "the store is full"));
        send(&mut hub, 0, &Request::Will { key: b"", value: b"" }).expect("revoked");
        send(&mut hub, 0, &will).expect("room");
        send(&mut hub, 0, &will).expect("one will replaces the other");
        // The space for the will was reserved, so it can be executed.
        hub.leave(0);
        assert_eq!(hub.values.get(b"key").map(<[u8]>::len), Some(50_000));
        (1..40).for_each(|client| drop(send(&mut hub, client, &Request::Will { key: b"", value: b"" })));
        assert_eq!(hub.promised, 0);
    }
}
