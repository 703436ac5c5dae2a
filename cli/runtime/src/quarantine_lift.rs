//! Lifts a Quarantine, so that windlass may apply a failed result again. Also describes a Quarantine in a table row.
//!
//! The API server decides who may lift a Quarantine. The request contains the user's name, and the included admission policy
//! verifies that name (`deploy/policies/quarantines.yaml`).
//! Elsewhere: which Quarantines are in force (`windlass_quarantine`).

use anyhow::{Context as _, bail, ensure};
use crds::windlass_release::Quarantine;
use kube_core::{Resource as _, ResourceExt as _};
use objects::{Gvk, Object};
use serde_json::{Value, json};

use crate::status_request;
use windlass_cluster::ClusterConnection;
use windlass_cluster::discovery::ApiResourceLocation;
use windlass_cluster::object_pages::ObjectQuery;

/// The prefix of ServiceAccount user names. ServiceAccounts may not lift a Quarantine.
const SERVICE_ACCOUNT_PREFIX: &str = "system:serviceaccount:";

/// The minimum number of digits of a commit or digest that identify a revision.
const MIN_PREFIX_LENGTH: usize = 7;

/// A request to lift a Quarantine.
#[derive(Debug, Clone, Copy)]
pub struct QuarantineLiftRequest<'a> {
    /// The applier of the failed result.
    pub object: &'a Object,
    /// The failed revision, the beginning of its commit or digest, or the name of the Quarantine.
    pub revision: &'a str,
    /// The user's reason.
    pub reason: Option<&'a str>,
    /// The current time in the format of the API.
    pub now: &'a str,
    /// The field manager of the request.
    pub manager: &'a str,
}

/// Lifts the Quarantine of a revision of an object. Returns the full revision.
///
/// # Errors
/// No Quarantine of the object matches the revision, several match, the user is a ServiceAccount, or the API server refuses.
pub async fn lift(
    cluster: &ClusterConnection,
    request: &QuarantineLiftRequest<'_>,
) -> anyhow::Result<String> {
    let user = cluster.own_name().await.context("cannot tell who lifts the Quarantine")?;
    ensure!(!user.is_empty(), "the API server does not name this user");
    ensure!(
        !user.starts_with(SERVICE_ACCOUNT_PREFIX),
        "{user} is a ServiceAccount, which cannot lift a Quarantine"
    );
    let resource = cluster.resource(&kind()).await?;
    let namespace = request.object.namespace();
    let own = own(cluster, &resource, request.object).await?;
    let chosen = chosen(&own, request)?;
    let patch = patch(chosen, &user, request);
    let name = chosen.name_any();
    status_request::write(cluster, &resource, namespace, &name, &patch, request.manager).await?;
    Ok(chosen.spec.result.revision.clone())
}

/// The Quarantines of an object that are in force.
///
/// # Errors
/// The objects cannot be listed.
pub async fn in_force(
    cluster: &ClusterConnection,
    object: &Object,
) -> anyhow::Result<Vec<Quarantine>> {
    let resource = cluster.resource(&kind()).await?;
    let mut own = own(cluster, &resource, object).await?;
    own.retain(|it| !is_lifted(it));
    Ok(own)
}

fn kind() -> Gvk {
    Gvk::new(&Quarantine::api_version(&()), &Quarantine::kind(&()))
}

/// All Quarantines of an object.
async fn own(
    cluster: &ClusterConnection,
    resource: &ApiResourceLocation,
    object: &Object,
) -> anyhow::Result<Vec<Quarantine>> {
    let namespace = object.namespace();
    let mut own = Vec::new();
    let mut pages = cluster.object_pages(ObjectQuery { namespace, ..ObjectQuery::all(resource) });
    while let Some(page) = pages.next().await? {
        own.extend(page.objects.into_iter().filter_map(|it| of_object(it, object)));
    }
    Ok(own)
}

/// Converts an object to a Quarantine of this applier. `None` if the object belongs to another applier or cannot be parsed.
fn of_object(quarantine: Object, applier: &Object) -> Option<Quarantine> {
    let quarantine: Quarantine = serde_json::from_value(quarantine.into_value()).ok()?;
    (quarantine.spec.subject.uid == applier.uid()).then_some(quarantine)
}

/// Whether a Quarantine is about a revision or has this name.
fn is_of(quarantine: &Quarantine, revision: &str) -> bool {
    let is_named = quarantine.metadata.name.as_deref() == Some(revision);
    let full = quarantine.spec.result.revision.as_str();
    let is_prefix = |part: &str| revision.len() >= MIN_PREFIX_LENGTH && part.starts_with(revision);
    is_named || full == revision || full.rsplit(':').next().is_some_and(is_prefix)
}

/// Whether a user lifted a Quarantine. An entry of a ServiceAccount does not count, and does not keep a user from lifting the
/// Quarantine.
#[must_use]
pub fn is_lifted(quarantine: &Quarantine) -> bool {
    let lift = quarantine.status.as_ref().and_then(|status| status.lift.as_ref());
    lift.is_some_and(|it| counts(&it.user))
}

/// Whether the user in a Quarantine is allowed to lift it.
fn counts(user: &str) -> bool {
    !user.is_empty() && !user.starts_with(SERVICE_ACCOUNT_PREFIX)
}

/// Selects the Quarantine that the user named. A revision may have several failed results with different variables. Quarantines
/// that were lifted are skipped.
fn chosen<'q>(
    own: &'q [Quarantine],
    request: &QuarantineLiftRequest<'_>,
) -> anyhow::Result<&'q Quarantine> {
    let subject = request.object.id().subject();
    let of_revision: Vec<&Quarantine> =
        own.iter().filter(|it| is_of(it, request.revision)).collect();
    let mut in_force = of_revision.iter().copied().filter(|it| !is_lifted(it));
    match (in_force.next(), in_force.next(), of_revision.first()) {
        (Some(one), None, _) => Ok(one),
        (Some(one), Some(other), _) => bail!(
            "Quarantines {one} and {other} of {subject} are both of revision {}: it built two results that failed; name one of \
             them: `--revision {one}`",
            request.revision,
            one = one.name_any(),
            other = other.name_any(),
        ),
        (None, _, Some(one)) => {
            bail!("the Quarantine {} of {subject} is lifted already", one.name_any())
        }
        (None, _, None) => {
            let in_force = own.iter().filter(|it| !is_lifted(it));
            let known: Vec<&str> = in_force.map(|it| it.spec.result.revision.as_str()).collect();
            match known.is_empty() {
                true => bail!("no revision of {subject} is quarantined"),
                false => bail!(
                    "revision {} of {subject} is not quarantined; these are: {}",
                    request.revision,
                    known.join(", ")
                ),
            }
        }
    }
}

/// The table text of a Quarantine: the failed result, the result that is applied instead, and who lifted it. `None` for other
/// objects.
#[must_use]
pub fn row_message(object: &Object) -> Option<String> {
    let is_of_group = object.api_version().starts_with("release.windlass.dev/");
    let is_its_kind = is_of_group && object.kind() == "Quarantine";
    let spec = object.get("spec").filter(|_| is_its_kind)?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let subject = format!("{}/{}", text(&spec["subject"]["kind"]), text(&spec["subject"]["name"]));
    let result = format!("{} of {subject}", text(&spec["result"]["revision"]));
    let lift = object.get("status").and_then(|status| status["lift"]["user"].as_str());
    let lift = lift.filter(|user| counts(user));
    Some(match (lift, spec["lastGood"]["revision"].as_str()) {
        (Some(user), _) => format!("{result} may be applied again, lifted by {user}"),
        (None, Some(good)) => format!("{result} failed, {good} is applied in its place"),
        (None, None) => format!("{result} failed, and nothing is rolled back"),
    })
}

/// The patch with the request. It contains the UID, so it applies only to the object that was read.
fn patch(quarantine: &Quarantine, user: &str, request: &QuarantineLiftRequest<'_>) -> Value {
    let mut lift = json!({"user": user, "at": request.now});
    if let Some(reason) = request.reason.filter(|reason| !reason.trim().is_empty()) {
        lift["reason"] = reason.into();
    }
    json!({
        "metadata": {
            "uid": quarantine.uid(),
            "resourceVersion": quarantine.resource_version(),
        },
        "status": {"lift": lift},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applier() -> Object {
        Object::new(json!({"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
            "metadata": {"name": "shop", "namespace": "apps", "uid": "u"}}))
        .unwrap()
    }

    fn request<'a>(object: &'a Object, revision: &'a str) -> QuarantineLiftRequest<'a> {
        let now = "2026-11-30T09:00:00Z";
        QuarantineLiftRequest { object, revision, reason: Some("fixed"), now, manager: "m" }
    }

    fn quarantine(name: &str, revision: &str, uid: &str) -> Object {
        Object::new(json!({"apiVersion": "release.windlass.dev/v1alpha1", "kind": "Quarantine",
            "metadata": {"name": name, "namespace": "apps", "uid": name, "resourceVersion": "7"},
            "spec": {"subject": {"uid": uid}, "result": {"revision": revision}}}))
        .unwrap()
    }

    fn all() -> Vec<Quarantine> {
        let written = [
            quarantine("a", "main@sha1:aaaaaaaa", "u"),
            quarantine("b", "main@sha1:bbbbbbbb", "u"),
            quarantine("c", "main@sha1:cccccccc", "other"),
        ];
        written.into_iter().filter_map(|it| of_object(it, &applier())).collect()
    }

    fn error(own: &[Quarantine], revision: &str) -> String {
        chosen(own, &request(&applier(), revision)).unwrap_err().to_string()
    }

    #[test]
    fn a_revision_is_named_in_full_or_by_the_beginning_of_its_commit() {
        let own = all();
        for revision in ["main@sha1:aaaaaaaa", "aaaaaaa", "aaaaaaaa"] {
            let object = applier();
            let found = chosen(&own, &request(&object, revision)).unwrap();
            assert_eq!(found.name_any(), "a", "{revision}");
        }
        for revision in ["aaa", "main", "cccccccc"] {
            let text = error(&own, revision);
            assert!(text.contains("these are: main@sha1:aaaaaaaa, main@sha1:bbbbbbbb"), "{text}");
        }
        assert!(error(&[], "aaaaaaa").contains("no revision of Kustomization/apps/shop is"));
    }

    #[test]
    fn what_is_lifted_is_not_lifted_twice_and_two_results_of_a_revision_are_named() {
        let mut own = all();
        own[0].status = serde_json::from_value(json!({"lift": {"user": "alice"}})).unwrap();
        assert!(error(&own, "aaaaaaa").contains("is lifted already"));
        let object = applier();
        let named = |own: &[Quarantine], revision: &str| {
            chosen(own, &request(&object, revision)).map(|it| it.name_any()).unwrap()
        };
        own[1].spec.result.revision = "main@sha1:aaaaaaaa".to_owned();
        assert_eq!(named(&own, "aaaaaaa"), "b", "the other one is lifted");
        let robot = json!({"lift": {"user": "system:serviceaccount:apps:robot"}});
        own[0].status = serde_json::from_value(robot).unwrap();
        assert!(error(&own, "aaaaaaa").contains("Quarantines a and b"), "a robot lifts nothing");
        assert_eq!(named(&own, "a"), "a", "the name of a Quarantine is enough");
    }

    #[test]
    fn the_user_and_the_reason_are_written_to_what_was_read() {
        let own = all();
        let object = applier();
        let written = patch(&own[0], "alice", &request(&object, "aaaaaaa"));
        assert_eq!(written["metadata"]["resourceVersion"], "7");
        let lift = json!({"user": "alice", "at": "2026-11-30T09:00:00Z", "reason": "fixed"});
        assert_eq!(written["status"]["lift"], lift);
    }
}
