//! `windlass bypass`: allows one operation to begin although a Freeze denies changes.
//!
//! The API server decides who may bypass a Freeze. The request contains the user's name, and the included admission policy
//! verifies that name.
//! Elsewhere: the effect of a FreezeBypass (`windlass_runtime::freeze`), the policy that decides who may create one
//! (`deploy/policies/freezes.yaml`).

use anyhow::{Context as _, bail, ensure};
use cause::object_references;
use clap::Args as ClapArgs;
use crds::Time as When;
use crds::windlass_release::{
    BypassedFreeze, Freeze, FreezeBypass, FreezeBypassSpec, FreezeBypassSubject,
};
use jiff::{SignedDuration, Timestamp};
use kube_core::ResourceExt as _;
use objects::{Object, ObjectId};
use reconcile::ROLLBACK;
use serde_json::{Value, json};
use windlass_answers::frozen_objects::is_held_by_freezes;

use super::command_scope::{ClusterScope, CommandScope};
use super::kind_argument;
use windlass_answers::actions::MANAGER;
use windlass_cli_runtime::connection::{ProgressGlyph, say};
use windlass_cli_runtime::exit_code::ExitCode;
use windlass_cli_runtime::table::clean;
use windlass_runtime::lifecycle::watched_object_cache::resource;
use windlass_serve::settings::parse_duration;

/// The longest duration of a FreezeBypass.
const LONGEST_BYPASS: SignedDuration = SignedDuration::from_hours(4);

/// The prefix of ServiceAccount user names. The FreezeBypasses of ServiceAccounts do not count.
const SERVICE_ACCOUNT_PREFIX: &str = "system:serviceaccount:";

/// The flags of `windlass bypass`.
#[derive(Debug, Clone, ClapArgs)]
pub(super) struct BypassArgs {
    /// The Freeze that holds the operation
    #[arg(value_name = "freeze/NAME")]
    freeze: String,
    /// The object that is held
    #[arg(value_name = "KIND/NAME")]
    what: String,
    #[command(flatten)]
    place: ClusterScope,
    /// Reason, shown to others
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// How long the operation may begin or be repeated, at most 4h
    #[arg(long, value_name = "DURATION", default_value = "1h")]
    expires: String,
    /// The revision that the object is brought to; by default that of its source, its chart or the requested rollback
    #[arg(long, value_name = "REVISION")]
    revision: Option<String>,
}

pub(super) const EXAMPLES: &str = "Examples:
  windlass bypass freeze/black-friday ks/shop -n shop --reason incident-1234
  windlass bypass freeze/black-friday hr/web -n shop --reason \"a security fix\" --expires 30m

It is for one revision of the present spec, and recorded in a FreezeBypass: `windlass get freezebypasses -A`. It requires the verb `bypass` on the Freeze, and the right to create FreezeBypasses. ServiceAccounts cannot.

Exit status: 0; 2 if it was refused; 3 if the cluster cannot be reached.";

/// Creates a FreezeBypass.
///
/// # Errors
/// The object or its revision is unknown, or the API server refuses.
pub(super) fn run(args: &BypassArgs) -> anyhow::Result<ExitCode> {
    let expires = expires(&args.expires, Timestamp::now())?;
    ensure!(!args.reason.trim().is_empty(), "--reason is empty: say why");
    args.place.run(async |site| {
        let user = site.cluster.own_name().await.context("cannot tell who goes past the Freeze")?;
        ensure!(!user.is_empty(), "the API server does not name this user");
        ensure!(
            !user.starts_with(SERVICE_ACCOUNT_PREFIX),
            "{user} is a ServiceAccount, which cannot go past a Freeze"
        );
        let freeze = freeze(&site, &args.freeze).await?;
        let object = object(&site, &args.what).await?;
        let revision = match &args.revision {
            Some(revision) => revision.clone(),
            None => pending_revision(&site, &object).await?,
        };
        let spec = FreezeBypassSpec {
            freeze: BypassedFreeze {
                name: freeze.name_any(),
                uid: freeze.uid().unwrap_or_default(),
            },
            subject: subject(&object),
            revision,
            reason: args.reason.clone(),
            user,
            expires: Some(When(expires)),
        };
        let said = said(&spec);
        let bypass = Object::new(manifest(&object, spec, Timestamp::now())?)?;
        let resource = resource::<FreezeBypass>();
        site.cluster.create_object(&resource, &bypass, MANAGER, true).await?;
        say(ProgressGlyph::Success, &clean(&said));
        Ok(ExitCode::Success)
    })
}

/// When a FreezeBypass that is created now ends. The time is in whole seconds, as in the API.
fn expires(text: &str, now: Timestamp) -> anyhow::Result<Timestamp> {
    let after = parse_duration(text).map_err(|error| anyhow::anyhow!("--expires: {error}"))?;
    let after = SignedDuration::try_from(after)?;
    ensure!(
        after.is_positive() && after <= LONGEST_BYPASS,
        "--expires: `{text}` is not between 1s and 4h"
    );
    Ok(Timestamp::from_second(now.checked_add(after)?.as_second())?)
}

/// The Freeze that the user named.
async fn freeze(site: &CommandScope, word: &str) -> anyhow::Result<Freeze> {
    let target = kind_argument::one(&site.cluster, &[word.to_owned()]).await?;
    ensure!(
        target.resource.gvk == resource::<Freeze>().gvk,
        "`{word}` is no Freeze: write freeze/NAME"
    );
    let object = kind_argument::read(site, &target).await?;
    Ok(serde_json::from_value(object.into_value())?)
}

/// The object that the Freeze holds.
async fn object(site: &CommandScope, word: &str) -> anyhow::Result<Object> {
    let target = kind_argument::one(&site.cluster, &[word.to_owned()]).await?;
    let object = kind_argument::read(site, &target).await?;
    ensure!(
        is_held_by_freezes(&object.id()),
        "Freezes do not hold objects of the kind {}",
        object.kind()
    );
    Ok(object)
}

fn subject(object: &Object) -> FreezeBypassSubject {
    let id = object.id();
    FreezeBypassSubject {
        group: id.group,
        kind: id.kind,
        name: id.name,
        uid: object.uid().to_owned(),
        generation: object.generation(),
    }
}

/// The revision to which the held operation would bring an object.
async fn pending_revision(site: &CommandScope, object: &Object) -> anyhow::Result<String> {
    let is_suspended = object.get("spec").is_some_and(|spec| spec["suspend"] == true);
    if let Some(rollback) = object.annotation(ROLLBACK).filter(|_| is_suspended) {
        return Ok(rollback.to_owned());
    }
    for ObjectId { group, kind, namespace, name } in object_references::sources(object) {
        let word = format!("{}.{group}/{namespace}/{name}", kind.to_lowercase());
        let target = kind_argument::one(&site.cluster, &[word]).await?;
        let source = kind_argument::read(site, &target).await?;
        if let Some(revision) = artifact_revision(&source) {
            return Ok(revision);
        }
    }
    bail!(
        "{} names no source with an artifact: give the revision that its condition Ready names, with --revision",
        object.id().subject()
    )
}

/// The revision of the artifact in the status of a source. `None` if the source has no artifact.
fn artifact_revision(source: &Object) -> Option<String> {
    source.get("status")?["artifact"]["revision"].as_str().map(str::to_owned)
}

/// The manifest of a FreezeBypass. It is deleted together with its subject.
fn manifest(object: &Object, spec: FreezeBypassSpec, now: Timestamp) -> anyhow::Result<Value> {
    // Object names contain only ASCII characters.
    let short: String = object.name().chars().take(40).collect();
    let name = format!("{}-{}", short.trim_end_matches(['.', '-']), now.as_millisecond());
    let mut bypass = serde_json::to_value(FreezeBypass::new(&name, spec))?;
    bypass["metadata"]["namespace"] = object.namespace().into();
    bypass["metadata"]["ownerReferences"] = json!([{
        "apiVersion": object.api_version(),
        "kind": object.kind(),
        "name": object.name(),
        "uid": object.uid(),
    }]);
    Ok(bypass)
}

fn said(spec: &FreezeBypassSpec) -> String {
    let FreezeBypassSpec { freeze, subject, revision, expires, .. } = spec;
    let until = expires.as_ref().map(|at| at.0.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
    format!(
        "{revision} of {}/{} may begin although Freeze {} denies, until {}",
        subject.kind,
        subject.name,
        freeze.name,
        until.unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(kind: &str, group: &str) -> Object {
        let object = json!({"apiVersion": format!("{group}/v1"), "kind": kind,
            "metadata": {"name": "shop", "namespace": "apps", "uid": "u", "generation": 3}});
        Object::new(object).unwrap()
    }

    #[test]
    fn a_bypass_is_for_the_present_spec_and_goes_with_its_subject() {
        let object = object("Kustomization", "kustomize.toolkit.fluxcd.io");
        let spec = FreezeBypassSpec { subject: subject(&object), ..FreezeBypassSpec::default() };
        let made = manifest(&object, spec, Timestamp::from_second(1).unwrap()).unwrap();
        assert_eq!(made["metadata"]["name"], "shop-1000");
        assert_eq!(made["metadata"]["namespace"], "apps");
        assert_eq!(made["metadata"]["ownerReferences"][0]["uid"], "u");
        assert_eq!(made["spec"]["subject"]["generation"], 3);
    }

    #[test]
    fn it_counts_for_four_hours_at_most() {
        let at = |text: &str| expires(text, Timestamp::UNIX_EPOCH).map(Timestamp::as_second).ok();
        assert_eq!(at("30m"), Some(1800));
        assert_eq!(at("4h"), Some(14400));
        assert_eq!([at("5h"), at("0s"), at("soon")], [None; 3]);
    }

    #[test]
    fn sources_are_not_held() {
        let is_held = |kind: &str, group: &str| is_held_by_freezes(&object(kind, group).id());
        assert!(is_held("Helmfile", "helmfile.windlass.dev"));
        assert!(is_held("ImageUpdateAutomation", "image.toolkit.fluxcd.io"));
        assert!(!is_held("GitRepository", "source.toolkit.fluxcd.io"));
        assert!(!is_held("Kustomization", "kustomize.config.k8s.io"));
    }
}
