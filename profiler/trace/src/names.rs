//! [`Names`]: strings that records share, each of which is stored once.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

/// Maximum length of a string, in bytes. If a string is longer, only its start is kept. Kernel names have a length of
/// up to a few thousand bytes.
pub(crate) const LONGEST: usize = 16 << 10;

/// Maximum total size of a trace's strings, in bytes.
const MAX_BYTES: usize = 512 << 20;

/// Approximate overhead of each string in the list and the map, in bytes.
const EACH: usize = 96;

/// Suffix of a shortened string.
const MORE: &str = "…";

/// String that replaces strings that do not fit in memory.
const OTHERS: &str = "others";

/// Reference to a string in [`Names`]. The default refers to the empty string, which means "unknown" or "none".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Name(u32);

impl Name {
    /// Empty string.
    pub const NONE: Name = Name(0);

    /// Returns true if the string is empty.
    pub fn is_none(self) -> bool {
        self == Name::NONE
    }
}

/// Interned strings, in bounded memory. If a string is longer than 16 KiB, only its start is kept. As soon as the
/// strings occupy 512 MiB in total, new strings are replaced by the string `others`.
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
    /// Space that is left for strings, in bytes.
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
            left: MAX_BYTES,
            shortened: 0,
            refused: 0,
        }
    }
}

impl Names {
    /// Returns the name for `text`, interning the string if necessary.
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

    /// Returns the string, shortened if it is too long, or a placeholder if the limit on bytes is reached. The string
    /// is not interned, but its bytes count toward the limit as well.
    pub(crate) fn kept(&mut self, text: &str) -> String {
        let short = self.short(text);
        if self.pay_for(&short) { short.into_owned() } else { OTHERS.to_owned() }
    }

    /// Returns the string or, if it is too long, only its start.
    fn short<'a>(&mut self, text: &'a str) -> Cow<'a, str> {
        // A string that has already been shortened must not be shortened again.
        if text.len() <= LONGEST + MORE.len() {
            return Cow::Borrowed(text);
        }
        self.shortened += 1;
        Cow::Owned(format!("{}{MORE}", &text[..text.floor_char_boundary(LONGEST)]))
    }

    /// Reserves memory for a string. Returns true if it was available.
    fn pay_for(&mut self, text: &str) -> bool {
        let left = self.left.checked_sub(text.len() + EACH);
        self.left = left.unwrap_or(self.left);
        self.refused += u64::from(left.is_none());
        left.is_some()
    }

    /// Returns the number of strings that were shortened, and the number of strings that were replaced by `others`.
    pub(crate) fn not_kept(&self) -> (u64, u64) {
        (self.shortened, self.refused)
    }

    /// Returns the name for `text` if the string has been interned.
    pub fn find(&self, text: &str) -> Option<Name> {
        self.ids.get(text).copied()
    }

    /// Returns the string for a name from this table. If the name comes from a larger table, the string is empty.
    pub fn text(&self, name: Name) -> &str {
        self.texts.get(name.0 as usize).map_or("", |text| text)
    }

    /// Returns the number of strings, including the empty one.
    #[expect(clippy::len_without_is_empty, reason = "it never is: the empty text is always there")]
    pub fn len(&self) -> usize {
        self.texts.len()
    }
}
