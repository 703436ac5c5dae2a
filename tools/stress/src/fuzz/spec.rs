//! `cargo xtask fuzz spec` makes random fields of every kind from the schemas, on a real API server.
//!
//! This module runs one seed after the other, for a given time. `e2e/tests/nonsense_in_all_fields.rs` makes the random
//! objects, and checks that other objects are not affected. `cargo xtask test` runs that story once with a fixed seed.

use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, bail};
use e2e::random_sequence::RandomSequence;

use super::FuzzOptions;
use e2e::cluster_with_operator::{BuildProfile, make};
use testbed::progress::{green, red, step};
use testbed::{machine_requirements, root};

/// The story, and the environment variable with its seed.
const STORY: &str = "a_poison_object_stalls_only_itself";
const SEED: &str = "WINDLASS_POISON_SEED";

/// After how many faults the run ends.
const MAX_FAULTS: u64 = 3;

/// Runs the story with one seed after the other.
///
/// # Errors
/// When the story failed for a seed, or nothing could be run.
pub(super) fn run(options: &FuzzOptions) -> anyhow::Result<()> {
    step("what the stories need", machine_requirements::ensure_for_stories)?;
    step("control plane binaries", || testbed::binaries::TestbedBinaries::ensure().map(drop))?;
    step("windlass itself", || make(BuildProfile::Debug))?;
    let first = options.seed.unwrap_or_else(RandomSequence::seed);
    let deadline = Instant::now() + options.time();
    let mut done = 0;
    let mut found = 0;
    while Instant::now() < deadline && found < MAX_FAULTS {
        // The seeds are small numbers, so that people can type them.
        let seed = first.wrapping_add(done) % 1_000_000;
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let status = Command::new(cargo)
            .args(["test", "--quiet", "--workspace", "--features", "e2e/stories"])
            .args(["--test", "stories", STORY])
            .env(SEED, seed.to_string())
            .current_dir(root())
            .status()
            .context("cargo cannot be started")?;
        if !status.success() {
            found += 1;
            eprintln!("{} spec: seed {seed}; {SEED}={seed} repeats it", red("✘"));
        }
        done += 1;
    }
    if found > 0 {
        bail!("{found} of {done} seeds failed");
    }
    eprintln!("{}", green(&format!("✔ no faults with {done} seeds of spec")));
    Ok(())
}
