//! Where a command about objects works: cluster, namespaces, time.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail, ensure};
use clap::Args;
use objects::Object;
use serde_json::Value;

use super::complete;
use super::kind_argument::ResourceArgument;
use windlass_cli_runtime::connection::{
    ApiServerUnreachable, ClusterAccessFlags, ProgressGlyph, block_on, say,
};
use windlass_cli_runtime::exit_code::ExitCode;
use windlass_cli_runtime::table::clean;
use windlass_cluster::discovery::ApiResourceLocation;
use windlass_cluster::object_pages::ObjectQuery;
use windlass_cluster::objects::ObjectPage;
use windlass_cluster::{ClusterConnection, ClusterError};
use windlass_serve::settings::parse_duration;

/// The cluster and the namespace.
#[derive(Debug, Clone, Args)]
pub(super) struct ClusterScope {
    #[command(flatten)]
    reach: ClusterAccessFlags,
    /// Namespace; by default that of the kubeconfig's context
    #[arg(
        short,
        long,
        value_name = "NAMESPACE",
        help_heading = "Cluster",
        add = complete::namespaces()
    )]
    namespace: Option<String>,
    /// How long the command may take; by default 5m, and without an end where changes are followed
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, help_heading = "Cluster")]
    pub(super) timeout: Option<Duration>,
}

/// How long a command may take that follows nothing.
const DEFAULT_COMMAND_TIMEOUT: Duration = Duration::from_secs(300);

/// The cluster, and one namespace of it or all.
#[derive(Debug, Clone, Args)]
pub(super) struct NamespaceScope {
    #[command(flatten)]
    pub(super) place: ClusterScope,
    /// In all namespaces
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub(super) all_namespaces: bool,
    /// Only objects whose labels match, such as `team=web,tier!=db`
    #[arg(
        short = 'l',
        long = "selector",
        alias = "label-selector",
        default_value = "",
        hide_default_value = true,
        value_name = "LABELS"
    )]
    pub(super) labels: String,
}

impl NamespaceScope {
    /// Refuses labels together with a name, as kubectl does.
    ///
    /// # Errors
    /// A target is one object, and there are labels.
    pub(super) fn check(&self, targets: &[ResourceArgument]) -> anyhow::Result<()> {
        let is_named = targets.iter().any(|target| target.name.is_some());
        ensure!(
            !is_named || self.labels.is_empty(),
            "-l selects among objects that are not named: leave out the name or -l"
        );
        Ok(())
    }

    /// What is said where there is nothing.
    pub(super) fn nothing(&self) -> String {
        let labels = if self.labels.is_empty() { "" } else { " with these labels" };
        match (self.all_namespaces, &self.place.namespace) {
            (true, _) => format!("no such objects{labels} in any namespace"),
            (false, Some(namespace)) => {
                format!("no such objects{labels} in namespace {namespace}; -A shows all namespaces")
            }
            (false, None) => format!(
                "no such objects{labels} in the namespace of the context; -n names another, -A shows all"
            ),
        }
    }
}

/// A cluster, and the namespace that a command is about.
pub(super) struct CommandScope {
    pub(super) cluster: ClusterConnection,
    /// Empty for all.
    pub(super) namespace: String,
}

impl ClusterScope {
    /// Runs a command about a namespace, within its time.
    ///
    /// # Errors
    /// That of the command, that the cluster cannot be reached, or that the time is over.
    pub(super) fn run<T>(
        &self,
        work: impl AsyncFnOnce(CommandScope) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        block_on(async {
            let limit = self.timeout.unwrap_or(DEFAULT_COMMAND_TIMEOUT);
            let begun = tokio::time::Instant::now();
            let site = opened_within(limit, self.open()).await?;
            let left = limit.saturating_sub(begun.elapsed());
            match tokio::time::timeout(left, work(site)).await {
                Ok(ended) => ended,
                Err(_elapsed) => {
                    bail!("the command took longer than {} s (--timeout)", limit.as_secs())
                }
            }
        })
    }

    /// The same for what follows changes: until the limit, if one is given.
    ///
    /// # Errors
    /// That of the command, or that the cluster cannot be reached.
    pub(super) fn follow(
        &self,
        work: impl AsyncFnOnce(CommandScope) -> anyhow::Result<ExitCode>,
    ) -> anyhow::Result<ExitCode> {
        block_on(async {
            let opening = self.timeout.unwrap_or(DEFAULT_COMMAND_TIMEOUT);
            let site = opened_within(opening, self.open()).await?;
            match self.timeout {
                Some(limit) => {
                    tokio::time::timeout(limit, work(site)).await.unwrap_or(Ok(ExitCode::Success))
                }
                None => work(site).await,
            }
        })
    }

    /// What -n says.
    pub(super) fn given_namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// Whether -n was given.
    pub(super) fn has_namespace(&self) -> bool {
        self.namespace.is_some()
    }

    async fn open(&self) -> anyhow::Result<CommandScope> {
        let (cluster, _) = self.reach.open().await?;
        let namespace = self.namespace.clone();
        let namespace = namespace.unwrap_or_else(|| cluster.default_namespace().to_owned());
        Ok(CommandScope { cluster, namespace })
    }
}

/// What opens a cluster, within the time of a command: an API server that has not answered until then cannot be reached.
///
/// # Errors
/// That of opening it, or that the time is over.
async fn opened_within<T>(
    limit: Duration,
    opening: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<T> {
    match tokio::time::timeout(limit, opening).await {
        Ok(opened) => opened,
        Err(_elapsed) => {
            let text = format!("the API server did not respond within {limit:?} (--timeout)");
            Err(anyhow!(text).context(ApiServerUnreachable))
        }
    }
}

impl CommandScope {
    /// The same cluster with all namespaces.
    pub(super) fn everywhere(self, all: bool) -> Self {
        if all { Self { namespace: String::new(), ..self } } else { self }
    }

    /// The same cluster, with this namespace or all.
    pub(super) fn within(&self, all: bool) -> Self {
        Self { cluster: self.cluster.clone(), namespace: self.namespace.clone() }.everywhere(all)
    }

    /// Where a command looks, for messages that nothing is there.
    pub(super) fn in_words(&self) -> String {
        match self.namespace.as_str() {
            "" => "in any namespace".to_owned(),
            namespace => format!("in namespace {namespace}; -A shows all namespaces"),
        }
    }

    /// The namespace of a target.
    pub(super) fn namespace_of<'a>(&'a self, target: &'a ResourceArgument) -> &'a str {
        match (target.resource.namespaced, &target.namespace) {
            (false, _) => "",
            (true, Some(namespace)) => namespace,
            (true, None) => &self.namespace,
        }
    }

    /// Hands every object of a kind to `each`, page by page.
    ///
    /// If a list of all namespaces is not allowed, each namespace is listed. Returns what was left out, in words.
    ///
    /// # Errors
    /// That of `each`, and every failure to list but missing rights.
    pub(super) async fn list(
        &self,
        target: &ResourceArgument,
        labels: &str,
        mut each: impl FnMut(Vec<Object>) -> anyhow::Result<()>,
    ) -> anyhow::Result<Vec<String>> {
        let namespace = self.namespace_of(target);
        match self.pages(&target.resource, namespace, labels, &mut each).await? {
            None => return Ok(Vec::new()),
            Some(refused) if !namespace.is_empty() || !target.resource.namespaced => {
                return Ok(vec![refused]);
            }
            Some(_) => {}
        }
        let namespaces = match self.namespaces().await {
            Ok(namespaces) => namespaces,
            Err(error) if error.code() == Some(403) => {
                let plural = plural_of(&target.resource);
                return Ok(vec![format!(
                    "{plural} of all namespaces: this user may list neither them nor namespaces; use -n"
                )]);
            }
            Err(error) => return Err(error).context("cannot list namespaces"),
        };
        let mut left_out = Vec::new();
        for namespace in namespaces {
            left_out.extend(self.pages(&target.resource, &namespace, labels, &mut each).await?);
        }
        Ok(left_out)
    }

    /// Hands every page to `each`; says what was refused.
    async fn pages(
        &self,
        resource: &ApiResourceLocation,
        namespace: &str,
        labels: &str,
        each: &mut impl FnMut(Vec<Object>) -> anyhow::Result<()>,
    ) -> anyhow::Result<Option<String>> {
        let query = ObjectQuery { namespace, label_selector: labels, ..ObjectQuery::all(resource) };
        let mut from = None;
        let mut limit = FIRST_PAGE;
        loop {
            match self.cluster.list_at_most(query, from.as_deref(), limit).await {
                Ok(ObjectPage { objects, next, bytes }) => {
                    limit = next_limit(objects.len(), bytes);
                    each(objects)?;
                    from = next;
                }
                Err(error) if error.code() == Some(403) => {
                    let place = match namespace {
                        "" => String::new(),
                        namespace => format!(" in namespace {namespace}"),
                    };
                    return Ok(Some(format!("{}{place}: {error}", plural_of(resource))));
                }
                Err(error) => {
                    return Err(error).with_context(|| format!("cannot list {}", resource.plural));
                }
            }
            if from.is_none() {
                return Ok(None);
            }
        }
    }

    async fn namespaces(&self) -> Result<Vec<String>, ClusterError> {
        let gvk = objects::Gvk::new("v1", "Namespace");
        let resource = self.cluster.resource(&gvk).await?;
        let listed = self.cluster.list(&resource, "", "").await?;
        Ok(listed.iter().map(|it| it.name().to_owned()).collect())
    }
}

/// The plural of a kind, with its group where another kind of windlass has the same.
fn plural_of(resource: &ApiResourceLocation) -> String {
    let plural = &resource.plural;
    let alike = crds::names().filter(|names| names.plural == plural).count();
    match alike {
        0 | 1 => plural.clone(),
        _ => format!("{plural}.{}", resource.gvk.group),
    }
}

/// How many objects the first page has at most, so that something is printed soon.
const FIRST_PAGE: usize = 50;

/// Most objects of a page.
const LARGEST_PAGE: usize = 500;

/// How long a page should be: read into memory it takes several times as much.
const PAGE_BYTES: usize = 2 << 20;

/// How many objects to ask for after a page of so many objects, which took so many bytes.
fn next_limit(objects: usize, bytes: usize) -> usize {
    let fitting = objects.saturating_mul(PAGE_BYTES) / bytes.max(1);
    fitting.clamp(8, LARGEST_PAGE)
}

/// Says what was left out because of missing rights, a line each; the exit status then says that something is missing.
pub(super) fn say_left_out(left_out: &[String]) {
    // Several parts of a command may have asked for the same.
    let mut said = BTreeSet::new();
    let left_out: Vec<&String> = left_out.iter().filter(|text| said.insert(*text)).collect();
    for text in left_out.iter().take(20) {
        say(ProgressGlyph::Warning, &format!("left out: {}", clean(text)));
    }
    if let Some(more) = left_out.len().checked_sub(20).filter(|more| *more > 0) {
        say(ProgressGlyph::Warning, &format!("left out: {more} more"));
    }
}

/// An object without what no person wants to read, and without the values of a Secret.
pub(super) fn shown(mut object: Object) -> Object {
    object.metadata_mut().remove("managedFields");
    if object.kind() == "Secret" && object.api_version() == "v1" {
        for field in ["data", "stringData"] {
            let entries = object.fields_mut().get_mut(field).and_then(Value::as_object_mut);
            for value in entries.into_iter().flat_map(serde_json::Map::values_mut) {
                *value = "****".into();
            }
        }
        if let Some(annotations) = object.metadata_mut().get_mut("annotations") {
            let annotations = annotations.as_object_mut();
            // It repeats the whole Secret.
            annotations.map(|it| it.remove("kubectl.kubernetes.io/last-applied-configuration"));
        }
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_followed_ends_at_the_limit_that_was_given() {
        use clap::{Command, FromArgMatches as _};
        let place = |line: &[&str]| {
            let command = ClusterScope::augment_args(Command::new("get").no_binary_name(true));
            ClusterScope::from_arg_matches(&command.get_matches_from(line)).unwrap()
        };
        assert_eq!(place(&[]).timeout, None);
        assert_eq!(place(&["--timeout", "3s"]).timeout, Some(Duration::from_secs(3)));
    }

    #[test]
    fn of_two_kinds_with_one_plural_the_group_is_named() {
        let of = |group: &str, plural: &str| {
            plural_of(&ApiResourceLocation {
                gvk: objects::Gvk::new(&format!("{group}/v1"), "Kind"),
                plural: plural.to_owned(),
                namespaced: true,
                watchable: true,
            })
        };
        let plain = of("kustomize.toolkit.fluxcd.io", "kustomizations");
        assert_eq!(plain, "kustomizations");
        let named = of("apps.mumoshu.github.io", "helmfiles");
        assert_eq!(named, "helmfiles.apps.mumoshu.github.io");
    }

    #[tokio::test]
    async fn an_api_server_that_does_not_answer_in_time_cannot_be_reached() {
        let within = Duration::from_millis(10);
        let silent = opened_within(within, std::future::pending::<anyhow::Result<()>>());
        let error = silent.await.unwrap_err();
        assert_eq!(ExitCode::of_failure(&error), ExitCode::ClusterUnreachable);
        let text = format!("{error:#}");
        assert!(text.ends_with("the API server did not respond within 10ms (--timeout)"), "{text}");
        let refused = opened_within(within, async { Err::<(), _>(anyhow!("no such context")) });
        assert_eq!(ExitCode::of_failure(&refused.await.unwrap_err()), ExitCode::Failed);
    }

    #[test]
    fn pages_are_as_long_as_fits_into_memory() {
        let kib = |each: usize, objects: usize| next_limit(objects, objects * (each << 10));
        assert_eq!(kib(1, FIRST_PAGE), LARGEST_PAGE);
        assert_eq!(kib(8, FIRST_PAGE), 256);
        assert_eq!(kib(1500, 8), 8);
        // A page may have no objects.
        assert_eq!(next_limit(0, 100), 8);
    }
}
