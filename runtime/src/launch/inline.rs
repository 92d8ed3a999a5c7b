//! [`Inline`]: a bounded list without heap allocation. Only used slots are written.

use std::mem::MaybeUninit;

/// A list of up to `N` values.
pub(super) struct Inline<T, const N: usize> {
    /// The slots; the first `len` are initialized.
    values: [MaybeUninit<T>; N],
    len: usize,
}

impl<T, const N: usize> Default for Inline<T, N> {
    #[inline(always)]
    fn default() -> Self {
        let () = Self::FORGETTABLE;
        Self { values: [const { MaybeUninit::uninit() }; N], len: 0 }
    }
}

impl<T, const N: usize> Inline<T, N> {
    /// Checks that values need no drop, because the list does not drop them.
    const FORGETTABLE: () = assert!(!std::mem::needs_drop::<T>());

    /// Adds a value.
    ///
    /// # Panics
    /// Panics if the list already contains `N` values.
    #[inline(always)]
    pub fn push(&mut self, value: T) {
        self.values[self.len].write(value);
        self.len += 1;
    }

    #[inline]
    pub fn as_slice(&self) -> &[T] {
        // SAFETY: the first `len` values were written, and `MaybeUninit<T>` has the layout of `T`.
        unsafe { std::slice::from_raw_parts(self.values.as_ptr().cast(), self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::Inline;

    #[test]
    fn values_are_kept_in_order() {
        let mut list = Inline::<&str, 3>::default();
        assert!(list.as_slice().is_empty());
        ["a", "b", "c"].into_iter().for_each(|value| list.push(value));
        assert_eq!(list.as_slice(), ["a", "b", "c"]);
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| list.push("d"))).is_err());
        assert_eq!(list.as_slice(), ["a", "b", "c"]);
    }
}
