//! The one list of kinds that run.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use kube::runtime::reflector::store;
use objects::Gvk;
use reconcile::Node;
use sources::git::Known;
use sources::http::Egress;
use tokio_util::sync::CancellationToken;

use super::context::{Context, Memories};
use super::egress::Surroundings;
use super::hub::Hub;
use super::object_watcher::ObjectWatcher;
use super::permit::Permits;
use super::run::run_kind;
use super::source::catalog::Catalog;
use super::target::Targets;
use crate::cluster::Cluster;
use crate::cluster::discovery::Resource;
use crate::cluster::item::{Sighted, Wire as _};
use crate::cluster::watch::{Seen, Selection};
use crate::metrics::Metrics;
use crate::serve::Readiness;
use crate::settings::Settings;

/// Runs every kind until `stop`.
pub(crate) async fn run(
    settings: Settings,
    cluster: Cluster,
    artifacts: Arc<sources::store::Store>,
    metrics: Arc<Metrics>,
    readiness: Readiness,
    stop: CancellationToken,
) {
    let (sources, source_writers) = Catalog::new();
    let (kustomizations, kustomization_writer) = store();
    let (helm_releases, release_writer) = store();
    let hub = Arc::new(Hub::new(metrics.clone()));
    let watcher = ObjectWatcher::new(cluster.clone(), hub.clone());
    let targets = Targets::new(cluster.clone(), watcher.clone(), hub.clone(), metrics.clone());
    let building = Permits::new(usize::from(settings.kustomizations_at_once()));
    let reaching = Permits::shared(REACHING_AT_ONCE, REACHING_AT_ONCE / NAMESPACES);
    let at_once = usize::from(settings.sources_at_once());
    let fetching = Permits::shared(NAMESPACES * at_once, at_once);
    let asking = Permits::shared(ASKING_AT_ONCE, ASKING_AT_ONCE / NAMESPACES);
    let surroundings =
        Surroundings::new(&settings, cluster.clone(), artifacts.advertised().to_owned());
    surroundings.learn().await;
    let rules = surroundings.rules.clone();
    let egress = Egress::Named(rules.clone());
    let budgets = Arc::new(sources::http::Budgets::within(egress.clone()));
    let git_known = Known::within(egress.clone()).sharing(budgets.clone());
    let oci_known = sources::oci::Known::default().sharing(budgets.clone());
    let buckets_known = sources::bucket::Known::default().sharing(budgets.clone());
    let public_known = Known::within(Egress::Public(rules.clone())).sharing(budgets.clone());
    let context = Arc::new(Context {
        settings,
        cluster,
        hub,
        targets,
        building,
        reaching,
        fetching,
        asking,
        watcher,
        artifacts,
        metrics,
        sources,
        kustomizations,
        kustomization_memory: Memories::default(),
        bucket_memory: Memories::default(),
        buckets_known: Arc::new(buckets_known),
        git_memory: Memories::default(),
        http_archive_memory: Memories::default(),
        http_archive_learned: Memories::default(),
        budgets,
        artifact_egress: Egress::Provided(rules),
        http_clients: Arc::new(sources::http::Clients::within(egress)),
        git_known: Arc::new(git_known),
        public_known: Arc::new(public_known),
        oci_memory: Memories::default(),
        oci_known: Arc::new(oci_known),
        helm_chart_memory: Memories::default(),
        helm_releases,
        helm_release_memory: Memories::default(),
        charts: super::helm_release::Charts::default(),
        helm_repository_memory: Memories::default(),
        helm_known: Arc::default(),
        chart_indexes: Arc::default(),
    });
    let told = || stop.clone().cancelled_owned();
    tokio::join!(
        run_kind(context.clone(), source_writers.buckets, UNBOUNDED, told()),
        run_kind(context.clone(), source_writers.external_artifacts, UNBOUNDED, told()),
        run_kind(context.clone(), source_writers.git_repositories, UNBOUNDED, told()),
        run_kind(context.clone(), source_writers.http_archives, UNBOUNDED, told()),
        run_kind(context.clone(), source_writers.oci_repositories, UNBOUNDED, told()),
        run_kind(context.clone(), source_writers.helm_charts, UNBOUNDED, told()),
        run_kind(context.clone(), source_writers.helm_repositories, UNBOUNDED, told()),
        run_kind(context.clone(), kustomization_writer, UNBOUNDED, told()),
        run_kind(context.clone(), release_writer, UNBOUNDED, told()),
        until(told(), tell_ready(&context, readiness)),
        until(told(), surroundings.follow()),
        until(told(), follow_crds(context.cluster.clone(), context.hub.clone())),
    );
    context.cluster.settle_events().await;
}

async fn until(stop: impl Future<Output = ()>, work: impl Future<Output = ()>) {
    tokio::select! { () = work => {} () = stop => {} }
}

/// Ready means that every kind has listed its objects once.
async fn tell_ready(context: &Context, readiness: Readiness) {
    let sources = context.sources.wait_until_ready().await;
    let kustomizations = context.kustomizations.wait_until_ready().await;
    let releases = context.helm_releases.wait_until_ready().await;
    if sources.is_ok() && kustomizations.is_ok() && releases.is_ok() {
        readiness.ready();
        tracing::info!("ready");
    }
}

/// Runs are bounded where they use something up: a processor (`Context::building`, `Context::fetching`) or an API
/// server (`Target::applying`). A bound on all of them would let one dead cluster or remote hold up everybody.
const UNBOUNDED: u16 = 0;

/// How many namespaces have to wait for remotes with all that one may have until others wait, too.
const NAMESPACES: usize = 4;

/// How many remotes are asked at once whether they have something new: mostly waiting, on a thread each.
const ASKING_AT_ONCE: usize = 64;

/// How many builds may ask other servers at once; each holds what it got in memory, and a thread.
const REACHING_AT_ONCE: usize = 16;

/// How much later those who miss a kind look once more.
const SERVED_AFTER: Duration = Duration::from_secs(2);

/// The node that stands for the kinds of a group: whoever misses one of them waits for it.
pub(crate) fn kinds_of(group: &str) -> Node {
    Node::new("apiextensions.k8s.io", "CustomResourceDefinition", "", group)
}

/// Follows CRDs: where kinds live is asked again, and whoever waits for a kind is reconciled again.
pub(crate) async fn follow_crds(cluster: Cluster, hub: Arc<Hub>) {
    let gvk = Gvk::new("apiextensions.k8s.io/v1", "CustomResourceDefinition");
    let resource = Resource {
        gvk,
        plural: "customresourcedefinitions".to_owned(),
        namespaced: false,
        watchable: true,
    };
    let mut events = pin!(cluster.watch_metadata(&resource, &Selection::All));
    let mut known = KnownCrds::default();
    while let Some(event) = events.next().await {
        let Ok(event) = event else { continue };
        for group in known.changed_by(event) {
            cluster.forget_group(&group);
            hub.changed(&kinds_of(&group));
            // An API server may serve a kind a moment after its CRD says so.
            let (hub, kinds) = (hub.clone(), kinds_of(&group));
            tokio::spawn(async move {
                tokio::time::sleep(SERVED_AFTER).await;
                hub.changed(&kinds);
            });
        }
    }
}

/// The CRDs that a watch saw, by name: their versions.
#[derive(Default)]
struct KnownCrds {
    /// None before the first list has ended: it says nothing new.
    known: Option<BTreeMap<String, String>>,
    listing: BTreeMap<String, String>,
}

impl KnownCrds {
    /// Groups whose CRDs came, changed or went, in a gap of the watch as well.
    fn changed_by(&mut self, event: Seen<Sighted>) -> BTreeSet<String> {
        let group = |name: &str| name.split_once('.').map(|(_, group)| group.to_owned());
        match event {
            Seen::Listing => self.listing.clear(),
            Seen::Listed(object) => {
                self.listing.insert(object.name.clone(), object.version().to_owned());
            }
            Seen::ListEnded => {
                let now = std::mem::take(&mut self.listing);
                let Some(before) = self.known.replace(now.clone()) else { return BTreeSet::new() };
                let names: BTreeSet<&String> = before.keys().chain(now.keys()).collect();
                let changed = names.into_iter().filter(|name| before.get(*name) != now.get(*name));
                return changed.filter_map(|name| group(name)).collect();
            }
            Seen::Applied(object) => {
                let known = self.known.get_or_insert_default();
                known.insert(object.name.clone(), object.version().to_owned());
                return group(&object.name).into_iter().collect();
            }
            Seen::Deleted(object) => {
                self.known.get_or_insert_default().remove(&object.name);
                return group(&object.name).into_iter().collect();
            }
            Seen::Live | Seen::Interrupted => {}
        }
        BTreeSet::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crd(name: &str, version: &str) -> Sighted {
        let object = format!(r#"{{"metadata":{{"name":"{name}","resourceVersion":"{version}"}}}}"#);
        Sighted::read(object.as_bytes()).unwrap()
    }

    fn listed(known: &mut KnownCrds, all: &[(&str, &str)]) -> Vec<String> {
        let mut changed = known.changed_by(Seen::Listing);
        for (name, version) in all {
            changed.extend(known.changed_by(Seen::Listed(crd(name, version))));
        }
        changed.extend(known.changed_by(Seen::ListEnded));
        changed.into_iter().collect()
    }

    #[test]
    fn crds_that_come_change_or_go_in_a_gap_of_the_watch_are_noticed() {
        let mut known = KnownCrds::default();
        let first = [("as.one.io", "1"), ("bs.two.io", "2"), ("cs.three.io", "3")];
        assert!(listed(&mut known, &first).is_empty(), "nobody missed a kind before");
        assert!(listed(&mut known, &first).is_empty());
        let later = [("bs.two.io", "4"), ("cs.three.io", "3"), ("ds.four.io", "5")];
        assert_eq!(listed(&mut known, &later), ["four.io", "one.io", "two.io"]);
        let seen = known.changed_by(Seen::Applied(crd("bs.two.io", "6")));
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), ["two.io"]);
        known.changed_by(Seen::Deleted(crd("cs.three.io", "7")));
        let after = [("bs.two.io", "6"), ("ds.four.io", "5")];
        assert!(listed(&mut known, &after).is_empty(), "the watch has told of them");
    }
}
