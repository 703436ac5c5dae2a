//! The metadata of an artifact about the commit from which it was made.

use std::collections::BTreeMap;

/// Metadata key of the first line of the commit message.
const SUBJECT: &str = "windlass.dev/CommitSubject";

/// Metadata key of the author's name, without the address.
const AUTHOR: &str = "windlass.dev/CommitAuthor";

/// Metadata key of the time at which the author wrote the commit.
const TIME: &str = "windlass.dev/CommitTime";

/// How many characters of subject, author and time are kept.
const MAX_SUBJECT_LENGTH: usize = 200;
const MAX_AUTHOR_LENGTH: usize = 100;
const MAX_TIME_LENGTH: usize = 64;

/// The description of a commit. Its author may write anything into it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CommitDescription {
    /// The first line of the commit message.
    pub subject: String,
    /// The name of the author.
    pub author: String,
    /// When the author wrote the commit, in RFC 3339.
    pub time: String,
}

/// Removes control characters and line breaks from a text, and shortens it.
fn plain(text: &str, length: usize) -> String {
    text.chars().filter(|it| !it.is_control()).take(length).collect::<String>().trim().to_owned()
}

impl CommitDescription {
    /// The description as metadata. Empty values are left out.
    #[must_use]
    pub fn metadata(&self) -> BTreeMap<String, String> {
        let all = [
            (SUBJECT, plain(&self.subject, MAX_SUBJECT_LENGTH)),
            (AUTHOR, plain(&self.author, MAX_AUTHOR_LENGTH)),
            (TIME, self.time.clone()),
        ];
        let known = all.into_iter().filter(|(_, value)| !value.is_empty());
        known.map(|(key, value)| (key.to_owned(), value)).collect()
    }

    /// Reads the description from metadata. `None` if the metadata names no commit. Users may write the status, so
    /// control characters are removed again.
    #[must_use]
    pub fn of_metadata(metadata: &BTreeMap<String, String>) -> Option<Self> {
        let text = |key: &str| metadata.get(key).map(String::as_str).unwrap_or_default();
        let found = Self {
            subject: plain(text(SUBJECT), MAX_SUBJECT_LENGTH),
            author: plain(text(AUTHOR), MAX_AUTHOR_LENGTH),
            time: plain(text(TIME), MAX_TIME_LENGTH),
        };
        (found != Self::default()).then_some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_is_described_on_short_lines_without_control_characters() {
        let hostile = CommitDescription {
            subject: format!("Scale\u{1b}[31m the shop {}", "x".repeat(500)),
            author: "Alice\r\n".to_owned(),
            time: String::new(),
        };
        let metadata = hostile.metadata();
        assert_eq!(metadata.len(), 2);
        let read = CommitDescription::of_metadata(&metadata).unwrap();
        assert!(read.subject.starts_with("Scale[31m the shop x"), "{}", read.subject);
        assert_eq!((read.subject.chars().count(), read.author.as_str()), (200, "Alice"));
        assert_eq!(CommitDescription::of_metadata(&BTreeMap::new()), None);
        let other =
            BTreeMap::from([("org.opencontainers.image.source".to_owned(), "x".to_owned())]);
        assert_eq!(CommitDescription::of_metadata(&other), None);
    }
}
