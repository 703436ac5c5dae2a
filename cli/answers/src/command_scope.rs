//! The scope of a command or a page: a cluster, and one namespace or all namespaces.
//!
//! Elsewhere: the flags that set the scope (`cli`), finding the objects that arguments name (`kind_argument.rs`).

use anyhow::Context as _;
use objects::Object;
use serde_json::Value;

use super::kind_argument::ResourceArgument;
use windlass_cluster::discovery::ApiResourceLocation;
use windlass_cluster::object_pages::ObjectQuery;
use windlass_cluster::untyped_objects::ObjectPage;
use windlass_cluster::{ClusterConnection, ClusterError};

/// A cluster, and the namespace in which a command works.
pub struct CommandScope {
    /// The cluster.
    pub cluster: ClusterConnection,
    /// Empty for all namespaces.
    pub namespace: String,
}

impl CommandScope {
    /// The same cluster. If `all` is true, with all namespaces.
    pub fn everywhere(self, all: bool) -> Self {
        if all { Self { namespace: String::new(), ..self } } else { self }
    }

    /// A copy for the same cluster, with this namespace or, if `all` is true, with all namespaces.
    pub fn within(&self, all: bool) -> Self {
        Self { cluster: self.cluster.clone(), namespace: self.namespace.clone() }.everywhere(all)
    }

    /// The scope as words, for messages that nothing was found.
    pub fn in_words(&self) -> String {
        match self.namespace.as_str() {
            "" => "in any namespace".to_owned(),
            namespace => format!("in namespace {namespace}; -A shows all namespaces"),
        }
    }

    /// The namespace of a target.
    pub fn namespace_of<'a>(&'a self, target: &'a ResourceArgument) -> &'a str {
        match (target.resource.namespaced, &target.namespace) {
            (false, _) => "",
            (true, Some(namespace)) => namespace,
            (true, None) => &self.namespace,
        }
    }

    /// Lists the objects of a kind and passes each page to `each`.
    ///
    /// If the user may not list all namespaces, each namespace is listed separately. Returns messages about objects that were
    /// left out.
    ///
    /// # Errors
    /// The error of `each`, and every failure of a list except missing rights.
    pub async fn list(
        &self,
        target: &ResourceArgument,
        labels: &str,
        mut each: impl FnMut(Vec<Object>) -> anyhow::Result<()>,
    ) -> anyhow::Result<Vec<String>> {
        let namespace = self.namespace_of(target);
        match self.pages(&target.resource, namespace, labels, &mut each).await? {
            None => return Ok(Vec::new()),
            Some(refused) if !namespace.is_empty() || !target.resource.namespaced => {
                return Ok(vec![refused]);
            }
            Some(_) => {}
        }
        let namespaces = match self.namespaces().await {
            Ok(namespaces) => namespaces,
            Err(error) if error.code() == Some(403) => {
                let plural = plural_of(&target.resource);
                return Ok(vec![format!(
                    "{plural} of all namespaces: this user may list neither them nor namespaces; use -n"
                )]);
            }
            Err(error) => return Err(error).context("cannot list namespaces"),
        };
        let mut left_out = Vec::new();
        for namespace in namespaces {
            left_out.extend(self.pages(&target.resource, &namespace, labels, &mut each).await?);
        }
        Ok(left_out)
    }

    /// Passes every page to `each`. Returns a message if the API server refuses.
    async fn pages(
        &self,
        resource: &ApiResourceLocation,
        namespace: &str,
        labels: &str,
        each: &mut impl FnMut(Vec<Object>) -> anyhow::Result<()>,
    ) -> anyhow::Result<Option<String>> {
        let query = ObjectQuery { namespace, label_selector: labels, ..ObjectQuery::all(resource) };
        let mut from = None;
        let mut limit = FIRST_PAGE;
        loop {
            match self.cluster.list_at_most(query, from.as_deref(), limit).await {
                Ok(ObjectPage { objects, next, bytes }) => {
                    limit = next_limit(objects.len(), bytes);
                    each(objects)?;
                    from = next;
                }
                Err(error) if error.code() == Some(403) => {
                    let place = match namespace {
                        "" => String::new(),
                        namespace => format!(" in namespace {namespace}"),
                    };
                    return Ok(Some(format!("{}{place}: {error}", plural_of(resource))));
                }
                Err(error) => {
                    return Err(error).with_context(|| format!("cannot list {}", resource.plural));
                }
            }
            if from.is_none() {
                return Ok(None);
            }
        }
    }

    async fn namespaces(&self) -> Result<Vec<String>, ClusterError> {
        let gvk = objects::Gvk::new("v1", "Namespace");
        let resource = self.cluster.resource(&gvk).await?;
        let listed = self.cluster.list(&resource, "", "").await?;
        Ok(listed.iter().map(|it| it.name().to_owned()).collect())
    }
}

/// The plural of a kind. It includes the API group if two kinds of windlass have the same plural.
fn plural_of(resource: &ApiResourceLocation) -> String {
    let plural = &resource.plural;
    let alike = crds::names().filter(|names| names.plural == plural).count();
    match alike {
        0 | 1 => plural.clone(),
        _ => format!("{plural}.{}", resource.gvk.group),
    }
}

/// The maximum number of objects on the first page. It is small, so that the command prints something soon.
const FIRST_PAGE: usize = 50;

/// The maximum number of objects on a page.
const LARGEST_PAGE: usize = 500;

/// The desired size of a page in bytes. In memory, a page takes several times as much.
const PAGE_BYTES: usize = 2 << 20;

/// How many objects to request next, after a page with this number of objects and bytes.
fn next_limit(objects: usize, bytes: usize) -> usize {
    let fitting = objects.saturating_mul(PAGE_BYTES) / bytes.max(1);
    fitting.clamp(8, LARGEST_PAGE)
}

/// Whether a list failed because the kind is not installed.
#[must_use]
pub fn is_absent_kind(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<ClusterError>();
    error.is_some_and(|it| it.is_unserved() || matches!(it, ClusterError::NoSuchKind { .. }))
}

/// An object as windlass prints it: without fields that no person reads, and without the values of a Secret.
pub fn shown(mut object: Object) -> Object {
    object.metadata_mut().remove("managedFields");
    if object.kind() == "Secret" && object.api_version() == "v1" {
        for field in ["data", "stringData"] {
            let entries = object.fields_mut().get_mut(field).and_then(Value::as_object_mut);
            for value in entries.into_iter().flat_map(serde_json::Map::values_mut) {
                *value = "****".into();
            }
        }
        if let Some(annotations) = object.metadata_mut().get_mut("annotations") {
            let annotations = annotations.as_object_mut();
            // This annotation repeats the whole Secret.
            annotations.map(|it| it.remove("kubectl.kubernetes.io/last-applied-configuration"));
        }
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_kinds_with_one_plural_the_group_is_named() {
        let of = |group: &str, plural: &str| {
            plural_of(&ApiResourceLocation {
                gvk: objects::Gvk::new(&format!("{group}/v1"), "Kind"),
                plural: plural.to_owned(),
                namespaced: true,
                watchable: true,
            })
        };
        let plain = of("kustomize.toolkit.fluxcd.io", "kustomizations");
        assert_eq!(plain, "kustomizations");
        let named = of("apps.mumoshu.github.io", "helmfiles");
        assert_eq!(named, "helmfiles.apps.mumoshu.github.io");
    }

    #[test]
    fn pages_are_as_long_as_fits_into_memory() {
        let kib = |each: usize, objects: usize| next_limit(objects, objects * (each << 10));
        assert_eq!(kib(1, FIRST_PAGE), LARGEST_PAGE);
        assert_eq!(kib(8, FIRST_PAGE), 256);
        assert_eq!(kib(1500, 8), 8);
        // A page may have no objects.
        assert_eq!(next_limit(0, 100), 8);
    }
}
