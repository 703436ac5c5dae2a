//! The flags of `windlass serve` that other commands take behind `--`.
//!
//! Elsewhere: which there are (`windlass_serve::settings`).

use anyhow::Context as _;

use windlass_serve::settings::OperatorSettings;

/// The settings that some flags of `windlass serve` give, which decide about builds, too.
///
/// # Errors
/// A flag is not one of `windlass serve`, or its value is invalid.
pub fn settings(flags: &[String]) -> anyhow::Result<OperatorSettings> {
    let flags: Vec<&String> = flags.iter().filter(|flag| *flag != "serve").collect();
    OperatorSettings::from_flags(&flags)
        .context("the flags behind `--` are not those of `windlass serve`")
}
