//! What the words `KIND`, `KIND/NAME` and `KIND NAME…` mean.
//!
//! Kinds of windlass and of Flux are those of `crds`; any other kind is asked of the cluster. Elsewhere: the namespace
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

/// What one word names.
#[derive(Debug, Clone)]
pub struct ResourceArgument {
    /// Where objects of the kind are.
    pub resource: ApiResourceLocation,
    /// The namespace, if the word has one; else that of the command.
    pub namespace: Option<String>,
    /// The object; all of the kind if there is none.
    pub name: Option<String>,
}

/// Neither windlass nor the cluster has a kind of a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownKind {
    /// What is said of it, with the nearest name.
    text: String,
}

impl fmt::Display for UnknownKind {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&self.text)
    }
}

impl std::error::Error for UnknownKind {}

/// Words that stand for several kinds: the categories of `crds`, without their prefix.
const ALL: &str = "all";
const CATEGORY: &str = "fluxcd-";

/// What stands for all kinds of image automation.
const IMAGES: &str = "images";

/// How alike a name has to be to be suggested, from 0 to 1.
const MIN_NAME_SIMILARITY: f64 = 0.75;

/// Finds what words name.
///
/// # Errors
/// [`UnknownKind`] if there is no such kind; names the nearest one.
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

/// Finds the one object that words name: `KIND/NAME` or `KIND NAME`.
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

/// `KIND/NAME`, or `KIND/NAMESPACE/NAME` as messages have it.
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

/// The kinds that a word names.
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
                // One whose CRD is not installed has no objects.
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
        // The core group first, as kubectl has it.
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

/// The kind of ours with a name. Two kinds are called Helmfile: the one with a short name is meant, the other has to be
/// named with its group.
fn called(word: &str) -> Option<&'static KindNames> {
    crds::names().filter(|it| is_called(it, word)).max_by_key(|it| it.short.len())
}

/// The word for what `flux`, or a command of windlass, calls otherwise.
fn of_flux(word: &str) -> &str {
    match word {
        "alert-provider" | "alert-providers" => "provider",
        "source" => "sources",
        // As the command is called that shows them.
        "changes" => "changesets",
        "image" => IMAGES,
        word => word,
    }
}

fn is_called(names: &KindNames, word: &str) -> bool {
    let bare = word.strip_suffix(&format!(".{}", names.group)).unwrap_or(word);
    words(names).any(|it| it == bare)
}

/// What a kind is called by people.
pub fn words(names: &KindNames) -> impl Iterator<Item = String> {
    let short = names.short.iter().map(|it| (*it).to_owned());
    [names.kind.to_lowercase(), names.plural.to_owned()].into_iter().chain(short)
}

/// A kind in words, with its group where the bare kind means one of another group.
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

/// The most alike of some names, if one is alike at all.
pub(crate) fn nearest<'n>(word: &str, names: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    let alike = names.map(|name| (strsim::jaro_winkler(word, name), name));
    let best = alike.max_by(|one, other| one.0.total_cmp(&other.0))?;
    (best.0 >= MIN_NAME_SIMILARITY).then_some(best.1)
}

/// Reads the object that a target names.
///
/// # Errors
/// It does not exist; names the nearest one, and other namespaces that have it.
pub async fn read(site: &CommandScope, target: &ResourceArgument) -> anyhow::Result<Object> {
    let namespace = site.namespace_of(target);
    let name = target.name.as_deref().unwrap_or_default();
    match site.cluster.get(&target.resource, namespace, name).await? {
        Some(object) => Ok(object),
        None => Err(absent(site, target).await),
    }
}

/// What is said of an object that does not exist: the nearest name, and other namespaces that have one of this name.
pub async fn absent(site: &CommandScope, target: &ResourceArgument) -> anyhow::Error {
    let namespace = site.namespace_of(target);
    let name = target.name.as_deref().unwrap_or_default();
    let Gvk { group, kind, .. } = &target.resource.gvk;
    let id = ObjectId::new(namespace, name, group, kind);
    let mut text = format!("{} does not exist", id.subject());
    // What cannot be listed cannot be suggested.
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
