//! Comments on pull requests: one for each object and Provider, identified by a hidden marker in its text.

use serde_json::Value;

use super::git_provider_common::text;
use super::markdown_message::markdown;
use crate::event::FluxEvent;

/// Removes commands from a Markdown text. GitLab, or a bot at other forges, executes lines such as `/merge` with the rights of
/// the token's user. The author of a manifest or commit message may not have these rights.
///
/// Differs(flux): there, the message of an event may contain commands.
pub(super) fn without_commands(text: &str) -> String {
    let lines = text.split('\n').map(|line| match line.trim_start().starts_with('/') {
        true => line.replacen('/', "\\/", 1),
        false => line.to_owned(),
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// A comment, and the hidden marker that identifies it.
pub(super) struct PullRequestComment {
    pub(super) body: String,
    mark: String,
}

impl PullRequestComment {
    pub(super) fn new(prefix: &str, uid: &str, event: &FluxEvent) -> Self {
        let mark = format!("<!-- {prefix}:{uid}/{} -->", event.object.display());
        Self { body: format!("{mark}\n\n{}", without_commands(&markdown(event))), mark }
    }

    /// The id of the first comment of this author that has the mark. `None` if there is no such comment.
    pub(super) fn find(&self, comments: &[Value], author: &str, login: &str) -> Option<i64> {
        let mut comments = comments.iter();
        let found = comments.find(|comment| {
            text(comment, author) == login && text(comment, "/body").contains(&self.mark)
        })?;
        Some(found.get("id").and_then(Value::as_i64).unwrap_or_default())
    }
}
