//! The status of a rollout: its conditions, and the progress of the newest revision of each source. These functions have no
//! side effects.

use crds::windlass_release::{RolloutSourceStatus, RolloutWaveStatus, StagedRolloutStatus};
use reconcile::{
    ConditionReason, NextRunTrigger, ObjectKey, RunOutcome, StatusConditions, Time,
    condition_reason,
};
use rollout::wave_decision::{RolloutDecision, RolloutVerdict, WaveProgress};
use serde_json::{Value, json};

use windlass_runtime::object_status::{conditions_of, listed};

use super::rollout_definition::{Rollout, RolloutWaves};

/// The reason of a condition: the rollout selects no applier.
const SELECTS_NOTHING: ConditionReason = ConditionReason::new("SelectsNothing");

/// The reason of a condition: the spec of the rollout cannot be used.
const INVALID_ROLLOUT: ConditionReason = ConditionReason::new("InvalidRollout");

/// The reason of a condition: some appliers belong to another rollout, which takes precedence.
const OVERLAPPING: ConditionReason = ConditionReason::new("Overlapping");

/// The reason of a condition: appliers of the present wave have failed.
const WAVE_FAILED: ConditionReason = ConditionReason::new("WaveFailed");

/// The reason of a condition: clusters do not respond, so no further applier takes the revision.
const CLUSTERS_OFFLINE: ConditionReason = ConditionReason::new("ClustersOffline");

/// The most sources in a status.
const MAX_SOURCES: usize = 64;

/// The most appliers that a message names.
const MAX_NAMED: usize = 5;

/// The longest revision in a message, in characters, because revisions may have any length.
const MAX_REVISION_LENGTH: usize = 128;

/// The longest revision in a status, in characters.
const MAX_STATUS_REVISION_LENGTH: usize = 512;

/// The longest digest in a status, in characters.
const MAX_STATUS_DIGEST_LENGTH: usize = 128;

/// A revision and a digest, cut to their lengths in a status. An ExternalArtifact may have a revision of any length, and the
/// API server would refuse a status with it.
pub(crate) fn as_in_status(revision: &str, digest: &str) -> [String; 2] {
    [
        revision.chars().take(MAX_STATUS_REVISION_LENGTH).collect(),
        digest.chars().take(MAX_STATUS_DIGEST_LENGTH).collect(),
    ]
}

/// The progress of the newest artifact of a source.
#[derive(Debug)]
pub(crate) struct SourceRollout {
    pub(crate) source: ObjectKey,
    pub(crate) revision: String,
    pub(crate) digest: String,
    pub(crate) decision: RolloutDecision,
    /// The appliers of the present wave that have failed.
    pub(crate) failed: Vec<String>,
    /// The appliers of the present wave that may take the artifact, and have neither applied it nor failed.
    pub(crate) awaited: Vec<String>,
    /// The clusters that do not respond and whose appliers do not have the artifact, by the Secrets with their kubeconfigs.
    pub(crate) offline: Vec<String>,
}

/// The first few of many names, and the number of further ones.
pub(crate) fn named(all: &[String]) -> String {
    let few: Vec<&str> = all.iter().take(MAX_NAMED).map(String::as_str).collect();
    match all.len().saturating_sub(few.len()) {
        0 => few.join(", "),
        more => format!("{} and {more} more", few.join(", ")),
    }
}

/// A count in the integer type of statuses.
fn number(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

impl SourceRollout {
    fn status(&self, waves: &RolloutWaves) -> RolloutSourceStatus {
        let wave = |(name, progress): (&String, &WaveProgress)| RolloutWaveStatus {
            name: name.clone(),
            members: number(progress.members),
            updated: number(progress.updated),
            failed: number(progress.failed),
            skipped: number(progress.skipped),
            updated_since: progress.updated_since.map(crds::Time),
        };
        let [revision, digest] = as_in_status(&self.revision, &self.digest);
        RolloutSourceStatus {
            kind: self.source.kind.clone(),
            namespace: self.source.namespace.clone(),
            name: self.source.name.clone(),
            revision,
            digest,
            wave: self.decision.wave.and_then(|index| waves.names.get(index).cloned()),
            waves: waves.names.iter().zip(&self.decision.waves).map(wave).collect(),
        }
    }

    /// The progress as a text for users.
    fn text(&self, waves: &RolloutWaves) -> String {
        let revision: String = self.revision.chars().take(MAX_REVISION_LENGTH).collect();
        let of = format!("{} at revision {revision}", self.source);
        let Some(index) = self.decision.wave else { return format!("{of}: all waves are over") };
        let wave = waves.named(index);
        let progress = self.decision.waves.get(index).copied().unwrap_or_default();
        let skipped = match progress.skipped {
            0 => String::new(),
            count => format!(", {count} skipped"),
        };
        let counts = format!("{} of {} updated{skipped}", progress.updated, progress.members);
        match self.decision.verdict {
            RolloutVerdict::Failed => {
                let failed = named(&self.failed);
                format!("{of}: {wave}: {counts}, {} failed ({failed})", progress.failed)
            }
            RolloutVerdict::ClustersOffline => {
                let offline = named(&self.offline);
                format!(
                    "{of}: {wave}: {counts}; the clusters of the kubeconfig Secrets {offline} do not respond, so no further \
                     applier takes the revision until they do"
                )
            }
            RolloutVerdict::Soaking => format!("{of}: {wave}: {counts}, which soaks"),
            RolloutVerdict::Progressing if !self.awaited.is_empty() => {
                format!("{of}: {wave}: {counts}; it waits for {}", named(&self.awaited))
            }
            RolloutVerdict::Complete | RolloutVerdict::Progressing => {
                format!("{of}: {wave}: {counts}")
            }
        }
    }
}

/// The result of a pass for one rollout.
#[derive(Debug, Default)]
pub(crate) struct RolloutReport {
    /// How many selected appliers belong to this rollout.
    pub(crate) members: usize,
    /// The selected appliers that belong to another rollout, with its name.
    pub(crate) overlapping: Vec<String>,
    pub(crate) sources: Vec<SourceRollout>,
}

impl RolloutReport {
    fn outcome(&self, rollout: &Rollout, now: Time) -> RunOutcome {
        let waves = match &rollout.waves {
            Ok(waves) => waves,
            Err(why) => {
                let text = format!(
                    "{why}; what is selected takes no new revision until the spec is corrected"
                );
                return RunOutcome::Stalled(INVALID_ROLLOUT, text);
            }
        };
        if !self.overlapping.is_empty() {
            let text = format!(
                "{} of the appliers that are selected belong to another rollout: {}; change one of the selectors",
                self.overlapping.len(),
                named(&self.overlapping)
            );
            return RunOutcome::Stalled(OVERLAPPING, text);
        }
        if self.members == 0 {
            let text = "no Kustomization and no Helmfile with a sourceRef is selected; correct the selectors, or the labels of \
                        the appliers";
            return RunOutcome::Stalled(SELECTS_NOTHING, text.to_owned());
        }
        let with = |verdict: RolloutVerdict| {
            self.sources.iter().find(|it| it.decision.verdict == verdict).map(|it| it.text(waves))
        };
        if let Some(text) = with(RolloutVerdict::ClustersOffline) {
            return RunOutcome::Stalled(CLUSTERS_OFFLINE, text);
        }
        let wake = NextRunTrigger::at(now);
        if let Some(text) = with(RolloutVerdict::Failed) {
            return RunOutcome::Failed(WAVE_FAILED, text, wake);
        }
        let under_way = with(RolloutVerdict::Progressing).or_else(|| with(RolloutVerdict::Soaking));
        match under_way {
            Some(text) => RunOutcome::Running(condition_reason::PROGRESSING, text, wake),
            None => {
                let text = format!("all of {} appliers have the newest revision", self.members);
                RunOutcome::Settled(condition_reason::SUCCEEDED, text)
            }
        }
    }

    /// The status of a rollout after a pass.
    pub(crate) fn status(&self, rollout: &Rollout, now: Time) -> StagedRolloutStatus {
        let known = conditions_of(&rollout.status.conditions);
        let conditions = StatusConditions::since(&known, rollout.generation, now, &[])
            .finish(&self.outcome(rollout, now));
        let waves = rollout.waves.as_ref().ok();
        // Sources that are being rolled out come first, so that they are never dropped.
        let mut sources: Vec<&SourceRollout> = self.sources.iter().collect();
        sources.sort_by_key(|it| it.decision.wave.is_none());
        sources.truncate(MAX_SOURCES);
        StagedRolloutStatus {
            observed_generation: Some(rollout.generation),
            conditions: listed(conditions),
            members: number(self.members),
            sources: waves
                .map(|waves| sources.iter().map(|it| it.status(waves)).collect())
                .unwrap_or_default(),
        }
    }
}

/// The merge patch that writes the status of a rollout.
pub(crate) fn patch(rollout: &Rollout, status: &StagedRolloutStatus) -> Value {
    json!({
        "metadata": {"uid": rollout.uid},
        "status": {
            "observedGeneration": status.observed_generation,
            "conditions": status.conditions,
            "members": status.members,
            "sources": status.sources,
        },
    })
}

/// Whether two statuses differ in facts that must survive a restart or that users are alerted about. These are all facts
/// except counts.
pub(crate) fn differs_in_state(one: &StagedRolloutStatus, other: &StagedRolloutStatus) -> bool {
    let source = |it: &RolloutSourceStatus| {
        let since: Vec<Option<crds::Time>> =
            it.waves.iter().map(|wave| wave.updated_since.clone()).collect();
        ([it.kind.clone(), it.namespace.clone(), it.name.clone(), it.digest.clone()], since)
    };
    let state = |of: &StagedRolloutStatus| {
        let conditions: Vec<[String; 2]> =
            of.conditions.iter().map(|it| [it.type_.clone(), it.reason.clone()]).collect();
        (conditions, of.sources.iter().map(source).collect::<Vec<_>>())
    };
    state(one) != state(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rollout(waves: &Value) -> Rollout {
        let object = json!({"metadata": {"name": "fleet", "namespace": "shop", "generation": 3},
            "spec": {"selector": {}, "waves": waves}});
        Rollout::of_namespace(&serde_json::from_value(object).unwrap())
    }

    fn report(verdict: RolloutVerdict, wave: Option<usize>) -> RolloutReport {
        let canary = WaveProgress {
            members: 2,
            updated: 1,
            failed: usize::from(verdict == RolloutVerdict::Failed),
            updated_since: (verdict == RolloutVerdict::Soaking).then_some(Time::UNIX_EPOCH),
            ..WaveProgress::default()
        };
        let waves = vec![canary, WaveProgress::default()];
        let source = SourceRollout {
            source: ObjectKey::new("g", "GitRepository", "shop", "fleet"),
            revision: "main@sha1:2".to_owned(),
            digest: "sha256:2".to_owned(),
            decision: RolloutDecision { released: Vec::new(), waves, wave, verdict },
            failed: vec!["Kustomization/shop/a".to_owned()],
            awaited: vec!["Kustomization/shop/b".to_owned()],
            offline: vec!["shop/east".to_owned()],
        };
        RolloutReport { members: 2, overlapping: Vec::new(), sources: vec![source] }
    }

    /// The condition `Ready` of a rollout: status, reason and message.
    fn ready(report: &RolloutReport, waves: &Value) -> [String; 3] {
        let status = report.status(&rollout(waves), Time::UNIX_EPOCH);
        let found = status.conditions.into_iter().find(|it| it.type_ == "Ready").unwrap();
        [found.status, found.reason, found.message]
    }

    fn two_waves() -> Value {
        json!([{"name": "canary", "values": ["canary"]}, {"name": "rest"}])
    }

    #[test]
    fn what_a_rollout_came_to_is_a_condition_that_names_source_wave_and_failures() {
        let failed = ready(&report(RolloutVerdict::Failed, Some(0)), &two_waves());
        assert_eq!(failed[..2], ["False", "WaveFailed"]);
        assert_eq!(
            failed[2],
            "GitRepository/shop/fleet at revision main@sha1:2: wave 1 of 2 (canary): 1 of 2 updated, 1 failed \
             (Kustomization/shop/a)"
        );
        let progresses = ready(&report(RolloutVerdict::Progressing, Some(0)), &two_waves());
        assert!(progresses[2].ends_with("updated; it waits for Kustomization/shop/b"));
        let soaks = ready(&report(RolloutVerdict::Soaking, Some(0)), &two_waves());
        assert_eq!(soaks[..2], ["Unknown", "Progressing"]);
        let offline = ready(&report(RolloutVerdict::ClustersOffline, Some(0)), &two_waves());
        assert_eq!(offline[..2], ["False", "ClustersOffline"]);
        assert!(offline[2].contains("kubeconfig Secrets shop/east do not respond"), "{offline:?}");
        let complete = ready(&report(RolloutVerdict::Complete, None), &two_waves());
        assert_eq!(complete[..2], ["True", "Succeeded"]);
    }

    #[test]
    fn a_rollout_that_selects_nothing_or_what_belongs_to_another_or_is_invalid_says_so() {
        let none = RolloutReport::default();
        assert_eq!(ready(&none, &two_waves())[..2], ["False", "SelectsNothing"]);
        let first = "Kustomization/shop/a (StagedRollout shop/first)".to_owned();
        let second = RolloutReport { overlapping: vec![first], ..RolloutReport::default() };
        let said = ready(&second, &two_waves());
        assert_eq!(said[1], "Overlapping");
        assert!(said[2].contains("StagedRollout shop/first"), "{}", said[2]);
        assert_eq!(ready(&second, &json!([]))[1], "InvalidRollout");
    }

    #[test]
    fn a_source_with_a_long_revision_or_behind_many_others_does_not_spoil_the_status() {
        let over = |_| report(RolloutVerdict::Complete, None).sources.remove(0);
        let mut all: Vec<SourceRollout> = (0..70).map(over).collect();
        let revision = "r".repeat(600);
        let last = report(RolloutVerdict::Progressing, Some(0)).sources.remove(0);
        all.push(SourceRollout { revision: revision.clone(), ..last });
        let report = RolloutReport { members: 71, overlapping: Vec::new(), sources: all };
        let sources = report.status(&rollout(&two_waves()), Time::UNIX_EPOCH).sources;
        assert_eq!((sources.len(), sources[0].revision.len()), (64, 512));
        assert_eq!(sources[0].revision, as_in_status(&revision, "")[0]);
    }

    #[test]
    fn only_what_has_to_survive_a_restart_is_written_at_once() {
        let of = |report: &RolloutReport| report.status(&rollout(&two_waves()), Time::UNIX_EPOCH);
        let before = of(&report(RolloutVerdict::Progressing, Some(0)));
        let mut more = report(RolloutVerdict::Progressing, Some(0));
        more.sources[0].decision.waves[0].updated = 2;
        assert!(!differs_in_state(&before, &of(&more)));
        assert!(differs_in_state(&before, &of(&report(RolloutVerdict::Soaking, Some(0)))));
        let named: Vec<String> = (0..7).map(|it| it.to_string()).collect();
        assert_eq!(super::named(&named), "0, 1, 2, 3, 4 and 2 more");
    }
}
