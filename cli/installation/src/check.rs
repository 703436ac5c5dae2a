//! `windlass check`: verifies that a cluster can run windlass, that windlass is installed, and that it works. For each problem,
//! the command prints advice.

use std::time::Duration;

use apply::health;
use clap::Args as ClapArgs;
use golang::semver::SemverVersion;
use objects::{Gvk, Object};
use serde_json::Value;
use tokio::time::Instant;

use super::cluster_operators::{
    self, ClusterOperators, DetectedOperator, FluxApiOperator, LeaseHolder, WindlassLeases,
    replicas,
};
use super::install::{POLL_INTERVAL, name};
use windlass_cli_runtime::connection::{ProgressGlyph, WindlassConnectionFlags, block_on, say};
use windlass_cli_runtime::exit_code::ExitCode;
use windlass_cli_runtime::incidents::open_incidents;
use windlass_cli_runtime::table::clean;
use windlass_cluster::{ClusterConnection, ClusterError};
use windlass_serve::settings::lease_name;

/// The oldest Kubernetes that is supported, with its pre-releases. Parity(flux 2.9): the same.
const OLDEST: &str = "1.33.0-0";
/// The label selector of windlass's objects.
pub const OURS: &str = "app.kubernetes.io/name=windlass";

/// The flag that divides the objects between several processes.
const SELECTOR_FLAG: &str = "--watch-label-selector=";

/// The flag that puts the Lease into another namespace.
const NAMESPACE_FLAG: &str = "--leader-election-namespace";

/// How long a process may take to acquire a Lease that another process has released.
const LEASE_ACQUISITION_TIMEOUT: Duration = Duration::from_secs(10);

/// The flags of `windlass check`.
#[derive(Debug, Clone, ClapArgs)]
pub struct CheckArgs {
    #[command(flatten)]
    connection: WindlassConnectionFlags,
    /// Check only what an installation requires
    #[arg(long)]
    pre: bool,
}

/// Examples and exit codes at the end of the command's help.
pub const EXAMPLES: &str = "Examples:
  windlass check --pre                          whether windlass can be installed
  windlass check                                whether it is installed and works
  windlass check -n gitops                      the same where it is in another namespace

A Deployment that is scaled to zero is no failure while a process outside of the cluster holds the Lease of windlass. Where
the Lease was not renewed within the last seconds, the next renewal is waited for, or that the Lease runs out. A process that
was killed holds its Lease until it runs out: what is printed says when it was renewed, and until when it counts.
Providers whose services do not accept notifications are named, which is no failure.

Exit status: 0; 1 if a check failed; 2 if the command line is wrong; 3 if the cluster cannot be reached.";

/// The problems that were found. Each is printed when it is found.
#[derive(Debug, Default)]
struct CheckFindings(Vec<String>);

impl CheckFindings {
    fn fail(&mut self, text: &str) {
        self.0.push(text.to_owned());
        say(ProgressGlyph::Failure, text);
    }
}

/// Checks a cluster. The exit status says whether all is well.
///
/// # Errors
/// The cluster cannot be reached.
pub fn run(args: &CheckArgs) -> anyhow::Result<ExitCode> {
    let found = block_on(async {
        say(ProgressGlyph::Action, "checking prerequisites");
        let (cluster, version) = args.connection.open().await?;
        Ok(check(&cluster, &version, args).await)
    })?;
    if found.0.is_empty() {
        say(ProgressGlyph::Success, "all checks passed");
        return Ok(ExitCode::Success);
    }
    say(ProgressGlyph::Failure, &format!("{} check(s) failed", found.0.len()));
    Ok(ExitCode::ProblemsFound)
}

async fn check(cluster: &ClusterConnection, version: &str, args: &CheckArgs) -> CheckFindings {
    let mut findings = CheckFindings::default();
    match is_supported(version) {
        Ok(()) => say(ProgressGlyph::Success, &format!("Kubernetes {version} >={OLDEST}")),
        Err(error) => findings.fail(&error.to_string()),
    }
    rights(cluster, &mut findings).await;
    let namespace = &args.connection.namespace;
    let mut found = Vec::new();
    if !args.pre {
        found = workloads(cluster, args, &mut findings).await;
        definitions(cluster, &mut findings).await;
        deliveries(cluster).await;
    }
    say(ProgressGlyph::Action, "checking other operators");
    match ClusterOperators::find(cluster).await {
        Ok(operators) => {
            others(
                &operators,
                namespace,
                DelegatedResponsibilities::of(&found, args.pre),
                &mut findings,
            );
        }
        Err(error) => findings.fail(&format!("{error:#}")),
    }
    findings
}

/// Checks that a version of Kubernetes is supported.
///
/// # Errors
/// The version is too old. The error names the oldest supported version.
pub(super) fn is_supported(version: &str) -> anyhow::Result<()> {
    let oldest = SemverVersion::parse(OLDEST);
    match (SemverVersion::parse(version), oldest) {
        (Ok(found), Ok(oldest)) if found < oldest => {
            anyhow::bail!(
                "Kubernetes {version} is too old: {OLDEST} or newer is required; upgrade the cluster"
            )
        }
        (Ok(_), _) => Ok(()),
        (Err(error), _) => {
            anyhow::bail!("the version of Kubernetes, {version}, cannot be read: {error}")
        }
    }
}

/// Checks whether the user may install windlass. The rights that are missing most often are those to write CRDs and
/// ClusterRoleBindings.
async fn rights(cluster: &ClusterConnection, findings: &mut CheckFindings) {
    let wanted = [
        ("apiextensions.k8s.io", "customresourcedefinitions"),
        ("rbac.authorization.k8s.io", "clusterrolebindings"),
        ("apps", "deployments"),
    ];
    for (group, resource) in wanted {
        match cluster.may("create", group, resource).await {
            Ok(true) => say(ProgressGlyph::Success, &format!("this user can create {resource}")),
            Ok(false) => findings.fail(&format!(
                "this user cannot create {resource}.{group}: use a kubeconfig of a cluster administrator"
            )),
            Err(error) => findings.fail(&format!("cannot tell whether {resource} can be created: {error}")),
        }
    }
}

/// Checks whether windlass is running, and which workload runs it.
async fn workloads(
    cluster: &ClusterConnection,
    args: &CheckArgs,
    findings: &mut CheckFindings,
) -> Vec<Object> {
    let namespace = &args.connection.namespace;
    say(ProgressGlyph::Action, "checking windlass");
    let mut found = Vec::new();
    let mut is_known = true;
    for kind in ["Deployment", "StatefulSet"] {
        let listed = list(cluster, &Gvk::new("apps/v1", kind), namespace, OURS, findings).await;
        is_known &= listed.is_some();
        found.extend(listed.into_iter().flatten());
    }
    let is_active = found.iter().any(|it| replicas(it) > 0 && is_elected(it));
    let is_idle = found.is_empty() || found.iter().any(|it| replicas(it) == 0);
    let mut processes = LeaseHolderProcesses::default();
    if is_active || is_idle {
        match LeaseHolderProcesses::observe(cluster, args).await {
            Ok(observed) => processes = observed,
            Err(error) => {
                is_known = false;
                findings.fail(&format!("cannot tell whether windlass acts: {error}"));
            }
        }
    }
    let LeaseHolderProcesses { leases, outside } = &processes;
    for text in &leases.unconfirmed {
        findings.fail(&format!("cannot tell whether windlass acts: {text}, and not since"));
    }
    for workload in &found {
        check_workload(workload, &processes, findings);
    }
    if found.is_empty() && is_known {
        outside.iter().for_each(|it| say(ProgressGlyph::Success, &held_outside(it)));
        if outside.is_empty() && leases.unconfirmed.is_empty() {
            findings.fail(&absence(namespace, leases));
        }
    }
    if is_active && is_known {
        leader(cluster, args, processes.leases, findings).await;
    }
    found
}

/// The running processes of windlass, according to their Leases.
#[derive(Debug, Default)]
struct LeaseHolderProcesses {
    leases: WindlassLeases,
    /// The processes that run outside of windlass's Pods.
    outside: Vec<LeaseHolder>,
}

impl LeaseHolderProcesses {
    /// Waits until a process was seen to renew its Lease.
    ///
    /// # Errors
    /// The API server refuses to list Leases or Pods.
    async fn observe(cluster: &ClusterConnection, args: &CheckArgs) -> Result<Self, ClusterError> {
        let WindlassConnectionFlags { namespace, timeout, .. } = &args.connection;
        let leases = WindlassLeases::observe(cluster, namespace, Instant::now() + *timeout).await?;
        let outside =
            cluster_operators::none_of_pods(cluster, namespace, leases.holders.clone()).await?;
        Ok(Self { leases, outside })
    }
}

/// The message if windlass has no workload and does not run outside of the cluster either.
fn absence(namespace: &str, leases: &WindlassLeases) -> String {
    let absent = format!("windlass is not in namespace {namespace}");
    match leases.restart() {
        Some(restart) => format!("{absent}: {restart}; or run `windlass install`"),
        None => format!("{absent}: run `windlass install`, or name its namespace with -n"),
    }
}

/// Checks whether a workload is running. It also accepts a process outside of the cluster that does the same work.
fn check_workload(
    workload: &Object,
    processes: &LeaseHolderProcesses,
    findings: &mut CheckFindings,
) {
    let LeaseHolderProcesses { leases, outside } = processes;
    let id = name(workload);
    let namespace = workload.namespace();
    let lease = format!("{namespace}/{}", lease_name(selector(workload)));
    match health::compute(workload, jiff::Timestamp::now()) {
        _ if replicas(workload) == 0 => match outside.iter().find(|it| it.lease == lease) {
            Some(holder) => {
                say(ProgressGlyph::Success, &format!("{id} is scaled to zero, and {}", held_outside(holder)));
            }
            // It is unknown whether another process is running.
            None if !leases.unconfirmed.is_empty() => {}
            None => findings.fail(&format!(
                "{id} is scaled to zero, so nothing is reconciled; `kubectl -n {namespace} scale {}/{} --replicas=1` \
                 starts it{}",
                workload.kind().to_lowercase(),
                workload.name(),
                leases.restart().map(|it| format!(", or {it}")).unwrap_or_default()
            )),
        },
        Ok(report) if report.is_current() => {
            let leads = outside.iter().find(|it| it.lease == lease && is_elected(workload));
            say(ProgressGlyph::Success, &ready_in_words(workload, leads));
        }
        Ok(report) => findings.fail(&format!(
            "{id} not ready: {}; `kubectl -n {namespace} describe pods -l {OURS}` shows why",
            report.message
        )),
        Err(error) => findings.fail(&format!("{id}: {error}")),
    }
}

/// The message about a workload that is ready. `leads` is a process outside of the cluster for which the Pods of the workload
/// wait.
fn ready_in_words(workload: &Object, leads: Option<&LeaseHolder>) -> String {
    let ready = format!("{} ready: {}", name(workload), images(workload));
    match leads {
        Some(holder) => {
            format!(
                "{ready}; its Pods are standbys and reconcile nothing: {}",
                held_outside(holder)
            )
        }
        None => ready,
    }
}

/// The message about a process that holds the Lease of windlass but is none of its Pods.
fn held_outside(holder: &LeaseHolder) -> String {
    let LeaseHolder { identity, lease, .. } = holder;
    let term = holder.term();
    format!("'{identity}', a process outside of the cluster, holds Lease {lease} ({term})")
}

/// The label selector for the objects that a workload reconciles. Empty for all objects.
pub(super) fn selector(workload: &Object) -> &str {
    arguments(workload).find_map(|it| it.strip_prefix(SELECTOR_FLAG)).unwrap_or_default()
}

/// Whether the processes of a workload use a Lease in their namespace for leader election.
pub(super) fn is_elected(workload: &Object) -> bool {
    let is_set =
        |it: &str| matches!(it, "--enable-leader-election" | "--enable-leader-election=true");
    arguments(workload).any(is_set) && !arguments(workload).any(|it| it.starts_with(NAMESPACE_FLAG))
}

/// Waits for a process that holds a Lease, if the workload uses leader election. A process that replaces another takes the
/// Lease after a moment.
async fn leader(
    cluster: &ClusterConnection,
    args: &CheckArgs,
    mut leases: WindlassLeases,
    findings: &mut CheckFindings,
) {
    let WindlassConnectionFlags { namespace, timeout, .. } = &args.connection;
    let deadline = Instant::now() + LEASE_ACQUISITION_TIMEOUT.min(*timeout);
    let mut is_printed = false;
    while let Some(text) = leases.vacancy(namespace) {
        if Instant::now() >= deadline {
            return findings
                .fail(&format!("{text}; `kubectl -n {namespace} logs -l {OURS}` shows why"));
        }
        if !is_printed {
            say(ProgressGlyph::Waiting, &text);
            is_printed = true;
        }
        tokio::time::sleep(POLL_INTERVAL).await;
        leases = match WindlassLeases::observe(cluster, namespace, deadline).await {
            Ok(leases) => leases,
            Err(error) => {
                return findings.fail(&format!("cannot tell whether windlass acts: {error}"));
            }
        };
    }
    for holder in &leases.holders {
        say(ProgressGlyph::Success, &format!("{holder} ({})", holder.term()));
    }
}

/// The containers of a workload.
pub(super) fn containers(object: &Object) -> impl Iterator<Item = &Value> {
    let containers = object.get("spec").map(|spec| &spec["template"]["spec"]["containers"]);
    containers.and_then(Value::as_array).into_iter().flatten()
}

/// The arguments of the containers of a workload.
pub(super) fn arguments(object: &Object) -> impl Iterator<Item = &str> {
    let arguments = containers(object).filter_map(|it| it["args"].as_array()).flatten();
    arguments.filter_map(Value::as_str)
}

fn images(object: &Object) -> String {
    let images: Vec<&str> = containers(object).filter_map(|it| it["image"].as_str()).collect();
    images.join(", ")
}

/// Checks that every CRD exists and serves the version that this program uses.
async fn definitions(cluster: &ClusterConnection, findings: &mut CheckFindings) {
    say(ProgressGlyph::Action, "checking CRDs");
    let gvk = Gvk::new("apiextensions.k8s.io/v1", "CustomResourceDefinition");
    for (_, wanted) in crds::all() {
        let id = wanted.metadata.name.clone().unwrap_or_default();
        let wants: Vec<&str> = wanted.spec.versions.iter().map(|it| it.name.as_str()).collect();
        let found = match cluster.resource(&gvk).await {
            Ok(resource) => cluster.get(&resource, "", &id).await,
            Err(error) => Err(error),
        };
        let served = |crd: &Object, version: &str| {
            let versions = crd.get("spec").and_then(|spec| spec["versions"].as_array());
            let mut versions = versions.into_iter().flatten();
            versions.any(|it| it["name"] == version && it["served"] == true)
        };
        match found {
            Ok(Some(crd)) if crd.meta("deletionTimestamp").is_some() => findings.fail(&format!(
                "{id} is being deleted, with every object of this kind: when it is gone, run `windlass install`"
            )),
            Ok(Some(crd)) if !is_established(&crd) => {
                findings.fail(&format!("{id} is not established: `kubectl describe crd {id}` shows why"));
            }
            Ok(Some(crd)) if wants.iter().all(|version| served(&crd, version)) => {
                say(ProgressGlyph::Success, &format!("{id}/{}", wants.join(",")));
            }
            Ok(Some(_)) => findings
                .fail(&format!("{id} does not serve {}: run `windlass install`", wants.join(","))),
            Ok(None) => findings.fail(&format!("{id} is missing: run `windlass install`")),
            Err(error) => findings.fail(&format!("{id}: {error}")),
        }
    }
}

/// Whether the API server serves a CRD.
fn is_established(crd: &Object) -> bool {
    let conditions = crd.get("status").and_then(|status| status["conditions"].as_array());
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|it| it["type"] == "Established" && it["status"] == "True")
}

/// The maximum number of Providers that are named.
const MAX_NAMED_PROVIDERS: usize = 8;

/// Warns about Providers whose services reject notifications. This is no fault of windlass.
async fn deliveries(cluster: &ClusterConnection) {
    match open_incidents(cluster, "", "Provider").await {
        Ok(incidents) => {
            if let Some(text) = undelivered(&incidents) {
                say(ProgressGlyph::Warning, &clean(&text));
            }
        }
        // Another check reports the missing CRD.
        Err(ClusterError::NoSuchKind { .. }) => {}
        Err(error) => {
            let text = format!("cannot tell whether notifications are delivered: {error}");
            say(ProgressGlyph::Warning, &clean(&text));
        }
    }
}

/// The message about the Providers that Incidents report. `None` if there are none.
fn undelivered(incidents: &[Object]) -> Option<String> {
    let name = |incident: &Object| {
        let subject = incident.get("spec").map(|spec| &spec["subject"]["name"]);
        subject.and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let first = incidents.first()?;
    let named = incidents.iter().take(MAX_NAMED_PROVIDERS);
    let named = named.map(|it| format!("Provider/{}/{}", it.namespace(), name(it)));
    let more = incidents.len().saturating_sub(MAX_NAMED_PROVIDERS);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    Some(format!(
        "notifications are not delivered for {}{more}: `windlass why provider/{} -n {}` says why",
        named.collect::<Vec<_>>().join(", "),
        name(first),
        first.namespace()
    ))
}

/// The responsibilities that an installation leaves to other operators.
#[derive(Debug, Clone, Copy, Default)]
struct DelegatedResponsibilities {
    /// windlass is not installed yet.
    is_before: bool,
    /// A label selector divides the objects between operators.
    divides: bool,
    /// The notification-controller of Flux sends the notifications.
    forwards: bool,
}

impl DelegatedResponsibilities {
    fn of(workloads: &[Object], is_before: bool) -> Self {
        let has = |flag: &str| workloads.iter().flat_map(arguments).any(|it| it.starts_with(flag));
        let divides = has(SELECTOR_FLAG);
        let forwards = has("--events-addr=");
        Self { is_before, divides, forwards }
    }

    /// Whether an operator may run beside windlass.
    fn permit(self, operator: &DetectedOperator) -> bool {
        let is_notifying = operator.kind == FluxApiOperator::Flux("notification-controller");
        self.divides || (self.forwards && is_notifying)
    }
}

/// Finds operators that must not run beside windlass.
fn others(
    operators: &ClusterOperators,
    namespace: &str,
    shared_duties: DelegatedResponsibilities,
    findings: &mut CheckFindings,
) {
    let is_other =
        |it: &&DetectedOperator| it.kind != FluxApiOperator::Windlass || it.namespace != namespace;
    let mut is_alone = true;
    for operator in operators.active().filter(is_other) {
        is_alone = false;
        let DetectedOperator { subject, namespace, .. } = operator;
        let text = match operator.kind {
            FluxApiOperator::Flux(_) => format!(
                "{subject}, and works on the same objects: `windlass migrate from-flux -n {namespace}` takes the cluster \
                 over from Flux"
            ),
            FluxApiOperator::Windlass => format!(
                "{subject}, and works on the same objects: keep one installation, and remove the other with `windlass \
                 uninstall -n NAMESPACE`"
            ),
        };
        match (shared_duties.is_before, shared_duties.permit(operator)) {
            (_, true) => {
                say(ProgressGlyph::Warning, &format!("{subject}, too: the work is divided"));
            }
            (true, false) => say(ProgressGlyph::Warning, &text),
            (false, false) => findings.fail(&text),
        }
    }
    if is_alone {
        say(ProgressGlyph::Success, "no other operator works on the same objects");
    }
}

/// Lists the objects of a kind that match a selector. If they cannot be listed, prints the problem and returns `None`.
async fn list(
    cluster: &ClusterConnection,
    gvk: &Gvk,
    namespace: &str,
    selector: &str,
    findings: &mut CheckFindings,
) -> Option<Vec<Object>> {
    let listed = match cluster.resource(gvk).await {
        Ok(resource) => cluster.list(&resource, namespace, selector).await,
        Err(error) => Err(error),
    };
    listed.map_err(|error| findings.fail(&format!("cannot list {}s: {error}", gvk.kind))).ok()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
    use serde_json::json;

    use super::*;
    use fake_cluster::operator_objects;
    use fake_cluster::with_objects;

    #[test]
    fn kubernetes_is_supported_from_the_oldest_version_on() {
        for version in ["v1.33.0", "v1.33.0-rc.1", "v1.36.2+k3s1", "v1.34.1-gke.100"] {
            assert!(is_supported(version).is_ok(), "{version}");
        }
        let error = is_supported("v1.32.9").unwrap_err().to_string();
        assert!(error.contains("v1.32.9 is too old: 1.33.0-0 or newer"), "{error}");
        assert!(is_supported("latest").is_err());
    }

    #[derive(Debug, clap::Parser)]
    struct CheckTestCommand {
        #[command(flatten)]
        args: CheckArgs,
    }

    fn workload(name: &str, labels: &Value, replicas: i64, flags: &[&str]) -> Value {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": name, "namespace": "flux-system", "labels": labels, "generation": 1},
            "spec": {
                "replicas": replicas, "selector": {},
                "template": {"spec": {"containers": [{"image": "windlass:v1", "args": flags}]}},
            },
            "status": {
                "observedGeneration": 1, "replicas": replicas, "updatedReplicas": replicas,
                "readyReplicas": replicas, "availableReplicas": replicas,
                "conditions": [
                    {"type": "Available", "status": "True"},
                    {"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable"},
                ],
            },
        })
    }

    fn windlass(replicas: i64, flags: &[&str]) -> Value {
        workload(
            "windlass-controller",
            &json!({"app.kubernetes.io/name": "windlass"}),
            replicas,
            flags,
        )
    }

    fn flux(name: &str) -> Value {
        workload(name, &json!({"app.kubernetes.io/part-of": "flux"}), 1, &[])
    }

    fn definition(crd: &CustomResourceDefinition) -> Value {
        let mut found = serde_json::to_value(crd).unwrap();
        found["status"] = json!({"conditions": [{"type": "Established", "status": "True"}]});
        found
    }

    /// The problems that `check` reports for a cluster with the CRDs and these objects.
    async fn findings(objects: &[Value], flags: &[&str]) -> Vec<String> {
        let crds = crds::all().into_iter().map(|(_, crd)| definition(&crd));
        findings_of(objects.iter().cloned().chain(crds).collect(), flags).await
    }

    async fn findings_of(objects: Vec<Value>, flags: &[&str]) -> Vec<String> {
        let args = <CheckTestCommand as clap::Parser>::try_parse_from([&["check"], flags].concat());
        let (cluster, _) = with_objects(objects).await;
        check(&cluster, "v1.34.0", &args.unwrap().args).await.0
    }

    #[tokio::test]
    async fn a_cluster_in_which_windlass_runs_alone_passes() {
        let other = flux("team-controller");
        assert_eq!(findings(&[windlass(1, &[]), other], &[]).await, [""; 0]);
    }

    #[tokio::test]
    async fn a_workload_that_is_scaled_to_zero_fails() {
        let found = findings(&[windlass(0, &[])], &[]).await;
        assert_eq!(found.len(), 1);
        assert!(found[0].contains("is scaled to zero, so nothing is reconciled"), "{found:?}");
        assert!(found[0].contains("kubectl -n flux-system scale deployment/windlass-controller"));
    }

    #[tokio::test]
    async fn a_process_outside_of_the_cluster_acts_in_place_of_a_workload_that_is_scaled_to_zero() {
        // The time is read at each use, because the Lease is valid for five seconds only.
        let now = || jiff::Timestamp::now().to_string();
        let held = |name: &str| operator_objects::lease(name, "laptop", &now());
        let own = || held("windlass-leader-election");
        assert_eq!(findings(&[windlass(0, &[]), own()], &[]).await, [""; 0]);
        assert_eq!(findings(&[own()], &[]).await, [""; 0]);
        let lease =
            operator_objects::lease("windlass-leader-election", "laptop", "2026-11-24T11:59:57Z");
        let lease = Object::new(lease).unwrap();
        let holder = LeaseHolder::of(&lease, "2026-11-24T12:00:00Z".parse().unwrap()).unwrap();
        let text = "'laptop', a process outside of the cluster, holds Lease flux-system/windlass-leader-election (renewed at \
                    2026-11-24T11:59:57Z, counts until 2026-11-24T12:00:32Z)";
        assert_eq!(held_outside(&holder), text);
        let ready = Object::new(windlass(1, &[])).unwrap();
        let ready = ready_in_words(&ready, Some(&holder));
        let begin = "Deployment/flux-system/windlass-controller ready: windlass:v1; its Pods are standbys and reconcile nothing";
        assert_eq!(ready, format!("{begin}: {text}"));
        // A Lease that is no longer held, or that is held by an ending Pod or for other objects.
        let old =
            operator_objects::lease("windlass-leader-election", "laptop", "2026-01-01T00:00:00Z");
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "laptop",
            "namespace": "flux-system", "labels": {"app.kubernetes.io/name": "windlass"}}});
        let shard = || windlass(0, &["--watch-label-selector=sharding.fluxcd.io/key=shard1"]);
        for objects in [
            vec![windlass(0, &[]), old],
            vec![windlass(0, &[]), own(), pod],
            vec![windlass(0, &[]), held("windlass-leader-election-73fdc1be")],
            vec![shard(), own()],
        ] {
            let found = findings(&objects, &[]).await;
            assert!(found.len() == 1 && found[0].contains("is scaled to zero"), "{found:?}");
        }
        let of_shard = [shard(), held("windlass-leader-election-73fdc1be")];
        assert_eq!(findings(&of_shard, &[]).await, [""; 0]);
    }

    #[tokio::test]
    async fn a_workload_that_is_ready_and_does_not_act_fails() {
        let lease = |holder: &str, renewed: &str| {
            operator_objects::lease("windlass-leader-election-73fdc1be", holder, renewed)
        };
        // The time is read at each use, because the Lease is valid for five seconds only.
        let now = || jiff::Timestamp::now().to_string();
        let elected = || windlass(1, &["--enable-leader-election"]);
        let old = || lease("a", "2026-01-01T00:00:00Z");
        let lapsed = [elected(), old()];
        let found = findings(&lapsed, &["--timeout=1ms"]).await;
        assert_eq!(found.len(), 1, "{found:?}");
        let text = "no process holds Lease flux-system/windlass-leader-election-73fdc1be since 2026-01-01T00:00:00Z";
        assert!(found[0].starts_with(text), "{found:?}");
        assert_eq!(findings(&[elected(), lease("a", &now())], &[]).await, [""; 0]);
        let found = findings(&[elected()], &["--timeout=1ms"]).await;
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("no process has acquired Lease flux-system/"), "{found:?}");
        // The installation needs no Lease, or has it in another namespace.
        assert_eq!(findings(&[windlass(1, &[]), old()], &[]).await, [""; 0]);
        let elsewhere = ["--enable-leader-election", "--leader-election-namespace=leases"];
        assert_eq!(findings(&[windlass(1, &elsewhere), old()], &[]).await, [""; 0]);
    }

    #[tokio::test]
    async fn a_process_that_was_killed_is_not_taken_for_one_that_acts() {
        let killed = jiff::Timestamp::now() - jiff::SignedDuration::from_secs(20);
        let held = |holder: &str| {
            operator_objects::lease("windlass-leader-election", holder, &killed.to_string())
        };
        let elected = windlass(1, &["--enable-leader-election"]);
        for objects in [vec![held("laptop")], vec![elected, held("windlass-controller-1")]] {
            let found = findings(&objects, &["--timeout=1ms"]).await;
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].contains("renewed Lease flux-system/"), "{found:?}");
        }
        // The Lease has expired meanwhile.
        let old = |holder: &str| {
            operator_objects::lease("windlass-leader-election", holder, "2026-01-01T00:00:00Z")
        };
        let found = findings(&[old("laptop")], &[]).await;
        assert!(found[0].contains("start windlass again where it ran as 'laptop'"), "{found:?}");
        let found = findings(&[old("windlass-controller-1")], &[]).await;
        assert!(found[0].contains("is not in namespace flux-system: run `windlass install`"));
    }

    #[tokio::test]
    async fn another_operator_fails_and_the_command_that_takes_over_is_named() {
        for name in ["kustomize-controller", "helm-controller-shard1"] {
            let found = findings(&[windlass(1, &[]), flux(name)], &[]).await;
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(
                found[0].starts_with(&format!("Deployment/flux-system/{name} has 1 replica(s)"))
            );
            assert!(found[0].contains("`windlass migrate from-flux -n flux-system`"), "{found:?}");
            // Before an installation, Flux is the operator that windlass will replace.
            assert_eq!(findings(&[flux(name)], &["--pre"]).await, [""; 0]);
        }
        let divided = windlass(1, &["--watch-label-selector=!sharding.fluxcd.io/key"]);
        assert_eq!(findings(&[divided, flux("kustomize-controller")], &[]).await, [""; 0]);
        let forwards = windlass(1, &["--events-addr=http://notification-controller/"]);
        let notifying = flux("notification-controller");
        assert_eq!(findings(&[forwards, notifying.clone()], &[]).await, [""; 0]);
        assert_eq!(findings(&[windlass(1, &[]), notifying], &[]).await.len(), 1);
        let mut second = windlass(1, &[]);
        second["metadata"]["namespace"] = json!("second");
        let found = findings(&[windlass(1, &[]), second], &[]).await;
        assert!(found[0].starts_with("Deployment/second/windlass-controller"), "{found:?}");
    }

    #[test]
    fn providers_whose_services_accept_nothing_are_named() {
        let incident = |name: &str| {
            let value = json!({"apiVersion": "notification.windlass.dev/v1alpha1", "kind": "Incident",
                "metadata": {"name": "a", "namespace": "apps"},
                "spec": {"subject": {"kind": "Provider", "name": name}}});
            Object::new(value).unwrap()
        };
        assert_eq!(undelivered(&[]), None);
        let text = undelivered(&[incident("chat"), incident("pager")]).unwrap();
        assert_eq!(
            text,
            "notifications are not delivered for Provider/apps/chat, Provider/apps/pager: `windlass why provider/chat -n \
             apps` says why"
        );
        let many: Vec<_> = (0..MAX_NAMED_PROVIDERS + 2).map(|_| incident("chat")).collect();
        assert!(undelivered(&many).unwrap().contains(" and 2 more: "));
    }

    #[tokio::test]
    async fn a_crd_that_is_deleted_or_not_established_fails() {
        let mut crds: Vec<Value> = crds::all().iter().map(|(_, crd)| definition(crd)).collect();
        crds[0]["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        crds[1]["status"] = json!({});
        crds.push(windlass(1, &[]));
        let found = findings_of(crds, &[]).await;
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("is being deleted") && found[1].contains("is not established"));
    }
}
