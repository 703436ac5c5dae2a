//! `windlass suspend`: no reconciliation until it is resumed, with an owner, a reason and an end.
//!
//! Here: choosing objects too, for `resume.rs`. Elsewhere: what a suspension means (`docs/windows-and-holds.md`).

use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use cause::{hold, object_references, owners};
use clap::Args as ClapArgs;
use jiff::{SignedDuration, Timestamp};
use objects::Object;
use reconcile::{
    ObjectHold, REQUESTED_BY, REQUESTED_REASON, SUSPENDED_BY, SUSPENDED_REASON, SUSPENDED_UNTIL,
    may_end_suspension,
};
use serde_json::{Value, json};

use super::command_scope::{CommandScope, NamespaceScope, say_left_out};
use super::complete;
use super::kind_argument::{self, ResourceArgument};
use super::release::{self, HelmfileReleaseSuspension};
use windlass_cli_runtime::connection::{ProgressGlyph, say};
use windlass_cli_runtime::exit_code::ExitCode;
use windlass_cli_runtime::table::clean;
use windlass_serve::settings::parse_duration;

/// The field manager of what a person does by command.
pub(super) const MANAGER: &str = "windlass-cli";

/// The flags of `windlass suspend`.
#[derive(Debug, Clone, ClapArgs)]
pub(super) struct SuspendArgs {
    #[command(flatten)]
    pub(super) chosen: ObjectSelectionArgs,
    /// Reason, shown to others
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// When it resumes automatically: a time such as 2026-11-24T21:00:00Z, or a duration such as 2h
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// Who suspends; by default the user of the kubeconfig
    #[arg(long, value_name = "NAME")]
    owner: Option<String>,
}

/// Which objects are meant.
#[derive(Debug, Clone, ClapArgs)]
pub(super) struct ObjectSelectionArgs {
    /// KIND/NAME, KIND NAME, or with --all: KIND, several KINDs with commas, all, sources, appliers
    #[arg(required = true, value_name = "KIND[/NAME]", add = complete::objects())]
    what: Vec<String>,
    #[command(flatten)]
    pub(super) scope: NamespaceScope,
    /// All objects of the kinds, in the namespace or with -A, that -l selects
    #[arg(long)]
    all: bool,
    /// Only this release of a Helmfile: NAME, NAMESPACE/NAME or KUBECONTEXT/NAMESPACE/NAME
    #[arg(long, value_name = "RELEASE", conflicts_with = "all")]
    pub(super) release: Option<String>,
}

pub(super) const EXAMPLES: &str = "Examples:
  windlass suspend ks/app -n apps --reason \"the database is migrated\" --until 2h
  windlass suspend appliers --all -A -l team=web --reason incident-1234
  windlass suspend helmfile/all -n apps --release db --reason incident-1234

A suspended object is neither applied nor corrected nor pruned. `windlass get` shows who suspended it.

Exit status: 0; 2 if an object was not suspended; 3 if the cluster cannot be reached.";

/// Suspends objects.
///
/// # Errors
/// Nothing is suspended, because something is wrong.
pub(super) fn run(args: &SuspendArgs) -> anyhow::Result<ExitCode> {
    let until = args.until.as_deref().map(|text| end_of(text, Timestamp::now())).transpose()?;
    args.chosen.scope.place.run(async |site| {
        let owner = match &args.owner {
            Some(owner) => owner.clone(),
            None => site.cluster.own_name().await.context("name who suspends with --owner")?,
        };
        let annotations = json!({
            SUSPENDED_BY: owner,
            SUSPENDED_REASON: args.reason,
            SUSPENDED_UNTIL: until.map(|at| at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()),
        });
        let patch = json!({"metadata": {"annotations": annotations}, "spec": {"suspend": true}});
        let annotation = |key: &str| annotations[key].as_str();
        let until = annotation(SUSPENDED_UNTIL);
        let wanted =
            ObjectHold::parse(annotation(SUSPENDED_BY), annotation(SUSPENDED_REASON), until);
        let description = wanted.map(|hold| hold.to_string()).unwrap_or_default();
        each(&site, &args.chosen, async |target, object| {
            ensure!(until.is_none() || expires(object), "{NEVER_EXPIRES}");
            if let Some(name) = &args.chosen.release {
                let row = release::named(object, name)?;
                let reason = by(&owner, args.reason.as_deref());
                let suspension =
                    HelmfileReleaseSuspension { reason: &reason, until, rollback: None };
                release::suspend(&site, target, object, &row, &suspension).await?;
                let release = release::full_name(&row);
                let subject = object.id().subject();
                let description = format!("release {release} of {subject} is suspended: {reason}");
                say(ProgressGlyph::Success, &clean(&description));
                return Ok(());
            }
            ensure!(until.is_none() || may_end(object), "{NOT_ENDED}");
            if let Some(before) = replaced(object, &description) {
                say(
                    ProgressGlyph::Warning,
                    &clean(&format!("{} was {before}", object.id().subject())),
                );
            }
            let changed = change(&site, target, object, &patch).await?;
            // Another program may have suspended it meanwhile, so that the end does not count.
            let description = hold(&changed).map(|hold| hold.to_string()).unwrap_or_default();
            say(
                ProgressGlyph::Success,
                &clean(&format!("{} is {description}", object.id().subject())),
            );
            Ok(())
        })
        .await
    })
}

fn is_suspended(object: &Object) -> bool {
    object.get("spec").is_some_and(|spec| spec["suspend"] == true)
}

/// The suspension that another one replaces, with its owner, reason and end.
fn replaced(object: &Object, by: &str) -> Option<String> {
    let before = hold(object).filter(|_| is_suspended(object))?.to_string();
    (before != by).then_some(before)
}

/// Whether a suspension of an object would have an end that this command gives it: it is not suspended yet, or by this command.
fn may_end(object: &Object) -> bool {
    !is_suspended(object) || may_end_suspension(owners(object), |manager| manager == MANAGER)
}

const NOT_ENDED: &str = "it is suspended already, and not by `windlass suspend`, which does not end what another program or a \
                         manifest suspended: leave out --until, or end that suspension first";

/// Whether windlass ends a suspension of an object: it reconciles its kind.
fn expires(object: &Object) -> bool {
    let gvk = object.gvk();
    crds::names().any(|it| it.group == gvk.group && it.kind == gvk.kind)
}

const NEVER_EXPIRES: &str = "windlass does not reconcile this kind, so it would stay suspended after --until: leave out \
                             --until, and resume it with `windlass resume`";

/// A reason with who gives it, where there is no other place for the name.
pub(super) fn by(owner: &str, reason: Option<&str>) -> String {
    match reason {
        Some(reason) => format!("{reason} (by {owner})"),
        None => format!("by {owner}"),
    }
}

/// A time from a time or a duration.
fn end_of(text: &str, now: Timestamp) -> anyhow::Result<Timestamp> {
    let at = match text.parse::<Timestamp>() {
        Ok(at) => at,
        Err(_) => {
            let length: Duration = parse_duration(text)
                .ok()
                .with_context(|| format!("--until {text} is neither a time such as 2026-11-24T21:00:00Z nor a duration such as 2h"))?;
            now.checked_add(SignedDuration::try_from(length)?)?
        }
    };
    ensure!(at > now, "--until {text} is in the past");
    Ok(at)
}

/// Does something with each chosen object, and says what failed.
///
/// # Errors
/// None is chosen, or they cannot be read.
pub(super) async fn each(
    site: &CommandScope,
    chosen: &ObjectSelectionArgs,
    act: impl AsyncFn(&ResourceArgument, &Object) -> anyhow::Result<()>,
) -> anyhow::Result<ExitCode> {
    let site = site.within(chosen.scope.all_namespaces);
    let targets = kind_argument::targets(&site.cluster, &chosen.what).await?;
    chosen.scope.check(&targets)?;
    let mut found = Vec::new();
    let mut left_out = Vec::new();
    for target in &targets {
        if target.name.is_some() {
            found.push((target, kind_argument::read(&site, target).await?));
            continue;
        }
        ensure!(
            chosen.all,
            "name an object, such as {}/app, or add --all",
            target.resource.gvk.kind.to_lowercase()
        );
        let refused = site.list(target, &chosen.scope.labels, |objects| {
            found.extend(objects.into_iter().map(|object| (target, object)));
            Ok(())
        });
        left_out.extend(refused.await?);
    }
    // What has no switch is not meant by `all`.
    let is_named = targets.iter().any(|it| it.name.is_some());
    found.retain(|(_, object)| {
        is_named || !matches!(object.kind(), "ExternalArtifact" | "ArtifactGenerator")
    });
    if found.is_empty() && left_out.is_empty() {
        bail!("no object was found: nothing was changed");
    }
    let mut failed = left_out.len();
    for (target, object) in &found {
        let id = object.id();
        let done = match object_references::is_reconciled(&id) {
            true => act(target, object).await,
            false => {
                Err(anyhow::anyhow!("windlass does not reconcile objects of kind {}", id.kind))
            }
        };
        if let Err(error) = done {
            failed += 1;
            say(ProgressGlyph::Failure, &clean(&format!("{}: {error:#}", id.subject())));
        }
    }
    say_left_out(&left_out);
    Ok(if failed == 0 { ExitCode::Success } else { ExitCode::Failed })
}

/// Patches an object, only if it is still the one that was read. Annotations say who asks, for audits; the patch may say why.
///
/// # Errors
/// The server's refusal, such as of a field that the kind does not have.
pub(super) async fn change(
    site: &CommandScope,
    target: &ResourceArgument,
    object: &Object,
    patch: &Value,
) -> anyhow::Result<Object> {
    let user = site.cluster.own_name().await.ok();
    let patch = requested(patch.clone(), object.uid(), user);
    let changed = site.cluster.merge_patch_strictly(
        &target.resource,
        object.namespace(),
        object.name(),
        &patch,
        MANAGER,
    );
    Ok(changed.await?)
}

/// A patch of the object with this uid that says who asks. What an earlier user said does not hold for it.
fn requested(mut patch: Value, uid: &str, user: Option<String>) -> Value {
    patch["metadata"]["uid"] = uid.into();
    let annotations = &mut patch["metadata"]["annotations"];
    annotations[REQUESTED_BY] = user.into();
    annotations[REQUESTED_REASON] = annotations[REQUESTED_REASON].take();
    patch
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_says_who_asks_and_never_who_asked_before() {
        let of = |patch: Value, user: Option<&str>| requested(patch, "u", user.map(str::to_owned));
        let patch = of(json!({"spec": {"suspend": false}}), Some("alice"));
        let annotations = json!({REQUESTED_BY: "alice", REQUESTED_REASON: null});
        assert_eq!(patch["metadata"], json!({"uid": "u", "annotations": annotations}));
        let asked = json!({"metadata": {"annotations": {"a": "b", REQUESTED_REASON: "mended"}}});
        let annotations = json!({"a": "b", REQUESTED_BY: null, REQUESTED_REASON: "mended"});
        assert_eq!(of(asked, None)["metadata"]["annotations"], annotations);
    }

    #[test]
    fn a_suspension_that_is_replaced_is_reported_with_its_owner() {
        let suspended = |reason: &str, suspend: bool| {
            Object::new(json!({
                "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
                "metadata": {
                    "name": "app", "namespace": "apps",
                    "annotations": {SUSPENDED_BY: "alice", SUSPENDED_REASON: reason},
                },
                "spec": {"suspend": suspend},
            }))
            .unwrap()
        };
        let before = replaced(&suspended("incident-1", true), "").unwrap();
        assert!(before.contains("alice") && before.contains("incident-1"), "{before}");
        let again = replaced(&suspended("incident-2", true), "").unwrap();
        assert_eq!(replaced(&suspended("incident-1", true), &again), Some(before.clone()));
        assert_eq!(replaced(&suspended("incident-1", true), &before), None);
        assert_eq!(replaced(&suspended("incident-1", false), ""), None);
    }

    #[test]
    fn an_end_is_given_to_no_suspension_that_another_program_or_a_manifest_set() {
        let ends = |suspend: bool, entries: Value| {
            let object = json!({"apiVersion": "v1", "kind": "X", "spec": {"suspend": suspend},
                "metadata": {"name": "a", "managedFields": entries}});
            may_end(&Object::new(object).unwrap())
        };
        let entry = |manager: &str, operation: &str| json!({"manager": manager, "operation": operation, "fieldsV1": {"f:spec": {"f:suspend": {}}}});
        let own = entry(MANAGER, "Update");
        let applied = entry("kustomize-controller", "Apply");
        assert!(ends(true, json!([own])));
        assert!(ends(false, json!([applied])), "a manifest says that it is not suspended");
        assert!(!ends(true, json!([entry("flux", "Update")])));
        assert!(!ends(true, json!([own, applied])));
    }

    #[test]
    fn a_suspension_ends_by_itself_only_for_kinds_that_windlass_reconciles() {
        let of = |version: &str, kind: &str| {
            let object = json!({"apiVersion": version, "kind": kind, "metadata": {"name": "a"}});
            expires(&Object::new(object).unwrap())
        };
        for kind in ["Alert", "Provider", "Receiver"] {
            let version = if kind == "Receiver" { "v1" } else { "v1beta3" };
            assert!(of(&format!("notification.toolkit.fluxcd.io/{version}"), kind), "{kind}");
        }
        assert!(of("kustomize.toolkit.fluxcd.io/v1", "Kustomization"));
        assert!(of("apps.mumoshu.github.io/v1alpha1", "Helmfile"));
        assert!(of("image.toolkit.fluxcd.io/v1", "ImageUpdateAutomation"));
        assert!(!of("example.com/v1", "Team"));
    }

    #[test]
    fn an_end_is_a_time_or_a_duration_and_in_the_future() {
        let now: Timestamp = "2026-11-24T12:00:00Z".parse().unwrap();
        let end = |text: &str| {
            end_of(text, now).map(|at| at.to_string()).map_err(|error| error.to_string())
        };
        assert_eq!(end("2h").unwrap(), "2026-11-24T14:00:00Z");
        assert_eq!(end("2026-11-24T22:00:00+01:00").unwrap(), "2026-11-24T21:00:00Z");
        assert!(end("2026-11-24T11:00:00Z").unwrap_err().contains("in the past"));
        assert!(end("tomorrow").unwrap_err().contains("neither a time"));
    }
}
