//! The Secret with the values of a HelmRelease and the variables of a Kustomization disappears.
//!
//! Here: the objects, and how windlass reacts. Elsewhere: how Flux reacts (`super::objects_lost_with_flux`), values and
//! variables in general (`releases/values_from.rs`, `stories/substitution.rs`).

use anyhow::{Result, ensure};
use e2e::harness::charts_and_helm_releases::StoryChartRepository;
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, FollowedGitRepository};
use e2e::harness::{Story, StoryObject};
use serde_json::json;

use super::{COUNT, ConfigMapUids, ROOT, borrowed, ensure_nothing_is_lost, files, uids, windlass};

/// The name of the Secret.
const NAME: &str = "given";

/// The template of a ConfigMap that is rendered only with a value of the Secret.
const CHOSEN: &str = "{{ if .Values.enabled }}\napiVersion: v1\nkind: ConfigMap\n\
    metadata: {name: {{ .Release.Name }}-chosen}\ndata: {value: chosen}\n{{ end }}\n";

/// A ConfigMap with a variable of the Secret in its name.
const NAMED: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: ${prefix}-named\n";

/// The objects that need the Secret, all of them Ready.
pub(super) struct MissingSecretDisasterSetup<'s> {
    story: &'s Story,
    /// The servers end when this is dropped.
    _upstream: FollowedGitRepository<'s>,
    _charts: StoryChartRepository<'s>,
    targets: [StoryObject; 2],
    /// The objects.
    pub(super) before: ConfigMapUids,
}

impl<'s> MissingSecretDisasterSetup<'s> {
    /// Lets the operator in the story's namespace apply everything.
    pub(super) async fn set(story: &'s Story) -> Result<Self> {
        give(story).await?;
        let mut first = files("");
        first.push(("named.yaml".to_owned(), NAMED.to_owned()));
        let upstream = story.follow("app", &borrowed(&first)).await?;
        let given = json!([{"kind": "Secret", "name": NAME}]);
        story.kustomization(ROOT, "app", json!({"postBuild": {"substituteFrom": given}})).await?;
        let charts = StoryChartRepository::of(story).await?;
        charts.publish("1.0.0", &[("templates/a.yaml", CHOSEN)]).await?;
        let values = json!([{"kind": "Secret", "name": NAME, "valuesKey": "enabled", "targetPath": "enabled"}]);
        let release = charts.release("web", json!({"valuesFrom": values})).await?;
        let targets = [StoryObject::kustomization(ROOT), release];
        for target in &targets {
            story.await_ready(target).await?;
        }
        let before = uids(story, &story.namespace).await?;
        ensure!(before.len() == COUNT + 2, "{before:?}");
        Ok(Self { story, _upstream: upstream, _charts: charts, targets, before })
    }

    /// Deletes the Secret, and waits until both objects have failed because of that.
    pub(super) async fn happen(&self) -> Result<()> {
        self.story.delete(&StoryObject::new("v1", "Secret", NAME)).await?;
        for target in &self.targets {
            self.story.request(target).await?;
            self.story.await_condition(target, "Ready", "False", DEFAULT_WAIT_TIMEOUT).await?;
        }
        Ok(())
    }

    /// Creates the Secret again, and waits until both objects are Ready.
    pub(super) async fn heal(&self) -> Result<()> {
        give(self.story).await?;
        for target in &self.targets {
            self.story.request(target).await?;
            self.story.await_ready(target).await?;
        }
        Ok(())
    }
}

/// Creates the Secret that was missing until now.
async fn give(story: &Story) -> Result<()> {
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": NAME},
        "stringData": {"prefix": "chosen", "enabled": "true"}});
    story.apply_value(secret).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_of_values_that_vanishes_loses_no_object() -> Result<()> {
    let story = Story::begin("lost-secret").await?;
    let (proxy, _windlass) = windlass(&story).await?;
    let stage = MissingSecretDisasterSetup::set(&story).await?;
    stage.happen().await?;
    ensure_nothing_is_lost(&story, &proxy, &story.namespace, &stage.before).await?;
    stage.heal().await?;
    ensure_nothing_is_lost(&story, &proxy, &story.namespace, &stage.before).await?;
    story.end().await
}
