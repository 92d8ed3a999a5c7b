//! Writes a snapshot as a pickle (protocol 2) that contains only dicts, lists, tuples, strings and numbers.
//!
//! Every version of Python 3 can load the pickle without a library. So can PyTorch's JavaScript viewer, which supports
//! only some opcodes and numbers of at most eight bytes. Repeated strings and stacks are written once.

use std::collections::HashMap;
use std::io::{Error, Result, Write};

use serde::Serialize;
use serde_json::{Map, Value};

use super::Snapshot;

/// Number of items added to a list at once, as in Python. A small number keeps readers' stacks small.
const BATCH: usize = 1000;
/// Top-level keys that viewers expect; empty in this crate's snapshots.
const EMPTY: [&str; 3] = ["external_annotations", "host_segments", "host_traces"];

/// Writes `snapshot` to `out`.
pub fn write(snapshot: &Snapshot, out: &mut impl Write) -> Result<()> {
    let mut pickle = Pickle { out, strings: HashMap::new(), stacks: HashMap::new(), memos: 0 };
    pickle.put(&[opcode::PROTO, 2, opcode::EMPTY_DICT, opcode::MARK])?;
    pickle.string("segments")?;
    pickle.list(&snapshot.segments, Pickle::any)?;
    pickle.string("device_traces")?;
    pickle.list(&snapshot.device_traces, |p, trace| p.list(trace, Pickle::any))?;
    pickle.string("allocator_settings")?;
    pickle.any(&snapshot.allocator_settings)?;
    for key in EMPTY {
        pickle.string(key)?;
        pickle.put(&[opcode::EMPTY_LIST])?;
    }
    pickle.put(&[opcode::SETITEMS, opcode::STOP])
}

/// Opcodes of pickles, under Python's names.
mod opcode {
    pub const PROTO: u8 = 0x80;
    pub const STOP: u8 = b'.';
    pub const MARK: u8 = b'(';

    pub const BINPUT: u8 = b'q';
    pub const LONG_BINPUT: u8 = b'r';
    pub const BINGET: u8 = b'h';
    pub const LONG_BINGET: u8 = b'j';

    pub const NONE: u8 = b'N';
    pub const NEWTRUE: u8 = 0x88;
    pub const NEWFALSE: u8 = 0x89;
    pub const BININT: u8 = b'J';
    pub const BININT1: u8 = b'K';
    pub const LONG1: u8 = 0x8a;
    pub const BINFLOAT: u8 = b'G';
    pub const BINUNICODE: u8 = b'X';

    pub const EMPTY_LIST: u8 = b']';
    pub const APPENDS: u8 = b'e';
    pub const EMPTY_DICT: u8 = b'}';
    pub const SETITEMS: u8 = b'u';
    pub const TUPLE2: u8 = 0x86;
}

struct Pickle<'o, W> {
    out: &'o mut W,
    strings: HashMap<String, u32>,
    stacks: HashMap<Value, u32>,
    memos: u32,
}

impl<W: Write> Pickle<'_, W> {
    /// Writes a small item of the snapshot, temporarily keeping two copies of it in memory.
    fn any(&mut self, item: &impl Serialize) -> Result<()> {
        self.value(&serde_json::to_value(item)?)
    }

    fn value(&mut self, value: &Value) -> Result<()> {
        match value {
            Value::Null => self.put(&[opcode::NONE]),
            Value::Bool(value) => self.put(&[if *value { opcode::NEWTRUE } else { opcode::NEWFALSE }]),
            Value::Number(number) => match (number.as_i128(), number.as_f64()) {
                (Some(number), _) => self.number(number),
                (None, float) => {
                    self.put(&[opcode::BINFLOAT])?;
                    self.put(&float.unwrap_or(f64::NAN).to_be_bytes())
                }
            },
            Value::String(text) => self.string(text),
            Value::Array(items) => self.list(items, Self::value),
            Value::Object(entries) => self.dict(entries),
        }
    }

    fn dict(&mut self, entries: &Map<String, Value>) -> Result<()> {
        self.put(&[opcode::EMPTY_DICT, opcode::MARK])?;
        for (key, value) in entries {
            self.string(key)?;
            match (key.as_str(), value) {
                ("frames", stack) => self.stack(stack)?,
                ("pool_id" | "segment_pool_id", Value::Array(pair)) if pair.len() == 2 => {
                    pair.iter().try_for_each(|number| self.value(number))?;
                    self.put(&[opcode::TUPLE2])?;
                }
                _ => self.value(value)?,
            }
        }
        self.put(&[opcode::SETITEMS])
    }

    fn stack(&mut self, frames: &Value) -> Result<()> {
        if let Some(&memo) = self.stacks.get(frames) {
            return self.memo(opcode::BINGET, opcode::LONG_BINGET, memo);
        }
        self.value(frames)?;
        let memo = self.remember()?;
        self.stacks.insert(frames.clone(), memo);
        Ok(())
    }

    fn list<T>(&mut self, items: &[T], mut write: impl FnMut(&mut Self, &T) -> Result<()>) -> Result<()> {
        self.put(&[opcode::EMPTY_LIST])?;
        for batch in items.chunks(BATCH) {
            self.put(&[opcode::MARK])?;
            batch.iter().try_for_each(|item| write(self, item))?;
            self.put(&[opcode::APPENDS])?;
        }
        Ok(())
    }

    fn string(&mut self, text: &str) -> Result<()> {
        if let Some(&memo) = self.strings.get(text) {
            return self.memo(opcode::BINGET, opcode::LONG_BINGET, memo);
        }
        let length = u32::try_from(text.len()).map_err(|_| Error::other("a string is larger than 4 GiB"))?;
        self.put(&[opcode::BINUNICODE])?;
        self.put(&length.to_le_bytes())?;
        self.put(text.as_bytes())?;
        let memo = self.remember()?;
        self.strings.insert(text.to_owned(), memo);
        Ok(())
    }

    fn number(&mut self, value: i128) -> Result<()> {
        if let Ok(value) = u8::try_from(value) {
            return self.put(&[opcode::BININT1, value]);
        }
        if let Ok(value) = i32::try_from(value) {
            self.put(&[opcode::BININT])?;
            return self.put(&value.to_le_bytes());
        }
        // A number that needs more than 63 bits requires an additional byte for the sign.
        let length = if i64::try_from(value).is_ok() { 8 } else { 16 };
        self.put(&[opcode::LONG1, length])?;
        self.put(&value.to_le_bytes()[..length.into()])
    }

    /// Memoizes the last written value. Returns its memo index.
    fn remember(&mut self) -> Result<u32> {
        let memo = self.memos;
        self.memos += 1;
        self.memo(opcode::BINPUT, opcode::LONG_BINPUT, memo)?;
        Ok(memo)
    }

    fn memo(&mut self, short: u8, long: u8, memo: u32) -> Result<()> {
        if let Ok(memo) = u8::try_from(memo) {
            return self.put(&[short, memo]);
        }
        self.put(&[long])?;
        self.put(&memo.to_le_bytes())
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.out.write_all(bytes)
    }
}
