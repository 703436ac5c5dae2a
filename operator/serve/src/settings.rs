//! All flags of `windlass serve`, with the environment variables behind them.
//!
//! Here: flags that have an effect. Elsewhere: flags of the leader election ([`leader_election`]) and of pages
//! ([`web_pages`]), flags of Flux that have no effect or are refused ([`compatibility_flags`]), and feature gates
//! ([`feature_gates`]).
//!
//! All other modules get values and never read the environment. Names and defaults are those of Flux if Flux has the flag
//! (source: Flux 2.9, `--help` of its controllers). Only the default of `--concurrent-ssa` differs.

mod compatibility_flags;
mod feature_gates;
mod leader_election;
mod web_pages;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Command, FromArgMatches as _, ValueEnum};
use ipnet::IpNet;

use compatibility_flags::CompatibilityFlags;
pub use compatibility_flags::is_without_effect;
use feature_gates::FeatureGateFlag;
pub use leader_election::{LeaderElectionFlags, lease_name};
use objects::LabelSelector;
use url::Url;
pub use web_pages::WebPageFlags;

/// The settings with which the operator runs, from the flags of `windlass serve`.
#[derive(Debug, Clone, Args)]
pub struct OperatorSettings {
    /// Path to a kubeconfig; by default `$KUBECONFIG`, `~/.kube/config` or the ServiceAccount of the Pod
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// Directory in which artifacts are stored; it should survive restarts
    #[arg(long, default_value = "/data", env = "STORAGE_PATH", value_name = "DIR")]
    pub storage_path: PathBuf,

    /// Address on which artifacts are served and events are received
    #[arg(long, default_value = ":9090", env = "STORAGE_ADDRESS", value_parser = parse_address)]
    pub storage_addr: SocketAddr,

    /// Host and port advertised in artifact URLs; by default those of the storage address
    #[arg(long, env = "STORAGE_ADV_ADDR", value_name = "HOST:PORT")]
    pub storage_adv_addr: Option<String>,

    /// How long to retain superseded artifacts
    #[arg(long, default_value = "1m", value_parser = parse_duration)]
    pub artifact_retention_ttl: Duration,

    /// How many artifacts per object to retain after that time
    #[arg(long, default_value_t = 2)]
    pub artifact_retention_records: usize,

    /// Write a ReleaseAudit for each operation on a release and each applied revision
    #[arg(long, default_value = "true", value_name = "BOOL", action = clap::ArgAction::Set, num_args = 0..=1,
        default_missing_value = "true", value_parser = parse_bool)]
    pub release_audits: bool,

    /// How long to retain ReleaseAudits
    #[arg(long, default_value = "2160h", value_parser = parse_duration)]
    pub audit_retention_ttl: Duration,

    /// How many ReleaseAudits of an object to retain
    #[arg(long, default_value_t = 50)]
    pub audit_retention_records: usize,

    /// Bucket of S3 in which ReleaseAudits are stored before they are deleted
    #[arg(long, value_name = "s3://BUCKET/PREFIX")]
    pub audit_archive: Option<String>,

    /// Server of that bucket, with `http://` for one without TLS
    #[arg(long, default_value = "s3.amazonaws.com", value_name = "HOST")]
    pub audit_archive_endpoint: String,

    /// Region of that bucket
    #[arg(long, value_name = "REGION")]
    pub audit_archive_region: Option<String>,

    /// Hold deletions of Kustomizations and releases that are beyond the deletion budget until a user approves them;
    /// PlanPolicies have budgets by namespace
    #[arg(long, default_value = "true", value_name = "BOOL", action = clap::ArgAction::Set, num_args = 0..=1,
        default_missing_value = "true", value_parser = parse_bool)]
    pub deletion_budget: bool,

    /// Hold changes until a user approves their Plan where PlanPolicies or the annotation windlass.dev/plan ask for that
    #[arg(long, default_value = "true", value_name = "BOOL", action = clap::ArgAction::Set, num_args = 0..=1,
        default_missing_value = "true", value_parser = parse_bool)]
    pub plan_approval: bool,

    /// Maximum size of all artifacts in total, such as `10Gi`; 0 for no limit
    #[arg(long, default_value = "0", env = "STORAGE_SIZE_LIMIT", value_name = "BYTES", value_parser = parse_bytes)]
    pub storage_size_limit: u64,

    /// Address on which metrics are served
    #[arg(long, default_value = ":8080", env = "METRICS_ADDR", value_parser = parse_address)]
    pub metrics_addr: SocketAddr,

    /// Address on which /healthz and /readyz are served
    #[arg(long, default_value = ":9440", env = "HEALTH_ADDR", value_parser = parse_address)]
    pub health_addr: SocketAddr,

    /// Address to which events are posted, such as that of Flux's notification-controller. Then windlass itself neither
    /// sends notifications nor receives webhooks
    #[arg(long, default_value = "", env = "EVENTS_ADDR", value_name = "URL", hide_default_value = true,
        value_parser = parse_events_addr)]
    pub events_addr: EventsAddr,

    /// Address on which webhooks are received, unless --events-addr is set
    #[arg(long = "receiverAddr", default_value = ":9292", value_name = "ADDRESS", value_parser = parse_address)]
    pub receiver_addr: SocketAddr,

    /// How long the same event is not sent again; 0 for no limit
    #[arg(long, default_value = "5m", value_parser = parse_duration)]
    pub rate_limit_interval: Duration,

    /// Send incidents for all Alerts that do not have the annotation `windlass.dev/incidents`: a message when a failure begins
    /// and one when it ends, instead of one for each error
    #[arg(long)]
    pub incidents: bool,

    /// How long to retain Incidents that are resolved
    #[arg(long, default_value = "168h", value_parser = parse_duration)]
    pub incident_retention_ttl: Duration,

    /// How many Incidents that are resolved to retain in a namespace
    #[arg(long, default_value_t = 50)]
    pub incident_retention_records: usize,

    /// Watch all namespaces; `false` watches the namespace in `$RUNTIME_NAMESPACE` only
    #[arg(long, default_value = "true", value_name = "BOOL", action = clap::ArgAction::Set, num_args = 0..=1,
        default_missing_value = "true", value_parser = parse_bool)]
    pub watch_all_namespaces: bool,

    /// Reconcile only objects that match this label selector, such as `sharding.fluxcd.io/key=shard1`; others are still watched
    #[arg(long, default_value = "", value_name = "SELECTOR", hide_default_value = true,
        value_parser = LabelSelector::parse)]
    pub watch_label_selector: LabelSelector,

    /// Namespace in which windlass runs
    #[arg(long, env = "RUNTIME_NAMESPACE", default_value = "flux-system")]
    pub runtime_namespace: String,

    /// The value of --concurrent-source and --concurrent-kustomize where they are not given
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..))]
    concurrent: Option<u16>,

    /// How many sources and charts of one namespace to fetch concurrently; four times as many of all namespaces [default: 2]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..))]
    concurrent_source: Option<u16>,

    /// How many Kustomizations to build, helmfiles to read and releases to render concurrently, all of them together; applying and
    /// waiting do not count [default: 4]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..))]
    concurrent_kustomize: Option<u16>,

    /// No effect: --concurrent-kustomize limits the rendering of releases, too
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..))]
    concurrent_helm: Option<u16>,

    /// How many objects of one Kustomization or release to compare or apply concurrently
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..))]
    pub concurrent_ssa: u16,

    /// How often to check dependencies that are not ready, in addition to watching them
    #[arg(long, default_value = "30s", value_parser = parse_duration)]
    pub requeue_dependency: Duration,

    /// How long an object that is deleted waits for dependents in other namespaces, which have to be deleted first
    #[arg(long, default_value = "10m", value_parser = parse_duration)]
    pub reverse_delete_timeout: Duration,

    /// Delay after the first failed fetch; it doubles with each failure
    #[arg(long, default_value = "750ms", value_parser = parse_duration)]
    pub min_retry_delay: Duration,

    /// Maximum delay after failed fetches
    #[arg(long, default_value = "15m", value_parser = parse_duration)]
    pub max_retry_delay: Duration,

    /// Jitter of intervals, in percent
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u8).range(0..100))]
    pub interval_jitter_percentage: u8,

    /// Kinds to apply after CRDs and before all others, as a comma-separated list of `group/Kind`
    #[arg(long, value_delimiter = ',', value_parser = parse_group_kind)]
    pub custom_apply_stage_kinds: Vec<(String, String)>,

    /// Additional field managers whose fields to take over before an apply, besides those of kubectl
    #[arg(long)]
    pub override_manager: Vec<String>,

    /// Timeout for fetching an artifact from another shard
    #[arg(long, default_value = "30s", value_parser = parse_duration)]
    pub http_timeout: Duration,

    /// Reject references to objects in other namespaces
    #[arg(long, default_value = "false", value_name = "BOOL", action = clap::ArgAction::Set, num_args = 0..=1,
        default_missing_value = "true", value_parser = parse_bool)]
    pub no_cross_namespace_refs: bool,

    /// Fail builds without any objects if objects were applied before, instead of deleting all of them
    #[arg(long, default_value = "false", value_name = "BOOL", action = clap::ArgAction::Set, num_args = 0..=1,
        default_missing_value = "true", value_parser = parse_bool)]
    pub no_empty_builds: bool,

    /// Networks to which URLs in specs may resolve in spite of --no-cross-namespace-refs, such as the Service of a Git
    /// server; a comma-separated list
    #[arg(long, value_name = "CIDRS", value_delimiter = ',')]
    pub allow_source_cidrs: Vec<IpNet>,

    /// Allow URLs in specs to resolve to windlass itself and to its node; for tests
    #[arg(long, default_value = "false", value_name = "BOOL", action = clap::ArgAction::Set, num_args = 0..=1,
        default_missing_value = "true", value_parser = parse_bool)]
    pub allow_loopback_sources: bool,

    /// Reject remote bases in kustomizations
    #[arg(long, default_value = "false", value_name = "BOOL", action = clap::ArgAction::Set, num_args = 0..=1,
        default_missing_value = "true", value_parser = parse_bool)]
    pub no_remote_bases: bool,

    /// Allow remote bases on servers without public addresses, such as those in the cluster, also for Kustomizations
    /// that are applied as a ServiceAccount or to a remote cluster
    #[arg(long, default_value = "false", value_name = "BOOL", action = clap::ArgAction::Set, num_args = 0..=1,
        default_missing_value = "true", value_parser = parse_bool)]
    pub insecure_remote_bases: bool,

    /// Whether CustomResourceDefinitions are written and deleted only if the objects that exist stay as they are
    #[arg(long, default_value = "on")]
    pub crd_guard: CrdGuardMode,

    /// Which objects a Kustomization that waits judges by the built-in health rules: those in whose status a controller
    /// wrote nothing that kstatus knows, all of kinds with rules, or none
    #[arg(long, default_value = "unknown-kinds")]
    pub health_library: HealthLibraryMode,

    /// Let the annotations that loosen the guard of CustomResourceDefinitions count also for objects that are applied as
    /// a ServiceAccount
    #[arg(long, default_value = "false", value_name = "BOOL", action = clap::ArgAction::Set, num_args = 0..=1,
        default_missing_value = "true", value_parser = parse_bool)]
    pub tenant_crd_force: bool,

    /// ServiceAccount to impersonate for objects without spec.serviceAccountName
    #[arg(long, value_name = "NAME")]
    pub default_service_account: Option<String>,

    /// ServiceAccount for objects with spec.kubeConfig and without spec.serviceAccountName
    #[arg(long, value_name = "NAME")]
    pub default_kubeconfig_service_account: Option<String>,

    /// Secret in windlass's namespace with the age keys for Kustomizations whose spec.decryption names no Secret
    #[arg(long, value_name = "NAME")]
    pub sops_age_secret: Option<String>,

    /// Namespaces whose ImagePolicies choose only images that are signed with a key of --verify-images-secret, whatever their
    /// annotations say: a selector of the labels of Namespaces, such as `kubernetes.io/metadata.name in (apps,shop)`
    #[arg(long, value_name = "SELECTOR", requires = "verify_images_secret", value_parser = LabelSelector::parse)]
    pub verify_images_namespaces: Option<LabelSelector>,

    /// Secret in windlass's namespace with the public keys of cosign for --verify-images-namespaces
    #[arg(long, value_name = "NAME", requires = "verify_images_namespaces",
        value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub verify_images_secret: Option<String>,

    /// Allow exec plugins in kubeconfigs of objects
    #[arg(long, default_value = "false", value_name = "BOOL", action = clap::ArgAction::Set, num_args = 0..=1,
        default_missing_value = "true", value_parser = parse_bool)]
    pub insecure_kubeconfig_exec: bool,

    /// Allow kubeconfigs of objects to skip TLS verification
    #[arg(long, default_value = "false", value_name = "BOOL", action = clap::ArgAction::Set, num_args = 0..=1,
        default_missing_value = "true", value_parser = parse_bool)]
    pub insecure_kubeconfig_tls: bool,

    /// Feature gates as a comma-separated list of `Name=true`
    #[arg(long, value_name = "GATES", value_parser = FeatureGateFlag::parse)]
    feature_gates: Vec<FeatureGateFlag>,

    /// Log level: trace, debug, info or error
    #[arg(long, default_value = "info", env = "LOG_LEVEL")]
    pub log_level: LogLevel,

    /// Log format: json, or console for people
    #[arg(long, default_value = "json")]
    pub log_encoding: LogEncoding,

    /// How a leader is elected.
    #[command(flatten)]
    pub leader_election: LeaderElectionFlags,

    /// Pages for users who log in.
    #[command(flatten)]
    pub web_pages: WebPageFlags,

    /// What has no meaning here.
    #[command(flatten)]
    accepted: CompatibilityFlags,
}

/// Whether the operator guards the changes of CustomResourceDefinitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CrdGuardMode {
    /// They are.
    On,
    /// They are written and deleted as Flux does it.
    Off,
}

/// Whose health the built-in rules of kinds decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum HealthLibraryMode {
    /// That of objects with a status in which a controller wrote nothing that kstatus knows.
    UnknownKinds,
    /// That of all kinds with rules.
    Full,
    /// That of none: kstatus decides, as in Flux.
    Off,
}

/// Least important lines that are logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogLevel {
    /// All of it.
    Trace,
    /// For debugging.
    Debug,
    /// What happened.
    Info,
    /// What went wrong.
    Error,
}

/// How log lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogEncoding {
    /// One JSON object a line, as Flux's controllers write them.
    Json,
    /// For people.
    Console,
}

/// How many sources are fetched at once if no flag sets it.
const DEFAULT_CONCURRENT_SOURCES: u16 = 2;

/// How many Kustomizations, helmfiles and releases are built at once if no flag sets it.
const DEFAULT_CONCURRENT_APPLIERS: u16 = 4;

/// The reason why the number of workers for releases has no effect.
const NO_WORKERS: &str =
    "a release holds a permit only while it renders or writes, not while it waits";

impl OperatorSettings {
    /// How many sources and charts of one namespace are fetched at once.
    pub fn sources_at_once(&self) -> u16 {
        self.concurrent_source.or(self.concurrent).unwrap_or(DEFAULT_CONCURRENT_SOURCES)
    }

    /// How many Kustomizations are built, helmfiles are read and releases are rendered at once, in total.
    pub fn kustomizations_at_once(&self) -> u16 {
        self.concurrent_kustomize.or(self.concurrent).unwrap_or(DEFAULT_CONCURRENT_APPLIERS)
    }

    /// Whether this process sends notifications and receives webhooks. With `--events-addr`, the notification-controller does
    /// that.
    pub fn notifies(&self) -> bool {
        self.events_addr.0.is_none()
    }

    /// Whether an object with these labels belongs to the shard of this process.
    pub fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        self.watch_label_selector.selects(|key| labels.get(key).map(String::as_str))
    }

    /// The Secret with the keys for images of a namespace with these labels, which have to be signed. `None` if no flag
    /// requires a signature.
    pub fn image_verification_secret(&self, labels: &BTreeMap<String, String>) -> Option<&str> {
        let namespaces = self.verify_images_namespaces.as_ref()?;
        let is_selected = namespaces.selects(|key| labels.get(key).map(String::as_str));
        // An empty name finds no Secret, so no image is accepted as verified.
        is_selected.then(|| self.verify_images_secret.as_deref().unwrap_or_default())
    }

    /// Whether a variable without a value and a default is an error in post-build substitution.
    pub fn strict_substitutions(&self) -> bool {
        self.gate("StrictPostBuildSubstitutions").unwrap_or(true)
    }

    fn gate(&self, name: &str) -> Option<bool> {
        self.feature_gates.iter().rev().find_map(|gates| gates.value(name))
    }

    /// Whether a dependency with a `readyExpr` has to pass the usual check as well.
    pub fn ready_expr_is_additive(&self) -> bool {
        self.gate(feature_gates::ADDITIVE_CEL).unwrap_or(false)
    }

    /// Whether failed releases without a strategy for their actions are retried and not remediated.
    pub fn retries_on_failure(&self) -> bool {
        self.gate(feature_gates::RETRY_ON_FAILURE).unwrap_or(false)
    }

    /// Whether templates of releases may resolve host names by DNS.
    pub fn allows_dns_lookups(&self) -> bool {
        self.gate(feature_gates::DNS_LOOKUPS).unwrap_or(false)
    }

    /// Whether a Kustomization's wait for health ends as soon as one object has failed for good.
    pub fn fails_fast(&self) -> bool {
        !self.gate(feature_gates::NO_FAIL_FAST).unwrap_or(false)
    }

    /// Whether the version of a chart contains the digest of its artifact.
    pub fn tracks_chart_digests(&self) -> bool {
        !self.gate(feature_gates::NO_CHART_DIGEST).unwrap_or(false)
    }

    /// Whether releases use the defaults of Helm 3 if they do not say otherwise.
    pub fn has_helm3_defaults(&self) -> bool {
        self.gate(feature_gates::HELM3_DEFAULTS).unwrap_or(false)
    }

    /// Whether an ImageUpdateAutomation adds its commits to an existing push branch. Otherwise it starts from the branch that
    /// it checks out.
    pub fn continues_push_branches(&self) -> bool {
        self.gate(feature_gates::ALL_BRANCH_REFERENCES).unwrap_or(true)
    }

    /// Whether a push overwrites a push branch or a `push.refspec` reference that is not an ancestor of the new commit.
    pub fn forces_push_branches(&self) -> bool {
        self.gate(feature_gates::FORCE_PUSH_BRANCH).unwrap_or(true)
    }

    /// Flags and feature gates that were set but have no effect, each with the reason.
    pub fn without_meaning(&self) -> Vec<(String, &'static str)> {
        let gates = self.feature_gates.iter().flat_map(FeatureGateFlag::notes);
        let flags = self.accepted.notes().map(|(flag, why)| (flag.to_owned(), why));
        let helm =
            self.concurrent_helm.map(|number| (format!("--concurrent-helm={number}"), NO_WORKERS));
        flags.chain(helm).chain(gates).collect()
    }

    /// Parses the settings from flags of `windlass serve`.
    ///
    /// # Errors
    /// The message of the program about a wrong flag.
    pub fn from_flags<F: AsRef<str>>(flags: &[F]) -> Result<Self, clap::Error> {
        let command = Self::augment_args(Command::new("serve").no_binary_name(true));
        let matches = command.try_get_matches_from(flags.iter().map(AsRef::as_ref))?;
        Ok(Self::from_arg_matches(&matches)?.normalized())
    }

    /// The settings with every empty text removed, as if its flag was not set.
    #[must_use]
    pub fn normalized(mut self) -> Self {
        for text in [
            &mut self.storage_adv_addr,
            &mut self.default_service_account,
            &mut self.default_kubeconfig_service_account,
            &mut self.sops_age_secret,
        ] {
            *text = text.take().filter(|text| !text.is_empty());
        }
        self.feature_gates.retain(|gates| !gates.is_empty());
        self.override_manager.retain(|name| !name.is_empty());
        self.custom_apply_stage_kinds.retain(|(_, kind)| !kind.is_empty());
        self
    }
}

/// Parses `host:port`, or `:port` as in Go, which means every address.
fn parse_address(text: &str) -> Result<SocketAddr, String> {
    if let Some(port) = text.strip_prefix(':') {
        let port =
            port.parse().map_err(|_| format!("`{text}` has no port number after the colon"))?;
        return Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port));
    }
    text.parse().map_err(|_| format!("`{text}` is not an address such as 127.0.0.1:9090 or :9090"))
}

/// The URL to which events are posted. `None` if the flag is empty.
#[derive(Debug, Clone, Default)]
pub struct EventsAddr(pub Option<Url>);

fn parse_events_addr(text: &str) -> Result<EventsAddr, String> {
    if text.is_empty() {
        return Ok(EventsAddr::default());
    }
    let url = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
    url.map(|url| EventsAddr(Some(url))).ok_or_else(|| {
        format!("`{text}` is not a URL such as http://notification-controller.flux-system/")
    })
}

/// Parses a boolean as Go's flags do.
fn parse_bool(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(false),
        _ => Err(format!("`{text}` is neither true nor false")),
    }
}

/// Parses the duration of a flag in Go's format.
///
/// # Errors
/// The text is no valid duration, as a message for `clap`.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    reconcile::parse_duration(text).map_err(|e| e.to_string())
}

/// Parses a number of bytes. It may have a binary suffix of Kubernetes, such as `Gi`.
fn parse_bytes(text: &str) -> Result<u64, String> {
    let bad = || format!("`{text}` is not a number of bytes such as 1073741824, 512Mi or 10Gi");
    let suffixes = [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40)];
    let found =
        suffixes.iter().find_map(|(suffix, bits)| Some((text.strip_suffix(suffix)?, *bits)));
    let (number, bits) = found.unwrap_or((text, 0));
    let number: u64 = number.parse().map_err(|_| bad())?;
    number.checked_mul(1 << bits).ok_or_else(bad)
}

fn parse_group_kind(text: &str) -> Result<(String, String), String> {
    if text.is_empty() {
        return Ok((String::new(), String::new()));
    }
    let (group, kind) = text
        .split_once('/')
        .ok_or_else(|| format!("`{text}` is not group/Kind, such as apps/Deployment"))?;
    Ok((group.to_owned(), kind.to_owned()))
}

#[cfg(test)]
mod tests;
