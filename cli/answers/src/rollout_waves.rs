//! Reads in which wave of a staged rollout a change is, and what each wave waits for.
//!
//! Elsewhere: the decisions about waves (`windlass_rollout`), the status of a rollout (`crds::windlass_release`), and changes
//! (`super::changes`).

use std::cmp::Ordering;

use crds::windlass_release::{
    ChangeSet, ClusterStagedRollout, RolloutSourceStatus, RolloutWaveStatus, StagedRollout,
    StagedRolloutStatus,
};
use objects::{Object, ObjectId};
use reconcile::READY;

use super::command_scope::{CommandScope, is_absent_kind};
use super::kind_argument::ResourceArgument;
use windlass_runtime::lifecycle::watched_object_cache::resource;

/// A StagedRollout or ClusterStagedRollout with its last status.
#[derive(Debug, Clone)]
pub struct ListedRollout {
    /// The rollout.
    pub object: ObjectId,
    /// The message of its `Ready` condition. Empty if several sources are under way, because the message is about one of them.
    pub message: String,
    /// The progress of the newest revision of each source. After [`list`], only of revisions that the caller named.
    pub sources: Vec<RolloutSourceStatus>,
}

/// The state of a wave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaveState {
    /// The next wave may begin.
    Over,
    /// Some of its appliers failed, so no later wave begins.
    Failed,
    /// All of its appliers are updated, and the soak time passes.
    Soaking,
    /// Its appliers take the revision.
    UnderWay,
    /// An earlier wave is not over.
    Waiting,
}

/// A wave of a rollout, about one change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangeWave {
    /// The name of the wave.
    pub name: String,
    /// The state of the wave.
    pub state: WaveState,
    /// How many of its appliers are updated, and what the wave waits for.
    pub text: String,
}

/// Lists the rollouts that are about one of the changes. Rollouts that the user may not list are left out, and a cluster
/// without the kinds has none.
///
/// # Errors
/// The API server did not respond.
pub async fn list(
    site: &CommandScope,
    changes: &[ChangeSet],
) -> anyhow::Result<Vec<ListedRollout>> {
    let mut rollouts = Vec::new();
    if changes.is_empty() {
        return Ok(rollouts);
    }
    for resource in [resource::<StagedRollout>(), resource::<ClusterStagedRollout>()] {
        let target = ResourceArgument { resource, namespace: None, name: None };
        let listed = site
            .list(&target, "", |objects| {
                rollouts.extend(objects.iter().filter_map(|it| ListedRollout::about(it, changes)));
                Ok(())
            })
            .await;
        match listed {
            Err(error) if !is_absent_kind(&error) => return Err(error),
            Ok(_) | Err(_) => {}
        }
    }
    Ok(rollouts)
}

/// Whether the progress of a source is about a change.
fn is_about(source: &RolloutSourceStatus, change: &ChangeSet) -> bool {
    let spec = &change.spec;
    source.kind == spec.source.kind
        && source.name == spec.source.name
        && Some(&source.namespace) == change.metadata.namespace.as_ref()
        && source.revision == spec.revision
        && source.digest == spec.digest
}

impl ListedRollout {
    fn of(object: &Object) -> Self {
        let status = object.get("status").cloned().unwrap_or_default();
        let status: StagedRolloutStatus = serde_json::from_value(status).unwrap_or_default();
        let ready = status.conditions.into_iter().find(|it| it.type_ == READY);
        let under_way = status.sources.iter().filter(|it| it.wave.is_some()).count();
        let message = ready.filter(|_| under_way <= 1).map(|it| it.message);
        Self { object: object.id(), message: message.unwrap_or_default(), sources: status.sources }
    }

    /// A rollout with its progress with these changes. `None` if it is about none of them. The status of a rollout may be
    /// large, so the rest of it is not kept.
    fn about(object: &Object, changes: &[ChangeSet]) -> Option<Self> {
        let mut rollout = Self::of(object);
        rollout.sources.retain(|it| changes.iter().any(|change| is_about(it, change)));
        (!rollout.sources.is_empty()).then_some(rollout)
    }

    /// The progress with a change. `None` if the rollout is at another revision or has other sources.
    fn progress(&self, change: &ChangeSet) -> Option<&RolloutSourceStatus> {
        self.sources.iter().find(|it| is_about(it, change))
    }

    /// Whether a change has not reached all waves.
    #[must_use]
    pub fn is_under_way(&self, change: &ChangeSet) -> bool {
        self.progress(change).is_some_and(|it| it.wave.is_some())
    }

    /// The waves in which the members of a change take it. Empty if the rollout is not about the change.
    #[must_use]
    pub fn waves(&self, change: &ChangeSet) -> Vec<ChangeWave> {
        self.progress(change).map(waves).unwrap_or_default()
    }

    /// The rollout and its present wave in one line. `None` if the rollout is not about the change.
    #[must_use]
    pub fn line(&self, change: &ChangeSet) -> Option<String> {
        let progress = self.progress(change)?;
        let state = match &progress.wave {
            None => "all waves are over".to_owned(),
            Some(name) => {
                let wave = progress.waves.iter().find(|wave| wave.name == *name);
                let counts = wave.map(|wave| {
                    format!(
                        ": {} of {} updated, {} failed",
                        wave.updated, wave.members, wave.failed
                    )
                });
                format!("wave {name}{}", counts.unwrap_or_default())
            }
        };
        Some(format!("{}: {state}", self.object.subject()))
    }
}

/// The waves of a source.
fn waves(source: &RolloutSourceStatus) -> Vec<ChangeWave> {
    let present = match &source.wave {
        None => source.waves.len(),
        Some(name) => source.waves.iter().position(|it| it.name == *name).unwrap_or_default(),
    };
    let wave = |(index, wave): (usize, &RolloutWaveStatus)| {
        let state = match index.cmp(&present) {
            Ordering::Less => WaveState::Over,
            Ordering::Greater => WaveState::Waiting,
            Ordering::Equal if wave.failed > 0 => WaveState::Failed,
            Ordering::Equal if wave.updated_since.is_some() => WaveState::Soaking,
            Ordering::Equal => WaveState::UnderWay,
        };
        let mut text = format!("{} of {} updated", wave.updated, wave.members);
        for (count, word) in [(wave.failed, "failed"), (wave.skipped, "skipped")] {
            if count > 0 {
                text.push_str(&format!(", {count} {word}"));
            }
        }
        match (state, &wave.updated_since, &source.wave) {
            (WaveState::Soaking, Some(since), _) => {
                text.push_str(&format!("; since {:.0}", since.0));
            }
            (WaveState::Waiting, _, Some(name)) => {
                text.push_str(&format!("; begins after wave {name}"));
            }
            _ => {}
        }
        ChangeWave { name: wave.name.clone(), state, text }
    };
    source.waves.iter().enumerate().map(wave).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn change() -> ChangeSet {
        serde_json::from_value(json!({
            "metadata": {"name": "fleet-1-a", "namespace": "shop"},
            "spec": {"source": {"kind": "GitRepository", "name": "fleet", "uid": "u"},
                "revision": "main@sha1:5f0c9d0c2f6a", "digest": "sha256:1", "sequence": 1},
        }))
        .unwrap()
    }

    fn source(digest: &str, wave: Option<&str>, waves: &Value) -> Value {
        json!({"kind": "GitRepository", "namespace": "shop", "name": "fleet",
            "revision": "main@sha1:5f0c9d0c2f6a", "digest": digest, "wave": wave, "waves": waves})
    }

    fn object(sources: &[Value]) -> Object {
        let ready = json!({"type": "Ready", "status": "False", "reason": "WaveFailed",
            "message": "it failed", "lastTransitionTime": "2026-11-30T09:00:00Z"});
        let object = json!({"apiVersion": "release.windlass.dev/v1alpha1", "kind": "StagedRollout",
            "metadata": {"name": "fleet", "namespace": "shop"},
            "status": {"sources": sources, "conditions": [ready]}});
        Object::new(object).unwrap()
    }

    fn rollout(digest: &str, wave: Option<&str>, waves: &Value) -> ListedRollout {
        ListedRollout::of(&object(&[source(digest, wave, waves)]))
    }

    fn shown(rollout: &ListedRollout) -> Vec<String> {
        let waves = rollout.waves(&change());
        waves.iter().map(|it| format!("{} {:?}: {}", it.name, it.state, it.text)).collect()
    }

    #[test]
    fn a_rollout_says_in_which_wave_a_change_is() {
        let waves = json!([{"name": "canary", "members": 2, "updated": 1, "failed": 1}]);
        let failed = rollout("sha256:1", Some("canary"), &waves);
        let line = "StagedRollout/shop/fleet: wave canary: 1 of 2 updated, 1 failed";
        assert_eq!(failed.line(&change()).as_deref(), Some(line));
        assert_eq!(failed.message, "it failed");
        assert!(failed.is_under_way(&change()));
        let over = rollout("sha256:1", None, &waves);
        let line = "StagedRollout/shop/fleet: all waves are over";
        assert_eq!(over.line(&change()).as_deref(), Some(line));
        assert!(!over.is_under_way(&change()));
        let other = rollout("sha256:2", None, &waves);
        assert_eq!((other.line(&change()), shown(&other).len()), (None, 0), "another artifact");
    }

    #[test]
    fn a_rollout_of_several_sources_is_listed_only_with_what_the_changes_are_about() {
        let canary = json!([{"name": "canary", "members": 1}]);
        let own = source("sha256:1", Some("canary"), &canary);
        let over = source("sha256:2", None, &canary);
        let listed = ListedRollout::about(&object(&[over.clone(), own.clone()]), &[change()]);
        let listed = listed.unwrap();
        assert_eq!((listed.sources.len(), listed.message.as_str()), (1, "it failed"));
        let other = source("sha256:2", Some("canary"), &canary);
        let listed = ListedRollout::about(&object(&[other, own]), &[change()]).unwrap();
        assert_eq!(listed.message, "", "it may be about the other source");
        assert!(ListedRollout::about(&object(&[over]), &[change()]).is_none());
    }

    #[test]
    fn each_wave_has_a_state_and_a_later_one_names_the_wave_that_it_waits_for() {
        let soaks = json!([
            {"name": "canary", "members": 2, "updated": 1, "skipped": 1,
                "updatedSince": "2026-11-30T09:00:00Z"},
            {"name": "staging", "members": 1, "updated": 1, "updatedSince": "2026-11-30T09:10:00Z"},
            {"name": "production", "members": 3},
        ]);
        let expected = [
            "canary Over: 1 of 2 updated, 1 skipped",
            "staging Soaking: 1 of 1 updated; since 2026-11-30T09:10:00Z",
            "production Waiting: 0 of 3 updated; begins after wave staging",
        ];
        assert_eq!(shown(&rollout("sha256:1", Some("staging"), &soaks)), expected);
        let two = json!([{"name": "canary", "members": 2, "updated": 1, "failed": 1},
            {"name": "production", "members": 3}]);
        let failed = shown(&rollout("sha256:1", Some("canary"), &two));
        assert_eq!(failed[0], "canary Failed: 1 of 2 updated, 1 failed");
        let one = json!([{"name": "canary", "members": 2, "updated": 1}]);
        let under_way = shown(&rollout("sha256:1", Some("canary"), &one));
        assert_eq!(under_way, ["canary UnderWay: 1 of 2 updated"]);
    }
}
