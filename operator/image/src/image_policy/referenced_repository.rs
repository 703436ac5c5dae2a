//! Finds the ImageRepository that a policy names, and decides whether the policy may use its tags.

use std::collections::BTreeMap;
use std::sync::Arc;

use crds::image::{ImagePolicy, ImageRepository};
use crds::source::AccessFrom;
use kube_core::{Resource as _, ResourceExt as _};
use reconcile::{ConditionReason, NextRunTrigger, ObjectKey, RunOutcome, condition_reason};
use windlass_cluster::namespace_policies::NamespacePolicies;
use windlass_runtime::controller_kind::node_named;
use windlass_runtime::run_context::RunContext;
use windlass_runtime::run_error::RunError;

/// The node of the ImageRepository that a policy names.
pub(super) fn node_of_reference(object: &ImagePolicy) -> ObjectKey {
    let reference = &object.spec.image_repository_ref;
    let own = object.namespace().unwrap_or_default();
    let namespace = reference.namespace.as_deref().unwrap_or(&own);
    node_named::<ImageRepository>(namespace, &reference.name)
}

/// Parity(flux): these words are before every cause.
fn failed(why: ConditionReason, text: &str) -> RunOutcome {
    let text = format!("failed to get the referred ImageRepository: {text}");
    RunOutcome::Failed(why, text, NextRunTrigger::default())
}

/// The ImageRepository `source`, which the policy `node` names.
///
/// # Errors
/// It does not exist, the policy may not have its tags, or the API server did not say.
pub(super) async fn referred(
    context: &RunContext,
    node: &ObjectKey,
    source: &ObjectKey,
) -> Result<Arc<ImageRepository>, RunError> {
    let ObjectKey { namespace, name, .. } = source;
    let is_foreign = *namespace != node.namespace;
    if is_foreign && context.settings.no_cross_namespace_refs {
        let text = format!(
            "cannot access 'ImageRepository/{namespace}/{name}', cross-namespace references have been blocked"
        );
        return Err(failed(condition_reason::ACCESS_DENIED, &text).into());
    }
    let found = match context.seen::<ImageRepository>(namespace, name) {
        Some(found) => Some(found),
        // The list of ImageRepositories may not be complete yet.
        None => context.cluster.read::<ImageRepository>(namespace, name).await?.map(Arc::new),
    };
    let Some(found) = found else {
        let plural = ImageRepository::plural(&());
        let group = ImageRepository::group(&());
        let text = format!(
            "referenced ImageRepository does not exist: {plural}.{group} \"{name}\" not found"
        );
        return Err(failed(condition_reason::DEPENDENCY_NOT_READY, &text).into());
    };
    if is_foreign {
        let labels = labels_of(context, &node.namespace).await?;
        let access_from = found.spec.access_from.as_ref();
        admit(access_from, &node.namespace, &labels).map_err(|why| denied(source, &why))?;
    }
    Ok(found)
}

/// The labels of a namespace.
///
/// # Errors
/// They are not known.
async fn labels_of(
    context: &RunContext,
    namespace: &str,
) -> Result<BTreeMap<String, String>, RunOutcome> {
    let namespaces = context.shared::<NamespacePolicies>();
    namespaces.known().await;
    let facts = namespaces.facts(namespace);
    facts.map(|facts| facts.labels).ok_or_else(|| {
        let text = format!("the labels of namespace '{namespace}' are not known");
        failed(condition_reason::DEPENDENCY_NOT_READY, &text)
    })
}

fn denied(source: &ObjectKey, why: &str) -> RunOutcome {
    let ObjectKey { namespace, name, .. } = source;
    let text = format!("access denied: '{namespace}/{name}' can't be accessed due to {why}");
    failed(condition_reason::ACCESS_DENIED, &text)
}

/// Whether policies of a namespace with these labels may have the tags.
///
/// # Errors
/// Says in Flux's words why not.
fn admit(
    access_from: Option<&AccessFrom>,
    namespace: &str,
    labels: &BTreeMap<String, String>,
) -> Result<(), String> {
    let Some(access_from) = access_from else {
        return Err("missing ACL labels on 'accessFrom'".to_owned());
    };
    let is_met = access_from
        .namespace_selectors
        .iter()
        .any(|it| it.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value)));
    if is_met { Ok(()) } else { Err(format!("ACL labels mismatch on namespace '{namespace}'")) }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_policy_names_a_repository_of_its_own_namespace_unless_it_says_otherwise() {
        let named = |reference: Value| {
            let object: ImagePolicy = serde_json::from_value(json!({
                "metadata": {"name": "app", "namespace": "apps"},
                "spec": {"imageRepositoryRef": reference, "policy": {}},
            }))
            .unwrap();
            node_of_reference(&object).to_string()
        };
        assert_eq!(named(json!({"name": "a"})), "ImageRepository/apps/a");
        assert_eq!(named(json!({"name": "a", "namespace": ""})), "ImageRepository/apps/a");
        assert_eq!(named(json!({"name": "a", "namespace": "b"})), "ImageRepository/b/a");
    }

    #[test]
    fn one_selector_whose_labels_are_all_there_admits_a_namespace() {
        let labels = BTreeMap::from(
            [("team", "a"), ("env", "prod")].map(|(key, value)| (key.to_owned(), value.to_owned())),
        );
        let admits = |selectors: Value| {
            let access: AccessFrom =
                serde_json::from_value(json!({"namespaceSelectors": selectors})).unwrap();
            admit(Some(&access), "apps", &labels).is_ok()
        };
        for (selectors, expected) in [
            (json!([{}]), true),
            (json!([{"matchLabels": {}}]), true),
            (json!([{"matchLabels": {"team": "a"}}]), true),
            (json!([{"matchLabels": {"team": "b"}}, {"matchLabels": {"env": "prod"}}]), true),
            (json!([{"matchLabels": {"team": "a", "env": "dev"}}]), false),
            (json!([{"matchLabels": {"other": "a"}}]), false),
            (json!([]), false),
        ] {
            assert_eq!(admits(selectors.clone()), expected, "{selectors}");
        }
        let source = ObjectKey::new("image.toolkit.fluxcd.io", "ImageRepository", "shared", "app");
        let why = admit(None, "apps", &labels).unwrap_err();
        assert_eq!(
            denied(&source, &why).text(),
            "failed to get the referred ImageRepository: access denied: 'shared/app' can't be \
             accessed due to missing ACL labels on 'accessFrom'"
        );
    }
}
