//! Applies the manifests of a release's hooks, as `kubectl apply` would as the user that applies the release.
//!
//! They are not in the journal, since applying them again changes nothing. No release owns these objects: drift is not
//! corrected, and they are not pruned.
//! Elsewhere: what hooks apply, and which are refused (engine `helmfile`); when (`keep.rs`, `book.rs`).

use std::time::Duration;

use helmfile::ManifestHook;
use objects::{Masking, Object};
use reconcile::{Rest, Wake};
use release::status::RECONCILE_ERROR;

use crate::cluster::ClusterError;
use crate::cluster::objects::Mode;
use crate::controllers::context::Context;
use crate::controllers::crd_guard::{Change, Guard};
use crate::controllers::permit::RunPermit;
use crate::controllers::releaser::members;
use crate::controllers::target::Target;

/// Field manager of what hooks apply: another than that of releases, whose fields would be removed by it.
const MANAGER: &str = "helmfile-hooks";

/// Most objects that the hooks of a release apply for an event: a permit of the cluster is held meanwhile.
const MOST_OBJECTS: usize = 500;

/// When it is tried again after an API server did not answer.
const SOON: Duration = Duration::from_secs(2);

/// Where manifests are applied.
pub(super) struct At<'a> {
    pub(super) context: &'a Context,
    pub(super) target: &'a Target,
    pub(super) permit: &'a RunPermit,
    /// The namespace of the release, for objects that name none.
    ///
    /// Differs(helmfile): kubectl takes that of the current context, which may be of another cluster.
    pub(super) namespace: &'a str,
}

impl At<'_> {
    /// Applies what hooks name, in order; the text is why one of them cannot be applied.
    ///
    /// # Errors
    /// The API server could not be asked.
    pub(super) async fn apply<'h>(
        &self,
        hooks: impl Iterator<Item = &'h ManifestHook>,
    ) -> Result<Option<String>, Rest> {
        let mut left = MOST_OBJECTS;
        for hook in hooks {
            let failed = |text: &str| Some(format!("hook `{}`: {text}", hook.name));
            let objects = match members::read(&hook.manifests) {
                Ok(objects) => objects,
                Err(text) => return Ok(failed(&text)),
            };
            let Some(rest) = left.checked_sub(objects.len()) else {
                return Ok(failed(&format!(
                    "hooks of a release may apply {MOST_OBJECTS} objects: put the others into a chart"
                )));
            };
            left = rest;
            let secrets = Masking::default().with_manifests(&objects);
            for object in objects {
                match self.one(object).await {
                    Ok(None) => {}
                    Ok(Some(text)) => return Ok(failed(&secrets.mask(&text))),
                    Err(error) if error.is_of_server() => {
                        let soon = jiff::Timestamp::now().saturating_add(SOON);
                        let wake = Wake::at(soon.unwrap_or(reconcile::Time::MAX));
                        let text = failed(&secrets.mask(&error.to_string())).unwrap_or_default();
                        return Err(Rest::Failed(RECONCILE_ERROR, text, wake));
                    }
                    Err(error) => return Ok(failed(&secrets.mask(&error.to_string()))),
                }
            }
        }
        Ok(None)
    }

    async fn one(&self, object: Object) -> Result<Option<String>, ClusterError> {
        let cluster = &self.target.cluster;
        let (resource, object) = members::placed(cluster, object, self.namespace).await?;
        let guard = Guard::new(self.context, self.target);
        match self.permit.aside(guard.change(&object, MANAGER)).await? {
            Change::Allowed => {}
            Change::Skipped => return Ok(None),
            Change::Refused(text) => return Ok(Some(text)),
            Change::Migrates => {
                if let Err(text) = self.permit.aside(guard.migrate(&object, MANAGER)).await? {
                    return Ok(Some(text));
                }
            }
        }
        cluster.apply(&resource, &object, MANAGER, Mode::Write).await.map(|_| None)
    }
}
