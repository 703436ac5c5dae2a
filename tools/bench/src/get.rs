//! Measures `windlass get -A` in a large cluster: how soon it prints the first row, and how much memory it needs.
//!
//! This module has the rounds, the table and the verdict. `super::unreconciled_objects` makes the objects,
//! `e2e::rusage` measures the process, and `super::time_samples` judges the times.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use tokio::runtime::Runtime;

use super::raw_client::RawApiClient;
use super::time_samples::{self, TimeSamples};
use super::unreconciled_objects::UnreconciledObjects;
use e2e::cluster_with_operator::{
    BuildProfile, ClusterWithOperator, OperatorsToStart, make, program,
};
use e2e::rusage;
use testbed::progress::{bold, green, red, step};

/// The promised limit for the time until the first row is printed.
const FIRST_ROW: Duration = Duration::from_secs(1);

/// The promised limit for the memory, in MiB.
const MAX_MEMORY_MIB: f64 = 100.0;

/// How long one command may take.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(300);

/// How much is measured how often.
#[derive(Debug, Args)]
pub(crate) struct GetBenchOptions {
    /// How many objects: Kustomizations and HelmReleases in turn
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    objects: u32,
    /// How many objects the inventory of each lists
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(0..=5000))]
    inventory: u16,
    /// How often the command runs
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
}

/// The costs of one run of the command.
struct CommandCost {
    first: TimeSamples,
    all: TimeSamples,
    /// The peak of resident memory in MiB.
    peak: f64,
}

/// Measures and prints the table.
///
/// # Errors
/// When a row is missing, or the command took more than promised.
pub(super) fn run(options: &GetBenchOptions) -> anyhow::Result<()> {
    let runtime = Runtime::new().context("cannot start the runtime")?;
    // Only windlass is optimised. The work of this program itself is not measured.
    step("windlass itself", || make(BuildProfile::Release))?;
    let mut installation =
        ClusterWithOperator::start_with(&runtime, OperatorsToStart::Programs(&[], &[]))?;
    let load = time_samples::load();
    let taken = measure(&runtime, &installation, options);
    let taken = taken.map_err(|error| installation.explain(&error))?;
    let passes = taken.first.passes() && taken.peak <= MAX_MEMORY_MIB;
    print(options, taken);
    time_samples::print_machine(&load);
    if !passes {
        bail!("a promise was not kept");
    }
    Ok(())
}

fn measure(
    runtime: &Runtime,
    installation: &ClusterWithOperator,
    options: &GetBenchOptions,
) -> anyhow::Result<CommandCost> {
    let kubeconfig = installation.kubeconfig();
    let text = format!("{} objects with inventories of {}", options.objects, options.inventory);
    let objects = UnreconciledObjects {
        count: options.objects,
        inventory: options.inventory,
        failing: 0,
        are_suspended: true,
    };
    step(&text, || {
        runtime.block_on(async { objects.create(&RawApiClient::connect(&kubeconfig).await?).await })
    })?;
    let program = program(BuildProfile::Release)?;
    let command = || {
        let mut command = Command::new(&program);
        command.args(["get", "-A", "--kubeconfig"]).arg(&kubeconfig).env_remove("KUBECONFIG");
        command
    };
    let mut first = TimeSamples::new("first row", FIRST_ROW);
    let mut all = TimeSamples::new("all rows", COMMAND_TIMEOUT);
    step(&format!("{} rounds", options.rounds), || {
        for _ in 0..options.rounds {
            let (row, end, lines) = timed(command())?;
            let wanted = usize::try_from(options.objects)? + 1;
            ensure!(lines == wanted, "{lines} lines were printed instead of {wanted}");
            first.add(row);
            all.add(end);
        }
        Ok(())
    })?;
    let cost = step("peak of memory", || rusage::cost(&command(), COMMAND_TIMEOUT))?;
    ensure!(cost.status == Some(0), "`windlass get` failed: {}", cost.stderr.trim_end());
    Ok(CommandCost { first, all, peak: cost.peak })
}

/// The time until the first row, the time until the end, and the number of printed lines.
fn timed(mut command: Command) -> anyhow::Result<(Duration, Duration, usize)> {
    let begun = Instant::now();
    let mut child = command.stdout(Stdio::piped()).spawn().context("windlass cannot be started")?;
    let lines = BufReader::new(child.stdout.take().context("there is no output")?).lines();
    let mut first = None;
    let mut count = 0;
    for line in lines {
        line.context("the output cannot be read")?;
        count += 1;
        // The first line is the header of the table.
        if count == 2 {
            first = Some(begun.elapsed());
        }
    }
    let status = child.wait()?;
    ensure!(status.success(), "`windlass get` ended with {status}");
    Ok((first.context("no row was printed")?, begun.elapsed(), count))
}

#[expect(clippy::print_stdout, reason = "the table is what the command is for")]
fn print(options: &GetBenchOptions, taken: CommandCost) {
    println!("\n{}", bold(&format!("windlass get -A, {} objects", options.objects)));
    time_samples::print(&[taken.first, taken.all]);
    let verdict = if taken.peak <= MAX_MEMORY_MIB { green("PASS") } else { red("FAIL") };
    println!("peak of memory: {:.1} MiB  {verdict} (at most {MAX_MEMORY_MIB:.0} MiB)", taken.peak);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_without_rows_is_no_success() {
        let shell = |script: &str| {
            let mut command = Command::new("/bin/sh");
            command.args(["-c", script]);
            timed(command)
        };
        let (first, end, lines) = shell("echo NAME; echo a; echo b").unwrap();
        assert!(lines == 3 && first <= end);
        assert!(shell("echo NAME").unwrap_err().to_string().contains("no row"));
        assert!(shell("echo NAME; echo a; exit 2").is_err());
    }
}
