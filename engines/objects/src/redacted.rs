//! Values that must never be shown: passwords, tokens, keys.

use std::fmt;

/// A value whose `Display` and `Debug` print `****`.
///
/// The value can only be read with [`expose`](Self::expose), so that a review can find every place that reads it.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct RedactedValue<T>(T);

impl<T> RedactedValue<T> {
    /// Hides a value from logs and other output.
    pub fn new(value: T) -> Self {
        Self(value)
    }

    /// The value itself, for the code that must send it.
    pub fn expose(&self) -> &T {
        &self.0
    }
}

impl<T> fmt::Display for RedactedValue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("****")
    }
}

impl<T> fmt::Debug for RedactedValue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("****")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_shown_by_neither_display_nor_debug() {
        let secret = RedactedValue::new("hunter2");
        assert_eq!(format!("{secret} {secret:?}"), "**** ****");
        assert_eq!(*secret.expose(), "hunter2");
    }
}
