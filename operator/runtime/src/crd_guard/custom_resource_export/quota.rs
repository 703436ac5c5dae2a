//! Limits how many Secrets of exports windlass's namespace may have, because they stay until a user deletes them.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{CustomResourceExportDestination, EXPORT, TENANT};

/// The most Secrets of exports in a cluster.
const MAX_EXPORT_SECRETS: usize = 64;

/// The most Secrets of exports for CRDs that ServiceAccounts of tenants delete. The rest of the room is for others.
const MOST_OF_TENANTS: usize = 48;

/// The most Secrets of exports for one namespace of a tenant.
const MOST_OF_ONE: usize = 16;

/// The reason why there is no room for the Secrets of an export. `None` if there is room. `listed` is the metadata of the
/// existing Secrets of exports.
pub(super) fn lacking(
    listed: &[Value],
    is_more: bool,
    wanted: &BTreeSet<&str>,
    site: &CustomResourceExportDestination<'_>,
) -> Option<String> {
    let name = |it: &Value| it["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let tenant = |it: &Value| it["metadata"]["annotations"][TENANT].as_str().map(str::to_owned);
    let others: Vec<Option<String>> =
        listed.iter().filter(|it| !wanted.contains(name(it).as_str())).map(tenant).collect();
    let of_one = others.iter().flatten().filter(|it| *it == site.owner).count();
    let all = others.len();
    let of_tenants = others.iter().flatten().count();
    let of_owner = format!("for objects that a ServiceAccount of {} deletes", site.owner);
    let limits = [
        (all, MAX_EXPORT_SECRETS, "of exports".to_owned(), true),
        (of_tenants, MOST_OF_TENANTS, "of exports of tenants".to_owned(), site.is_tenant),
        (of_one, MOST_OF_ONE, format!("of exports {of_owner}"), site.is_tenant),
    ];
    let mut limits = limits.into_iter().filter(|it| it.3);
    let (has, most, of, _) =
        limits.find(|(has, most, ..)| is_more || has + wanted.len() > *most)?;
    let namespace = site.namespace;
    Some(format!(
        "the export needs {} Secrets, and namespace {namespace} may have {most} {of} and has {has}; delete those that are no \
         longer needed: `kubectl delete secret -n {namespace} -l {EXPORT}=<uid>`",
        wanted.len(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn listed(count: usize, tenant: Option<&str>) -> Vec<Value> {
        let one = |at| {
            json!({"metadata": {"name": format!("{}-{at}", tenant.unwrap_or("own")),
                "annotations": {TENANT: tenant}}})
        };
        (0..count).map(one).collect()
    }

    fn most(listed: &[Value], owner: &str, is_tenant: bool) -> usize {
        let site = CustomResourceExportDestination {
            namespace: "flux-system",
            place: "",
            owner,
            is_tenant,
        };
        let names: Vec<String> = (0..100).map(|at| format!("new-{at}")).collect();
        let fits = |count: usize| {
            let wanted = names.iter().take(count).map(String::as_str).collect();
            lacking(listed, false, &wanted, &site).is_none()
        };
        (1..100).find(|it| !fits(*it)).unwrap_or_default() - 1
    }

    #[test]
    fn a_tenant_leaves_room_for_others() {
        assert_eq!(most(&[], "infra", false), 64);
        assert_eq!(most(&[], "shop", true), 16);
        let of_shop = listed(16, Some("shop"));
        assert_eq!((most(&of_shop, "shop", true), most(&of_shop, "other", true)), (0, 16));
        let all = [of_shop, listed(16, Some("b")), listed(10, Some("c"))].concat();
        assert_eq!((most(&all, "other", true), most(&all, "infra", false)), (6, 22));
        assert_eq!(most(&listed(64, None), "infra", false), 0);
    }

    #[test]
    fn what_an_interrupted_attempt_stored_needs_no_room() {
        let site = CustomResourceExportDestination {
            namespace: "flux-system",
            place: "",
            owner: "infra",
            is_tenant: false,
        };
        let full = listed(64, None);
        assert_eq!(lacking(&full, false, &BTreeSet::from(["own-3", "own-4"]), &site), None);
        let text = lacking(&full, false, &BTreeSet::from(["new"]), &site).unwrap_or_default();
        assert!(text.contains("needs 1 Secrets, and namespace flux-system may have 64"), "{text}");
        assert!(lacking(&[], true, &BTreeSet::from(["new"]), &site).is_some());
    }
}
