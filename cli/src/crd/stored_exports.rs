//! Finds an export among the Secrets of a namespace, and reads it.
//!
//! Elsewhere: making the export (`windlass_runtime::crd_guard::export`), creating its objects (`restore`).

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, bail, ensure};
use crdguard::CrdExportReader;
use objects::Gvk;
use serde_json::Value;

use windlass_cluster::ClusterConnection;
use windlass_runtime::crd_guard::custom_resource_export::{
    DIGEST, EXPORT, KEY, NAME, OBJECTS, PARTS, TIME, export_name, secret_name,
};

/// An export, according to the annotations of its Secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StoredCrdExport {
    /// The UID of the deleted CRD, and the first digits of the digest.
    pub(super) name: String,
    uid: String,
    parts: usize,
    pub(super) objects: u64,
    digest: String,
    /// When the export was made.
    pub(super) time: String,
}

impl StoredCrdExport {
    /// Finds the export with this name, or the export of the CRD with this UID. Without either, there has to be exactly one
    /// export.
    ///
    /// # Errors
    /// There is no export, or there are several.
    pub(super) async fn find(
        cluster: &ClusterConnection,
        namespace: &str,
        definition: &str,
        wanted: Option<&str>,
    ) -> anyhow::Result<Self> {
        let secrets = cluster.resource(&Gvk::new("v1", "Secret")).await?;
        let (listed, is_more) = cluster.labelled(&secrets, namespace, EXPORT).await?;
        ensure!(!is_more, "namespace {namespace} has too many Secrets of exports to be listed");
        let all = whole(&listed, definition);
        chosen(all, wanted).map_err(|error| error.context(format!("in namespace {namespace}")))
    }

    /// Reads the description of a CRD's export from the metadata of one of its Secrets. `None` if the Secret belongs to another
    /// CRD, or if a part of the description is missing.
    fn of(meta: &Value, definition: &str) -> Option<Self> {
        let note = |key: &str| meta["annotations"][key].as_str();
        if note(NAME) != Some(definition) {
            return None;
        }
        let uid = meta["labels"][EXPORT].as_str()?.to_owned();
        let digest = note(DIGEST)?.to_owned();
        let parts = note(PARTS)?.parse().ok()?;
        let objects = note(OBJECTS)?.parse().ok()?;
        let time = note(TIME).unwrap_or_default().to_owned();
        Some(Self { name: export_name(&uid, &digest), uid, parts, objects, digest, time })
    }

    /// Reads the content of the export.
    ///
    /// # Errors
    /// Parts of the export are missing or were changed.
    pub(super) async fn read(
        &self,
        cluster: &ClusterConnection,
        namespace: &str,
    ) -> anyhow::Result<CrdExportReader> {
        let mut parts = Vec::new();
        for at in 0..self.parts {
            let name = secret_name(&self.name, at);
            let found = cluster.secret(namespace, &name).await?;
            let part = found.and_then(|(mut data, _)| data.remove(KEY));
            parts.push(part.with_context(|| {
                format!(
                    "Secret {namespace}/{name}, a part of the export, is missing or has no `{KEY}`"
                )
            })?);
        }
        let import = CrdExportReader::of(&parts, &self.digest);
        import.with_context(|| format!("export {} in namespace {namespace}", self.name))
    }
}

/// The complete exports of a CRD, by name.
fn whole(listed: &[Value], definition: &str) -> Vec<StoredCrdExport> {
    let names: BTreeSet<&str> =
        listed.iter().filter_map(|it| it["metadata"]["name"].as_str()).collect();
    let all = listed.iter().filter_map(|it| StoredCrdExport::of(&it["metadata"], definition));
    let is_whole = |it: &StoredCrdExport| {
        // A user who may write Secrets can claim any number of parts.
        it.parts <= listed.len()
            && (0..it.parts).all(|at| names.contains(secret_name(&it.name, at).as_str()))
    };
    let unique: BTreeMap<String, StoredCrdExport> =
        all.filter(is_whole).map(|it| (it.name.clone(), it)).collect();
    unique.into_values().collect()
}

/// Selects the export that the user named.
fn chosen(all: Vec<StoredCrdExport>, wanted: Option<&str>) -> anyhow::Result<StoredCrdExport> {
    let is_it =
        |it: &StoredCrdExport| wanted.is_none_or(|wanted| wanted == it.name || wanted == it.uid);
    let mut found: Vec<StoredCrdExport> = all.into_iter().filter(is_it).collect();
    found.sort_by(|a, b| a.time.cmp(&b.time));
    match (found.pop(), found.is_empty(), wanted) {
        (Some(only), true, _) => Ok(only),
        (Some(last), false, _) => {
            found.push(last);
            let line = |it: &StoredCrdExport| {
                format!("\n  {}: {} objects, {}", it.name, it.objects, it.time)
            };
            let lines: String = found.iter().map(line).collect();
            bail!("there are several exports; choose one with --export:{lines}")
        }
        (None, _, Some(wanted)) => bail!("there is no export {wanted} of it"),
        (None, ..) => bail!("there is no export of it"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;
    use serde_json::json;

    fn secret(uid: &str, digest: &str, part: usize, time: &str) -> Value {
        let digest = format!("sha256:{}", digest.repeat(64));
        let name = secret_name(&export_name(uid, &digest), part);
        json!({"metadata": {"name": name, "labels": {EXPORT: uid},
            "annotations": {NAME: "a.b", PARTS: "2", OBJECTS: "7", DIGEST: digest, TIME: time}}})
    }

    #[test]
    fn an_export_is_found_by_all_of_its_secrets() {
        let first = secret("u", "1", 0, "t");
        let second = secret("u", "1", 1, "t");
        assert_eq!(whole(std::slice::from_ref(&first), "a.b"), []);
        let found = whole(&[first.clone(), second.clone()], "a.b");
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].name.as_str(), found[0].objects), ("u-1111111111111111", 7));
        assert_eq!(whole(&[first.clone(), second], "a.c"), []);
        let mut many = first;
        many["metadata"]["annotations"][PARTS] = json!("99999999999");
        assert_eq!(whole(&[many], "a.b"), []);
    }

    #[test]
    fn of_several_exports_one_is_chosen_by_a_person() {
        let of = |uid: &str, digest: &str, time: &str| {
            [secret(uid, digest, 0, time), secret(uid, digest, 1, time)]
        };
        let listed =
            [of("u", "2", "2026-02-01"), of("u", "1", "2026-03-01"), of("v", "3", "2026-01-01")];
        let listed = listed.concat();
        let choose = |wanted: Option<&str>| {
            chosen(whole(&listed, "a.b"), wanted).map(|it| it.name).map_err(|it| it.to_string())
        };
        assert_eq!(choose(Some("v")), Ok("v-3333333333333333".to_owned()));
        assert_eq!(choose(Some("u-1111111111111111")), Ok("u-1111111111111111".to_owned()));
        assert_eq!(choose(Some("w")), Err("there is no export w of it".to_owned()));
        expect![[r"
            there are several exports; choose one with --export:
              v-3333333333333333: 7 objects, 2026-01-01
              u-2222222222222222: 7 objects, 2026-02-01
              u-1111111111111111: 7 objects, 2026-03-01
        "]]
        .assert_eq(&format!("{}\n", choose(None).unwrap_err()));
        assert!(choose(Some("u")).unwrap_err().contains("several"), "the same uid, twice");
    }
}
