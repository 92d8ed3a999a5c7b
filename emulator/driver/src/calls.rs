//! Driver calls for devices, contexts and copies. All other calls are in separate files.
//!
//! Each call is counted, and fault injection can make a call fail before it has an effect. Calls that wait perform the
//! wait before they fail, so that no work is running when they return, even with an error.

use std::ffi::c_void;
use std::sync::{Arc, PoisonError};

use warpsmith_emulator::check;

use super::EmulatedDriver;
use super::action::Action;
use super::control::{Call, driver_error};
use super::rows::Rows;
use super::stream::{Queue, Work};
use super::touched::{Access, Touched};
#[cfg(feature = "testing")]
use warpsmith_driver::Telemetry;
use warpsmith_driver::activity::{ActivityTransfer, ActivityWait};
use warpsmith_driver::check::{FindingScope, Findings};
use warpsmith_driver::error::{Result, code};
use warpsmith_driver::{
    Context, ContextLimit, DeviceProperties, DevicePtr, Driver, Fault, RowsCopy, StreamHandle,
};

// SAFETY: blocks belong to the process's heap or to reserved pages, and are freed only by the calls that are documented
// to free them. Work that uses blocks without backing memory is rejected. Handles are never reused. Streams run their
// tasks in order, a wait blocks until its mark is reached, and waiting calls return only when the tasks have run.
unsafe impl Driver for EmulatedDriver {
    fn name(&self) -> &'static str {
        "emulated"
    }

    fn device_count(&self) -> Result<u32> {
        Ok(self.devices.len() as u32)
    }

    fn device_properties(&self, ordinal: u32) -> Result<DeviceProperties> {
        self.primary(ordinal)?;
        Ok(self.properties(ordinal))
    }

    fn context_retain(&self, ordinal: u32) -> Result<Context> {
        let _called = self.called_aside(Call::ContextRetain);
        self.control.enter(Call::ContextRetain)?;
        let mut primary = self.primary(ordinal)?.lock().unwrap_or_else(PoisonError::into_inner);
        let context =
            *primary.context.get_or_insert_with(|| Context(self.contexts.insert(self.new_context(ordinal))));
        primary.retained += 1;
        Ok(context)
    }

    fn context_release(&self, ordinal: u32) {
        // A failure cannot be reported. A host function must not release a context, because the release would wait for
        // that function.
        if self.control.enter_to_wait(Call::ContextRelease).is_err() {
            return;
        }
        let Ok(primary) = self.primary(ordinal) else { return };
        let mut primary = primary.lock().unwrap_or_else(PoisonError::into_inner);
        primary.retained = primary.retained.saturating_sub(1);
        if primary.retained == 0
            && let Some(context) = primary.context.take().and_then(|context| self.contexts.remove(context.0))
        {
            self.captures.context_released(&context);
            context.streams().iter().for_each(|stream| stream.close());
        }
    }

    fn context_synchronize(&self, context: Context) -> Result<()> {
        let _called = self.called(Call::ContextSynchronize);
        let ordered = self.control.enter_to_wait(Call::ContextSynchronize)?;
        let enqueued = self.races.of_context(context.0);
        let context = self.contexts.get(Call::ContextSynchronize, context.0)?;
        self.captures.refuse_context(Call::ContextSynchronize, &context)?;
        let wait = |stream: &Arc<Queue>| stream.wait(Call::ContextSynchronize);
        let streams = context.streams();
        self.host_waits(ActivityWait::HostForDevice, (context.ordinal, 0), || {
            let waited = streams.iter().map(wait).fold(Ok(()), Result::and);
            self.waited_until(streams.iter().map(|stream| stream.simulated_us()).fold(0.0, f64::max));
            waited
        })?;
        self.races.host_saw(enqueued.as_ref());
        ordered?;
        context.inspect();
        context.check(Call::ContextSynchronize.name())
    }

    fn context_stack_limit(&self, context: Context) -> Result<usize> {
        Ok(self.enter(Call::ContextStackLimit, context)?.stack_limit())
    }

    fn context_set_stack_limit(&self, context: Context, bytes: usize) -> Result<()> {
        let _called = self.called_aside(Call::ContextSetStackLimit);
        let context = self.enter(Call::ContextSetStackLimit, context)?;
        self.captures.check_none(Call::ContextSetStackLimit, &context)?;
        context.set_stack_limit(Call::ContextSetStackLimit, bytes)
    }

    fn context_limit(&self, context: Context, limit: ContextLimit) -> Result<usize> {
        self.enter(Call::ContextLimit, context)?.limit(Call::ContextLimit, limit)
    }

    fn context_set_limit(&self, context: Context, limit: ContextLimit, value: usize) -> Result<()> {
        let _called = self.called_aside(Call::ContextSetLimit);
        self.enter(Call::ContextSetLimit, context)?.set_limit(Call::ContextSetLimit, limit, value)
    }

    fn take_fault(&self, context: Context) -> Option<Fault> {
        self.contexts.get(Call::ContextSynchronize, context.0).ok()?.take_fault()
    }

    fn take_findings(&self) -> Findings {
        check::take_findings()
    }

    fn collect_findings(&self) -> Option<Box<dyn FindingScope>> {
        Some(Box::new(Scope(check::FindingScope::begin()?)))
    }

    fn peer_can_access(&self, ordinal: u32, peer: u32) -> Result<bool> {
        self.control.enter(Call::PeerCanAccess)?;
        self.known(Call::PeerCanAccess, ordinal)?;
        self.known(Call::PeerCanAccess, peer)?;
        Ok(self.peers && ordinal != peer)
    }

    fn peer_enable(&self, context: Context, peer: Context) -> Result<()> {
        let _called = self.called_aside(Call::PeerEnable);
        let call = Call::PeerEnable;
        let (context, peer) = (self.enter(call, context)?, self.contexts.get(call, peer.0)?);
        if Arc::ptr_eq(&context, &peer) {
            let text = "a context cannot be its own peer";
            return Err(driver_error(call.name(), code::INVALID_VALUE, text));
        }
        self.reaches(call, context.ordinal, peer.ordinal)?;
        context.add_peer(&peer);
        Ok(())
    }

    fn process_memory(&self, ordinal: u32) -> Vec<(u32, u64)> {
        let told = self.control.enter(Call::ProcessMemory);
        match told.and_then(|()| self.known(Call::ProcessMemory, ordinal)) {
            Ok(()) => self.processes.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            Err(_) => Vec::new(),
        }
    }

    #[cfg(feature = "testing")]
    fn telemetry(&self, ordinal: u32) -> Result<Telemetry> {
        Ok(self.sensors.read(ordinal))
    }

    #[cfg(feature = "testing")]
    fn sm_clock_mhz(&self, ordinal: u32) -> Option<u32> {
        self.sensors.sm_clock_mhz(ordinal)
    }

    unsafe fn copy_to_device(
        &self,
        context: Context,
        dst: DevicePtr,
        src: *const c_void,
        bytes: usize,
        stream: StreamHandle,
    ) -> Result<()> {
        let _called = self.called(Call::CopyToDevice);
        let context = self.enter(Call::CopyToDevice, context)?;
        self.check_range(Call::CopyToDevice, &context, dst, bytes)?;
        self.copy(Call::CopyToDevice, stream, dst.0, src.expose_provenance() as u64, bytes)
    }

    unsafe fn copy_to_host(
        &self,
        context: Context,
        dst: *mut c_void,
        src: DevicePtr,
        bytes: usize,
        stream: StreamHandle,
    ) -> Result<()> {
        let _called = self.called(Call::CopyToHost);
        let context = self.enter(Call::CopyToHost, context)?;
        self.check_range(Call::CopyToHost, &context, src, bytes)?;
        self.copy(Call::CopyToHost, stream, dst.expose_provenance() as u64, src.0, bytes)
    }

    unsafe fn copy_device(
        &self,
        context: Context,
        dst: DevicePtr,
        src: DevicePtr,
        bytes: usize,
        stream: StreamHandle,
    ) -> Result<()> {
        let _called = self.called(Call::CopyDevice);
        let context = self.enter(Call::CopyDevice, context)?;
        self.check_range(Call::CopyDevice, &context, dst, bytes)?;
        self.check_range(Call::CopyDevice, &context, src, bytes)?;
        self.copy(Call::CopyDevice, stream, dst.0, src.0, bytes)
    }

    unsafe fn copy_peer(
        &self,
        context: Context,
        dst: (Context, DevicePtr),
        src: (Context, DevicePtr),
        bytes: usize,
        stream: StreamHandle,
    ) -> Result<()> {
        let _called = self.called(Call::CopyPeer);
        let call = Call::CopyPeer;
        let here = self.enter(call, context)?;
        if context != dst.0 && context != src.0 {
            let text = "neither side of the copy is on the stream's device; copy on a stream of one of the two \
                        devices";
            return Err(driver_error(call.name(), code::INVALID_VALUE, text));
        }
        self.stream_of(call, &here, stream)?;
        let mut touched = Touched::new();
        for (side, ptr) in [dst, src] {
            let side = self.contexts.get(call, side.0)?;
            side.check(call.name())?;
            self.check_range(call, &side, ptr, bytes)?;
            let access = if ptr == dst.1 { Access::write } else { Access::read };
            touched.push(access(ptr.0, bytes));
            if !Arc::ptr_eq(&side, &here) {
                side.add_visitor(&here);
            }
        }
        let peer = self.contexts.get(call, if context == dst.0 { src.0.0 } else { dst.0.0 })?.ordinal;
        let kind = match dst.0 == src.0 {
            true => ActivityTransfer::DeviceToDevice,
            false => ActivityTransfer::PeerToPeer { peer },
        };
        let copy = Action::Copy { dst: dst.1.0, src: src.1.0, bytes, kind };
        self.push(call, stream, Work::Act(copy), touched)
    }

    unsafe fn copy_rows(&self, context: Context, rows: RowsCopy, stream: StreamHandle) -> Result<()> {
        let _called = self.called(Call::CopyRows);
        let context = self.enter(Call::CopyRows, context)?;
        let rows = Rows::check(rows, |ptr, bytes| self.check_range(Call::CopyRows, &context, ptr, bytes))?;
        let touched = rows.touched();
        self.push(Call::CopyRows, stream, Work::Act(Action::Rows(rows)), touched)
    }

    unsafe fn memset(
        &self,
        context: Context,
        dst: DevicePtr,
        value: u8,
        bytes: usize,
        stream: StreamHandle,
    ) -> Result<()> {
        let _called = self.called(Call::Memset);
        let context = self.enter(Call::Memset, context)?;
        let written = self.check_fill(Call::Memset, &context, dst, bytes)?;
        let work = Work::Act(Action::Set { dst: dst.0, value, bytes: written });
        self.push(Call::Memset, stream, work, vec![Access::write(dst.0, bytes)])
    }
}

/// Scope that collects the emulator's findings.
struct Scope(check::FindingScope);

impl FindingScope for Scope {
    fn take(&self) -> Findings {
        self.0.take()
    }
}
