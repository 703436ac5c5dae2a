//! The files of a source's artifact, from our store or from the shard that has it.

use std::sync::Arc;

use crds::Artifact;
use sources::archive::ExtractOptions;
use sources::artifact::{Limits, Remote};

use super::context::Context;
use crate::cluster::error::chain;

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
    let Artifact { path, digest, url, .. } = artifact.clone();
    let runtime = tokio::runtime::Handle::current();
    let loaded = tokio::task::spawn_blocking(move || {
        let options = ExtractOptions::default();
        if elsewhere {
            let limits = Limits { bytes: BYTES, time };
            sources::artifact::load(&store, &Remote { url, digest }, &options, &limits, &runtime)
                .map_err(|error| chain(&error))
        } else {
            store.load(&path, &digest, &options).map_err(|error| chain(&error))
        }
    });
    loaded.await.unwrap_or_else(|_| Err("reading it broke off".to_owned()))
}
