//! Predicts the effect of a Quarantine. windlass does not apply the failed result again, but applies the last good result
//! instead.
//!
//! Elsewhere: the same decision during a reconciliation (`quarantined_results` of Kustomizations, `quarantined_releases` of
//! HelmReleases), lifting a Quarantine (`windlass_cli_runtime::quarantine_lift`).

use crds::windlass_release::{Quarantine, QuarantineAction};
use kube_core::ResourceExt as _;
use objects::{Object, ObjectId};
use quarantine::build_inputs_record::is_of_same_source;
use quarantine::rollback_protected_objects::is_kept;

use super::kustomization;
use super::predicted_changes::{DiffAction, DiffChange, DiffReport};
use crate::render::{self, BuildFilesOrigin, EarlierArtifact};
use windlass_cli_runtime::quarantine_lift;
use windlass_cluster::ClusterConnection;
use windlass_serve::settings::OperatorSettings;

/// The Quarantine in force of the object's result with this digest. `None` if there is none, or if Quarantines cannot be read.
/// In the second case, `warn` receives the reason.
pub(super) async fn in_force(
    cluster: &ClusterConnection,
    object: &Object,
    digest: &str,
    warn: &mut dyn FnMut(&str),
) -> Option<Quarantine> {
    match quarantine_lift::in_force(cluster, object).await {
        Ok(own) => own.into_iter().find(|it| it.spec.result.digest == digest),
        Err(error) => {
            warn(&format!("Quarantines cannot be read, so this may be quarantined: {error:#}"));
            None
        }
    }
}

/// The message that a result is not applied.
pub(super) fn text(quarantine: &Quarantine) -> String {
    let spec = &quarantine.spec;
    let result = &spec.result.revision;
    let name = quarantine.name_any();
    let kind = spec.subject.kind.to_lowercase();
    let namespace = quarantine.namespace().unwrap_or_default();
    let lift = format!(
        "`windlass resume {kind}/{} -n {namespace} --revision {result}` lifts that",
        spec.subject.name
    );
    match spec.last_good.as_ref().filter(|_| spec.action == QuarantineAction::RollBack) {
        Some(good) => format!(
            "revision {result} is quarantined (Quarantine {name}), so revision {} stays in its place; {lift}",
            good.revision
        ),
        None => format!(
            "revision {result} is quarantined (Quarantine {name}), so nothing is applied; {lift}"
        ),
    }
}

/// Predicts the next reconciliation of a Kustomization whose result is quarantined. It applies the last good artifact.
///
/// # Errors
/// The last good artifact cannot be read or built.
pub(super) async fn way_back(
    cluster: &ClusterConnection,
    object: &Object,
    quarantine: &Quarantine,
    settings: OperatorSettings,
) -> anyhow::Result<DiffReport> {
    let spec = &quarantine.spec;
    let good = spec.last_good.as_ref().filter(|_| spec.action == QuarantineAction::RollBack);
    let Some(good) = good else { return Ok(DiffReport::default()) };
    let BuildFilesOrigin::Source(source) = BuildFilesOrigin::of(None, object)? else {
        return Ok(DiffReport::default());
    };
    // The good artifact in the Quarantine may come from another source than the failed one. Then nothing is changed.
    if !is_of_same_source(&good.artifact_path, &spec.result.artifact_path) {
        return Ok(DiffReport::default());
    }
    let earlier = BuildFilesOrigin::Earlier(EarlierArtifact {
        source,
        path: good.artifact_path.clone(),
        digest: good.artifact_digest.clone(),
        revision: good.revision.clone(),
    });
    let built = render::kustomization::build(cluster, object.clone(), &earlier, settings).await?;
    if built.desired_kustomization.digest != good.digest {
        return Ok(DiffReport::default());
    }
    let mut difference = kustomization::diff(cluster, &built).await?;
    difference.changes.retain(is_done_on_way_back);
    Ok(difference)
}

/// Whether a rollback makes this change. A rollback deletes no objects with data.
fn is_done_on_way_back(change: &DiffChange) -> bool {
    let object = &change.object;
    let group = object.api_version.split_once('/').map_or("", |(group, _)| group);
    let id = ObjectId::new(&object.namespace, &object.name, group, &object.kind);
    !(matches!(change.action, DiffAction::Removed | DiffAction::Recreated) && is_kept(&id))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn quarantine(action: &str) -> Quarantine {
        serde_json::from_value(
            json!({"apiVersion": "release.windlass.dev/v1alpha1", "kind": "Quarantine",
            "metadata": {"name": "shop-1", "namespace": "apps"},
            "spec": {"subject": {"kind": "Kustomization", "name": "shop"}, "action": action,
                "result": {"revision": "main@sha1:2"}, "lastGood": {"revision": "main@sha1:1"}}}),
        )
        .unwrap()
    }

    #[test]
    fn what_stays_in_place_of_a_quarantined_result_is_named_with_the_command_that_lifts_it() {
        let back = text(&quarantine("RollBack"));
        assert!(back.contains("revision main@sha1:1 stays in its place"), "{back}");
        let command = "`windlass resume kustomization/shop -n apps --revision main@sha1:2`";
        assert!(back.contains(command), "{back}");
        assert!(text(&quarantine("Hold")).contains("nothing is applied"));
    }

    #[test]
    fn the_way_back_deletes_nothing_that_has_data() {
        let change = |action, api: &str, kind: &str| {
            let metadata = json!({"name": "a", "namespace": "apps"});
            let object = json!({"apiVersion": api, "kind": kind, "metadata": metadata});
            DiffChange::of(action, &Object::new(object).unwrap())
        };
        for (action, kind, is_done) in [
            (DiffAction::Removed, "PersistentVolumeClaim", false),
            (DiffAction::Recreated, "PersistentVolumeClaim", false),
            (DiffAction::Changed, "PersistentVolumeClaim", true),
            (DiffAction::Removed, "ConfigMap", true),
        ] {
            assert_eq!(is_done_on_way_back(&change(action, "v1", kind)), is_done, "{kind}");
        }
    }
}
