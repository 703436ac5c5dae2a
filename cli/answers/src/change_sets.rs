//! Reads the changes of sources, and the results for their members.
//!
//! A ChangeSet names only members in its own namespace. For members in other namespaces, it contains counts, and this module
//! shows only these counts.
//! Elsewhere: the fields of a ChangeSet (`crds::windlass_release`), writing it (`windlass_changes`), the text lines about members
//! (`changes::change_set_member_lines`), and the waves in which members take a change (`super::rollout_waves`).

use changes::change_set_member_lines::{self, MemberKind};
use changes::member_state::MemberState;
use crds::helm::HelmRelease;
use crds::helmfile::{Helmfile, mumoshu_helmfile};
use crds::kustomize::Kustomization;
use crds::windlass_release::{ChangeSet, ChangeSetCounts, ChangeSetVerdict};
use kube_core::{Resource, ResourceExt as _};
use objects::{Object, ObjectId};
use serde_json::Value;

use super::command_scope::CommandScope;
use super::typed_objects::{self, TypedObjects};
use windlass_runtime::lifecycle::watched_object_cache::resource;

/// The minimum number of digits of a commit or digest that identify a revision.
const MIN_PREFIX_LENGTH: usize = 7;

/// The ChangeSets that were listed, the newest first, and messages about those that could not be listed.
#[derive(Debug, Default)]
pub struct ListedChangeSets {
    /// The changes.
    pub changes: Vec<ChangeSet>,
    /// Messages about changes that could not be listed.
    pub left_out: Vec<String>,
}

/// Lists the changes with matching labels.
///
/// # Errors
/// The kind is not installed, a change cannot be read, or the API server did not respond.
pub async fn find(site: &CommandScope, labels: &str) -> anyhow::Result<ListedChangeSets> {
    let listed = typed_objects::list::<ChangeSet>(site, resource::<ChangeSet>(), labels).await?;
    let TypedObjects { objects: mut found, left_out } = listed;
    found.sort_by_key(|it| std::cmp::Reverse(order(it)));
    Ok(ListedChangeSets { changes: found, left_out })
}

/// The sort key of changes: the time of their beginning. Within a second, the later change of a source has the larger sequence
/// number.
fn order(change: &ChangeSet) -> (Option<jiff::Timestamp>, i64) {
    let created = change.metadata.creation_timestamp.as_ref().map(|at| at.0);
    (created, change.spec.sequence)
}

/// Whether a word identifies a change. It may be the name, the revision, or the beginning of the commit or digest.
#[must_use]
pub fn is_named(change: &ChangeSet, word: &str) -> bool {
    let revision = change.spec.revision.as_str();
    let is_prefix = |part: &str| word.len() >= MIN_PREFIX_LENGTH && part.starts_with(word);
    change.metadata.name.as_deref() == Some(word)
        || revision == word
        || revision.rsplit(':').next().is_some_and(is_prefix)
}

/// The verdict about a change.
#[must_use]
pub fn verdict(change: &ChangeSet) -> ChangeSetVerdict {
    change.status.as_ref().map(|it| it.verdict).unwrap_or_default()
}

/// Whether a change is finished. Only a new request of a user or a new revision of the source can still affect it.
#[must_use]
pub fn is_over(change: &ChangeSet) -> bool {
    !matches!(verdict(change), ChangeSetVerdict::Progressing | ChangeSetVerdict::Stalled)
}

/// Whether a change failed or needs attention.
#[must_use]
pub fn is_bad(change: &ChangeSet) -> bool {
    matches!(
        verdict(change),
        ChangeSetVerdict::Failed | ChangeSetVerdict::Stalled | ChangeSetVerdict::RolledBack
    )
}

/// How many members have finished, and how many members there are in all namespaces.
#[must_use]
pub fn progress(change: &ChangeSet) -> String {
    let Some(status) = &change.status else { return "0/0".to_owned() };
    let counts = std::iter::once(&status.counts).chain(&status.other_namespaces);
    let mut ended: i64 = 0;
    let mut all: i64 = 0;
    for ChangeSetCounts { members, progressing, waiting, .. } in counts {
        all += members;
        ended += members - progressing - waiting;
    }
    format!("{ended}/{all}")
}

/// A line of a ChangeSet about a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangeSetMemberLine {
    /// The state of the member.
    pub state: String,
    /// The kind and the name of the member. A mark shows that another member applied its spec.
    pub subject: String,
    /// Whether the member failed.
    pub is_bad: bool,
    /// The object of the member. `None` if a newer windlass wrote the line. The name may be shortened ([`name_in_lines`]).
    pub object: Option<ObjectId>,
}

impl ChangeSetMemberLine {
    /// Whether the object name is shortened, so that it does not identify the object on its own.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        // No Kubernetes name contains this character.
        self.object.as_ref().is_some_and(|it| it.name.contains('~'))
    }
}

/// The name of an object in member lines. A long name is shortened to its beginning and a digest.
#[must_use]
pub fn name_in_lines(name: &str) -> String {
    change_set_member_lines::shown_name(name)
}

/// The object in a line, such as `ks/shop`. Returns `None` for a kind that this version of windlass does not know.
fn member_object(namespace: &str, subject: &str) -> Option<ObjectId> {
    let (word, name) = subject.split_once('/')?;
    let kind = MemberKind::ALL.into_iter().find(|it| it.as_str() == word)?;
    Some(match kind {
        MemberKind::Kustomization => id_of::<Kustomization>(namespace, name),
        MemberKind::HelmRelease => id_of::<HelmRelease>(namespace, name),
        MemberKind::Helmfile => id_of::<Helmfile>(namespace, name),
        MemberKind::OperatorHelmfile => id_of::<mumoshu_helmfile::Helmfile>(namespace, name),
    })
}

fn id_of<K: Resource<DynamicType = ()>>(namespace: &str, name: &str) -> ObjectId {
    ObjectId::new(namespace, name, &K::group(&()), &K::kind(&()))
}

/// The members in the namespace of a change.
#[must_use]
pub fn members(change: &ChangeSet) -> Vec<ChangeSetMemberLine> {
    let namespace = change.metadata.namespace.as_deref().unwrap_or_default();
    let lines = change.status.iter().flat_map(|it| &it.members);
    let read = lines.map(|line| match change_set_member_lines::read(line) {
        Some(read) => ChangeSetMemberLine {
            state: read.state.as_str().to_owned(),
            subject: format!("{}{}", if read.is_child { "> " } else { "" }, read.subject),
            is_bad: matches!(read.state, MemberState::Failed | MemberState::RolledBack),
            object: member_object(namespace, read.subject),
        },
        // A newer windlass wrote this line.
        None => ChangeSetMemberLine {
            state: String::new(),
            subject: line.clone(),
            is_bad: false,
            object: None,
        },
    });
    read.collect()
}

/// Messages about members that are not named: members in other namespaces, and members beyond the maximum.
#[must_use]
pub fn unnamed(change: &ChangeSet) -> Vec<String> {
    let Some(status) = &change.status else { return Vec::new() };
    let mut said = Vec::new();
    if status.omitted > 0 {
        said.push(format!("{} more members are not listed", status.omitted));
    }
    if let Some(counts) = &status.other_namespaces {
        let ChangeSetCounts {
            members,
            progressing,
            waiting,
            succeeded,
            failed,
            skipped,
            rolled_back,
        } = counts;
        let all = [
            (failed, "failed"),
            (rolled_back, "went back"),
            (progressing, "in progress"),
            (waiting, "waiting"),
            (skipped, "suspended"),
            (succeeded, "succeeded"),
        ];
        let some = all.into_iter().filter(|(count, _)| **count > 0);
        let some: Vec<String> = some.map(|(count, word)| format!("{count} {word}")).collect();
        let noun = if *members == 1 { "member" } else { "members" };
        said.push(format!("{members} {noun} of other namespaces: {}", some.join(", ")));
    }
    said
}

/// Converts changes to a Kubernetes `List`.
///
/// # Errors
/// An object cannot be written as JSON.
pub fn to_list(changes: &[ChangeSet]) -> anyhow::Result<Value> {
    typed_objects::to_list(changes)
}

/// A change of the same source with a higher number than `than`: the first such change in the list. `None` if there is none.
#[must_use]
pub fn newer<'c>(changes: &'c [ChangeSet], than: &ChangeSet) -> Option<&'c ChangeSet> {
    changes.iter().find(|it| {
        it.namespace() == than.namespace()
            && it.spec.source.uid == than.spec.source.uid
            && it.spec.sequence > than.spec.sequence
    })
}

/// The message of a ChangeSet in a table row. `None` for an object of another kind.
#[must_use]
pub(crate) fn row_message(object: &Object) -> Option<String> {
    let is_of_group = object.api_version().starts_with("release.windlass.dev/");
    let is_its_kind = is_of_group && object.kind() == ChangeSet::kind(&());
    let spec = object.get("spec").filter(|_| is_its_kind)?;
    let status = object.get("status");
    let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
    let verdict = match text(status.and_then(|it| it.get("verdict"))) {
        verdict if verdict.is_empty() => ChangeSetVerdict::Progressing.as_str().to_owned(),
        verdict => verdict,
    };
    let message = text(status.and_then(|it| it.get("message")));
    let revision = text(spec.get("revision"));
    Some(format!("{revision}: {verdict}: {message}").trim_end_matches([' ', ':']).to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn change(name: &str, sequence: i64, status: &Value) -> ChangeSet {
        serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "shop", "creationTimestamp": "2026-11-30T09:00:00Z"},
            "spec": {"source": {"kind": "GitRepository", "name": "fleet", "uid": "u"},
                "revision": "main@sha1:5f0c9d0c2f6a", "digest": "sha256:1", "sequence": sequence},
            "status": status,
        }))
        .unwrap()
    }

    #[test]
    fn a_change_is_named_by_its_name_its_revision_or_the_beginning_of_its_commit() {
        let change = change("fleet-1-a", 1, &json!({}));
        for word in ["fleet-1-a", "main@sha1:5f0c9d0c2f6a", "5f0c9d0"] {
            assert!(is_named(&change, word), "{word}");
        }
        for word in ["5f0c", "main", "fleet", "6f0c9d0"] {
            assert!(!is_named(&change, word), "{word}");
        }
    }

    #[test]
    fn members_of_other_namespaces_are_counted_and_not_named() {
        let status = json!({"verdict": "Failed",
            "members": ["Failed ks/shop", "Succeeded > hr/web", "Future x/y"], "omitted": 3,
            "counts": {"members": 5, "failed": 1, "succeeded": 3, "waiting": 1},
            "otherNamespaces": {"members": 3, "failed": 1, "progressing": 2}});
        let change = change("fleet-1-a", 1, &status);
        assert_eq!(progress(&change), "5/8");
        let subjects: Vec<String> = members(&change).into_iter().map(|it| it.subject).collect();
        assert_eq!(subjects, ["ks/shop", "> hr/web", "Future x/y"]);
        let expected = [
            "3 more members are not listed",
            "3 members of other namespaces: 1 failed, 2 in progress",
        ];
        assert_eq!(unnamed(&change), expected);
        assert!(is_bad(&change) && is_over(&change));
    }

    #[test]
    fn a_line_names_its_object_also_where_the_name_is_cut() {
        let long = "x".repeat(60);
        let cut = name_in_lines(&long);
        let lines =
            json!({"members": [format!("Failed ks/{cut}"), "Waiting > hfo/web", "Future x/y"]});
        let members = members(&change("fleet-1-a", 1, &lines));
        let kustomization = |name: &str| {
            ObjectId::new("shop", name, "kustomize.toolkit.fluxcd.io", "Kustomization")
        };
        assert_ne!(cut, long);
        assert!(members[0].object == Some(kustomization(&cut)) && members[0].is_cut());
        let helmfile = ObjectId::new("shop", "web", "apps.mumoshu.github.io", "Helmfile");
        assert_eq!(members[1].object, Some(helmfile));
        assert!(!members[1].is_cut());
        assert_eq!(members[2].object, None);
    }

    #[test]
    fn only_a_change_of_the_same_source_is_newer() {
        let old = change("fleet-1-a", 1, &json!({}));
        let mut other = change("fleet-2-b", 2, &json!({}));
        assert!(newer(std::slice::from_ref(&other), &old).is_some());
        assert!(newer(std::slice::from_ref(&old), &other).is_none());
        other.spec.source.uid = "v".to_owned();
        assert!(newer(&[other], &old).is_none());
    }

    #[test]
    fn a_row_says_the_verdict() {
        let object = |status: Value| {
            Object::new(json!({"apiVersion": "release.windlass.dev/v1alpha1", "kind": "ChangeSet",
                "metadata": {"name": "a"}, "spec": {"revision": "main@sha1:2"}, "status": status}))
            .unwrap()
        };
        let said = |status| row_message(&object(status)).unwrap();
        let failed = json!({"verdict": "Failed", "message": "1 member: 1 failed (ks/shop)"});
        assert_eq!(said(failed), "main@sha1:2: Failed: 1 member: 1 failed (ks/shop)");
        assert_eq!(said(json!({})), "main@sha1:2: Progressing");
        let other = Object::new(json!({"apiVersion": "v1", "kind": "ChangeSet",
            "metadata": {"name": "a"}, "spec": {}}));
        assert_eq!(row_message(&other.unwrap()), None);
    }
}
