//! The files of a source's artifact, from our store or from the shard that has it.
//!
//! Elsewhere: whether an artifact is the source's own ([`own`]), which `catalog.rs` asks.

use std::io::Read as _;
use std::sync::Arc;

use crds::Artifact;
use sources::archive::ExtractOptions;
use sources::artifact::{Limits, Remote};

use super::context::Context;
use crate::cluster::error::chain;

/// Parity(flux): the annotation by which the maker of an OCI artifact says from which revision it was made.
pub(crate) const ORIGIN_REVISION: &str = "org.opencontainers.image.revision";

/// The revision from which an artifact's own origin says that it was made; nothing if it does not say.
pub(crate) fn origin_revision(artifact: &Artifact) -> &str {
    artifact.metadata.get(ORIGIN_REVISION).map_or("", String::as_str)
}

/// Largest archive that is fetched from another shard; Flux sets no limit to it.
const BYTES: u64 = 1 << 30;

/// The files of an artifact. One that is `elsewhere` is fetched over HTTP, from where its source's status says.
///
/// # Errors
/// Why it cannot be had, for a person.
pub(crate) async fn files(
    context: &Context,
    artifact: &Artifact,
    elsewhere: bool,
) -> Result<Arc<tree::Memory>, String> {
    let (store, time) = (context.artifacts.clone(), context.settings.http_timeout);
    let egress = context.remotes.artifacts.clone();
    let Artifact { path, digest, url, .. } = artifact.clone();
    let runtime = tokio::runtime::Handle::current();
    let loaded = tokio::task::spawn_blocking(move || {
        let options = ExtractOptions::default();
        if elsewhere {
            let limits = Limits { bytes: BYTES, time };
            let remote = Remote { url, digest, egress };
            sources::artifact::load(&store, &remote, &options, &limits, &runtime)
                .map_err(|error| chain(&error))
        } else {
            store.load(&path, &digest, &options).map_err(|error| chain(&error))
        }
    });
    loaded.await.unwrap_or_else(|_| Err("reading it was interrupted".to_owned()))
}

/// The bytes of an artifact that is no archive, or is read as one elsewhere; `limit` at most.
///
/// # Errors
/// Why it cannot be had, for a person.
pub(crate) async fn bytes(
    context: &Context,
    artifact: &Artifact,
    elsewhere: bool,
    limit: u64,
) -> Result<Vec<u8>, String> {
    let (store, time) = (context.artifacts.clone(), context.settings.http_timeout);
    let Artifact { path, digest, url, .. } = artifact.clone();
    if elsewhere {
        let egress = context.remotes.artifacts.clone();
        let (remote, limits) = (Remote { url, digest, egress }, Limits { bytes: limit, time });
        let file = sources::artifact::fetch(&remote, &limits).await;
        return read(file.map_err(|error| chain(&error))?, limit).await;
    }
    let open = move || {
        if !store.verify(&path, &digest).map_err(|error| chain(&error))? {
            return Err(format!("artifact `{path}` not found in storage"));
        }
        store.open_file(&path).map_err(|error| chain(&error))
    };
    let opened = tokio::task::spawn_blocking(open).await;
    read(opened.unwrap_or_else(|_| Err("reading it was interrupted".to_owned()))?, limit).await
}

async fn read(file: std::fs::File, limit: u64) -> Result<Vec<u8>, String> {
    let read = move || {
        let mut bytes = Vec::new();
        let read =
            file.take(limit + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
        if read as u64 > limit {
            return Err(format!("it is larger than {limit} bytes"));
        }
        Ok(bytes)
    };
    let read = tokio::task::spawn_blocking(read).await;
    read.unwrap_or_else(|_| Err("reading it was interrupted".to_owned()))
}
