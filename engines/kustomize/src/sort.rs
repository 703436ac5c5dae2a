//! Sorts the objects for the output.

use crate::error::{Error, Result};
use crate::kustomization::{LegacySort, SortOptions};
use crate::openapi_schema::OpenApiSchemas;
use crate::resource_id::{Gvk, ResourceId};
use crate::resources::BuildResources;

const FIRST: [&str; 22] = [
    "Namespace",
    "ResourceQuota",
    "StorageClass",
    "CustomResourceDefinition",
    "ServiceAccount",
    "PodSecurityPolicy",
    "Role",
    "ClusterRole",
    "RoleBinding",
    "ClusterRoleBinding",
    "ConfigMap",
    "Secret",
    "Endpoints",
    "Service",
    "LimitRange",
    "PriorityClass",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "Deployment",
    "StatefulSet",
    "CronJob",
    "PodDisruptionBudget",
];

const LAST: [&str; 2] = ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"];

/// The rank of a kind: negative for kinds that come first, positive for kinds that come last.
fn rank<S: AsRef<str>>(kind: &str, first: &[S], last: &[S]) -> isize {
    let place = |list: &[S]| list.iter().rposition(|known| known.as_ref() == kind);
    let signed = |number: usize| isize::try_from(number).unwrap_or(isize::MAX);
    match (place(first), place(last)) {
        (_, Some(at)) => 1 + signed(at),
        (Some(at), None) => signed(at) - signed(first.len()),
        (None, None) => 0,
    }
}

fn sort_text(gvk: &Gvk) -> String {
    let or = |text: &str, default: &str| {
        if text.is_empty() { default.to_owned() } else { text.to_owned() }
    };
    [or(&gvk.group, "~G"), or(&gvk.version, "~V"), or(&gvk.kind, "~K")].join("_")
}

/// Orders kinds as kustomize orders its configuration.
pub(crate) fn default_key(gvk: &Gvk) -> (isize, String) {
    (rank(&gvk.kind, &FIRST, &LAST), sort_text(gvk))
}

/// Orders objects as `sortOptions` say.
///
/// # Errors
/// The options contradict themselves.
pub(crate) fn sort(
    resources: &mut BuildResources,
    options: &SortOptions,
    schema: &OpenApiSchemas,
) -> Result<()> {
    match options.order.as_str() {
        "fifo" if options.legacy.is_some() => {
            return Err(Error::new(
                "the field 'sortOptions.legacySortOptions' is set but the selected sort order is 'fifo', not 'legacy'",
            ));
        }
        "fifo" => return Ok(()),
        "legacy" => {}
        _ => {
            let text = "the field 'sortOptions.order' must be one of [fifo, legacy]";
            return Err(Error::new(text));
        }
    }
    let owned = |kinds: &[&str]| kinds.iter().map(|kind| (*kind).to_owned()).collect();
    let default = || LegacySort { first: owned(&FIRST), last: owned(&LAST) };
    let LegacySort { first, last } = options.legacy.clone().unwrap_or_else(default);
    resources.list_mut().sort_by_cached_key(|resource| {
        let id = resource.id(schema);
        ResourceSortKey {
            rank: rank(&id.gvk.kind, &first, &last),
            gvk: sort_text(&id.gvk),
            rest: rest(&id),
            id,
        }
    });
    resources.check_ids(schema)
}

fn rest(id: &ResourceId) -> String {
    let or = |text: &str, default: &str| {
        if text.is_empty() { default.to_owned() } else { text.to_owned() }
    };
    [id.gvk.to_string(), or(&id.namespace, "~X"), or(&id.name, "~N")].join("|")
}

#[derive(PartialEq, Eq)]
struct ResourceSortKey {
    rank: isize,
    gvk: String,
    rest: String,
    id: ResourceId,
}

impl PartialOrd for ResourceSortKey {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ResourceSortKey {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        if self.id.gvk == other.id.gvk {
            return self.rest.cmp(&other.rest);
        }
        let are_namespaces = self.id.gvk.kind == "Namespace" && other.id.gvk.kind == "Namespace";
        let one_is_core = self.id.gvk.group.is_empty() || other.id.gvk.group.is_empty();
        let by_text = match are_namespaces && one_is_core {
            true => other.gvk.cmp(&self.gvk),
            false => self.gvk.cmp(&other.gvk),
        };
        // Because groups may contain a `_`, different ids can have the same text. The order must still be total.
        self.rank.cmp(&other.rank).then(by_text).then_with(|| self.id.gvk.cmp(&other.id.gvk))
    }
}
