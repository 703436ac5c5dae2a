//! A HelmRelease that is deleted: its release goes with it, then the HelmChart that was made for it.
//!
//! Source of the semantics: helm-controller 1.6 `reconcileDelete`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use apply::ignore::Rules;
use crds::helm::HelmRelease;
use golang::value::Map;
use kube::core::ResourceExt as _;
use objects::ObjectId;
use reconcile::Rest;
use release::snapshot::latest;

use super::postrender::PostRenderers;
use super::ways::Ways;
use super::wish::{self, Pace, Parts};
use super::{AFTER_REFUSAL, Ended, Session, Wish, status, template};
use crate::cluster::ClusterError;
use crate::cluster::events::{News, Severity};
use crate::controllers::hold;
use crate::controllers::record::FINALIZER;
use crate::controllers::reference::References;
use crate::controllers::run::Controlled as _;
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
        if hold::is_suspended(&*object, self.began) || has_nothing {
            return self.let_go(&object).await;
        }
        let target = match self.target_of_farewell(&object).await? {
            Ok(Some(target)) => target,
            Ok(None) => return self.let_go(&object).await,
            Err(rest) => return self.finish(Ended::early(&object, rest), None).await,
        };
        // A spec that cannot be read must not keep its release for ever.
        let pace = wish::check(&object.spec).unwrap_or_else(|_| Pace::of_farewell());
        let of = latest(&known.history);
        let text = |text: Option<&String>| text.cloned().unwrap_or_default();
        let parts = Parts {
            chart_name: text(of.map(|it| &it.chart_name)),
            chart_version: text(of.map(|it| &it.chart_version)),
            app_version: text(of.map(|it| &it.app_version)),
            oci_digest: text(of.map(|it| &it.oci_digest)),
            config_digest: text(of.map(|it| &it.config_digest)),
            artifact_digest: String::new(),
        };
        let settings = &self.context.settings;
        let ways = Ways::of(&object.spec, settings);
        let wish = Arc::new(Wish {
            desired: wish::desired(&object, parts, &pace, false, settings),
            ways,
            values: Map::default(),
            chart: None,
            post: Arc::new(PostRenderers::of(&object, ways.post_render)),
            expressions: self.expressions.clone(),
            ignore: Rules::default(),
            secrets: Vec::new(),
        });
        let Some(ended) = self.drive(&object, wish, &target).await else {
            return Ok(Some(Duration::ZERO));
        };
        if ended.rest.is_settled() {
            return self.let_go(&ended.object).await;
        }
        self.finish(ended, Some(pace)).await
    }

    /// Nothing is left that is ours: the HelmChart goes, and the finalizer.
    async fn let_go(&self, object: &Arc<HelmRelease>) -> Result<Option<Duration>, ClusterError> {
        template::remove(&self.context, object).await?;
        self.latest.set_finalizer(&self.context, object, false).await?;
        Ok(None)
    }

    /// Where the release of a leaving HelmRelease is removed; nowhere when the account that could is gone.
    async fn target_of_farewell(
        &self,
        object: &Arc<HelmRelease>,
    ) -> Result<Result<Option<Arc<Target>>, Rest>, ClusterError> {
        let (namespace, spec) = (object.namespace().unwrap_or_default(), &object.spec);
        let account = spec.service_account_name.as_deref();
        let wanted = Wanted::new(&self.context, &namespace, spec.kube_config.as_ref(), account);
        let secret = spec.kube_config.as_ref().and_then(|it| it.secret_ref.as_ref());
        let needed = [
            (wanted.service_account, "ServiceAccount"),
            (secret.map(|secret| secret.name.as_str()), "Secret"),
        ];
        for (name, kind) in needed {
            let Some(name) = name else { continue };
            let id = ObjectId::new(&namespace, name, "", kind);
            if self.context.cluster.get_by_id(&id, "v1").await?.is_none() {
                // Parity(flux): nobody may remove it any more, so it stays and that is told.
                self.context.cluster.announce(&**object, HelmRelease::CONTROLLER, News {
                    severity: Severity::Error,
                    reason: release::status::UNINSTALL_FAILED.as_str().to_owned(),
                    message: format!(
                        "unable to uninstall the release, because {kind} '{name}' does not exist; it stays"
                    ),
                    metadata: BTreeMap::new(),
                });
                return Ok(Ok(None));
            }
        }
        let mut references = References::default();
        let target = self.context.targets.of(&self.context, &wanted, &mut references).await;
        references.watch(&self.context, &self.node);
        Ok(target.map(Some))
    }
}

impl Pace {
    /// For a HelmRelease whose spec says nothing that could be read.
    fn of_farewell() -> Self {
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
