//! Records of driver calls, and of the work that these calls enqueue.

use warpsmith_runtime::driver::activity::{ActivityPlace, ActivityTransfer, ActivityWait};
use warpsmith_trace::{self as trace, Kernel, Library, Name, Record, Sync, SyncKind, Transfer, TransferKind};

use super::nodes::Seen;
use super::{Joiner, Origin, PATIENCE, ordinal};
use crate::raw::{Call, DriverIndex, Raw};
use crate::recording::{Recorded, Recording};

impl Joiner {
    /// Creates the records of calls that no operation encloses.
    pub(super) fn end_own_calls(&mut self, recording: &Recording) {
        let threads = self.threads.values_mut();
        let mut calls: Vec<Call> = threads.flat_map(|thread| std::mem::take(&mut thread.own_calls)).collect();
        calls.sort_by_key(|call| (call.driver, call.correlation));
        calls.iter().for_each(|call| self.call(recording, call, Origin::default()));
    }

    /// Creates the records of calls that no unfinished operation can enclose.
    pub(super) fn join_calls(&mut self, recording: &Recording, began: u64, is_last: bool) {
        let mut ready = Vec::new();
        let threads = &self.threads;
        self.calls.retain(|(call, _)| {
            let open_since = threads.get(&call.thread).map_or(u64::MAX, |thread| thread.open_since);
            let is_ready = is_last || (call.end < began && call.start < open_since);
            if is_ready {
                ready.push(*call);
            }
            !is_ready
        });
        ready.sort_by_key(|call| (call.driver, call.correlation, call.start));
        for call in ready {
            let thread = self.thread(call.thread, "", recording.is_simulated());
            let origin = thread.spans.around(call.start, call.end).unwrap_or_default();
            self.call(recording, &call, origin);
        }
    }

    /// Creates the record of a call.
    pub(super) fn call(&mut self, recording: &Recording, call: &Call, origin: Origin) {
        let thread = self.thread(call.thread, "", recording.is_simulated()).id;
        let name = self.name(recording, call.function);
        let key = (call.driver, call.correlation);
        if call.correlation != 0 && self.origins.insert(key, origin).is_none() {
            self.known.push_back(key);
            self.graphs.launched(origin);
        }
        let (Call { start, end, .. }, Origin { line, range, .. }) = (*call, origin);
        self.emit(Record::Call(trace::Call {
            start,
            end,
            name,
            library: Library::Driver,
            thread,
            correlation: correlation(key),
            range,
            line,
            detail: Name::NONE,
        }));
    }

    /// Creates the records of work whose call is known, or that has waited for the maximum number of rounds.
    pub(super) fn join_work(&mut self, recording: &Recording, drivers: &[Recorded], is_last: bool) {
        let mut lists: Vec<u64> = Vec::new();
        for list in self.work.iter().filter_map(|(raw, _)| self.list_of(raw)) {
            if lists.last() != Some(&list) {
                lists.push(list);
            }
        }
        let incomplete = self.incomplete_lists(&lists);
        let (origins, round) = (&self.origins, self.round);
        let must_wait = |(raw, since): &mut (Raw, u64)| {
            let (driver, place, ..) = placed(raw);
            let origin = origins.get(&(driver, place.correlation));
            let is_known = place.correlation == 0
                || origin.is_some_and(|origin| place.node == 0 || !incomplete.contains(&origin.nodes));
            !(is_last || is_known || round - *since >= PATIENCE)
        };
        // Usually, all work is ready. The list can be long, so it is neither copied nor sorted with additional memory.
        let mut ready = std::mem::take(&mut self.work);
        self.work = ready.extract_if(.., must_wait).collect();
        ready.sort_unstable_by_key(|(raw, _)| {
            let (driver, place, start, end) = placed(raw);
            (start, end, driver, place.device, place.stream, place.correlation, place.node, raw.is_work())
        });
        self.see_nodes(recording, &ready);
        for (raw, _) in ready {
            let (driver, place, start, end) = placed(&raw);
            let origin = self.origin(driver, &place, raw.is_work());
            let key = if place.correlation == 0 { 0 } else { correlation((driver, place.correlation)) };
            let Origin { line, range, ranges: captured_in, bytes, .. } = origin;
            let ActivityPlace { graph, node, .. } = place;
            match raw {
                Raw::Kernel { symbol, grid, block, registers, shared_static, shared_dynamic, .. } => {
                    let name = self.kernel_name(recording, symbol);
                    let stream = self.stream(drivers, driver, place.device, place.stream.into());
                    self.emit(Record::Kernel(Kernel {
                        start,
                        end,
                        name,
                        stream,
                        correlation: key,
                        grid,
                        block,
                        registers,
                        shared_static,
                        shared_dynamic,
                        graph,
                        node,
                        range,
                        line,
                        captured_in,
                        bytes,
                    }));
                }
                Raw::Transfer { kind, bytes, .. } => {
                    let (kind, peer) = transfer(kind);
                    let peer = peer.map(|peer| ordinal(drivers, driver, peer));
                    let stream = self.stream(drivers, driver, place.device, place.stream.into());
                    self.emit(Record::Transfer(Transfer {
                        start,
                        end,
                        kind,
                        stream,
                        correlation: key,
                        bytes,
                        peer,
                        graph,
                        node,
                        range,
                        line,
                        captured_in,
                    }));
                }
                Raw::Wait { kind, .. } => {
                    let (kind, number) = match kind {
                        ActivityWait::HostForDevice => (SyncKind::Device, -1),
                        ActivityWait::HostForStream => (SyncKind::Stream, place.stream.into()),
                        ActivityWait::HostForEvent => (SyncKind::Event, place.stream.into()),
                        ActivityWait::StreamForEvent => (SyncKind::StreamWait, place.stream.into()),
                    };
                    let stream = self.stream(drivers, driver, place.device, number);
                    let (correlation, event) = (key, 0);
                    self.emit(Record::Sync(Sync { start, end, kind, stream, correlation, event }));
                }
                _ => {}
            }
        }
    }

    /// Returns the origin of work. Only the first work of each operation counts as recorded.
    pub(super) fn origin(&mut self, driver: DriverIndex, place: &ActivityPlace, is_work: bool) -> Origin {
        let key = (driver, place.correlation);
        let Some(origin) = self.origins.get_mut(&key) else {
            if is_work {
                // The call that enqueued this work was not recorded.
                self.loss.issued += 1;
                self.loss.recorded += 1;
            }
            let launch = self.graphs.launch_of(place.graph).filter(|_| place.node != 0);
            return launch.map_or_else(Origin::default, |origin| self.node_origin(origin, place.node));
        };
        if is_work && !std::mem::replace(&mut origin.is_seen, true) {
            self.loss.recorded += 1;
            if !self.open_ops.remove(&origin.op) {
                // This work was enqueued by a library, or is not the first work of its operation.
                self.loss.issued += 1;
            }
        }
        let origin = *origin;
        if place.node == 0 { origin } else { self.node_origin(origin, place.node) }
    }

    /// Returns the node list of the executable to which the node of this record belongs.
    fn list_of(&self, raw: &Raw) -> Option<u64> {
        let (driver, place, ..) = placed(raw);
        if place.node == 0 || !raw.is_work() {
            return None;
        }
        let known = self.origins.get(&(driver, place.correlation)).copied();
        let origin = known.or_else(|| self.graphs.launch_of(place.graph))?;
        Some(origin.nodes).filter(|nodes| *nodes != 0)
    }

    /// Registers the records of nodes. Each of these records helps to identify where nodes were captured.
    fn see_nodes(&mut self, recording: &Recording, ready: &[(Raw, u64)]) {
        for (raw, _) in ready {
            let Some(list) = self.list_of(raw) else { continue };
            let seen = match raw {
                Raw::Kernel { symbol, .. } => Seen::Kernel(*symbol),
                Raw::Transfer { kind: ActivityTransfer::Memset, .. } => Seen::Memset,
                _ => Seen::Copy,
            };
            let (_, place, ..) = placed(raw);
            self.see_node(recording, list, place.node, seen);
        }
    }
}

/// Returns the driver, the [`ActivityPlace`] and the times of a device activity record.
fn placed(raw: &Raw) -> (DriverIndex, ActivityPlace, u64, u64) {
    match *raw {
        Raw::Kernel { driver, place, start, end, .. }
        | Raw::Transfer { driver, place, start, end, .. }
        | Raw::Wait { driver, place, start, end, .. } => (driver, place, start, end),
        _ => (0, ActivityPlace::default(), 0, 0),
    }
}

/// Combines the driver and the correlation ID into one number.
fn correlation((driver, correlation): (DriverIndex, u64)) -> u64 {
    u64::from(driver) << 48 | correlation
}

fn transfer(kind: ActivityTransfer) -> (TransferKind, Option<u32>) {
    match kind {
        ActivityTransfer::Unknown => (TransferKind::Unknown, None),
        ActivityTransfer::HostToDevice => (TransferKind::HostToDevice, None),
        ActivityTransfer::DeviceToHost => (TransferKind::DeviceToHost, None),
        ActivityTransfer::DeviceToDevice => (TransferKind::DeviceToDevice, None),
        ActivityTransfer::PeerToPeer { peer } => (TransferKind::PeerToPeer, Some(peer)),
        ActivityTransfer::HostToHost => (TransferKind::HostToHost, None),
        ActivityTransfer::Memset => (TransferKind::Fill, None),
    }
}
