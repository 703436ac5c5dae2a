//! Reads audits: what windlass did to releases and Kustomizations, and why.
//!
//! Elsewhere: writing audits (`windlass_runtime::audit`).

use crds::windlass_release::ReleaseAudit;
use reconcile::Time;
use serde_json::Value;

use super::command_scope::CommandScope;
use super::typed_objects::{self, TypedObjects};
use windlass_runtime::audit::resource;

/// The kind and the name of an object that has audits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditedObjectName {
    /// The kind of the object.
    pub kind: &'static str,
    /// The name of the object.
    pub name: String,
}

/// The kinds that have audits, and the other names that users type for them.
const KINDS: [(&str, [&str; 3]); 3] = [
    ("HelmRelease", ["helmrelease", "helmreleases", "hr"]),
    ("Helmfile", ["helmfile", "helmfiles", "hf"]),
    ("Kustomization", ["kustomization", "kustomizations", "ks"]),
];

/// Parses `KIND/NAME`.
///
/// # Errors
/// The text does not have this form, or the kind has no audits.
pub fn parse_subject(text: &str) -> Result<AuditedObjectName, String> {
    let (kind, name) = text
        .split_once('/')
        .filter(|(_, name)| !name.is_empty())
        .ok_or_else(|| format!("`{text}` is not KIND/NAME, such as HelmRelease/web"))?;
    let word = kind.to_lowercase();
    let known = KINDS.iter().find(|(_, words)| words.contains(&word.as_str()));
    let (kind, _) = known.ok_or_else(|| {
        format!("`{kind}` has no audits; use HelmRelease, Helmfile or Kustomization")
    })?;
    Ok(AuditedObjectName { kind, name: name.to_owned() })
}

/// The ReleaseAudits that were listed, the oldest first, and messages about those that could not be listed.
#[derive(Debug, Default)]
pub struct ListedAudits {
    /// The audits.
    pub audits: Vec<ReleaseAudit>,
    /// Messages about audits that could not be listed.
    pub left_out: Vec<String>,
}

/// Lists the audits with matching labels. `subject` and a start time restrict the result if they are given.
///
/// # Errors
/// The kind is not installed, an audit cannot be read, or the API server did not respond.
pub async fn find(
    site: &CommandScope,
    labels: &str,
    subject: Option<&AuditedObjectName>,
    since: Option<Time>,
) -> anyhow::Result<ListedAudits> {
    let TypedObjects { objects, left_out } = typed_objects::list(site, resource(), labels).await?;
    Ok(ListedAudits { audits: selected(objects, subject, since), left_out })
}

/// Converts audits to a Kubernetes `List`.
///
/// # Errors
/// An object cannot be written as JSON.
pub fn to_list(audits: &[ReleaseAudit]) -> anyhow::Result<Value> {
    typed_objects::to_list(audits)
}

/// The audits of an object since a time, the oldest first.
fn selected(
    mut audits: Vec<ReleaseAudit>,
    subject: Option<&AuditedObjectName>,
    since: Option<Time>,
) -> Vec<ReleaseAudit> {
    audits.retain(|audit| {
        let of = &audit.spec.subject;
        let is_it = subject.is_none_or(|it| of.kind == it.kind && of.name == it.name);
        is_it && since.is_none_or(|since| ended(audit).is_some_and(|at| at >= since))
    });
    // Within the same second, later audits have higher resourceVersions. Since Kubernetes 1.35, resourceVersions may be
    // compared.
    let version = |it: &ReleaseAudit| it.metadata.resource_version.as_ref()?.parse::<u64>().ok();
    audits.sort_by_key(|audit| (ended(audit), version(audit)));
    audits
}

/// When the audited operation ended, or else when its audit was created. `None` if the audit contains neither time.
pub fn ended(audit: &ReleaseAudit) -> Option<Time> {
    let created = audit.metadata.creation_timestamp.as_ref();
    audit.spec.ended.as_ref().or(created).map(|time| time.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fake_cluster::answer_examples::audit;

    #[test]
    fn a_subject_is_named_by_kind_and_name() {
        let kind = |text: &str| parse_subject(text).map(|it| it.kind);
        assert_eq!(kind("hr/web"), Ok("HelmRelease"));
        assert_eq!(kind("Kustomizations/web"), Ok("Kustomization"));
        assert_eq!(kind("HELMFILE/web"), Ok("Helmfile"));
        assert!(kind("web").unwrap_err().contains("is not KIND/NAME"));
        assert!(kind("hr/").unwrap_err().contains("is not KIND/NAME"));
        assert!(kind("pod/web").unwrap_err().contains("`pod` has no audits"));
    }

    #[test]
    fn audits_are_selected_by_subject_and_time_and_sorted() {
        let all = [
            audit("b", "HelmRelease", "2026-01-03T00:00:00Z"),
            audit("a", "HelmRelease", "2026-01-01T00:00:00Z"),
            audit("a", "Kustomization", "2026-01-02T00:00:00Z"),
        ];
        let names = |subject: Option<&str>, since: Option<&str>| -> Vec<String> {
            let subject = subject.map(|it| parse_subject(it).unwrap());
            let since = since.map(|it| it.parse().unwrap());
            let all = all.iter().cloned().map(|it| serde_json::from_value(it).unwrap());
            let found = selected(all.collect(), subject.as_ref(), since);
            found
                .iter()
                .map(|it| format!("{}/{}", it.spec.subject.kind, it.spec.subject.name))
                .collect()
        };
        assert_eq!(names(None, None), ["HelmRelease/a", "Kustomization/a", "HelmRelease/b"]);
        assert_eq!(names(Some("hr/a"), None), ["HelmRelease/a"]);
        assert_eq!(names(None, Some("2026-01-02T00:00:00Z")), ["Kustomization/a", "HelmRelease/b"]);
    }
}
