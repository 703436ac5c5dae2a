//! Every lifecycle phase with every outcome, for a HelmRelease, a Helmfile and a Kustomization.
//!
//! The stories have their own windlass, which is killed in the middle of all cases. Elsewhere: further effects of an answer
//! (`releases/lifecycles.rs`, `releases/helmfile_lifecycles.rs`, `stories/lifecycles.rs`).

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use crds::operation_lifecycle::{LifecycleBinding, LifecycleEvent};
use e2e::harness::charts_and_helm_releases::CONFIG;
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, NEVER, condition};
use e2e::harness::manifests::config_map;
use e2e::harness::{Story, StoryObject, WindlassProcess};
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use kube::ResourceExt as _;
use kube::api::DynamicObject;
use serde_json::{Value, json};

/// How many cases run at once.
const AT_ONCE: usize = 16;

/// How soon windlass notices a new binding.
pub(super) const SEEN: std::time::Duration = std::time::Duration::from_secs(2);

pub(super) const CHART: &str = "apiVersion: v2\nname: app\nversion: 1.0.0\n";
pub(super) const HELMFILE: &str = "releases:\n- name: {{ .Values.name }}\n  chart: ./app\n  values: [{value: {{ .Values.value }}}]\n";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MatrixApplierKind {
    HelmRelease,
    Helmfile,
    Kustomization,
}

impl MatrixApplierKind {
    pub(super) fn target(self, name: &str) -> StoryObject {
        match self {
            Self::HelmRelease => StoryObject::helm_release(name),
            Self::Helmfile => StoryObject::new("helmfile.windlass.dev/v1alpha1", "Helmfile", name),
            Self::Kustomization => StoryObject::kustomization(name),
        }
    }

    /// An object that creates the ConfigMap `NAME-config` with a value, from the GitRepository `shop`.
    pub(super) fn object(self, namespace: &str, name: &str, value: &str) -> Value {
        let source = json!({"kind": "GitRepository", "name": "shop"});
        let (api, spec) = match self {
            Self::HelmRelease => {
                let chart = json!({"spec": {"chart": "./app", "sourceRef": source}});
                let spec = json!({"interval": NEVER, "chart": chart, "values": {"value": value}});
                ("helm.toolkit.fluxcd.io/v2", spec)
            }
            Self::Helmfile => {
                let values = json!({"name": name, "value": value});
                let spec = json!({"interval": NEVER, "prune": true, "sourceRef": source,
                    "deletionPolicy": "Delete", "path": "helmfile.yaml.gotmpl", "values": values});
                ("helmfile.windlass.dev/v1alpha1", spec)
            }
            Self::Kustomization => {
                let spec = json!({"interval": NEVER, "prune": true, "sourceRef": source,
                    "targetNamespace": namespace, "path": format!("./{value}"), "namePrefix": format!("{name}-")});
                ("kustomize.toolkit.fluxcd.io/v1", spec)
            }
        };
        let kind = format!("{self:?}");
        json!({"apiVersion": api, "kind": kind, "metadata": {"name": name}, "spec": spec})
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HeldPhaseOutcome {
    Succeeded,
    Failed,
    TimedOut,
    /// A newer change arrives while the object waits.
    Newer,
    /// The object is suspended while it waits, and answered meanwhile.
    Suspended,
    /// windlass is killed while the object waits.
    Killed,
}

/// An object that its own Lifecycle holds at one phase.
#[derive(Debug, Clone)]
struct HeldPhaseCase {
    kind: MatrixApplierKind,
    phase: &'static str,
    outcome: HeldPhaseOutcome,
}

const INSTALL: [&str; 2] = ["PreInstall", "PostInstall"];
const UPGRADE: [&str; 3] = ["PreUpgrade", "PostUpgrade", "Promote"];
const DELETE: [&str; 2] = ["PreDelete", "PostDelete"];
/// Phases of HelmReleases only.
const ROLLBACK: [&str; 2] = ["PreRollback", "PostRollback"];

/// An object that the API server refuses, in a revision that is rolled back.
const REFUSED: &str = "{{ if eq (.Values.value | default \"\") \"bad\" }}\n\
    {apiVersion: v1, kind: ConfigMap, metadata: {name: Not_Valid}}\n{{ end }}\n";

fn cases(kind: MatrixApplierKind, outcomes: &[HeldPhaseOutcome]) -> Vec<HeldPhaseCase> {
    let rollbacks = if kind == MatrixApplierKind::HelmRelease { &ROLLBACK[..] } else { &[] };
    let phases = INSTALL.iter().chain(&UPGRADE).chain(&DELETE).chain(rollbacks);
    let all = phases.flat_map(|phase| {
        let is_removal = DELETE.contains(phase);
        // No change is newer than a removal, and a suspended object is deleted without a removal.
        let is_none = |it: &HeldPhaseOutcome| {
            matches!(it, HeldPhaseOutcome::Newer | HeldPhaseOutcome::Suspended)
        };
        let its = outcomes.iter().filter(move |it| !is_removal || !is_none(it));
        its.map(|outcome| HeldPhaseCase { kind, phase, outcome: *outcome })
    });
    all.collect()
}

impl HeldPhaseCase {
    fn name(&self) -> String {
        format!("{:?}-{:?}", self.outcome, self.phase).to_lowercase().replace('"', "")
    }

    fn is_rollback(&self) -> bool {
        ROLLBACK.contains(&self.phase)
    }

    /// The value that the held operation installs.
    fn wanted(&self) -> &'static str {
        match self.phase {
            _ if self.is_rollback() => "bad",
            phase if UPGRADE.contains(&phase) => "two",
            _ => "one",
        }
    }

    fn target(&self) -> StoryObject {
        self.kind.target(&self.name())
    }

    /// The object with a value, and with further fields in its spec.
    fn object(&self, namespace: &str, value: &str) -> Value {
        let mut object = self.kind.object(namespace, &self.name(), value);
        if self.is_rollback() {
            object["spec"]["upgrade"] = json!({"remediation": {"remediateLastFailure": true}});
        }
        object
    }

    async fn play(&self, story: &Story) -> Result<()> {
        self.tell(story).await.with_context(|| format!("{self:?}"))
    }

    async fn tell(&self, story: &Story) -> Result<()> {
        let name = self.name();
        let target = self.target();
        let timeout = if self.outcome == HeldPhaseOutcome::TimedOut { "1s" } else { "10m" };
        if !INSTALL.contains(&self.phase) {
            story.apply_value(self.object(&story.namespace, "one")).await?;
            self.await_value(story, "one").await?;
        }
        let lifecycle = story.lifecycle(&name, &[self.phase], json!({"timeout": timeout})).await?;
        let subjects = json!([{"kind": format!("{:?}", self.kind), "name": name}]);
        story.bind(&lifecycle, json!({"subjects": subjects})).await?;
        // windlass watches bindings separately, so it may notice a binding later than the object.
        tokio::time::sleep(SEEN).await;
        let wanted = self.wanted();
        match DELETE.contains(&self.phase) {
            true => story.delete(&target).await?,
            false => drop(story.apply_value(self.object(&story.namespace, wanted)).await?),
        }
        if self.outcome == HeldPhaseOutcome::TimedOut {
            self.await_message(story, &format!("was not answered in time at {}", self.phase))
                .await?;
            return self.let_go(story, &lifecycle).await;
        }
        let event = self.await_asked(story, None).await?;
        match self.outcome {
            HeldPhaseOutcome::Succeeded | HeldPhaseOutcome::TimedOut => {
                story.answer(&event, "Succeeded", "").await?;
                self.await_end(story, wanted).await
            }
            HeldPhaseOutcome::Failed => {
                story.answer(&event, "Failed", "no quota").await?;
                self.await_message(story, "no quota").await?;
                if self.phase == "PreDelete" {
                    // windlass tries a removal again, with another event. For a Kustomization, it does so at the interval.
                    story.request(&self.target()).await?;
                    let again = self.await_asked(story, Some(&event)).await?;
                    story.answer(&again, "Succeeded", "").await?;
                    return self.await_end(story, wanted).await;
                }
                self.let_go(story, &lifecycle).await
            }
            HeldPhaseOutcome::Newer => {
                story.apply_value(self.object(&story.namespace, "three")).await?;
                let is_installed =
                    self.phase == "PostInstall" && self.kind != MatrixApplierKind::Kustomization;
                if is_installed || self.is_rollback() {
                    // The installed version is then upgraded.
                    return self.await_end(story, "three").await;
                }
                let again = self.await_asked(story, Some(&event)).await?;
                ensure!(again.spec.operation != event.spec.operation, "it is the same operation");
                story.answer(&again, "Succeeded", "").await?;
                self.await_end(story, "three").await
            }
            HeldPhaseOutcome::Suspended => {
                story.merge(&target, json!({"spec": {"suspend": true}})).await?;
                story.answer(&event, "Succeeded", "").await?;
                story.merge(&target, json!({"spec": {"suspend": false}})).await?;
                if self.is_rollback() {
                    return self.answer_until_rolled_back(story).await;
                }
                self.await_end(story, wanted).await
            }
            // The rest of the case follows after the kill.
            HeldPhaseOutcome::Killed => Ok(()),
        }
    }

    /// The rest of the case, after windlass runs again.
    async fn finish(&self, story: &Story, before: &LifecycleEvent) -> Result<()> {
        let event = self.await_asked(story, None).await?;
        ensure!(event.uid() == before.uid(), "{self:?} was asked anew");
        story.answer(&event, "Succeeded", "").await?;
        self.await_end(story, self.wanted()).await.with_context(|| format!("{self:?}"))
    }

    /// Waits for a LifecycleEvent of the object other than `not`.
    async fn await_asked(
        &self,
        story: &Story,
        not: Option<&LifecycleEvent>,
    ) -> Result<LifecycleEvent> {
        let name = self.name();
        story
            .await_until(
                &format!("{name} to be asked about"),
                DEFAULT_WAIT_TIMEOUT * 2,
                async || {
                    let events = story.lifecycle_events().await?;
                    let is_its = |it: &LifecycleEvent| {
                        it.spec.subject.name == name
                            && it.spec.subject.kind == format!("{:?}", self.kind)
                    };
                    let mut events = events.into_iter().filter(is_its);
                    Ok(events.find(|it| not.is_none_or(|not| not.uid() != it.uid())))
                },
            )
            .await
    }

    async fn await_value(&self, story: &Story, value: &str) -> Result<()> {
        let is_there = |object: &DynamicObject| {
            condition(object, "Ready")["status"] == "True"
                && object.data["status"]["observedGeneration"].as_i64()
                    == object.metadata.generation
        };
        story.await_object(&self.target(), DEFAULT_WAIT_TIMEOUT * 2, is_there).await?;
        let config =
            story.expect(&StoryObject::config_map(&format!("{}-config", self.name()))).await?;
        ensure!(config.data["data"]["value"] == value, "{:?}", config.data["data"]);
        Ok(())
    }

    async fn await_rollback(&self, story: &Story) -> Result<()> {
        let is_undone = |object: &DynamicObject| {
            condition(object, "Remediated")["reason"] == "RollbackSucceeded"
        };
        story.await_object(&self.target(), DEFAULT_WAIT_TIMEOUT * 2, is_undone).await?;
        story.await_value(&format!("{}-config", self.name()), "one").await.map(drop)
    }

    /// Waits for the end of a rollback during a suspension, and answers each LifecycleEvent until then. If windlass ends the
    /// rollback before the object is resumed, the changed spec is attempted and rolled back once more.
    async fn answer_until_rolled_back(&self, story: &Story) -> Result<()> {
        let name = self.name();
        let is_over = async || {
            let events = story.lifecycle_events().await?;
            if let Some(open) = events.iter().find(|it| it.spec.subject.name == name) {
                story.answer(open, "Succeeded", "").await?;
                return Ok(None);
            }
            let object = story.expect(&self.target()).await?;
            let reason = &condition(&object, "Remediated")["reason"];
            Ok((reason == "RollbackSucceeded").then_some(()))
        };
        let what = format!("the rollback of {name} to end");
        story.await_until(&what, DEFAULT_WAIT_TIMEOUT * 2, is_over).await?;
        story.await_value(&format!("{name}-config"), "one").await.map(drop)
    }

    /// Waits for a message in the status or in an event, because a removed object has no status.
    async fn await_message(&self, story: &Story, text: &str) -> Result<()> {
        let kind = format!("{:?}", self.kind);
        let name = self.name();
        if DELETE.contains(&self.phase) {
            return story.await_event(&kind, &name, text).await;
        }
        let has_message = |object: &DynamicObject| {
            object.data["status"].to_string().contains(text)
                && condition(object, "Ready")["status"] != "True"
        };
        story.await_object(&self.target(), DEFAULT_WAIT_TIMEOUT * 2, has_message).await.map(drop)
    }

    /// Waits until the object has the value `wanted` or is deleted, and has no open LifecycleEvent.
    async fn await_end(&self, story: &Story, wanted: &str) -> Result<()> {
        match DELETE.contains(&self.phase) {
            true => {
                story.await_gone(&self.target(), DEFAULT_WAIT_TIMEOUT * 2).await?;
                let config = StoryObject::config_map(&format!("{}-config", self.name()));
                ensure!(story.read(&config).await?.is_none(), "its objects are there");
            }
            false if wanted == "bad" => self.await_rollback(story).await?,
            false => self.await_value(story, wanted).await?,
        }
        let name = self.name();
        story
            .await_until(
                &format!("no event of {name} to be left"),
                DEFAULT_WAIT_TIMEOUT,
                async || {
                    let events = story.lifecycle_events().await?;
                    let is_left = events.iter().any(|it| it.spec.subject.name == name);
                    Ok((!is_left).then_some(()))
                },
            )
            .await
    }

    /// After a failure, the object does not continue by itself. Without the binding, a removal continues.
    async fn let_go(&self, story: &Story, lifecycle: &str) -> Result<()> {
        story.delete(&StoryObject::of::<LifecycleBinding>(lifecycle)).await?;
        if DELETE.contains(&self.phase) {
            story.request(&self.target()).await.map(drop).or_else(|error| {
                // The object may be deleted by now.
                let text = format!("{error:#}");
                if text.contains("not found") { Ok(()) } else { Err(error) }
            })?;
            story.await_gone(&self.target(), DEFAULT_WAIT_TIMEOUT * 2).await?;
        }
        Ok(())
    }
}

async fn play_all(kind: MatrixApplierKind) -> Result<()> {
    let story = Story::begin("lifecycle-matrix").await?;
    let mut windlass = WindlassProcess::start_for(&story, &[]).await?;
    let mut files = vec![
        ("app/Chart.yaml".to_owned(), CHART.to_owned()),
        ("app/templates/config.yaml".to_owned(), CONFIG.to_owned()),
        ("app/templates/refused.yaml".to_owned(), REFUSED.to_owned()),
        ("helmfile.yaml.gotmpl".to_owned(), HELMFILE.to_owned()),
    ];
    for value in ["one", "two", "three"] {
        files.push((format!("{value}/config.yaml"), config_map("config", value)));
    }
    let files: Vec<(&str, String)> =
        files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
    let _upstream = story.follow("shop", &files).await?;
    let outcomes = [
        HeldPhaseOutcome::Succeeded,
        HeldPhaseOutcome::Failed,
        HeldPhaseOutcome::TimedOut,
        HeldPhaseOutcome::Newer,
        HeldPhaseOutcome::Suspended,
    ];
    let all = cases(kind, &outcomes);
    let played = stream::iter(&all).map(|case| case.play(&story)).buffer_unordered(AT_ONCE);
    played.try_collect::<()>().await?;

    // All phases wait when windlass is killed.
    let all = cases(kind, &[HeldPhaseOutcome::Killed]);
    let played = stream::iter(&all).map(|case| case.play(&story)).buffer_unordered(AT_ONCE);
    played.try_collect::<()>().await?;
    let mut before = BTreeMap::new();
    for case in &all {
        before.insert(case.name(), case.await_asked(&story, None).await?);
    }
    windlass.operator.kill()?;
    windlass.resume().await?;
    let finished = stream::iter(&all).map(|case| case.finish(&story, &before[&case.name()]));
    finished.buffer_unordered(AT_ONCE).try_collect::<()>().await?;
    let twice = story.creations(&["lifecycleevents", "releaseaudits"])?;
    // If a lifecycle refused the removal of a Kustomization, a further request belongs to the same attempt.
    let is_again = |name: &str| name.starts_with("lifecycleevents/failed-predelete-");
    let twice = twice.into_iter().filter(|(name, count)| *count > 1 && !is_again(name));
    let twice: Vec<_> = twice.collect();
    ensure!(twice.is_empty(), "{twice:?}");
    story.end_lifecycles().await
}

#[tokio::test(flavor = "multi_thread")]
async fn every_phase_and_outcome_of_a_helm_release() -> Result<()> {
    play_all(MatrixApplierKind::HelmRelease).await
}

#[tokio::test(flavor = "multi_thread")]
async fn every_phase_and_outcome_of_a_helmfile() -> Result<()> {
    play_all(MatrixApplierKind::Helmfile).await
}

#[tokio::test(flavor = "multi_thread")]
async fn every_phase_and_outcome_of_a_kustomization() -> Result<()> {
    play_all(MatrixApplierKind::Kustomization).await
}
