//! The packets of one track.

use std::collections::HashMap;

use super::{BEGIN, BOOTTIME, COUNTER, END, INCREMENTAL, INSTANT, NEEDS_STATE, STATE_CLEARED, field};
use crate::event::{Key, Label, Value, Values};
use crate::names::{Name, Names};
use crate::proto;

/// A packet sequence: its clock, its interned texts, and the slices that are open.
#[derive(Debug)]
pub(super) struct Sequence {
    id: u64,
    uuid: u64,
    /// The time of the last packet; `None` before the first.
    clock: Option<u64>,
    categories: Vec<&'static str>,
    labels: HashMap<Label, u64>,
    keys: Vec<Key>,
    texts: HashMap<Text, u64>,
    /// The ends of the slices that were begun, outermost first.
    open: Vec<u64>,
    /// The texts that the next packet interns.
    interned: Vec<u8>,
    event: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Text {
    Name(Name),
    Size([u32; 3]),
}

/// Something at a time.
#[derive(Debug)]
pub(super) struct Point<'a> {
    pub(super) time: u64,
    pub(super) kind: Kind,
    pub(super) category: &'static str,
    pub(super) label: Label,
    pub(super) correlation: u64,
    pub(super) values: &'a Values,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    /// The slice is written when later calls reach its end.
    Slice {
        end: u64,
    },
    Instant,
}

impl Sequence {
    pub(super) fn new(id: u64, uuid: u64) -> Self {
        Sequence {
            id,
            uuid,
            clock: None,
            categories: Vec::new(),
            labels: HashMap::new(),
            keys: Vec::new(),
            texts: HashMap::new(),
            open: Vec::new(),
            interned: Vec::new(),
            event: Vec::new(),
        }
    }

    /// Writes an event, and the ends of slices before it.
    pub(super) fn event(&mut self, point: &Point<'_>, names: &Names, out: &mut Vec<u8>) {
        self.end_slices(point.time, out);
        let mut event = std::mem::take(&mut self.event);
        event.clear();
        let kind = match point.kind {
            Kind::Slice { end } => {
                self.open.push(end);
                BEGIN
            }
            Kind::Instant => INSTANT,
        };
        proto::uint(&mut event, field::event::KIND, kind);
        proto::uint(&mut event, field::event::CATEGORY, self.category(point.category));
        proto::uint(&mut event, field::event::NAME, self.label(point.label, names));
        if point.correlation != 0 {
            proto::fixed(&mut event, field::event::FLOW, point.correlation);
        }
        for (key, value) in &point.values.0 {
            let key = self.key(*key);
            let value = match *value {
                Value::Text(name) => Ok(self.text(Text::Name(name), names)),
                Value::Size(size) => Ok(self.text(Text::Size(size), names)),
                other => Err(other),
            };
            proto::message(&mut event, field::event::ANNOTATION, |out| {
                proto::uint(out, field::annotation::NAME, key);
                match value {
                    Ok(text) => proto::uint(out, field::annotation::TEXT, text),
                    Err(Value::Uint(value)) => proto::uint(out, field::annotation::UINT, value),
                    Err(Value::Int(value)) => proto::uint(out, field::annotation::INT, value as u64),
                    Err(Value::Float(value)) => proto::fixed(out, field::annotation::DOUBLE, value.to_bits()),
                    Err(Value::Text(_) | Value::Size(_)) => {}
                }
            });
        }
        self.packet(point.time, &event, out);
        self.event = event;
    }

    /// Writes a value of the counter that the track is.
    pub(super) fn count(&mut self, time: u64, value: f64, out: &mut Vec<u8>) {
        let mut event = std::mem::take(&mut self.event);
        event.clear();
        proto::uint(&mut event, field::event::KIND, COUNTER);
        proto::fixed(&mut event, field::event::DOUBLE_VALUE, value.to_bits());
        self.packet(time, &event, out);
        self.event = event;
    }

    /// Writes the ends of slices up to a time.
    pub(super) fn end_slices(&mut self, time: u64, out: &mut Vec<u8>) {
        while let Some(end) = self.open.pop_if(|end| *end <= time) {
            self.packet(end, &[(field::event::KIND << 3) as u8, END as u8], out);
        }
    }

    fn packet(&mut self, time: u64, event: &[u8], out: &mut Vec<u8>) {
        let clock = match self.clock {
            Some(clock) => clock,
            None => {
                self.begin(time, out);
                time
            }
        };
        let is_late = time < clock;
        self.clock = Some(clock.max(time));
        proto::message(out, field::trace::PACKET, |packet| {
            proto::uint(packet, field::packet::SEQUENCE, self.id);
            proto::uint(packet, field::packet::SEQUENCE_FLAGS, NEEDS_STATE);
            if is_late {
                // The clock of the sequence only goes on.
                proto::uint(packet, field::packet::TIMESTAMP_CLOCK, BOOTTIME);
                proto::uint(packet, field::packet::TIMESTAMP, time);
            } else {
                proto::uint(packet, field::packet::TIMESTAMP, time - clock);
            }
            if !self.interned.is_empty() {
                proto::bytes(packet, field::packet::INTERNED_DATA, &self.interned);
            }
            proto::bytes(packet, field::packet::TRACK_EVENT, event);
        });
        self.interned.clear();
    }

    /// Sets the clock of the sequence, and what its packets leave out.
    fn begin(&mut self, time: u64, out: &mut Vec<u8>) {
        proto::message(out, field::trace::PACKET, |packet| {
            proto::uint(packet, field::packet::SEQUENCE, self.id);
            proto::uint(packet, field::packet::SEQUENCE_FLAGS, STATE_CLEARED);
            proto::message(packet, field::packet::CLOCK_SNAPSHOT, |snapshot| {
                for (clock, is_incremental) in [(BOOTTIME, false), (INCREMENTAL, true)] {
                    proto::message(snapshot, field::clocks::CLOCK, |out| {
                        proto::uint(out, field::clocks::ID, clock);
                        proto::uint(out, field::clocks::TIMESTAMP, time);
                        if is_incremental {
                            proto::uint(out, field::clocks::IS_INCREMENTAL, 1);
                        }
                    });
                }
            });
            proto::message(packet, field::packet::DEFAULTS, |defaults| {
                proto::uint(defaults, field::packet::TIMESTAMP_CLOCK, INCREMENTAL);
                proto::message(defaults, field::defaults::TRACK_EVENT, |event| {
                    proto::uint(event, field::defaults::TRACK, self.uuid);
                });
            });
        });
    }

    fn category(&mut self, text: &'static str) -> u64 {
        if let Some(index) = self.categories.iter().position(|known| *known == text) {
            return index as u64 + 1;
        }
        self.categories.push(text);
        intern(&mut self.interned, field::interned::CATEGORY, self.categories.len() as u64, text)
    }

    fn label(&mut self, label: Label, names: &Names) -> u64 {
        let next = self.labels.len() as u64 + 1;
        *self
            .labels
            .entry(label)
            .or_insert_with(|| intern(&mut self.interned, field::interned::NAME, next, label.text(names)))
    }

    fn key(&mut self, key: Key) -> u64 {
        if let Some(index) = self.keys.iter().position(|known| *known == key) {
            return index as u64 + 1;
        }
        self.keys.push(key);
        intern(&mut self.interned, field::interned::KEY, self.keys.len() as u64, key.text())
    }

    fn text(&mut self, text: Text, names: &Names) -> u64 {
        let next = self.texts.len() as u64 + 1;
        *self.texts.entry(text).or_insert_with(|| match text {
            Text::Name(name) => intern(&mut self.interned, field::interned::TEXT, next, names.text(name)),
            Text::Size([x, y, z]) => {
                intern(&mut self.interned, field::interned::TEXT, next, &format!("{x}x{y}x{z}"))
            }
        })
    }
}

fn intern(out: &mut Vec<u8>, field: u32, id: u64, text: &str) -> u64 {
    proto::message(out, field, |out| {
        proto::uint(out, field::interned::ID, id);
        proto::bytes(out, field::interned::VALUE, text.as_bytes());
    });
    id
}
