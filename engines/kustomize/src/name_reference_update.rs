//! Updates names that refer to other objects when these objects are renamed.
//!
//! The target of a reference is determined once, when all objects have their final names. A reference means the object that has
//! or had this name, is of the configured kind, and is in the same namespace and the same layers.

use std::collections::BTreeMap;

use goyaml::v3::{YamlNode, YamlNodeKind};

use crate::budget::BuildBudget;
use crate::error::{Error, ErrorContext as _, Result};
use crate::field_edit;
use crate::fieldspec::FieldSpec;
use crate::openapi_schema::OpenApiSchemas;
use crate::resource::BuildResource;
use crate::resource_id::{Gvk, ResourceId};
use crate::resources::BuildResources;
use crate::transformer_config::{self, NameReference};

/// Steps that examining an object costs.
const LOOKED_AT: usize = 256;

/// The steps for comparing an object with a reference.
const STEPS_PER_COMPARISON: usize = 16;

/// A renamed object that other objects may refer to.
struct RenamedReferent {
    id: ResourceId,
    past: Vec<ResourceId>,
    name: String,
    namespace: String,
    /// Name, prefixes and suffixes without the node.
    affixes: BuildResource,
}

/// Updates all names that refer to objects.
///
/// # Errors
/// A name may mean several objects, or a path leads to something that is not a reference.
pub(crate) fn update(
    resources: &mut BuildResources,
    references: &[NameReference],
    schema: &OpenApiSchemas,
) -> Result<()> {
    let budget = resources.budget();
    let mut candidates = RenamedReferents::default();
    for resource in resources.list() {
        budget.steps(LOOKED_AT * (1 + resource.past.len()))?;
        candidates.add(resource, schema);
    }
    if candidates.all.is_empty() {
        return Ok(());
    }
    let selections: Vec<(&Gvk, &FieldSpec, Gvk)> = references
        .iter()
        .flat_map(|reference| reference.referrers.iter().map(|spec| (&reference.target, spec)))
        .map(|(target, spec)| (target, spec, transformer_config::selection(spec)))
        .collect();
    for at in 0..resources.list().len() {
        budget.steps(STEPS_PER_COMPARISON * selections.len())?;
        let resource = &resources.list()[at];
        let original = resource.original_id(schema).gvk;
        let current = resource.gvk();
        let mut view: Option<NameReferenceCandidates<'_>> = None;
        for (target, spec, selection) in &selections {
            if !original.is_selected(selection) {
                continue;
            }
            let spec = FieldSpec {
                group: current.group.clone().into(),
                version: current.version.clone().into(),
                kind: current.kind.clone().into(),
                ..(*spec).clone()
            };
            let resource = &mut resources.list_mut()[at];
            let view = view
                .get_or_insert_with(|| NameReferenceCandidates::new(resource, &candidates, schema));
            let role = role_of(&resource.node, &spec);
            let search = NameReferenceSearch { view, target, role, budget: &budget };
            let set =
                field_edit::walk(&mut resource.node, &spec, None, &budget, |node| search.set(node));
            set.within(|| {
                let id = &view.id;
                format!("updating name reference in '{}' field of '{id}'", spec.path)
            })?;
        }
    }
    Ok(())
}

#[derive(Default)]
struct RenamedReferents {
    all: Vec<RenamedReferent>,
    /// Places in `all` by any past name.
    by_name: BTreeMap<String, Vec<usize>>,
    /// Places in `all` by the first namespace.
    by_namespace: BTreeMap<String, Vec<usize>>,
}

impl RenamedReferents {
    fn add(&mut self, resource: &BuildResource, schema: &OpenApiSchemas) {
        let past: Vec<ResourceId> = resource.past_ids().collect();
        if past.is_empty() {
            return;
        }
        for id in &past {
            let places = self.by_name.entry(id.name.clone()).or_default();
            if places.last() != Some(&self.all.len()) {
                places.push(self.all.len());
            }
        }
        if let Some(first) = past.first() {
            let namespace = first.effective_namespace().to_owned();
            self.by_namespace.entry(namespace).or_default().push(self.all.len());
        }
        let affixes = BuildResource {
            prefixes: resource.prefixes.clone(),
            suffixes: resource.suffixes.clone(),
            ..BuildResource::default()
        };
        self.all.push(RenamedReferent {
            id: resource.id(schema),
            past,
            name: resource.name().to_owned(),
            namespace: resource.namespace().to_owned(),
            affixes,
        });
    }
}

/// The objects that one object can refer to.
struct NameReferenceCandidates<'c> {
    candidates: &'c RenamedReferents,
    id: ResourceId,
    affixes: BuildResource,
    /// Namespaces of the service accounts that a role binding is about.
    subject_namespaces: Vec<String>,
}

impl<'c> NameReferenceCandidates<'c> {
    fn new(
        referrer: &BuildResource,
        candidates: &'c RenamedReferents,
        schema: &OpenApiSchemas,
    ) -> Self {
        let id = referrer.id(schema);
        let affixes = BuildResource {
            prefixes: referrer.prefixes.clone(),
            suffixes: referrer.suffixes.clone(),
            ..BuildResource::default()
        };
        let mut subject_namespaces = Vec::new();
        if id.gvk.kind == "RoleBinding"
            && let Some(subjects) = field_edit::at(&referrer.node, &["subjects"])
        {
            let accounts = subjects.content.iter().filter(|subject| {
                field_edit::at(subject, &["kind"])
                    .is_some_and(|kind| kind.value == "ServiceAccount")
            });
            let namespaces = accounts.filter_map(|account| field_edit::at(account, &["namespace"]));
            subject_namespaces.extend(namespaces.map(|namespace| namespace.value.clone()));
        }
        Self { candidates, id, affixes, subject_namespaces }
    }

    /// Whether an object can be referred to at all.
    fn sees(&self, candidate: &RenamedReferent) -> bool {
        self.id.is_cluster_scoped
            || candidate.id.is_cluster_scoped
            || candidate.id.effective_namespace() == self.id.effective_namespace()
            || self.subject_namespaces.contains(&candidate.namespace)
    }
}

/// The kind of role that a role binding refers to. `None` if the path does not lead to that reference or if it is
/// incomplete.
fn role_of(node: &YamlNode, spec: &FieldSpec) -> Option<Gvk> {
    if !spec.path.ends_with("roleRef/name") {
        return None;
    }
    let text = |name| field_edit::at(node, &["roleRef", name]).map(|node| node.value.clone());
    Some(Gvk { group: text("apiGroup")?, kind: text("kind")?, version: String::new() })
}

/// The search for the target of one field.
struct NameReferenceSearch<'v> {
    view: &'v NameReferenceCandidates<'v>,
    target: &'v Gvk,
    role: Option<Gvk>,
    budget: &'v BuildBudget,
}

impl NameReferenceSearch<'_> {
    fn set(&self, node: &mut YamlNode) -> Result<()> {
        if field_edit::is_null(node) {
            return Ok(());
        }
        match node.kind {
            YamlNodeKind::Scalar => self.set_scalar(node),
            YamlNodeKind::Mapping => self.set_map(node),
            YamlNodeKind::Sequence => {
                for item in node.content.iter_mut().filter(|item| !field_edit::is_null(item)) {
                    match item.kind {
                        YamlNodeKind::Scalar => self.set_scalar(item)?,
                        YamlNodeKind::Mapping => self.set_map(item)?,
                        _ => {
                            let text =
                                "a list is expected to be either a string or a map of string";
                            return Err(Error::new(text));
                        }
                    }
                }
                Ok(())
            }
            YamlNodeKind::Document | YamlNodeKind::Alias => {
                Err(Error::new("node must be a scalar, sequence or map"))
            }
        }
    }

    fn set_scalar(&self, node: &mut YamlNode) -> Result<()> {
        let all = |_: &RenamedReferent| true;
        let Some(found) =
            self.find(&node.value, all, |candidate| (candidate.name.clone(), None))?
        else {
            return Ok(());
        };
        if found.name == node.value {
            return Ok(());
        }
        field_edit::grow_scalar(node, found.name.as_str(), "", self.budget)
    }

    fn set_map(&self, node: &mut YamlNode) -> Result<()> {
        let Some(name) = field_edit::get(node, "name")? else {
            return Err(Error::new("path config error; no 'name' field in node"));
        };
        let name = name.value.clone();
        let namespace = field_edit::get(node, "namespace")?.map(|node| node.value.clone());
        // Namespaces from before the build take precedence over those after it.
        let in_namespace = |namespace| self.view.candidates.by_namespace.get(namespace);
        self.count(namespace.as_deref().and_then(in_namespace))?;
        let by_original = namespace.as_deref().is_some_and(|namespace| {
            let places = in_namespace(namespace).into_iter().flatten();
            let mut known = places.filter_map(|place| self.view.candidates.all.get(*place));
            known.any(|candidate| self.view.sees(candidate))
        });
        let fits = |candidate: &RenamedReferent| match namespace.as_deref() {
            None => true,
            Some(crate::resource_id::NO_NAMESPACE) => false,
            Some(namespace) if by_original => original_namespace(candidate) == namespace,
            Some(namespace) => candidate.id.effective_namespace() == namespace,
        };
        let identity = |candidate: &RenamedReferent| {
            (candidate.name.clone(), Some(candidate.namespace.clone()))
        };
        let Some(found) = self.find(&name, fits, identity)? else { return Ok(()) };
        if found.name == name && found.namespace.is_empty() {
            return Ok(());
        }
        field_edit::grow_field(
            node,
            "name",
            field_edit::untyped(found.name.as_str()),
            self.budget,
        )?;
        if found.namespace.is_empty() {
            return Ok(());
        }
        field_edit::grow_field(
            node,
            "namespace",
            field_edit::untyped(found.namespace.as_str()),
            self.budget,
        )
    }

    /// Takes the steps for examining candidates. Call it before examining them.
    fn count(&self, places: Option<&Vec<usize>>) -> Result<()> {
        let subjects = self.view.subject_namespaces.len();
        Ok(self.budget.steps(places.map_or(1, Vec::len) * (STEPS_PER_COMPARISON + subjects))?)
    }

    /// The object that a name means.
    fn find(
        &self,
        name: &str,
        fits: impl Fn(&RenamedReferent) -> bool,
        identity: impl Fn(&RenamedReferent) -> (String, Option<String>),
    ) -> Result<Option<&RenamedReferent>> {
        let candidates = self.view.candidates;
        self.count(candidates.by_name.get(name))?;
        let places = candidates.by_name.get(name).into_iter().flatten();
        let was = |candidate: &RenamedReferent, gvk: &Gvk| {
            candidate.past.iter().any(|id| id.gvk.is_selected(gvk))
        };
        let is_near = |candidate: &RenamedReferent| {
            self.view.id.is_cluster_scoped
                || candidate.id.is_cluster_scoped
                || candidate.id.gvk.kind == "ServiceAccount"
                || candidate.id.effective_namespace() == self.view.id.effective_namespace()
        };
        let mut found: Vec<&RenamedReferent> = places
            .filter_map(|place| candidates.all.get(*place))
            .filter(|candidate| self.view.sees(candidate) && fits(candidate))
            .filter(|candidate| was(candidate, self.target))
            .filter(|candidate| self.role.as_ref().is_none_or(|role| was(candidate, role)))
            .filter(|candidate| is_near(candidate))
            .collect();
        if let [one] = found.as_slice() {
            return Ok(Some(one));
        }
        let own = &self.view.affixes;
        found.retain(|candidate| candidate.affixes.has_affixes_of(own, true));
        if found.len() > 1 {
            found.retain(|candidate| candidate.affixes.has_affixes_of(own, false));
        }
        let Some(first) = found.first() else { return Ok(None) };
        if found.iter().all(|candidate| identity(candidate) == identity(first)) {
            return Ok(Some(first));
        }
        let ids: Vec<String> = found.iter().map(|candidate| candidate.id.to_string()).collect();
        let text = format!("found multiple possible referrals: {}", ids.join(", "));
        Err(Error::new(text))
    }
}

/// The namespace of a candidate before the build.
fn original_namespace(candidate: &RenamedReferent) -> &str {
    candidate.past.first().map_or("", ResourceId::effective_namespace)
}
