//! `windlass serve`: starts the operator with all its services, and shuts them down in order.
//!
//! Below: web pages for users who log in (`serve/pages.rs`).

mod pages;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use windlass_cli_runtime::exit_code::ExitCode;
use windlass_cluster::client::{ClusterAccessOptions, connect};
use windlass_cluster::election::{ElectionCandidate, ElectionState};
use windlass_cluster::events::EventDistributor;
use windlass_cluster::events::forwarder::EventForwarder;
use windlass_cluster::lease::LeadershipLostError;
use windlass_cluster::metrics::MetricsRegistry;
use windlass_cluster::work_queue::WorkQueue;
use windlass_http_server::{self as http_server, HttpListener, ServerReadiness};
use windlass_kinds::ProcessComponents;
use windlass_kinds::lease_elections::required_lease_elections;
use windlass_serve::logging_setup;
use windlass_serve::settings::OperatorSettings;

/// How long the API server may take to answer at the start.
const START_LIMIT: Duration = Duration::from_secs(60);

/// How long running reconciliations and downloads may take after a signal asked the process to stop.
const STOP_LIMIT: Duration = Duration::from_secs(3);

/// Runs the operator until a signal stops it.
///
/// # Errors
/// The operator could not start. The error is a message for the user.
pub(super) fn run(settings: OperatorSettings) -> anyhow::Result<()> {
    logging_setup::start(settings.log_level, settings.log_encoding)?;
    allow_many_files();
    forbid_core_dumps();
    // This fails only if another crypto provider was installed before, which never happens.
    drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let outcome = runtime.block_on(serve(settings));
    // A fetch from a remote that does not answer blocks its thread until its time limit. The process does not wait for it.
    runtime.shutdown_background();
    outcome
}

/// Raises the limit of open files to the allowed maximum. The usual limit of 1024 is only needed by programs that use `select`.
fn allow_many_files() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(_, most)| setrlimit(Resource::RLIMIT_NOFILE, most, most).map(|()| most));
    match raised {
        Ok(most) => tracing::debug!(most, "raised the limit of open files"),
        Err(error) => tracing::info!(error = %error, "failed to raise the limit of open files"),
    }
}

/// Decrypted Secrets and keys must stay in memory and never get into a core dump.
fn forbid_core_dumps() {
    if let Err(error) = setrlimit(Resource::RLIMIT_CORE, 0, 0) {
        tracing::info!(error = %error, "failed to forbid core dumps");
    }
}

async fn serve(settings: OperatorSettings) -> anyhow::Result<()> {
    let settings = settings.normalized();
    if settings.web_pages.web_only {
        return pages::serve_alone(&settings, stop_signal()?).await;
    }
    tell(&settings);
    let terms = required_lease_elections(&settings)?;
    let leadership = terms.leadership();
    let metrics = MetricsRegistry::new();
    metrics.leader.set(i64::from(leadership.may_act()));
    let artifacts_at = HttpListener::bind("artifacts and events", settings.storage_addr).await?;
    let health_at = HttpListener::bind("health", settings.health_addr).await?;
    let metrics_at = HttpListener::bind("metrics", settings.metrics_addr).await?;
    let webhooks = match settings.notifies() {
        true => Some(HttpListener::bind("webhooks", settings.receiver_addr).await?),
        false => None,
    };
    let store = open_store(&settings, artifacts_at.address)?;
    let stop = stop_signal()?;
    let pages = pages::start(&settings, &metrics, &stop).await?;
    let readiness = ServerReadiness::default();
    let identity = settings.identity();
    let access = ClusterAccessOptions {
        kubeconfig: settings.kubeconfig.as_deref(),
        ..ClusterAccessOptions::default()
    };
    let events = Arc::new(EventDistributor::new(&identity, metrics.clone()));
    let work_queue = Arc::new(WorkQueue::new(metrics.clone()));
    let artifacts = http_server::artifacts(store.clone(), leadership.clone())
        .merge(http_server::events(events.clone(), metrics.clone()));
    let servers = [
        tokio::spawn(artifacts_at.serve(artifacts, stop.clone())),
        tokio::spawn(health_at.serve(http_server::health(readiness.clone()), stop.clone())),
        tokio::spawn(metrics_at.serve(http_server::metrics(metrics.clone()), stop.clone())),
    ];
    let cluster = connect(access, &identity, &leadership, &metrics).await?;
    let version = tokio::select! {
        version = cluster.await_answer(START_LIMIT) => version?,
        () = stop.cancelled() => return Ok(()),
    };
    tracing::info!(kubernetes = version, version = env!("CARGO_PKG_VERSION"), "windlass started");
    events.add(cluster.recorder());
    if let Some(url) = settings.events_addr.0.clone() {
        events.add(EventForwarder::new(url).context("--events-addr")?);
    }
    let hand_over = settings.leader_election.leader_election_release_on_cancel;
    let mut candidate = cluster.candidate(terms, store.advertised());
    let tell = {
        let metrics = metrics.clone();
        let readiness = readiness.clone();
        move |standing: &ElectionState| {
            let excluded = match standing {
                ElectionState::Excluded(by) => Some(by.clone()),
                ElectionState::Leading | ElectionState::Standby => None,
            };
            metrics.leader.set(i64::from(*standing == ElectionState::Leading));
            metrics.excluded.set(i64::from(excluded.is_some()));
            readiness.exclude(excluded);
        }
    };
    let leading = lead(candidate.as_mut(), tell);
    let impatient = stop.clone();
    let process = ProcessComponents {
        cluster,
        artifacts: store,
        events,
        work_queue,
        metrics,
        readiness,
        webhooks,
    };
    let work = async {
        windlass_kinds::run(settings, process, stop).await;
        for server in servers {
            server.await.context("an HTTP server failed")?;
        }
        pages::end_of(pages).await
    };
    let limit = async {
        impatient.cancelled().await;
        tokio::time::sleep(STOP_LIMIT).await;
    };
    tokio::select! {
        worked = work => worked?,
        // The cluster records everything that a reconciliation has begun, so the next start continues with it.
        () = limit => tracing::info!("shutdown timeout reached; runs in progress continue after the next start"),
        // There is no orderly shutdown, because another process may already lead.
        lost = leading => return Err(lost.into()),
    }
    if let Some(candidate) = candidate {
        candidate.release(hand_over).await;
    }
    tracing::info!("windlass stopped");
    Ok(())
}

/// Keeps this process the leader. Without leader election, this never ends.
async fn lead(
    candidate: Option<&mut ElectionCandidate>,
    tell: impl FnMut(&ElectionState) + Send,
) -> LeadershipLostError {
    match candidate {
        Some(candidate) => candidate.lead(tell).await,
        None => std::future::pending().await,
    }
}

/// Logs which flags decide about rights, and which flags have no effect.
fn tell(settings: &OperatorSettings) {
    tracing::info!(
        no_cross_namespace_refs = settings.no_cross_namespace_refs,
        default_service_account = settings.default_service_account,
        default_kubeconfig_service_account = settings.default_kubeconfig_service_account,
        insecure_kubeconfig_exec = settings.insecure_kubeconfig_exec,
        insecure_kubeconfig_tls = settings.insecure_kubeconfig_tls,
        allow_source_cidrs = ?settings.allow_source_cidrs,
        no_remote_bases = settings.no_remote_bases,
        no_empty_builds = settings.no_empty_builds,
        insecure_remote_bases = settings.insecure_remote_bases,
        watch_label_selector = settings.watch_label_selector.text(),
        "flags of tenancy and sharding"
    );
    for (flag, why) in settings.without_meaning() {
        tracing::info!(flag, why, "this flag of Flux has no effect in windlass");
    }
}

fn open_store(
    settings: &OperatorSettings,
    bound: std::net::SocketAddr,
) -> anyhow::Result<Arc<artifacts::store::ArtifactStore>> {
    let advertised = settings.storage_adv_addr.clone().unwrap_or_else(|| {
        // Parity(flux): without an address to advertise it is this host, by the name that its Pod has.
        let host = if bound.ip().is_unspecified() {
            std::env::var("HOSTNAME").unwrap_or_else(|_| "localhost".to_owned())
        } else {
            bound.ip().to_string()
        };
        format!("{host}:{}", bound.port())
    });
    let options = artifacts::store::StoreOptions {
        advertised,
        ttl: settings.artifact_retention_ttl,
        records: settings.artifact_retention_records,
        size_limit: Some(settings.storage_size_limit).filter(|limit| *limit > 0),
        ..artifacts::store::StoreOptions::default()
    };
    std::fs::create_dir_all(&settings.storage_path)
        .with_context(|| format!("--storage-path {}", settings.storage_path.display()))?;
    let store = artifacts::store::ArtifactStore::open(&settings.storage_path, options)
        .with_context(|| format!("--storage-path {}", settings.storage_path.display()))?;
    Ok(Arc::new(store))
}

/// A token that SIGTERM and SIGINT cancel. A second signal ends the process at once.
fn stop_signal() -> anyhow::Result<CancellationToken> {
    let stop = CancellationToken::new();
    let mut term = signal(SignalKind::terminate())?;
    let mut int = signal(SignalKind::interrupt())?;
    let stop_token = stop.clone();
    tokio::spawn(async move {
        let mut asked = false;
        loop {
            tokio::select! { _ = term.recv() => {} _ = int.recv() => {} }
            if asked {
                #[expect(clippy::exit, reason = "asked twice: somebody is in a hurry")]
                std::process::exit(ExitCode::Interrupted.number().into());
            }
            asked = true;
            tracing::info!("shutting down; waiting for runs in progress");
            stop_token.cancel();
        }
    });
    Ok(stop)
}
