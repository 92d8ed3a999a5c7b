//! [`Fingerprint`]: the description of an operation, which ranks compare to detect mismatched calls.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

/// Description of an operation as one rank has called it. Matching calls have equal fingerprints on all ranks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Fingerprint {
    /// Name of the [`Communicator`](crate::Communicator) method.
    pub operation: Cow<'static, str>,
    /// Element type; empty for a barrier.
    pub element: Cow<'static, str>,
    /// Number of elements that each rank contributes or, for some operations, receives.
    pub count: u64,
    /// Operator of a reduction.
    pub reduction: Option<Cow<'static, str>>,
    /// Root rank: the source of the data or the destination of the result.
    pub root: Option<usize>,
    /// Peer rank of a send or receive.
    pub peer: Option<usize>,
    /// Sequence number, starting at 0. It counts the rank's collective operations, its sends to the peer, or its
    /// receives from the peer. It is assigned when the operation runs.
    pub sequence: u64,
}

impl Fingerprint {
    /// Creates a fingerprint with the sequence number 0.
    pub(crate) fn new(operation: &'static str, element: Cow<'static, str>, count: usize) -> Self {
        let (reduction, root, peer) = (None, None, None);
        Self {
            operation: Cow::Borrowed(operation),
            element,
            count: count as u64,
            reduction,
            root,
            peer,
            sequence: 0,
        }
    }

    /// Returns the fingerprint that represents the creation of a communicator.
    pub(crate) fn init() -> Self {
        Self::new("init", Cow::Borrowed(""), 0)
    }

    /// Returns whether the operation is point-to-point.
    pub(crate) fn is_point_to_point(&self) -> bool {
        self.peer.is_some()
    }

    /// Returns whether the calls of two ranks belong to the same operation and match.
    pub(crate) fn matches(&self, other: &Self) -> bool {
        match (self.peer, other.peer) {
            (None, None) => self == other,
            (Some(_), Some(_)) => {
                let what = |of: &Self| (of.element.clone(), of.count, of.sequence);
                self.operation != other.operation && what(self) == what(other)
            }
            _ => false,
        }
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} #{}", self.operation, self.sequence)?;
        if let Some(peer) = self.peer {
            write!(f, " {} rank {peer}", if self.operation == "send" { "to" } else { "from" })?;
        }
        if self.element.is_empty() {
            return Ok(());
        }
        f.write_str(" (")?;
        if let Some(reduction) = &self.reduction {
            write!(f, "{reduction}, ")?;
        }
        write!(f, "{}, {} element{}", self.element, self.count, if self.count == 1 { "" } else { "s" })?;
        if let Some(root) = self.root {
            write!(f, ", root {root}")?;
        }
        f.write_str(")")
    }
}

/// Returns the name of a type without its module path.
pub(crate) fn type_name<T>() -> Cow<'static, str> {
    let full = std::any::type_name::<T>();
    if !full.contains('<') {
        return Cow::Borrowed(full.rsplit("::").next().unwrap_or(full));
    }
    Cow::Borrowed(full)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all_reduce() -> Fingerprint {
        let reduction = Some(Cow::Borrowed("sum"));
        Fingerprint { reduction, sequence: 7, ..Fingerprint::new("all_reduce", Cow::Borrowed("f32"), 1024) }
    }

    #[test]
    fn texts_name_all_that_is_compared() {
        assert_eq!(all_reduce().to_string(), "all_reduce #7 (sum, f32, 1024 elements)");
        let broadcast =
            Fingerprint { root: Some(1), ..Fingerprint::new("broadcast", Cow::Borrowed("u8"), 1) };
        assert_eq!(broadcast.to_string(), "broadcast #0 (u8, 1 element, root 1)");
        let send = Fingerprint { peer: Some(3), ..Fingerprint::new("send", Cow::Borrowed("u8"), 2) };
        assert_eq!(send.to_string(), "send #0 to rank 3 (u8, 2 elements)");
        assert_eq!(Fingerprint::new("barrier", Cow::Borrowed(""), 0).to_string(), "barrier #0");
    }

    #[test]
    fn a_send_matches_its_receive_only() {
        let of = |operation, count| Fingerprint {
            peer: Some(0),
            ..Fingerprint::new(operation, Cow::Borrowed("u8"), count)
        };
        assert!(of("send", 2).matches(&of("recv", 2)));
        assert!(!of("send", 2).matches(&of("recv", 3)));
        assert!(!of("send", 2).matches(&of("send", 2)));
        assert!(!of("send", 2).matches(&all_reduce()));
        assert!(all_reduce().matches(&all_reduce()));
    }

    #[test]
    fn type_names_have_no_modules() {
        assert_eq!(type_name::<f32>(), "f32");
        assert_eq!(type_name::<std::num::Wrapping<u8>>(), "core::num::wrapping::Wrapping<u8>");
        assert_eq!(type_name::<half::bf16>(), "bf16");
    }
}
