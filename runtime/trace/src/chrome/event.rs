//! An event as it stands in JSON: any type of value in any place, unknown keys skipped.

use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// A value that may be of another type than expected.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) enum Loose {
    #[default]
    None,
    Uint(u64),
    Int(i64),
    Float(f64),
    Text(String),
    /// The first three numbers of a list.
    Size([u32; 3]),
}

impl Loose {
    pub(super) fn float(&self) -> Option<f64> {
        match self {
            Loose::Uint(value) => Some(*value as f64),
            Loose::Int(value) => Some(*value as f64),
            Loose::Float(value) => Some(*value),
            Loose::Text(text) => text.parse().ok(),
            Loose::None | Loose::Size(_) => None,
        }
    }

    pub(super) fn int(&self) -> Option<i64> {
        match self {
            Loose::Uint(value) => i64::try_from(*value).ok(),
            Loose::Int(value) => Some(*value),
            Loose::Float(value) => Some(*value as i64),
            Loose::Text(text) => text.parse().ok(),
            Loose::None | Loose::Size(_) => None,
        }
    }

    pub(super) fn uint(&self) -> Option<u64> {
        match self {
            Loose::Uint(value) => Some(*value),
            _ => self.int().and_then(|value| u64::try_from(value).ok()),
        }
    }

    pub(super) fn text(&self) -> &str {
        match self {
            Loose::Text(text) => text,
            _ => "",
        }
    }

    /// Microseconds as nanoseconds.
    pub(super) fn nanoseconds(&self) -> Option<i64> {
        match self {
            Loose::Uint(value) => i64::try_from(*value).ok()?.checked_mul(1000),
            Loose::Int(value) => value.checked_mul(1000),
            other => other.float().filter(|time| time.is_finite()).map(|time| (time * 1000.0).round() as i64),
        }
    }
}

impl<'de> Deserialize<'de> for Loose {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Loose;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value")
            }

            fn visit_bool<E>(self, value: bool) -> Result<Loose, E> {
                Ok(Loose::Uint(value.into()))
            }

            fn visit_u64<E>(self, value: u64) -> Result<Loose, E> {
                Ok(Loose::Uint(value))
            }

            fn visit_i64<E>(self, value: i64) -> Result<Loose, E> {
                Ok(Loose::Int(value))
            }

            fn visit_f64<E>(self, value: f64) -> Result<Loose, E> {
                Ok(Loose::Float(value))
            }

            fn visit_str<E>(self, value: &str) -> Result<Loose, E> {
                Ok(Loose::Text(value.to_owned()))
            }

            fn visit_unit<E>(self) -> Result<Loose, E> {
                Ok(Loose::None)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Loose, A::Error> {
                let mut size = [0; 3];
                let mut count = 0;
                while let Some(value) = list.next_element::<Loose>()? {
                    if let (Some(place), Some(value)) = (size.get_mut(count), value.uint()) {
                        *place = u32::try_from(value).unwrap_or(u32::MAX);
                        count += 1;
                    }
                }
                Ok(Loose::Size(size))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Loose, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Loose::None)
            }
        }
        deserializer.deserialize_any(Any)
    }
}

macro_rules! object {
    ($(#[$doc:meta])* $name:ident { $($field:ident = $key:literal: $type:ty),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Default)]
        pub(super) struct $name { $(pub(super) $field: $type),*, /// The first number under a key of no other field.
            pub(super) other: Loose }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                #[allow(non_camel_case_types, reason = "they are named as the fields")]
                enum Place { $($field),*, Other }
                impl<'de> Deserialize<'de> for Place {
                    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                        struct Keys;
                        impl Visitor<'_> for Keys {
                            type Value = Place;
                            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                                f.write_str("a key")
                            }
                            fn visit_str<E>(self, key: &str) -> Result<Place, E> {
                                Ok(match key { $($key => Place::$field,)* _ => Place::Other })
                            }
                        }
                        deserializer.deserialize_str(Keys)
                    }
                }
                struct Object;
                impl<'de> Visitor<'de> for Object {
                    type Value = $name;
                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str("an event")
                    }
                    fn visit_unit<E>(self) -> Result<$name, E> {
                        Ok($name::default())
                    }
                    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<$name, A::Error> {
                        let mut object = $name::default();
                        while let Some(place) = map.next_key()? {
                            match place {
                                $(Place::$field => object.$field = map.next_value()?,)*
                                Place::Other => {
                                    let value: Loose = map.next_value()?;
                                    if object.other == Loose::None && matches!(value, Loose::Uint(_) | Loose::Int(_) | Loose::Float(_)) {
                                        object.other = value;
                                    }
                                }
                            }
                        }
                        Ok(object)
                    }
                }
                deserializer.deserialize_any(Object)
            }
        }
    };
}

object! {
    /// An event.
    Event {
        phase = "ph": Loose, category = "cat": Loose, name = "name": Loose, process = "pid": Loose,
        thread = "tid": Loose, time = "ts": Loose, duration = "dur": Loose, arguments = "args": Arguments,
    }
}

object! {
    /// The arguments of an event.
    Arguments {
        name = "name": Loose, device = "device": Loose, stream = "stream": Loose, correlation = "correlation": Loose,
        external = "External id": Loose, grid = "grid": Loose, block = "block": Loose,
        registers = "registers per thread": Loose, shared = "shared memory": Loose,
        shared_dynamic = "dynamic shared memory": Loose, graph = "graph id": Loose, node = "graph node id": Loose,
        nodes = "nodes": Loose, bytes = "bytes": Loose, peer = "peer": Loose, line = "line": Loose,
        captured = "captured in": Loose, detail = "detail": Loose, function = "function": Loose,
        event = "event": Loose,
        sync_stream = "sync stream": Loose, waited_event = "wait_on_cuda_event_id": Loose,
        parent = "parent": Loose, category = "category": Loose, colour = "colour": Loose, payload = "payload": Loose,
        on_device = "waits for device": Loose, on_stream = "waits for stream": Loose, address = "Addr": Loose,
        memory_bytes = "Bytes": Loose, allocated = "Total Allocated": Loose, reserved = "Total Reserved": Loose,
        dram_read = "DRAM bytes read": Loose, dram_written = "DRAM bytes written": Loose, l2_hits = "L2 hits": Loose,
        occupancy = "achieved occupancy": Loose, stalls = "stalls": Loose, device_type = "Device Type": Loose, memory_device = "Device Id": Loose,
    }
}
