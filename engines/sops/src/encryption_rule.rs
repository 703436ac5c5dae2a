//! Which values of a tree are encrypted.

use golang::regexp::GoRegexp;

use crate::value::SecretBytes;

/// The rule that says which values of a file are encrypted. sops allows one rule.
#[derive(Debug)]
pub(crate) enum EncryptionRule {
    /// Encrypts all values except those below a key with this suffix.
    UnencryptedSuffix(String),
    /// Encrypts the values below a key with this suffix.
    EncryptedSuffix(String),
    /// Encrypts all values except those below a matching key.
    UnencryptedRegex(RulePattern),
    /// Encrypts the values below a matching key.
    EncryptedRegex(RulePattern),
    /// Encrypts all values except those after a matching comment in the same map or list, or in one around it.
    UnencryptedComment(RulePattern),
    /// Encrypts the values after a matching comment in the same map or list, or in one around it.
    EncryptedComment(RulePattern),
}

/// A regular expression. An invalid one matches nothing.
///
/// Parity(sops 3.13): the error of such a pattern is dropped there.
#[derive(Debug)]
pub(crate) struct RulePattern(Option<GoRegexp>);

impl RulePattern {
    pub(crate) fn new(text: &str) -> Self {
        Self(GoRegexp::new(text).ok())
    }

    fn matches(&self, text: &[u8]) -> bool {
        let Some(pattern) = &self.0 else { return false };
        pattern.is_match(&String::from_utf8_lossy(text))
    }
}

impl EncryptionRule {
    /// Whether the value at a path is encrypted. `comments` are the comments above the value, with the innermost map or list
    /// last.
    pub(crate) fn encrypts(
        &self,
        path: &[String],
        comments: &[Vec<SecretBytes>],
        is_comment: bool,
    ) -> bool {
        let any_key = |holds: &dyn Fn(&str) -> bool| path.iter().any(|key| holds(key));
        match self {
            Self::UnencryptedSuffix(suffix) => !any_key(&|key| key.ends_with(suffix.as_str())),
            Self::EncryptedSuffix(suffix) => any_key(&|key| key.ends_with(suffix.as_str())),
            Self::UnencryptedRegex(pattern) => !any_key(&|key| pattern.matches(key.as_bytes())),
            Self::EncryptedRegex(pattern) => any_key(&|key| pattern.matches(key.as_bytes())),
            Self::UnencryptedComment(pattern) => {
                !comments.iter().flatten().any(|comment| pattern.matches(comment))
            }
            Self::EncryptedComment(pattern) => {
                // A comment that matches is not encrypted itself.
                let own = usize::from(is_comment);
                let (last, outer) = match comments.split_last() {
                    Some((last, outer)) => (last.as_slice(), outer),
                    None => (&[][..], &[][..]),
                };
                let last = last.get(..last.len().saturating_sub(own)).unwrap_or_default();
                outer.iter().flatten().chain(last).any(|comment| pattern.matches(comment))
            }
        }
    }
}
