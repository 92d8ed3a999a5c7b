//! Wire protocol of PyTorch's `TCPStore`, without its queues, and with a handshake and wills as extensions.
//!
//! A request consists of an operation code and its arguments. Numbers are little-endian, and text is preceded by its
//! length in 64 bits. Every length is checked against its limit before it is used, and an incomplete request allocates
//! no memory.
//!
//! | code | request | reply |
//! | --- | --- | --- |
//! | 0 | validate: the number [`MAGIC`], as the first request of a connection | none |
//! | 1, 9, 11 | set, append, set several | none |
//! | 2 | compare and set: key, expected, desired | the new value |
//! | 3, 10 | get, get several: keys, all of which are set | the values |
//! | 4 | add: key, number | the sum |
//! | 5 | check: keys | 0 if all are set, otherwise 1 |
//! | 6, 12 | wait: keys; cancel the wait | 0 as soon as all are set; 1 |
//! | 7 | the number of keys | that number |
//! | 8 | delete: key | number of removed keys |
//! | 13 | ping: a number | the same number |
//! | 160, 161 | extensions, in this order: a nonce; a proof of the token | a nonce and a proof; 0 |
//! | 162 | extension: key and value to append when this connection ends; an empty key cancels the append | 0 |

use crate::store::token::PROOF;
use crate::store::{LONGEST_KEY, LONGEST_VALUE};

/// Magic number that a client sends at the start of a connection.
pub const MAGIC: u32 = 0x3C85_F7CE;
/// Prefix that PyTorch's clients add to every key of their users.
pub const KEY_PREFIX: u8 = b'/';
/// Maximum number of keys per request.
pub const MAX_KEYS: usize = 16 << 10;
/// Maximum size of a request, in bytes.
pub const LONGEST_REQUEST: usize = 4 << 20;
/// Reply to a wait: all keys are set.
pub const ALL_SET: u8 = 0;
/// Reply to the cancellation of a wait.
pub const CANCELED: u8 = 1;
/// Last byte that a server sends if, for lack of room or time, it closes a connection before the client could prove
/// that it knows the token. The client may retry.
pub const TURNED_AWAY: u8 = 0xff;

mod code {
    pub const VALIDATE: u8 = 0;
    pub const SET: u8 = 1;
    pub const COMPARE_SET: u8 = 2;
    pub const GET: u8 = 3;
    pub const ADD: u8 = 4;
    pub const CHECK: u8 = 5;
    pub const WAIT: u8 = 6;
    pub const COUNT: u8 = 7;
    pub const DELETE: u8 = 8;
    pub const APPEND: u8 = 9;
    pub const MULTI_GET: u8 = 10;
    pub const MULTI_SET: u8 = 11;
    pub const CANCEL_WAIT: u8 = 12;
    pub const PING: u8 = 13;
    pub const NONCE: u8 = 160;
    pub const PROOF: u8 = 161;
    pub const WILL: u8 = 162;
}

/// Request from a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request<'a> {
    Validate(u32),
    Set { key: &'a [u8], value: &'a [u8] },
    CompareSet { key: &'a [u8], expected: &'a [u8], desired: &'a [u8] },
    Get { key: &'a [u8] },
    Add { key: &'a [u8], amount: i64 },
    Check { keys: Vec<&'a [u8]> },
    Wait { keys: Vec<&'a [u8]> },
    Count,
    Delete { key: &'a [u8] },
    Append { key: &'a [u8], value: &'a [u8] },
    MultiGet { keys: Vec<&'a [u8]> },
    MultiSet { values: Vec<(&'a [u8], &'a [u8])> },
    CancelWait,
    Ping(u32),
    Nonce(&'a [u8]),
    Proof(&'a [u8]),
    Will { key: &'a [u8], value: &'a [u8] },
}

/// Result of parsing the bytes received so far.
#[derive(Debug, PartialEq, Eq)]
pub enum Parsed<'a> {
    /// Complete request, with its length in bytes.
    Request(Request<'a>, usize),
    /// Incomplete request, with the number of bytes that must be available before parsing can continue.
    Unfinished(usize),
}

/// Error for invalid bytes, with a description of the problem.
#[derive(Debug, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

/// Parses the request at the beginning of the bytes.
pub fn parse(bytes: &[u8]) -> Result<Parsed<'_>, Malformed> {
    let mut reader = Reader { bytes, at: 0 };
    match reader.request() {
        Ok(request) => Ok(Parsed::Request(request, reader.at)),
        Err(Stop::Unfinished(needed)) if needed <= LONGEST_REQUEST => Ok(Parsed::Unfinished(needed)),
        Err(Stop::Unfinished(_)) => Err(Malformed("a request is too long")),
        Err(Stop::Malformed(what)) => Err(Malformed(what)),
    }
}

enum Stop {
    Unfinished(usize),
    Malformed(&'static str),
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn request(&mut self) -> Result<Request<'a>, Stop> {
        Ok(match self.take(1)?[0] {
            code::VALIDATE => Request::Validate(self.u32()?),
            code::SET => Request::Set { key: self.key()?, value: self.value()? },
            code::COMPARE_SET => {
                Request::CompareSet { key: self.key()?, expected: self.value()?, desired: self.value()? }
            }
            code::GET => Request::Get { key: self.key()? },
            code::ADD => Request::Add { key: self.key()?, amount: i64::from_le_bytes(self.array()?) },
            code::CHECK => Request::Check { keys: self.several(Self::key)? },
            code::WAIT => Request::Wait { keys: self.several(Self::key)? },
            code::COUNT => Request::Count,
            code::DELETE => Request::Delete { key: self.key()? },
            code::APPEND => Request::Append { key: self.key()?, value: self.value()? },
            code::MULTI_GET => Request::MultiGet { keys: self.several(Self::key)? },
            code::MULTI_SET => {
                Request::MultiSet { values: self.several(|reader| Ok((reader.key()?, reader.value()?)))? }
            }
            code::CANCEL_WAIT => Request::CancelWait,
            code::PING => Request::Ping(self.u32()?),
            code::NONCE => Request::Nonce(self.take(PROOF)?),
            code::PROOF => Request::Proof(self.take(PROOF)?),
            code::WILL => Request::Will { key: self.key()?, value: self.value()? },
            _ => return Err(Stop::Malformed("an unknown operation")),
        })
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Stop> {
        let end = self.at + length;
        let taken = self.bytes.get(self.at..end).ok_or(Stop::Unfinished(end))?;
        self.at = end;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Stop> {
        Ok(self.take(N)?.try_into().expect("as many bytes as were taken"))
    }

    fn u32(&mut self) -> Result<u32, Stop> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    fn length(&mut self, limit: usize, what: &'static str) -> Result<usize, Stop> {
        length(self.array()?, limit).ok_or(Stop::Malformed(what))
    }

    fn key(&mut self) -> Result<&'a [u8], Stop> {
        // The limit for users excludes the prefix that clients add.
        let length = self.length(LONGEST_KEY + 1, "a key is too long")?;
        self.take(length)
    }

    fn value(&mut self) -> Result<&'a [u8], Stop> {
        let length = self.length(LONGEST_VALUE, "a value is too long")?;
        self.take(length)
    }

    fn several<T>(&mut self, mut one: impl FnMut(&mut Self) -> Result<T, Stop>) -> Result<Vec<T>, Stop> {
        let count = self.length(MAX_KEYS, "too many keys")?;
        // Each item occupies at least a length field, which limits the count.
        let end = self.at + count * size_of::<u64>();
        if self.bytes.len() < end {
            return Err(Stop::Unfinished(end));
        }
        (0..count).map(|_| one(self)).collect()
    }
}

/// Decodes a length. Returns `None` if the length exceeds the limit.
pub fn length(bytes: [u8; 8], limit: usize) -> Option<usize> {
    usize::try_from(u64::from_le_bytes(bytes)).ok().filter(|length| *length <= limit)
}

impl Request<'_> {
    /// Encodes the request.
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Validate(number) => write(out, code::VALIDATE, &[]).extend(number.to_le_bytes()),
            Self::Set { key, value } => drop(write(out, code::SET, &[key, value])),
            Self::CompareSet { key, expected, desired } => {
                write(out, code::COMPARE_SET, &[key, expected, desired]);
            }
            Self::Get { key } => drop(write(out, code::GET, &[key])),
            Self::Add { key, amount } => write(out, code::ADD, &[key]).extend(amount.to_le_bytes()),
            Self::Check { keys } => write_several(out, code::CHECK, keys),
            Self::Wait { keys } => write_several(out, code::WAIT, keys),
            Self::Count => out.push(code::COUNT),
            Self::Delete { key } => drop(write(out, code::DELETE, &[key])),
            Self::Append { key, value } => drop(write(out, code::APPEND, &[key, value])),
            Self::MultiGet { keys } => write_several(out, code::MULTI_GET, keys),
            Self::MultiSet { values } => {
                out.push(code::MULTI_SET);
                out.extend((values.len() as u64).to_le_bytes());
                for (key, value) in values {
                    write_text(out, key);
                    write_text(out, value);
                }
            }
            Self::CancelWait => out.push(code::CANCEL_WAIT),
            Self::Ping(number) => write(out, code::PING, &[]).extend(number.to_le_bytes()),
            Self::Nonce(bytes) => write(out, code::NONCE, &[]).extend(*bytes),
            Self::Proof(bytes) => write(out, code::PROOF, &[]).extend(*bytes),
            Self::Will { key, value } => drop(write(out, code::WILL, &[key, value])),
        }
    }
}

fn write<'a>(out: &'a mut Vec<u8>, code: u8, texts: &[&[u8]]) -> &'a mut Vec<u8> {
    out.push(code);
    texts.iter().for_each(|text| write_text(out, text));
    out
}

fn write_several(out: &mut Vec<u8>, code: u8, keys: &[&[u8]]) {
    out.push(code);
    out.extend((keys.len() as u64).to_le_bytes());
    keys.iter().for_each(|key| write_text(out, key));
}

/// Encodes text as its length followed by its bytes.
pub fn write_text(out: &mut Vec<u8>, text: &[u8]) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend_from_slice(text);
}
