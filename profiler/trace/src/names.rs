//! Texts that records share, each stored once.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

/// The longest text that is kept, in bytes; of a longer one the begin is kept. Names of kernels have a few thousand.
pub(crate) const LONGEST: usize = 16 << 10;

/// Bytes that all texts of a trace may take.
const MOST_BYTES: usize = 512 << 20;

/// About the bytes that a text takes besides its own, in the list and the map.
const EACH: usize = 96;

/// What ends the begin of a text.
const MORE: &str = "…";

/// What stands for texts for which there is no space.
const OTHERS: &str = "others";

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

/// Interned texts, in bounded memory: of a text of more than 16 KiB the begin is kept, and when all texts take 512 MiB, new
/// ones are the text `others`.
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
    /// Bytes that texts may still take.
    left: usize,
    shortened: u64,
    refused: u64,
}

impl Default for Names {
    fn default() -> Self {
        let empty: Arc<str> = Arc::from("");
        Names {
            texts: vec![empty.clone()],
            ids: HashMap::from([(empty, Name::NONE)]),
            left: MOST_BYTES,
            shortened: 0,
            refused: 0,
        }
    }
}

impl Names {
    /// The name of `text`.
    pub fn intern(&mut self, text: &str) -> Name {
        if let Some(name) = self.ids.get(text) {
            return *name;
        }
        let short = self.short(text);
        if let Some(name) = self.ids.get(&*short) {
            return *name;
        }
        let text = if self.pay_for(&short) { &*short } else { OTHERS };
        if let Some(name) = self.ids.get(text) {
            return *name;
        }
        let Ok(index) = u32::try_from(self.texts.len()) else { return Name::NONE };
        let text: Arc<str> = Arc::from(text);
        self.texts.push(text.clone());
        self.ids.insert(text, Name(index));
        Name(index)
    }

    /// What is kept of a text that is no name, and whose bytes count too.
    pub(crate) fn kept(&mut self, text: &str) -> String {
        let short = self.short(text);
        if self.pay_for(&short) { short.into_owned() } else { OTHERS.to_owned() }
    }

    /// The text, or its begin.
    fn short<'a>(&mut self, text: &'a str) -> Cow<'a, str> {
        // A text that was shortened is not shortened again.
        if text.len() <= LONGEST + MORE.len() {
            return Cow::Borrowed(text);
        }
        self.shortened += 1;
        Cow::Owned(format!("{}{MORE}", &text[..text.floor_char_boundary(LONGEST)]))
    }

    /// Whether there is space for a text.
    fn pay_for(&mut self, text: &str) -> bool {
        let left = self.left.checked_sub(text.len() + EACH);
        self.left = left.unwrap_or(self.left);
        self.refused += u64::from(left.is_none());
        left.is_some()
    }

    /// How often only the begin of a text was kept, and how often `others` in its place.
    pub(crate) fn not_kept(&self) -> (u64, u64) {
        (self.shortened, self.refused)
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
