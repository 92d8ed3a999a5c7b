//! Documents in the forms of other programs. (JSON is the document itself: [`Document::to_json`].)
//!
//! Guarantees: every record of a document is in the output, wrong and failed ones as such, in the document's order.
//!
//! [`Document::to_json`]: crate::document::Document::to_json

mod csv;
mod t4;

pub use self::csv::{COLUMNS, csv};
pub use self::t4::t4;

/// A name in an output, as the document writes it.
fn name(value: &impl serde::Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(name)) => name,
        _ => String::new(),
    }
}
