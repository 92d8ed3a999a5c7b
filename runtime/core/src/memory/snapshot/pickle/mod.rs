//! Pickles that hold plain data: writing a snapshot as one, and reading any.
//!
//! | module | what it holds |
//! | --- | --- |
//! | `write` | a snapshot as a pickle |
//! | `machine` | running a pickle, which gives values |
//! | `data` | those values as serde's data |
//! | `opcode` | the operations of both |

mod data;
mod machine;
mod opcode;
mod write;

use serde::Deserialize;

use self::data::{Budget, Data};
use self::machine::Machine;
pub(super) use self::write::write;

/// Why a pickle could not be read.
#[derive(Debug)]
pub(super) enum Problem {
    /// It ends too early.
    CutOff,
    /// It has something else than plain data at this byte.
    At(usize),
    /// Its data is not what was expected.
    Content(serde::de::value::Error),
}

/// Reads a value from a pickle. Bytes after it are ignored, as Python ignores them.
pub(super) fn read<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, Problem> {
    let mut machine = Machine::new(bytes);
    let value = machine.run()?;
    let budget = Budget::of(bytes.len());
    T::deserialize(Data::new(&machine.lists, &budget, value)).map_err(Problem::Content)
}
