//! [`Frame`]: messages between ranks and their encoding on a socket.
//!
//! On a socket, a frame consists of a 20-byte header, the text (JSON) and the data, in this order. The header is
//! little-endian: kind, lane, 2 zero bytes, text length in bytes, data length in bytes, and the message's total length
//! in bytes or 0. Both lengths are checked against limits before memory is allocated.

use std::io::{Error, ErrorKind, Read, Result};
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::failure::Failure;
use crate::fingerprint::Fingerprint;
use crate::recorder::Progress;

/// Maximum size of a frame's data, in bytes.
pub(crate) const CHUNK: usize = 256 << 10;
/// Maximum size of a frame's text, in bytes.
const MAX_TEXT: usize = 64 << 10;
const HEADER: usize = 20;

/// Message channel. Messages on different lanes do not wait for each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lane {
    Collective,
    PointToPoint,
    /// Agreements between threads that call the communicator while its operations run.
    Setup,
}

impl Lane {
    pub const ALL: [Self; 3] = [Self::Collective, Self::PointToPoint, Self::Setup];
}

/// Chunk of a message. The first one also contains the fingerprint and the total length.
#[derive(Debug, Clone)]
pub(crate) struct Part {
    pub begin: Option<(Arc<Fingerprint>, u64)>,
    pub data: Vec<u8>,
}

#[derive(Debug, Clone)]
pub(crate) enum Frame {
    Part(Lane, Part),
    /// Flow-control credit. The receiver has consumed a part, so the sender may send another.
    Credit(Lane),
    /// Announces the operation that the sender will run next, in checked mode.
    Announce(Fingerprint),
    /// Request for the receiver's progress.
    Ask,
    Answer(Box<Progress>),
    /// The communicator has failed.
    Failed(Failure),
    /// Shutdown notice. The sender no longer needs any of the other ranks.
    Goodbye,
}

fn garbage(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidData, what.into())
}

fn json(value: &impl Serialize) -> Vec<u8> {
    // Every value in a frame can be represented in JSON, so encoding cannot fail.
    serde_json::to_vec(value).unwrap_or_default()
}

fn parsed<T: DeserializeOwned>(text: &[u8]) -> Result<T> {
    serde_json::from_slice(text).map_err(|error| garbage(error.to_string()))
}

impl Frame {
    /// Encodes the frame for a socket.
    pub fn encode(&self) -> Vec<u8> {
        let (kind, lane, total, text, data): (u8, Option<Lane>, u64, Vec<u8>, &[u8]) = match self {
            Self::Part(lane, Part { begin: Some((fingerprint, total)), data }) => {
                (0, Some(*lane), *total, json(&**fingerprint), data)
            }
            Self::Part(lane, Part { begin: None, data }) => (1, Some(*lane), 0, Vec::new(), data),
            Self::Credit(lane) => (2, Some(*lane), 0, Vec::new(), &[]),
            Self::Announce(fingerprint) => (3, None, 0, json(fingerprint), &[]),
            Self::Ask => (4, None, 0, Vec::new(), &[]),
            Self::Answer(progress) => (5, None, 0, json(progress), &[]),
            Self::Failed(failure) => (6, None, 0, json(failure), &[]),
            Self::Goodbye => (7, None, 0, Vec::new(), &[]),
        };
        let mut bytes = Vec::with_capacity(HEADER + text.len() + data.len());
        bytes.extend([kind, lane.map_or(0, |lane| lane as u8), 0, 0]);
        bytes.extend((text.len() as u32).to_le_bytes());
        bytes.extend((data.len() as u32).to_le_bytes());
        bytes.extend(total.to_le_bytes());
        bytes.extend(text);
        bytes.extend(data);
        bytes
    }

    /// Reads a frame from a socket. Returns `None` if the connection ends between two frames.
    ///
    /// Fails with [`ErrorKind::InvalidData`] if the data is malformed.
    pub fn read(from: &mut impl Read) -> Result<Option<Self>> {
        let mut header = [0; HEADER];
        let mut read = 0;
        while read < HEADER {
            match from.read(&mut header[read..]) {
                Ok(0) if read == 0 => return Ok(None),
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(more) => read += more,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        let word =
            |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let (text_bytes, data_bytes) = (word(4) as usize, word(8) as usize);
        let total = u64::from(word(12)) | u64::from(word(16)) << 32;
        if text_bytes > MAX_TEXT || data_bytes > CHUNK || header[2..4] != [0; 2] {
            return Err(garbage(format!("a frame of {text_bytes} bytes of text and {data_bytes} of data")));
        }
        let Some(&lane) = Lane::ALL.get(usize::from(header[1])) else {
            return Err(garbage(format!("a frame on lane {}", header[1])));
        };
        let mut text = vec![0; text_bytes];
        from.read_exact(&mut text)?;
        let mut data = vec![0; data_bytes];
        from.read_exact(&mut data)?;
        Ok(Some(match header[0] {
            0 => Self::Part(lane, Part { begin: Some((Arc::new(parsed(&text)?), total)), data }),
            1 => Self::Part(lane, Part { begin: None, data }),
            2 => Self::Credit(lane),
            3 => Self::Announce(parsed(&text)?),
            4 => Self::Ask,
            5 => Self::Answer(parsed(&text)?),
            6 => Self::Failed(parsed(&text)?),
            7 => Self::Goodbye,
            kind => return Err(garbage(format!("a frame of kind {kind}"))),
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::*;

    #[test]
    fn frames_are_read_as_they_were_written() {
        let fingerprint = Fingerprint { peer: Some(3), ..Fingerprint::new("send", Cow::Borrowed("f32"), 9) };
        let begin = Some((Arc::new(fingerprint.clone()), 1 << 40));
        let frames = [
            Frame::Part(Lane::PointToPoint, Part { begin, data: vec![1, 2, 3] }),
            Frame::Part(Lane::Collective, Part { begin: None, data: vec![7; CHUNK] }),
            Frame::Credit(Lane::PointToPoint),
            Frame::Announce(fingerprint.clone()),
            Frame::Ask,
            Frame::Answer(Box::new(Progress { running: vec![fingerprint], enqueued: None, done: None })),
            Frame::Failed(Failure::Left { rank: 2 }),
            Frame::Goodbye,
        ];
        let bytes: Vec<u8> = frames.iter().flat_map(Frame::encode).collect();
        let mut from = &bytes[..];
        for frame in &frames {
            let read = Frame::read(&mut from).expect("a frame").expect("not the end");
            assert_eq!(format!("{read:?}"), format!("{frame:?}"));
        }
        assert!(Frame::read(&mut from).expect("the end").is_none());
    }

    #[test]
    fn no_bytes_panic_or_allocate_much() {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..20_000 {
            let len = random.usize(..64);
            let mut bytes: Vec<u8> = (0..len).map(|_| random.u8(..)).collect();
            if let Some(kind) = bytes.first_mut() {
                *kind %= 9;
            }
            bytes.iter_mut().skip(1).take(3).for_each(|byte| *byte %= 2);
            let _ = Frame::read(&mut &bytes[..]);
        }
        let mut header = [0u8; HEADER];
        header[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
        let error = Frame::read(&mut &header[..]).expect_err("too long");
        assert_eq!(error.kind(), ErrorKind::InvalidData);
        assert_eq!(error.to_string(), format!("a frame of 0 bytes of text and {} of data", u32::MAX));
    }
}
