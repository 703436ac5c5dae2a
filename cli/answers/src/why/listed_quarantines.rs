//! Lists the Quarantines of several appliers. If those of one namespace cannot be listed or read, they are not known, and those
//! of the others are.
//!
//! Elsewhere: which of them are one cause (`shared_quarantines.rs`).

use std::collections::{BTreeMap, BTreeSet};

use crds::windlass_release::Quarantine;
use futures::stream::{self, StreamExt as _};
use objects::Object;

use crate::cause_facts::AT_ONCE;
use windlass_cli_runtime::quarantine_lift::is_lifted;
use windlass_cluster::object_pages::ObjectQuery;
use windlass_cluster::{ClusterConnection, ClusterError};
use windlass_runtime::lifecycle::watched_object_cache::resource;

/// The namespace and the uid of an applier. A uid is unique, but users may write any uid into a Quarantine of another namespace.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ApplierUid {
    pub(super) namespace: String,
    pub(super) uid: String,
}

impl ApplierUid {
    pub(super) fn of(applier: &Object) -> Self {
        Self { namespace: applier.namespace().to_owned(), uid: applier.uid().to_owned() }
    }
}

/// The Quarantines of appliers that are in force.
#[derive(Debug, Default)]
pub(super) struct ListedQuarantines {
    pub(super) in_force: BTreeMap<ApplierUid, Vec<Quarantine>>,
    /// For each namespace whose Quarantines are not known, the reason.
    pub(super) not_known: BTreeMap<String, String>,
}

impl ListedQuarantines {
    /// Lists the Quarantines of these appliers. If one list of all namespaces fails, each namespace is listed.
    pub(super) async fn read(cluster: &ClusterConnection, wanted: &BTreeSet<ApplierUid>) -> Self {
        let namespaces: BTreeSet<String> = wanted.iter().map(|it| it.namespace.clone()).collect();
        if namespaces.len() > 1
            && let Ok(all) = Self::list(cluster, "", wanted).await
        {
            return all;
        }
        let asked = namespaces.into_iter().map(|namespace| async move {
            let listed = Self::list(cluster, &namespace, wanted).await;
            (namespace, listed)
        });
        let answers: Vec<_> = stream::iter(asked).buffer_unordered(AT_ONCE).collect().await;
        let mut all = Self::default();
        for (namespace, listed) in answers {
            match listed {
                Ok(listed) => {
                    all.in_force.extend(listed.in_force);
                    all.not_known.extend(listed.not_known);
                }
                Err(error) => {
                    all.not_known.insert(namespace, error.to_string());
                }
            }
        }
        all
    }

    /// Lists the Quarantines in a namespace, or in all namespaces if it is empty. There are none if the kind is not served.
    async fn list(
        cluster: &ClusterConnection,
        namespace: &str,
        wanted: &BTreeSet<ApplierUid>,
    ) -> Result<Self, ClusterError> {
        let resource = resource::<Quarantine>();
        let mut listed = Self::default();
        let mut pages =
            cluster.object_pages(ObjectQuery { namespace, ..ObjectQuery::all(&resource) });
        loop {
            match pages.next().await {
                Ok(Some(page)) => {
                    for object in page.objects {
                        listed.add(object, wanted);
                    }
                }
                Ok(None) => break,
                Err(error)
                    if error.is_unserved() || matches!(error, ClusterError::NoSuchKind { .. }) =>
                {
                    return Ok(Self::default());
                }
                Err(error) => return Err(error),
            }
        }
        // Which Quarantine is in effect depends on all of an applier.
        let Self { in_force, not_known } = &mut listed;
        in_force.retain(|applier, _| !not_known.contains_key(&applier.namespace));
        Ok(listed)
    }

    fn add(&mut self, object: Object, wanted: &BTreeSet<ApplierUid>) {
        let namespace = object.namespace().to_owned();
        if !wanted.iter().any(|applier| applier.namespace == namespace) {
            return;
        }
        let name = object.name().to_owned();
        let quarantine: Quarantine = match serde_json::from_value(object.into_value()) {
            Ok(quarantine) => quarantine,
            // A newer windlass wrote it.
            Err(error) => {
                let text = format!("Quarantine {name} cannot be read: {error}");
                self.not_known.insert(namespace, text);
                return;
            }
        };
        let applier = ApplierUid { namespace, uid: quarantine.spec.subject.uid.clone() };
        if wanted.contains(&applier) && !is_lifted(&quarantine) {
            self.in_force.entry(applier).or_default().push(quarantine);
        }
    }
}
