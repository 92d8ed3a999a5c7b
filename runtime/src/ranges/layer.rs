//! [`RangeLayer`]: reports `tracing` spans as ranges and `tracing` events as marks.

use std::cell::RefCell;
use std::fmt;

use tracing::field::{Field, Visit};
use tracing::span::Id;
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::LookupSpan;

use crate::ranges::label::Label;
use crate::ranges::listener::RangeId;
use crate::ranges::stack::Range;
use crate::ranges::started::mark;
use crate::ranges::state;

/// Layer that creates a range each time a thread enters a span, and a mark for each event. The category is the
/// `tracing` target; the name is the span's name or the event's message.
///
/// A span of asynchronous code, which several threads may enter repeatedly, becomes one range per entry.
///
/// ```
/// use tracing_subscriber::layer::SubscriberExt;
/// use warpsmith_runtime::ranges::RangeLayer;
///
/// let subscriber = tracing_subscriber::registry().with(RangeLayer::new());
/// tracing::subscriber::with_default(subscriber, || {
///     let _span = tracing::info_span!("epoch").entered();
///     tracing::info!("loss {}", 0.5);
/// });
/// ```
#[derive(Debug, Default, Clone, Copy)]
pub struct RangeLayer(());

impl RangeLayer {
    /// Creates the layer, for any subscriber that is a registry.
    pub fn new() -> Self {
        Self::default()
    }
}

thread_local! {
    /// Spans that the thread has entered, each with its range.
    static ENTERED: RefCell<Vec<(Id, RangeId)>> = const { RefCell::new(Vec::new()) };
}

fn label(metadata: &'static Metadata<'static>) -> Label {
    Label::new(metadata.name())
        .category(metadata.target())
        .at(metadata.file().unwrap_or(""), metadata.line().unwrap_or(0))
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for RangeLayer {
    fn on_enter(&self, id: &Id, context: Context<'_, S>) {
        if !state::may_be_heard() {
            return;
        }
        let Some(span) = context.span(id) else { return };
        if let Some(range) = Range::new(|| label(span.metadata())).leave_open() {
            // If the thread is exiting, the range stays open.
            let _ = ENTERED.try_with(|entered| entered.borrow_mut().push((id.clone(), range)));
        }
    }

    fn on_exit(&self, id: &Id, _: Context<'_, S>) {
        let range = ENTERED.try_with(|entered| {
            let mut entered = entered.borrow_mut();
            let index = entered.iter().rposition(|(entered, _)| entered == id)?;
            Some(entered.remove(index).1)
        });
        if let Ok(Some(range)) = range {
            crate::ranges::stack::end_guarded(range);
        }
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        mark(|| {
            let mut message = Message(None);
            event.record(&mut message);
            let label = label(event.metadata());
            match message.0 {
                Some(name) => Label { name: name.into(), ..label },
                None => label,
            }
        });
    }
}

/// Visitor that extracts the message of an event.
struct Message(Option<String>);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.0 = Some(format!("{value:?}"));
        }
    }
}
