//! The annotation by which an Alert or a Receiver names objects of windlass's own kinds. It is an annotation because Flux's
//! CRDs only allow Flux's kinds in their fields.
//!
//! An annotation has entries such as `Helmfile/shop`, `Helmfile/apps/shop` and `HTTPArchive/apps/*`, separated by commas.

use std::collections::BTreeMap;

use crds::helmfile::Helmfile;
use crds::windlass_source::HTTPArchive;
use kube_core::Resource;
use notify::EventSourceSelector;

/// Annotation of an Alert that names more objects whose events are sent.
pub const EVENT_SOURCES: &str = "windlass.dev/event-sources";

/// Annotation of a Receiver that names more objects to reconcile.
pub(crate) const RESOURCES: &str = "windlass.dev/resources";

/// The most entries of an annotation, since they are parsed again for each event.
const MAX_ANNOTATION_ENTRIES: usize = 64;

/// The API version of the kind `K`, if an entry names this kind. `None` if the entry names another kind.
fn api_version_of<K: Resource<DynamicType = ()>>(kind: &str) -> Option<String> {
    (K::kind(&()) == kind).then(|| K::api_version(&()).into_owned())
}

/// The objects that an annotation of an object names.
///
/// # Errors
/// An entry names no object, or there are too many entries. The message says which of the two.
pub fn named<K: Resource>(
    object: &K,
    annotation: &str,
) -> Result<Vec<EventSourceSelector>, String> {
    let annotations = object.meta().annotations.as_ref();
    let Some(text) = annotations.and_then(|all| all.get(annotation)) else {
        return Ok(Vec::new());
    };
    let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
    let read = |entry: &str| {
        let parts: Vec<&str> = entry.split('/').collect();
        let (kind, namespace, name) = match parts[..] {
            [kind, name] => (kind, "", name),
            [kind, namespace, name] => (kind, namespace, name),
            _ => ("", "", ""),
        };
        let api_version =
            api_version_of::<Helmfile>(kind).or_else(|| api_version_of::<HTTPArchive>(kind));
        let Some(api_version) = api_version.filter(|_| !name.is_empty()) else {
            return Err(format!(
                "annotation {annotation}: `{entry}` is not Kind/name or Kind/namespace/name with the kind Helmfile or \
                 HTTPArchive"
            ));
        };
        Ok(EventSourceSelector {
            api_version,
            kind: kind.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            // With `*` these are all.
            match_labels: (name == "*").then(BTreeMap::new),
            ..EventSourceSelector::default()
        })
    };
    if entries.clone().nth(MAX_ANNOTATION_ENTRIES).is_some() {
        return Err(format!(
            "annotation {annotation}: it names more than {MAX_ANNOTATION_ENTRIES} objects"
        ));
    }
    entries.map(read).collect()
}

#[cfg(test)]
mod tests {
    use crds::notification::{Alert, AlertSpec};

    use super::*;

    fn read(text: &str) -> Result<Vec<String>, String> {
        let mut alert = Alert::new("a", AlertSpec::default());
        alert.metadata.annotations = Some([(EVENT_SOURCES.to_owned(), text.to_owned())].into());
        let shown = |it: EventSourceSelector| {
            format!("{}:{}/{}/{}", it.api_version, it.kind, it.namespace, it.name)
        };
        Ok(named(&alert, EVENT_SOURCES)?.into_iter().map(shown).collect())
    }

    #[test]
    fn entries_name_objects_of_our_kinds_and_of_no_others() {
        assert_eq!(read(""), Ok(Vec::new()));
        assert_eq!(
            read("Helmfile/shop, HTTPArchive/apps/*").unwrap(),
            [
                "helmfile.windlass.dev/v1alpha1:Helmfile//shop",
                "source.windlass.dev/v1alpha1:HTTPArchive/apps/*"
            ]
        );
        for wrong in ["Kustomization/app", "Helmfile", "Helmfile/", "Helmfile/a/b/c", "/x"] {
            assert!(read(wrong).is_err_and(|error| error.contains(wrong)), "{wrong}");
        }
        let many = vec!["Helmfile/a"; MAX_ANNOTATION_ENTRIES].join(",");
        assert_eq!(read(&many).map(|all| all.len()), Ok(MAX_ANNOTATION_ENTRIES));
        assert!(read(&format!("{many},Helmfile/b")).is_err_and(|it| it.contains("more than 64")));
        let alert = Alert::new("a", AlertSpec::default());
        assert_eq!(named(&alert, EVENT_SOURCES).map(|all| all.len()), Ok(0));
    }
}
