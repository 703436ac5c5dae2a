//! Eight appliers in four levels, each with one object that ends slowly.
//!
//! Flux's `dependsOn` names objects of the same kind. So Flux does not get the dependencies across kinds, and they count
//! nevertheless: what the objects need does not depend on the operator.

use e2e::harness::StoryObject;
use serde_json::{Value, json};

use super::deletion_scenario::{
    DeletionOrderRow, DeletionPair, DeletionScenarioSettings, RemovedObject, Scene, held_config_map,
};
use super::operators::GitOpsOperator;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ApplierKind {
    Kustomization,
    HelmRelease,
}

/// An applier, and the names of those that it depends on.
struct GraphApplier {
    name: &'static str,
    kind: ApplierKind,
    needs: &'static [&'static str],
}

static APPLIERS: [GraphApplier; 8] = [
    GraphApplier { name: "base", kind: ApplierKind::Kustomization, needs: &[] },
    GraphApplier { name: "crds", kind: ApplierKind::Kustomization, needs: &[] },
    GraphApplier { name: "db", kind: ApplierKind::HelmRelease, needs: &["base"] },
    GraphApplier { name: "cache", kind: ApplierKind::Kustomization, needs: &["base", "crds"] },
    GraphApplier { name: "jobs", kind: ApplierKind::HelmRelease, needs: &["db"] },
    GraphApplier { name: "api", kind: ApplierKind::Kustomization, needs: &["cache", "db"] },
    GraphApplier { name: "web", kind: ApplierKind::HelmRelease, needs: &["jobs", "api"] },
    GraphApplier { name: "shop", kind: ApplierKind::Kustomization, needs: &["api"] },
];

impl GraphApplier {
    fn target(&self) -> StoryObject {
        match self.kind {
            ApplierKind::Kustomization => StoryObject::kustomization(self.name),
            ApplierKind::HelmRelease => StoryObject::helm_release(self.name),
        }
    }

    /// The object that the applier creates.
    fn workload(&self) -> RemovedObject {
        match self.kind {
            ApplierKind::Kustomization => RemovedObject::config_map(self.name).slow(),
            ApplierKind::HelmRelease => RemovedObject::release_workload(self.name),
        }
    }

    /// The applier, and everything that exists because of it.
    fn objects(&self, namespace: &str) -> Vec<RemovedObject> {
        let mut all = vec![self.workload()];
        match self.kind {
            ApplierKind::Kustomization => all.push(RemovedObject::kustomization(self.name)),
            ApplierKind::HelmRelease => {
                all.extend(RemovedObject::helm_release(namespace, self.name));
            }
        }
        all
    }

    /// The `dependsOn` that the operator supports.
    fn depends_on(&self, operator: GitOpsOperator) -> Vec<Value> {
        let needed = APPLIERS.iter().filter(|it| self.needs.contains(&it.name));
        let entry = |needed: &Self| match (needed.kind == self.kind, operator) {
            (true, _) => Some(json!({"name": needed.name})),
            (false, GitOpsOperator::Windlass) => {
                let api = match needed.kind {
                    ApplierKind::Kustomization => "kustomize.toolkit.fluxcd.io/v1",
                    ApplierKind::HelmRelease => "helm.toolkit.fluxcd.io/v2",
                };
                let kind = format!("{:?}", needed.kind);
                Some(json!({"apiVersion": api, "kind": kind, "name": needed.name}))
            }
            (false, GitOpsOperator::Flux) => None,
        };
        needed.filter_map(entry).collect()
    }

    /// The manifest of the applier.
    fn manifest(&self, settings: &DeletionScenarioSettings) -> Value {
        let more = json!({"dependsOn": self.depends_on(settings.operator)});
        match self.kind {
            ApplierKind::Kustomization => settings.kustomization(self.name, more),
            ApplierKind::HelmRelease => settings.helm_release(self.name, more),
        }
    }
}

/// The workloads of dependents, each with the workload of an applier that its own one depends on.
fn pairs() -> Vec<DeletionPair> {
    let mut all = Vec::new();
    for dependent in &APPLIERS {
        for needed in APPLIERS.iter().filter(|it| dependent.needs.contains(&it.name)) {
            all.push(DeletionPair { dependent: dependent.workload(), needed: needed.workload() });
        }
    }
    all
}

/// The workloads of all appliers, each with the object that they need.
pub(super) fn pairs_with(needed: &RemovedObject) -> Vec<DeletionPair> {
    let pair = |applier: &GraphApplier| DeletionPair {
        dependent: applier.workload(),
        needed: needed.clone(),
    };
    APPLIERS.iter().map(pair).collect()
}

/// The eight appliers, as one row with a title.
pub(super) fn scene(settings: &DeletionScenarioSettings, title: &'static str) -> Scene {
    let mut scene = Scene::default();
    scene.keep_chart();
    let mut objects = Vec::new();
    for applier in &APPLIERS {
        if applier.kind == ApplierKind::Kustomization {
            let path = format!("parts/{}/map.yaml", applier.name);
            scene.keep(&path, held_config_map(applier.name));
        }
        scene.remove(applier.name, &applier.manifest(settings));
        scene.appliers.push(applier.target());
        objects.extend(applier.objects(&settings.namespace));
    }
    scene.rows.push(DeletionOrderRow { title, pairs: pairs(), objects });
    scene
}
