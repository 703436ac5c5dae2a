//! Divides rendered text into manifests and hooks, in the order in which Helm creates or deletes them.
//!
//! Here: the types, and recognizing hooks. Elsewhere: the fields of a manifest that Helm reads
//! (`manifests/manifest_head.rs`), the order of kinds (`manifests/order.rs`), and manifests as objects (`objects`).

mod manifest_head;
mod order;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use crate::parallel_work;
pub use manifest_head::{ManifestHead, ManifestHeadError};
pub use order::ManifestOrder;

/// A manifest that belongs to the release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReleaseManifest {
    /// The template file from which the manifest was rendered.
    pub path: String,
    /// The text of the manifest.
    pub content: String,
    /// The fields that Helm read from the manifest.
    pub head: ManifestHead,
}

/// A hook: a manifest that Helm applies at a certain moment of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReleaseHook {
    /// The object's name.
    pub name: String,
    /// The object's kind.
    pub kind: String,
    /// The template file from which the hook was rendered.
    pub path: String,
    /// The text of the manifest.
    pub manifest: String,
    /// The moments at which Helm applies the hook.
    pub events: Vec<HookEvent>,
    /// The weight of the hook. Hooks with a lower weight come first.
    pub weight: i64,
    /// When Helm deletes the hook, as the annotation says in lower case. Helm ignores unknown words.
    pub delete_policies: Vec<String>,
    /// When Helm shows the logs of the hook, as the annotation says in lower case. Helm ignores unknown words.
    pub output_log_policies: Vec<String>,
}

/// The moment of an operation at which a hook is applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names say it")]
pub enum HookEvent {
    PreInstall,
    PostInstall,
    PreDelete,
    PostDelete,
    PreUpgrade,
    PostUpgrade,
    PreRollback,
    PostRollback,
    Test,
}

impl HookEvent {
    /// The name of the event in annotations and release records.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::PreInstall => "pre-install",
            Self::PostInstall => "post-install",
            Self::PreDelete => "pre-delete",
            Self::PostDelete => "post-delete",
            Self::PreUpgrade => "pre-upgrade",
            Self::PostUpgrade => "post-upgrade",
            Self::PreRollback => "pre-rollback",
            Self::PostRollback => "post-rollback",
            Self::Test => "test",
        }
    }

    fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "pre-install" => Self::PreInstall,
            "post-install" => Self::PostInstall,
            "pre-delete" => Self::PreDelete,
            "post-delete" => Self::PostDelete,
            "pre-upgrade" => Self::PreUpgrade,
            "post-upgrade" => Self::PostUpgrade,
            "pre-rollback" => Self::PreRollback,
            "post-rollback" => Self::PostRollback,
            // `test-success` is the word of Helm 2.
            "test" | "test-success" => Self::Test,
            _ => return None,
        })
    }
}

/// The manifests and hooks in rendered files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SortedManifests {
    /// The hooks, sorted by kind. Hooks of one kind keep their order. The caller sorts them by weight before it runs
    /// them.
    pub hooks: Vec<ReleaseHook>,
    /// The manifests, sorted by kind. Manifests of one kind keep their order.
    pub manifests: Vec<ReleaseManifest>,
    /// The `helm.sh/hook` annotations with an event that Helm does not know. Helm drops such objects.
    pub unknown_hooks: Vec<String>,
}

/// A manifest cannot be read. The messages are Helm's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("YAML parse error on {path}: {problem}")]
pub struct Error {
    /// The template file from which the manifest was rendered.
    pub path: String,
    /// What is wrong with the manifest.
    pub problem: ManifestHeadError,
    /// The manifests and hooks that were read before, unsorted.
    pub before: Box<SortedManifests>,
}

/// The documents of a rendered text. Separators, white space before documents, and empty documents are left out.
///
/// Text after `---` on the same line belongs to the document.
pub fn split(text: &[u8]) -> Vec<&[u8]> {
    let text = trim_start(text);
    let mut documents = Vec::new();
    let mut from = 0;
    let mut line_start = 0;
    loop {
        if let Some(after) = text[line_start..].strip_prefix(b"---") {
            documents.push(&text[from..line_start]);
            let blanks = after.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
            from = line_start + 3 + blanks;
        }
        let Some(end) = memchr::memchr(b'\n', &text[line_start..]) else { break };
        line_start += end + 1;
    }
    documents.push(&text[from..]);
    documents.into_iter().map(trim_start).filter(|document| !document.is_empty()).collect()
}

/// Removes white space at the beginning of a text. Bytes that are not UTF-8 are not white space.
fn trim_start(text: &[u8]) -> &[u8] {
    let text = text.trim_ascii_start();
    if text.first().is_none_or(|first| first.is_ascii() && *first != b'\x0b') {
        return text;
    }
    let valid = text.utf8_chunks().next().map_or("", |chunk| chunk.valid());
    &text[valid.len() - valid.trim_start().len()..]
}

/// Whether a file only has definitions for other templates. Its own output is ignored.
pub(crate) fn is_partial(path: &str) -> bool {
    let name = path.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    name.starts_with('_')
}

/// Reads and sorts rendered files. The map has the rendered text by the path of its template.
///
/// Files whose name begins with `_` are left out.
///
/// # Errors
/// The first manifest that cannot be read, in the order of paths. The error has the manifests and hooks that were read
/// before, unsorted.
pub fn sort<T: AsRef<[u8]>>(
    files: &BTreeMap<String, T>,
    order: ManifestOrder,
) -> Result<SortedManifests, Error> {
    let mut sorted = SortedManifests::default();
    let strings = files.iter().filter(|(path, _)| !is_partial(path));
    let documents: Vec<(&String, &[u8])> = strings
        .flat_map(|(path, text)| split(text.as_ref()).into_iter().map(move |it| (path, it)))
        .collect();
    let bytes = documents.iter().map(|(_, document)| document.len()).sum();
    let read = parallel_work::map(&documents, bytes, |(_, document)| {
        // A document that could be read is UTF-8.
        let text = || match std::str::from_utf8(document) {
            Ok(text) => text.to_owned(),
            Err(_) => String::from_utf8_lossy(document).into_owned(),
        };
        ManifestHead::parse(document).map(|head| (text(), head))
    });
    for ((path, _), read) in documents.into_iter().zip(read) {
        match read {
            Ok((content, head)) => sorted.take(path, content, head),
            Err(problem) => {
                return Err(Error { path: path.clone(), problem, before: Box::new(sorted) });
            }
        }
    }
    sorted.hooks.sort_by(|a, b| order.compare(&a.kind, &b.kind));
    sorted.manifests.sort_by(|a, b| order.compare(&a.head.kind, &b.head.kind));
    Ok(sorted)
}

impl SortedManifests {
    fn take(&mut self, path: &str, content: String, head: ManifestHead) {
        let path = path.to_owned();
        let Some(hook) = head.annotation("helm.sh/hook") else {
            self.manifests.push(ReleaseManifest { path, content, head });
            return;
        };
        let events = hook.split(',').map(|word| HookEvent::parse(&word.trim().to_lowercase()));
        let Some(events) = events.collect() else {
            self.unknown_hooks.push(hook.to_owned());
            return;
        };
        let words = |annotation| {
            let words = head.annotation(annotation).into_iter().flat_map(|text| text.split(','));
            words.map(|word| word.trim().to_lowercase()).collect()
        };
        let weight = head.annotation("helm.sh/hook-weight").unwrap_or_default();
        self.hooks.push(ReleaseHook {
            events,
            weight: weight.parse().unwrap_or_default(),
            delete_policies: words("helm.sh/hook-delete-policy"),
            output_log_policies: words("helm.sh/hook-output-log-policy"),
            path,
            manifest: content,
            name: head.name,
            kind: head.kind,
        });
    }
}
