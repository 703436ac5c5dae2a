//! A parsed StagedRollout or ClusterStagedRollout: the appliers that it selects, and its waves.
//!
//! If a rollout cannot be read, all appliers that it selects are held. An error in the rollout must not weaken the guard.

use std::collections::BTreeMap;
use std::time::Duration;

use crds::GoDuration;
use crds::windlass_release::{
    ClusterStagedRollout, OfflineClusterPolicy, RolloutOfflineClusterRules, RolloutWave,
    StagedRollout, StagedRolloutStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use kube_core::ResourceExt as _;
use reconcile::{Time, parse_duration};
use rollout::wave_assignment::{WaveAssignmentInput, WaveSelection, assign};
use rollout::wave_decision::{ClusterOfflinePolicy, MaxUnavailable, WaveRules};

use windlass_cluster::label_selectors::compiled;
use windlass_cluster::namespace_policies::NamespacePolicies;
use windlass_runtime::lifecycle::watched_object_cache::WatchedObjectCache;
use windlass_runtime::run_context::RunContext;

/// How much of a wave may be unavailable if the wave does not say it.
const DEFAULT_MAX_UNAVAILABLE: MaxUnavailable = MaxUnavailable::Percent(25);

/// How long a cluster does not respond before it counts as offline, if the rollout does not say it.
const DEFAULT_OFFLINE_AFTER: Duration = Duration::from_secs(300);

/// The labels of an object, by their keys.
pub(crate) type Labels = BTreeMap<String, String>;

/// A StagedRollout or ClusterStagedRollout in one form, with its parsed spec.
#[derive(Debug, Clone)]
pub(crate) struct Rollout {
    /// The namespace of the rollout. Empty for a ClusterStagedRollout.
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) generation: i64,
    /// When the rollout was created.
    created: Option<Time>,
    /// The status of the rollout when it was read.
    pub(crate) status: StagedRolloutStatus,
    /// The selectors. `None` if one of them cannot be read, and then all appliers are selected.
    selectors: Option<RolloutSelectors>,
    wave_label: String,
    /// The waves, or the reason why they cannot be used.
    pub(crate) waves: Result<RolloutWaves, String>,
}

#[derive(Debug, Clone)]
struct RolloutSelectors {
    /// The namespace selector. `None` for a StagedRollout.
    namespaces: Option<objects::LabelSelector>,
    appliers: objects::LabelSelector,
}

/// The waves of a rollout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RolloutWaves {
    pub(crate) names: Vec<String>,
    pub(crate) selections: Vec<WaveSelection>,
    pub(crate) rules: Vec<WaveRules>,
    pub(crate) offline: ClusterOfflinePolicy,
    /// How long a cluster does not respond before it counts as offline.
    pub(crate) offline_after: Duration,
}

impl RolloutWaves {
    fn read(
        waves: &[RolloutWave],
        offline: Option<&RolloutOfflineClusterRules>,
    ) -> Result<Self, String> {
        if waves.is_empty() {
            return Err("spec.waves is empty".to_owned());
        }
        let has_percent = |it: &RolloutWave| it.percent.is_some();
        let has_values = |it: &RolloutWave| !it.values.is_empty();
        let mut earlier = waves.iter().rev().skip(1);
        let is_mixed = waves.iter().any(has_percent) && waves.iter().any(has_values);
        if is_mixed || !earlier.all(|it| has_percent(it) || has_values(it)) {
            return Err(
                "spec.waves: all but the last one need values, or all but the last one percent"
                    .to_owned(),
            );
        }
        let default = RolloutOfflineClusterRules::default();
        let offline = offline.unwrap_or(&default);
        let skipped = offline.max_skipped.unwrap_or(1);
        let after = duration("spec.offlineClusters.after", offline.after.as_ref())?;
        Ok(Self {
            names: waves.iter().map(|it| it.name.clone()).collect(),
            selections: waves.iter().map(selection).collect(),
            rules: waves.iter().map(rules).collect::<Result<_, _>>()?,
            offline: match offline.policy.unwrap_or_default() {
                OfflineClusterPolicy::Wait => ClusterOfflinePolicy::Wait,
                OfflineClusterPolicy::Skip => {
                    ClusterOfflinePolicy::Skip(usize::try_from(skipped).unwrap_or_default())
                }
                OfflineClusterPolicy::Fail => ClusterOfflinePolicy::Fail,
            },
            offline_after: after.unwrap_or(DEFAULT_OFFLINE_AFTER),
        })
    }

    /// The name of a wave in messages.
    pub(crate) fn named(&self, index: usize) -> String {
        let name = self.names.get(index).map(String::as_str).unwrap_or_default();
        format!("wave {} of {} ({name})", index.saturating_add(1), self.names.len())
    }
}

fn duration(field: &str, text: Option<&GoDuration>) -> Result<Option<Duration>, String> {
    let read = text.map(|it| parse_duration(it.as_str())).transpose();
    read.map_err(|error| format!("{field}: {error}"))
}

fn selection(wave: &RolloutWave) -> WaveSelection {
    match wave.percent {
        Some(percent) => WaveSelection::Percent(u8::try_from(percent).unwrap_or_default()),
        None => WaveSelection::Values(wave.values.clone()),
    }
}

fn rules(wave: &RolloutWave) -> Result<WaveRules, String> {
    let max_unavailable = wave.max_unavailable.as_deref().map(max_unavailable).transpose()?;
    Ok(WaveRules {
        max_unavailable: max_unavailable.unwrap_or(DEFAULT_MAX_UNAVAILABLE),
        soak: duration("spec.waves[].soak", wave.soak.as_ref())?.unwrap_or_default(),
    })
}

fn max_unavailable(text: &str) -> Result<MaxUnavailable, String> {
    let error = || format!("spec.waves[].maxUnavailable: `{text}` is no number and no percentage");
    match text.strip_suffix('%') {
        Some(percent) => percent.parse().map(MaxUnavailable::Percent).map_err(|_| error()),
        None => text.parse().map(MaxUnavailable::Count).map_err(|_| error()),
    }
}

/// The parts of a spec that both kinds of rollout have.
struct CommonRolloutSpec<'s> {
    namespaces: Option<&'s LabelSelector>,
    appliers: &'s LabelSelector,
    wave_label: Option<&'s str>,
    waves: &'s [RolloutWave],
    offline: Option<&'s RolloutOfflineClusterRules>,
}

impl CommonRolloutSpec<'_> {
    fn selectors(&self) -> Result<RolloutSelectors, String> {
        let namespaces = self.namespaces.map(compiled).transpose();
        Ok(RolloutSelectors {
            namespaces: namespaces.map_err(|why| format!("spec.namespaceSelector: {why}"))?,
            appliers: compiled(self.appliers).map_err(|why| format!("spec.selector: {why}"))?,
        })
    }
}

impl Rollout {
    fn new(
        metadata: &ObjectMeta,
        parts: &CommonRolloutSpec<'_>,
        status: Option<&StagedRolloutStatus>,
    ) -> Self {
        let selectors = parts.selectors();
        let waves = match &selectors {
            Ok(_) => RolloutWaves::read(parts.waves, parts.offline),
            Err(why) => Err(why.clone()),
        };
        Self {
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
            uid: metadata.uid.clone().unwrap_or_default(),
            generation: metadata.generation.unwrap_or_default(),
            created: metadata.creation_timestamp.as_ref().map(|at| at.0),
            status: status.cloned().unwrap_or_default(),
            selectors: selectors.ok(),
            wave_label: parts.wave_label.unwrap_or("windlass.dev/wave").to_owned(),
            waves,
        }
    }

    /// The rollout of a StagedRollout, which selects appliers in its own namespace.
    pub(crate) fn of_namespace(object: &StagedRollout) -> Self {
        let spec = &object.spec;
        let parts = CommonRolloutSpec {
            namespaces: None,
            appliers: &spec.selector,
            wave_label: spec.wave_label.as_deref(),
            waves: &spec.waves,
            offline: spec.offline_clusters.as_ref(),
        };
        Self::new(&object.metadata, &parts, object.status.as_ref())
    }

    fn of_cluster(object: &ClusterStagedRollout) -> Self {
        let spec = &object.spec;
        let parts = CommonRolloutSpec {
            namespaces: Some(&spec.namespace_selector),
            appliers: &spec.selector,
            wave_label: spec.wave_label.as_deref(),
            waves: &spec.waves,
            offline: spec.offline_clusters.as_ref(),
        };
        Self::new(&object.metadata, &parts, object.status.as_ref())
    }

    /// All rollouts that this process sees, or those that concern one namespace. The first one that selects an applier decides
    /// about it. ClusterStagedRollouts come first, so that a user of a namespace cannot avoid them. Among others, older ones
    /// come first.
    ///
    /// # Errors
    /// The reason why the rollouts are not known.
    pub(crate) fn all(context: &RunContext, namespace: Option<&str>) -> Result<Vec<Self>, String> {
        let of_cluster = context.shared::<WatchedObjectCache<ClusterStagedRollout>>();
        let of_namespaces = context.shared::<WatchedObjectCache<StagedRollout>>();
        of_cluster.current()?;
        of_namespaces.current()?;
        let settings = &context.settings;
        let cluster = of_cluster.listed("")?;
        let cluster = cluster.iter().filter(|it| settings.selects(it.labels()));
        let mut all: Vec<Self> = cluster.map(|it| Self::of_cluster(it)).collect();
        let namespaced = match namespace {
            Some(namespace) => of_namespaces.listed(namespace)?,
            None => of_namespaces.all(),
        };
        let namespaced = namespaced.iter().filter(|it| settings.selects(it.labels()));
        all.extend(namespaced.map(|it| Self::of_namespace(it)));
        all.sort_by(|one, other| one.order().cmp(&other.order()));
        Ok(all)
    }

    fn order(&self) -> (bool, Option<Time>, &str, &str) {
        (self.is_namespaced(), self.created, &self.namespace, &self.name)
    }

    pub(crate) const fn is_namespaced(&self) -> bool {
        !self.namespace.is_empty()
    }

    /// Whether the rollout selects an applier with these labels.
    ///
    /// # Errors
    /// The labels of the namespace are not known.
    pub(crate) fn selects(
        &self,
        context: &RunContext,
        namespace: &str,
        labels: &Labels,
    ) -> Result<bool, String> {
        if self.is_namespaced() && self.namespace != namespace {
            return Ok(false);
        }
        let Some(selectors) = &self.selectors else { return Ok(true) };
        if !selectors.appliers.selects(|key| labels.get(key).map(String::as_str)) {
            return Ok(false);
        }
        let Some(namespaces) = &selectors.namespaces else { return Ok(true) };
        // All namespaces are selected, even if their labels may not be read.
        if namespaces.keys().next().is_none() {
            return Ok(true);
        }
        let facts = context.shared::<NamespacePolicies>().facts(namespace);
        let facts =
            facts.ok_or_else(|| format!("the labels of namespace {namespace} are not known"))?;
        Ok(namespaces.selects(|key| facts.labels.get(key).map(String::as_str)))
    }

    /// The message of an applier that waits for a wave. It names the wave if that is known.
    pub(crate) fn waiting_text(&self, revision: &str, wave: Option<usize>) -> String {
        match (&self.waves, wave) {
            (Ok(waves), Some(wave)) => {
                format!("revision {revision} waits for {} of {self}", waves.named(wave))
            }
            (Ok(_), None) => format!("revision {revision} waits for its wave of {self}"),
            (Err(why), _) => {
                format!("revision {revision} waits, because {self} cannot be used: {why}")
            }
        }
    }

    /// The wave of an applier, if its labels alone decide it. `None` if its wave depends on other appliers, or if the waves are
    /// not valid.
    pub(crate) fn wave_by_label(&self, labels: &Labels) -> Option<usize> {
        let selections = &self.waves.as_ref().ok()?.selections;
        if selections.iter().any(|it| matches!(it, WaveSelection::Percent(_))) {
            return None;
        }
        let member = WaveAssignmentInput { label: self.wave_of(labels), unit: "" };
        assign(selections, &[member]).first().copied()
    }

    /// The value of the label that assigns an applier to a wave. `None` if the applier has no such label.
    pub(crate) fn wave_of<'l>(&self, labels: &'l Labels) -> Option<&'l str> {
        labels.get(&self.wave_label).map(String::as_str)
    }
}

impl std::fmt::Display for Rollout {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.is_namespaced() {
            true => write!(f, "StagedRollout {}/{}", self.namespace, self.name),
            false => write!(f, "ClusterStagedRollout {}", self.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use fake_cluster::spec_field_check;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn every_field_of_the_schemas_is_used() {
        let of_namespace = ["offlineClusters", "selector", "waveLabel", "waves"];
        spec_field_check::knows_every_field("StagedRollout", of_namespace);
        let of_cluster = ["namespaceSelector", "offlineClusters", "selector", "waveLabel", "waves"];
        spec_field_check::knows_every_field("ClusterStagedRollout", of_cluster);
    }

    fn rollout(spec: &Value) -> Rollout {
        let object = json!({"metadata": {"name": "fleet", "namespace": "shop"}, "spec": spec});
        Rollout::of_namespace(&serde_json::from_value(object).unwrap())
    }

    fn fault(spec: &Value) -> String {
        rollout(spec).waves.unwrap_err()
    }

    #[test]
    fn waves_have_defaults_and_are_named_with_their_number() {
        let waves = json!([{"name": "canary", "values": ["a"], "soak": "10m", "maxUnavailable": "2"},
            {"name": "rest", "values": ["b"]}]);
        let offline = json!({"policy": "Skip", "maxSkipped": 3});
        let spec = json!({"selector": {}, "waves": waves, "offlineClusters": offline});
        let waves = rollout(&spec).waves.unwrap();
        assert_eq!(waves.named(1), "wave 2 of 2 (rest)");
        assert_eq!(waves.offline, ClusterOfflinePolicy::Skip(3));
        assert_eq!(waves.rules[0].max_unavailable, MaxUnavailable::Count(2));
        assert_eq!(waves.rules[0].soak, Duration::from_secs(600));
        assert_eq!(waves.rules[1].max_unavailable, MaxUnavailable::Percent(25));
    }

    #[test]
    fn what_cannot_be_read_is_named_and_selects_all() {
        let values = json!({"name": "a", "values": ["a"]});
        let percent = json!({"name": "b", "percent": 10});
        let mixed = json!({"selector": {}, "waves": [values, percent]});
        assert!(fault(&mixed).contains("or all but the last one percent"));
        let last = json!({"name": "rest"});
        let neither = json!({"selector": {}, "waves": [last, values]});
        assert!(fault(&neither).contains("or all but the last one percent"));
        assert!(rollout(&json!({"selector": {}, "waves": [last]})).waves.is_ok());
        assert!(fault(&json!({"selector": {}})).contains("is empty"));
        let soak = json!({"name": "a", "values": ["a"], "soak": "soon"});
        assert!(fault(&json!({"selector": {}, "waves": [soak]})).contains("spec.waves[].soak"));
        let broken = json!({"matchExpressions": [{"key": "a", "operator": "Like"}]});
        let broken = rollout(&json!({"selector": broken, "waves": [values]}));
        assert!(broken.waves.is_err() && broken.selectors.is_none());
    }

    #[test]
    fn an_applier_says_for_which_wave_it_waits_as_soon_as_that_is_known() {
        let waves = json!([{"name": "canary", "values": ["a"]}, {"name": "rest"}]);
        let by_label = rollout(&json!({"selector": {}, "waves": waves}));
        let canary = Labels::from([("windlass.dev/wave".to_owned(), "a".to_owned())]);
        assert_eq!(by_label.wave_by_label(&canary), Some(0));
        assert_eq!(by_label.wave_by_label(&Labels::new()), Some(1));
        let text = by_label.waiting_text("2", Some(1));
        assert_eq!(text, "revision 2 waits for wave 2 of 2 (rest) of StagedRollout shop/fleet");
        let waves = json!([{"name": "first", "percent": 10}, {"name": "rest"}]);
        let by_percent = rollout(&json!({"selector": {}, "waves": waves}));
        assert_eq!(by_percent.wave_by_label(&canary), None);
        assert!(by_percent.waiting_text("2", None).contains("waits for its wave"));
        let broken = rollout(&json!({"selector": {}, "waves": []}));
        assert!(broken.waiting_text("2", None).contains("spec.waves is empty"));
    }

    #[test]
    fn a_rollout_of_the_cluster_comes_before_older_ones_of_namespaces() {
        let older = rollout(&json!({"selector": {}, "waves": []}));
        let newer = Rollout { created: Some(Time::UNIX_EPOCH), ..older.clone() };
        let of_cluster = Rollout { namespace: String::new(), ..newer.clone() };
        assert!(of_cluster.order() < older.order() && older.order() < newer.order());
        assert_eq!(of_cluster.to_string(), "ClusterStagedRollout fleet");
        assert_eq!(older.to_string(), "StagedRollout shop/fleet");
    }
}
