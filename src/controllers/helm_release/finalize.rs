//! A HelmRelease that is deleted: its release goes with it, then the HelmChart that was made for it.
//!
//! Source of the semantics: helm-controller 1.6 `reconcileDelete`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crds::helm::HelmRelease;
use kube::core::ResourceExt as _;
use objects::ObjectId;
use reconcile::Rest;

use super::wish::{self, Timeouts};
use super::{AFTER_REFUSAL, Ended, Session, status, template};
use crate::cluster::ClusterError;
use crate::cluster::events::{Event, Severity};
use crate::controllers::hold;
use crate::controllers::kind::Controlled as _;
use crate::controllers::record::FINALIZER;
use crate::controllers::reference::References;
use crate::controllers::target::{Target, Wanted};

impl Session {
    /// The object goes: so does its release, unless it is suspended, then our finalizer.
    pub(super) async fn delete(
        &self,
        object: Arc<HelmRelease>,
    ) -> Result<Option<Duration>, ClusterError> {
        if !object.finalizers().iter().any(|it| it == FINALIZER) {
            return Ok(None);
        }
        let known = status::read(&object);
        // Parity(flux): a suspended HelmRelease leaves its release behind. Without one there is nothing to remove, so it
        // goes even where its cluster cannot be reached.
        let has_nothing = known.storage_namespace.is_empty();
        if hold::is_suspended(&*object, self.began) {
            // Parity(flux): so does its HelmChart, for whoever takes over the release.
            self.latest.set_finalizer(&self.context, &object, false).await?;
            return Ok(None);
        }
        if has_nothing {
            return self.let_go(&object).await;
        }
        let target = match self.finalize_target(&object).await? {
            Ok(Some(target)) => target,
            Ok(None) => return self.let_go(&object).await,
            Err(rest) => return self.finish(Ended::early(&object, rest), None).await,
        };
        if let Err(rest) = status::check(&object) {
            return self.finish(Ended::early(&object, rest), None).await;
        }
        // A spec that cannot be read must not keep its release for ever.
        let timeouts = wish::check(&object.spec).unwrap_or_else(|_| Timeouts::for_finalize());
        let wish = self.without_chart(&object, &timeouts, false);
        let Some(ended) = self.drive(&object, wish, &target).await else {
            return Ok(Some(Duration::ZERO));
        };
        if ended.rest.is_settled() {
            return self.let_go(&ended.object).await;
        }
        self.finish(ended, Some(timeouts)).await
    }

    /// Nothing is left that is ours: the HelmChart goes, and the finalizer.
    async fn let_go(&self, object: &Arc<HelmRelease>) -> Result<Option<Duration>, ClusterError> {
        template::remove(&self.context, object).await?;
        self.latest.set_finalizer(&self.context, object, false).await?;
        Ok(None)
    }

    /// Where the release of a leaving HelmRelease is removed; nowhere when the account that could is gone.
    async fn finalize_target(
        &self,
        object: &Arc<HelmRelease>,
    ) -> Result<Result<Option<Arc<Target>>, Rest>, ClusterError> {
        let (namespace, spec) = (object.namespace().unwrap_or_default(), &object.spec);
        let account = spec.service_account_name.as_deref();
        let wanted =
            Wanted::new(&self.context.settings, &namespace, spec.kube_config.as_ref(), account);
        let secret = spec.kube_config.as_ref().and_then(|it| it.secret_ref.as_ref());
        let mut references = References::new(&self.context.watcher);
        // The account is one of the cluster where the release is.
        let as_itself = Wanted { service_account: None, ..wanted };
        let needed = [
            (secret.map(|secret| secret.name.as_str()), "Secret"),
            (wanted.service_account, "ServiceAccount"),
        ];
        for (name, kind) in needed {
            let Some(name) = name else { continue };
            let id = ObjectId::new(&namespace, name, "", kind);
            let is_remote = kind == "ServiceAccount" && spec.kube_config.is_some();
            let found = if is_remote {
                let targets = &self.context.targets;
                match targets.of(&as_itself, &mut references).await {
                    Ok(target) => target.cluster.get_by_id(&id, "v1").await,
                    Err(rest) => return Ok(Err(rest)),
                }
            } else {
                self.context.cluster.get_by_id(&id, "v1").await
            };
            let is_gone = match found {
                Ok(found) => found.is_none(),
                // Whoever may not look cannot say that it is gone: the removal tells.
                Err(error) if is_remote && !error.is_of_server() => false,
                Err(error) => return Err(error),
            };
            if is_gone {
                // Parity(flux): nobody may remove it any more, so it stays and that is told.
                self.context.cluster.announce(&**object, HelmRelease::CONTROLLER, Event {
                    severity: Severity::Error,
                    reason: release::status::UNINSTALL_FAILED.as_str().to_owned(),
                    message: format!(
                        "unable to uninstall the release: {kind} '{name}' not found; the release is left in the \
                         cluster"
                    ),
                    metadata: BTreeMap::new(),
                });
                return Ok(Ok(None));
            }
        }
        let target = self.context.targets.of(&wanted, &mut references).await;
        references.watch(&self.node);
        Ok(target.map(Some))
    }
}

impl Timeouts {
    /// For a HelmRelease whose spec says nothing that could be read.
    pub(super) fn for_finalize() -> Self {
        let timeout = Duration::from_secs(300);
        Self {
            interval: AFTER_REFUSAL,
            retry: AFTER_REFUSAL,
            timeout,
            install: timeout,
            upgrade: timeout,
            rollback: timeout,
            test: timeout,
            uninstall: timeout,
            install_retry: timeout,
            upgrade_retry: timeout,
        }
    }
}
