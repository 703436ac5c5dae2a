//! `cargo xtask test`: what CI runs, in the order in which faults are cheapest to find; `--thorough` runs more.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use clap::Args;

use crate::progress::{self, step};
use crate::{compare, crash, fuzz, rights, root, setup, soak};

/// The test binaries of `e2e`: what runs against real servers, most of them with a control plane of their own.
const STORIES: [&str; 25] = [
    "bed",
    "bootstrap",
    "bootstrap_at_gitea",
    "bucket",
    "charts",
    "cli",
    "clouds",
    "faults",
    "installation",
    "kinds",
    "leader",
    "migration",
    "migration_of_flux",
    "notifications",
    "oci",
    "poison",
    "references",
    "releases",
    "releases_alone",
    "restarts",
    "services",
    "shards",
    "sources",
    "stories",
    "tenancy",
];

/// What to leave out, and what to run beyond what CI runs.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Also what takes more than two minutes or builds a further Go program: stories with the stock `flux`, with Helm 3,
    /// with Flux's controllers, with Gitea, with what sops, cosign and Notation encrypt and sign for them, and four times
    /// as many cuts of the crash law
    #[arg(long, conflicts_with = "no_cluster")]
    thorough: bool,
    /// Leave out the stories on a control plane
    #[arg(long)]
    no_cluster: bool,
    /// Only tests whose name contains this
    filter: Option<String>,
}

/// Runs everything; the first fault ends it.
///
/// # Errors
/// Names the step that failed.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let begun = Instant::now();
    step("what the machine needs", setup::ensure)?;
    step("format", || cargo(&["fmt", "--all", "--check"], "run `cargo fmt`"))?;
    step("lints", || {
        cargo(
            &["clippy", "--workspace", "--all-targets", "--all-features", "--", "-D", "warnings"],
            "clippy found something",
        )
    })?;
    let filter: Vec<&str> = options.filter.as_deref().into_iter().collect();
    step("unit, golden and loopback tests", || {
        let mut arguments = vec!["test", "--workspace"];
        arguments.extend(&filter);
        arguments.extend(["--", "--quiet"]);
        cargo(&arguments, "a test failed")
    })?;
    if options.filter.is_none() {
        step("our charts and overlays, as recorded", compare::recorded)?;
        step("what tenants write, changed at random", || {
            fuzz::all(Duration::from_secs(u64::from(fuzz::CI_MINUTES) * 60))
        })?;
    }
    if !options.no_cluster {
        step("what the stories need", setup::ensure_for_stories)?;
        step("control plane binaries", || e2e::binaries::Binaries::ensure().map(drop))?;
        step("the program", || cargo(&["build", "--workspace"], "it does not build"))?;
        let recorded = tempfile::tempdir()?;
        step("stories on a control plane", || {
            let features = if options.thorough { "e2e/thorough" } else { "e2e/stories" };
            let mut arguments = vec!["test", "--workspace", "--features", features];
            for binary in STORIES {
                arguments.extend(["--test", binary]);
            }
            arguments.extend(&filter);
            // Stories mostly wait, so more of them than there are processors may run at once.
            arguments.extend(["--", "--test-threads", "8"]);
            let requests = (e2e::harness::requests::FOLDER, recorded.path());
            cargo_with(&arguments, Some(requests), "a story failed")
        })?;
        if options.filter.is_none() {
            step("rights that the stories used", || rights::check(recorded.path()))?;
        }
        if options.filter.is_none() {
            let sample = crash::Options::sample(if options.thorough { 16 } else { 4 });
            step("crash law, a sample", || crash::run(&sample))?;
            step("soak, two minutes", || soak::run(&soak::Options::ci()))?;
        }
    }
    eprintln!("{} in {}", progress::green("everything passed"), progress::spell(begun.elapsed()));
    Ok(())
}

fn cargo(arguments: &[&str], advice: &str) -> anyhow::Result<()> {
    cargo_with(arguments, None, advice)
}

/// The same with a folder in the environment.
fn cargo_with(
    arguments: &[&str],
    folder: Option<(&str, &Path)>,
    advice: &str,
) -> anyhow::Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args(arguments)
        .envs(folder)
        .current_dir(root())
        .status()
        .context("cargo cannot be started")?;
    if !status.success() {
        bail!("{advice} (cargo {})", arguments.join(" "));
    }
    Ok(())
}
