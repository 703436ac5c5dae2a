//! What an operator applies in a story, and which of it is removed at once.
//!
//! Here: the objects and their pairs. Elsewhere: the manifests (`super::graph`, `super::needed_objects`,
//! `super::custom_resources`), how the objects end (`super::outcome`).

use std::time::Duration;

use anyhow::Result;
use e2e::harness::flux_objects::NEVER;
use e2e::harness::{StoryObject, widgets};
use serde_json::{Value, json};

use super::custom_resources::custom_resources;
use super::graph;
use super::needed_objects::needed_objects;
use super::operators::GitOpsOperator;

/// The finalizer of another controller.
pub(super) const HELD: &str = "example.com/held";

/// `spec.timeout` of appliers.
pub(super) const TIMEOUT: Duration = Duration::from_secs(40);

/// [`TIMEOUT`] in a spec.
const TIMEOUT_TEXT: &str = "40s";

const FLUX_SYSTEM: &str = "flux-system";

/// A ConfigMap that another controller finalizes.
pub(super) fn held_config_map(name: &str) -> String {
    let metadata = json!({"name": name, "finalizers": [HELD]});
    format!("{}\n", json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}))
}

/// The other controller that finalizes an object.
#[derive(Debug, Clone)]
pub(super) enum ForeignController {
    /// The object has no finalizer of another controller.
    None,
    /// The controller always runs.
    Running,
    /// The controller runs as long as this object of the scene exists.
    Applied(StoryObject),
}

/// An object that is removed.
#[derive(Debug, Clone)]
pub(super) struct RemovedObject {
    pub(super) target: StoryObject,
    /// Its resource and name, as in the audit log.
    pub(super) audited: String,
    /// Whether the operator itself holds the object by a finalizer.
    pub(super) has_operator_finalizer: bool,
    pub(super) controller: ForeignController,
}

impl RemovedObject {
    /// An object, with its resource and name as in `configmaps/app`.
    pub(super) fn new(target: StoryObject, audited: &str) -> Self {
        let controller = ForeignController::None;
        Self { target, audited: audited.to_owned(), has_operator_finalizer: false, controller }
    }

    pub(super) fn config_map(name: &str) -> Self {
        Self::new(StoryObject::config_map(name), &format!("configmaps/{name}"))
    }

    pub(super) fn secret(name: &str) -> Self {
        Self::new(StoryObject::new("v1", "Secret", name), &format!("secrets/{name}"))
    }

    pub(super) fn kustomization(name: &str) -> Self {
        Self::new(StoryObject::kustomization(name), &format!("kustomizations/{name}"))
    }

    /// The ConfigMap that a HelmRelease of the chart creates.
    pub(super) fn release_workload(name: &str) -> Self {
        Self::config_map(&format!("{name}-config")).slow()
    }

    /// A HelmRelease in a namespace, with its HelmChart and its record.
    pub(super) fn helm_release(namespace: &str, name: &str) -> [Self; 3] {
        let chart = format!("{namespace}-{name}");
        let release = StoryObject::helm_release(name);
        [
            Self::new(release, &format!("helmreleases/{name}")),
            Self::new(StoryObject::helm_chart(&chart), &format!("helmcharts/{chart}")),
            Self::secret(&format!("sh.helm.release.v1.{name}.v1")),
        ]
    }

    pub(super) fn git_repository(name: &str) -> Self {
        let target = StoryObject::git_repository(name);
        let object = Self::new(target, &format!("gitrepositories/{name}"));
        Self { has_operator_finalizer: true, ..object }
    }

    pub(super) fn widget(group: &str, name: &str) -> Self {
        Self::new(widgets::widget(group, name), &format!("widgets/{name}"))
    }

    pub(super) fn widget_definition(group: &str) -> Self {
        let audited = format!("customresourcedefinitions/widgets.{group}");
        Self::new(widgets::crd(group), &audited)
    }

    /// The same object, which another controller finalizes slowly.
    pub(super) fn slow(self) -> Self {
        Self { controller: ForeignController::Running, ..self }
    }

    /// The same object, which a controller of the scene finalizes slowly.
    pub(super) fn finalized_by(self, controller: &Self) -> Self {
        Self { controller: ForeignController::Applied(controller.target.clone()), ..self }
    }
}

/// Two objects. The second one has to stay until the first one has ended.
#[derive(Debug)]
pub(super) struct DeletionPair {
    pub(super) dependent: RemovedObject,
    pub(super) needed: RemovedObject,
}

/// A row of the table: what is removed, and in which order.
#[derive(Debug)]
pub(super) struct DeletionOrderRow {
    pub(super) title: &'static str,
    pub(super) pairs: Vec<DeletionPair>,
    pub(super) objects: Vec<RemovedObject>,
}

/// What the manifests of a scene need to know.
pub(super) struct DeletionScenarioSettings {
    pub(super) operator: GitOpsOperator,
    pub(super) namespace: String,
    /// The name of the GitRepository.
    pub(super) source: &'static str,
    /// The address of the repository.
    pub(super) url: String,
    /// A kubeconfig of the same cluster.
    pub(super) kubeconfig: String,
}

impl DeletionScenarioSettings {
    /// A Kustomization of the folder `parts/NAME`, which awaits the end of its objects. `more` is merged into its spec.
    pub(super) fn kustomization(&self, name: &str, more: Value) -> Value {
        let source = json!({"kind": "GitRepository", "name": self.source});
        let mut spec = json!({"interval": NEVER, "retryInterval": "5s", "timeout": TIMEOUT_TEXT,
            "prune": true, "deletionPolicy": "WaitForTermination", "path": format!("./parts/{name}"),
            "targetNamespace": self.namespace, "sourceRef": source});
        for (key, value) in more.as_object().into_iter().flatten() {
            spec[key] = value.clone();
        }
        json!({"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
            "metadata": {"name": name}, "spec": spec})
    }

    /// A HelmRelease of the chart of [`Scene::keep_chart`]. `more` is merged into its spec.
    pub(super) fn helm_release(&self, name: &str, more: Value) -> Value {
        let source = json!({"kind": "GitRepository", "name": self.source});
        let chart = json!({"spec": {"chart": "./chart", "sourceRef": source}});
        let mut spec = json!({"interval": NEVER, "timeout": TIMEOUT_TEXT, "chart": chart});
        for (key, value) in more.as_object().into_iter().flatten() {
            spec[key] = value.clone();
        }
        json!({"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease",
            "metadata": {"name": name}, "spec": spec})
    }

    pub(super) fn git_repository(&self, name: &str) -> Value {
        let spec = json!({"interval": NEVER, "url": self.url, "ref": {"branch": "main"}});
        json!({"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
            "metadata": {"name": name}, "spec": spec})
    }
}

/// What an operator applies, and what is removed.
#[derive(Default)]
pub(super) struct Scene {
    /// Objects that administrators create, and that stay.
    pub(super) administered: Vec<Value>,
    /// Files that stay in the repository.
    kept: Vec<(String, String)>,
    /// Files of the root Kustomization that leave.
    removed: Vec<(String, String)>,
    /// The objects that have to be Ready before the removal.
    pub(super) appliers: Vec<StoryObject>,
    pub(super) rows: Vec<DeletionOrderRow>,
}

impl Scene {
    /// Adds another scene, which has other names. Both may have the chart.
    pub(super) fn extend(&mut self, other: Self) {
        self.administered.extend(other.administered);
        self.kept.extend(other.kept);
        self.removed.extend(other.removed);
        self.appliers.extend(other.appliers);
        self.rows.extend(other.rows);
    }

    /// Adds a file that stays in the repository.
    pub(super) fn keep(&mut self, path: &str, text: String) {
        self.kept.push((path.to_owned(), text));
    }

    /// Adds a chart of one ConfigMap that another controller finalizes.
    pub(super) fn keep_chart(&mut self) {
        let template = format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{{{ .Release.Name }}}}-config\n  finalizers: [{HELD}]\n"
        );
        self.keep("chart/Chart.yaml", "apiVersion: v2\nname: part\nversion: 1.0.0\n".to_owned());
        self.keep("chart/templates/map.yaml", template);
    }

    /// Adds an object of the root Kustomization that leaves.
    pub(super) fn remove(&mut self, name: &str, object: &Value) {
        self.removed.push((format!("root/{name}.yaml"), format!("{object}\n")));
    }

    /// Adds a Kustomization that leaves.
    pub(super) fn remove_kustomization(
        &mut self,
        settings: &DeletionScenarioSettings,
        name: &str,
        more: Value,
    ) {
        self.remove(name, &settings.kustomization(name, more));
        self.appliers.push(StoryObject::kustomization(name));
    }

    /// All files, each with its path and text.
    pub(super) fn files(&self) -> impl Iterator<Item = (&str, String)> {
        let all = self.kept.iter().chain(&self.removed);
        all.map(|(path, text)| (path.as_str(), text.clone()))
    }

    pub(super) fn removed_paths(&self) -> Vec<&str> {
        self.removed.iter().map(|(path, _)| path.as_str()).collect()
    }

    /// The objects of all rows. An object of two rows is there twice.
    pub(super) fn objects(&self) -> Vec<RemovedObject> {
        self.rows.iter().flat_map(|row| &row.objects).cloned().collect()
    }
}

/// Which objects a deletion scenario removes together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DeletionScenarioKind {
    /// A commit removes eight appliers in four levels.
    FourLevels,
    /// A commit removes appliers with what they need for their deletion.
    NeededObjects,
    /// A commit removes custom resources with their controller and their definition.
    CustomResources,
    /// A user deletes the Kustomization that applies itself, its source and everything else.
    WholeInstallation,
}

impl DeletionScenarioKind {
    pub(super) fn story_name(self, operator: GitOpsOperator) -> String {
        let name = match self {
            Self::FourLevels => "four-levels",
            Self::NeededObjects => "needed-objects",
            Self::CustomResources => "custom-resources",
            Self::WholeInstallation => "whole-installation",
        };
        format!("{name}-{}", operator.name())
    }

    /// How many objects of a kind Flux reconciles at once. One worker is a busy controller: appliers are finalized after the
    /// Kustomization that applies them has deleted what they need. With more workers, both happen at the same time.
    pub(super) fn concurrency(self) -> u32 {
        if self == Self::NeededObjects { 1 } else { 16 }
    }

    /// The Kustomization that applies everything.
    pub(super) fn root(self) -> &'static str {
        if self == Self::WholeInstallation { FLUX_SYSTEM } else { "root" }
    }

    /// The GitRepository of that Kustomization.
    pub(super) fn source(self) -> &'static str {
        if self == Self::WholeInstallation { FLUX_SYSTEM } else { "files" }
    }

    /// Whether a user deletes that Kustomization. Otherwise, a commit removes the files.
    pub(super) fn is_deleted_by_user(self) -> bool {
        self == Self::WholeInstallation
    }

    pub(super) fn scene(self, settings: &DeletionScenarioSettings) -> Result<Scene> {
        match self {
            Self::FourLevels => {
                Ok(graph::scene(settings, "A commit removes eight appliers in four levels"))
            }
            Self::NeededObjects => needed_objects(settings),
            Self::CustomResources => Ok(custom_resources(settings)),
            Self::WholeInstallation => Ok(whole_installation(settings)),
        }
    }
}

/// The eight appliers below a Kustomization that applies itself and its source, as after `flux bootstrap`.
fn whole_installation(settings: &DeletionScenarioSettings) -> Scene {
    let title = "A user deletes the Kustomization `flux-system`, which applies itself, its GitRepository and eight appliers";
    let mut scene = graph::scene(settings, title);
    let source = json!({"kind": "GitRepository", "name": FLUX_SYSTEM});
    let spec = json!({"interval": NEVER, "prune": true, "sourceRef": source, "path": "./root",
        "targetNamespace": settings.namespace});
    let root = json!({"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
        "metadata": {"name": FLUX_SYSTEM}, "spec": spec});
    scene.remove("flux-system", &root);
    scene.remove("flux-system-source", &settings.git_repository(FLUX_SYSTEM));
    let source = RemovedObject::git_repository(FLUX_SYSTEM);
    for row in &mut scene.rows {
        row.pairs.extend(graph::pairs_with(&source));
        row.objects.extend([
            RemovedObject::kustomization(FLUX_SYSTEM),
            source.clone(),
            RemovedObject::config_map("keep"),
        ]);
    }
    scene
}
