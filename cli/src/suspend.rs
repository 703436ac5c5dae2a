//! `windlass suspend`: stops the reconciliation of objects until they are resumed. A suspension has an owner, a reason and an
//! end.
//!
//! Here: also choosing objects for `resume.rs`. Elsewhere: the request itself (`windlass_answers::actions`), the effect of a
//! suspension (`docs/windows-and-holds.md`).

use anyhow::{Context as _, bail, ensure};
use cause::object_references;
use clap::Args as ClapArgs;
use jiff::Timestamp;
use objects::Object;
use serde_json::Value;

use super::command_scope::{CommandScope, NamespaceScope, say_left_out};
use super::complete;
use super::helmfile_release_suspension::{self, HelmfileReleaseSuspension};
use super::kind_argument::{self, ResourceArgument};
use windlass_answers::actions::ObjectToChange;
use windlass_answers::actions::suspension::{ObjectSuspension, end_of};
use windlass_cli_runtime::connection::{ProgressGlyph, say};
use windlass_cli_runtime::exit_code::ExitCode;
use windlass_cli_runtime::table::clean;

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

/// Which objects the user wants to suspend, resume or reconcile.
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
/// Something is wrong, and no object was suspended.
pub(super) fn run(args: &SuspendArgs) -> anyhow::Result<ExitCode> {
    let until = args.until.as_deref().map(|text| end_of(text, Timestamp::now())).transpose();
    let until = until.context("--until")?;
    args.chosen.scope.place.run(async |site| {
        let owner = match &args.owner {
            Some(owner) => owner.clone(),
            None => site.cluster.own_name().await.context("name who suspends with --owner")?,
        };
        let reason = args.reason.as_deref();
        let suspension = ObjectSuspension { owner: &owner, reason, until };
        let end = suspension.end();
        let until = end.as_deref();
        each(&site, &args.chosen, async |target, object| {
            suspension.check_kind(object)?;
            if let Some(name) = &args.chosen.release {
                let row = helmfile_release_suspension::named(object, name)?;
                let reason = by(&owner, reason);
                let of_release =
                    HelmfileReleaseSuspension { reason: &reason, until, rollback: None };
                helmfile_release_suspension::suspend(&site, target, object, &row, &of_release)
                    .await?;
                let release = helmfile_release_suspension::full_name(&row);
                let subject = object.id().subject();
                let description = format!("release {release} of {subject} is suspended: {reason}");
                say(ProgressGlyph::Success, &clean(&description));
                return Ok(());
            }
            suspension.check(object)?;
            if let Some(before) = suspension.replaced(object) {
                say(
                    ProgressGlyph::Warning,
                    &clean(&format!("{} was {before}", object.id().subject())),
                );
            }
            let said = suspension.carry_out(&to_change(&site, target, object)).await?;
            say(ProgressGlyph::Success, &clean(&said));
            Ok(())
        })
        .await
    })
}

/// A reason with the name of its author, if there is no other place for the name.
pub(super) fn by(owner: &str, reason: Option<&str>) -> String {
    match reason {
        Some(reason) => format!("{reason} (by {owner})"),
        None => format!("by {owner}"),
    }
}

/// Runs an action for each chosen object, and prints which ones failed.
///
/// # Errors
/// No object is chosen, or the objects cannot be read.
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
    // `all` does not include objects that cannot be suspended.
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

/// Patches an object if it has not been replaced since it was read. windlass adds annotations that name the user for audits,
/// and the patch may contain the reason.
///
/// # Errors
/// The API server refuses the patch, for example because the kind does not have a field.
pub(super) async fn change(
    site: &CommandScope,
    target: &ResourceArgument,
    object: &Object,
    patch: &Value,
) -> anyhow::Result<Object> {
    Ok(to_change(site, target, object).change(patch).await?)
}

/// An object that a command changes, even if its resourceVersion has changed.
pub(super) fn to_change<'a>(
    site: &'a CommandScope,
    target: &'a ResourceArgument,
    object: &'a Object,
) -> ObjectToChange<'a> {
    ObjectToChange { site, target, object, is_of_version: false }
}
