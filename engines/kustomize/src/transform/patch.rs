//! `patches`, `patchesStrategicMerge` and `patchesJson6902`.

use std::fmt;

use crate::budget::{self, BuildBudget};
use crate::error::{BuildErrorCause, Error, ErrorContext as _, Result};
use crate::field_edit;
use crate::json6902;
use crate::kustomization::PatchEntry as Entry;
use crate::loader::KustomizationLoader;
use crate::manifest;
use crate::openapi_schema::OpenApiSchemas;
use crate::resource::BuildResource;
use crate::resources::BuildResources;
use crate::selector::ResourceSelector;
use crate::strategic_merge::{self, StrategicMergeError};
use crate::transform::named;

fn quoted(text: &str) -> String {
    let quoted = golang::strconv::quote(text.as_bytes(), golang::strconv::QuotingStyle::Printable);
    String::from_utf8_lossy(&quoted).into_owned()
}

/// Merges a patch into an object. Kind, name and namespace stay unless the patch may change them.
fn merge_into(
    target: &mut BuildResource,
    patch: &BuildResource,
    schema: &OpenApiSchemas,
    budget: &BuildBudget,
) -> Result<()> {
    let name = target.name().to_owned();
    let namespace = target.namespace().to_owned();
    let kind = target.kind().to_owned();
    if patch.may_change_name || patch.may_change_kind {
        target.remember(schema, budget)?;
    }
    let outcome = strategic_merge::strategic(&patch.node, &mut target.node, schema, budget);
    let outcome = outcome.map_err(|error| match error {
        StrategicMergeError::Exhausted(exhausted) => Error::from(exhausted).within(named(patch)),
        error => Error::new(error.to_string()),
    });
    if outcome? == strategic_merge::MergeOutcome::Deleted {
        target.node = field_edit::null();
    }
    if target.is_gone() {
        return Ok(());
    }
    if !patch.may_change_kind {
        target.set_kind(&kind)?;
    }
    if !patch.may_change_name {
        target.set_name(&name)?;
    }
    target.set_namespace(&namespace)
}

/// Merges a patch into some objects, and ignores the version and the name in the patch.
fn merge_into_all(
    resources: &mut BuildResources,
    places: &[usize],
    patch: &BuildResource,
    schema: &OpenApiSchemas,
) -> Result<()> {
    let budget = resources.budget();
    let weight = budget::weight(&patch.node);
    for at in places {
        let target = &mut resources.list_mut()[*at];
        budget.steps(weight)?;
        let mut patch = patch.clone();
        // Parity(kustomize): labels and annotations of the patch become strings, and null and empty maps of them vanish.
        patch.take_metadata_from(&patch.clone())?;
        let api_version = target.gvk().api_version();
        let kind = patch.kind().to_owned();
        patch.set_api_version(&api_version)?;
        patch.set_kind(&kind)?;
        merge_into(target, &patch, schema, &budget)?;
    }
    resources.drop_gone();
    resources.check_ids(schema)
}

/// Applies operations to some objects.
fn apply_to_all(
    resources: &mut BuildResources,
    places: &[usize],
    patch: &json6902::JsonPatch,
    remember: Option<&OpenApiSchemas>,
) -> Result<()> {
    let budget = resources.budget();
    for at in places {
        let resource = &mut resources.list_mut()[*at];
        if let Some(schema) = remember {
            resource.remember(schema, &budget)?;
        }
        let applied = json6902::apply(patch, &mut resource.node, &budget);
        applied.map_err(|error| match error {
            json6902::Error::Exhausted(exhausted) => Error::from(exhausted).within(named(resource)),
            error => Error::new(error.to_string()),
        })?;
        let annotations = resource.annotations();
        resource.set_annotations(&annotations)?;
        resource.keep_annotations();
    }
    Ok(())
}

/// The transformer that applies the patches of `patchesStrategicMerge`.
#[derive(Debug, Clone)]
pub(crate) struct StrategicMergeTransformer {
    patches: Vec<BuildResource>,
}

impl StrategicMergeTransformer {
    /// Reads patches. An entry is YAML, or the path of a file.
    ///
    /// # Errors
    /// A file cannot be read, or there is no patch.
    pub(crate) fn load(
        loader: &KustomizationLoader<'_>,
        paths: &[String],
        inline: &str,
    ) -> Result<Self> {
        if paths.is_empty() && inline.is_empty() {
            return Err(Error::new("empty file path and empty patch content"));
        }
        let budget = loader.budget();
        let mut patches = Vec::new();
        for path in paths {
            patches.extend(match manifest::parse(path.as_bytes(), budget) {
                Ok(patches) => patches,
                Err(error) if error.cause() == BuildErrorCause::Exhausted => return Err(error),
                Err(_) => manifest::in_file(manifest::parse(&loader.load(path)?, budget), path)?,
            });
        }
        if !inline.is_empty() {
            patches.extend(manifest::parse(inline.as_bytes(), budget)?);
        }
        if patches.is_empty() {
            let paths = paths.join(" ");
            let text = format!("patch appears to be empty; files=[{paths}], Patch={inline}");
            return Err(Error::new(text));
        }
        Ok(Self { patches })
    }

    pub(super) fn transform(
        &self,
        resources: &mut BuildResources,
        schema: &OpenApiSchemas,
    ) -> Result<()> {
        for patch in &self.patches {
            let at = resources.by_id(&patch.original_id(schema), schema)?;
            merge_into_all(resources, &[at], patch, schema)?;
        }
        Ok(())
    }
}

#[derive(Debug, Clone)]
enum PatchContent {
    Merges(Vec<BuildResource>),
    Operations(json6902::JsonPatch),
}

/// The transformer that applies an entry of `patches` to the objects that it selects.
#[derive(Debug, Clone)]
pub(crate) struct PatchTransformer {
    content: PatchContent,
    target: Option<ResourceSelector>,
    source: PatchSource,
}

/// Where a patch comes from, for errors.
#[derive(Debug, Clone)]
enum PatchSource {
    Inline(String),
    Path(String),
}

impl fmt::Display for PatchSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inline(text) => write!(f, "[patch: {}]", quoted(text)),
            Self::Path(path) => write!(f, "[path: {}]", quoted(path)),
        }
    }
}

impl PatchTransformer {
    /// Reads a patch and detects whether it is a strategic merge patch or a JSON patch.
    ///
    /// # Errors
    /// The patch is neither of the two, or both; or its file cannot be read.
    pub(crate) fn load(loader: &KustomizationLoader<'_>, entry: &Entry) -> Result<Self> {
        let config = || {
            let mut entry = entry.clone();
            entry.patch.clone_from(&entry.patch.trim().to_owned());
            goyaml::emit::emit(&entry.to_config("patch")).unwrap_or_default()
        };
        let inline = entry.patch.trim();
        let (text, source) = match (inline, entry.path.as_str()) {
            ("", "") => {
                let text = format!("must specify one of patch and path in\n{}", config());
                return Err(Error::new(text));
            }
            (inline, "") => (inline.as_bytes().into(), PatchSource::Inline(inline.to_owned())),
            ("", path) => {
                let loaded = loader.load(path);
                let failed = || format!("failed to get the patch file from path({path})");
                (loaded.within(failed)?, PatchSource::Path(path.to_owned()))
            }
            _ => {
                let text = format!("patch and path can't be set at the same time\n{}", config());
                return Err(Error::new(text));
            }
        };
        // A text that begins with a letter is not a list, so it need not be searched for operations.
        let is_no_list = text.first().is_some_and(u8::is_ascii_alphabetic);
        let budget = loader.budget();
        let content = match manifest::parse(&text, budget) {
            Err(error) if error.cause() == BuildErrorCause::Exhausted => {
                return Err(error.within(source));
            }
            Ok(merges) if is_no_list => PatchContent::Merges(merges),
            merges => match (merges, operations(&text, budget)) {
                (Ok(merges), Ok(operations)) if !merges.is_empty() && !operations.is_empty() => {
                    let text =
                        format!("illegally qualifies as both an SM and JSON patch: {source}");
                    return Err(Error::new(text));
                }
                (_, Err(error)) if error.cause() == BuildErrorCause::Exhausted => {
                    return Err(error.within(source));
                }
                (Ok(merges), _) => PatchContent::Merges(merges),
                (Err(_), Ok(operations)) => PatchContent::Operations(operations),
                (Err(_), Err(_)) => {
                    let text = format!("unable to parse SM or JSON patch from {source}");
                    return Err(Error::new(text));
                }
            },
        };
        let mut patch = Self { content, target: entry.target.clone(), source };
        if let (PatchContent::Merges(merges), Some(options)) = (&mut patch.content, &entry.options)
        {
            for merge in merges {
                merge.may_change_name |= options.allow_name_change;
                merge.may_change_kind |= options.allow_kind_change;
            }
        }
        Ok(patch)
    }

    /// Whether the patch merges something into one of the objects.
    pub(super) fn merges(
        &self,
        resources: &BuildResources,
        schema: &OpenApiSchemas,
    ) -> Result<bool> {
        match (&self.content, &self.target) {
            (PatchContent::Operations(_), _) => Ok(false),
            (PatchContent::Merges(merges), None) => Ok(!merges.is_empty()),
            (PatchContent::Merges(_), Some(target)) => match resources.select(target, schema) {
                Err(error) if error.cause() == BuildErrorCause::Exhausted => Err(error),
                places => Ok(places.is_ok_and(|places| !places.is_empty())),
            },
        }
    }

    pub(super) fn transform(
        &self,
        resources: &mut BuildResources,
        schema: &OpenApiSchemas,
    ) -> Result<()> {
        match &self.content {
            PatchContent::Merges(merges) => self.merge(merges, resources, schema),
            PatchContent::Operations(operations) => {
                let Some(target) = &self.target else {
                    let text = format!("must specify a target for JSON patch {}", self.source);
                    return Err(Error::new(text));
                };
                let places = resources.select(target, schema)?;
                apply_to_all(resources, &places, operations, Some(schema))
            }
        }
    }

    fn merge(
        &self,
        merges: &[BuildResource],
        resources: &mut BuildResources,
        schema: &OpenApiSchemas,
    ) -> Result<()> {
        let Some(target) = &self.target else {
            let budget = resources.budget();
            for patch in merges {
                let id = patch.original_id(schema);
                let failed = || {
                    let id = quoted(&id.to_string());
                    format!("no resource matches strategic merge patch {id}")
                };
                let at = resources.by_id(&id, schema).within(failed)?;
                merge_into(&mut resources.list_mut()[at], patch, schema, &budget)?;
            }
            return Ok(());
        };
        let patch = match merges {
            [] => return Ok(()),
            [patch] => patch,
            _ => {
                return Err(Error::new(format!(
                    "Multiple Strategic-Merge Patches in one `patches` entry is not allowed to set `patches.target` \
                     field: {}",
                    self.source
                )));
            }
        };
        let places = resources.select(target, schema).within(|| {
            let ResourceSelector { name, namespace, annotation_selector, label_selector, .. } =
                target;
            let gvk = crate::resource_id::Gvk {
                group: target.group.clone(),
                version: target.version.clone(),
                kind: target.kind.clone(),
            };
            let name = name.clone();
            let namespace = namespace.clone();
            let id =
                crate::resource_id::ResourceId { gvk, name, namespace, is_cluster_scoped: false };
            let target = format!("{id}:a={annotation_selector}:l={label_selector}");
            format!("unable to find patch target {} in `resources`", quoted(&target))
        })?;
        merge_into_all(resources, &places, patch, schema)
    }
}

fn operations(text: &[u8], budget: &BuildBudget) -> Result<json6902::JsonPatch> {
    let text = String::from_utf8_lossy(text);
    if text.is_empty() {
        return Err(Error::new("empty json patch operations"));
    }
    let limits = budget.reading(text.len())?;
    let patch = json6902::parse(&text, &limits).map_err(|error| Error::new(error.to_string()))?;
    budget.bytes(patch.weight())?;
    Ok(patch)
}

/// The transformer that applies an entry of `patchesJson6902` to its target.
#[derive(Debug, Clone)]
pub(crate) struct Json6902Transformer {
    operations: json6902::JsonPatch,
    target: ResourceSelector,
}

impl Json6902Transformer {
    /// # Errors
    /// The target has no name, the file cannot be read, or there are no operations.
    pub(crate) fn load(loader: &KustomizationLoader<'_>, entry: &Entry) -> Result<Self> {
        // Differs(kustomize): it crashes if there is no target.
        let target = entry.target.clone().unwrap_or_default();
        if target.name.is_empty() {
            return Err(Error::new("must specify the target name"));
        }
        let mut text = entry.patch.clone();
        match (entry.path.as_str(), text.as_str()) {
            ("", "") => return Err(Error::new("empty file path and empty jsonOp")),
            ("", _) => {}
            (path, "") => {
                text = String::from_utf8_lossy(&loader.load(path)?).into_owned();
                if text.is_empty() {
                    let text = format!("patch file '{path}' empty seems to be empty");
                    return Err(Error::new(text));
                }
            }
            _ => return Err(Error::new("must specify a file path or jsonOp, not both")),
        }
        let operations =
            operations(text.as_bytes(), loader.budget()).within(|| format!("decoding {text}"))?;
        if operations.is_empty() {
            let path = &entry.path;
            let text = format!("patch appears to be empty; file={path}, JsonOp={text}");
            return Err(Error::new(text));
        }
        Ok(Self { operations, target })
    }

    pub(super) fn transform(
        &self,
        resources: &mut BuildResources,
        schema: &OpenApiSchemas,
    ) -> Result<()> {
        let places = resources.select(&self.target, schema)?;
        apply_to_all(resources, &places, &self.operations, None)
    }
}
