//! Finds everything that a revision declares, starting at the entry point: the appliers, and the objects that they need from
//! each other.
//!
//! Kustomizations are built during the search, because their objects may declare further appliers. An applier waits until its
//! source, ConfigMaps and Secrets are declared. If nothing declares them, their values are unknown.
//! Releases are rendered later, and only if they differ (`comparison_rendering.rs`), unless they may declare appliers. Helmfiles are
//! planned at the end.
//! Elsewhere: building (`kustomization_build.rs`), releases (`release_inputs.rs`), Helmfiles (`helmfile_releases.rs`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use crds::helm::{ChartNameChangeStrategy, HelmRelease};
use crds::kustomize::Kustomization;
use helm_controller::helm_release::validated_spec::read_without_chart;
use objects::{Object, ObjectId};
use plan::{HelmReleaseTarget, MissingReference, RenderedApplier};
use serde_json::{Value, json};
use tree::RelPath;

use super::applier_search_root::ApplierSearchRoot;
use super::cluster_facts_file::{ClusterFacts, ReferenceFromApplier, references_of};
use super::helmfile_plan_without_cluster::HELMFILE_OPERATOR_GROUP;
use super::helmfile_releases::{HelmfilePathsByRelease, HelmfileReleaseInputs};
use super::kustomization_build::{
    KustomizationFiles, ReusableKustomizationBuilds, kustomization_applier, target_cluster,
};
use super::parallel_work::in_parallel;
use super::release_chart::chart_sources;
use super::release_inputs::ReleaseInputs;
use super::release_rendering::ReleaseRenderer;
use super::render_failure::RenderFailure;
use super::repository_sources::{
    BOOTSTRAP_NAME, DeclaredSources, RepositorySources, SourceOrigin, is_source, referenced_source,
};
use super::resource_scope::DeclaredKindScopes;
use super::revision_files::RevisionFiles;
use super::source_appliers::SourceAppliers;
use super::source_files::{DeclaredGenerators, generator_sources, is_generator};
use windlass_cluster::referenced_secrets_and_config_maps::DeclaredConfigMapsAndSecrets;
use windlass_serve::settings::OperatorSettings;

/// The maximum number of appliers of a revision.
pub(crate) const MAX_APPLIERS: usize = 5_000;

/// The maximum number of objects of a revision, because all of them are in memory.
const MAX_OBJECTS: usize = 200_000;

/// A kind whose objects apply other objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ApplierKind {
    Kustomization,
    HelmRelease,
    Helmfile,
}

impl ApplierKind {
    /// The applier kind of an object. `None` if the object applies nothing.
    pub(crate) fn of(object: &Object) -> Option<Self> {
        let gvk = object.gvk();
        match (gvk.group.as_str(), gvk.kind.as_str()) {
            ("kustomize.toolkit.fluxcd.io", "Kustomization") => Some(Self::Kustomization),
            ("helm.toolkit.fluxcd.io", "HelmRelease") => Some(Self::HelmRelease),
            ("helmfile.windlass.dev" | HELMFILE_OPERATOR_GROUP, "Helmfile") => Some(Self::Helmfile),
            _ => None,
        }
    }
}

/// A revision, and the inputs for building its appliers.
pub(crate) struct Revision<'r> {
    pub(crate) files: &'r RevisionFiles,
    pub(crate) sources: &'r RepositorySources,
    pub(crate) builds: &'r ReusableKustomizationBuilds,
    pub(crate) renderer: &'r ReleaseRenderer,
    pub(crate) settings: &'r OperatorSettings,
    /// The releases of Helmfiles in the base revision. Empty while the base itself is read.
    pub(crate) known_releases: &'r HelmfilePathsByRelease,
    /// The known facts of the cluster.
    pub(crate) facts: &'r ClusterFacts,
    /// The ConfigMaps and Secrets of the cluster whose values are known.
    pub(crate) cluster_references: &'r DeclaredConfigMapsAndSecrets,
    /// The time after which no further applier is started.
    pub(crate) deadline: Instant,
}

impl Revision<'_> {
    /// The origin of a source's files.
    pub(crate) fn origin(
        &self,
        id: &ObjectId,
        declarations: &RepositoryDeclarations,
    ) -> SourceOrigin {
        self.sources.origin(id, &declarations.sources, &declarations.own_sources)
    }
}

/// An applier that was found.
pub(crate) struct DeclaredApplier {
    pub(crate) rendered: RenderedApplier,
    /// The sources that are this repository and whose files the applier uses.
    pub(crate) own_sources: Vec<ObjectId>,
    /// The rendering that is done only if the other side differs.
    pub(crate) deferred: Option<DeferredRendering>,
}

/// The objects of an applier that are not rendered yet.
pub(crate) struct DeferredRendering {
    /// A key of all inputs of these objects. Equal keys mean equal objects.
    pub(crate) key: String,
    pub(crate) work: RenderingTask,
}

/// How objects are rendered.
pub(crate) enum RenderingTask {
    /// They are rendered as objects of a HelmRelease.
    Release(Box<ReleaseInputs>),
    /// They are rendered as objects of a Helmfile's release.
    HelmfileRelease(Box<HelmfileReleaseInputs>),
    /// They are not rendered. They stay as they are in the base, for this reason.
    LeftAsItIs(String),
    /// They are not rendered, for this reason.
    NotRendered(RenderFailure),
}

/// Everything that a revision declares.
#[derive(Default)]
pub(crate) struct RepositoryDeclarations {
    pub(crate) appliers: BTreeMap<ObjectId, DeclaredApplier>,
    pub(crate) sources: DeclaredSources,
    /// The sources that are this repository according to the entry point.
    pub(crate) own_sources: BTreeSet<ObjectId>,
    pub(crate) generators: DeclaredGenerators,
    pub(crate) references: Arc<DeclaredConfigMapsAndSecrets>,
    /// The values of Secrets that were declared again with other values.
    pub(crate) replaced_secrets: Vec<Vec<u8>>,
    pub(crate) kinds: DeclaredKindScopes,
    pub(crate) incomplete: Option<String>,
    /// The releases of Helmfiles.
    pub(crate) helmfile_releases: HelmfilePathsByRelease,
    /// Releases whose inputs are known only at the end.
    releases: BTreeMap<ObjectId, HelmRelease>,
    /// Helmfiles, which are planned at the end.
    pub(crate) helmfiles: BTreeMap<ObjectId, Object>,
    /// The objects that declare the appliers. A Helmfile's release has no such object.
    pub(crate) manifests: BTreeMap<ObjectId, Object>,
    /// The Kustomization for the folder of the entry point, if the repository declares none.
    pub(crate) made_entry: Option<ObjectId>,
    /// All ConfigMaps and Secrets that appliers name.
    pub(crate) all_references: BTreeSet<ObjectId>,
    /// The ConfigMaps and Secrets that appliers name, each with its applier.
    named_references: Vec<(ObjectId, ReferenceFromApplier)>,
    /// All appliers that were found, so that none is followed twice.
    seen: BTreeSet<ObjectId>,
    objects: usize,
}

/// Which ConfigMaps and Secrets count as known, so that an applier need not wait for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KnownConfigMapsAndSecrets {
    /// Only those that the repository declares.
    Declared,
    /// Also those in the cluster that no applier has applied, or whose applier was already built and no longer declares them.
    OfBuiltAppliers,
    /// Also all others in the facts of the cluster, whether they exist or not.
    OfCluster,
}

impl KnownConfigMapsAndSecrets {
    /// All variants, in this order. The facts come last, because an applier that is not built yet may declare a newer state.
    const ALL: [Self; 3] = [Self::Declared, Self::OfBuiltAppliers, Self::OfCluster];
}

/// Where the search for appliers begins.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ApplierSearchBegin<'b> {
    /// At the folder that the cluster applies first.
    Folder(&'b ApplierSearchRoot),
    /// At the appliers of a cluster that use one source.
    Appliers(&'b SourceAppliers),
}

impl ApplierSearchBegin<'_> {
    /// The folder. `None` if the search begins at appliers.
    pub(crate) fn folder(&self) -> Option<&RelPath> {
        match self {
            Self::Folder(entry) => Some(&entry.folder),
            Self::Appliers(_) => None,
        }
    }
}

/// An applier that was not built yet.
struct ApplierToBuild {
    kind: ApplierKind,
    object: Object,
    parent: Option<ObjectId>,
    is_entry: bool,
    /// Whether the manifest is that of the cluster, so that a declared manifest replaces it.
    is_of_cluster: bool,
}

/// The Kustomization that builds the folder of the entry point.
fn entry_applier(folder: &RelPath) -> anyhow::Result<ApplierToBuild> {
    let object = Object::new(json!({
        "apiVersion": "kustomize.toolkit.fluxcd.io/v1",
        "kind": "Kustomization",
        "metadata": {"name": BOOTSTRAP_NAME, "namespace": BOOTSTRAP_NAME},
        "spec": {
            "interval": "10m",
            "path": folder.as_str(),
            "prune": true,
            "sourceRef": {"kind": "GitRepository", "name": BOOTSTRAP_NAME},
        },
    }))?;
    let kind = ApplierKind::Kustomization;
    Ok(ApplierToBuild { kind, object, parent: None, is_entry: true, is_of_cluster: false })
}

/// The message that the folder of the entry point cannot be built. If the folder was only assumed, the message contains advice.
fn unbuilt_entry(entry: &ApplierSearchRoot, failure: &str) -> String {
    let ApplierSearchRoot { folder, is_assumed } = entry;
    match is_assumed {
        true => format!(
            "no file says which folder the cluster applies first, and the root of the repository cannot be built: choose \
             the folder that the cluster applies first with --path ({failure})"
        ),
        false => format!("the folder `{folder}` cannot be built: {failure}"),
    }
}

/// Finds everything that a revision declares from a folder or from some appliers on, and builds its Kustomizations.
///
/// # Errors
/// A thread could not do its work. An applier that cannot be built is recorded as failed, and is no error.
pub(crate) fn declarations(
    revision: &Revision<'_>,
    begin: ApplierSearchBegin<'_>,
) -> anyhow::Result<RepositoryDeclarations> {
    let mut found = RepositoryDeclarations {
        references: Arc::new(revision.cluster_references.clone()),
        kinds: revision.facts.kind_scopes(),
        ..RepositoryDeclarations::default()
    };
    let mut pending = match begin {
        ApplierSearchBegin::Folder(entry) => vec![entry_applier(&entry.folder)?],
        ApplierSearchBegin::Appliers(roots) => found.begin_at(roots),
    };
    while !pending.is_empty() {
        let mut ready: Vec<ApplierToBuild> = Vec::new();
        let mut waiting = pending;
        for known in KnownConfigMapsAndSecrets::ALL {
            if ready.is_empty() {
                (ready, waiting) =
                    waiting.into_iter().partition(|it| found.is_ready(it, revision, known));
            }
        }
        if ready.is_empty() {
            // Nothing declares the objects for which these appliers wait.
            std::mem::swap(&mut ready, &mut waiting);
        }
        pending = waiting;
        let applied = in_parallel(ready, |applier| {
            let declared = found.apply(&applier, revision);
            (applier, declared)
        })?;
        for (applier, declared) in applied {
            if applier.is_entry
                && let Some(folder) = begin.folder()
                && let Some(own) = found.applies_itself(&declared.rendered, folder, revision)
            {
                pending.push(own);
                continue;
            }
            if applier.is_of_cluster
                && let Some(own) = applier.declared_by_itself(&declared.rendered)
            {
                pending.push(own);
                continue;
            }
            found.add(applier, declared, begin, &mut pending);
        }
    }
    found.defer_releases(revision)?;
    found.add_helmfile_releases(revision)?;
    found.name_missing_references(revision.facts);
    Ok(found)
}

impl ApplierToBuild {
    /// The manifest of an applier of the cluster that applies its own manifest. The revision declares it, so it replaces that
    /// of the cluster.
    fn declared_by_itself(&self, rendered: &RenderedApplier) -> Option<Self> {
        let id = self.object.id();
        let object = rendered.objects.iter().find(|it| it.id() == id)?.clone();
        Some(Self { kind: self.kind, object, parent: None, is_entry: false, is_of_cluster: false })
    }
}

/// Makes the applier of a HelmRelease that is not rendered yet.
pub(crate) fn release_applier(
    release: &HelmRelease,
    settings: &OperatorSettings,
) -> RenderedApplier {
    let namespace = release.metadata.namespace.as_deref().unwrap_or_default();
    RenderedApplier {
        helm_release: Some(helm_release(release, settings)),
        is_suspended: release.spec.suspend,
        target_cluster: target_cluster(namespace, release.spec.kube_config.as_ref()),
        prunes: true,
        deletes_with_itself: true,
        forces: release.spec.upgrade.as_ref().is_some_and(|it| it.force),
        ..RenderedApplier::default()
    }
}

/// The source in the `spec.sourceRef` of an object.
pub(crate) fn source_of(object: &Object) -> Option<ObjectId> {
    referenced_source(&object.get("spec")?["sourceRef"], object.namespace())
}

/// Converts an object to its type.
pub(crate) fn typed<K: serde::de::DeserializeOwned>(object: &Object) -> Result<K, String> {
    serde_json::from_value(object.clone().into_value())
        .map_err(|error| format!("{} cannot be read: {error}", object.id().subject()))
}

impl RepositoryDeclarations {
    /// Begins at the appliers of a cluster that use a source. The source counts as declared unless the revision declares it.
    fn begin_at(&mut self, roots: &SourceAppliers) -> Vec<ApplierToBuild> {
        self.sources.insert(roots.source.id(), roots.source.clone());
        let root = |object: &Object| {
            let kind = ApplierKind::of(object)?;
            let object = object.clone();
            Some(ApplierToBuild {
                kind,
                object,
                parent: None,
                is_entry: false,
                is_of_cluster: true,
            })
        };
        let begun: Vec<ApplierToBuild> = roots.appliers.iter().filter_map(root).collect();
        self.seen.extend(begun.iter().map(|it| it.object.id()));
        begun
    }

    /// Whether all objects that an applier names are declared or known.
    fn is_ready(
        &self,
        applier: &ApplierToBuild,
        revision: &Revision<'_>,
        known: KnownConfigMapsAndSecrets,
    ) -> bool {
        if Instant::now() > revision.deadline {
            return true;
        }
        let object = &applier.object;
        let namespace = object.namespace();
        let is_declared = |reference: &Value| {
            let text = |key: &str| reference[key].as_str().unwrap_or_default();
            let [kind, name] = ["kind", "name"].map(text);
            let id = ObjectId::new(namespace, name, "", kind);
            self.references.declares(kind, namespace, name)
                || self.has_fact(&id, applier, revision.facts, known)
        };
        let Some(spec) = object.get("spec") else { return true };
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        match applier.kind {
            ApplierKind::Kustomization => {
                let is_known = source_of(object).is_none_or(|id| self.knows(&id, revision));
                is_known && list(&spec["postBuild"]["substituteFrom"]).iter().all(is_declared)
            }
            ApplierKind::HelmRelease => {
                let sources = chart_sources(spec, namespace, &self.sources);
                let is_known = sources.iter().all(|id| self.knows(id, revision));
                is_known && list(&spec["valuesFrom"]).iter().all(is_declared)
            }
            ApplierKind::Helmfile => true,
        }
    }

    /// Whether the cluster facts make a ConfigMap or Secret known, according to `known`.
    fn has_fact(
        &self,
        id: &ObjectId,
        applier: &ApplierToBuild,
        facts: &ClusterFacts,
        known: KnownConfigMapsAndSecrets,
    ) -> bool {
        let Some(fact) = facts.reference(id) else { return false };
        match known {
            KnownConfigMapsAndSecrets::Declared => false,
            KnownConfigMapsAndSecrets::OfBuiltAppliers => {
                let is_built = |owner: ObjectId| {
                    owner == applier.object.id() || self.appliers.contains_key(&owner)
                };
                fact.exists && fact.applier().is_none_or(is_built)
            }
            KnownConfigMapsAndSecrets::OfCluster => true,
        }
    }

    fn knows(&self, source: &ObjectId, revision: &Revision<'_>) -> bool {
        if let Some(sources) = generator_sources(source, &self.generators) {
            return sources.iter().all(|id| self.is_declared_or_here(id, revision));
        }
        self.is_declared_or_here(source, revision)
    }

    fn is_declared_or_here(&self, source: &ObjectId, revision: &Revision<'_>) -> bool {
        let is_here = || !matches!(revision.origin(source, self), SourceOrigin::Elsewhere(_));
        self.sources.contains_key(source) || is_here()
    }

    /// Builds the objects that an applier applies.
    fn apply(&self, applier: &ApplierToBuild, revision: &Revision<'_>) -> DeclaredApplier {
        if Instant::now() > revision.deadline {
            return DeclaredApplier::unread(RenderFailure::out_of_time());
        }
        let applied = match applier.kind {
            ApplierKind::Kustomization => typed(&applier.object)
                .map(|object: Kustomization| self.kustomization(&object, applier, revision)),
            ApplierKind::HelmRelease => {
                typed(&applier.object).map(|release| self.release(release, revision))
            }
            ApplierKind::Helmfile => DeclaredApplier::helmfile(&applier.object),
        };
        let mut applied = applied.unwrap_or_else(DeclaredApplier::failed);
        if applied.rendered.failure.is_some() && applied.rendered.declaration_digest.is_empty() {
            // Only the spec of the applier was read.
            applied.rendered.declaration_digest = self.unread_key(&applier.object, &[], "");
        }
        applied
    }

    fn kustomization(
        &self,
        object: &Kustomization,
        applier: &ApplierToBuild,
        revision: &Revision<'_>,
    ) -> DeclaredApplier {
        let source = source_of(&applier.object);
        let files = match &source {
            _ if applier.is_entry => {
                let files = revision.files.artifact(None);
                files.map_err(|error| RenderFailure::Failed(format!("{error:#}")))
            }
            Some(id) => self.artifact(id, revision),
            None => return DeclaredApplier::failed("spec.sourceRef names no source".to_owned()),
        };
        let sources = source.as_slice();
        let files = match files {
            Ok(files) => files,
            Err(failure) if applier.is_entry => {
                return DeclaredApplier::failed(failure.into_text());
            }
            Err(failure) => {
                let key = self.unread_key(&applier.object, sources, failure.text());
                // The spec says what happens to the objects when the Kustomization is removed.
                let begun = kustomization_applier(object, "");
                return DeclaredApplier::not_rendered(key, failure, begun);
            }
        };
        let own_sources = self.own_sources_of(sources, revision);
        let source = KustomizationFiles {
            object,
            files: &files.files,
            revision: &revision.files.revision,
            references: self.references.clone(),
            facts: revision.facts,
        };
        let mut rendered = revision.builds.build(&source, revision.settings);
        for object in &mut rendered.objects {
            self.kinds.place(object, None);
        }
        if rendered.failure.is_some() {
            let read = files.build_digest(built_folders(object));
            rendered.declaration_digest = self.unread_key(&applier.object, sources, &read);
        }
        DeclaredApplier { rendered, own_sources, deferred: None }
    }

    fn release(&self, release: HelmRelease, revision: &Revision<'_>) -> DeclaredApplier {
        let begun = release_applier(&release, revision.settings);
        let inputs = ReleaseInputs::new(release, self, revision);
        // A chart that cannot be fetched is compared by its inputs.
        let is_readable =
            inputs.chart.as_ref().is_ok_and(|it| it.is_readable(&revision.renderer.charts));
        let rendered = match is_readable && inputs.may_declare_appliers() {
            true => revision.renderer.render(&inputs, &self.kinds, true, begun),
            false => begun,
        };
        let own_sources = self.own_sources_of(&inputs.sources, revision);
        DeclaredApplier { rendered, own_sources, deferred: None }
    }

    /// Finds a declared Kustomization that applies the folder of the entry point itself. It replaces the generated
    /// Kustomization for the folder, because it may have patches and variables.
    fn applies_itself(
        &mut self,
        rendered: &RenderedApplier,
        entry: &RelPath,
        revision: &Revision<'_>,
    ) -> Option<ApplierToBuild> {
        let sources = rendered.objects.iter().filter(|it| is_source(it));
        self.sources.extend(sources.map(|it| (it.id(), it.clone())));
        let declarations = &*self;
        // Another repository may have the same folder, most often its root.
        let is_here = |object: &&Object| {
            object.name() == BOOTSTRAP_NAME
                || source_of(object).is_some_and(|id| {
                    !matches!(revision.origin(&id, declarations), SourceOrigin::Elsewhere(_))
                })
        };
        let mut builders = rendered.objects.iter().filter(|it| builds(it, entry));
        let object = builders.find(is_here)?.clone();
        self.own_sources.extend(source_of(&object));
        self.seen.insert(object.id());
        let kind = ApplierKind::Kustomization;
        Some(ApplierToBuild { kind, object, parent: None, is_entry: false, is_of_cluster: false })
    }

    /// Adds an applier and everything that its objects declare.
    fn add(
        &mut self,
        applier: ApplierToBuild,
        mut declared: DeclaredApplier,
        begin: ApplierSearchBegin<'_>,
        pending: &mut Vec<ApplierToBuild>,
    ) {
        let id = applier.object.id();
        let failure = declared.rendered.failure.as_ref().filter(|_| applier.is_entry);
        if let (Some(failure), ApplierSearchBegin::Folder(entry)) = (failure, begin) {
            self.incomplete = Some(unbuilt_entry(entry, failure));
        }
        self.seen.insert(id.clone());
        let spec = applier.object.get("spec").unwrap_or(&Value::Null);
        let named = references_of(spec, applier.object.namespace());
        self.all_references.extend(named.iter().map(|it| it.id.clone()));
        self.manifests.insert(id.clone(), applier.object.clone());
        if applier.is_entry {
            self.made_entry = Some(id.clone());
        }
        self.named_references.extend(named.into_iter().map(|it| (id.clone(), it)));
        self.objects += declared.rendered.objects.len();
        if self.objects > MAX_OBJECTS {
            self.stop_at(&format!("more than {MAX_OBJECTS} objects"));
            return;
        }
        // Objects in another cluster are reconciled by the operator of that cluster, which this command does not know.
        if declared.rendered.target_cluster.is_empty() {
            self.follow(&id, &declared.rendered.objects, pending);
        }
        let release = (applier.kind == ApplierKind::HelmRelease).then(|| typed(&applier.object));
        if let Some(Ok(release)) = release.filter(|_| declared.is_empty()) {
            self.releases.insert(id.clone(), release);
        }
        if applier.kind == ApplierKind::Helmfile && declared.is_empty() {
            self.helmfiles.insert(id.clone(), applier.object);
        }
        declared.rendered.parent = applier.parent;
        self.appliers.insert(id, declared);
    }

    /// Records what objects declare.
    fn follow(&mut self, parent: &ObjectId, objects: &[Object], pending: &mut Vec<ApplierToBuild>) {
        for object in objects {
            self.kinds.add(object);
            if is_source(object) {
                self.sources.insert(object.id(), object.clone());
            }
            if is_generator(object) {
                self.generators.insert(object.id(), object.clone());
            }
            if ["ConfigMap", "Secret"].contains(&object.kind()) {
                let ObjectId { namespace, name, .. } = object.id();
                let former = self.references.data("Secret", &namespace, &name);
                let former = former.filter(|_| object.kind() == "Secret").into_iter().flatten();
                let former: Vec<Vec<u8>> = former.map(|(_, value)| value.clone()).collect();
                self.replaced_secrets.extend(former);
                Arc::make_mut(&mut self.references).add(object);
            }
            let Some(kind) = ApplierKind::of(object) else { continue };
            let id = object.id();
            if self.seen.len() >= MAX_APPLIERS && !self.seen.contains(&id) {
                self.stop_at(&format!("more than {MAX_APPLIERS} appliers"));
                return;
            }
            if self.seen.insert(id) {
                let parent = Some(parent.clone());
                pending.push(ApplierToBuild {
                    kind,
                    object: object.clone(),
                    parent,
                    is_entry: false,
                    is_of_cluster: false,
                });
            }
        }
    }

    /// Records the objects that appliers need but neither the repository nor the cluster has. This runs after everything was
    /// searched.
    fn name_missing_references(&mut self, facts: &ClusterFacts) {
        for (applier, ReferenceFromApplier { id, field, is_optional }) in
            std::mem::take(&mut self.named_references)
        {
            let is_absent = facts.reference(&id).is_some_and(|fact| !fact.exists);
            let is_declared = self.references.declares(&id.kind, &id.namespace, &id.name);
            if !is_absent || is_declared || is_optional {
                continue;
            }
            if let Some(applier) = self.appliers.get_mut(&applier) {
                let object = (&id).into();
                let missing = MissingReference { object, field: field.to_owned() };
                applier.rendered.missing_references.push(missing);
            }
        }
    }

    pub(crate) fn stop_at(&mut self, limit: &str) {
        let text = || format!("the repository declares {limit}, and no more are compared");
        self.incomplete.get_or_insert_with(text);
    }

    /// Records the inputs of each release. This runs after everything was searched.
    fn defer_releases(&mut self, revision: &Revision<'_>) -> anyhow::Result<()> {
        let releases: Vec<_> = std::mem::take(&mut self.releases).into_iter().collect();
        let declarations = &*self;
        let inputs = in_parallel(releases, |(id, release)| {
            if Instant::now() > revision.deadline {
                return (id, None);
            }
            let inputs = ReleaseInputs::new(release, declarations, revision);
            let key = inputs.digest();
            let own_sources = declarations.own_sources_of(&inputs.sources, revision);
            (id, Some((inputs, key, own_sources)))
        })?;
        for (id, inputs) in inputs {
            let Some(applier) = self.appliers.get_mut(&id) else { continue };
            if let Some((inputs, key, own_sources)) = inputs {
                applier.rendered.source_revision = inputs.chart_text();
                applier.own_sources = own_sources;
                let work = RenderingTask::Release(Box::new(inputs));
                applier.deferred = Some(DeferredRendering { key, work });
            } else {
                let begun = std::mem::take(&mut applier.rendered);
                applier.rendered = RenderFailure::out_of_time().of_applier(begun);
            }
        }
        Ok(())
    }
}

/// The Helm release of a HelmRelease, before its chart is known.
fn helm_release(release: &HelmRelease, settings: &OperatorSettings) -> HelmReleaseTarget {
    let target = read_without_chart(release, settings).release.target;
    let upgrade = release.spec.upgrade.as_ref();
    let on_other_chart = upgrade.and_then(|it| it.chart_name_change_strategy);
    HelmReleaseTarget {
        name: format!("{}/{}", target.namespace, target.name),
        storage_namespace: target.storage_namespace,
        chart: String::new(),
        keeps_with_other_chart: on_other_chart == Some(ChartNameChangeStrategy::InPlaceUpdate),
    }
}

/// The folder that a Kustomization builds, and its components. All files count if a path leads out of the source.
fn built_folders(object: &Kustomization) -> Vec<RelPath> {
    let spec = &object.spec;
    let path = spec.path.as_deref().unwrap_or_default().trim_start_matches('/');
    let folder = RelPath::parse(path).unwrap_or_else(|_| RelPath::root());
    let components = spec.components.iter();
    let components = components.map(|it| folder.join(it).unwrap_or_else(|_| RelPath::root()));
    [folder.clone()].into_iter().chain(components).collect()
}

/// Whether an object is a Kustomization that builds a folder.
pub(crate) fn builds(object: &Object, folder: &RelPath) -> bool {
    let is_kustomization = ApplierKind::of(object) == Some(ApplierKind::Kustomization);
    let spec = object.get("spec").filter(|_| is_kustomization);
    let path = spec.map(|spec| spec["path"].as_str().unwrap_or_default().trim_start_matches('/'));
    path.is_some_and(|path| RelPath::parse(path).is_ok_and(|path| path == *folder))
}

impl DeclaredApplier {
    /// An applier whose spec cannot be read. Without the spec, it is unknown whether a removal would keep the applied objects.
    fn unread(failure: RenderFailure) -> Self {
        let begun = RenderedApplier {
            prunes: true,
            deletes_with_itself: true,
            ..RenderedApplier::default()
        };
        Self { rendered: failure.of_applier(begun), own_sources: Vec::new(), deferred: None }
    }

    fn failed(text: String) -> Self {
        Self::unread(RenderFailure::Failed(text))
    }

    fn not_rendered(key: String, failure: RenderFailure, rendered: RenderedApplier) -> Self {
        let deferred = DeferredRendering { key, work: RenderingTask::NotRendered(failure) };
        Self { rendered, own_sources: Vec::new(), deferred: Some(deferred) }
    }

    /// Whether nothing was rendered and nothing failed.
    fn is_empty(&self) -> bool {
        self.rendered.objects.is_empty()
            && self.rendered.failure.is_none()
            && self.deferred.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_that_was_only_assumed_and_cannot_be_built_is_to_be_chosen() {
        let root = ApplierSearchRoot { folder: RelPath::root(), is_assumed: true };
        let text = unbuilt_entry(&root, "missing Resource metadata");
        assert!(text.contains("choose the folder that the cluster applies first with --path"));
        assert!(text.ends_with("(missing Resource metadata)"), "{text}");
        let named = ApplierSearchRoot::named(RelPath::root());
        assert!(!unbuilt_entry(&named, "boom").contains("--path"));
    }
}
