//! Serves the archives of a case's sources, and stores them like windlass's controllers do.
//!
//! During the recording, all archives were served over HTTP. windlass finds archives of its own sources in its
//! storage, each in the folder of its source. It fetches those of ExternalArtifacts. `build` packs trees, and
//! `reconcile` runs the generator.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::anyhow;
use artifacts::store::{ArtifactStore, ObjectFolder};
use axum::Router;
use axum::http::{StatusCode, Uri};
use parking_lot::Mutex;
use serde_json::{Map, Value, json};

use super::build::{ArtifactArchive, source_archive};
use super::trees::{LinkHandling, tree};

/// The end of a served file's name, after the name of its tree.
const ARCHIVE_SUFFIX: &str = ".tar.gz";

/// The API group of the sources.
const SOURCE_GROUP: &str = "source.toolkit.fluxcd.io/";

/// The kind of this group whose artifacts belong to other controllers.
const KIND_OF_OTHERS: &str = "ExternalArtifact";

/// Archives by the names of their trees. They are served as long as the runtime runs.
pub(super) struct ServedArchives {
    /// The scheme, host and port of the server.
    address: String,
    archives: Arc<Mutex<BTreeMap<String, ArtifactArchive>>>,
}

fn text<'v>(value: &'v Value, place: &str) -> &'v str {
    value.pointer(place).and_then(Value::as_str).unwrap_or_default()
}

/// Whether windlass has the artifact of this object in its storage.
fn is_stored_source(object: &Value) -> bool {
    text(object, "/apiVersion").starts_with(SOURCE_GROUP) && text(object, "/kind") != KIND_OF_OTHERS
}

/// The folder of a source in the storage, and the file that the URL in its status names.
fn place(source: &Value) -> anyhow::Result<StoredSourceFile> {
    let metadata = &source["metadata"];
    let kind = text(source, "/kind");
    let folder = ObjectFolder::new(kind, text(metadata, "/namespace"), text(metadata, "/name"))?;
    let url = text(source, "/status/artifact/url");
    let file = url.rsplit('/').next().unwrap_or_default().to_owned();
    Ok(StoredSourceFile { folder, file })
}

struct StoredSourceFile {
    folder: ObjectFolder,
    file: String,
}

impl ServedArchives {
    /// # Errors
    /// No port can be had.
    pub(super) async fn start() -> anyhow::Result<Self> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let address = format!("http://{}", listener.local_addr()?);
        let archives: Arc<Mutex<BTreeMap<String, ArtifactArchive>>> = Arc::default();
        let served = archives.clone();
        let handler = move |uri: Uri| {
            let name = uri.path().trim_start_matches('/').strip_suffix(ARCHIVE_SUFFIX);
            let bytes =
                name.and_then(|name| served.lock().get(name).map(|archive| archive.bytes.clone()));
            std::future::ready(bytes.ok_or(StatusCode::NOT_FOUND))
        };
        let router = Router::new().fallback(handler);
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(Self { address, archives })
    }

    /// Serves a tree. It replaces an earlier tree with the same name.
    ///
    /// # Errors
    /// The content is not a tree.
    pub(super) fn serve(&self, name: &str, content: &Map<String, Value>) -> anyhow::Result<()> {
        let archive = tree(content, LinkHandling::Left).and_then(|tree| source_archive(&tree));
        let archive = archive.map_err(|fault| anyhow!("the tree `{name}`: {fault:?}"))?;
        self.archives.lock().insert(name.to_owned(), archive);
        Ok(())
    }

    /// Replaces the placeholders of addresses and digests in a value. A source of windlass gets the storage path of
    /// its artifact.
    ///
    /// # Errors
    /// The name of a source is not valid as a folder.
    pub(super) fn filled(&self, value: &Value) -> anyhow::Result<Value> {
        let mut text = value.to_string();
        for (name, archive) in &*self.archives.lock() {
            let url = format!("{}/{name}{ARCHIVE_SUFFIX}", self.address);
            text = text
                .replace(&format!("${{URL:{name}}}"), &url)
                .replace(&format!("${{DIGEST:{name}}}"), &archive.digest);
        }
        let mut filled: Value = serde_json::from_str(&text.replace("${SERVER}", &self.address))?;
        let has_artifact = filled.pointer("/status/artifact").is_some_and(Value::is_object);
        if has_artifact && is_stored_source(&filled) {
            let StoredSourceFile { folder, file } = place(&filled)?;
            filled["status"]["artifact"]["path"] = json!(format!("{}/{file}", folder.path()));
        }
        Ok(filled)
    }

    /// Stores the archive that is served at a source's URL, in the storage folder of the source.
    ///
    /// # Errors
    /// The file cannot be written, or the name of the source is not valid as a folder.
    pub(super) fn store(&self, store: &ArtifactStore, source: &Value) -> anyhow::Result<()> {
        let url = text(source, "/status/artifact/url");
        let path = url.strip_prefix(&self.address).and_then(|path| path.strip_prefix('/'));
        let name = path.and_then(|path| path.strip_suffix(ARCHIVE_SUFFIX));
        let Some(name) = name.filter(|_| is_stored_source(source)) else { return Ok(()) };
        let archives = self.archives.lock();
        let Some(archive) = archives.get(name) else { return Ok(()) };
        let StoredSourceFile { folder, file } = place(source)?;
        let fill = |out: &mut dyn std::io::Write| out.write_all(&archive.bytes);
        store.put(&folder, &file, "", jiff::Timestamp::now(), fill)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use artifacts::archive::ExtractOptions;
    use artifacts::store::StoreOptions;

    use super::*;

    #[tokio::test]
    async fn a_source_of_windlass_is_stored_in_its_place_and_one_of_others_is_not()
    -> anyhow::Result<()> {
        let served = ServedArchives::start().await?;
        served.serve("a", json!({"x": "1"}).as_object().unwrap())?;
        let source = |kind: &str, url: &str| {
            let artifact = json!({"path": "p", "url": url, "digest": "${DIGEST:a}"});
            served.filled(&json!({"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": kind,
                "metadata": {"namespace": "apps", "name": "s"}, "status": {"artifact": artifact}}))
        };
        let folder = tempfile::tempdir()?;
        let store = ArtifactStore::open(folder.path(), StoreOptions::default())?;
        let own = source("Bucket", "${URL:a}")?;
        let digest = text(&own, "/status/artifact/digest");
        assert_eq!(own["status"]["artifact"]["path"], "bucket/apps/s/a.tar.gz");
        for other in
            [source("ExternalArtifact", "${URL:a}")?, source("Bucket", "${SERVER}/b.tar.gz")?]
        {
            served.store(&store, &other)?;
        }
        let loaded = || store.load("bucket/apps/s/a.tar.gz", digest, &ExtractOptions::default());
        assert!(loaded().is_err());
        served.store(&store, &own)?;
        assert_eq!(loaded()?.len(), 1);
        Ok(())
    }
}
