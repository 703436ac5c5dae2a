//! The variables of a Kustomization: names are checked, and values have no line breaks.

use std::collections::BTreeMap;
use std::fmt;

/// Values by name. `Debug` shows only the names, because values may come from Secrets.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct SubstitutionVariables(BTreeMap<String, Vec<u8>>);

/// A name that a variable cannot have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' var name is invalid, must match '^[_[:alpha:]][_[:alpha:][:digit:]]*$'")]
pub struct InvalidVariableName(pub String);

impl SubstitutionVariables {
    /// Sets a variable and replaces its former value. Line feeds are removed from the value.
    ///
    /// # Errors
    /// The name is not ASCII letters, digits and `_`, or begins with a digit.
    pub fn set(&mut self, name: &str, value: &[u8]) -> Result<(), InvalidVariableName> {
        let is_word = name.bytes().all(|byte| byte == b'_' || byte.is_ascii_alphanumeric());
        if name.is_empty() || !is_word || name.as_bytes()[0].is_ascii_digit() {
            return Err(InvalidVariableName(name.to_owned()));
        }
        let value = value.iter().copied().filter(|byte| *byte != b'\n').collect();
        self.0.insert(name.to_owned(), value);
        Ok(())
    }

    /// The value of a variable, for [`substitute`](crate::substitute). `None` if the variable is not set.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.0.get(name).map(Vec::as_slice)
    }

    /// The same variables, all with the same value.
    #[must_use]
    pub fn with_value(&self, value: &[u8]) -> Self {
        Self(self.0.keys().map(|name| (name.clone(), value.to_vec())).collect())
    }

    /// Whether there are no variables.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for SubstitutionVariables {
    fn fmt(&self, into: &mut fmt::Formatter<'_>) -> fmt::Result {
        into.debug_set().entries(self.0.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::{InvalidVariableName, SubstitutionVariables};

    #[test]
    fn names_are_words_of_ascii() {
        let mut variables = SubstitutionVariables::default();
        for name in ["a", "_", "_1", "aB_9"] {
            assert_eq!(variables.set(name, b"v"), Ok(()), "{name}");
        }
        for name in ["", "1a", "a.b", "a-b", "é", "a\n", "a b"] {
            assert_eq!(variables.set(name, b"v"), Err(InvalidVariableName(name.to_owned())));
        }
        let error = InvalidVariableName("a.b".to_owned()).to_string();
        let wanted = "'a.b' var name is invalid, must match '^[_[:alpha:]][_[:alpha:][:digit:]]*$'";
        assert_eq!(error, wanted);
    }

    #[test]
    fn the_last_value_counts_without_its_line_feeds() {
        let mut variables = SubstitutionVariables::default();
        assert!(variables.is_empty());
        variables.set("a", b"first").unwrap();
        variables.set("a", b"two\r\nlines\n").unwrap();
        assert_eq!(variables.get("a"), Some(b"two\rlines".as_slice()));
        assert_eq!(variables.get("b"), None);
    }

    #[test]
    fn no_value_is_shown() {
        let mut variables = SubstitutionVariables::default();
        variables.set("password", b"hunter2").unwrap();
        assert_eq!(format!("{variables:?}"), r#"{"password"}"#);
    }
}
