//! JSON event. A value can have any type, and unknown keys are skipped.

use std::io::BufRead;

use super::json::{Fault, Json};
use super::number::Number;

/// Value whose type may differ from the expected type.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) enum Loose {
    #[default]
    None,
    Number(Number),
    Text(String),
    /// The first three numbers of a list.
    Size([u32; 3]),
}

impl Loose {
    /// Returns the value as a number, even if the number is written as a string.
    fn number(&self) -> Option<Number> {
        match self {
            Loose::Number(number) => Some(*number),
            Loose::Text(text) => Number::of(text.as_bytes()),
            Loose::None | Loose::Size(_) => None,
        }
    }

    pub(super) fn float(&self) -> Option<f64> {
        match (self.number(), self) {
            (Some(number), _) => Some(number.float()),
            // JSON cannot represent infinities, so this crate writes them as strings.
            (None, Loose::Text(text)) => text.parse().ok(),
            _ => None,
        }
    }

    pub(super) fn int(&self) -> Option<i64> {
        i64::try_from(self.number()?.times_ten_to(0)?).ok()
    }

    pub(super) fn uint(&self) -> Option<u64> {
        u64::try_from(self.number()?.times_ten_to(0)?).ok()
    }

    /// Returns the value as an integer, provided that it is written as one.
    pub(super) fn whole(&self) -> Option<i64> {
        match self {
            Loose::Number(number) if number.is_integer() => self.int(),
            _ => None,
        }
    }

    pub(super) fn text(&self) -> &str {
        match self {
            Loose::Text(text) => text,
            _ => "",
        }
    }

    /// Converts microseconds to nanoseconds.
    pub(super) fn nanoseconds(&self) -> Option<i64> {
        i64::try_from(self.number()?.times_ten_to(3)?).ok()
    }
}

/// Type that can be read from JSON.
pub(super) trait Read: Sized {
    fn read<R: BufRead>(json: &mut Json<R>) -> Result<Self, Fault>;
}

impl Read for Loose {
    fn read<R: BufRead>(json: &mut Json<R>) -> Result<Self, Fault> {
        json.value()
    }
}

macro_rules! object {
    ($(#[$doc:meta])* $name:ident { $($field:ident = $($key:literal)|+: $type:ty),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Default)]
        pub(super) struct $name { $(pub(super) $field: $type),*, /// The first number under a key of no other field.
            pub(super) other: Loose }

        impl Read for $name {
            /// Reads an object. A value of any other type is read as an empty object.
            fn read<R: BufRead>(json: &mut Json<R>) -> Result<Self, Fault> {
                let mut object = $name::default();
                if json.peek()? != Some(b'{') {
                    json.skip()?;
                    return Ok(object);
                }
                json.enter(b'{')?;
                let mut key = String::new();
                while json.next_key(&mut key)? {
                    match key.as_str() {
                        $($($key)|+ => object.$field = Read::read(json)?,)*
                        _ => {
                            let value = json.value()?;
                            if object.other == Loose::None && value.float().is_some() {
                                object.other = value;
                            }
                        }
                    }
                }
                Ok(object)
            }
        }
    };
}

object! {
    /// Event.
    Event {
        phase = "ph": Loose, category = "cat": Loose, name = "name": Loose, process = "pid": Loose,
        thread = "tid": Loose, time = "ts": Loose, duration = "dur": Loose,
        arguments = "args": Arguments,
    }
}

object! {
    /// Arguments of an event.
    Arguments {
        name = "name": Loose, device = "device": Loose, stream = "stream": Loose, correlation = "correlation": Loose,
        external = "External id" | "external id": Loose, grid = "grid": Loose, block = "block": Loose,
        registers = "registers per thread": Loose, shared = "shared memory": Loose,
        shared_dynamic = "dynamic shared memory": Loose, graph = "graph id": Loose, node = "graph node id": Loose,
        nodes = "nodes": Loose, bytes = "bytes": Loose, peer = "peer": Loose, line = "line": Loose,
        captured = "captured in": Loose, detail = "detail": Loose, function = "function": Loose,
        event = "event": Loose,
        sync_stream = "sync stream": Loose, waited_event = "wait_on_cuda_event_id": Loose,
        parent = "parent": Loose, category = "category": Loose, color = "color": Loose, payload = "payload": Loose,
        on_device = "waits for device": Loose, on_stream = "waits for stream": Loose, address = "Addr": Loose,
        memory_bytes = "Bytes": Loose, allocated = "Total Allocated": Loose, reserved = "Total Reserved": Loose,
        device_type = "Device Type": Loose, memory_device = "Device Id": Loose,
    }
}
