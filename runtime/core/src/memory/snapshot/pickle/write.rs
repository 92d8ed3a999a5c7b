//! Writes a snapshot as a pickle of protocol 2, made of dicts, lists, tuples, strings and numbers only.
//!
//! Guarantees: any Python 3 loads it without a library, and so does PyTorch's viewer in JavaScript, which knows
//! only a part of the opcodes and makes a plain number of at most eight bytes. Strings and stacks that occur
//! often are written once.

use std::collections::HashMap;
use std::io::{Result, Write};

use super::super::{AllocatorSettings, Block, ExternalAnnotation, Frame, Segment, Snapshot, TraceEntry};
use super::opcode;

/// Items that are put into a list or dict at once: Python's own number, which keeps readers' stacks small.
const BATCH: usize = 1000;

/// Writes `snapshot` to `out`.
pub(in super::super) fn write(snapshot: &Snapshot, out: &mut impl Write) -> Result<()> {
    let mut pickle =
        Pickle { out, strings: HashMap::new(), frames: HashMap::new(), stacks: HashMap::new(), memos: 0 };
    pickle.put(&[opcode::PROTO, 2])?;
    pickle.dict(|p| {
        p.entry("segments", |p| p.list(&snapshot.segments, Pickle::segment))?;
        p.entry("device_traces", |p| {
            p.list(&snapshot.device_traces, |p, trace| p.list(trace, Pickle::trace))
        })?;
        p.entry("allocator_settings", |p| p.settings(&snapshot.allocator_settings))?;
        p.entry("external_annotations", |p| p.list(&snapshot.external_annotations, Pickle::annotation))?;
        p.entry("host_segments", |p| p.list(&snapshot.host_segments, Pickle::segment))?;
        p.entry("host_traces", |p| p.list(&snapshot.host_traces, Pickle::trace))
    })?;
    pickle.put(&[opcode::STOP])
}

struct Pickle<'a, W> {
    out: &'a mut W,
    strings: HashMap<&'a str, u32>,
    frames: HashMap<&'a Frame, u32>,
    stacks: HashMap<&'a [Frame], u32>,
    /// Values that can be referred to.
    memos: u32,
}

impl<'a, W: Write> Pickle<'a, W> {
    fn segment(&mut self, segment: &'a Segment) -> Result<()> {
        self.dict(|p| {
            p.entry("device", |p| p.number(segment.device.into()))?;
            p.entry("address", |p| p.number(segment.address.into()))?;
            p.entry("total_size", |p| p.number(segment.total_size.into()))?;
            p.entry("allocated_size", |p| p.number(segment.allocated_size.into()))?;
            p.entry("active_size", |p| p.number(segment.active_size.into()))?;
            p.entry("requested_size", |p| p.number(segment.requested_size.into()))?;
            p.entry("stream", |p| p.number(segment.stream.into()))?;
            p.entry("segment_type", |p| p.string(segment.segment_type.name()))?;
            p.entry("segment_pool_id", |p| p.pair(segment.segment_pool_id))?;
            p.entry("is_expandable", |p| p.bool(segment.is_expandable))?;
            p.entry("registration_counter", |p| p.number(segment.registration_counter.into()))?;
            p.entry("frames", |p| p.stack(&segment.frames))?;
            p.entry("blocks", |p| p.list(&segment.blocks, Pickle::block))
        })
    }

    fn block(&mut self, block: &'a Block) -> Result<()> {
        self.dict(|p| {
            p.entry("address", |p| p.number(block.address.into()))?;
            p.entry("size", |p| p.number(block.size.into()))?;
            p.entry("requested_size", |p| p.number(block.requested_size.into()))?;
            p.entry("state", |p| p.string(block.state.name()))?;
            p.entry("frames", |p| p.stack(&block.frames))
        })
    }

    fn trace(&mut self, entry: &'a TraceEntry) -> Result<()> {
        self.dict(|p| {
            p.entry("action", |p| p.string(entry.action.name()))?;
            p.entry(entry.action.address_key(), |p| p.number(entry.addr.into()))?;
            p.entry("size", |p| p.number(entry.size.into()))?;
            p.entry("stream", |p| p.number(entry.stream.into()))?;
            p.entry("time_us", |p| p.number(entry.time_us.into()))?;
            p.entry("frames", |p| p.stack(&entry.frames))?;
            p.entry("pool_id", |p| p.pair(entry.pool_id))
        })
    }

    fn annotation(&mut self, annotation: &'a ExternalAnnotation) -> Result<()> {
        self.dict(|p| {
            p.entry("device", |p| p.number(annotation.device.into()))?;
            p.entry("time_us", |p| p.number(annotation.time_us.into()))?;
            p.entry("name", |p| p.string(&annotation.name))?;
            p.entry("stage", |p| p.string(&annotation.stage))
        })
    }

    fn settings(&mut self, settings: &'a AllocatorSettings) -> Result<()> {
        self.dict(|p| {
            p.entry("PYTORCH_CUDA_ALLOC_CONF", |p| p.string(&settings.alloc_conf))?;
            p.entry("max_split_size", |p| p.number(settings.max_split_size.into()))?;
            p.entry("garbage_collection_threshold", |p| p.float(settings.garbage_collection_threshold))?;
            p.entry("expandable_segments", |p| p.bool(settings.expandable_segments))?;
            p.entry("pinned_num_register_threads", |p| {
                p.number(settings.pinned_num_register_threads.into())
            })?;
            p.entry("release_lock_on_cudamalloc", |p| p.bool(settings.release_lock_on_cudamalloc))?;
            p.entry("pinned_use_cuda_host_register", |p| p.bool(settings.pinned_use_cuda_host_register))?;
            p.entry("roundup_power2_divisions", |p| {
                p.dict(|p| {
                    settings
                        .roundup_power2_divisions
                        .iter()
                        .try_for_each(|(size, divisions)| p.entry(size, |p| p.number((*divisions).into())))
                })
            })?;
            p.entry("graph_capture_record_stream_reuse", |p| {
                p.bool(settings.graph_capture_record_stream_reuse)
            })?;
            p.entry("max_round_threshold", |p| p.number(settings.max_round_threshold.into()))?;
            p.entry("max_cached_size", |p| p.number(settings.max_cached_size.into()))
        })
    }

    fn stack(&mut self, frames: &'a [Frame]) -> Result<()> {
        if let Some(&memo) = self.stacks.get(frames) {
            return self.again(memo);
        }
        self.put(&[opcode::EMPTY_LIST])?;
        let memo = self.remember()?;
        self.stacks.insert(frames, memo);
        self.fill(frames, Pickle::frame)
    }

    fn frame(&mut self, frame: &'a Frame) -> Result<()> {
        if let Some(&memo) = self.frames.get(frame) {
            return self.again(memo);
        }
        self.put(&[opcode::EMPTY_DICT])?;
        let memo = self.remember()?;
        self.frames.insert(frame, memo);
        self.put(&[opcode::MARK])?;
        self.entry("filename", |p| p.string(&frame.filename))?;
        self.entry("line", |p| p.number(frame.line.into()))?;
        self.entry("name", |p| p.string(&frame.name))?;
        self.put(&[opcode::SETITEMS])
    }

    fn dict(&mut self, entries: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        self.put(&[opcode::EMPTY_DICT, opcode::MARK])?;
        entries(self)?;
        self.put(&[opcode::SETITEMS])
    }

    fn entry(&mut self, key: &'a str, value: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        self.string(key)?;
        value(self)
    }

    fn list<T>(&mut self, items: &'a [T], write: impl FnMut(&mut Self, &'a T) -> Result<()>) -> Result<()> {
        self.put(&[opcode::EMPTY_LIST])?;
        self.fill(items, write)
    }

    /// Puts items into the list that was written last.
    fn fill<T>(
        &mut self,
        items: &'a [T],
        mut write: impl FnMut(&mut Self, &'a T) -> Result<()>,
    ) -> Result<()> {
        for batch in items.chunks(BATCH) {
            self.put(&[opcode::MARK])?;
            batch.iter().try_for_each(|item| write(self, item))?;
            self.put(&[opcode::APPENDS])?;
        }
        Ok(())
    }

    fn pair(&mut self, (first, second): (u64, u64)) -> Result<()> {
        self.number(first.into())?;
        self.number(second.into())?;
        self.put(&[opcode::TUPLE2])
    }

    fn string(&mut self, text: &'a str) -> Result<()> {
        if let Some(&memo) = self.strings.get(text) {
            return self.again(memo);
        }
        let length = u32::try_from(text.len()).map_err(|_| std::io::Error::other("a text has over 4 GiB"))?;
        self.put(&[opcode::BINUNICODE])?;
        self.put(&length.to_le_bytes())?;
        self.put(text.as_bytes())?;
        let memo = self.remember()?;
        self.strings.insert(text, memo);
        Ok(())
    }

    fn bool(&mut self, value: bool) -> Result<()> {
        self.put(&[if value { opcode::NEWTRUE } else { opcode::NEWFALSE }])
    }

    fn float(&mut self, value: f64) -> Result<()> {
        self.put(&[opcode::BINFLOAT])?;
        self.put(&value.to_be_bytes())
    }

    fn number(&mut self, value: i128) -> Result<()> {
        if let Ok(value) = u8::try_from(value) {
            return self.put(&[opcode::BININT1, value]);
        }
        if let Ok(value) = i32::try_from(value) {
            self.put(&[opcode::BININT])?;
            return self.put(&value.to_le_bytes());
        }
        // Beyond 63 bits the sign needs a byte of its own.
        let length = if i64::try_from(value).is_ok() { 8 } else { 16 };
        self.put(&[opcode::LONG1, length])?;
        self.put(&value.to_le_bytes()[..length.into()])
    }

    /// Lets the value that was written last be referred to by the number that is returned.
    fn remember(&mut self) -> Result<u32> {
        let memo = self.memos;
        self.memos += 1;
        self.memo(opcode::BINPUT, opcode::LONG_BINPUT, memo)?;
        Ok(memo)
    }

    fn again(&mut self, memo: u32) -> Result<()> {
        self.memo(opcode::BINGET, opcode::LONG_BINGET, memo)
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
