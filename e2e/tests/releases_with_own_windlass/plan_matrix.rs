//! Every kind and mode with every outcome of a Plan. According to the audit log of the API server, windlass writes only what an
//! approved Plan contains.
//!
//! One windlass for all cases is killed while Plans wait, after their approval, and when it begins to write.
//! Elsewhere: the content of Plans, and what replaces a Plan (`stories/plans.rs`, `releases/plans.rs`), who may approve
//! (`stories/plan_approval_rights.rs`).

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use crds::windlass_release::{Plan, PlanAction};
use e2e::harness::audited_writes::AuditedConfigMapWrite;
use e2e::harness::charts_and_helm_releases::CONFIG;
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, condition};
use e2e::harness::manifests::config_map;
use e2e::harness::{Story, StoryObject, WindlassProcess};
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use kube::ResourceExt as _;
use kube::api::DynamicObject;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::lifecycle_matrix::{CHART, HELMFILE, MatrixApplierKind};

/// How many cases run at once.
const AT_ONCE: usize = 16;

/// How long a step of a case may take while all others run beside it.
const PATIENCE: Duration = DEFAULT_WAIT_TIMEOUT.saturating_mul(2);

/// An object that only the first value has. So every change to another value removes an object, which is destructive.
const EXTRA: &str = "{{ if eq .Values.value \"one\" }}\napiVersion: v1\nkind: ConfigMap\n\
    metadata: {name: {{ .Release.Name }}-extra}\ndata: {value: {{ .Values.value | quote }}}\n{{ end }}\n";

const KINDS: [MatrixApplierKind; 3] =
    [MatrixApplierKind::Kustomization, MatrixApplierKind::HelmRelease, MatrixApplierKind::Helmfile];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PlanCaseMode {
    Automatic,
    ApproveDestructive,
    Approve,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PlanOutcome {
    Approved,
    /// The Plan is approved while the object is suspended, and then the desired state changes.
    ChangedAfterApproval,
    Rejected,
    /// The desired state changes while the object waits.
    Superseded,
    /// windlass is killed while the object waits.
    KilledAtPlan,
    /// The Plan is approved while windlass is not running.
    KilledAtApproval,
    /// windlass is killed as soon as it writes an object of these cases.
    KilledAtFirstWrite,
}

/// The outcomes that one windlass handles without being killed.
const PLAYED: [PlanOutcome; 4] = [
    PlanOutcome::Approved,
    PlanOutcome::ChangedAfterApproval,
    PlanOutcome::Rejected,
    PlanOutcome::Superseded,
];

const KILLED: [PlanOutcome; 3] =
    [PlanOutcome::KilledAtPlan, PlanOutcome::KilledAtApproval, PlanOutcome::KilledAtFirstWrite];

/// An object whose change from `one` to another value waits for a Plan, or does not wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PlanCase {
    kind: MatrixApplierKind,
    mode: PlanCaseMode,
    outcome: PlanOutcome,
}

/// An approval that was given.
struct GivenApproval {
    /// When the approval was sent, in the time format of the audit log.
    at: String,
    plan: Plan,
    /// The value in the approved Plan.
    value: &'static str,
}

/// A case, and the Plan for which it waits.
struct WaitingPlanCase<'c> {
    case: &'c PlanCase,
    plan: Plan,
}

/// All cases with some outcomes. In a mode without Plans, there is neither an approval nor a rejection.
fn cases(outcomes: &[PlanOutcome]) -> Vec<PlanCase> {
    let modes = [PlanCaseMode::Automatic, PlanCaseMode::ApproveDestructive, PlanCaseMode::Approve];
    let mut all = Vec::new();
    for kind in KINDS {
        for mode in modes {
            all.extend(outcomes.iter().map(|&outcome| PlanCase { kind, mode, outcome }));
        }
    }
    let without_plan =
        [PlanOutcome::Approved, PlanOutcome::Superseded, PlanOutcome::KilledAtFirstWrite];
    all.retain(|it| it.mode != PlanCaseMode::Automatic || without_plan.contains(&it.outcome));
    all
}

/// The cases, and the approvals that were given in them.
struct PlanMatrix<'s> {
    story: &'s Story,
    approvals: Mutex<Vec<GivenApproval>>,
}

impl PlanCase {
    fn name(&self) -> String {
        let kind = match self.kind {
            MatrixApplierKind::Kustomization => "ks",
            MatrixApplierKind::HelmRelease => "hr",
            MatrixApplierKind::Helmfile => "hf",
        };
        let mode = match self.mode {
            PlanCaseMode::Automatic => "automatic",
            PlanCaseMode::ApproveDestructive => "destructive",
            PlanCaseMode::Approve => "approve",
        };
        format!("{kind}-{mode}-{}", format!("{:?}", self.outcome).to_lowercase())
    }

    fn target(&self) -> StoryObject {
        self.kind.target(&self.name())
    }

    fn config(&self) -> String {
        format!("{}-config", self.name())
    }

    fn extra(&self) -> String {
        format!("{}-extra", self.name())
    }

    /// The object with a value. The first value is installed before anything has to wait.
    fn object(&self, namespace: &str, value: &str) -> Value {
        let mut object = self.kind.object(namespace, &self.name(), value);
        if value != "one" && self.mode != PlanCaseMode::Automatic {
            let annotations = json!({"windlass.dev/plan": format!("{:?}", self.mode)});
            object["metadata"]["annotations"] = annotations;
        }
        object
    }

    /// The value that the object has at the end.
    fn wanted(&self) -> &'static str {
        match self.outcome {
            PlanOutcome::ChangedAfterApproval | PlanOutcome::Rejected | PlanOutcome::Superseded => {
                "three"
            }
            PlanOutcome::Approved
            | PlanOutcome::KilledAtPlan
            | PlanOutcome::KilledAtApproval
            | PlanOutcome::KilledAtFirstWrite => "two",
        }
    }
}

impl PlanMatrix<'_> {
    async fn desire(&self, case: &PlanCase, value: &str) -> Result<()> {
        self.story.apply_value(case.object(&self.story.namespace, value)).await.map(drop)
    }

    /// Installs the first value, without a Plan.
    async fn install(&self, case: &PlanCase) -> Result<()> {
        self.desire(case, "one").await?;
        self.await_ready(case).await?;
        self.ensure_unwritten(case).await
    }

    async fn await_ready(&self, case: &PlanCase) -> Result<()> {
        let is_ready = |object: &DynamicObject| {
            condition(object, "Ready")["status"] == "True"
                && object.data["status"]["observedGeneration"].as_i64()
                    == object.metadata.generation
        };
        self.story.await_object(&case.target(), PATIENCE, is_ready).await.map(drop)
    }

    /// Waits for the only Plan of the object, other than `not`.
    async fn await_plan(&self, case: &PlanCase, not: Option<&Plan>) -> Result<Plan> {
        let what = format!("a Plan of {}", case.name());
        self.story
            .await_until(&what, PATIENCE, async || {
                let object = self.story.expect(&case.target()).await?;
                let mut plans = self.plans(case).await?;
                let plan = plans.pop().filter(|_| plans.is_empty());
                let plan = plan.filter(|it| not.is_none_or(|not| not.uid() != it.uid()));
                let is_said = condition(&object, "Ready")["reason"] == "PlanPending";
                Ok(plan.filter(|_| is_said))
            })
            .await
    }

    async fn plans(&self, case: &PlanCase) -> Result<Vec<Plan>> {
        let mut plans = self.story.plans().await?;
        let kind = format!("{:?}", case.kind);
        let name = case.name();
        plans.retain(|it| it.spec.subject.kind == kind && it.spec.subject.name == name);
        Ok(plans)
    }

    /// Checks that only the first value exists, also in Helm's records.
    async fn ensure_unwritten(&self, case: &PlanCase) -> Result<()> {
        for name in [case.config(), case.extra()] {
            let object = self.story.expect(&StoryObject::config_map(&name)).await?;
            ensure!(object.data["data"]["value"] == "one", "{name}: {:?}", object.data["data"]);
        }
        let record = format!("sh.helm.release.v1.{}.v2", case.name());
        let record = self.story.read(&StoryObject::new("v1", "Secret", &record)).await?;
        ensure!(record.is_none(), "a revision of {} was recorded", case.name());
        Ok(())
    }

    /// Approves a Plan as the administrator. It does not use the command, which would take longer than the operation. Other
    /// stories run the command.
    async fn approve(&self, plan: Plan, value: &'static str) -> Result<()> {
        let name = plan.name_any();
        let at = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string();
        self.approvals.lock().push(GivenApproval { at, plan, value });
        let approval = json!({"user": "admin", "groups": ["system:masters"]});
        let status = json!({"status": {"approvals": [approval]}});
        self.story.merge_status(&StoryObject::of::<Plan>(&name), status).await.map(drop)
    }

    /// Rejects a Plan, and checks that the rejection stays.
    async fn reject(&self, case: &PlanCase, plan: &Plan) -> Result<()> {
        let story = self.story;
        let named = format!("plan/{}", plan.name_any());
        let approve = ["approve", named.as_str(), "-n", story.namespace.as_str()];
        let reject = ["--reject", "--comment", "not today"];
        story.windlass_says(&[&approve[..], &reject[..]].concat(), true)?;
        let target = case.target();
        let is_rejected = |object: &DynamicObject| {
            let ready = condition(object, "Ready");
            ready["reason"] == "PlanRejected"
                && ready["status"] == "False"
                && ready["message"].to_string().contains("is rejected by admin (not today)")
        };
        story.await_object(&target, PATIENCE, is_rejected).await?;
        let refused = story.windlass_says(&approve, false)?;
        ensure!(refused.contains("is rejected by admin, which is final"), "{refused}");
        // An approval that is written beside the rejection does not count.
        let approvals = json!([{"user": "admin", "groups": ["system:masters"]}]);
        let status = json!({"status": {"approvals": approvals}});
        story.merge_status(&StoryObject::of::<Plan>(&plan.name_any()), status).await?;
        let token = story.request(&target).await?;
        let is_handled = |object: &DynamicObject| {
            object.data["status"]["lastHandledReconcileAt"] == token.as_str()
                && condition(object, "Ready")["reason"] == "PlanRejected"
        };
        story.await_object(&target, PATIENCE, is_handled).await?;
        let plans = self.plans(case).await?;
        ensure!(plans.len() == 1 && plans[0].uid() == plan.uid(), "{plans:?}");
        self.ensure_unwritten(case).await
    }

    async fn await_end(&self, case: &PlanCase) -> Result<()> {
        let story = self.story;
        let wanted = case.wanted();
        let config = StoryObject::config_map(&case.config());
        let is_wanted = |object: &DynamicObject| object.data["data"]["value"] == wanted;
        story.await_object(&config, PATIENCE, is_wanted).await?;
        story.await_gone(&StoryObject::config_map(&case.extra()), PATIENCE).await?;
        self.await_ready(case).await?;
        let what = format!("no Plan of {} to be left", case.name());
        story
            .await_until(&what, PATIENCE, async || {
                Ok(self.plans(case).await?.is_empty().then_some(()))
            })
            .await
    }

    /// Runs a case until windlass has to be killed. In a mode without Plans, this is before the change.
    async fn begin(&self, case: &PlanCase) -> Result<()> {
        match case.mode {
            PlanCaseMode::Automatic => self.install(case).await,
            PlanCaseMode::ApproveDestructive | PlanCaseMode::Approve => self.play(case).await,
        }
    }

    /// Runs a case to its end, or until windlass has to be killed.
    async fn play(&self, case: &PlanCase) -> Result<()> {
        self.play_steps(case).await.with_context(|| format!("{case:?}"))
    }

    async fn play_steps(&self, case: &PlanCase) -> Result<()> {
        self.install(case).await?;
        self.desire(case, "two").await?;
        if case.mode == PlanCaseMode::Automatic {
            if case.wanted() != "two" {
                self.desire(case, case.wanted()).await?;
            }
            return self.await_end(case).await;
        }
        let plan = self.await_plan(case, None).await?;
        self.ensure_unwritten(case).await?;
        match case.outcome {
            PlanOutcome::Approved => self.approve(plan, "two").await?,
            PlanOutcome::ChangedAfterApproval => {
                let target = case.target();
                self.story.merge(&target, json!({"spec": {"suspend": true}})).await?;
                // The story continues only after windlass has noticed the suspension.
                self.await_suspended(&target).await?;
                self.approve(plan.clone(), "two").await?;
                self.desire(case, "three").await?;
                self.story.merge(&target, json!({"spec": {"suspend": false}})).await?;
                self.approve_another(case, &plan).await?;
            }
            PlanOutcome::Rejected => {
                self.reject(case, &plan).await?;
                self.desire(case, "three").await?;
                self.approve_another(case, &plan).await?;
            }
            PlanOutcome::Superseded => {
                self.desire(case, "three").await?;
                self.approve_another(case, &plan).await?;
            }
            PlanOutcome::KilledAtPlan
            | PlanOutcome::KilledAtApproval
            | PlanOutcome::KilledAtFirstWrite => return Ok(()),
        }
        self.await_end(case).await
    }

    /// Unlike a waiting object, a suspended one is not Unknown.
    async fn await_suspended(&self, target: &StoryObject) -> Result<()> {
        let is_suspended = |object: &DynamicObject| {
            condition(object, "Ready")["status"] != "Unknown"
                && condition(object, "Reconciling")["status"] != "True"
        };
        self.story.await_object(target, PATIENCE, is_suspended).await.map(drop)
    }

    /// Approves the Plan that replaced another one with another content.
    async fn approve_another(&self, case: &PlanCase, not: &Plan) -> Result<()> {
        let plan = self.await_plan(case, Some(not)).await?;
        let is_open =
            plan.status.iter().all(|it| it.approvals.is_empty() && it.rejection.is_none());
        ensure!(is_open, "the answer to another Plan counts: {:?}", plan.status);
        self.ensure_unwritten(case).await?;
        self.approve(plan, "three").await
    }

    /// Whether an earlier approval covers a write.
    fn is_approved(&self, write: &AuditedConfigMapWrite) -> bool {
        let id = format!("{}_{}__ConfigMap", self.story.namespace, write.name);
        let action = match write.action.as_str() {
            "created" => PlanAction::Added,
            "changed" => PlanAction::Changed,
            _ => PlanAction::Removed,
        };
        self.approvals.lock().iter().any(|given| {
            let mut objects = given.plan.spec.changes.iter().flat_map(|it| &it.objects);
            let is_listed = objects.any(|it| it.id == id && it.action == action);
            let is_its_value =
                write.action == "removed" || write.value.as_deref() == Some(given.value);
            given.at <= write.at && is_listed && is_its_value
        })
    }

    /// Checks each write in the audit log.
    async fn ensure_only_approved_writes(&self, all: &[PlanCase]) -> Result<()> {
        self.story.await_log().await?;
        let writes = self.story.config_map_writes()?;
        for case in all {
            let [config, extra] = [case.config(), case.extra()];
            let its = writes.iter().filter(|it| it.name == config || it.name == extra);
            let is_first = |it: &AuditedConfigMapWrite| {
                it.action == "created" && it.value.as_deref() == Some("one")
            };
            let later: Vec<&AuditedConfigMapWrite> = its.filter(|it| !is_first(it)).collect();
            let of_wanted = later.iter().filter(|it| it.value.as_deref() == Some(case.wanted()));
            ensure!(of_wanted.count() == 1, "{case:?} was written otherwise: {later:?}");
            if case.mode == PlanCaseMode::Automatic {
                continue;
            }
            for write in later {
                ensure!(self.is_approved(write), "{case:?}: no approved Plan has {write:?}");
            }
        }
        // Apart from the key for digests, nothing else was written.
        let other = self.story.changes()?.into_iter().filter(|change| {
            !change.contains(" configmaps/")
                && !change.contains(" leases/")
                && change != "created secrets/windlass-plan-key"
        });
        let other: Vec<String> = other.collect();
        ensure!(other.is_empty(), "{other:?}");
        Ok(())
    }

    /// Checks that a case still waits for the same Plan as before windlass was killed, and that nothing was written.
    async fn ensure_waiting(&self, case: &PlanCase, before: &Plan) -> Result<()> {
        let target = case.target();
        let token = self.story.request(&target).await?;
        // As with Flux, a waiting release reports only at its end that it handled a request.
        if case.kind == MatrixApplierKind::Kustomization {
            let is_handled = |object: &DynamicObject| {
                object.data["status"]["lastHandledReconcileAt"] == token.as_str()
            };
            self.story.await_object(&target, PATIENCE, is_handled).await?;
        }
        let plan = self.await_plan(case, None).await?;
        ensure!(plan.uid() == before.uid(), "{case:?} has another Plan: {:?}", plan.spec);
        self.ensure_unwritten(case).await
    }
}

/// The files of all kinds, with each value.
fn files() -> Vec<(String, String)> {
    let mut files = vec![
        ("app/Chart.yaml".to_owned(), CHART.to_owned()),
        ("app/templates/config.yaml".to_owned(), CONFIG.to_owned()),
        ("app/templates/extra.yaml".to_owned(), EXTRA.to_owned()),
        ("helmfile.yaml.gotmpl".to_owned(), HELMFILE.to_owned()),
        ("one/extra.yaml".to_owned(), config_map("extra", "one")),
    ];
    for value in ["one", "two", "three"] {
        files.push((format!("{value}/config.yaml"), config_map("config", value)));
    }
    files
}

/// Runs cases in which windlass is killed, and whose Plans wait.
async fn play_kills(
    matrix: &PlanMatrix<'_>,
    windlass: &mut WindlassProcess,
    all: &[PlanCase],
) -> Result<()> {
    let of = |outcome: PlanOutcome| all.iter().filter(move |it| it.outcome == outcome);
    let mut waiting = Vec::new();
    for case in all.iter().filter(|it| it.mode != PlanCaseMode::Automatic) {
        waiting.push(WaitingPlanCase { case, plan: matrix.await_plan(case, None).await? });
    }
    let plan_of = |case: &PlanCase| {
        let found = waiting.iter().find(|it| it.case == case);
        found.map(|it| it.plan.clone()).context("a Plan of the case")
    };
    // windlass is killed while the cases wait.
    windlass.operator.kill()?;
    windlass.resume().await?;
    let again = stream::iter(&waiting).map(|it| matrix.ensure_waiting(it.case, &it.plan));
    again.buffer_unordered(AT_ONCE).try_collect::<()>().await?;
    for case in of(PlanOutcome::KilledAtPlan) {
        matrix.approve(plan_of(case)?, "two").await?;
    }
    for case in of(PlanOutcome::KilledAtPlan) {
        matrix.await_end(case).await?;
    }
    // windlass is killed while the Plans are approved.
    windlass.operator.kill()?;
    for case in of(PlanOutcome::KilledAtApproval) {
        matrix.approve(plan_of(case)?, "two").await?;
        matrix.ensure_unwritten(case).await?;
    }
    windlass.resume().await?;
    for case in of(PlanOutcome::KilledAtApproval) {
        matrix.await_end(case).await?;
    }
    // windlass is killed as soon as it writes an object of these cases.
    let first: Vec<&PlanCase> = of(PlanOutcome::KilledAtFirstWrite).collect();
    for case in &first {
        match case.mode {
            PlanCaseMode::Automatic => matrix.desire(case, "two").await?,
            PlanCaseMode::ApproveDestructive | PlanCaseMode::Approve => {
                matrix.approve(plan_of(case)?, "two").await?;
            }
        }
    }
    let is_begun = async || {
        for case in &first {
            let config = matrix.story.expect(&StoryObject::config_map(&case.config())).await?;
            if config.data["data"]["value"] == "two" {
                return Ok::<_, anyhow::Error>(Some(()));
            }
        }
        Ok(None)
    };
    matrix.story.await_until("a first write", PATIENCE, is_begun).await?;
    windlass.operator.kill()?;
    windlass.resume().await?;
    for case in first {
        matrix.await_end(case).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_written_that_was_not_in_an_approved_plan() -> Result<()> {
    let story = Story::begin("plan-matrix").await?;
    let mut windlass = WindlassProcess::start_for(&story, &[]).await?;
    let files = files();
    let files: Vec<(&str, String)> =
        files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
    let _upstream = story.follow("shop", &files).await?;
    let matrix = PlanMatrix { story: &story, approvals: Mutex::default() };
    let played = cases(&PLAYED);
    let plays = stream::iter(&played).map(|case| matrix.play(case)).buffer_unordered(AT_ONCE);
    plays.try_collect::<()>().await?;

    let killed = cases(&KILLED);
    let begun = stream::iter(&killed).map(|case| matrix.begin(case)).buffer_unordered(AT_ONCE);
    begun.try_collect::<()>().await?;
    play_kills(&matrix, &mut windlass, &killed).await?;

    let all = [played, killed].concat();
    matrix.ensure_only_approved_writes(&all).await?;
    story.end().await
}
