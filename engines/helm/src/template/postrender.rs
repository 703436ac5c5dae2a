//! Post-rendering: another program may change the rendered text before it is split into manifests and hooks.
//!
//! Here: which parts the post-renderer gets, and dividing its answer into files. Elsewhere: streams of documents as
//! kyaml reads and writes them (`postrender/stream.rs`), and their annotations (`postrender/annotation.rs`).
//!
//! Parity(helm 4): every document is parsed and written again even if nothing is changed, so quotes, indentation,
//! comments and empty annotations come out as kyaml writes them.

mod annotation;
mod stream;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;

use golang::strconv::{QuotingStyle, quote};
use goyaml::v3::YamlNode;

use super::Error;
use crate::manifests::{self, ManifestOrder, SortedManifests};
use crate::warning::HelmWarning;

pub use annotation::NotAMapError;
pub use stream::ManifestStreamError;

/// The annotation with the file of a document, while the post-renderer has it.
const FILE: &str = "postrenderer.helm.sh/postrender-filename";

/// A post-renderer: it turns a stream of documents into another one.
///
/// It is called on the thread that renders, which need not be the thread that made the post-renderer.
pub type PostRendererFn<'r> = dyn Fn(&[u8]) -> Result<Vec<u8>, String> + Sync + 'r;

/// A post-renderer and which documents it gets.
#[derive(Clone, Copy)]
pub struct PostRenderStep<'r> {
    /// Which documents the post-renderer gets.
    pub strategy: PostRendererStrategy,
    /// The function that is called with the documents, once for each stream. Its error is returned unchanged.
    pub run: &'r PostRendererFn<'r>,
    /// The name of the plugin, if the post-renderer is one.
    ///
    /// Parity(helm 4): a plugin must not give an empty answer. A program that uses Helm as a library may do so.
    pub plugin: Option<&'r str>,
}

impl fmt::Debug for PostRenderStep<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("PostRenderStep");
        shown
            .field("strategy", &self.strategy)
            .field("plugin", &self.plugin)
            .finish_non_exhaustive()
    }
}

/// How hooks and manifests are given to a post-renderer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PostRendererStrategy {
    /// Hooks and manifests are in one stream.
    #[default]
    Combined,
    /// Hooks are in one stream and manifests in another. The same object may therefore be in both.
    Separate,
    /// The post-renderer gets only manifests. Hooks stay unchanged, as in Helm 3.
    NoHooks,
}

impl PostRendererStrategy {
    /// The strategy with this name in Helm. An empty name means [`Self::Combined`].
    ///
    /// # Errors
    /// Helm has no strategy of this name.
    pub fn parse(name: &str) -> Result<Self, UnknownPostRendererStrategy> {
        match name {
            "combined" | "" => Ok(Self::Combined),
            "separate" => Ok(Self::Separate),
            "nohooks" => Ok(Self::NoHooks),
            _ => Err(UnknownPostRendererStrategy(name.to_owned())),
        }
    }

    /// The name of the strategy in Helm.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Combined => "combined",
            Self::Separate => "separate",
            Self::NoHooks => "nohooks",
        }
    }
}

/// There is no strategy of this name. The message is Helm's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown post-render strategy: '{0}'")]
pub struct UnknownPostRendererStrategy(pub String);

/// The documents in a stream for a post-renderer, as Helm's errors name them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PostRenderGroup {
    /// All rendered documents.
    All,
    /// The hooks.
    Hooks,
    /// The manifests that are not hooks.
    Manifests,
}

impl PostRenderGroup {
    fn name(self) -> &'static str {
        match self {
            Self::Hooks => "hooks",
            Self::All | Self::Manifests => "manifests",
        }
    }

    fn run_on(self) -> &'static str {
        if self == Self::All { "files" } else { self.name() }
    }

    fn of_output(self) -> String {
        if self == Self::All { String::new() } else { format!(" for {}", self.name()) }
    }

    /// The file name for a document of the answer that has no file annotation.
    fn generated(self, at: usize) -> String {
        match self {
            Self::All => format!("generated-by-postrender-{at}.yaml"),
            Self::Hooks | Self::Manifests => {
                format!("generated-by-postrender-{}-{at}.yaml", self.name())
            }
        }
    }
}

/// Why post-rendering failed. The messages are Helm's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PostRenderError {
    /// The rendered text cannot be made into a stream.
    #[error("error merging {}: {error}", group.name())]
    Merge {
        /// The documents of the stream.
        group: PostRenderGroup,
        /// Why the stream cannot be made.
        error: PostRenderStepError,
    },
    /// The post-renderer failed.
    #[error("error while running post render on {}: {error}", group.run_on())]
    Run {
        /// The documents of the stream.
        group: PostRenderGroup,
        /// The message of the post-renderer.
        error: String,
    },
    /// The answer of the post-renderer cannot be used.
    #[error("error while parsing post rendered output{}: {error}", group.of_output())]
    Output {
        /// The documents of the stream.
        group: PostRenderGroup,
        /// What is wrong with the answer.
        error: PostRenderStepError,
    },
}

/// A step of processing a stream or a file, and why it failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{step}: {problem}")]
pub struct PostRenderStepError {
    /// The step, as Helm names it.
    pub step: String,
    /// What is wrong.
    pub problem: ManifestStreamError,
}

fn at(step: impl Into<String>) -> impl FnOnce(ManifestStreamError) -> PostRenderStepError {
    |problem| PostRenderStepError { step: step.into(), problem }
}

/// Runs the post-renderer on rendered files, and returns the changed files. Both maps have the text by path.
///
/// # Errors
/// [`Error::PostRender`]. [`Error::Manifests`] if hooks and manifests have to be separated, and that fails.
pub(super) fn apply(
    post_render: &PostRenderStep<'_>,
    files: BTreeMap<String, Vec<u8>>,
    warnings: &mut Vec<HelmWarning>,
) -> Result<BTreeMap<String, Vec<u8>>, Error> {
    if post_render.strategy == PostRendererStrategy::Combined {
        return Ok(post_render.run(PostRenderGroup::All, &files)?);
    }
    let sorted = manifests::sort(&files, ManifestOrder::Install);
    let SortedManifests { hooks, manifests, unknown_hooks } =
        sorted.map_err(|error| Error::Manifests { error, files })?;
    super::warn_of_unknown_hooks(unknown_hooks, warnings);
    let mut hook_files = BTreeMap::new();
    for hook in hooks {
        add(&mut hook_files, hook.path, hook.manifest.into_bytes());
    }
    let mut manifest_files = BTreeMap::new();
    for manifest in manifests {
        add(&mut manifest_files, manifest.path, manifest.content.into_bytes());
    }
    let mut result = BTreeMap::new();
    for (group, files) in
        [(PostRenderGroup::Hooks, hook_files), (PostRenderGroup::Manifests, manifest_files)]
    {
        if files.is_empty() {
            continue;
        }
        let is_as_it_was = group == PostRenderGroup::Hooks
            && post_render.strategy == PostRendererStrategy::NoHooks;
        let files = if is_as_it_was { files } else { post_render.run(group, &files)? };
        for (path, text) in files {
            add(&mut result, path, text);
        }
    }
    Ok(result)
}

/// Appends a text to a file, as a further document.
fn add(files: &mut BTreeMap<String, Vec<u8>>, path: String, text: Vec<u8>) {
    match files.get_mut(&path) {
        Some(known) => {
            known.extend_from_slice(b"\n---\n");
            known.extend_from_slice(&text);
        }
        None => {
            files.insert(path, text);
        }
    }
}

impl PostRenderStep<'_> {
    fn run(
        &self,
        group: PostRenderGroup,
        files: &BTreeMap<String, Vec<u8>>,
    ) -> Result<BTreeMap<String, Vec<u8>>, PostRenderError> {
        let merged = merge(files).map_err(|error| PostRenderError::Merge { group, error })?;
        let failed = |error| PostRenderError::Run { group, error };
        let answer = (self.run)(merged.as_bytes()).map_err(failed)?;
        if let Some(plugin) = self.plugin
            && is_blank(&answer)
        {
            let plugin = quote(plugin.as_bytes(), QuotingStyle::Printable);
            let plugin = String::from_utf8_lossy(&plugin);
            return Err(failed(format!("post-renderer {plugin} produced empty output")));
        }
        take_apart(&answer, group).map_err(|error| PostRenderError::Output { group, error })
    }
}

fn is_blank(text: &[u8]) -> bool {
    std::str::from_utf8(text).is_ok_and(|text| text.trim().is_empty())
}

/// Joins all files into one stream. Each document gets an annotation with the name of its file.
fn merge(files: &BTreeMap<String, Vec<u8>>) -> Result<String, PostRenderStepError> {
    let mut merged = Vec::new();
    for (path, text) in files {
        if manifests::is_partial(path) {
            continue;
        }
        for document in manifests::split(text) {
            let nodes = stream::read(document).map_err(at(format!("parsing {path}")))?;
            for mut node in nodes {
                annotation::set(stream::root_mut(&mut node), FILE, path)
                    .map_err(|error| at(format!("annotating {path}"))(error.into()))?;
                merged.push(node);
            }
        }
    }
    stream::write(merged).map_err(at("writing merged docs"))
}

/// Divides an answer into files.
fn take_apart(
    answer: &[u8],
    group: PostRenderGroup,
) -> Result<BTreeMap<String, Vec<u8>>, PostRenderStepError> {
    let nodes = stream::read(answer).map_err(at("error parsing YAML"))?;
    let mut files: BTreeMap<String, Vec<YamlNode>> = BTreeMap::new();
    for (index, mut node) in nodes.into_iter().enumerate() {
        let root = stream::root_mut(&mut node);
        if !annotation::has_metadata(root) {
            return Err(at("getting metadata")(ManifestStreamError::NoMetadata));
        }
        let path = annotation::get(root, FILE).filter(|path| !path.is_empty());
        let path = path.map_or_else(|| group.generated(index), str::to_owned);
        annotation::clear(root, FILE)
            .map_err(|error| at("clearing filename annotation")(error.into()))?;
        files.entry(path).or_default().push(node);
    }
    let write = |(path, nodes): (String, Vec<YamlNode>)| {
        let text = stream::write(nodes).map_err(at(format!("re-writing {path}")))?;
        Ok((path, text.into_bytes()))
    };
    files.into_iter().map(write).collect()
}
