//! Adds work to a graph. The work is checked like work on a stream, and its arguments are copied.

use std::ops::Range;
use std::sync::{Arc, PoisonError};

use super::super::EmulatedDriver;
use super::super::action::Action;
use super::super::context::EmulatedContext;
use super::super::control::Call;
use super::super::control::driver_error;
use super::super::kernel::KernelCall;
use super::super::stream::{Queue, Work};
use super::super::touched::{Access, Touched};
use super::plan::{Home, Piece, PlanStep, Step};
use super::store::{Store, refuse_conditional};
use warpsmith_driver::activity::ActivityTransfer;
use warpsmith_driver::error::{DriverError, Result, code};
use warpsmith_driver::{DevicePtr, NodeWork, Place, StreamHandle};

fn invalid(call: Call, text: impl Into<String>) -> DriverError {
    driver_error(call.name(), code::INVALID_VALUE, text)
}

impl EmulatedDriver {
    /// Returns the graphs of the driver. While the lock is held, no code of the program may run and none of its values
    /// may be dropped.
    pub(super) fn store(&self) -> std::sync::MutexGuard<'_, Store> {
        self.graphs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns where the memory of a range is located.
    pub(in super::super) fn home(&self, range: &Range<u64>) -> Home {
        let (ptr, bytes) = (DevicePtr(range.start), (range.end - range.start) as usize);
        let holder =
            self.contexts.all().into_iter().find(|context| {
                context.heap.holds(ptr, bytes) || context.space.accessible_from(ptr).is_some()
            });
        match holder {
            Some(context) => Home::Device(context.ordinal),
            None if self.is_page_locked(ptr, bytes) => Home::PageLocked,
            None => Home::Elsewhere,
        }
    }

    fn piece(
        &self,
        call: Call,
        context: &Arc<EmulatedContext>,
        action: Action,
        touched: Touched,
    ) -> PlanStep {
        let name = if let Action::Launch(launch) = &action { launch.symbol() } else { call.name() };
        let homes = touched.iter().map(|access| self.home(&access.range)).collect();
        Step::Work(Arc::new(Piece { context: Arc::downgrade(context), name, action, touched, homes }))
    }

    /// Returns the operation of a node that calls a host function.
    pub(super) fn host_step(&self, call: Call, context: &Arc<EmulatedContext>, action: Action) -> PlanStep {
        self.piece(call, context, action, Touched::new())
    }

    /// Returns the operation of a new node.
    ///
    /// # Safety
    /// The caller must uphold the safety contract of
    /// [`GraphDriver::graph_add`](warpsmith_driver::GraphDriver::graph_add).
    pub(super) unsafe fn step(
        &self,
        call: Call,
        context: &Arc<EmulatedContext>,
        work: NodeWork<'_>,
    ) -> Result<PlanStep> {
        let (action, touched) = match work {
            NodeWork::Empty => return Ok(Step::Empty),
            NodeWork::Kernel { function, config, args } => {
                self.check_config(call, function, &config)?;
                // SAFETY: guaranteed by the caller.
                let launch = unsafe {
                    KernelCall::new(self.code.kernel_of(call, function)?, config, self.order, args)
                };
                let touched = launch.touched();
                self.check_launch(call, context, &launch, &touched)?;
                (Action::Launch(launch), touched)
            }
            NodeWork::Copy { dst, src, bytes } => {
                let kind = ActivityTransfer::between(src.is_on_device(), dst.is_on_device());
                let (dst, src) =
                    (self.place(call, context, dst, bytes)?, self.place(call, context, src, bytes)?);
                let touched = vec![Access::read(src, bytes), Access::write(dst, bytes)];
                (Action::Copy { dst, src, bytes, kind }, touched)
            }
            NodeWork::Set { dst, value, bytes } => {
                let dst = self.place(call, context, Place::Device(dst), bytes)?;
                (Action::Set { dst, value, bytes }, vec![Access::write(dst, bytes)])
            }
            NodeWork::Host(function) => return Ok(self.host_step(call, context, Action::host(function))),
            NodeWork::Child(graph) => {
                let plan = self.store().plan(call, graph)?;
                refuse_conditional(call, &plan, "cannot be a child graph")?;
                return Ok(Step::Child(Arc::new(plan)));
            }
        };
        Ok(self.piece(call, context, action, touched))
    }

    /// Returns the address of one side of a copy, or the destination address of a memset.
    fn place(&self, call: Call, context: &Arc<EmulatedContext>, place: Place, bytes: usize) -> Result<u64> {
        if bytes == 0 {
            return Err(invalid(call, "a copy or memset node must have at least 1 byte"));
        }
        match place {
            Place::Host(pointer) => Ok(pointer.expose_provenance() as u64),
            Place::Device(ptr) => self.check_range(call, context, ptr, bytes).map(|()| ptr.0),
        }
    }

    /// Adds work on a capturing stream to the graph, as a node.
    pub(in super::super) fn capture(
        &self,
        call: Call,
        stream: StreamHandle,
        queue: &Queue,
        work: Work,
        touched: Touched,
    ) -> Result<()> {
        let refuse = |why| {
            let refused = self.captures.refuse(call, stream.0, why);
            // Another thread may have ended the capture in the meantime.
            refused
                .and_then(|()| Err(driver_error(call.name(), code::ILLEGAL_STATE, "the capture has ended")))
        };
        let step = match work {
            Work::Act(action) => {
                let is_nothing = touched.iter().all(|access| access.range.is_empty());
                if is_nothing && !matches!(action, Action::Launch(_) | Action::HostWork(_)) {
                    return self.captures.record(call, stream.0).map(|_| ());
                }
                if !self.host_side(call, &action).iter().all(|range| self.home(range) == Home::PageLocked) {
                    return refuse("captured copies to or from the host require page-locked host memory");
                }
                self.piece(call, queue.context(), action, touched)
            }
            Work::Host(_) => {
                return refuse(
                    "the host function can be called only once, but a graph can run several times; capture a \
                     function for graphs",
                );
            }
            Work::Free(_) => return refuse(NO_POOL),
            // The stream was not being captured yet when the call started.
            Work::Record(_) | Work::Wait(_) | Work::Graph(_) | Work::Idle(..) => {
                return refuse("another thread started a capture of the stream at the same time");
            }
        };
        let node = self.store().reserve_node();
        self.captures.add(call, stream.0, node, step)
    }

    /// Returns the ranges of host memory that a copy accesses.
    fn host_side(&self, call: Call, action: &Action) -> Vec<Range<u64>> {
        let range = |start: u64, bytes: usize| start..start + bytes as u64;
        match (action, call) {
            (Action::Copy { src, bytes, .. }, Call::CopyToDevice) => vec![range(*src, *bytes)],
            (Action::Copy { dst, bytes, .. }, Call::CopyToHost) => vec![range(*dst, *bytes)],
            (Action::Rows(rows), _) => rows.on_host().collect(),
            _ => Vec::new(),
        }
    }
}

/// Reason why the driver's own pool cannot be used in captures.
pub(in super::super) const NO_POOL: &str = "the driver's memory pool cannot allocate or free during a capture; allocate before the capture, or use a pool \
     for graphs";
