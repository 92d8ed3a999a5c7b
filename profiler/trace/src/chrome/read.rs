//! Reads traces event by event: traces written by this crate or by PyTorch, and event lists in Chrome's format.

use std::io::{self, BufRead};

use serde_json::{Map, Value};

use super::event::{Event, Read};
use super::json::{Fault, Json};
use super::records::Records;
use super::{Facts, OURS, RANK};
use crate::definitions::{Device, LeftOut};
use crate::error::Stop;
use crate::sink::Sink;

/// Maximum memory for a value that describes the trace as a whole, in bytes.
const MAX_ABOUT: usize = 16 << 20;

/// Reads a trace into `sink`. Returns its length in bytes.
pub(crate) fn read(input: &mut impl BufRead, sink: &mut dyn Sink) -> Result<u64, Stop> {
    let mut json = Json::new(input);
    let mut reader = Reader { records: Records::new(sink), has_events: false, has_no_end: false };
    let read = reader.document(&mut json);
    let (events, at) = (reader.records.events(), json.at());
    let ended = reader.end();
    match read.and_then(|()| ended.map_err(Fault::Output)) {
        Ok(()) if reader.has_events => Ok(at),
        Ok(()) => Err(Stop::Foreign(
            "is JSON, but not a trace, because it has no `traceEvents`; use another file".into(),
        )),
        Err(Fault::Output(error)) => Err(Stop::Output(error)),
        Err(Fault::End) => Err(Stop::cut_off(at)),
        Err(Fault::Input(error)) => Err(Stop::input(at, error)),
        Err(Fault::Wrong(what)) if events == 0 => Err(Stop::Foreign(format!(
            "is not a trace: its JSON is damaged ({what} at byte {at}); write it again"
        ))),
        Err(Fault::Wrong(what)) => Err(Stop::damaged(at, format!("{what}, after {events} events"))),
    }
}

struct Reader<'a> {
    records: Records<'a>,
    has_events: bool,
    /// True if the file ends between two events. Programs that write traces for Chrome may omit the closing bracket.
    has_no_end: bool,
}

impl Reader<'_> {
    fn document<R: BufRead>(&mut self, json: &mut Json<R>) -> Result<(), Fault> {
        if json.peek()? == Some(b'[') {
            self.events(json)?;
        } else {
            json.enter(b'{')?;
            let mut key = String::new();
            loop {
                match json.next_key(&mut key) {
                    Ok(true) => self.entry(json, &key)?,
                    Ok(false) => break,
                    Err(Fault::End) if self.may_lack_the_end() => {
                        self.has_no_end = true;
                        break;
                    }
                    Err(fault) => return Err(fault),
                }
            }
        }
        match json.peek()? {
            None => Ok(()),
            Some(_) => Err(Fault::Wrong("there is data after the end")),
        }
    }

    /// Returns true if the closing bracket may be missing. This crate always writes the bracket, so if it is missing,
    /// records are missing too.
    fn may_lack_the_end(&self) -> bool {
        self.records.events() > 0 && !self.records.is_ours
    }

    fn entry<R: BufRead>(&mut self, json: &mut Json<R>, key: &str) -> Result<(), Fault> {
        match key {
            "traceEvents" => return self.events(json),
            "traceName" => self.records.is_ours |= json.value()?.text() == OURS,
            "baseTimeNanoseconds" => {
                let base = json.value()?.uint().unwrap_or(0);
                if self.has_events {
                    self.about("times are relative to (ns)", &base.to_string());
                } else {
                    self.records.base = base;
                }
            }
            "distributedInfo" => {
                let info = about(json)?;
                if let Some(rank) = info[RANK].as_u64().filter(|rank| *rank > 0) {
                    self.about(RANK, &rank.to_string());
                }
            }
            "deviceProperties" => match about(json)? {
                Value::Array(devices) => {
                    devices.iter().filter_map(Value::as_object).for_each(|device| self.device(device));
                }
                Value::Object(device) if !device.is_empty() => self.device(&device),
                _ => {}
            },
            "warpsmith" => {
                self.records.is_ours = true;
                let facts = about(json)?;
                let facts: Facts = serde_json::from_value(facts)
                    .map_err(|_| Fault::Wrong("the key `warpsmith` has an invalid value"))?;
                let definitions = self.records.sink.definitions();
                facts.about.iter().for_each(|(key, value)| definitions.add_fact(key, value));
                definitions.loss = facts.loss;
                facts
                    .devices
                    .into_iter()
                    .for_each(|(ordinal, device)| definitions.add_device(ordinal, device));
            }
            _ => json.skip()?,
        }
        Ok(())
    }

    fn events<R: BufRead>(&mut self, json: &mut Json<R>) -> Result<(), Fault> {
        self.has_events = true;
        if json.peek()? == Some(b'n') {
            // The value is `null`.
            return json.skip();
        }
        json.enter(b'[')?;
        loop {
            match json.next_item() {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                Err(Fault::End) if self.may_lack_the_end() => {
                    self.has_no_end = true;
                    return Ok(());
                }
                Err(fault) => return Err(fault),
            }
            let event = Event::read(json)?;
            self.records.event(&event).map_err(Fault::Output)?;
        }
    }

    fn about(&mut self, key: &str, value: &str) {
        self.records.sink.definitions().add_fact(key, value);
    }

    fn device(&mut self, properties: &Map<String, Value>) {
        let number = |key: &str| properties.get(key).and_then(Value::as_u64).unwrap_or(0);
        let small = |key: &str| u32::try_from(number(key)).unwrap_or(0);
        let device = Device {
            name: properties.get("name").and_then(|name| name.as_str()).unwrap_or_default().to_owned(),
            memory: number("totalGlobalMem"),
            bandwidth: 0,
            multiprocessors: small("numSms"),
            capability: (small("computeMajor"), small("computeMinor")),
        };
        self.records.sink.definitions().add_device(small("id"), device);
    }

    fn end(&mut self) -> io::Result<()> {
        if self.has_no_end {
            let text = "the end is missing; all events in the file were read";
            self.records.sink.definitions().add_left_out(LeftOut::End, text);
        }
        self.records.end()
    }
}

/// Reads a value that describes the trace as a whole.
fn about<R: BufRead>(json: &mut Json<R>) -> Result<Value, Fault> {
    let mut budget = MAX_ABOUT;
    json.tree(&mut budget, 0)
}
