//! Resolves the arguments `KIND`, `KIND/NAME` and `KIND NAME…` of commands.
//!
//! The kinds of windlass and Flux are known from `crds`. For other kinds, windlass asks the cluster. Elsewhere: the namespace
//! (`command_scope.rs`).

use std::fmt;

use anyhow::{Context as _, bail, ensure};
use crds::KindNames;
use objects::{Gvk, Object, ObjectId};

use super::command_scope::CommandScope;
use windlass_cli_runtime::table::clean;
use windlass_cluster::discovery::ApiResourceLocation;
use windlass_cluster::object_pages::ObjectQuery;
use windlass_cluster::{ClusterConnection, ClusterError};

/// The meaning of one argument.
#[derive(Debug, Clone)]
pub struct ResourceArgument {
    /// The API resource of the kind.
    pub resource: ApiResourceLocation,
    /// The namespace in the argument. `None` if the namespace of the command applies.
    pub namespace: Option<String>,
    /// The name of the object. `None` for all objects of the kind.
    pub name: Option<String>,
}

/// The error that neither windlass nor the cluster knows a kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownKind {
    /// The message, which suggests the most similar name.
    text: String,
}

impl fmt::Display for UnknownKind {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&self.text)
    }
}

impl std::error::Error for UnknownKind {}

/// Arguments that stand for several kinds. They are the categories of `crds` without their prefix.
const ALL: &str = "all";
const CATEGORY: &str = "fluxcd-";

/// The argument that stands for all kinds of image automation.
const IMAGES: &str = "images";

/// How similar a name has to be for a suggestion, from 0 to 1.
const MIN_NAME_SIMILARITY: f64 = 0.75;

/// Resolves arguments.
///
/// # Errors
/// [`UnknownKind`] if there is no such kind. The error suggests the most similar name.
pub async fn targets(
    cluster: &ClusterConnection,
    words: &[String],
) -> anyhow::Result<Vec<ResourceArgument>> {
    if words.iter().any(|word| word.contains('/')) {
        let mut found = Vec::new();
        for word in words {
            found.push(target(cluster, word).await?);
        }
        return Ok(found);
    }
    let (kinds, names) = words.split_first().context("name a kind, such as `kustomizations`")?;
    let mut resources = Vec::new();
    for kind in kinds.split(',') {
        resources.extend(resources_of(cluster, kind).await?);
    }
    let all = |name: Option<&String>| {
        let target = |resource: &ApiResourceLocation| ResourceArgument {
            resource: resource.clone(),
            namespace: None,
            name: name.cloned(),
        };
        resources.iter().map(target).collect::<Vec<_>>()
    };
    if names.is_empty() {
        return Ok(all(None));
    }
    ensure!(
        resources.len() == 1,
        "`{kinds}` names several kinds, so `{}` cannot be found: write KIND/NAME",
        names.join(" ")
    );
    Ok(names.iter().flat_map(|name| all(Some(name))).collect())
}

/// Resolves arguments that name one object: `KIND/NAME` or `KIND NAME`.
///
/// # Errors
/// There is no such kind, or there is no name.
pub async fn one(
    cluster: &ClusterConnection,
    words: &[String],
) -> anyhow::Result<ResourceArgument> {
    let mut found = targets(cluster, words).await?;
    match (found.pop(), found.is_empty()) {
        (Some(target), true) if target.name.is_some() => Ok(target),
        _ => bail!("name one object, such as kustomization/app"),
    }
}

/// Resolves `KIND/NAME`, or `KIND/NAMESPACE/NAME` as in messages of windlass.
async fn target(cluster: &ClusterConnection, word: &str) -> anyhow::Result<ResourceArgument> {
    let parts: Vec<&str> = word.split('/').collect();
    let (kind, namespace, name) = match *parts.as_slice() {
        [kind, name] => (kind, None, name),
        [kind, namespace, name] => (kind, Some(namespace.to_owned()), name),
        _ => bail!("`{word}` is not KIND/NAME"),
    };
    ensure!(!kind.is_empty() && !name.is_empty(), "`{word}` is not KIND/NAME");
    let mut resources = resources_of(cluster, kind).await?;
    let resource = resources.pop().filter(|_| resources.is_empty());
    let resource = resource.with_context(|| format!("`{kind}` in `{word}` names several kinds"))?;
    Ok(ResourceArgument { resource, namespace, name: Some(name.to_owned()) })
}

/// The kinds that an argument names.
async fn resources_of(
    cluster: &ClusterConnection,
    word: &str,
) -> anyhow::Result<Vec<ApiResourceLocation>> {
    let word = of_flux(&word.to_lowercase()).to_owned();
    let group: Vec<&KindNames> = crds::names().filter(|it| is_in(it, &word)).collect();
    if !group.is_empty() {
        let mut found = Vec::new();
        for names in group {
            match of_ours(cluster, names).await {
                Ok(resource) => found.push(resource),
                // A kind whose CRD is not installed has no objects.
                Err(ClusterError::NoSuchKind { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        ensure!(!found.is_empty(), "no CRD of windlass is installed: run `windlass install`");
        return Ok(found);
    }
    if let Some(names) = called(&word) {
        return Ok(vec![of_ours(cluster, names).await?]);
    }
    let found = cluster.kinds_called(&word).await?;
    match found.len() {
        0 => Err(UnknownKind { text: unknown(&word) }.into()),
        1 => Ok(found),
        // The core group comes first, as in kubectl.
        _ => Ok(found.into_iter().take(1).collect()),
    }
}

async fn of_ours(
    cluster: &ClusterConnection,
    names: &KindNames,
) -> Result<ApiResourceLocation, ClusterError> {
    let group = names.group.to_owned();
    let version = names.version.to_owned();
    cluster.resource(&Gvk { group, version, kind: names.kind.to_owned() }).await
}

fn is_in(names: &KindNames, word: &str) -> bool {
    (word == ALL && !names.is_record() && !names.is_gate())
        || names.category.strip_prefix(CATEGORY) == Some(word)
}

/// The kind of windlass or Flux with this name. The bare name `Helmfile`, which two kinds have, means the one with a short
/// name. The other Helmfile needs its group. `None` if no kind has the name.
fn called(word: &str) -> Option<&'static KindNames> {
    crds::names().filter(|it| is_called(it, word)).max_by_key(|it| it.short.len())
}

/// The name of a kind in windlass, if `flux` or a command of windlass uses another word.
fn of_flux(word: &str) -> &str {
    match word {
        "alert-provider" | "alert-providers" => "provider",
        "source" => "sources",
        // The command that lists ChangeSets has this name.
        "changes" => "changesets",
        "image" => IMAGES,
        word => word,
    }
}

fn is_called(names: &KindNames, word: &str) -> bool {
    let bare = word.strip_suffix(&format!(".{}", names.group)).unwrap_or(word);
    words(names).any(|it| it == bare)
}

/// The names that people use for a kind.
pub fn words(names: &KindNames) -> impl Iterator<Item = String> {
    let short = names.short.iter().map(|it| (*it).to_owned());
    [names.kind.to_lowercase(), names.plural.to_owned()].into_iter().chain(short)
}

/// The name of a kind. It includes the group if the bare name means a kind of another group.
pub fn qualified(gvk: &Gvk) -> String {
    match called(&gvk.kind.to_lowercase()) {
        Some(meant) if meant.group != gvk.group && is_ours(gvk) => {
            format!("{}.{}", gvk.kind, gvk.group)
        }
        _ => gvk.kind.clone(),
    }
}

fn is_ours(gvk: &Gvk) -> bool {
    crds::names().any(|it| it.group == gvk.group && it.kind == gvk.kind)
}

fn unknown(word: &str) -> String {
    let all: Vec<String> = crds::names().flat_map(words).collect();
    let mut kinds: Vec<&str> = crds::names().map(|it| it.plural).collect();
    kinds.sort_unstable();
    kinds.dedup();
    match nearest(word, all.iter().map(String::as_str)) {
        Some(nearest) => format!("unknown kind `{word}`: did you mean `{nearest}`?"),
        None => format!(
            "unknown kind `{word}`: neither the cluster nor windlass has it; kinds of windlass are {}",
            kinds.join(", ")
        ),
    }
}

/// The name that is most similar to a word. `None` if no name is similar enough.
pub(crate) fn nearest<'n>(word: &str, names: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    let alike = names.map(|name| (strsim::jaro_winkler(word, name), name));
    let best = alike.max_by(|one, other| one.0.total_cmp(&other.0))?;
    (best.0 >= MIN_NAME_SIMILARITY).then_some(best.1)
}

/// Reads the object that an argument names.
///
/// # Errors
/// The object does not exist. The error suggests the most similar name, and other namespaces that contain the name.
pub async fn read(site: &CommandScope, target: &ResourceArgument) -> anyhow::Result<Object> {
    let namespace = site.namespace_of(target);
    let name = target.name.as_deref().unwrap_or_default();
    match site.cluster.get(&target.resource, namespace, name).await? {
        Some(object) => Ok(object),
        None => Err(absent(site, target).await),
    }
}

/// The error for an object that does not exist. It suggests the most similar name, and other namespaces that contain the name.
pub async fn absent(site: &CommandScope, target: &ResourceArgument) -> anyhow::Error {
    let namespace = site.namespace_of(target);
    let name = target.name.as_deref().unwrap_or_default();
    let Gvk { group, kind, .. } = &target.resource.gvk;
    let id = ObjectId::new(namespace, name, group, kind);
    let mut text = format!("{} does not exist", id.subject());
    // windlass makes no suggestions if it cannot list the objects.
    let listed = site.cluster.list_part(ObjectQuery::all(&target.resource), None).await;
    let objects = listed.map(|part| part.objects).unwrap_or_default();
    let elsewhere: Vec<&str> =
        objects.iter().filter(|it| it.name() == name).map(Object::namespace).collect();
    let here = objects.iter().filter(|it| it.namespace() == namespace).map(Object::name);
    if let [first, ..] = elsewhere.as_slice() {
        text = format!("{text}; namespace {first} has one of this name: add -n {first}");
    } else if let Some(nearest) = nearest(name, here) {
        text = format!("{text}: did you mean `{nearest}`?");
    }
    anyhow::anyhow!(clean(&text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_name_of_its_own() {
        for names in crds::names() {
            let full = format!("{}.{}", names.plural, names.group);
            assert_eq!(called(&full).map(|it| it.group), Some(names.group), "{full}");
            for short in names.short {
                assert_eq!(called(short).map(|it| it.group), Some(names.group), "{short}");
            }
        }
        let found = |word| called(word).map(|it| (it.group, it.kind));
        assert_eq!(found("ks"), Some(("kustomize.toolkit.fluxcd.io", "Kustomization")));
        for word in ["helmfile", "hf"] {
            assert_eq!(found(word), Some(("helmfile.windlass.dev", "Helmfile")), "{word}");
        }
        let operator = found("helmfile.apps.mumoshu.github.io");
        assert_eq!(operator, Some(("apps.mumoshu.github.io", "Helmfile")));
        assert_eq!(found("helmrelease.helm.sh"), None);
    }

    #[test]
    fn two_kinds_of_one_name_are_distinguished() {
        let shown = |version, kind| qualified(&Gvk::new(version, kind));
        assert_eq!(shown("helmfile.windlass.dev/v1alpha1", "Helmfile"), "Helmfile");
        let operator = shown("apps.mumoshu.github.io/v1alpha1", "Helmfile");
        assert_eq!(operator, "Helmfile.apps.mumoshu.github.io");
        assert_eq!(shown("kustomize.toolkit.fluxcd.io/v1", "Kustomization"), "Kustomization");
        assert_eq!(shown("v1", "ConfigMap"), "ConfigMap");
    }

    #[test]
    fn words_of_flux_name_the_same_kinds() {
        assert_eq!(called(of_flux("alert-providers")).map(|it| it.kind), Some("Provider"));
        assert!(crds::names().any(|it| is_in(it, of_flux("source"))));
        assert_eq!(called(of_flux("changes")).map(|it| it.kind), Some("ChangeSet"));
        assert_eq!(of_flux("ks"), "ks");
    }

    #[test]
    fn a_category_names_its_kinds() {
        let sources = crds::names().filter(|it| is_in(it, "sources"));
        assert!(sources.map(|it| it.kind).any(|kind| kind == "GitRepository"));
        let left_out: Vec<_> =
            crds::names().filter(|it| !is_in(it, ALL)).map(|it| it.kind).collect();
        assert_eq!(
            left_out,
            [
                "ChangeSet",
                "ClusterStagedRollout",
                "FreezeBypass",
                "Freeze",
                "Incident",
                "LifecycleBinding",
                "LifecycleEvent",
                "Lifecycle",
                "PlanPolicy",
                "Plan",
                "Quarantine",
                "ReleaseAudit",
                "StagedRollout"
            ]
        );
    }

    #[test]
    fn the_nearest_kind_is_suggested() {
        assert_eq!(
            unknown("kustomisation"),
            "unknown kind `kustomisation`: did you mean `kustomization`?"
        );
        assert_eq!(unknown("gitrepos"), "unknown kind `gitrepos`: did you mean `gitrepo`?");
        assert!(unknown("xyz").starts_with("unknown kind `xyz`: neither the cluster"));
        for word in ["imageupdateautomations", "imageupdateautomation.image.toolkit.fluxcd.io"] {
            assert_eq!(called(word).map(|it| it.kind), Some("ImageUpdateAutomation"));
        }
        assert!(crds::names().any(|it| is_in(it, IMAGES)));
        assert_eq!(of_flux("image"), IMAGES);
    }
}
