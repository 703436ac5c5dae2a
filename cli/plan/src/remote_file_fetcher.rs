//! Fetches data on other servers that files of a revision name: bases of kustomizations, and addresses in helmfiles. It uses no
//! credentials, reaches only hosts that the user allows, and has one budget for all requests.
//!
//! Elsewhere: charts (`chart_fetch.rs`), fetching (`sources::remote_bases`, `sources::go_getter`), the hosts that requests may
//! reach (`http_client::EgressRules`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use git::{GitOperationContext, GitServerCache};
use http_client::{EgressHostList, EgressRules, HostBudgets};
use parking_lot::Mutex;
use plan::UnknownValue;
use sources::bucket::BucketClientCache;
use sources::go_getter::{GoGetterLimits, GoGetterRequest, HelmfileGetter};
use sources::remote_bases::{RemoteBaseLimits, ResolvedRemoteBase, without_credentials};
use tokio::runtime::{Builder, Runtime};
use tokio_util::sync::CancellationToken;
use tree::MemoryTree;
use url::Url;

use super::render_failure::RenderFailure;
use windlass_cli_runtime::connection::{ProgressGlyph, say};
use windlass_runtime::shared_build_parts::remote_base_access::{
    CommandRemoteBaseRules, RemoteBaseAccess,
};
use windlass_serve::settings::OperatorSettings;

/// The maximum number of addresses of one plan.
const MAX_ADDRESSES: usize = 256;

/// The maximum number of bytes that one plan receives. Builds that run at the same time may exceed it.
const MAX_RECEIVED_BYTES: u64 = 512 << 20;

/// How long fetching the bases of one build, or one address of a helmfile, may take.
const FETCH_TIMEOUT: Duration = Duration::from_secs(60);

/// The number of characters of a commit hash.
const COMMIT_CHARACTERS: usize = 40;

/// The files at an address of a helmfile, or the reason why they were not fetched.
type HelmfileAddressFetchResult = Result<MemoryTree, RenderFailure>;

/// The requests of this run so far.
#[derive(Default)]
struct RemoteUsage {
    addresses: BTreeSet<String>,
    received: u64,
    /// The revisions of bases when they were first fetched, by address and reference.
    revisions: BTreeMap<RemoteBaseKey, String>,
}

/// The key of a base: its address and reference.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct RemoteBaseKey {
    address: String,
    reference: String,
}

/// The servers of the allowed hosts. Nothing is kept after the command.
pub(crate) struct RemoteFileFetcher {
    hosts: Arc<EgressHostList>,
    servers: Arc<GitServerCache>,
    usage: Mutex<RemoteUsage>,
    /// The fetched addresses of helmfiles. Each is fetched once, so both revisions see the same files.
    addresses: Mutex<BTreeMap<String, HelmfileAddressFetchResult>>,
    /// The runtime of the connections.
    runtime: Runtime,
}

impl RemoteFileFetcher {
    /// Makes the servers. Requests reach only these hosts, even if a redirect names another one.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub(crate) fn new(hosts: Vec<String>) -> anyhow::Result<Self> {
        let hosts = Arc::new(EgressHostList::new(hosts));
        let egress = EgressRules::Listed(hosts.clone());
        let budgets = Arc::new(HostBudgets::within(egress.clone()));
        let servers = Arc::new(GitServerCache::within(egress).sharing(budgets));
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
        Ok(Self {
            hosts,
            servers,
            usage: Mutex::default(),
            addresses: Mutex::default(),
            runtime: runtime.context("cannot start a thread")?,
        })
    }

    fn git(&self) -> GitOperationContext {
        GitOperationContext {
            runtime: self.runtime.handle().clone(),
            cancel: CancellationToken::new(),
            scratch: std::env::temp_dir(),
            known: self.servers.clone(),
        }
    }

    /// How many bytes may still be received.
    fn bytes_left(&self) -> u64 {
        MAX_RECEIVED_BYTES.saturating_sub(self.usage.lock().received)
    }

    fn count_received(&self, bytes: u64) {
        let mut usage = self.usage.lock();
        usage.received = usage.received.saturating_add(bytes);
    }

    /// Checks whether an address may be fetched.
    fn admit(&self, address: &str) -> Result<(), RenderFailure> {
        let url = Url::parse(address).ok();
        let url = url.filter(|url| matches!(url.scheme(), "http" | "https"));
        let Some(url) = url else {
            let why = "it was not fetched: this command fetches from http:// and https:// only";
            return Err(RenderFailure::NotFetched(why.to_owned()));
        };
        let host = url.host_str().unwrap_or_default();
        if !self.hosts.has(host) {
            let why = format!("it was not fetched: allow its host with --allow-hosts={host}");
            return Err(RenderFailure::NotFetched(why));
        }
        let mut usage = self.usage.lock();
        let is_new = !usage.addresses.contains(address);
        if is_new && usage.addresses.len() >= MAX_ADDRESSES {
            let why =
                format!("it was not fetched: the limit of {MAX_ADDRESSES} addresses was reached");
            return Err(RenderFailure::Interruption(why));
        }
        if usage.received >= MAX_RECEIVED_BYTES {
            return Err(RenderFailure::Interruption(format!(
                "it was not fetched: the limit of {MAX_RECEIVED_BYTES} received bytes was reached"
            )));
        }
        if is_new {
            usage.addresses.insert(address.to_owned());
            let progress = format!("fetching {}", without_credentials(address));
            say(ProgressGlyph::Action, &plan::clean_line(&progress));
        }
        Ok(())
    }

    /// Returns the files at an address of a helmfile.
    ///
    /// # Errors
    /// The host is not allowed, or the address cannot be fetched.
    pub(crate) fn address(&self, request: &GoGetterRequest) -> HelmfileAddressFetchResult {
        let (url, parts) = match request {
            GoGetterRequest::Git { url, folder, reference } => {
                (url, [folder.as_str(), reference.as_str()])
            }
            GoGetterRequest::File { url, name } => (url, [name.as_str(), "file"]),
            GoGetterRequest::Archive { url, folder } => (url, [folder.as_str(), "archive"]),
            GoGetterRequest::Object { .. } => {
                return Err(RenderFailure::NotFetched("buckets are not read".to_owned()));
            }
        };
        let key = [&[url.as_str()][..], &parts].concat().join("\n");
        // The lock is held during the fetch, so each address is fetched once.
        let mut addresses = self.addresses.lock();
        if let Some(known) = addresses.get(&key) {
            return known.clone();
        }
        let fetched = self.admit(url).and_then(|()| self.fetch(request));
        let shown = without_credentials(url);
        let named = |why: String| format!("{shown}: {why}");
        let fetched = fetched.map_err(|failure| failure.with_text(named));
        addresses.insert(key, fetched.clone());
        fetched
    }

    fn fetch(&self, request: &GoGetterRequest) -> HelmfileAddressFetchResult {
        let limits = GoGetterLimits::default();
        let limits =
            GoGetterLimits { time: FETCH_TIMEOUT, bytes: limits.bytes.min(self.bytes_left()) };
        let buckets = Arc::new(BucketClientCache::default());
        let fetched = HelmfileGetter { git: self.git(), buckets, limits }.get(request, None);
        let fetched = fetched.map_err(RenderFailure::Interruption)?;
        let no_content =
            || RenderFailure::Interruption("the server returned no content".to_owned());
        let files = fetched.ok_or_else(no_content)?.files;
        self.count_received(files.bytes());
        Ok(files)
    }

    /// The access to remote bases for a build, according to its rules.
    pub(crate) fn base_access(
        rules: &Arc<BuildRemoteBaseRules>,
        settings: &OperatorSettings,
    ) -> RemoteBaseAccess {
        let servers = &rules.servers;
        let limits = RemoteBaseLimits::default();
        let limits = RemoteBaseLimits {
            time: FETCH_TIMEOUT,
            bytes: limits.bytes.min(servers.bytes_left()),
            ..limits
        };
        RemoteBaseAccess::of_command(servers.git(), limits, rules.clone(), settings)
    }
}

/// The rules and results of one build's remote bases.
pub(crate) struct BuildRemoteBaseRules {
    servers: Arc<RemoteFileFetcher>,
    notes: Mutex<Vec<UnknownValue>>,
    /// Whether a base was not fetched because its host is not allowed.
    lacks_base: AtomicBool,
    /// Whether the build asked a server for a base, or was stopped by a limit of the command.
    asks_servers: AtomicBool,
}

impl BuildRemoteBaseRules {
    /// Starts without any fetched bases.
    pub(crate) fn new(servers: &Arc<RemoteFileFetcher>) -> Arc<Self> {
        let servers = servers.clone();
        Arc::new(Self {
            servers,
            notes: Mutex::default(),
            lacks_base: AtomicBool::default(),
            asks_servers: AtomicBool::default(),
        })
    }

    /// Makes the failure of a build with this error text. A base that is not fetched ends the build. If the build asked
    /// servers, their answers may be the cause.
    pub(crate) fn failure(&self, text: String) -> RenderFailure {
        let [lacks_base, asks_servers] =
            [&self.lacks_base, &self.asks_servers].map(|it| it.load(Ordering::Relaxed));
        match (lacks_base, asks_servers) {
            (true, _) => RenderFailure::NotFetched(text),
            (false, true) => RenderFailure::Interruption(text),
            (false, false) => RenderFailure::Failed(text),
        }
    }

    /// Notes about bases that the cluster will fetch again.
    pub(crate) fn notes(&self) -> Vec<UnknownValue> {
        self.notes.lock().clone()
    }
}

impl CommandRemoteBaseRules for BuildRemoteBaseRules {
    fn admit(&self, address: &str) -> Result<(), String> {
        let admitted = self.servers.admit(address);
        let lacks_base = admitted.as_ref().is_err_and(RenderFailure::is_not_fetched);
        let flag = if lacks_base { &self.lacks_base } else { &self.asks_servers };
        flag.store(true, Ordering::Relaxed);
        admitted.map_err(RenderFailure::into_text)
    }

    fn note(&self, bases: Vec<ResolvedRemoteBase>, received: u64) {
        self.servers.count_received(received);
        let mut usage = self.servers.usage.lock();
        let mut notes = self.notes.lock();
        for ResolvedRemoteBase { address, reference, revision } in bases {
            let key = RemoteBaseKey { address: address.clone(), reference: reference.clone() };
            let first = usage.revisions.entry(key).or_insert_with(|| revision.clone());
            let is_moved = *first != revision;
            notes.extend(base_note(&address, &reference, &revision, is_moved));
        }
    }
}

/// The note that the cluster may fetch another version of a base. `None` for a base that is pinned to a commit.
fn base_note(
    address: &str,
    reference: &str,
    revision: &str,
    is_moved: bool,
) -> Option<UnknownValue> {
    if reference.len() == COMMIT_CHARACTERS && reference == revision {
        return None;
    }
    let named = if reference.is_empty() { String::new() } else { format!("?ref={reference}") };
    let advice = match revision.starts_with("sha256:") {
        true => "",
        false => "; name a commit in `ref` to pin it",
    };
    let moved = match is_moved {
        true => "; it changed while this command ran",
        false => "",
    };
    Some(UnknownValue {
        what: format!("remote base {address}{named}"),
        reason: format!(
            "it was {revision} for this plan, and the cluster fetches it anew{moved}{advice}"
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_host_is_reached_that_is_not_allowed() {
        let servers = RemoteFileFetcher::new(vec!["git.example.com".to_owned()]).unwrap();
        let file = |url: &str| GoGetterRequest::File { url: url.to_owned(), name: "a".to_owned() };
        let failure = |url: &str| servers.address(&file(url)).unwrap_err();
        assert!(failure("https://evil.example.com/a").is_not_fetched());
        let error = |url: &str| failure(url).into_text();
        assert_eq!(
            error("https://evil.example.com/a"),
            "https://evil.example.com/a: it was not fetched: allow its host with \
             --allow-hosts=evil.example.com"
        );
        assert!(error("ssh://git.example.com/a").contains("https:// only"));
        assert!(!error("https://user:hunter2@evil.example.com/a").contains("hunter2"));
        let [region, bucket, key] = ["", "b", "k"].map(str::to_owned);
        let object = GoGetterRequest::Object { region, bucket, key };
        assert_eq!(servers.address(&object).unwrap_err().text(), "buckets are not read");
    }

    #[test]
    fn the_addresses_of_a_plan_are_limited_and_each_counts_once() {
        let servers = RemoteFileFetcher::new(vec!["git.example.com".to_owned()]).unwrap();
        let nth = |at: usize| format!("https://git.example.com/{at}");
        for at in 0..MAX_ADDRESSES {
            assert_eq!(servers.admit(&nth(at)), Ok(()));
        }
        assert_eq!(servers.admit(&nth(0)), Ok(()));
        let refusal = |at: usize| servers.admit(&nth(at)).unwrap_err();
        assert!(refusal(MAX_ADDRESSES).text().contains("limit"));
        // A limit of the command must not be reported as a host that the user did not allow.
        assert!(!refusal(MAX_ADDRESSES).is_not_fetched());
        servers.count_received(MAX_RECEIVED_BYTES);
        assert!(refusal(0).text().contains("received bytes"));
    }

    #[test]
    fn a_build_that_fails_after_it_asked_a_server_may_have_failed_because_of_it() {
        let servers = Arc::new(RemoteFileFetcher::new(vec!["git.example.com".to_owned()]).unwrap());
        let failure = |addresses: &[&str]| {
            let rules = BuildRemoteBaseRules::new(&servers);
            let admitted = addresses.iter().filter(|it| rules.admit(it).is_ok()).count();
            (admitted, rules.failure("it fails".to_owned()))
        };
        let text = || "it fails".to_owned();
        assert_eq!(failure(&[]), (0, RenderFailure::Failed(text())));
        let allowed = "https://git.example.com/a";
        assert_eq!(failure(&[allowed]), (1, RenderFailure::Interruption(text())));
        let both = [allowed, "https://evil.example.com/a"];
        assert_eq!(failure(&both), (1, RenderFailure::NotFetched(text())));
    }

    #[test]
    fn a_base_that_the_cluster_fetches_anew_is_noted_with_what_it_was() {
        let servers = Arc::new(RemoteFileFetcher::new(Vec::new()).unwrap());
        let rules = BuildRemoteBaseRules::new(&servers);
        let commit = "0123456789012345678901234567890123456789";
        let base = |reference: &str, revision: &str| ResolvedRemoteBase {
            address: "https://git.example.com/a".to_owned(),
            reference: reference.to_owned(),
            revision: revision.to_owned(),
        };
        rules.note(vec![base(commit, commit), base("main", commit), base("main", "other")], 3);
        let notes = rules.notes();
        let whats: Vec<&str> = notes.iter().map(|it| it.what.as_str()).collect();
        assert_eq!(whats, ["remote base https://git.example.com/a?ref=main"; 2]);
        assert!(notes[0].reason.starts_with(&format!("it was {commit} ")), "{notes:?}");
        assert!(!notes[0].reason.contains("changed") && notes[1].reason.contains("changed"));
        assert_eq!(servers.bytes_left(), MAX_RECEIVED_BYTES - 3);
    }
}
