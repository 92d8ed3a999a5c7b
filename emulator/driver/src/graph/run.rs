//! Executable graphs and their launches.
//!
//! A launch owns the plan that the executable had at enqueue time, so updating or destroying the executable does not
//! affect it. Launches of one executable run one after another, even on different streams. A launch that is skipped
//! because its context is unusable also waits for the preceding launch.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::super::action::fault;
use super::super::context::EmulatedContext;
use super::super::recorder::Ran;
use super::super::simulated::Timeline;
use super::super::stream::Mark;
use super::super::touched::Touched;
use super::plan::{Condition, Plan, Step, union};
use super::races;
use warpsmith_driver::{ConditionalKind, FaultKind};

/// Number of loop iterations after which a loop is considered endless.
const MAX_ROUNDS: u32 = 1 << 24;

/// A plan, with the data that each of its launches needs.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) plan: Arc<Plan>,
    conditions: Vec<Condition>,
    touched: Touched,
    /// True after the races of the plan have been reported.
    told: AtomicBool,
}

impl Program {
    pub(super) fn new(plan: Plan) -> Arc<Self> {
        let mut touched = Touched::new();
        plan.pieces(&mut |piece| touched.extend(piece.touched.iter().cloned()));
        let (conditions, touched) = (plan.all_conditions(), union(touched));
        Arc::new(Self { plan: Arc::new(plan), conditions, touched, told: AtomicBool::new(false) })
    }

    /// Returns the races between nodes of the plan. The list is empty after the first call.
    pub(super) fn races(&self) -> Vec<String> {
        if self.told.swap(true, Ordering::Relaxed) { Vec::new() } else { races::within(&self.plan) }
    }
}

#[derive(Debug)]
struct State {
    program: Arc<Program>,
    /// Mark at the end of the last launch.
    last: Option<Arc<Mark>>,
}

/// An executable graph.
#[derive(Debug)]
pub(in super::super) struct Executable(Mutex<State>);

impl Executable {
    pub(super) fn new(plan: Plan) -> Arc<Self> {
        Arc::new(Self(Mutex::new(State { program: Program::new(plan), last: None })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn program(&self) -> Arc<Program> {
        Arc::clone(&self.state().program)
    }

    /// Replaces the plan of subsequent launches.
    pub(super) fn set_plan(&self, plan: Plan) {
        let program = Program::new(plan);
        let old = std::mem::replace(&mut self.state().program, program);
        drop(old);
    }

    /// Creates a launch and enqueues it with `push`, after earlier launches. `number` is the executable's ID in
    /// records.
    pub(super) fn launch<E>(
        &self,
        number: u32,
        push: impl FnOnce(GraphRun) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut state = self.state();
        let done = Arc::new(Mark::default());
        let turn = Turn { done: Arc::clone(&done), simulated_us: 0.0 };
        push(GraphRun { program: Arc::clone(&state.program), before: state.last.clone(), turn, number })?;
        state.last = Some(done);
        Ok(())
    }
}

/// Marks the end of a launch. The mark is reached even if the launch does not run.
#[derive(Debug)]
struct Turn {
    done: Arc<Mark>,
    /// Simulated time at which the launch ended.
    simulated_us: f64,
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.done.reach(self.simulated_us);
    }
}

/// An enqueued launch.
#[derive(Debug)]
pub(in super::super) struct GraphRun {
    program: Arc<Program>,
    /// Mark at the end of the preceding launch.
    before: Option<Arc<Mark>>,
    turn: Turn,
    /// ID of the executable in records.
    number: u32,
}

impl GraphRun {
    /// Returns the mark at the end of the preceding launch, for which this launch waits.
    pub(in super::super) fn before(&self) -> Option<&Arc<Mark>> {
        self.before.as_ref()
    }

    /// Returns the mark that the launch sets when it ends.
    pub(in super::super) fn done(&self) -> &Arc<Mark> {
        &self.turn.done
    }

    /// Returns all memory that the launch may access.
    pub(super) fn touched(&self) -> Touched {
        self.program.touched.clone()
    }

    /// Runs all nodes on a stream of this context.
    pub(in super::super) fn run(mut self, context: &EmulatedContext, timeline: &Timeline, ran: Ran<'_>) {
        if let Some(before) = &self.before {
            timeline.wait_until(before.wait().simulated_us);
        }
        for condition in &self.program.conditions {
            if let Some(initial) = condition.initial {
                condition.value.store(initial, Ordering::Release);
            }
        }
        // If a context becomes unusable, the run ends. No further error needs to be reported.
        let _ = run(&self.program.plan, context, timeline, ran.in_graph(self.number));
        self.turn.simulated_us = timeline.now_us();
    }
}

/// Runs a graph on a stream of a context. Returns a break if a context has become unusable.
fn run(plan: &Plan, context: &EmulatedContext, timeline: &Timeline, ran: Ran<'_>) -> ControlFlow<()> {
    for node in &plan.nodes {
        if context.is_poisoned() {
            return ControlFlow::Break(());
        }
        match &node.step {
            Step::Empty => {}
            Step::Work(piece) => {
                let Some(own) = piece.context.upgrade().filter(|own| !own.is_poisoned()) else {
                    return ControlFlow::Break(());
                };
                // SAFETY: the caller of the launch guarantees that the memory that its work uses is valid until the
                // work has run, and that the two sides of a copy do not overlap.
                unsafe { timeline.run(&piece.action, &own, ran.at_node(node.handle)) };
                if own.is_poisoned() {
                    return ControlFlow::Break(());
                }
            }
            Step::Child(child) => run(child, context, timeline, ran)?,
            Step::Conditional { condition, kind, bodies } => {
                choose(condition, *kind, bodies, context, timeline, ran)?
            }
        }
    }
    ControlFlow::Continue(())
}

/// Runs the bodies of a conditional node according to the condition.
fn choose(
    condition: &Condition,
    kind: ConditionalKind,
    bodies: &[Arc<Plan>],
    context: &EmulatedContext,
    timeline: &Timeline,
    ran: Ran<'_>,
) -> ControlFlow<()> {
    let value = || condition.value.load(Ordering::Acquire);
    let body = match kind {
        ConditionalKind::If => bodies.first().filter(|_| value() != 0),
        ConditionalKind::IfElse => bodies.get(usize::from(value() == 0)),
        ConditionalKind::Switch(_) => bodies.get(value() as usize),
        ConditionalKind::While => {
            let Some(body) = bodies.first() else { return ControlFlow::Continue(()) };
            let mut rounds = 0;
            while value() != 0 {
                run(body, context, timeline, ran)?;
                rounds += 1;
                if timeline.is_idle() {
                    // On an idle driver, no kernel runs that could end the loop.
                    break;
                }
                if rounds == MAX_ROUNDS {
                    let text = format!(
                        "the body of a while node ran {rounds} times, but its condition is still not 0"
                    );
                    context.poison(fault(FaultKind::Deadlock, text));
                    return ControlFlow::Break(());
                }
            }
            None
        }
    };
    body.map_or(ControlFlow::Continue(()), |body| run(body, context, timeline, ran))
}
