//! Texts that records share, each stored once.

use std::collections::HashMap;
use std::sync::Arc;

/// A text of [`Names`]. The default is the empty text, which stands for "unknown" or "none".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Name(u32);

impl Name {
    /// The empty text.
    pub const NONE: Name = Name(0);

    /// Whether it is the empty text.
    pub fn is_none(self) -> bool {
        self == Name::NONE
    }
}

/// Interned texts.
///
/// ```
/// use warpsmith_trace::Names;
///
/// let mut names = Names::default();
/// let saxpy = names.intern("saxpy");
/// assert_eq!(saxpy, names.intern("saxpy"));
/// assert_eq!(names.text(saxpy), "saxpy");
/// ```
#[derive(Debug, Clone)]
pub struct Names {
    texts: Vec<Arc<str>>,
    ids: HashMap<Arc<str>, Name>,
}

impl Default for Names {
    fn default() -> Self {
        let empty: Arc<str> = Arc::from("");
        Names { texts: vec![empty.clone()], ids: HashMap::from([(empty, Name::NONE)]) }
    }
}

impl Names {
    /// The name of `text`; the empty one when there are 2^32 names already.
    pub fn intern(&mut self, text: &str) -> Name {
        if let Some(name) = self.ids.get(text) {
            return *name;
        }
        let Ok(index) = u32::try_from(self.texts.len()) else { return Name::NONE };
        let text: Arc<str> = Arc::from(text);
        self.texts.push(text.clone());
        self.ids.insert(text, Name(index));
        Name(index)
    }

    /// The name of `text`, if it is there.
    pub fn find(&self, text: &str) -> Option<Name> {
        self.ids.get(text).copied()
    }

    /// The text of a name of this table; empty for one of a larger table.
    pub fn text(&self, name: Name) -> &str {
        self.texts.get(name.0 as usize).map_or("", |text| text)
    }

    /// How many texts there are, the empty one included.
    #[expect(clippy::len_without_is_empty, reason = "it never is: the empty text is always there")]
    pub fn len(&self) -> usize {
        self.texts.len()
    }
}
