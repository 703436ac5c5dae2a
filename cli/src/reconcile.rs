//! `windlass reconcile`: requests reconciliations, and waits until they end.
//!
//! Below: objects that wait for dependencies (`reconcile/dependency_wait.rs`). Elsewhere: choosing objects (`suspend.rs`), the
//! request (`windlass_answers::actions`), the hint if the operator does not react (`operator_reaction_wait.rs`).

mod dependency_wait;

use std::cell::RefCell;
use std::time::Duration;

use anyhow::{bail, ensure};
use cause::{CauseKind, ExaminedObjectState, StateExplanation, condition, object_references};
use clap::Args as ClapArgs;
use futures::stream::{self, StreamExt as _};
use objects::{Object, ObjectId};
use serde_json::Value;

use self::dependency_wait::DependencyWait;
use super::command_scope::CommandScope;
use super::helmfile_release_suspension;
use super::kind_argument::{self, ResourceArgument};
use super::object_row::ObjectRow;
use super::operator_reaction_wait::OperatorReactionWait;
use super::suspend::{ObjectSelectionArgs, each, to_change};
use windlass_answers::actions::reconciliation::{
    ReconciliationRequest, RequestedReconciliation, no_run,
};
use windlass_answers::cause_facts::{AT_ONCE, resource, unserved};
use windlass_answers::why;
use windlass_cli_installation::cluster_operators;
use windlass_cli_runtime::connection::{ProgressGlyph, say};
use windlass_cli_runtime::exit_code::ExitCode;
use windlass_cli_runtime::table::clean;

/// The flags of `windlass reconcile`.
#[derive(Debug, Clone, ClapArgs)]
pub(super) struct ReconcileArgs {
    #[command(flatten)]
    chosen: ObjectSelectionArgs,
    /// Reason, kept in the audit
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// First reconcile the sources that the object gets its files from
    #[arg(long)]
    with_source: bool,
    /// Upgrade a HelmRelease, even if nothing has changed
    #[arg(long)]
    force: bool,
    /// Forget the failures of a HelmRelease, so that it is retried
    #[arg(long)]
    reset: bool,
    /// Only ask, and wait for nothing
    #[arg(long)]
    no_wait: bool,
    /// The default
    #[arg(long, hide = true, conflicts_with = "no_wait")]
    wait: bool,
}

pub(super) const EXAMPLES: &str = "Examples:
  windlass reconcile ks/app -n apps --with-source
  windlass reconcile hr/web -n apps --reset
  windlass reconcile sources --all -n apps --no-wait
  windlass reconcile helmfile/all -n apps --release db

All requests are made first; then each object is followed until it is reconciled, unless --no-wait is given. An object that
waits for dependencies is followed while they are being reconciled. One whose source is not ready is not up to date: that
fails, with and without --with-source. A suspended source fails with --with-source, and is a warning without it.

The status is that of the reconciliation, as `flux reconcile` has it. An object may be ready while something that it applied is
not, such as Pods that crash where nothing waits for them: a warning names it, and `windlass why KIND/NAME` ends with 1. To have
it fail the reconciliation, set spec.wait of a Kustomization, and leave waiting enabled in a HelmRelease.

Exit status: 0, also if something that was applied is not healthy; 2 if an object was not reconciled, or is not ready afterwards;
3 if the cluster cannot be reached.";

/// The maximum number of objects whose applied objects are examined.
const MOST_EXAMINED: usize = 16;

/// How often the command reads an object for which it waits.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// The event for which the command waits.
#[derive(Debug, Clone)]
pub(super) enum AwaitedReconciliation {
    /// windlass has handled this request.
    Request(String),
    /// windlass has reconciled the current generation.
    Generation,
}

/// Requests reconciliations.
///
/// # Errors
/// Something is wrong, and nothing was requested.
pub(super) fn run(args: &ReconcileArgs) -> anyhow::Result<ExitCode> {
    args.chosen.scope.place.run(async |site| {
        let asked: RefCell<Vec<FollowedObject>> = RefCell::new(Vec::new());
        let ended = each(&site, &args.chosen, async |target, object| {
            let of = request(&site, args, target, object).await?;
            asked.borrow_mut().extend(of);
            Ok(())
        });
        let ended = ended.await?;
        let asked = asked.into_inner();
        if args.no_wait {
            let absence = cluster_operators::absence(&site.cluster, jiff::Timestamp::now()).await;
            for of in &asked {
                let subject = clean(&of.object.id().subject());
                if absence.is_some() {
                    let text = format!("{subject}: a reconciliation is asked for");
                    say(ProgressGlyph::Warning, &text);
                } else {
                    say(ProgressGlyph::Success, &format!("{subject} will be reconciled"));
                }
            }
            if let Some(text) = absence {
                say(ProgressGlyph::Warning, &text);
            }
            return Ok(ended);
        }
        let all_ready = follow(&site, &asked).await?;
        Ok(if all_ready { ended } else { ExitCode::Failed })
    })
}

/// An object whose reconciliation the command follows.
pub(super) struct FollowedObject {
    pub(super) target: ResourceArgument,
    pub(super) object: Object,
    pub(super) awaited: AwaitedReconciliation,
    /// The status row of the Helmfile's release that the user named.
    pub(super) release: Option<Value>,
    /// Whether the command also requested a reconciliation of the sources.
    pub(super) with_source: bool,
}

/// Requests the reconciliation of one object. If windlass does not reconcile the object, there is nothing to follow.
async fn request(
    site: &CommandScope,
    args: &ReconcileArgs,
    target: &ResourceArgument,
    object: &Object,
) -> anyhow::Result<Option<FollowedObject>> {
    ensure!(
        !ObjectRow::of(object, jiff::Timestamp::now()).is_suspended(),
        "it is suspended; `windlass resume` ends that"
    );
    let is_release = object.kind() == "HelmRelease";
    ensure!(is_release || !(args.force || args.reset), "--force and --reset are for HelmReleases");
    let release = args.chosen.release.as_ref();
    let release =
        release.map(|release| helmfile_release_suspension::named(object, release)).transpose()?;
    let asked = ReconciliationRequest {
        reason: args.reason.as_deref(),
        is_forced: args.force,
        is_reset: args.reset,
    };
    if args.with_source {
        for (target, source) in chain(site, object).await? {
            match no_run(&source) {
                Some(why) => say(ProgressGlyph::Warning, &why),
                None => {
                    let asked = asked.make(&to_change(site, &target, &source)).await?;
                    let awaited = AwaitedReconciliation::Request(asked.token);
                    await_run(site, &target, &asked.object, awaited, args.with_source).await?;
                }
            }
        }
    }
    if let Some(why) = no_run(object) {
        say(ProgressGlyph::Warning, &why);
        return Ok(None);
    }
    let RequestedReconciliation { object, token } =
        asked.make(&to_change(site, target, object)).await?;
    let awaited = AwaitedReconciliation::Request(token);
    let with_source = args.with_source;
    Ok(Some(FollowedObject { target: target.clone(), object, awaited, release, with_source }))
}

/// Follows several reconciliations at once, because one may wait for another. Returns whether all objects are ready.
///
/// # Errors
/// The API server does not respond or refuses.
pub(super) async fn follow(site: &CommandScope, runs: &[FollowedObject]) -> anyhow::Result<bool> {
    let is_examined = runs.len() <= MOST_EXAMINED;
    let all = runs.iter().map(async |of| {
        let FollowedObject { target, object, awaited, release, with_source } = of;
        match (release, awaited) {
            (Some(row), AwaitedReconciliation::Request(token)) => {
                await_release(site, target, object, row, token).await
            }
            (_, awaited) => {
                let ready = await_run(site, target, object, awaited.clone(), *with_source).await?;
                if is_examined {
                    say_degraded(site, &ready).await;
                }
                Ok(())
            }
        }
    });
    let mut all = stream::iter(all).buffered(AT_ONCE).zip(stream::iter(runs));
    let mut all_ready = true;
    while let Some((done, of)) = all.next().await {
        if let Err(error) = done {
            all_ready = false;
            let subject = of.object.id().subject();
            let text = format!("{error:#}");
            let is_named = text.starts_with(&subject);
            let text = if is_named { text } else { format!("{subject}: {text}") };
            say(ProgressGlyph::Failure, &clean(&text));
        }
    }
    if !is_examined && runs.iter().any(|of| !object_references::applied(&of.object).is_empty()) {
        let text =
            "what they applied was not examined: `windlass why -A` says whether it is healthy";
        say(ProgressGlyph::Action, text);
    }
    Ok(all_ready)
}

/// The sources of an object and their own sources, the outermost first.
async fn chain(
    site: &CommandScope,
    object: &Object,
) -> anyhow::Result<Vec<(ResourceArgument, Object)>> {
    let mut found: Vec<(ResourceArgument, Object)> = Vec::new();
    let mut pending = object_references::sources(object);
    while let Some(id) = pending.pop() {
        if found.iter().any(|(_, source)| source.id() == id) || found.len() >= 16 {
            continue;
        }
        let target = target_of(site, &id).await?;
        let source = kind_argument::read(site, &target).await?;
        pending.extend(object_references::sources(&source));
        found.push((target, source));
    }
    found.reverse();
    Ok(found)
}

/// Checks that a ready object has applied the current revisions of its sources.
///
/// # Errors
/// A source is not ready, or the user requested its reconciliation although it is suspended. The error names the source.
/// Parity(flux): `reconcile --with-source` fails, too.
async fn check_sources(
    site: &CommandScope,
    object: &Object,
    with_source: bool,
) -> anyhow::Result<()> {
    let subject = object.id().subject();
    let sources = match chain(site, object).await {
        Ok(sources) => sources,
        Err(error) => {
            let text = format!("cannot tell whether the sources of {subject} are ready: {error:#}");
            say(ProgressGlyph::Warning, &clean(&text));
            return Ok(());
        }
    };
    let failing = sources.iter().find_map(|(_, source)| {
        let said = condition(source, "Ready").filter(|said| said.status == "False")?;
        Some((source.id().subject(), said.message))
    });
    if let Some((source, message)) = failing {
        bail!("{subject} is ready, but newer revisions do not reach it: {source}: {message}");
    }
    let now = jiff::Timestamp::now();
    let is_suspended = |source: &Object| ObjectRow::of(source, now).is_suspended();
    for (_, source) in sources.iter().filter(|(_, source)| is_suspended(source)) {
        let source = source.id().subject();
        let why = format!("{source} is suspended; `windlass resume` ends that");
        if with_source {
            bail!("{subject} is ready, but newer revisions do not reach it: {why}");
        }
        let text = format!("newer revisions do not reach {subject}: {why}");
        say(ProgressGlyph::Warning, &clean(&text));
    }
    Ok(())
}

/// The message about a ready object with an applied object that fails.
#[derive(Debug)]
struct DegradedNotice {
    mark: ProgressGlyph,
    text: String,
}

/// The notice that an applied object is missing or not healthy, although the reconciliation succeeded. `None` if there is no
/// such object.
/// Parity(flux): the object is ready, and the exit status is 0.
fn degraded(object: &Object, why: &StateExplanation) -> Option<DegradedNotice> {
    let cause = why.cause.as_ref().filter(|_| why.state == ExaminedObjectState::Degraded)?;
    let name = object.name();
    let namespace = object.namespace();
    let mode = object.get("spec").and_then(|spec| spec["driftDetection"]["mode"].as_str());
    // Without drift detection, windlass does not create the object again.
    let is_left = object.kind() == "HelmRelease" && mode != Some("enabled");
    let text = match cause.problem {
        CauseKind::Missing if is_left => format!(
            "{}: {}; nothing creates it again unless spec.driftDetection.mode is enabled, or by `windlass reconcile hr/{name} -n \
             {namespace} --force`",
            object.id().subject(),
            cause.line(&why.object),
        ),
        _ => format!(
            "{}; `windlass why {}/{name} -n {namespace}` shows more",
            why.line(),
            kind_argument::qualified(&object.gvk()).to_lowercase()
        ),
    };
    // Without a warning event, the object may just be starting.
    let may_start = cause.problem == CauseKind::Health && cause.event.is_none();
    let mark = if may_start { ProgressGlyph::Action } else { ProgressGlyph::Warning };
    Some(DegradedNotice { mark, text })
}

/// Prints which applied objects of an object are missing or not healthy, as `windlass why` does.
async fn say_degraded(site: &CommandScope, object: &Object) {
    if object_references::applied(object).is_empty() {
        return;
    }
    match why::of(site, &object.id()).await {
        Ok(why) => {
            if let Some(DegradedNotice { mark, text }) = degraded(object, &why) {
                say(mark, &clean(&text));
            }
        }
        Err(error) => {
            let subject = object.id().subject();
            let text = format!("cannot tell whether what {subject} applied is healthy: {error:#}");
            say(ProgressGlyph::Warning, &clean(&text));
        }
    }
}

async fn target_of(site: &CommandScope, id: &ObjectId) -> anyhow::Result<ResourceArgument> {
    let Some(resource) = resource(&site.cluster, &id.group, &id.kind).await? else {
        bail!(unserved(&id.kind));
    };
    Ok(ResourceArgument {
        resource,
        namespace: Some(id.namespace.clone()),
        name: Some(id.name.clone()),
    })
}

/// Waits until a requested reconciliation of one release of a Helmfile has ended.
async fn await_release(
    site: &CommandScope,
    target: &ResourceArgument,
    object: &Object,
    row: &Value,
    token: &str,
) -> anyhow::Result<()> {
    let id = object.id();
    let name = helmfile_release_suspension::full_name(row);
    say(ProgressGlyph::Action, &clean(&format!("reconciling release {name} of {}", id.subject())));
    let awaited = AwaitedReconciliation::Request(token.to_owned());
    let mut patience = OperatorReactionWait::with(object);
    loop {
        let Some(now) = site.cluster.get(&target.resource, &id.namespace, &id.name).await? else {
            bail!("it was deleted");
        };
        patience.look(&site.cluster, &now).await;
        let row = helmfile_release_suspension::named(&now, &name)?;
        let message = clean(row["message"].as_str().unwrap_or_default());
        match row["state"].as_str().filter(|_| is_handled(&now, &awaited)) {
            Some("Ready") => {
                say(ProgressGlyph::Success, &clean(&format!("release {name} is ready")));
                return Ok(());
            }
            Some(state @ ("Failed" | "Suspended")) => bail!("release {name} is {state}: {message}"),
            _ => tokio::time::sleep(POLL_INTERVAL).await,
        }
    }
}

/// Waits until the reconciliation of an object has ended, and prints its progress. Returns the object after that. A
/// reconciliation does not count as ended if it only found that a dependency is still being reconciled.
///
/// # Errors
/// The object is not ready. The error names the cause.
async fn await_run(
    site: &CommandScope,
    target: &ResourceArgument,
    object: &Object,
    awaited: AwaitedReconciliation,
    with_source: bool,
) -> anyhow::Result<Object> {
    let id = object.id();
    let subject = clean(&id.subject());
    let mut last_text = String::new();
    say(ProgressGlyph::Action, &format!("reconciling {subject}"));
    let mut patience = OperatorReactionWait::with(object);
    let mut dependencies = DependencyWait::default();
    loop {
        let Some(now) = site.cluster.get(&target.resource, &id.namespace, &id.name).await? else {
            bail!("it was deleted");
        };
        patience.look(&site.cluster, &now).await;
        if is_handled(&now, &awaited)
            && let Some(ready) = condition(&now, "Ready").filter(|said| said.status != "Unknown")
        {
            if ready.status == "True" {
                check_sources(site, &now, with_source).await?;
                say(ProgressGlyph::Success, &format!("{subject}: {}", clean(ready.message)));
                return Ok(now);
            }
            if !dependencies.goes_on(site, &now).await {
                bail!("{}{}", why::line(site, &id).await?, reset(&now).unwrap_or_default());
            }
        }
        if ObjectRow::of(&now, jiff::Timestamp::now()).is_suspended() {
            bail!("it was suspended meanwhile; `windlass resume` ends that");
        }
        let text =
            condition(&now, "Reconciling").map(|said| clean(said.message)).unwrap_or_default();
        if text != last_text && !text.is_empty() {
            say(ProgressGlyph::Waiting, &format!("{subject}: {text}"));
            last_text = text;
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// The advice for a HelmRelease without remaining retries, because another request alone changes nothing. `None` for other
/// objects and while retries remain.
fn reset(object: &Object) -> Option<String> {
    let said = cause::exhausted(object)?;
    let namespace = object.namespace();
    let name = object.name();
    (object.kind() == "HelmRelease").then(|| {
        format!(
            "; {}: it is retried when its spec, values or chart change, or by `windlass reconcile hr/{name} -n \
             {namespace} --reset`",
            said.reason
        )
    })
}

fn is_handled(object: &Object, awaited: &AwaitedReconciliation) -> bool {
    let status = object.get("status");
    match awaited {
        AwaitedReconciliation::Request(token) => {
            let handled = status.and_then(|it| it["lastHandledReconcileAt"].as_str());
            handled == Some(token.as_str())
        }
        AwaitedReconciliation::Generation => {
            let observed = status.and_then(|it| it["observedGeneration"].as_i64());
            observed == Some(object.generation())
                && condition(object, "Ready").is_some_and(|said| {
                    said.reason != ::reconcile::condition_reason::SUSPENDED.as_str()
                        && said.generation.is_none_or(|it| it == object.generation())
                })
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(status: &Value) -> Object {
        Object::new(
            json!({"apiVersion": "v1", "kind": "X", "metadata": {"name": "a", "generation": 2},
            "status": status}),
        )
        .unwrap()
    }

    #[test]
    fn a_request_is_handled_when_the_status_has_its_token() {
        let awaited = AwaitedReconciliation::Request("now".to_owned());
        assert!(!is_handled(&object(&json!({"lastHandledReconcileAt": "before"})), &awaited));
        assert!(is_handled(&object(&json!({"lastHandledReconcileAt": "now"})), &awaited));
    }

    #[test]
    fn a_release_whose_retries_are_exhausted_names_the_way_to_try_again() {
        // The condition `Ready` keeps the failure.
        let ready = json!({"type": "Ready", "status": "False", "reason": "InstallFailed"});
        let release = |kind: &str, more: Value| {
            let value = json!({"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": kind,
                "metadata": {"name": "web", "namespace": "apps"},
                "status": {"conditions": [ready, more]}});
            reset(&Object::new(value).unwrap())
        };
        let stalled = |reason: &str| json!({"type": "Stalled", "status": "True", "reason": reason});
        let text = release("HelmRelease", stalled("RetriesExceeded")).unwrap();
        assert!(text.contains("`windlass reconcile hr/web -n apps --reset`"), "{text}");
        let retried =
            json!({"type": "Reconciling", "status": "True", "reason": "ProgressingWithRetry"});
        assert_eq!(release("HelmRelease", retried), None);
        assert_eq!(release("HelmRelease", stalled("ValidationFailed")), None);
        assert_eq!(release("Kustomization", stalled("RetriesExceeded")), None);
    }

    #[tokio::test]
    async fn an_object_whose_source_fails_is_not_up_to_date() {
        let group = "source.toolkit.fluxcd.io/v1";
        let source = |status: &str| {
            let ready = json!({"type": "Ready", "status": status, "reason": "X", "message": "connection refused"});
            json!({"apiVersion": group, "kind": "GitRepository", "metadata": {"name": "app", "namespace": "apps"},
                "status": {"conditions": [ready]}})
        };
        let checked_with = async |source: Value, with_source: bool| {
            let (cluster, _) = fake_cluster::with_objects(vec![source]).await;
            let site = CommandScope { cluster, namespace: "apps".to_owned() };
            let object = Object::new(
                json!({"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
                "metadata": {"name": "web", "namespace": "apps"},
                "spec": {"sourceRef": {"kind": "GitRepository", "name": "app"}}}),
            );
            let checked = check_sources(&site, &object.unwrap(), with_source).await;
            checked.err().map(|error| error.to_string())
        };
        let checked = async |source: Value| checked_with(source, false).await;
        let text = "Kustomization/apps/web is ready, but newer revisions do not reach it: GitRepository/apps/app: connection \
                    refused";
        assert_eq!(checked(source("False")).await.as_deref(), Some(text));
        assert_eq!(checked(source("True")).await, None);
        // A suspended source is a failure only if the command requested its reconciliation.
        let mut suspended = source("True");
        suspended["spec"] = json!({"suspend": true});
        assert_eq!(checked(suspended.clone()).await, None);
        let text = checked_with(suspended, true).await;
        assert!(text.is_some_and(|text| text.contains("GitRepository/apps/app is suspended")));
        // An object that is missing or unreadable is no reason to fail.
        let other = json!({"apiVersion": group, "kind": "GitRepository",
            "metadata": {"name": "other", "namespace": "apps"}});
        assert_eq!(checked(other).await, None);
    }

    /// The message for a ready object of a kind whose applied object has a problem.
    fn notice(version: &str, kind: &str, cause: cause::RootCause) -> DegradedNotice {
        let object = json!({"apiVersion": version, "kind": kind,
            "metadata": {"name": "web", "namespace": "apps"}});
        let object = Object::new(object).unwrap();
        let why = StateExplanation {
            object: object.id(),
            state: ExaminedObjectState::Degraded,
            message: String::new(),
            cause: Some(cause),
            path: Vec::new(),
            next: None,
            advice: None,
            second: None,
            unread: Vec::new(),
            remarks: Vec::new(),
        };
        let ready = StateExplanation { state: ExaminedObjectState::Ready, ..why.clone() };
        assert!(degraded(&object, &ready).is_none());
        degraded(&object, &why).unwrap()
    }

    fn cause_of(problem: CauseKind, kind: &str, text: &str) -> cause::RootCause {
        cause::RootCause {
            object: ObjectId::new("apps", "web", "", kind),
            problem,
            text: text.to_owned(),
            since: None,
            lines: Vec::new(),
            event: None,
        }
    }

    #[test]
    fn a_release_that_lacks_an_object_names_the_way_to_bring_it_back() {
        let gone = cause_of(CauseKind::Missing, "Deployment", "does not exist");
        let text = notice("helm.toolkit.fluxcd.io/v2", "HelmRelease", gone.clone()).text;
        assert!(
            text.starts_with("HelmRelease/apps/web: Deployment/apps/web: does not exist; "),
            "{text}"
        );
        assert!(text.contains("`windlass reconcile hr/web -n apps --force`"), "{text}");
        // A Kustomization creates its missing objects again.
        let text = notice("kustomize.toolkit.fluxcd.io/v1", "Kustomization", gone).text;
        assert!(text.contains("does not exist; `windlass why kustomization/web"), "{text}");
    }

    #[test]
    fn an_object_whose_pods_fail_is_ready_and_the_pod_is_named() {
        let crashing = cause_of(CauseKind::Container, "Pod", "container 'app' CrashLoopBackOff");
        for (version, kind) in [
            ("helm.toolkit.fluxcd.io/v2", "HelmRelease"),
            ("kustomize.toolkit.fluxcd.io/v1", "Kustomization"),
        ] {
            let DegradedNotice { mark, text } = notice(version, kind, crashing.clone());
            let expected = format!(
                "{kind}/apps/web is ready, but what it applied is not: Pod/apps/web: container 'app' CrashLoopBackOff; \
                 `windlass why {}/web -n apps` shows more",
                kind.to_lowercase()
            );
            assert_eq!(text, expected);
            assert!(matches!(mark, ProgressGlyph::Warning));
        }
        // The Deployment may be starting.
        let starting = cause_of(CauseKind::Health, "Deployment", "InProgress: Available: 0/1");
        let notice = notice("kustomize.toolkit.fluxcd.io/v1", "Kustomization", starting);
        assert!(matches!(notice.mark, ProgressGlyph::Action));
    }

    #[test]
    fn a_resumed_object_is_handled_when_its_generation_was_reconciled() {
        let ready = |generation: i64, reason: &str| {
            object(&json!({"observedGeneration": generation,
                "conditions": [{"type": "Ready", "status": "True", "reason": reason}]}))
        };
        assert!(is_handled(
            &ready(2, "ReconciliationSucceeded"),
            &AwaitedReconciliation::Generation
        ));
        assert!(!is_handled(
            &ready(1, "ReconciliationSucceeded"),
            &AwaitedReconciliation::Generation
        ));
        assert!(!is_handled(&ready(2, "Suspended"), &AwaitedReconciliation::Generation));
    }
}
