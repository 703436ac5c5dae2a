//! `cargo xtask bench` measures windlass, mostly on a real control plane, and compares the results with the promised
//! limits.
//!
//! This module has the command line.
//! * Measurements with a control plane: `change_reaction_time`, `mixed_chain`, `push_chain`, `apply`, `kustomizations`,
//!   `helm_releases`, `helmfile_releases`, `idle`, `change_detection`, `restart_and_single_change`, `scale`,
//!   `thundering_herd`, `staged_rollout`, `sources`, `crd_version_drop`, `get`, `images`, `notify`, `webhook_receive`,
//!   `flux_comparison`, `web`.
//! * Measurements of single processes: `template`, `build`, `helmfile`, `decryption_and_verification`.
//! * The means: `test_bed`, `raw_client`, `round_options`, `workload`, `kustomization_chain`,
//!   `unreconciled_objects`.
//! * Counting: `commit_arrivals`, `audit_log`, `memory_samples`, `metrics_page`, `process_comparison`.
//! * Results: `time_samples`, `raw_client_comparison`.

mod apply;
mod audit_log;
mod build;
mod change_detection;
mod change_reaction_time;
mod commit_arrivals;
mod crd_version_drop;
mod decryption_and_verification;
mod flux_comparison;
mod get;
mod helm_releases;
mod helmfile;
mod helmfile_releases;
mod idle;
mod images;
mod kustomization_chain;
mod kustomizations;
mod memory_samples;
mod metrics_page;
mod mixed_chain;
mod notify;
mod process_comparison;
mod push_chain;
mod raw_client;
mod raw_client_comparison;
mod restart_and_single_change;
mod round_options;
mod scale;
mod sources;
mod staged_rollout;
mod template;
mod test_bed;
mod thundering_herd;
mod time_samples;
mod unreconciled_objects;
mod web;
mod webhook_receive;
mod workload;

use std::os::unix::process::CommandExt as _;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Parser, Subcommand};
use e2e::cluster_with_operator::{BuildProfile, make_packages};
use e2e::rusage;
use testbed::progress::{self, step};
use testbed::released;

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct BenchArguments {
    #[command(subcommand)]
    command: BenchCommand,
}

#[derive(Debug, Subcommand)]
enum BenchCommand {
    /// Measure
    Bench {
        #[command(subcommand)]
        command: BenchKind,
    },
    /// Run a command and report its peak of memory: for other commands
    #[command(hide = true)]
    Measured(rusage::RusageOptions),
}

/// Which benchmark is run, and what it measures.
#[derive(Debug, Subcommand)]
enum BenchKind {
    /// How soon a change is acted on when every interval is ten minutes: dependencies, drift, commits
    Wake(change_reaction_time::ChangeReactionBenchOptions),
    /// How soon each of a hundred objects of mixed kinds, or each of many Kustomizations, is ready after the one on which it
    /// depends
    Chain(mixed_chain::MixedChainBenchOptions),
    /// How fast one Kustomization of many objects is applied, beside a client that does nothing but apply
    Apply(apply::ApplyBenchOptions),
    /// How fast many small Kustomizations are applied, and what that costs, beside the same client
    Kustomizations(kustomizations::KustomizationBenchOptions),
    /// How fast many releases of one chart are installed, and what that costs, beside the same client
    Helmreleases(helm_releases::HelmReleaseBenchOptions),
    /// Whether every change is noticed in time with many HelmReleases, Secrets and kinds, after ten minutes
    Notice(change_detection::ChangeDetectionBenchOptions),
    /// What a large cluster costs: a restart, and one change among thousands of objects with references
    Settle(restart_and_single_change::RestartAndChangeBenchOptions),
    /// What ten thousand Kustomizations cost: their start, pushes, drift, a crash, idle time
    Scale(scale::ScaleBenchOptions),
    /// What a push costs that thousands of objects with one ConfigMap of variables wait for
    Herd(thundering_herd::HerdBenchOptions),
    /// What a StagedRollout adds to a push that reaches many Kustomizations in many clusters: time, CPU, requests
    Rollout(staged_rollout::StagedRolloutBenchOptions),
    /// What settled Kustomizations ask of the API server: nothing
    Idle(idle::IdleBenchOptions),
    /// What sources cost in time, bytes and memory: a repository, a bucket, an index of charts
    Sources(sources::SourceBenchOptions),
    /// How fast charts are rendered, and in how much memory, beside the real Helm
    Template(template::TemplateBenchOptions),
    /// How fast overlays are built, and in how much memory, beside the real Kustomize
    Build(build::BuildBenchOptions),
    /// How fast helmfiles are listed and rendered, and in how much memory, beside the real helmfile
    Helmfile(helmfile::HelmfileBenchOptions),
    /// How fast objects are moved out of a version that is dropped, and in how much memory, beside the raw client
    Crds(crd_version_drop::CrdBenchOptions),
    /// How soon `windlass get -A` prints the first row in a large cluster, and in how much memory
    Get(get::GetBenchOptions),
    /// How fast the releases of one Helmfile are installed beside the same client, and what a settled Helmfile costs
    HelmfileReleases(helmfile_releases::HelmfileReleaseBenchOptions),
    /// How soon new tags of an image are pushed to a repository, in how many pushes, beside Flux's controllers
    Images(images::Options),
    /// How fast events reach the services that work while one is dead, and what is lost, beside Flux's controller
    Notify(notify::NotifyBenchOptions),
    /// How soon a push is applied that a webhook announces, and how often a burst of webhooks has it fetched
    Receive(webhook_receive::WebhookReceiveBenchOptions),
    /// How fast Secrets are decrypted, beside Flux's decryptor, and signatures of commits verified
    Trust(decryption_and_verification::DecryptionAndVerificationBenchOptions),
    /// How fast windlass is, and what it costs, beside Flux's own controllers on the same control plane
    Versus(flux_comparison::FluxComparisonBenchOptions),
    /// How fast pages of ten thousand objects are, what fifty users and five hundred open pages cost, and how soon a change
    /// is at all of them
    Web(web::WebBenchOptions),
}

/// Measures, and prints a table.
///
/// # Errors
/// When a step does not end at all, or exceeds its limit.
fn run(command: &BenchKind) -> anyhow::Result<()> {
    match command {
        BenchKind::Wake(options) => change_reaction_time::run(options),
        BenchKind::Chain(options) => mixed_chain::run(options),
        BenchKind::Apply(options) => as_shipped(|| apply::run(options)),
        BenchKind::Kustomizations(options) => as_shipped(|| kustomizations::run(options)),
        BenchKind::Helmreleases(options) => as_shipped(|| helm_releases::run(options)),
        BenchKind::Idle(options) => as_shipped(|| idle::run(options)),
        BenchKind::Notice(options) => as_shipped(|| change_detection::run(options)),
        BenchKind::Settle(options) => as_shipped(|| restart_and_single_change::run(options)),
        BenchKind::Scale(options) => as_shipped(|| scale::run(options)),
        BenchKind::Herd(options) => as_shipped(|| thundering_herd::run(options)),
        BenchKind::Rollout(options) => as_shipped(|| staged_rollout::run(options)),
        BenchKind::Sources(options) => sources::run(options),
        BenchKind::Template(options) => as_shipped(|| template::run(options)),
        BenchKind::Build(options) => as_shipped(|| build::run(options)),
        BenchKind::Helmfile(options) => as_shipped(|| helmfile::run(options)),
        BenchKind::Crds(options) => as_shipped(|| crd_version_drop::run(options)),
        BenchKind::Get(options) => get::run(options),
        BenchKind::Images(options) => images::run(options),
        BenchKind::Notify(options) => notify::run(options),
        BenchKind::Receive(options) => webhook_receive::run(options),
        BenchKind::Trust(options) => as_shipped(|| decryption_and_verification::run(options)),
        BenchKind::HelmfileReleases(options) => as_shipped(|| helmfile_releases::run(options)),
        BenchKind::Versus(options) => as_shipped(|| flux_comparison::run(options)),
        BenchKind::Web(options) => as_shipped(|| web::run(options)),
    }
}

/// Measures with an optimised build of this program. A slow raw client would make the operator look better than it
/// is.
fn as_shipped(measure: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
    if !cfg!(debug_assertions) {
        return measure();
    }
    step("everything, optimised", || make_packages(BuildProfile::Release, &["windlass", "bench"]))?;
    let again =
        std::process::Command::new(released("bench")?).args(std::env::args_os().skip(1)).exec();
    Err(again).context("the optimised `bench` cannot be started")
}

fn main() -> ExitCode {
    let outcome = match BenchArguments::parse().command {
        BenchCommand::Bench { command } => run(&command).map(|()| ExitCode::SUCCESS),
        BenchCommand::Measured(options) => rusage::run(&options),
    };
    progress::exit_code(outcome)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    /// clap reports a faulty definition of a command only when that command is used. This test uses every command.
    #[test]
    fn every_command_is_put_together_right() {
        super::BenchArguments::command().debug_assert();
    }
}
