//! Reads the inputs for rendering from a cluster, for `windlass plan --live`. They are the served kinds, the ConfigMaps and
//! Secrets that appliers name, and the releases of Helmfiles.
//!
//! Elsewhere: rendering (`applier_discovery.rs`), facts that are written to a file (`cluster_facts_reading.rs`).
//!
//! Values are only kept in memory during the command. Secret values are masked wherever they are substituted
//! (`UnrenderedComparisonSide::secret_values`).

use std::collections::BTreeSet;

use anyhow::ensure;
use futures::stream::{self, StreamExt as _};
use objects::{Object, ObjectId};
use serde_json::json;

use super::applier_discovery::{ApplierKind, RepositoryDeclarations};
use super::cluster_facts_file::{ClusterFacts, ReferencedObjectFact};
use super::cluster_facts_reading::{
    ConfigMapAndSecretResources, MAX_CONCURRENT_REQUESTS, MAX_REFERENCES, fact_of, served_kinds,
};
use super::helmfile_releases::HelmfilePathsByRelease;
use super::live_appliers::helmfile_rows;
use windlass_cluster::referenced_secrets_and_config_maps::DeclaredConfigMapsAndSecrets;
use windlass_cluster::{ClusterConnection, ClusterError};

/// The inputs that were read from a cluster.
pub(crate) struct LiveRenderInputs {
    /// The served kinds, and the existing ConfigMaps and Secrets without their values.
    pub(crate) facts: ClusterFacts,
    /// The releases of Helmfiles, each with the path of its helmfile.
    pub(crate) releases: HelmfilePathsByRelease,
    /// The ConfigMaps and Secrets. An object that does not exist has no data.
    references: Vec<Object>,
    /// All objects that were requested so far.
    asked: BTreeSet<ObjectId>,
}

impl LiveRenderInputs {
    /// Reads which kinds a cluster serves.
    ///
    /// # Errors
    /// The discovery of API kinds fails.
    pub(crate) async fn of(cluster: &ClusterConnection) -> anyhow::Result<Self> {
        Ok(Self {
            facts: served_kinds(cluster).await?,
            releases: HelmfilePathsByRelease::new(),
            references: Vec::new(),
            asked: BTreeSet::new(),
        })
    }

    /// The ConfigMaps and Secrets of the cluster. Declarations in the repository override them.
    pub(crate) fn cluster_references(&self) -> DeclaredConfigMapsAndSecrets {
        let mut known = DeclaredConfigMapsAndSecrets::default();
        self.references.iter().for_each(|object| known.add(object));
        DeclaredConfigMapsAndSecrets::with_cluster_objects(known)
    }

    /// Reads the objects that appliers name and that were not read yet. Returns whether there were any. An object that cannot
    /// be read is recorded in the facts, and its values are unknown.
    ///
    /// # Errors
    /// The API server does not respond, or there are too many references.
    pub(crate) async fn read_for(
        &mut self,
        cluster: &ClusterConnection,
        declarations: &RepositoryDeclarations,
    ) -> anyhow::Result<bool> {
        let is_new = |id: &&ObjectId| !self.asked.contains(*id);
        let references: Vec<ObjectId> =
            declarations.all_references.iter().filter(is_new).cloned().collect();
        let is_helmfile = |object: &&Object| ApplierKind::of(object) == Some(ApplierKind::Helmfile);
        let declared = declarations.manifests.iter();
        let helmfiles: Vec<Object> = declared
            .filter(|(id, object)| is_new(id) && is_helmfile(object))
            .map(|(_, object)| object.clone())
            .collect();
        let has_more = !(references.is_empty() && helmfiles.is_empty());
        self.note_asked(references.iter().cloned().chain(helmfiles.iter().map(Object::id)))?;
        self.read_references(cluster, &references).await?;
        self.read_helmfiles(cluster, &helmfiles).await?;
        Ok(has_more)
    }

    /// Reads the Secrets that only the cluster's appliers name. Objects of the cluster may contain their values, which then
    /// have to be masked. A Secret that cannot be read is skipped.
    ///
    /// # Errors
    /// The same errors as those of [`LiveRenderInputs::read_for`].
    pub(crate) async fn read_secrets(
        &mut self,
        cluster: &ClusterConnection,
        ids: BTreeSet<ObjectId>,
    ) -> anyhow::Result<()> {
        let new: Vec<ObjectId> = ids.into_iter().filter(|id| !self.asked.contains(id)).collect();
        self.note_asked(new.iter().cloned())?;
        self.read_references(cluster, &new).await
    }

    /// The values of the Secrets that were read.
    pub(crate) fn secret_values(&self) -> Vec<Vec<u8>> {
        self.cluster_references().secret_values().cloned().collect()
    }

    fn note_asked(&mut self, ids: impl Iterator<Item = ObjectId>) -> anyhow::Result<()> {
        self.asked.extend(ids);
        ensure!(
            self.asked.len() <= MAX_REFERENCES,
            "the appliers name more than {MAX_REFERENCES} ConfigMaps and Secrets"
        );
        Ok(())
    }

    async fn read_references(
        &mut self,
        cluster: &ClusterConnection,
        ids: &[ObjectId],
    ) -> anyhow::Result<()> {
        if ids.is_empty() {
            return Ok(());
        }
        let kinds = ConfigMapAndSecretResources::of(cluster).await?;
        let asked: Vec<_> = ids.iter().map(|id| kinds.object(cluster, id)).collect();
        let answers: Vec<_> = stream::iter(asked).buffered(MAX_CONCURRENT_REQUESTS).collect().await;
        for (id, answer) in ids.iter().zip(answers) {
            let subject = id.subject();
            match answer {
                Ok(found) => {
                    let fact = found
                        .as_ref()
                        .map_or_else(ReferencedObjectFact::absent, |it| fact_of(it, false));
                    self.facts.references.insert(subject, fact);
                    let empty = || {
                        Object::new(json!({"apiVersion": "v1", "kind": id.kind,
                            "metadata": {"name": id.name, "namespace": id.namespace}}))
                    };
                    self.references.push(found.map_or_else(empty, Ok)?);
                }
                Err(error @ ClusterError::NoAnswer(_)) => return Err(error.into()),
                Err(_) => drop(self.facts.not_read.insert(subject)),
            }
        }
        Ok(())
    }

    async fn read_helmfiles(
        &mut self,
        cluster: &ClusterConnection,
        declared: &[Object],
    ) -> anyhow::Result<()> {
        for object in declared {
            let id = object.id();
            match cluster.get_by_id(&id, &object.gvk().version).await {
                Ok(Some(live)) => {
                    let rows = helmfile_rows(&live).into_iter();
                    self.releases.insert(id, rows.map(|row| (row.key, row.file)).collect());
                }
                Err(error @ ClusterError::NoAnswer(_)) => return Err(error.into()),
                // An applier that cannot be read is not compared (`live_appliers.rs`).
                Ok(None) | Err(_) => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(kind: &str, name: &str, data: &serde_json::Value) -> Object {
        let metadata = json!({"name": name, "namespace": "shop"});
        let value = json!({"apiVersion": "v1", "kind": kind, "metadata": metadata, "data": data});
        Object::new(value).unwrap()
    }

    #[test]
    fn secrets_of_the_cluster_have_their_values_and_are_masked() {
        let inputs = LiveRenderInputs {
            facts: ClusterFacts::default(),
            releases: HelmfilePathsByRelease::new(),
            references: vec![
                object("Secret", "db", &json!({"password": "aHVudGVyMg=="})),
                object("ConfigMap", "vars", &json!({"zone": "eu"})),
            ],
            asked: BTreeSet::new(),
        };
        let references = inputs.cluster_references();
        let data = references.data("Secret", "shop", "db").unwrap();
        assert_eq!(data["password"], b"hunter2");
        let masked: Vec<&Vec<u8>> = references.secret_values().collect();
        assert_eq!(masked, [&b"hunter2".to_vec()]);
        assert!(!references.declares("ConfigMap", "shop", "vars"), "the cluster declares nothing");
    }

    #[tokio::test]
    async fn a_secret_that_only_the_cluster_names_is_read_once_for_masking() {
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque",
            "metadata": {"name": "db", "namespace": "shop"}, "data": {"password": "aHVudGVyMg=="}});
        let (cluster, _) = fake_cluster::with_objects(vec![secret]).await;
        let mut inputs = LiveRenderInputs {
            facts: ClusterFacts::default(),
            releases: HelmfilePathsByRelease::new(),
            references: Vec::new(),
            asked: BTreeSet::new(),
        };
        let ids = BTreeSet::from([ObjectId::new("shop", "db", "", "Secret")]);
        for _ in 0..2 {
            inputs.read_secrets(&cluster, ids.clone()).await.unwrap();
        }
        assert_eq!(inputs.secret_values(), [b"hunter2".to_vec()]);
        assert_eq!(inputs.references.len(), 1);
    }
}
