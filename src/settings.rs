//! Every flag of `windlass serve` and the environment variables behind them, once.
//!
//! Modules receive values; nothing else reads the environment.
//! Names and defaults are Flux's where Flux has the flag (source: Flux 2.9, `--help` of its controllers).

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

/// How the operator runs.
#[derive(Debug, Clone, Args)]
pub(crate) struct Settings {
    /// Kubeconfig to use; without it `$KUBECONFIG`, the user's file or the Pod's own account
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,

    /// Folder that keeps artifacts; it should outlive the process
    #[arg(long, default_value = "/data", env = "STORAGE_PATH", value_name = "DIR")]
    pub(crate) storage_path: PathBuf,

    /// Address on which artifacts are served
    #[arg(long, default_value = ":9090", env = "STORAGE_ADDR", value_parser = parse_address)]
    pub(crate) storage_addr: SocketAddr,

    /// Host and port that artifact URLs carry; by default those of the storage address
    #[arg(long, env = "STORAGE_ADV_ADDR", value_name = "HOST:PORT")]
    pub(crate) storage_adv_addr: Option<String>,

    /// How long an artifact that was replaced is kept
    #[arg(long, default_value = "1m", value_parser = parse_duration)]
    pub(crate) artifact_retention_ttl: Duration,

    /// How many artifacts of an object are kept beyond that time
    #[arg(long, default_value_t = 2)]
    pub(crate) artifact_retention_records: usize,

    /// Address on which metrics are served
    #[arg(long, default_value = ":8080", env = "METRICS_ADDR", value_parser = parse_address)]
    pub(crate) metrics_addr: SocketAddr,

    /// Address on which /healthz and /readyz are served
    #[arg(long, default_value = ":9440", env = "HEALTH_ADDR", value_parser = parse_address)]
    pub(crate) health_addr: SocketAddr,

    /// Watch every namespace; `false` watches the one that `$RUNTIME_NAMESPACE` names
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    pub(crate) watch_all_namespaces: bool,

    /// Namespace in which windlass itself runs
    #[arg(long, env = "RUNTIME_NAMESPACE", default_value = "flux-system")]
    pub(crate) runtime_namespace: String,

    /// How many sources are fetched at once
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) concurrent_source: u16,

    /// How many Kustomizations are built and applied at once; waiting ones do not count
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) concurrent_kustomize: u16,

    /// How many objects of one Kustomization are applied at once
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) concurrent_ssa: u16,

    /// When a dependency that is not ready is looked at again, should its wake-up be missed
    #[arg(long, default_value = "30s", value_parser = parse_duration)]
    pub(crate) requeue_dependency: Duration,

    /// First delay after a failed fetch; it doubles up to the longest
    #[arg(long, default_value = "750ms", value_parser = parse_duration)]
    pub(crate) min_retry_delay: Duration,

    /// Longest delay after failed fetches
    #[arg(long, default_value = "15m", value_parser = parse_duration)]
    pub(crate) max_retry_delay: Duration,

    /// How far intervals are spread, in percent
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u8).range(0..100))]
    pub(crate) interval_jitter_percentage: u8,

    /// Kinds applied between definitions and the rest, as `group/Kind`, separated by commas
    #[arg(long, value_delimiter = ',', value_parser = parse_group_kind)]
    pub(crate) custom_apply_stage_kinds: Vec<(String, String)>,

    /// Field managers whose fields are taken over before an apply, besides kubectl's
    #[arg(long)]
    pub(crate) override_manager: Vec<String>,

    /// References between objects of ours may not leave the namespace
    #[arg(long, default_value_t = false, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    pub(crate) no_cross_namespace_refs: bool,

    /// ServiceAccount in whose name objects are applied when spec.serviceAccountName is not set
    #[arg(long, value_name = "NAME")]
    pub(crate) default_service_account: Option<String>,

    /// Kubeconfigs from Secrets may switch off the check of the server's certificate
    #[arg(long, default_value_t = false, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    pub(crate) insecure_kubeconfig_tls: bool,

    /// Least important lines that are logged: trace, debug, info or error
    #[arg(long, default_value = "info", env = "LOG_LEVEL")]
    pub(crate) log_level: LogLevel,

    /// How log lines are written
    #[arg(long, default_value = "json")]
    pub(crate) log_encoding: LogEncoding,
}

/// Least important lines that are logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogLevel {
    /// Everything.
    Trace,
    /// What a developer asks for.
    Debug,
    /// What happened.
    Info,
    /// What went wrong.
    Error,
}

/// How log lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogEncoding {
    /// One JSON object a line, as Flux's controllers write them.
    Json,
    /// For people.
    Console,
}

/// Reads `host:port`, or Go's `:port` for every address.
fn parse_address(text: &str) -> Result<SocketAddr, String> {
    if let Some(port) = text.strip_prefix(':') {
        let port =
            port.parse().map_err(|_| format!("`{text}` has no port number after the colon"))?;
        return Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port));
    }
    text.parse().map_err(|_| format!("`{text}` is not an address such as 127.0.0.1:9090 or :9090"))
}

fn parse_duration(text: &str) -> Result<Duration, String> {
    reconcile::parse_duration(text).map_err(|e| e.to_string())
}

fn parse_group_kind(text: &str) -> Result<(String, String), String> {
    let (group, kind) = text
        .split_once('/')
        .ok_or_else(|| format!("`{text}` is not group/Kind, such as apps/Deployment"))?;
    Ok((group.to_owned(), kind.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_without_a_host_means_every_address() {
        assert_eq!(parse_address(":9090").unwrap().to_string(), "0.0.0.0:9090");
        assert_eq!(parse_address("127.0.0.1:0").unwrap().to_string(), "127.0.0.1:0");
        assert!(parse_address("nine").unwrap_err().contains("is not an address"));
    }
}
