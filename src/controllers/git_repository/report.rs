//! What happened to a GitRepository, as status and events.

use std::collections::BTreeMap;

use crds::Source as _;
use crds::source::GitRepository;
use kube::core::{Resource as _, ResourceExt as _};
use reconcile::{Conditions, Reason, Rest, Status, Time, reason};
use serde_json::{Value, json};
use sources::reason::{
    ARCHIVE_OPERATION_FAILED, COPY_FAILURE, ILLEGAL_PATH, INCLUDE_CYCLE, NO_ARTIFACT, NOT_FOUND,
};

use super::world::Stored;
use crate::cluster::events::{News, Severity};
use crate::controllers::record::conditions_of;
use crate::controllers::run::REQUESTED_AT;

const ARTIFACT_IN_STORAGE: &str = "ArtifactInStorage";
const FETCH_FAILED: &str = "FetchFailed";
const INCLUDE_UNAVAILABLE: &str = "IncludeUnavailable";
const STORAGE_OPERATION_FAILED: &str = "StorageOperationFailed";

/// Conditions that this kind sets; others in the status are kept.
const OWNED: [&str; 8] = [
    ARTIFACT_IN_STORAGE,
    FETCH_FAILED,
    "ArtifactOutdated",
    STORAGE_OPERATION_FAILED,
    "SourceVerified",
    INCLUDE_UNAVAILABLE,
    "BuildFailed",
    "GarbageCollectionSucceeded",
];

/// Which condition a failure is told by, beside `Ready`.
fn failure(why: Reason) -> &'static str {
    match why {
        NOT_FOUND | NO_ARTIFACT | INCLUDE_CYCLE => INCLUDE_UNAVAILABLE,
        ARCHIVE_OPERATION_FAILED | COPY_FAILURE | ILLEGAL_PATH => STORAGE_OPERATION_FAILED,
        _ => FETCH_FAILED,
    }
}

/// What is written and told.
pub(super) struct Report {
    pub(super) before: Value,
    pub(super) after: Value,
    pub(super) news: Vec<News>,
    failed: Option<String>,
}

/// Derives status and events from where the run came to rest.
pub(super) fn report(
    object: &GitRepository,
    stored: Option<&Stored>,
    url: Option<String>,
    rest: &Rest,
    now: Time,
) -> Report {
    let before = serde_json::to_value(&object.status).unwrap_or_default();
    let generation = object.meta().generation.unwrap_or_default();
    let had = conditions_of(&before);
    let mut status = object.status.clone().unwrap_or_default();
    if let (Some(artifact), Some(url)) = (&mut status.artifact, url) {
        artifact.url = url;
    }
    if let Some(stored) = stored {
        status.artifact = Some(stored.artifact.clone());
        status.included_artifacts = stored.included.clone();
        status.observed_ignore = object.spec.ignore.clone();
        status.observed_recurse_submodules = object.spec.recurse_submodules;
        status.observed_include = object.spec.include.clone();
        status.observed_sparse_checkout = object.spec.sparse_checkout.clone();
    }
    let mut conditions = Conditions::since(&had, generation, now, &OWNED)
        .marked(&crate::controllers::marks::of(object, now));
    match rest {
        Rest::Settled(_, text) => {
            conditions = conditions.set(ARTIFACT_IN_STORAGE, Status::True, reason::SUCCEEDED, text);
        }
        Rest::Running(why, text, _)
        | Rest::Blocked(why, text, _)
        | Rest::Failed(why, text, _)
        | Rest::Stalled(why, text) => {
            conditions =
                conditions.keep(ARTIFACT_IN_STORAGE).set(failure(*why), Status::True, *why, text);
        }
    }
    let conditions = conditions.finish(rest);
    // Parity(flux): a source's observedGeneration moves when the generation was dealt with, well or for good.
    if matches!(rest, Rest::Settled(..) | Rest::Stalled(..)) {
        status.observed_generation = Some(generation);
    }
    if let Some(requested) = object.annotations().get(REQUESTED_AT) {
        status.last_handled_reconcile_at = Some(requested.clone());
    }
    let mut after = serde_json::to_value(&status).unwrap_or_default();
    after["conditions"] = json!(conditions);
    let failed = (!rest.is_settled()).then(|| rest.text().to_owned());
    Report { news: news(object, stored, rest, &had), before, after, failed }
}

fn news(
    object: &GitRepository,
    stored: Option<&Stored>,
    rest: &Rest,
    had: &[reconcile::Condition],
) -> Vec<News> {
    let artifact = stored.map(|s| &s.artifact).or_else(|| object.artifact());
    let metadata: BTreeMap<String, String> = artifact
        .map(|a| {
            [("revision", &a.revision), ("digest", &a.digest)]
                .map(|(key, value)| (format!("source.toolkit.fluxcd.io/{key}"), value.clone()))
                .into()
        })
        .unwrap_or_default();
    let was_ready = reconcile::Condition::is(had, reconcile::READY, Status::True);
    let told = reconcile::Condition::find(had, reconcile::READY)
        .is_some_and(|c| c.reason == rest.reason().as_str() && c.message == rest.text());
    match rest {
        Rest::Settled(..) => match stored {
            Some(stored) => {
                let message = format!("stored artifact for commit '{}'", stored.subject);
                vec![News {
                    severity: Severity::Info,
                    reason: "NewArtifact".into(),
                    message,
                    metadata,
                }]
            }
            None if was_ready || had.is_empty() => Vec::new(),
            None => {
                let message = rest.text().to_owned();
                vec![News {
                    severity: Severity::Info,
                    reason: "Succeeded".into(),
                    message,
                    metadata,
                }]
            }
        },
        Rest::Running(..) | Rest::Blocked(..) | Rest::Failed(..) | Rest::Stalled(..) if told => {
            Vec::new()
        }
        Rest::Running(..) | Rest::Blocked(..) | Rest::Failed(..) | Rest::Stalled(..) => {
            // Parity(flux): waiting for something is no failure.
            let is_waiting = matches!(rest, Rest::Blocked(..));
            vec![News {
                severity: if is_waiting { Severity::Info } else { Severity::Error },
                reason: rest.reason().to_string(),
                message: rest.text().to_owned(),
                metadata,
            }]
        }
    }
}

impl Report {
    /// One log line, when something happened.
    pub(super) fn log(&self, object: &GitRepository) {
        let (name, namespace) = (object.name_any(), object.namespace().unwrap_or_default());
        match &self.failed {
            Some(error) => {
                tracing::error!(
                    controller_kind = "GitRepository",
                    name,
                    namespace,
                    error,
                    "not fetched"
                );
            }
            None if self.before != self.after => {
                let revision = self.after.pointer("/artifact/revision").and_then(Value::as_str);
                tracing::info!(
                    controller_kind = "GitRepository",
                    name,
                    namespace,
                    revision,
                    "artifact stored"
                );
            }
            None => tracing::debug!(
                controller_kind = "GitRepository",
                name,
                namespace,
                "nothing changed"
            ),
        }
    }
}

#[cfg(test)]
mod tests;
