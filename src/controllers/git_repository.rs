//! GitRepository: a branch, tag or commit becomes an artifact.

mod contents;
mod include;
mod report;
mod resolve;
mod wish;
mod world;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crds::Source as _;
use crds::source::GitRepository;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use kube::core::{Resource as _, ResourceExt as _};
use reconcile::{Facts, Gate, Node, Rest, before_resolve};

use super::context::Context;
use super::record::Latest;
use super::run::{Controlled, node_of, usual_trigger};
use super::{hold, marks};
use crate::cluster::ClusterError;

/// What a GitRepository remembers between runs.
#[derive(Default)]
pub(crate) struct Memory {
    latest: Arc<Latest<GitRepository>>,
    /// Runs in a row that failed, for the growing delay.
    failures: u32,
}

impl Controlled for GitRepository {
    const CONTROLLER: &'static str = "source-controller";
    const APPLIES: bool = false;

    fn trigger(&self) -> String {
        usual_trigger(self)
    }

    fn announcement(&self) -> String {
        // The time tells of an artifact that was lost and made again, equal to the last byte.
        let artifact = self
            .artifact()
            .map(|a| format!("{} {} {:?}", a.revision, a.digest, a.last_update_time))
            .unwrap_or_default();
        // Whoever is in a cycle of includes waits for one of them to go.
        let include = self.spec.include.iter().map(|include| include.repository.name.as_str());
        std::iter::once(artifact.as_str()).chain(include).collect::<Vec<_>>().join(" ")
    }

    fn run(self: Arc<Self>, context: Arc<Context>) -> BoxFuture<'static, Option<Duration>> {
        async move { run(self, &context).await }.boxed()
    }

    fn forget(node: &Node, context: &Context) {
        context.git_memory.forget(node);
    }
}

/// Longest delay until a run is repeated that the API server refused to record.
const AFTER_REFUSAL: Duration = Duration::from_secs(10);

/// One run; returns when to look again.
async fn run(seen: Arc<GitRepository>, context: &Arc<Context>) -> Option<Duration> {
    let node = node_of(&*seen);
    let memory = context.git_memory.of(&node);
    let latest = memory.lock().unwrap_or_else(PoisonError::into_inner).latest.clone();
    let object = latest.or_seen(seen);
    let outcome = if object.meta().deletion_timestamp.is_some() {
        delete(context, &latest, &object).await
    } else {
        attempt(context, &node, &memory, &latest, &object).await
    };
    outcome.unwrap_or_else(|error| {
        tracing::error!(
            controller_kind = node.kind,
            name = node.name,
            namespace = node.namespace,
            error = %error,
            "the cluster refused; trying again"
        );
        // Delays that grow are for remotes; an API server that was gone for long is not to be waited for once more.
        Some(retry_after(context, &memory).min(AFTER_REFUSAL))
    })
}

fn retry_after(context: &Context, memory: &Mutex<Memory>) -> Duration {
    let mut memory = memory.lock().unwrap_or_else(PoisonError::into_inner);
    memory.failures = memory.failures.saturating_add(1);
    let settings = &context.settings;
    reconcile::backoff(memory.failures - 1, settings.min_retry_delay, settings.max_retry_delay)
}

/// The object goes: so do its artifacts, then our finalizer.
async fn delete(
    context: &Context,
    latest: &Latest<GitRepository>,
    object: &Arc<GitRepository>,
) -> Result<Option<Duration>, ClusterError> {
    let (store, slot) = (context.artifacts.clone(), world::slot(object));
    let removed =
        tokio::task::spawn_blocking(move || slot.and_then(|slot| store.remove(&slot))).await;
    if let Ok(Err(error)) = removed {
        tracing::error!(name = object.name_any(), error = %error, "artifacts not removed");
    }
    latest.set_finalizer(context, object, false).await?;
    Ok(None)
}

async fn attempt(
    context: &Arc<Context>,
    node: &Node,
    memory: &Mutex<Memory>,
    latest: &Latest<GitRepository>,
    object: &Arc<GitRepository>,
) -> Result<Option<Duration>, ClusterError> {
    let now = jiff::Timestamp::now();
    let lifted = hold::lift(context, latest, object.clone(), now).await?;
    let Some(object) = lifted else { return Ok(None) };
    let facts = Facts { suspended: hold::is_suspended(&*object, now), ..Facts::default() };
    match before_resolve(&facts) {
        Gate::Suspended | Gate::Closed => {
            marks::show(context, latest, &object, now, false).await?;
            return Ok(None);
        }
        Gate::Open => {}
        Gate::Rest(rest) => {
            return finish(context, memory, latest, &object, Vec::new(), rest).await;
        }
    }
    let Some(object) = latest.set_finalizer(context, &object, true).await? else { return Ok(None) };
    let wished = match resolve::resolve(context, node, &object).await {
        Ok(resolved) => wish::wish(&object, resolved),
        Err(rest) => Err(rest),
    };
    let wished = match wished {
        Ok(wished) => wished,
        Err(rest) => return finish(context, memory, latest, &object, Vec::new(), rest).await,
    };
    let (world, desired) = world::World::new(context.clone(), object.clone(), wished);
    let (done, rest) = reconcile::drive(&desired, &world).await;
    let artifact = world.artifact();
    let done = done.into_iter().zip(artifact).map(|(_, artifact)| artifact).collect();
    finish(context, memory, latest, &object, done, rest).await
}

/// Says how the run ended, and when the next one is due.
async fn finish(
    context: &Context,
    memory: &Mutex<Memory>,
    latest: &Latest<GitRepository>,
    object: &Arc<GitRepository>,
    stored: Vec<world::Stored>,
    rest: Rest,
) -> Result<Option<Duration>, ClusterError> {
    let now = jiff::Timestamp::now();
    let again = match &rest {
        Rest::Settled(..) => {
            memory.lock().unwrap_or_else(PoisonError::into_inner).failures = 0;
            Some(wish::interval(context, object))
        }
        Rest::Stalled(..) => None,
        Rest::Running(..) | Rest::Blocked(..) | Rest::Failed(..) => {
            Some(retry_after(context, memory))
        }
    };
    let rest = match again {
        Some(delay) => {
            rest.or_wake(now + jiff::SignedDuration::try_from(delay).unwrap_or_default())
        }
        None => rest,
    };
    // Where artifacts are served may have changed with a restart.
    let url = object.artifact().map(|artifact| context.artifacts.url(&artifact.path));
    let report = report::report(object, stored.last(), url, &rest, now);
    report.log(object);
    latest.write_status(context, object, &report.before, &report.after).await?;
    for news in report.news {
        context.cluster.announce(&**object, GitRepository::CONTROLLER, news);
    }
    Ok(again)
}
