//! Reads the present objects that the selection of a Receiver asks for. The selection is then evaluated again with them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock};

use notify::receivers::{AnnotationTarget, ReceiverClusterReader};
use objects::{Gvk, Object};
use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};

use windlass_cluster::discovery::ApiResourceLocation;
use windlass_cluster::list_pager::ObjectProjection;
use windlass_cluster::object_decode::DepthPrunedObject;
use windlass_cluster::run_permits::{GrantedPermit, RunPermits};
use windlass_cluster::{ClusterConnection, ClusterError};

/// The permits for requests with lists in memory. A namespace has one at a time, and namespaces take turns.
static LIST_PERMITS: LazyLock<RunPermits> = LazyLock::new(|| RunPermits::shared(4, 1));

/// The most bytes of metadata in all lists of a request.
const LARGEST_METADATA: usize = 8 << 20;

/// API version, kind and namespace.
type ReceiverResourceKey = (String, String, String);

#[derive(Default)]
struct ReceiverResourcesState {
    objects: BTreeMap<AnnotationTarget, Option<Value>>,
    lists: BTreeMap<ReceiverResourceKey, Arc<Vec<Value>>>,
    missing_objects: BTreeSet<AnnotationTarget>,
    missing_lists: BTreeSet<ReceiverResourceKey>,
    /// The bytes of metadata in the lists.
    bytes: usize,
    /// The permit for the lists in memory.
    listing: Option<GrantedPermit>,
}

/// The objects that were read so far. An object that was asked for but not read is noted, and counts as missing until it is
/// read.
#[derive(Default)]
pub(super) struct ReceiverResources(Mutex<ReceiverResourcesState>);

impl ReceiverResources {
    fn state(&self) -> MutexGuard<'_, ReceiverResourcesState> {
        self.0.lock()
    }

    /// Reads the noted objects for a Receiver of a namespace. Returns false if none was noted.
    ///
    /// # Errors
    /// The API server does not respond, or refuses the request for another reason than "not found". A kind that is not served
    /// has no objects.
    pub(super) async fn read(
        &self,
        cluster: &ClusterConnection,
        namespace: &str,
    ) -> Result<bool, ClusterError> {
        let (objects, lists) = {
            let mut state = self.state();
            (std::mem::take(&mut state.missing_objects), std::mem::take(&mut state.missing_lists))
        };
        let any = !objects.is_empty() || !lists.is_empty();
        for target in objects {
            let found = one(cluster, &target).await?;
            self.state().objects.insert(target, found);
        }
        if !lists.is_empty() && self.state().listing.is_none() {
            let permit = LIST_PERMITS.acquire(namespace).await;
            self.state().listing = Some(permit);
        }
        for place in lists {
            let left = LARGEST_METADATA.saturating_sub(self.state().bytes);
            let (found, bytes) = all(cluster, &place, left).await?;
            let mut state = self.state();
            state.lists.insert(place, Arc::new(found));
            state.bytes += bytes;
        }
        Ok(any)
    }
}

impl ReceiverClusterReader for ReceiverResources {
    fn object(&self, target: &AnnotationTarget) -> Option<Value> {
        let mut state = self.state();
        if let Some(known) = state.objects.get(target) {
            return known.clone();
        }
        state.missing_objects.insert(target.clone());
        None
    }

    fn list(&self, api_version: &str, kind: &str, namespace: &str) -> Arc<Vec<Value>> {
        let place = (api_version.to_owned(), kind.to_owned(), namespace.to_owned());
        let mut state = self.state();
        if let Some(known) = state.lists.get(&place) {
            return known.clone();
        }
        state.missing_lists.insert(place);
        Arc::default()
    }
}

/// The resource of a namespaced kind. A Receiver names no cluster-scoped objects, because it is namespaced itself. `None` if
/// the kind is not served.
async fn namespaced(
    cluster: &ClusterConnection,
    api_version: &str,
    kind: &str,
) -> Result<Option<ApiResourceLocation>, ClusterError> {
    match cluster.resource(&Gvk::new(api_version, kind)).await {
        Err(ClusterError::NoSuchKind { .. }) => Ok(None),
        resource => Ok(Some(resource?).filter(|it| it.namespaced)),
    }
}

async fn one(
    cluster: &ClusterConnection,
    target: &AnnotationTarget,
) -> Result<Option<Value>, ClusterError> {
    let Some(resource) = namespaced(cluster, &target.api_version, &target.kind).await? else {
        return Ok(None);
    };
    let found = cluster.get(&resource, &target.namespace, &target.name).await?;
    Ok(found.map(|object| metadata(&object)))
}

/// The metadata of all objects of a kind in a namespace, and their size in bytes. At most `most` bytes are read.
async fn all(
    cluster: &ClusterConnection,
    (api_version, kind, namespace): &ReceiverResourceKey,
    most: usize,
) -> Result<(Vec<Value>, usize), ClusterError> {
    let mut found = Vec::new();
    let mut bytes = 0;
    let Some(resource) = namespaced(cluster, api_version, kind).await? else {
        return Ok((found, bytes));
    };
    let mut pages = cluster.pages(&resource, namespace, ObjectProjection::Metadata)?;
    while let Some(page) = pages.next().await? {
        for DepthPrunedObject(mut object) in page {
            let mut metadata = object["metadata"].take();
            bare(&mut metadata);
            bytes += metadata.to_string().len();
            found.push(json!({"metadata": metadata}));
        }
        if bytes > most {
            let text = format!(
                "namespace {namespace} has more objects of kind {kind} than a Receiver selects from; name them, or \
                 divide them among namespaces"
            );
            return Err(ClusterError::Unreadable(text));
        }
    }
    Ok((found, bytes))
}

/// Removes `managedFields`, which are most of the metadata and which no filter reads.
fn bare(metadata: &mut Value) {
    if let Some(metadata) = metadata.as_object_mut() {
        metadata.remove("managedFields");
    }
}

fn metadata(object: &Object) -> Value {
    let mut metadata = object.get("metadata").cloned().unwrap_or_default();
    bare(&mut metadata);
    json!({"metadata": metadata})
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;
    use fake_cluster::answering;

    #[test]
    fn what_is_asked_for_is_noted_until_it_is_read() {
        let existing = ReceiverResources::default();
        let target = AnnotationTarget {
            api_version: "v1".to_owned(),
            kind: "A".to_owned(),
            namespace: "n".to_owned(),
            name: "a".to_owned(),
        };
        assert_eq!(existing.object(&target), None);
        assert!(existing.list("v1", "A", "n").is_empty());
        assert_eq!(existing.state().missing_objects.len(), 1);
        assert_eq!(existing.state().missing_lists.len(), 1);
        existing.state().objects.insert(target.clone(), Some(json!({"metadata": {}})));
        assert!(existing.object(&target).is_some());
    }

    fn place() -> ReceiverResourceKey {
        ("kustomize.toolkit.fluxcd.io/v1".to_owned(), "Kustomization".to_owned(), "n".to_owned())
    }

    #[tokio::test]
    async fn lists_of_one_namespace_leave_room_for_those_of_another() {
        let (cluster, _) = server(1).await;
        let reading =
            |existing: &ReceiverResources| drop(existing.list(&place().0, &place().1, "n"));
        let held = ReceiverResources::default();
        reading(&held);
        assert!(held.read(&cluster, "greedy").await.unwrap());
        let more: Vec<ReceiverResources> = (0..8).map(|_| ReceiverResources::default()).collect();
        more.iter().for_each(reading);
        let waiting = more.iter().map(|it| it.read(&cluster, "greedy"));
        let mut waiting = std::pin::pin!(futures::future::join_all(waiting));
        let other = ReceiverResources::default();
        reading(&other);
        tokio::select! {
            biased;
            _ = &mut waiting => panic!("one namespace has several lists in memory"),
            read = other.read(&cluster, "modest") => assert!(read.unwrap()),
        }
        drop(held);
    }

    /// A server of Kustomizations in two pages, with annotations of a length, and what it was asked for.
    async fn server(length: usize) -> (ClusterConnection, Arc<Mutex<Vec<String>>>) {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let recorded = asked.clone();
        let cluster = answering(move |(request, _)| {
            let Some((_, query)) = request.split_once("/kustomizations?") else {
                let kinds = json!({"groupVersion": "kustomize.toolkit.fluxcd.io/v1", "resources": [
                    {"name": "kustomizations", "singularName": "", "kind": "Kustomization",
                        "namespaced": true, "verbs": ["list"]}]});
                return (200, Body::from(kinds.to_string()));
            };
            recorded.lock().push(query.to_owned());
            let next = if query.contains("continue=") { "" } else { "second" };
            let metadata = json!({"name": "a", "annotations": {"x": "y".repeat(length)},
                "managedFields": [{"manager": "kubectl"}]});
            let page = json!({"metadata": {"continue": next}, "items": [
                {"metadata": metadata, "spec": {"path": "."}}]});
            (200, Body::from(page.to_string()))
        });
        (cluster.await, asked)
    }

    #[tokio::test]
    async fn lists_are_read_in_pages_and_nothing_is_kept_but_what_filters_ask() {
        let (cluster, asked) = server(1).await;
        let (found, bytes) = all(&cluster, &place(), LARGEST_METADATA).await.unwrap();
        assert_eq!(found[0], json!({"metadata": {"name": "a", "annotations": {"x": "y"}}}));
        assert_eq!((found.len(), bytes), (2, 2 * found[0]["metadata"].to_string().len()));
        assert_eq!(asked.lock().join(" "), "limit=500 limit=500&continue=second");
    }

    #[tokio::test]
    async fn a_list_that_is_too_long_is_not_read_to_its_end() {
        let (cluster, asked) = server(1000).await;
        let error = all(&cluster, &place(), 999).await.unwrap_err();
        assert!(error.to_string().contains("more objects of kind Kustomization"), "{error}");
        assert_eq!(asked.lock().len(), 1);
    }
}
