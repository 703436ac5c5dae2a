//! Explains why an object is in its state: the cause, the path to the cause, and advice.
//!
//! Here: one object. Below: everything that is not ready (`why/all.rs`), Quarantines that are one cause
//! (`why/shared_quarantines.rs`), tags that an ImagePolicy does not choose (`why/image_tags.rs`), unknown annotations
//! (`why/unknown_annotations.rs`).
//! Elsewhere: the walk to the cause (engine `cause`), fetching the facts (`cause_facts.rs`).

mod image_tags;
mod listed_quarantines;
mod shared_quarantines;
mod unknown_annotations;
pub mod unready_objects;

use std::path::Path;

use anyhow::{bail, ensure};
use cause::StateExplanation;
use objects::ObjectId;
use serde::Serialize;

pub use self::image_tags::{ImageTagReport, UnchosenTag};
use super::cause_facts::ClusterFactReader;
use super::command_scope::CommandScope;
use super::failed_change_hints;
use super::kind_argument::{self, ResourceArgument};
use super::rolled_back_commit_warning;
use windlass_cli_installation::cluster_operators;
use windlass_cli_runtime::table::clean;

/// An explanation, together with its first line for people.
#[derive(Serialize)]
pub struct WhyReport<'w> {
    summary: String,
    #[serde(flatten)]
    why: &'w StateExplanation,
    #[serde(rename = "imageTags", skip_serializing_if = "Option::is_none")]
    tags: Option<&'w ImageTagReport>,
}

impl<'w> WhyReport<'w> {
    /// Makes the report of an explanation.
    pub fn of(explanation: &'w ObjectExplanation) -> Self {
        let ObjectExplanation { why, tags } = explanation;
        Self { summary: why.line(), why, tags: tags.as_ref() }
    }
}

/// Why an object is in its state. For an ImagePolicy, also why it does not choose other tags.
pub struct ObjectExplanation {
    /// The explanation of the state.
    pub why: StateExplanation,
    /// For an ImagePolicy, the tags that it does not choose.
    pub tags: Option<ImageTagReport>,
}

/// Explains an object. `tags` is a file with all tags of an ImagePolicy's image, or `-` for stdin.
///
/// # Errors
/// The object does not exist, `tags` is given for another kind or cannot be read, or the API server did not respond.
pub async fn explain(
    site: &CommandScope,
    target: &ResourceArgument,
    tags: Option<&Path>,
) -> anyhow::Result<ObjectExplanation> {
    let namespace = site.namespace_of(target);
    let name = target.name.clone().unwrap_or_default();
    let Some(object) = site.cluster.get(&target.resource, namespace, &name).await? else {
        let text = kind_argument::absent(site, target).await.to_string();
        let is_known = !text.ends_with("does not exist");
        bail!("{text}{}", if is_known { "" } else { UNAPPLIED });
    };
    let mut facts = ClusterFactReader::new(&site.cluster);
    let id = object.id();
    let is_policy = image_tags::is_policy(&id);
    ensure!(is_policy || tags.is_none(), "--tags is for ImagePolicies");
    let policy = is_policy.then(|| object.clone());
    let unknown_annotations = unknown_annotations::remarks(&object);
    facts.knows(&target.resource, object);
    let mut why = facts.explain(&id).await?;
    if cause::object_references::is_reconciled(&id) {
        let remark = cluster_operators::remark(&site.cluster, jiff::Timestamp::now());
        why.remarks.extend(remark.await);
        why.remarks.extend(unknown_annotations);
    }
    if why.is_finding() {
        why.remarks.extend(failed_change_hints::of_member(site, &id).await);
        if let Some(applier) = facts.known().object(&id) {
            why.remarks
                .extend(rolled_back_commit_warning::of_applier(site, applier, facts.known()).await);
        }
    }
    let tags = match policy {
        Some(policy) => Some(image_tags::of(site, policy, tags).await?),
        None => None,
    };
    Ok(ObjectExplanation { why, tags })
}

/// The advice for an object that does not exist and has no similar name.
const UNAPPLIED: &str = "; if it is in a repository or a chart, what should have applied it may not be ready: \
    `windlass get appliers -A` shows that";

/// Explains the state of an object, without remarks about operators.
///
/// # Errors
/// The API server did not respond.
pub async fn of(site: &CommandScope, id: &ObjectId) -> anyhow::Result<StateExplanation> {
    ClusterFactReader::new(&site.cluster).explain(id).await
}

/// The root cause of an object's state in one line.
///
/// # Errors
/// The API server did not respond.
pub async fn line(site: &CommandScope, id: &ObjectId) -> anyhow::Result<String> {
    of(site, id).await.map(|why| clean(&why.line()))
}
