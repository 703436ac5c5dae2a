//! A Freeze, and everything that may start an operation on a HelmRelease or a Helmfile. The triggers are a changed spec,
//! approvals of Plans and lifecycles, drift, and the deletion by a user. Also the commands that show what a Freeze holds.
//!
//! All cases run in parallel under one Freeze, which ends, or which a user with the right bypasses for each of them. Elsewhere:
//! new revisions, requested rollbacks, prunes (`releases/freezes.rs`), more triggers of Kustomizations
//! (`stories/freeze_triggers.rs`), waves (`stories/staged_rollouts.rs`).

use std::time::Duration;

use anyhow::{Result, ensure};
use crds::operation_lifecycle::LifecycleEvent;
use crds::windlass_release::Plan;
use e2e::harness::charts_and_helm_releases::CONFIG;
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, condition};
use e2e::harness::manifests::config_map;
use e2e::harness::{Story, StoryObject, WindlassProcess};
use kube::ResourceExt as _;
use kube::api::DynamicObject;
use serde_json::{Value, json};

use super::lifecycle_matrix::{CHART, HELMFILE, MatrixApplierKind, SEEN};

/// How long a step of a case may take while all others run beside it.
const PATIENCE: Duration = DEFAULT_WAIT_TIMEOUT.saturating_mul(2);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FreezeTrigger {
    /// The values change.
    Spec,
    /// A Plan that waited before is approved.
    Plan,
    /// A LifecycleEvent that waited before is answered.
    Lifecycle,
    /// An object in the cluster changes, and the Freeze leaves it unchanged.
    Drift,
    /// A user deletes the object, which a Freeze allows.
    Deletion,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FreezeTriggerCase {
    kind: MatrixApplierKind,
    trigger: FreezeTrigger,
}

/// Helmfiles correct no drift. Deletions of HelmReleases by users have their own story.
const CASES: [FreezeTriggerCase; 8] = [
    FreezeTriggerCase { kind: MatrixApplierKind::HelmRelease, trigger: FreezeTrigger::Spec },
    FreezeTriggerCase { kind: MatrixApplierKind::HelmRelease, trigger: FreezeTrigger::Plan },
    FreezeTriggerCase { kind: MatrixApplierKind::HelmRelease, trigger: FreezeTrigger::Lifecycle },
    FreezeTriggerCase { kind: MatrixApplierKind::HelmRelease, trigger: FreezeTrigger::Drift },
    FreezeTriggerCase { kind: MatrixApplierKind::Helmfile, trigger: FreezeTrigger::Spec },
    FreezeTriggerCase { kind: MatrixApplierKind::Helmfile, trigger: FreezeTrigger::Plan },
    FreezeTriggerCase { kind: MatrixApplierKind::Helmfile, trigger: FreezeTrigger::Lifecycle },
    FreezeTriggerCase { kind: MatrixApplierKind::Helmfile, trigger: FreezeTrigger::Deletion },
];

/// The cases of operations for which users bypass the Freeze. It does not hold deletions by users.
const BYPASSED_CASES: [FreezeTriggerCase; 9] = [
    FreezeTriggerCase { kind: MatrixApplierKind::HelmRelease, trigger: FreezeTrigger::Spec },
    FreezeTriggerCase { kind: MatrixApplierKind::HelmRelease, trigger: FreezeTrigger::Plan },
    FreezeTriggerCase { kind: MatrixApplierKind::HelmRelease, trigger: FreezeTrigger::Lifecycle },
    FreezeTriggerCase { kind: MatrixApplierKind::Helmfile, trigger: FreezeTrigger::Spec },
    FreezeTriggerCase { kind: MatrixApplierKind::Helmfile, trigger: FreezeTrigger::Plan },
    FreezeTriggerCase { kind: MatrixApplierKind::Helmfile, trigger: FreezeTrigger::Lifecycle },
    FreezeTriggerCase { kind: MatrixApplierKind::Kustomization, trigger: FreezeTrigger::Spec },
    FreezeTriggerCase { kind: MatrixApplierKind::Kustomization, trigger: FreezeTrigger::Plan },
    FreezeTriggerCase { kind: MatrixApplierKind::Kustomization, trigger: FreezeTrigger::Lifecycle },
];

impl FreezeTriggerCase {
    fn name(self) -> String {
        format!("{:?}-{:?}", self.kind, self.trigger).to_lowercase()
    }

    fn target(self) -> StoryObject {
        self.kind.target(&self.name())
    }

    /// The object as an argument of commands.
    fn argument(self) -> String {
        format!("{:?}/{}", self.kind, self.name()).to_lowercase()
    }

    fn config(self) -> String {
        format!("{}-config", self.name())
    }

    /// The object with a value. Only later changes wait for approval, not its installation.
    fn object(self, namespace: &str, value: &str) -> Value {
        let mut object = self.kind.object(namespace, &self.name(), value);
        match self.trigger {
            FreezeTrigger::Drift => {
                object["spec"]["driftDetection"] = json!({"mode": "enabled"});
            }
            FreezeTrigger::Plan if value != "one" => {
                object["metadata"]["annotations"] = json!({"windlass.dev/plan": "Approve"});
            }
            _ => {}
        }
        object
    }

    async fn desire(self, story: &Story, value: &str) -> Result<()> {
        story.apply_value(self.object(&story.namespace, value)).await.map(drop)
    }

    async fn await_value(self, story: &Story, value: &str) -> Result<()> {
        let has_value = |object: &DynamicObject| object.data["data"]["value"] == value;
        let config = StoryObject::config_map(&self.config());
        story.await_object(&config, PATIENCE, has_value).await.map(drop)
    }

    /// Waits for the Plan of the object.
    async fn await_plan(self, story: &Story) -> Result<Plan> {
        let name = self.name();
        let what = format!("a Plan of {name}");
        let is_its = |plan: &Plan| {
            plan.spec.subject.name == name
                && plan.spec.subject.kind == format!("{:?}", self.kind)
                && plan.spec.changes.is_some()
        };
        story
            .await_until(&what, PATIENCE, async || {
                Ok(story.plans().await?.into_iter().find(is_its))
            })
            .await
    }

    /// Waits for the LifecycleEvent of the object.
    async fn await_asked(self, story: &Story) -> Result<LifecycleEvent> {
        let name = self.name();
        let what = format!("{name} to be asked about");
        let is_its = |it: &LifecycleEvent| {
            it.spec.subject.name == name && it.spec.subject.kind == format!("{:?}", self.kind)
        };
        story
            .await_until(&what, PATIENCE, async || {
                Ok(story.lifecycle_events().await?.into_iter().find(is_its))
            })
            .await
    }

    /// Installs the object. If the case is about an approval, the next change waits for an answer.
    async fn prepare(self, story: &Story) -> Result<()> {
        self.desire(story, "one").await?;
        story.await_object(&self.target(), PATIENCE, is_ready).await?;
        match self.trigger {
            FreezeTrigger::Plan => {
                self.desire(story, "two").await?;
                self.await_plan(story).await.map(drop)
            }
            FreezeTrigger::Lifecycle => {
                let name = self.name();
                let check = story.lifecycle(&name, &["PreUpgrade"], json!({})).await?;
                let subjects = json!([{"kind": format!("{:?}", self.kind), "name": name}]);
                story.bind(&check, json!({"subjects": subjects})).await?;
                // windlass watches bindings separately, so it may notice a binding later than the object.
                tokio::time::sleep(SEEN).await;
                self.desire(story, "two").await?;
                self.await_asked(story).await.map(drop)
            }
            FreezeTrigger::Spec | FreezeTrigger::Drift | FreezeTrigger::Deletion => Ok(()),
        }
    }

    /// Triggers an operation, and waits until the object says that the Freeze holds it.
    async fn pull(self, story: &Story) -> Result<()> {
        let target = self.target();
        match self.trigger {
            FreezeTrigger::Spec => self.desire(story, "two").await?,
            FreezeTrigger::Plan => {
                let plan = self.await_plan(story).await?;
                let approval = json!({"user": "admin", "groups": ["system:masters"]});
                let status = json!({"status": {"approvals": [approval]}});
                story.merge_status(&StoryObject::of::<Plan>(&plan.name_any()), status).await?;
            }
            FreezeTrigger::Lifecycle => {
                let event = self.await_asked(story).await?;
                story.answer(&event, "Succeeded", "").await?;
            }
            FreezeTrigger::Drift => {
                let by_hand = json!({"data": {"value": "by hand"}});
                story.merge(&StoryObject::config_map(&self.config()), by_hand).await?;
            }
            FreezeTrigger::Deletion => {
                story.delete(&target).await?;
                return story.await_gone(&target, PATIENCE).await;
            }
        }
        // The object has been held since windlass noticed the Freeze. Only a reconciliation after the trigger shows that the
        // trigger changes nothing.
        let token = story.request(&target).await?;
        let is_held = |object: &DynamicObject| {
            object.data["status"]["lastHandledReconcileAt"] == token.as_str() && is_frozen(object)
        };
        story.await_object(&target, PATIENCE, is_held).await.map(drop)
    }

    /// The value of the case's ConfigMap while the Freeze denies changes. `None` if the ConfigMap does not exist then.
    fn frozen_value(self) -> Option<&'static str> {
        match self.trigger {
            FreezeTrigger::Drift => Some("by hand"),
            FreezeTrigger::Deletion => None,
            FreezeTrigger::Spec | FreezeTrigger::Plan | FreezeTrigger::Lifecycle => Some("one"),
        }
    }

    /// The value of its ConfigMap after the Freeze.
    fn final_value(self) -> &'static str {
        if self.trigger == FreezeTrigger::Drift { "one" } else { "two" }
    }
}

fn is_ready(object: &DynamicObject) -> bool {
    let ready = condition(object, "Ready");
    ready["status"] == "True" && ready["observedGeneration"].as_i64() == object.metadata.generation
}

/// Whether an object waits for the end of the Freeze, or its drift is not corrected.
fn is_frozen(object: &DynamicObject) -> bool {
    let is_said = |kind: &str| condition(object, kind)["reason"] == "Frozen";
    is_said("Ready") || is_said("windlass.dev/Freeze")
}

/// The files of all kinds and values.
fn files() -> [(&'static str, String); 5] {
    [
        ("app/Chart.yaml", CHART.to_owned()),
        ("app/templates/config.yaml", CONFIG.to_owned()),
        ("helmfile.yaml.gotmpl", HELMFILE.to_owned()),
        ("one/config.yaml", config_map("config", "one")),
        ("two/config.yaml", config_map("config", "two")),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_begins_an_operation_on_a_release_waits_for_the_end_of_a_freeze() -> Result<()> {
    let story = Story::begin("freeze-matrix").await?;
    let _windlass = WindlassProcess::start_for(&story, &[]).await?;
    let _upstream = story.follow("shop", &files()).await?;
    let prepared = CASES.map(|case| case.prepare(&story));
    futures::future::try_join_all(prepared).await?;

    let kinds = json!(["HelmRelease", "Helmfile"]);
    let freeze = story.freeze(json!({"driftCorrection": "Deny", "kinds": kinds})).await?;
    // Objects without a change show that windlass has noticed the Freeze.
    for case in CASES.into_iter().filter(|it| it.trigger == FreezeTrigger::Drift) {
        story.request(&case.target()).await?;
        story.await_object(&case.target(), PATIENCE, is_frozen).await?;
    }
    futures::future::try_join_all(CASES.map(|case| case.pull(&story))).await?;
    let place = story.namespace.clone();
    let named = format!("freeze/{place}");
    let row = story.windlass_says(&["get", &named], true)?;
    ensure!(row.contains("denies without a known end: the sales week; holds Helm"), "{row}");
    let tree = story.windlass_says(&["tree", &named], true)?;
    for case in CASES {
        let value = case.frozen_value();
        let config = story.read(&StoryObject::config_map(&case.config())).await?;
        let has = config.as_ref().and_then(|it| it.data["data"]["value"].as_str());
        ensure!(has == value, "{case:?} has {has:?}");
        let object = format!("{:?}/{place}/{}", case.kind, case.name());
        ensure!(tree.contains(&object) == value.is_some(), "{object}: {tree}");
    }

    story.delete(&freeze).await?;
    for case in CASES.into_iter().filter(|it| it.trigger != FreezeTrigger::Deletion) {
        case.await_value(&story, case.final_value()).await?;
        story.await_object(&case.target(), PATIENCE, is_ready).await?;
    }
    story.await_no_plans().await?;
    story.end_lifecycles().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_with_the_right_lets_each_operation_begin_and_others_are_refused() -> Result<()> {
    let story = Story::begin("freeze-bypasses").await?;
    let _windlass = WindlassProcess::start_for(&story, &[]).await?;
    let _upstream = story.follow("shop", &files()).await?;
    let prepared = BYPASSED_CASES.map(|case| case.prepare(&story));
    futures::future::try_join_all(prepared).await?;
    let freeze = story.freeze(json!({"driftCorrection": "Deny"})).await?;
    let mut made = story.enforce_freezes().await?;
    made.extend(story.bypass_users().await?);
    let (robot, binding) = story.robot().await?;
    made.push(binding);
    // Objects without a change show that windlass has noticed the Freeze.
    for case in BYPASSED_CASES.into_iter().filter(|it| it.trigger == FreezeTrigger::Spec) {
        story.request(&case.target()).await?;
        story.await_object(&case.target(), PATIENCE, is_frozen).await?;
    }
    futures::future::try_join_all(BYPASSED_CASES.map(|case| case.pull(&story))).await?;

    for case in BYPASSED_CASES {
        story.refuse_bypasses(&robot, &case.target()).await?;
        let config = story.expect(&StoryObject::config_map(&case.config())).await?;
        ensure!(config.data["data"]["value"] == "one", "{case:?}: {:?}", config.data);
    }
    for case in BYPASSED_CASES {
        story.bypass_as("alice", &case.argument(), true)?;
    }
    for case in BYPASSED_CASES {
        case.await_value(&story, "two").await?;
        story.await_object(&case.target(), PATIENCE, is_ready).await?;
    }
    let alice = format!("{}-alice", story.namespace);
    let used = story.bypasses().await?;
    ensure!(used.len() == BYPASSED_CASES.len(), "{used:?}");
    for bypass in &used {
        let status = bypass.status.clone().unwrap_or_default();
        ensure!(bypass.spec.user == alice && status.used_at.is_some(), "{bypass:?}");
    }
    made.push(freeze);
    for target in &made {
        story.delete(target).await?;
    }
    story.await_no_plans().await?;
    story.end_lifecycles().await
}
