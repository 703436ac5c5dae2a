//! The objects of a build, in order. Each id occurs once.
//! Here: adding, finding, selecting. Elsewhere: single objects (`resource.rs`), changing them (`transform/`).

use std::collections::BTreeMap;

use crate::budget::BuildBudget;
use crate::error::{Error, Result};
use crate::openapi_schema::OpenApiSchemas;
use crate::resource::{BuildResource, GeneratorBehavior};
use crate::resource_id::{Gvk, ResourceId};
use crate::selector::ResourceSelector;

/// The key that is equal for all ids of the same object.
type ResourceMatchKey = (Gvk, String, String);

fn key(id: &ResourceId) -> ResourceMatchKey {
    let (gvk, name, namespace) = id.key();
    (gvk.clone(), name.to_owned(), namespace.to_owned())
}

/// The objects of a build in their order.
#[derive(Debug, Clone)]
pub(crate) struct BuildResources {
    list: Vec<BuildResource>,
    /// The number of objects for each key; `None` after an object was changed.
    keys: Option<BTreeMap<ResourceMatchKey, usize>>,
    budget: BuildBudget,
}

/// Steps that comparing an object's ids with another costs.
const STEPS_PER_COMPARISON: usize = 16;

/// Steps that examining an object costs.
const LOOKED_AT: usize = 256;

impl BuildResources {
    /// An empty list of objects, with a budget for work on them.
    pub(crate) fn new(budget: &BuildBudget) -> Self {
        Self { list: Vec::new(), keys: None, budget: budget.clone() }
    }

    /// The budget for all work on the objects.
    pub(crate) fn budget(&self) -> BuildBudget {
        self.budget.clone()
    }

    /// To be called before all ids are examined.
    fn count_ids(&self) -> Result<()> {
        let ids = self.list.iter().map(|resource| STEPS_PER_COMPARISON * (1 + resource.past.len()));
        Ok(self.budget.steps(ids.sum())?)
    }

    pub(crate) fn list(&self) -> &[BuildResource] {
        &self.list
    }

    /// The objects, for changes. No object may get the id of another one.
    pub(crate) fn list_mut(&mut self) -> &mut Vec<BuildResource> {
        self.keys = None;
        &mut self.list
    }

    pub(crate) fn into_list(self) -> Vec<BuildResource> {
        self.list
    }

    fn keys(&mut self, schema: &OpenApiSchemas) -> &mut BTreeMap<ResourceMatchKey, usize> {
        let list = &self.list;
        self.keys.get_or_insert_with(|| {
            let mut keys = BTreeMap::new();
            for resource in list {
                *keys.entry(key(&resource.id(schema))).or_default() += 1;
            }
            keys
        })
    }

    /// Adds an object at the end.
    ///
    /// # Errors
    /// An object with the same id exists.
    pub(crate) fn append(
        &mut self,
        resource: BuildResource,
        schema: &OpenApiSchemas,
    ) -> Result<()> {
        self.budget.steps(LOOKED_AT)?;
        let id = resource.id(schema);
        let count = self.keys(schema).entry(key(&id)).or_default();
        if *count > 0 {
            let text = format!("may not add resource with an already registered id: {id}");
            return Err(Error::new(text));
        }
        *count += 1;
        self.list.push(resource);
        Ok(())
    }

    /// Adds objects at the end.
    ///
    /// # Errors
    /// As [`Self::append`].
    pub(crate) fn append_all(
        &mut self,
        resources: impl IntoIterator<Item = BuildResource>,
        schema: &OpenApiSchemas,
    ) -> Result<()> {
        resources.into_iter().try_for_each(|resource| self.append(resource, schema))
    }

    /// A new list of objects.
    ///
    /// # Errors
    /// As [`Self::append`].
    pub(crate) fn of(
        list: Vec<BuildResource>,
        schema: &OpenApiSchemas,
        budget: &BuildBudget,
    ) -> Result<Self> {
        let mut resources = Self::new(budget);
        resources.append_all(list, schema)?;
        Ok(resources)
    }

    /// Adds a generated object according to its behavior.
    ///
    /// # Errors
    /// There is no object to merge with or to replace, or an object exists and the behavior is neither merge nor replace.
    pub(crate) fn absorb(&mut self, mut new: BuildResource, schema: &OpenApiSchemas) -> Result<()> {
        let id = new.id(schema);
        self.count_ids()?;
        let had = |resource: &BuildResource| {
            !resource.is_gone() && (resource.had_id(&id) || resource.has_id(&id, schema))
        };
        let matches = self.list.iter().enumerate().filter(|(_, resource)| had(resource));
        let matches: Vec<usize> = matches.map(|(at, _)| at).collect();
        let old = match matches.as_slice() {
            [] if matches!(new.behavior, GeneratorBehavior::Merge | GeneratorBehavior::Replace) => {
                let text = format!("id {} does not exist; cannot merge or replace", shown(&id));
                return Err(Error::new(text));
            }
            [] => return self.append(new, schema),
            [old] => *old,
            _ => {
                let all = matches.iter().map(|at| self.list[*at].id(schema).to_string());
                let all: Vec<String> = all.collect();
                let text = format!(
                    "found multiple objects [{}] that could accept merge of {id}",
                    all.join(" ")
                );
                return Err(Error::new(text));
            }
        };
        let old_resource = &self.list[old];
        match new.behavior {
            GeneratorBehavior::Replace => new.take_metadata_from(old_resource)?,
            GeneratorBehavior::Merge => {
                self.budget.keep(&old_resource.node)?;
                crate::config_map_secret_generator::merge(&mut new, old_resource)?;
            }
            GeneratorBehavior::Create | GeneratorBehavior::Unspecified => {
                let text = format!(
                    "id {} exists; can not use behavior: '{}', behavior must be merge or replace",
                    shown(&id),
                    new.behavior.as_str()
                );
                return Err(Error::new(text));
            }
        }
        let id = new.id(schema);
        let current = self.list.iter().enumerate().filter(|(_, known)| known.has_id(&id, schema));
        let current: Vec<usize> = current.map(|(at, _)| at).collect();
        match current.as_slice() {
            [at] if *at == old => {}
            [] => {
                let text = format!("cannot find resource with id {id} to replace");
                return Err(Error::new(text));
            }
            [_] => return Err(Error::new("unexpected target index in replacement")),
            several => {
                let text = format!("in Replace: id matched {} resources", several.len());
                return Err(Error::new(text));
            }
        }
        self.list_mut()[old] = new;
        Ok(())
    }

    /// The positions of the objects with a present or earlier id that matches.
    ///
    /// # Errors
    /// The build has exceeded its budget.
    pub(crate) fn any_id(
        &self,
        fits: impl Fn(&ResourceId) -> bool,
        schema: &OpenApiSchemas,
    ) -> Result<Vec<usize>> {
        self.count_ids()?;
        let any = |resource: &BuildResource| {
            !resource.is_gone()
                && (resource.past_ids().any(|id| fits(&id)) || fits(&resource.id(schema)))
        };
        let places = self.list.iter().enumerate().filter(|(_, resource)| any(resource));
        Ok(places.map(|(at, _)| at).collect())
    }

    /// The place of the only object that has or had an id.
    ///
    /// # Errors
    /// No object has the id, or several have.
    pub(crate) fn by_id(&self, id: &ResourceId, schema: &OpenApiSchemas) -> Result<usize> {
        self.count_ids()?;
        let places = self.list.iter().enumerate();
        let had = |resource: &BuildResource| {
            !resource.is_gone() && (resource.had_id(id) || resource.has_id(id, schema))
        };
        let places: Vec<usize> =
            places.filter(|(_, resource)| had(resource)).map(|(at, _)| at).collect();
        let what = match places.as_slice() {
            [at] => return Ok(*at),
            [] => "no matches",
            _ => "multiple matches",
        };
        let text = format!("{what} for Id {id}; failed to find unique target for patch {id}");
        Err(Error::new(text))
    }

    /// The places of the objects that a selector means.
    ///
    /// # Errors
    /// One of its expressions is not valid.
    pub(crate) fn select(
        &self,
        selector: &ResourceSelector,
        schema: &OpenApiSchemas,
    ) -> Result<Vec<usize>> {
        self.budget.steps(selector.steps())?;
        let matcher = selector.compile().map_err(|error| Error::new(error.to_string()))?;
        let mut places = Vec::new();
        for (at, resource) in self.list.iter().enumerate() {
            self.budget.steps(resource.steps_of(&matcher))?;
            let current = resource.id(schema);
            let original = resource.original_id(schema);
            let gvk = &current.gvk;
            let fits = (matcher.matches_namespace(original.effective_namespace())
                || matcher.matches_namespace(current.effective_namespace()))
                && (matcher.matches_name(&original.name) || matcher.matches_name(&current.name))
                && matcher.matches_kind(&gvk.group, &gvk.version, &gvk.kind);
            if fits && resource.has_marks_of(&matcher)? {
                places.push(at);
            }
        }
        Ok(places)
    }

    /// Removes objects that were deleted as a whole.
    pub(crate) fn drop_gone(&mut self) {
        if self.list.iter().any(BuildResource::is_gone) {
            self.list_mut().retain(|resource| !resource.is_gone());
        }
    }

    /// Checks that no two objects have the same id.
    ///
    /// # Errors
    /// The message of [`Self::append`].
    pub(crate) fn check_ids(&mut self, schema: &OpenApiSchemas) -> Result<()> {
        let list = std::mem::take(self.list_mut());
        *self = Self::of(list, schema, &self.budget.clone())?;
        Ok(())
    }
}

/// An id in the form of Go's `%#v`.
fn shown(id: &ResourceId) -> String {
    let ResourceId { gvk: Gvk { group, version, kind }, name, namespace, is_cluster_scoped } = id;
    format!(
        "resid.ResId{{Gvk:resid.Gvk{{Group:{group:?}, Version:{version:?}, Kind:{kind:?}, \
         isClusterScoped:{is_cluster_scoped}}}, Name:{name:?}, Namespace:{namespace:?}}}"
    )
}
