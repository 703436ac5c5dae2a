//! `windlass silence`: sends nothing but the end of an Incident for some time.
//!
//! The API server decides who may silence an Incident. The request contains the user's name, and the included admission policy
//! verifies that name.
//! Elsewhere: the request (`windlass_answers::actions`), listing Incidents (`incidents.rs`).

use anyhow::ensure;
use clap::Args as ClapArgs;
use crds::windlass_notification::Incident;

use super::command_scope::ClusterScope;
use super::kind_argument;
use windlass_answers::actions::incident_silence::IncidentSilenceRequest;
use windlass_cli_runtime::connection::{ProgressGlyph, say};
use windlass_cli_runtime::exit_code::ExitCode;
use windlass_runtime::lifecycle::watched_object_cache::resource;

/// The flags of `windlass silence`.
#[derive(Debug, Clone, ClapArgs)]
pub(super) struct SilenceArgs {
    /// The Incident
    #[arg(value_name = "incident/NAME")]
    what: String,
    #[command(flatten)]
    place: ClusterScope,
    /// Reason, shown to others
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// When the silence ends: a time such as 2026-11-24T21:00:00Z, or a duration such as 2h; at most 168h
    #[arg(long, value_name = "TIME")]
    until: String,
}

pub(super) const EXAMPLES: &str = "Examples:
  windlass silence incident/gitrepository-shop-4b1f0c27a9d3 -n apps --reason \"the forge is upgraded\" --until 2h
  windlass silence incident/gitrepository-shop-4b1f0c27a9d3 -n apps --reason incident-1234 --until 2026-11-24T21:00:00Z

Until then, neither the beginning nor reminders are sent, but the end is. Another silence replaces it. It requires the verb `silence` on the Incident, and the right to patch its status. ServiceAccounts cannot.

Exit status: 0; 2 if it was refused; 3 if the cluster cannot be reached.";

/// Silences an Incident.
///
/// # Errors
/// The Incident is unknown or not open, the end is too late, or the API server refuses.
pub(super) fn run(args: &SilenceArgs) -> anyhow::Result<ExitCode> {
    args.place.run(async |site| {
        let target = kind_argument::one(&site.cluster, std::slice::from_ref(&args.what)).await?;
        ensure!(
            target.resource.gvk == resource::<Incident>().gvk,
            "`{}` is no Incident: write incident/NAME",
            args.what
        );
        let object = kind_argument::read(&site, &target).await?;
        let incident: Incident = serde_json::from_value(object.into_value())?;
        let SilenceArgs { reason, until, .. } = args;
        let request =
            IncidentSilenceRequest { incident: &incident, reason, until, is_of_version: false };
        say(ProgressGlyph::Success, &request.make(&site).await?);
        Ok(ExitCode::Success)
    })
}
