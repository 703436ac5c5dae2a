//! Parses flags of `windlass serve` that other commands accept after `--`.
//!
//! Elsewhere: the flags themselves (`windlass_serve::settings`).

use anyhow::Context as _;

use windlass_serve::settings::OperatorSettings;

/// The operator settings from some flags of `windlass serve`. They also affect builds.
///
/// # Errors
/// A flag is not one of `windlass serve`, or its value is invalid.
pub fn settings(flags: &[String]) -> anyhow::Result<OperatorSettings> {
    let flags: Vec<&String> = flags.iter().filter(|flag| *flag != "serve").collect();
    OperatorSettings::from_flags(&flags)
        .context("the flags behind `--` are not those of `windlass serve`")
}
