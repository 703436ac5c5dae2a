//! Reads the ReleaseAudits of a story.

use anyhow::{Result, ensure};
use crds::windlass_release::{AuditRevision, ReleaseAudit};
use kube::api::{Api, ListParams};

use super::Story;
use super::flux_objects::DEFAULT_WAIT_TIMEOUT;

/// The audits in the namespace of the story, the oldest first.
///
/// # Errors
/// The objects cannot be listed.
pub async fn audits(story: &Story) -> Result<Vec<ReleaseAudit>> {
    let api = Api::<ReleaseAudit>::namespaced(story.client.clone(), &story.namespace);
    let mut all = api.list(&ListParams::default()).await?.items;
    // ReleaseAudits never change, so their resourceVersions are in the order of their creation.
    let version = |it: &ReleaseAudit| it.metadata.resource_version.as_ref()?.parse::<u64>().ok();
    all.sort_by_key(version);
    Ok(all)
}

/// Waits until there are `count` audits, and returns them.
///
/// # Errors
/// There are more audits, or there are still fewer after a while.
pub async fn await_audits(story: &Story, count: usize) -> Result<Vec<ReleaseAudit>> {
    let found = story
        .await_until(&format!("{count} audits"), DEFAULT_WAIT_TIMEOUT, async || {
            let found = audits(story).await?;
            Ok((found.len() >= count).then_some(found))
        })
        .await?;
    let shown: Vec<String> = found.iter().map(shown).collect();
    ensure!(found.len() == count, "{shown:?}");
    Ok(found)
}

fn shown(audit: &ReleaseAudit) -> String {
    let spec = &audit.spec;
    let revision = |of: &Option<AuditRevision>| {
        of.as_ref().and_then(|it| it.revision.clone()).unwrap_or_default()
    };
    let from = revision(&spec.from);
    let to = revision(&spec.to);
    format!(
        "{} {}/{} {from}>{to} {}",
        spec.subject.kind, spec.subject.name, spec.operation, spec.outcome
    )
}
