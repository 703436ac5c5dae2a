//! Measures new tags of one image, which many ImagePolicies choose and several automations write into one repository.
//!
//! It measures how soon the tags are pushed, in how many pushes and with which requests. windlass and Flux's image
//! controllers run one after the other on one control plane. This module has the rounds, the tables and the verdict.
//! `objects` has the objects, and `workload` the registry and the repository. `super::test_bed` reads the costs, and
//! `testbed::upstream_programs` has the versions of Flux.
//!
//! For Flux, only the image-reflector-controller and the image-automation-controller run. Neither needs the
//! source-controller. windlass also fetches the repository for its GitRepository, and this counts as its cost.

mod objects;
mod workload;

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use clap::Args;
use testbed::upstream_programs::UpstreamProgram;
use tokio::runtime::Runtime;

use self::workload::{ImageWorkload, ServerRequests};
use super::raw_client_comparison::{
    self, BenchComparison, BenchLimits, FigureOutputFormat, PhaseCost,
};
use super::test_bed::{BenchTestbed, MeasuredProcess};
use super::time_samples;
use e2e::cluster_with_operator::{BuildProfile, OperatorsToStart, make};
use testbed::progress::{bold, green, red, step};

/// The promised limits of windlass: the seconds from the request of a scan to the last file, and a fifth of Flux's
/// CPU and memory.
const PROMISE: BenchLimits = BenchLimits {
    total: Some(5.0),
    cpu_ratio: Some(0.2),
    peak_ratio: Some(0.2),
    ratio: None,
    cpu: None,
    peak: None,
    additional_requests: None,
};

/// The promised limit: the automations of one repository push together, in this many pushes.
const MAX_PUSHES_PER_ROUND: usize = 1;

/// The titles of the columns.
const COLUMNS: [&str; 2] = ["Flux", "windlass"];

/// How many objects and tags the image benchmark measures.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// How many ImagePolicies choose from the tags of the image; each has a file
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=999))]
    policies: u16,
    /// How many automations share the policies, each with a folder of the repository
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=100))]
    automations: u16,
    /// How often a new tag comes out for each policy
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=20))]
    rounds: u16,
}

/// The operator that does the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ImagesBenchOperator {
    Flux,
    Windlass,
}

impl ImagesBenchOperator {
    /// The name of the operator's namespace and repository.
    const fn part(self) -> &'static str {
        match self {
            Self::Flux => "images-flux",
            Self::Windlass => "images-windlass",
        }
    }
}

/// The costs of one round.
#[derive(Debug, Clone)]
struct ImageUpdateRound {
    /// The costs from the request of the scan until each file has its tag.
    phase: PhaseCost,
    requests: ServerRequests,
    /// How many commits the branch got.
    commits: usize,
}

/// Measures and prints the tables.
///
/// # Errors
/// An operator did not do the work, or windlass exceeded a promised limit.
pub(super) fn run(options: &Options) -> anyhow::Result<()> {
    let runtime = Runtime::new().context("cannot start the runtime")?;
    let flux = programs()?;
    // Only windlass is optimised. The work of this program itself is not measured.
    step("windlass itself", || make(BuildProfile::Release))?;
    let mut bed = BenchTestbed::with(&runtime, OperatorsToStart::Programs(&[], &[]))?;
    let load = time_samples::load();
    let mut sides = Vec::new();
    for operator in [ImagesBenchOperator::Windlass, ImagesBenchOperator::Flux] {
        let serving = match operator {
            ImagesBenchOperator::Windlass => OperatorsToStart::Windlass(BuildProfile::Release, &[]),
            ImagesBenchOperator::Flux => OperatorsToStart::Programs(&flux, &[]),
        };
        bed.serve(operator.part(), serving)?;
        let measured = measure(&runtime, &bed, operator, options);
        sides.push(measured.map_err(|error| bed.explain(error))?);
    }
    let sides: [Vec<ImageUpdateRound>; 2] =
        sides.try_into().ok().context("a side was not measured")?;
    let [windlass, flux] = sides;
    let comparison = compared(options, &flux, &windlass);
    let rows = rows(&flux, &windlass);
    raw_client_comparison::print(
        FigureOutputFormat::Table,
        std::slice::from_ref(&comparison),
        &load,
    );
    print(&rows);
    if !comparison.passes() || !rows.iter().all(ServerRequestsRow::passes) {
        bail!("a promise was not kept");
    }
    Ok(())
}

/// The command lines of Flux's controllers. They are built if they are missing.
fn programs() -> anyhow::Result<Vec<String>> {
    let mut lines = Vec::new();
    for oracle in
        [UpstreamProgram::ImageReflectorController, UpstreamProgram::ImageAutomationController]
    {
        let path = step(oracle.version(), || oracle.ensure())?;
        let own = match oracle {
            UpstreamProgram::ImageReflectorController => " --storage-path={folder}/tags",
            _ => "",
        };
        lines.push(format!(
            "env RUNTIME_NAMESPACE=flux-system {}{own} --metrics-addr=127.0.0.1:0 --health-addr=127.0.0.1:0 \
             --events-addr= --enable-leader-election=false",
            path.display()
        ));
    }
    Ok(lines)
}

fn measure(
    runtime: &Runtime,
    bed: &BenchTestbed,
    operator: ImagesBenchOperator,
    options: &Options,
) -> anyhow::Result<Vec<ImageUpdateRound>> {
    let part = operator.part();
    let what = format!(
        "{operator:?}: {} policies and {} automations, the first tags",
        options.policies, options.automations
    );
    let workload = step(&what, || runtime.block_on(ImageWorkload::install(bed, part, options)))?;
    let mut rounds = Vec::new();
    for number in 1..=options.rounds {
        let what = format!("{operator:?}, round {number}: new tags");
        // The files already have the first version.
        let version = u32::from(number) + 1;
        rounds.push(step(&what, || runtime.block_on(round(bed, &workload, version)))?);
    }
    step(&format!("{operator:?}: removal"), || runtime.block_on(workload.remove()))?;
    Ok(rounds)
}

/// Publishes a version, and waits until the Git server gets no more requests.
async fn round(
    bed: &BenchTestbed,
    workload: &ImageWorkload<'_>,
    version: u32,
) -> anyhow::Result<ImageUpdateRound> {
    workload.release(version).await?;
    let commits = workload.commits()?;
    let requests = workload.requests()?;
    let before = bed.read(MeasuredProcess::Operator)?;
    let begun = Instant::now();
    workload.request_scan(version).await?;
    let times: Vec<Duration> = workload.await_version(version, begun).await?;
    workload.await_quiet().await?;
    Ok(ImageUpdateRound {
        phase: bed.spent(&before, times)?,
        requests: workload.requests()?.since(requests),
        commits: workload.commits()? - commits,
    })
}

fn compared(
    options: &Options,
    flux: &[ImageUpdateRound],
    windlass: &[ImageUpdateRound],
) -> BenchComparison {
    let policies = options.policies;
    let automations = options.automations;
    let title = format!(
        "{policies} new tags of an image, {automations} automations of a repository, to the pushed commit"
    );
    let of = |rounds: &[ImageUpdateRound]| {
        let mut all = BenchComparison::new(title.clone(), policies.into(), BenchLimits::default());
        rounds.iter().for_each(|round| all.add(MeasuredProcess::Operator, round.phase.clone()));
        all
    };
    of(flux).against(of(windlass), COLUMNS, PROMISE)
}

/// A row of the second table: the highest number of all rounds.
struct ServerRequestsRow {
    what: &'static str,
    flux: usize,
    windlass: usize,
    /// The promised limit of windlass.
    limit: Option<usize>,
}

impl ServerRequestsRow {
    fn passes(&self) -> bool {
        self.limit.is_none_or(|limit| self.windlass <= limit)
    }
}

fn rows(flux: &[ImageUpdateRound], windlass: &[ImageUpdateRound]) -> Vec<ServerRequestsRow> {
    let row = |what, limit, of: &dyn Fn(&ImageUpdateRound) -> usize| {
        let most = |rounds: &[ImageUpdateRound]| rounds.iter().map(of).max().unwrap_or_default();
        ServerRequestsRow { what, flux: most(flux), windlass: most(windlass), limit }
    };
    vec![
        row("pushes", Some(MAX_PUSHES_PER_ROUND), &|it| it.requests.pushes),
        row("commits", None, &|it| it.commits),
        row("requests to the Git server", None, &|it| it.requests.git),
        row("requests to the registry", None, &|it| it.requests.registry),
    ]
}

#[expect(clippy::print_stdout, reason = "the table is what the command is for")]
fn print(rows: &[ServerRequestsRow]) {
    let [first, second] = COLUMNS;
    println!("\n{}", bold(&format!("{:<40} {first:>10} {second:>10}", "a round, at most")));
    for row in rows {
        let ServerRequestsRow { what, flux, windlass, limit } = row;
        let sign = if row.passes() { green("PASS") } else { red("FAIL") };
        let verdict = limit.map(|limit| format!("  {sign} (at most {limit})")).unwrap_or_default();
        println!("{what:<40} {flux:>10} {windlass:>10}{verdict}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(total: f64, cpu: f64, peak: f64, pushes: usize) -> ImageUpdateRound {
        ImageUpdateRound {
            phase: PhaseCost { total, cpu, peak, ..PhaseCost::default() },
            requests: ServerRequests { pushes, git: 9, registry: 4 },
            commits: pushes,
        }
    }

    #[test]
    fn time_has_a_limit_and_costs_are_a_share_of_what_flux_takes() {
        let options = Options { policies: 100, automations: 10, rounds: 1 };
        let flux = [taken(60.0, 10.0, 100.0, 30)];
        let judge =
            |total, cpu, peak| compared(&options, &flux, &[taken(total, cpu, peak, 1)]).passes();
        assert!(judge(5.0, 2.0, 20.0), "the promises themselves are kept");
        assert!(!judge(5.1, 2.0, 20.0), "slower");
        assert!(!judge(5.0, 2.1, 20.0), "more CPU");
        assert!(!judge(5.0, 2.0, 20.1), "more memory");
    }

    #[test]
    fn one_push_too_many_in_one_round_does_not_pass() {
        let flux = [taken(60.0, 10.0, 100.0, 30)];
        let judge = |pushes: &[usize]| {
            let windlass: Vec<ImageUpdateRound> =
                pushes.iter().map(|pushes| taken(1.0, 1.0, 1.0, *pushes)).collect();
            rows(&flux, &windlass).iter().all(ServerRequestsRow::passes)
        };
        assert!(judge(&[1, 1]));
        assert!(!judge(&[1, 2]));
    }
}
