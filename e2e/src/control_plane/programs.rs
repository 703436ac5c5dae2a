//! The command lines of the control plane's programs.
//!
//! Here: every flag, with the reason where it differs from a real cluster.
//! Elsewhere: the order of starting (`crate::control_plane`), the files (`state_folder`).

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use super::state_folder::{ControlPlaneStateFolder, write_private};
use testbed::binaries::{TestbedBinaries, testbed};

/// A program that is about to be started.
pub(super) struct ProgramLaunch {
    pub(super) name: &'static str,
    pub(super) command: Command,
}

/// The programs in the order in which they start: etcd, the API server, and the programs that need the API server. `ports` are
/// those of the API server, etcd for clients, etcd for peers, kwok, and the issuer of logins.
pub(super) fn all(
    state: &ControlPlaneStateFolder,
    binaries: &TestbedBinaries,
    ports: [u16; 5],
) -> Result<Vec<ProgramLaunch>> {
    let [api, etcd, peer, kwok, issuer] = ports;
    let program = |name: &'static str, flags: Vec<String>| -> Result<ProgramLaunch> {
        let mut command = Command::new(binaries.path(name)?);
        // Garbage collection is much of the work of the API server. This setting uses more memory to save time.
        command.env("GOGC", "200");
        // The programs must not read or write the home directory of the developer who runs the tests.
        command.args(flags).current_dir(state.folder()).env("HOME", state.folder());
        for proxy in ["HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "KUBECONFIG"] {
            command.env_remove(proxy);
        }
        Ok(ProgramLaunch { name, command })
    };
    Ok(vec![
        program("etcd", etcd_flags(state, etcd, peer))?,
        program("kube-apiserver", api_server_flags(state, [api, etcd, issuer])?)?,
        program("kube-controller-manager", controller_manager_flags(state))?,
        program("kube-scheduler", scheduler_flags(state)?)?,
        program("kwok", kwok_flags(state, kwok)?)?,
    ])
}

/// The data need not survive a power failure, so etcd does not sync to disk.
fn etcd_flags(state: &ControlPlaneStateFolder, client: u16, peer: u16) -> Vec<String> {
    vec![
        "--name=testbed".into(),
        format!("--data-dir={}", show(&state.folder().join("etcd"))),
        format!("--listen-client-urls=http://127.0.0.1:{client}"),
        format!("--advertise-client-urls=http://127.0.0.1:{client}"),
        format!("--listen-peer-urls=http://127.0.0.1:{peer}"),
        format!("--initial-advertise-peer-urls=http://127.0.0.1:{peer}"),
        format!("--initial-cluster=testbed=http://127.0.0.1:{peer}"),
        "--unsafe-no-fsync".into(),
        "--log-level=warn".into(),
        "--quota-backend-bytes=4294967296".into(),
        "--auto-compaction-mode=periodic".into(),
        "--auto-compaction-retention=5m".into(),
    ]
}

/// `ports` are those of the API server, etcd, and the issuer of logins.
fn api_server_flags(state: &ControlPlaneStateFolder, ports: [u16; 3]) -> Result<Vec<String>> {
    let [port, etcd, issuer] = ports;
    let pki = |name: &str| show(&state.pki().join(name));
    let policy = state.pki().join("audit-policy.yaml");
    // The audit log contains bodies only for the resources that stories compare with Plans, and the options of deletions, which
    // say whether a deletion is a dry run. With all bodies, the log would be too long.
    write_private(
        &policy,
        "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\n\
         rules:\n\
         - level: RequestResponse\n  omitManagedFields: true\n  verbs: [create, update, patch, delete]\n  \
         resources: [{group: \"\", resources: [configmaps]}]\n\
         - level: Request\n  verbs: [delete]\n\
         - level: Metadata\n",
    )?;
    Ok(vec![
        format!("--etcd-servers=http://127.0.0.1:{etcd}"),
        "--bind-address=127.0.0.1".into(),
        "--advertise-address=127.0.0.1".into(),
        format!("--secure-port={port}"),
        format!("--tls-cert-file={}", pki("api-server.crt")),
        format!("--tls-private-key-file={}", pki("api-server.key")),
        format!("--client-ca-file={}", pki("ca.crt")),
        format!("--token-auth-file={}", pki("tokens.csv")),
        "--service-account-issuer=https://kubernetes.default.svc".into(),
        format!("--service-account-key-file={}", pki("service-account.pub")),
        format!("--service-account-signing-key-file={}", pki("service-account.key")),
        // The API server tries to reach the issuer every ten seconds, until a story starts one.
        format!("--oidc-issuer-url={}", super::issuer_url(issuer)),
        format!("--oidc-client-id={}", super::LOGIN_CLIENT),
        format!("--oidc-ca-file={}", pki("ca.crt")),
        "--oidc-username-claim=sub".into(),
        "--oidc-username-prefix=oidc:".into(),
        "--oidc-groups-claim=groups".into(),
        "--oidc-groups-prefix=oidc:".into(),
        "--authorization-mode=RBAC".into(),
        "--service-cluster-ip-range=10.96.0.0/16".into(),
        // Loopback is not allowed as an endpoint of a Service, and no client calls the API through its Service.
        "--endpoint-reconciler-type=none".into(),
        "--allow-privileged=true".into(),
        // Without this flag, the node would stay tainted, because the node lifecycle controller does not run.
        "--disable-admission-plugins=TaintNodesByCondition".into(),
        // The name of the node does not resolve, so the API server reads logs from the address of the node.
        "--kubelet-preferred-address-types=InternalIP".into(),
        format!("--audit-policy-file={}", show(&policy)),
        format!("--audit-log-path={}", show(&state.audit_log())),
        "--audit-log-maxsize=200".into(),
        "--audit-log-maxbackup=1".into(),
        "--profiling=false".into(),
        // Some public repositories scale workloads to zero. A replay of their commits has to apply that.
        "--feature-gates=HPAScaleToZero=true".into(),
        "--shutdown-delay-duration=0s".into(),
        "--event-ttl=15m".into(),
    ])
}

fn controller_manager_flags(state: &ControlPlaneStateFolder) -> Vec<String> {
    let pki = |name: &str| show(&state.pki().join(name));
    vec![
        format!("--kubeconfig={}", pki("controller-manager.kubeconfig")),
        "--secure-port=0".into(),
        "--leader-elect=false".into(),
        format!("--root-ca-file={}", pki("ca.crt")),
        format!("--service-account-private-key-file={}", pki("service-account.key")),
        "--service-cluster-ip-range=10.96.0.0/16".into(),
        "--allocate-node-cidrs=false".into(),
        "--kube-api-qps=300".into(),
        "--kube-api-burst=600".into(),
        "--concurrent-namespace-syncs=20".into(),
        // The bed has no real machines, disks or metrics, so controllers for them would only cost time.
        "--controllers=*,-node-lifecycle-controller,-node-ipam-controller,\
         -node-route-controller,-cloud-node-lifecycle-controller,-ttl-controller,\
         -persistentvolume-attach-detach-controller,-horizontal-pod-autoscaler-controller"
            .into(),
        "--profiling=false".into(),
    ]
}

fn scheduler_flags(state: &ControlPlaneStateFolder) -> Result<Vec<String>> {
    let config = state.pki().join("scheduler.yaml");
    let kubeconfig = show(&state.pki().join("scheduler.kubeconfig"));
    write_private(
        &config,
        &format!(
            "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n\
             leaderElection: {{leaderElect: false}}\n\
             clientConnection: {{kubeconfig: {kubeconfig:?}, qps: 300, burst: 600}}\n"
        ),
    )?;
    Ok(vec![format!("--config={}", show(&config)), "--secure-port=0".into()])
}

/// kwok also acts as the kubelet of the node, so reading logs works. Every container has printed the same line, except those of
/// [`PRINTED`].
fn kwok_flags(state: &ControlPlaneStateFolder, port: u16) -> Result<Vec<String>> {
    let pki = |name: &str| show(&state.pki().join(name));
    let mut logs = String::new();
    let line = "this container exists on the test bed only";
    for (name, lines) in PRINTED.into_iter().chain([("", [line].as_slice())]) {
        let log = state.pki().join(format!("container{name}.log"));
        let at = |second: usize| format!("2026-01-01T00:00:{second:02}.000000000Z");
        let lines = lines.iter().enumerate();
        let text: Vec<String> =
            lines.map(|(second, line)| format!("{} stdout F {line}\n", at(second))).collect();
        write_private(&log, &text.concat())?;
        let containers = if name.is_empty() { vec![] } else { vec![name] };
        let file = show(&log);
        logs += &format!(
            "  - {{containers: {containers:?}, logsFile: {file:?}, previousLogsFile: {file:?}}}\n"
        );
    }
    let config = state.pki().join("kwok-logs.yaml");
    let about = "apiVersion: kwok.x-k8s.io/v1alpha1\nkind: ClusterLogs\nmetadata: {name: all}\n";
    write_private(&config, &format!("{about}spec:\n  logs:\n{logs}"))?;
    let logs = config;
    Ok(vec![
        format!("--kubeconfig={}", pki("kwok.kubeconfig")),
        format!("--config={}", show(&testbed().join("kwok/stages.yaml"))),
        format!("--config={}", show(&logs)),
        "--manage-all-nodes".into(),
        "--cidr=10.64.0.1/16".into(),
        "--node-ip=127.0.0.1".into(),
        format!("--node-port={port}"),
        format!("--server-address=127.0.0.1:{port}"),
        format!("--tls-cert-file={}", pki("api-server.crt")),
        format!("--tls-private-key-file={}", pki("api-server.key")),
        "--node-lease-duration-seconds=200".into(),
    ])
}

/// The log lines of containers with these names: windlass (`manager`) about objects of the namespace `apps`, and a container
/// that sends control sequences to the terminal.
const PRINTED: [(&str, &[&str]); 2] = [
    (
        "manager",
        &[
            r#"{"ts":"2026-01-01T00:00:00.000Z","level":"info","msg":"started","version":"1.0.0"}"#,
            r#"{"ts":"2026-01-01T00:00:01.000Z","level":"info","msg":"applied","controllerKind":"Kustomization","namespace":"apps","name":"web"}"#,
            r#"{"ts":"2026-01-01T00:00:02.000Z","level":"error","msg":"the build failed: \u001b[2J","controllerKind":"Kustomization","namespace":"apps","name":"shop"}"#,
            r#"{"ts":"2026-01-01T00:00:03.000Z","level":"debug","msg":"rendered","controllerKind":"HelmRelease","namespace":"apps","name":"web"}"#,
            "thread 'main' panicked",
        ],
    ),
    ("noisy", &["\u{1b}[31mred\u{1b}[2J", "    at main \u{202e}\u{7}"]),
];

fn show(path: &Path) -> String {
    path.display().to_string()
}
