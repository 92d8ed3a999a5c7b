//! [`RangeInlet`]: receives the program's ranges and marks.

use std::sync::Arc;

use warpsmith_runtime::ranges::{self as ranges, Event, Kind, Label, Listener, Misuse};
use warpsmith_trace::{Name, Payload};

use crate::raw::{Push, Raw};
use crate::recording::Recording;
use crate::recording::log::{Local, with_local};

/// Receives the ranges and marks of the program. See the [module documentation](self).
pub(crate) struct RangeInlet(pub(crate) Arc<Recording>);

impl RangeInlet {
    fn push(&self, local: &mut Local, id: u64, at: u64, label: &Label) -> Push {
        let recording = &*self.0;
        let category = if label.category.is_empty() {
            Name::NONE
        } else {
            local.program_name(recording, label.category)
        };
        let line = match label.file {
            "" => Name::NONE,
            file => recording.intern(&format!("{file}:{}", label.line)),
        };
        let payload = match label.payload {
            ranges::Payload::None => Payload::None,
            ranges::Payload::Int(value) => Payload::Int(value),
            ranges::Payload::Float(value) => Payload::Float(value),
        };
        let name = local.program_name(recording, &label.name);
        Push { at, id, name, category, color: label.color, payload, line }
    }
}

impl Listener for RangeInlet {
    fn event(&self, event: &Event<'_>) {
        let (recording, id) = (&*self.0, event.id.get());
        let at = recording.now();
        with_local(recording, |local| {
            let raw = match event.kind {
                Kind::Push => Raw::Push(self.push(local, id, at, event.label)),
                Kind::Start => Raw::Start(self.push(local, id, at, event.label)),
                Kind::Mark => Raw::Mark(self.push(local, id, at, event.label)),
                Kind::Pop | Kind::End => Raw::Pop { id, at },
            };
            local.push(recording, raw);
        });
    }

    fn misuse(&self, misuse: &Misuse) {
        self.0.note("ranges", misuse.to_string());
    }
}
