//! Failed changes: the command that rolls a change back, and the change with which an object failed.
//!
//! Members are found by their lines in ChangeSets, and never by messages. Elsewhere: carrying out a rollback
//! (`requested_rollback`), and the event about a verdict ([`super::withheld_events`]).

use changes::change_set_member_lines;
use changes::member_state::MemberState;
use crds::windlass_release::{ChangeSet, ChangeSetVerdict};
use kube_core::ResourceExt as _;
use reconcile::ObjectKey;

use windlass_runtime::lifecycle::watched_object_cache::WatchedObjectCache;
use windlass_runtime::run_context::RunContext;

use super::change_set_writer::verdict_of;

/// The command that rolls a change back. `None` if no member failed or stalled, or a user has already requested the rollback.
#[must_use]
pub fn way_back(change: &ChangeSet) -> Option<String> {
    let status = change.status.as_ref()?;
    let others = status.other_namespaces.as_ref().map_or(0, |it| it.failed);
    let has_failures = status.counts.failed > 0 || others > 0;
    let is_unwell = match status.verdict {
        ChangeSetVerdict::Failed | ChangeSetVerdict::Stalled => true,
        // An engineer on call need not wait for the last member. Some members may have rolled back by themselves.
        ChangeSetVerdict::Progressing | ChangeSetVerdict::RolledBack => has_failures,
        ChangeSetVerdict::Succeeded | ChangeSetVerdict::Superseded => false,
    };
    if !is_unwell || status.rollback.is_some() {
        return None;
    }
    let namespace = change.namespace().unwrap_or_default();
    changes::rollback_command(&change.name_any(), &namespace, change.spec.sequence)
}

/// Whether an object is a member of a change and has failed with it.
#[must_use]
pub fn has_failed(change: &ChangeSet, object: &ObjectKey) -> bool {
    if change.namespace().as_deref() != Some(object.namespace.as_str()) {
        return false;
    }
    let Some(subject) =
        change_set_member_lines::subject_of(&object.group, &object.kind, &object.name)
    else {
        return false;
    };
    let lines = change.status.iter().flat_map(|it| &it.members);
    // The end of each line is compared first, so that only few of thousands of lines are parsed.
    lines
        .filter(|line| line.ends_with(subject.as_str()))
        .filter_map(|line| change_set_member_lines::read(line))
        .any(|it| it.state == MemberState::Failed && it.subject == subject)
}

/// A text about a change and its verdict, with the command that rolls it back. `None` if no rollback is advised.
#[must_use]
pub fn advice(change: &ChangeSet) -> Option<String> {
    let command = way_back(change)?;
    let spec = &change.spec;
    let subject = spec.commit.as_ref().map(|it| format!(", {}", it.subject)).unwrap_or_default();
    let message = change.status.as_ref().and_then(|it| it.message.as_deref()).unwrap_or_default();
    Some(format!(
        "change {} of {}/{} ({}{subject}) is {}: {message}; to take it back: {command}",
        change.name_any(),
        spec.source.kind,
        spec.source.name,
        spec.revision,
        verdict_of(change)
    ))
}

/// The advice about an object that failed with the newest change of a source, from the ChangeSets that the watch last saw.
/// `None` if the object failed with no such change.
#[must_use]
pub fn advice_of_member(context: &RunContext, object: &ObjectKey) -> Option<String> {
    let changes = context.shared::<WatchedObjectCache<ChangeSet>>().of(&object.namespace);
    let is_newest = |change: &ChangeSet| {
        !changes.iter().any(|it| {
            it.spec.source.uid == change.spec.source.uid && it.spec.sequence > change.spec.sequence
        })
    };
    // The cheapest check comes first, because a change may have thousands of lines.
    let mut failed = changes
        .iter()
        .filter(|it| way_back(it).is_some() && is_newest(it) && has_failed(it, object));
    failed.find_map(|change| advice(change))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn change(sequence: i64, status: &Value) -> ChangeSet {
        serde_json::from_value(json!({"metadata": {"name": "fleet-2-a", "namespace": "shop"},
            "spec": {"source": {"kind": "GitRepository", "name": "fleet", "uid": "u"},
                "revision": "main@sha1:5f0c9d0c", "digest": "d", "sequence": sequence,
                "commit": {"subject": "Scale the shop"}},
            "status": status}))
        .unwrap()
    }

    fn failed() -> Value {
        json!({"verdict": "Failed", "message": "2 members: 1 failed, 1 succeeded (ks/shop)",
            "members": ["Failed ks/shop", "Succeeded > hr/web"],
            "counts": {"members": 2, "failed": 1, "succeeded": 1}})
    }

    #[test]
    fn a_change_that_failed_is_taken_back_by_one_command() {
        let command = way_back(&change(2, &failed()));
        assert_eq!(command.as_deref(), Some("windlass rollback change/fleet-2-a -n shop"));
        let with = |key: &str, to: Value| {
            let mut status = failed();
            status[key] = to;
            way_back(&change(2, &status)).is_some()
        };
        assert!(with("verdict", json!("RolledBack")), "one went back by itself, another did not");
        assert!(with("verdict", json!("Progressing")), "not all came to their end");
        assert!(!with("verdict", json!("Succeeded")) && !with("verdict", json!("Superseded")));
        assert!(!with("rollback", json!({"user": "alice"})), "a user has asked for it");
        assert_eq!(way_back(&change(1, &failed())), None, "there was nothing before");
        let well = json!({"verdict": "Progressing", "counts": {"members": 1, "progressing": 1}});
        assert_eq!(way_back(&change(2, &well)), None);
    }

    #[test]
    fn the_advice_names_the_commit_and_ends_with_the_command() {
        let expected = "change fleet-2-a of GitRepository/fleet (main@sha1:5f0c9d0c, Scale the shop) is Failed: 2 members: 1 \
            failed, 1 succeeded (ks/shop); to take it back: windlass rollback change/fleet-2-a -n shop";
        assert_eq!(advice(&change(2, &failed())).as_deref(), Some(expected));
    }

    #[test]
    fn a_member_that_failed_is_known_by_kind_name_and_namespace() {
        let change = change(2, &failed());
        let key = |namespace: &str, name: &str, kind: &str| {
            let group = match kind {
                "HelmRelease" => "helm.toolkit.fluxcd.io",
                _ => "kustomize.toolkit.fluxcd.io",
            };
            ObjectKey::new(group, kind, namespace, name)
        };
        assert!(has_failed(&change, &key("shop", "shop", "Kustomization")));
        assert!(!has_failed(&change, &key("apps", "shop", "Kustomization")), "another namespace");
        assert!(!has_failed(&change, &key("shop", "web", "HelmRelease")), "it succeeded");
        assert!(!has_failed(&change, &key("shop", "shop", "HelmRelease")), "another kind");
    }
}
