//! What keeps a HelmRelease from beginning anything: suspension and windows. An operation that is under way comes to its
//! end, or to the next place at which nothing is half done.
//!
//! Elsewhere: when that is (`hold`, `window`), where an operation may stop (engine `release`).

use std::sync::Arc;
use std::time::Duration;

use apply::ignore::Rules;
use crds::Reconciled as _;
use crds::helm::HelmRelease;
use golang::value::Map;
use kube::core::{Resource as _, ResourceExt as _};
use objects::Masking;
use reconcile::{Facts, Rest, Time, WindowState, reason};
use release::plan::is_under_way;
use release::snapshot::latest;
use release::status::RELEASED;

use super::action_options::ActionOptions;
use super::postrender::PostRenderers;
use super::storage::Storage;
use super::wish::{self, Parts, Timeouts};
use super::{Ended, Session, Wish, chart, status};
use crate::cluster::ClusterError;
use crate::controllers::reference::References;
use crate::controllers::target::{Target, Wanted};
use crate::controllers::{hold, marks, window};

impl Session {
    /// What the gate asks about before anything is resolved.
    ///
    /// An operation that began while a window was open comes to its end.
    pub(super) fn facts(&self, object: &HelmRelease, is_under_way: bool) -> Facts {
        let facts = Facts {
            suspended: hold::is_suspended(object, self.began),
            cycle: self.context.hub.cycle(&self.node),
            window: window::state(object, self.began),
            ..Facts::default()
        };
        let Some(WindowState::Closed { .. }) = facts.window else { return facts };
        if is_under_way {
            return Facts { window: None, ..facts };
        }
        let is_ready = object.condition("Ready").is_some_and(|it| it.status == "True")
            && object.observed_generation() == object.meta().generation;
        let source = chart::source(&self.context, object, self.began).ok();
        let is_known = source.is_none_or(|source| {
            self.memory().source.as_ref().is_none_or(|known| *known == source.key())
        });
        if is_ready && is_known {
            return facts;
        }
        let waiting = match is_ready {
            true => "the chart's new version".to_owned(),
            false => "the changed spec".to_owned(),
        };
        Facts { waiting: Some(waiting), ..facts }
    }

    /// From when on no operation may begin.
    pub(super) fn closes(&self, object: &HelmRelease) -> Option<Time> {
        match window::state(object, self.began)? {
            WindowState::Open { until, .. } => until,
            WindowState::Closed { .. } | WindowState::Invalid { .. } => Some(Time::MIN),
        }
    }

    /// Whether an operation is under way, as the journal beside the newest record says: its run may have been lost. It is
    /// read once for a process, and only of an object whose status has not come to rest.
    pub(super) async fn is_under_way(&self, object: &HelmRelease) -> Result<bool, ClusterError> {
        if !status::is_reconciling(object) {
            return Ok(false);
        }
        let known = self.memory().under_way;
        if let Some(known) = known {
            return Ok(known);
        }
        let Ok(target) = self.target_only(object).await else { return Ok(false) };
        let known = status::read(object);
        let (Some(of), false) = (latest(&known.history), known.storage_namespace.is_empty()) else {
            return self.is_first_under_way(object, &target).await;
        };
        self.has_open_journal(object, &target, &known.storage_namespace, &of.name).await
    }

    /// The same where nothing was released before.
    async fn is_first_under_way(
        &self,
        object: &HelmRelease,
        target: &Arc<Target>,
    ) -> Result<bool, ClusterError> {
        let wanted = wish::target(object);
        self.has_open_journal(object, target, &wanted.storage_namespace, &wanted.name).await
    }

    async fn has_open_journal(
        &self,
        object: &HelmRelease,
        target: &Arc<Target>,
        namespace: &str,
        name: &str,
    ) -> Result<bool, ClusterError> {
        let owner = object.uid().unwrap_or_default();
        let storage = Storage::new(&target.cluster, namespace, name, &owner).await;
        let storage = storage.map_err(|it| it.into_cluster())?;
        let revisions = storage.revisions().await.map_err(|it| it.into_cluster())?;
        let is_open = is_under_way(&owner, &status::read(object), &revisions);
        self.memory().under_way = Some(is_open);
        Ok(is_open)
    }

    /// Where the release is, without anything else that the spec names.
    async fn target_only(&self, object: &HelmRelease) -> Result<Arc<Target>, Rest> {
        let (namespace, spec) = (object.namespace().unwrap_or_default(), &object.spec);
        let account = spec.service_account_name.as_deref();
        let wanted =
            Wanted::new(&self.context.settings, &namespace, spec.kube_config.as_ref(), account);
        let mut references = References::new(&self.context.watcher);
        let target = self.context.targets.of(&wanted, &mut references).await;
        references.watch(&self.node);
        target
    }

    /// Has an operation that is under way come to the next place at which nothing is half done. Nothing else that the spec
    /// says by now is observed.
    pub(super) async fn stop(
        &self,
        object: &Arc<HelmRelease>,
    ) -> Result<Option<Duration>, ClusterError> {
        let Ok(target) = self.target_only(object).await else {
            return self.rest_suspended(object).await;
        };
        let timeouts = wish::check(&object.spec).unwrap_or_else(|_| Timeouts::for_finalize());
        let wish = self.without_chart(object, &timeouts, true);
        let Some(ended) = self.drive(object, wish, &target).await else {
            return Ok(Some(Duration::ZERO));
        };
        match &ended.rest {
            Rest::Blocked(why, ..) if *why == reason::SUSPENDED => {
                self.rest_suspended(&ended.object).await
            }
            _ => self.finish(ended, Some(timeouts)).await,
        }
    }

    /// A wish for nothing new: of the release that there is.
    pub(super) fn without_chart(
        &self,
        object: &Arc<HelmRelease>,
        timeouts: &Timeouts,
        is_suspended: bool,
    ) -> Arc<Wish> {
        let known = status::read(object);
        let of = latest(&known.history);
        let text = |text: Option<&String>| text.cloned().unwrap_or_default();
        let attempted = Some(&known.last_attempted_revision).filter(|it| !it.is_empty());
        let version = of.map(|it| &it.chart_version);
        let parts = Parts {
            chart_name: text(of.map(|it| &it.chart_name)),
            chart_version: text(attempted.filter(|_| is_suspended).or(version)),
            app_version: text(of.map(|it| &it.app_version)),
            oci_digest: text(of.map(|it| &it.oci_digest)),
            config_digest: text(of.map(|it| &it.config_digest)),
            artifact_digest: String::new(),
        };
        let settings = &self.context.settings;
        let options = ActionOptions::of(&object.spec, settings);
        Arc::new(Wish {
            desired: wish::desired(object, parts, timeouts, is_suspended, settings),
            options,
            values: Map::default(),
            chart: None,
            post: Arc::new(PostRenderers::of(object, options.post_render)),
            expressions: self.expressions.clone(),
            ignore: Rules::default(),
            secrets: Masking::default(),
        })
    }

    /// A suspended object is left as it is, but for what its hold says, and that nothing is under way any more; nothing it
    /// waited for wakes it.
    pub(super) async fn rest_suspended(
        &self,
        object: &Arc<HelmRelease>,
    ) -> Result<Option<Duration>, ClusterError> {
        let target = self.memory().target.clone();
        if let Some(target) = target {
            target.watcher().await_objects(&self.node, &[]);
        }
        self.memory().hook_watch = None;
        let text = match object.condition(RELEASED) {
            Some(released) => {
                let before = &released.message;
                format!("suspended before the next action; last action: {before}")
            }
            None => "suspended before the first install".to_owned(),
        };
        let (context, latest) = (&self.context, &self.latest);
        marks::show_suspended(context, latest, object, self.began, &status::OWNED, &text).await?;
        Ok(None)
    }

    /// Outside of its windows an object without anything new is left as it is.
    pub(super) async fn rest_closed(
        &self,
        object: &Arc<HelmRelease>,
    ) -> Result<Option<Duration>, ClusterError> {
        marks::show(&self.context, &self.latest, object, self.began, true).await?;
        Ok(None)
    }

    /// A run that came to the end of an operation outside of its windows says until when it waits. None where the windows
    /// are open again by now.
    pub(super) fn outside(&self, ended: Ended) -> Option<Ended> {
        let what = match &ended.rest {
            Rest::Blocked(why, what, _) if *why == reason::WINDOW_CLOSED => what.clone(),
            _ => return Some(ended),
        };
        let state = window::state(&*ended.object, jiff::Timestamp::now())?;
        let rest = state.rest(&what)?;
        Some(Ended { rest, ..ended })
    }
}
