//! Sets values in files. Either only the bytes of the values change, or the whole file is rewritten as Flux does.
//!
//! Here: updating files one after the other, limits, unreadable files. Below: text and documents
//! (`marker_value_rewrite/document.rs`), values with markers (`marker_value_rewrite/setter_markers.rs`), the two ways of
//! writing (`marker_value_rewrite/value_replacement.rs`, `marker_value_rewrite/whole_file_like_flux.rs`). Elsewhere: markers
//! (`image_setter.rs`), the list of files (`git_checkout_files.rs`).

mod document;
mod setter_markers;
#[cfg(test)]
mod tests;
mod value_replacement;
mod whole_file_like_flux;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use goyaml::YamlLimits;

use crate::image_setter::ImageSetterValues;
use crate::update_result::UpdateResult;
use document::LineFeedText;
use setter_markers::SeenMarkers;
use whole_file_like_flux::FluxFormattedDocument;

/// A text that every file with a marker has.
const TOKEN: &str = "\"$imagepolicy\"";

/// The most keys, values, lists and maps of a document, and of all changed documents of a file. Each takes at least a hundred
/// bytes of memory, even if it is only `0,` in the file.
///
/// Differs(flux): it has no limit.
const MAX_NODES: usize = 500_000;

/// How changed values are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RewriteMode {
    /// Only the bytes of changed values are replaced.
    ///
    /// Differs(flux): comments, indentation, quotes, line ends and empty lines stay, also of files that Flux leaves out: with a
    /// document that cannot be read beside others, with a list at the root, of `kind: List`, with `..` in their name.
    KeepBytes,
    /// Files with a changed value are rewritten byte for byte like Flux, with Flux's errors.
    AsFlux,
}

/// The limits of an update.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RewriteLimits {
    /// The largest file with markers, in bytes. Larger files are left out.
    pub file_bytes: usize,
    /// The largest total size of files with markers, in bytes. Files beyond it are left out.
    pub all_bytes: usize,
    /// Values that change.
    pub changes: usize,
    /// The most listed files that are left out, and the most listed markers that are not read. Further ones are not listed.
    pub findings: usize,
}

impl Default for RewriteLimits {
    /// 5 MiB, 64 MiB, 100 000 values, 1 000 findings.
    fn default() -> Self {
        Self { file_bytes: 5 << 20, all_bytes: 64 << 20, changes: 100_000, findings: 1_000 }
    }
}

/// A file or a document that was left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkippedFileProblem {
    /// The file.
    pub file: String,
    /// The line, counted from 1, where that is known.
    pub line: Option<usize>,
    /// The reason.
    pub reason: String,
}

impl fmt::Display for SkippedFileProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, reason } = self;
        match line {
            Some(line) => write!(f, "{file}:{line}: {reason}"),
            None => write!(f, "{file}: {reason}"),
        }
    }
}

/// A marker that sets nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MarkerWithoutEffect {
    /// The file.
    pub file: String,
    /// The line, counted from 1.
    pub line: usize,
    /// The policy and part in the marker, if no policy of the update has it. `None` if the comment does not belong to a value,
    /// or is not in the form of a marker.
    pub setter: Option<String>,
    /// Whether the policy belongs to the update but has no result yet.
    pub is_unset: bool,
}

impl fmt::Display for MarkerWithoutEffect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, setter, is_unset } = self;
        match setter {
            Some(setter) if *is_unset => {
                write!(f, "{file}:{line}: the policy of `{setter}` has no result yet")
            }
            Some(setter) => write!(f, "{file}:{line}: no policy of the automation sets `{setter}`"),
            None => {
                write!(f, "{file}:{line}: the marker is not the whole comment behind a value")
            }
        }
    }
}

/// A file with the tag of a policy but without the required digest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TagWithoutDigest {
    /// The file.
    pub file: String,
    /// The policy, as `namespace:name`.
    pub policy: String,
}

impl fmt::Display for TagWithoutDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, policy } = self;
        write!(f, "{file} has a marker `{policy}:tag` and none for `{policy}` or `{policy}:digest`")
    }
}

/// The result of an update.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MarkerRewriteResult {
    /// The whole content of changed and new files, by the names given to [`MarkerRewriter::file`].
    pub files: BTreeMap<String, String>,
    /// The values that change.
    pub result: UpdateResult,
    /// Files that were left out.
    pub problems: Vec<SkippedFileProblem>,
    /// Markers that set nothing.
    pub unread: Vec<MarkerWithoutEffect>,
    /// Tags without a digest, although [`ImageSetterValues::requiring_digests`] requires one. If there is one, nothing may be
    /// written.
    pub without_digest: Vec<TagWithoutDigest>,
}

/// Why an update changes nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RewriteError {
    /// An error with which Flux ends the run. The text is Flux's.
    #[error("{0}")]
    AsFlux(String),
    /// More values would change than the limit.
    #[error("more than {0} values would change: divide the files among several automations")]
    Changes(usize),
}

/// Why `spec.update` is not valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UpdateStrategyError {
    /// `spec.update` is absent.
    #[error("no update strategy")]
    Absent,
    /// The strategy is not `ImageSetterValues`.
    #[error("unsupported update strategy: {0}")]
    Unsupported(String),
}

/// Accepts `ImageSetterValues`, which is the only strategy of `spec.update`. `strategy` is `None` if `spec.update` is absent.
///
/// # Errors
/// The strategy has another value, or is absent.
pub fn check_strategy(strategy: Option<&str>) -> Result<(), UpdateStrategyError> {
    match strategy {
        Some("Setters") => Ok(()),
        Some(other) => Err(UpdateStrategyError::Unsupported(other.to_owned())),
        None => Err(UpdateStrategyError::Absent),
    }
}

/// Whether a file may have a marker. Other files need not be given to a [`MarkerRewriter`].
pub fn has_marker(content: &[u8]) -> bool {
    memchr::memmem::find(content, TOKEN.as_bytes()).is_some()
}

/// Goes over the files of an update.
#[derive(Debug)]
pub struct MarkerRewriter<'s> {
    setters: &'s ImageSetterValues,
    mode: RewriteMode,
    limits: RewriteLimits,
    /// Bytes of the files with markers so far.
    bytes: usize,
    /// Documents that are written at the end, as Flux does.
    documents: Vec<FluxFormattedDocument>,
    rewrite: MarkerRewriteResult,
}

impl<'s> MarkerRewriter<'s> {
    /// A rewriter that has read no file yet.
    pub fn new(setters: &'s ImageSetterValues, mode: RewriteMode, limits: RewriteLimits) -> Self {
        let documents = Vec::new();
        Self { setters, mode, limits, bytes: 0, documents, rewrite: MarkerRewriteResult::default() }
    }

    /// Reads the next file, under the name that changes are listed by.
    pub fn file(&mut self, name: &str, content: &[u8]) {
        // An update with too many changes is dropped as a whole, so further files need not be read.
        if self.rewrite.result.len() > self.limits.changes || !has_marker(content) {
            return;
        }
        let text = match self.admitted(content) {
            Ok(text) => LineFeedText::new(text),
            Err(reason) => return self.leave_out(name, None, reason),
        };
        let limits =
            YamlLimits { bytes: self.limits.file_bytes, nodes: MAX_NODES, ..YamlLimits::default() };
        let mut markers = SeenMarkers::default();
        match self.mode {
            RewriteMode::KeepBytes => {
                let kept = value_replacement::rewrite(&text, self.setters, &mut markers, &limits);
                for (line, reason) in kept.problems {
                    self.leave_out(name, line, reason);
                }
                let file: Arc<str> = name.into();
                for (object, change) in kept.changes {
                    self.rewrite.result.add(&file, &object, change);
                }
                self.rewrite.files.extend(kept.text.map(|text| (name.to_owned(), text)));
            }
            RewriteMode::AsFlux => {
                match whole_file_like_flux::read(name, &text, self.setters, &mut markers, &limits) {
                    Ok(documents) => self.documents.extend(documents),
                    Err((line, reason)) => self.leave_out(name, line, reason),
                }
            }
        }
        let room = self.limits.findings.saturating_sub(self.rewrite.without_digest.len());
        let alone = self.setters.without_digest(markers.setters()).take(room);
        self.rewrite.without_digest.extend(alone.map(|policy| {
            let policy = policy.to_owned();
            TagWithoutDigest { file: name.to_owned(), policy }
        }));
        let room = self.limits.findings.saturating_sub(self.rewrite.unread.len());
        let unread = markers.unread(text.as_str()).into_iter().take(room);
        let setters = self.setters;
        self.rewrite.unread.extend(unread.map(|(line, setter)| {
            let file = name.to_owned();
            let is_unset = setter.as_deref().is_some_and(|setter| setters.is_unset(setter));
            MarkerWithoutEffect { file, line, setter, is_unset }
        }));
    }

    /// Ends the update. `root` is the name of the files' folder in errors.
    ///
    /// # Errors
    /// More values would change than the limit, or Flux ends the run.
    pub fn finish(self, root: &str) -> Result<MarkerRewriteResult, RewriteError> {
        let Self { limits, documents, mut rewrite, .. } = self;
        rewrite.files.extend(whole_file_like_flux::write(documents, root, &mut rewrite.result)?);
        if rewrite.result.len() > limits.changes {
            return Err(RewriteError::Changes(limits.changes));
        }
        Ok(rewrite)
    }

    /// The text of a file, if the limits allow it.
    fn admitted<'t>(&mut self, content: &'t [u8]) -> Result<&'t str, String> {
        let RewriteLimits { file_bytes, all_bytes, .. } = self.limits;
        if content.len() > file_bytes {
            return Err(format!("it has a marker and is larger than {file_bytes} bytes"));
        }
        if content.len() > all_bytes - self.bytes.min(all_bytes) {
            let reason = "the files with markers together are larger than";
            return Err(format!("{reason} {all_bytes} bytes"));
        }
        self.bytes += content.len();
        std::str::from_utf8(content).map_err(|_| "it is not UTF-8".to_owned())
    }

    fn leave_out(&mut self, name: &str, line: Option<usize>, reason: String) {
        if self.rewrite.problems.len() < self.limits.findings {
            self.rewrite.problems.push(SkippedFileProblem { file: name.to_owned(), line, reason });
        }
    }
}
