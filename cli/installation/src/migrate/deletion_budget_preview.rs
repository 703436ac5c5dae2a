//! Predicts which deletions the deletion budget of windlass would hold. Flux has no budget, and deletes at once.
//!
//! Elsewhere: the budget itself (engine `apply`, `deletion_budget`). PlanPolicies of the cluster are not read, because none
//! exist before windlass is installed.

use apply::deletion_budget::DeletionBudget;
use objects::{Object, ObjectId};

use super::super::install::name;
use windlass_cli_runtime::table::clean;

/// The maximum number of objects of an applier that are named.
const MAX_NAMED_OBJECTS: usize = 3;
/// The maximum number of appliers that are listed.
const MAX_LISTED_APPLIERS: usize = 20;

/// The appliers whose deletions windlass would hold.
#[derive(Debug, Default)]
pub(super) struct DeletionBudgetPreview {
    appliers: Vec<ApplierDeletions>,
}

/// The inventory of an applier, as numbers.
#[derive(Debug)]
struct ApplierDeletions {
    applier: String,
    /// The number of objects.
    objects: usize,
    /// The number of objects that are not deleted without approval.
    held: usize,
    /// The first objects that are not deleted without approval.
    first: Vec<String>,
}

/// Whether an applier deletes objects that were removed from its manifests.
fn deletes(object: &Object) -> bool {
    let group = object.gvk().group;
    match (group.as_str(), object.kind()) {
        ("kustomize.toolkit.fluxcd.io", "Kustomization") => {
            object.get("spec").is_some_and(|spec| spec["prune"] == true)
        }
        ("helm.toolkit.fluxcd.io", "HelmRelease") => true,
        _ => false,
    }
}

impl DeletionBudgetPreview {
    /// Adds an object of Flux with its inventory, if windlass may hold a deletion.
    pub(super) fn add(&mut self, object: &Object, inventory: impl Iterator<Item = ObjectId>) {
        if !deletes(object) {
            return;
        }
        let budget = DeletionBudget::default();
        let applier = name(object);
        let mut found = ApplierDeletions { applier, objects: 0, held: 0, first: Vec::new() };
        for id in inventory {
            found.objects += 1;
            if !budget.may_hold(&id) {
                continue;
            }
            found.held += 1;
            if found.first.len() < MAX_NAMED_OBJECTS {
                found.first.push(id.subject());
            }
        }
        if found.held > 0 || found.objects > budget.max_objects {
            self.appliers.push(found);
        }
    }

    /// A table of the appliers with the most such objects. Empty if windlass would hold no deletion.
    pub(super) fn table(&self) -> String {
        let mut appliers: Vec<&ApplierDeletions> = self.appliers.iter().collect();
        appliers.sort_by(|a, b| {
            let most = (b.held, b.objects).cmp(&(a.held, a.objects));
            most.then_with(|| a.applier.cmp(&b.applier))
        });
        let mut text = String::new();
        let listed = appliers.iter().take(MAX_LISTED_APPLIERS);
        let width = listed.clone().map(|it| it.applier.chars().count()).max().unwrap_or_default();
        for ApplierDeletions { applier, objects, held, first } in listed {
            let mut names = first.clone();
            match held.saturating_sub(first.len()) {
                0 => {}
                more => names.push(format!("{more} more")),
            }
            if names.is_empty() {
                names.push("-".to_owned());
            }
            let names = clean(&names.join(", "));
            text.push_str(&format!("{:<width$} {objects:>7}  {names}\n", clean(applier)));
        }
        let more = appliers.len().saturating_sub(MAX_LISTED_APPLIERS);
        if more > 0 {
            text.push_str(&format!("{more} more\n"));
        }
        if text.is_empty() {
            return text;
        }
        let what = "NOT DELETED WITHOUT APPROVAL";
        format!("{:<width$} {:>7}  {what}\n{text}", "APPLIER", "OBJECTS")
    }

    /// The explanation of the table.
    pub(super) fn explanation() -> String {
        let DeletionBudget { max_objects, max_percent, percent_above_objects, .. } =
            DeletionBudget::default();
        format!(
            "windlass deletes the objects that are named, when they leave the manifests, only after a user approved it (a \
             StatefulSet only if it has volumeClaimTemplates); so with more than {max_objects} objects of an applier at once or in \
             an hour, more than {max_percent} % of more than {percent_above_objects}, and a build without any object. A PlanPolicy \
             sets another budget, and --deletion-budget=false none"
        )
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn object(kind: &str, name: &str, spec: Value) -> Object {
        let group = match kind {
            "HelmRelease" => "helm",
            _ => "kustomize",
        };
        Object::new(json!({"apiVersion": format!("{group}.toolkit.fluxcd.io/v1"), "kind": kind,
            "metadata": {"name": name, "namespace": "shop"}, "spec": spec}))
        .unwrap()
    }

    fn ids(ids: &[&str]) -> Vec<ObjectId> {
        ids.iter().map(|id| id.parse().unwrap()).collect()
    }

    #[test]
    fn protected_objects_and_large_inventories_are_listed() {
        let mut held = DeletionBudgetPreview::default();
        let maps: Vec<ObjectId> =
            (0..11).map(|at| format!("shop_m{at}__ConfigMap").parse().unwrap()).collect();
        let prunes = || json!({"prune": true});
        held.add(&object("Kustomization", "few", prunes()), maps[..10].iter().cloned());
        held.add(&object("Kustomization", "many", prunes()), maps.iter().cloned());
        let claims = [
            "_shop__Namespace",
            "shop_a__PersistentVolumeClaim",
            "shop_db_apps_StatefulSet",
            "shop_web_helm.toolkit.fluxcd.io_HelmRelease",
            "shop_web__Service",
        ];
        held.add(&object("Kustomization", "data", prunes()), ids(&claims).into_iter());
        let left = object("Kustomization", "left", json!({"prune": false}));
        held.add(&left, ids(&claims).into_iter());
        held.add(&object("HelmRelease", "db", json!({})), ids(&claims[2..3]).into_iter());
        let expected = "\
APPLIER                 OBJECTS  NOT DELETED WITHOUT APPROVAL
Kustomization/shop/data       5  Namespace/shop, PersistentVolumeClaim/shop/a, StatefulSet/shop/db, 1 more
HelmRelease/shop/db           1  StatefulSet/shop/db
Kustomization/shop/many      11  -
";
        assert_eq!(held.table(), expected);
        assert!(DeletionBudgetPreview::explanation().contains("more than 10 objects"));
    }

    #[test]
    fn the_appliers_with_most_are_listed_and_the_others_counted() {
        let mut held = DeletionBudgetPreview::default();
        assert_eq!(held.table(), "");
        for at in 0..30 {
            let object = object("HelmRelease", &format!("r{at:02}"), json!({}));
            held.add(&object, ids(&["shop_a__PersistentVolumeClaim"]).into_iter());
        }
        let table = held.table();
        assert_eq!(table.lines().count(), 1 + MAX_LISTED_APPLIERS + 1, "{table}");
        assert!(table.ends_with("\n10 more\n"), "{table}");
    }
}
