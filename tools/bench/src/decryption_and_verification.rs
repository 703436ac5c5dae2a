//! Measures decryption and verification. Secrets of SOPS are decrypted by windlass and by Flux's decryptor, and
//! windlass verifies signatures of commits.
//!
//! This module has the rounds and the promised limits. `secrets` has the Secrets, and `commits` the signed commits.
//! `e2e/testbed/kustomize-controller/decrypts` is Flux's side. `super::process_comparison` and `super::time_samples`
//! have tables and verdicts.

mod commits;
mod secrets;

use std::time::Duration;

use anyhow::ensure;
use clap::Args;
use e2e::git_server::{GitReadAccess, GitServer};
use e2e::signing_key::SigningKey;
use testbed::upstream_programs;

use super::process_comparison;
use super::raw_client_comparison::FigureOutputFormat;
use super::time_samples::{self, TimeSamples};
use testbed::progress::step;

/// The promised limit: how many times faster than Flux's decryptor windlass decrypts.
const MIN_DECRYPTION_SPEEDUP: f64 = 5.0;

/// The promised limit for 95 of 100 verifications of a commit.
const MAX_VERIFICATION_DELAY: Duration = Duration::from_millis(5);

/// A function that makes the keys of a signer.
type MakeSigner = fn() -> anyhow::Result<SigningKey>;

/// How each signing key for commits is generated, with the label of its row in the report.
const SIGNERS: [(&str, MakeSigner); 3] = [
    ("commit signed by OpenPGP (Ed25519) verified", SigningKey::gpg),
    ("commit signed by OpenPGP (RSA 4096) verified", || SigningKey::gpg_with("rsa4096")),
    ("commit signed by SSH (Ed25519) verified", SigningKey::ssh),
];

/// What is measured how often.
#[derive(Debug, Args)]
pub(crate) struct DecryptionAndVerificationBenchOptions {
    /// How many Secrets are decrypted, encrypted to an age recipient
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u16).range(1..))]
    secrets: u16,
    /// How often all of them are decrypted
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// How often each commit is verified
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u16).range(1..))]
    verifications: u16,
}

/// Measures, and prints the tables.
///
/// # Errors
/// When the decrypted values differ, a signature is not valid, or windlass is slower than promised.
pub(super) fn run(options: &DecryptionAndVerificationBenchOptions) -> anyhow::Result<()> {
    let decrypts = step("Flux's decryptor", upstream_programs::decrypts)?;
    let load = time_samples::load();
    let rows = step(&format!("{} Secrets, {} times", options.secrets, options.rounds), || {
        secrets::rows(&decrypts, options.secrets, options.rounds)
    })?;
    let git = GitServer::start(GitReadAccess::Open)?;
    let mut verified = Vec::new();
    for (number, (what, signer)) in SIGNERS.into_iter().enumerate() {
        step(what, || {
            let repository = git.repository(&format!("signed-{number}"))?;
            let mut samples = TimeSamples::new(what, MAX_VERIFICATION_DELAY);
            for time in commits::times(&repository, &signer()?, options.verifications)? {
                samples.add(time);
            }
            verified.push(samples);
            Ok(())
        })?;
    }
    time_samples::print(&verified);
    let concluded =
        process_comparison::conclude("Secrets", "Flux", &rows, FigureOutputFormat::Table, &load);
    ensure!(
        verified.iter().all(TimeSamples::passes),
        "verifying a commit takes longer than promised"
    );
    concluded
}
