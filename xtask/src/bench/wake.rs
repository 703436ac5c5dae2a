//! How soon windlass acts when nothing but a wake-up can make it act: every interval is ten minutes.
//!
//! Here: a chain of Kustomizations, and what is done to it.
//! Elsewhere: seeing a commit arrive (`super::arrivals`), starting everything (`crate::installation`), judging the times (`super::samples`).
//!
//! All moments are taken in this process, when a watch delivers an object; an edit begins just before its request
//! is sent. So the times contain the API server's share and are an upper limit of windlass's own.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use clap::Args;
use e2e::git_server::Repository;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use tokio::runtime::Runtime;

use super::arrivals::Arrivals;
use super::samples::{self, Samples};
use crate::installation::{Build, Installation, Seen, Selection, Watch};
use crate::progress::step;

/// How many Kustomizations depend on each other in a row.
const HOPS: usize = 10;

/// The promise: 95 of 100 wake-ups take less than this.
const PROMISE: Duration = Duration::from_secs(1);

/// A fetch and ten hops, one after the other: each of them may take what it was promised.
const CHAIN_PROMISE: Duration = Duration::from_secs(11);

/// When waiting for something ends in failure. Far below the ten minutes after which it would happen by itself.
const LIMIT: Duration = Duration::from_secs(60);

const NAMESPACE: &str = "bench";

/// What is measured how often, with which build.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// How many objects are edited, and how many deleted, by hand
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..))]
    count: u16,
    /// How many commits are made
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..))]
    commits: u16,
    /// Measure the program as it is shipped
    #[arg(long)]
    release: bool,
}

/// Measures and prints the table.
///
/// # Errors
/// When something did not happen, or was slower than promised.
pub(super) fn run(options: &Options) -> anyhow::Result<()> {
    let build = if options.release { Build::Release } else { Build::Debug };
    let runtime = Runtime::new().context("cannot start the runtime")?;
    let installation = Installation::start(&runtime, build, &["--requeue-dependency=10m"])?;
    let repository = installation.git().repository("chain")?;
    let load = samples::load();
    let mut bench = Bench { installation, repository, round: 0 };
    let measured = bench.measure(&runtime, options);
    let all = measured.map_err(|error| bench.installation.explain(&error))?;
    samples::print(&all);
    samples::print_machine(&load);
    if !all.iter().all(Samples::passes) {
        bail!("a promise was not kept");
    }
    Ok(())
}

struct Bench {
    installation: Installation,
    repository: Repository,
    /// Counts the commits; the objects carry the number.
    round: u32,
}

impl Bench {
    fn measure(&mut self, runtime: &Runtime, options: &Options) -> anyhow::Result<Vec<Samples>> {
        let mut first = Samples::new("next of the chain Ready after its dependency", PROMISE);
        let mut next = Samples::new("the same, when a commit changes all of them", PROMISE);
        let mut edited = Samples::new("object edited by hand put back", PROMISE);
        let mut deleted = Samples::new("object deleted by hand created again", PROMISE);
        let mut fetched = Samples::new("commit announced, its artifact there", PROMISE);
        let mut commits =
            Samples::new("commit applied by all ten of the chain (a sum)", CHAIN_PROMISE);
        let what = format!("a chain of {HOPS}");
        step(&what, || {
            let arrivals = runtime.block_on(self.install())?;
            arrivals.hops().for_each(|hop| first.add(hop));
            Ok(())
        })?;
        step(&format!("{0} edits and {0} deletions by hand", options.count), || {
            for number in 0..usize::from(options.count) {
                edited.add(runtime.block_on(self.edit(number))?);
                deleted.add(runtime.block_on(self.delete(number))?);
            }
            Ok(())
        })?;
        step(&format!("{} commits", options.commits), || {
            for _ in 0..options.commits {
                let (begun, arrivals) = runtime.block_on(self.push())?;
                arrivals.hops().for_each(|hop| next.add(hop));
                fetched.add(arrivals.fetched.saturating_duration_since(begun));
                commits.add(arrivals.all_since(begun));
            }
            Ok(())
        })?;
        self.installation.check()?;
        Ok(vec![first, next, edited, deleted, fetched, commits])
    }

    /// Makes the chain, then the source that it waits for.
    async fn install(&mut self) -> anyhow::Result<Arrivals> {
        let commit = self.commit()?;
        self.installation.kubectl(&["create", "namespace", NAMESPACE])?;
        self.apply("chain.yaml", &chain())?;
        let mut watch = self.watch_chain().await?;
        // Each has seen that its source is missing; from here on only wake-ups can help.
        let mut told = BTreeSet::new();
        while told.len() < HOPS {
            let seen =
                watch.next("the chain to wait for its source", Instant::now() + LIMIT).await?;
            if !seen.message().is_empty() {
                told.insert(seen.name);
            }
        }
        let url = self.installation.git().url(&self.repository);
        self.apply("source.yaml", &SOURCE.replace("URL", &url))?;
        Arrivals::of(&commit, HOPS, &mut watch, LIMIT).await
    }

    /// Commits a change to every object, and says that there is something new.
    async fn push(&mut self) -> anyhow::Result<(Instant, Arrivals)> {
        let mut watch = self.watch_chain().await?;
        watch.forget();
        let commit = self.commit()?;
        let annotations = json!({"reconcile.fluxcd.io/requestedAt": commit});
        let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
        let api = source().api(self.installation.client());
        let begun = Instant::now();
        api.patch("chain", &PatchParams::default(), &patch).await?;
        Ok((begun, Arrivals::of(&commit, HOPS, &mut watch, LIMIT).await?))
    }

    async fn edit(&self, number: usize) -> anyhow::Result<Duration> {
        let name = hop(number % HOPS + 1);
        let (api, mut watch) = config_map(&name).watch_alone(self.installation.client()).await?;
        let patch = Patch::Merge(json!({"data": {"round": "edited"}}));
        let begun = Instant::now();
        api.patch(&name, &PatchParams::default(), &patch).await?;
        let is_edited = |seen: &Seen| seen.exists && seen.value("/data/round") == "edited";
        watch.until(&format!("the edit of {name}"), LIMIT, is_edited).await?;
        let round = self.round.to_string();
        let is_back = |seen: &Seen| seen.exists && seen.value("/data/round") == round.as_str();
        let back = watch.until(&format!("{name} to be put back"), LIMIT, is_back).await?;
        Ok(back.at.saturating_duration_since(begun))
    }

    async fn delete(&self, number: usize) -> anyhow::Result<Duration> {
        let name = hop(number % HOPS + 1);
        let (api, mut watch) = config_map(&name).watch_alone(self.installation.client()).await?;
        let begun = Instant::now();
        api.delete(&name, &DeleteParams::default()).await?;
        let gone = watch.until(&format!("the end of {name}"), LIMIT, |seen| !seen.exists).await?;
        let is_back = |seen: &Seen| seen.exists && seen.uid() != gone.uid();
        let back = watch.until(&format!("{name} to be created again"), LIMIT, is_back).await?;
        Ok(back.at.saturating_duration_since(begun))
    }

    async fn watch_chain(&self) -> anyhow::Result<Watch> {
        let chain = Selection::of("kustomize.toolkit.fluxcd.io/v1", "Kustomization");
        let selections = [source(), chain.within("flux-system")];
        Watch::begin(self.installation.client(), &selections).await
    }

    fn commit(&mut self) -> anyhow::Result<String> {
        self.round += 1;
        let files: Vec<(String, String)> = (1..=HOPS)
            .map(|number| (format!("{0}/{0}.yaml", hop(number)), self.object(number)))
            .collect();
        let files: Vec<(&str, &str)> =
            files.iter().map(|(path, text)| (&**path, &**text)).collect();
        self.repository.commit(&files, &format!("Round {}", self.round))
    }

    fn object(&self, number: usize) -> String {
        let (name, round) = (hop(number), self.round);
        format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, namespace: {NAMESPACE}}}\n\
             data: {{round: \"{round}\"}}\n"
        )
    }

    fn apply(&self, name: &str, text: &str) -> anyhow::Result<()> {
        let file = self.installation.git().folder().join(name);
        std::fs::write(&file, text).with_context(|| file.display().to_string())?;
        let file = file.display().to_string();
        self.installation.kubectl(&["apply", "--server-side", "-f", &file]).map(drop)
    }
}

const SOURCE: &str = "\
apiVersion: source.toolkit.fluxcd.io/v1
kind: GitRepository
metadata: {name: chain, namespace: flux-system}
spec: {url: URL, ref: {branch: main}, interval: 10m}
";

fn source() -> Selection {
    Selection::of("source.toolkit.fluxcd.io/v1", "GitRepository").within("flux-system")
}

fn config_map(name: &str) -> Selection {
    Selection::of("v1", "ConfigMap").within(NAMESPACE).named(name)
}

fn hop(number: usize) -> String {
    format!("hop-{number:02}")
}

/// The Kustomizations, each of which depends on the one before.
fn chain() -> String {
    let mut text = String::new();
    for number in 1..=HOPS {
        let name = hop(number);
        let depends =
            if number == 1 { String::new() } else { format!("{{name: {}}}", hop(number - 1)) };
        text.push_str(&format!(
            "---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {{name: {name}, namespace: flux-system}}
spec:
  dependsOn: [{depends}]
  sourceRef: {{kind: GitRepository, name: chain}}
  path: ./{name}
  prune: true
  interval: 10m
  retryInterval: 10m
"
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chain_is_a_chain() {
        let documents = goyaml::documents(chain().as_bytes(), &goyaml::Limits::default()).unwrap();
        assert_eq!(documents.len(), HOPS);
        assert!(chain().contains("dependsOn: [{name: hop-09}]"));
        assert!(!chain().contains("dependsOn: [{name: hop-10}]"));
    }
}
