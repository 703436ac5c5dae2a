//! `windlass ui`: serves web pages about objects, on this machine only and with the rights of the kubeconfig's user.
//!
//! Elsewhere: the server and its pages (`windlass-web`).

use std::process::{Command, Stdio};

use anyhow::Context as _;
use clap::Args as ClapArgs;
use tokio_util::sync::CancellationToken;
use windlass_cluster::ClusterError;
use windlass_web::LocalWebServer;

use super::command_scope::{ClusterScope, CommandScope};
use windlass_cli_runtime::connection::{ProgressGlyph, print, say};
use windlass_cli_runtime::exit_code::ExitCode;
use windlass_cli_runtime::table::clean;

/// The flags of `windlass ui`.
#[derive(Debug, Clone, ClapArgs)]
pub(super) struct UiArgs {
    #[command(flatten)]
    place: ClusterScope,
    /// Port on 127.0.0.1; by default a free one
    #[arg(long, value_name = "PORT", default_value_t = 0, hide_default_value = true)]
    port: u16,
    /// Open the address in a browser
    #[arg(long)]
    open: bool,
}

pub(super) const EXAMPLES: &str = "Examples:
  windlass ui --open                            all namespaces, in a browser
  windlass ui -n apps --port 8080               one namespace, at a port that stays the same
  windlass ui --context prod --timeout 8h       ends by itself

Without -n, the pages show all namespaces, or that of the context if you may list neither Kustomizations nor namespaces in the
whole cluster. They read with your rights, and have forms for what you may ask for: to reconcile, suspend or resume an object, to
approve or reject a Plan or an operation, to silence an incident, and to roll back a change. The server listens on 127.0.0.1. The
address that is printed has a secret and counts once: the browser that opens it first gets a cookie, and no other one is answered.

Each page names the command that prints the same, and with `Accept: application/json` answers what `-o json` prints.

Exit status: 0 when it ends; 2 if the port is in use; 3 if the cluster cannot be reached.";

/// The program that opens an address on this operating system.
const OPENER: &str = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };

/// Serves pages until Ctrl-C, or until the time limit.
///
/// # Errors
/// The port is in use, or the cluster cannot be reached.
pub(super) fn run(args: &UiArgs) -> anyhow::Result<ExitCode> {
    args.place.follow(async |site| {
        let site = if args.place.has_namespace() { site } else { widest(site).await? };
        let server = LocalWebServer::bind(args.port).await?;
        let address = server.address();
        print(&format!("{address}\n"))?;
        say(ProgressGlyph::Action, "the address counts once, for the browser that opens it first");
        say(ProgressGlyph::Waiting, "serving pages; Ctrl-C ends");
        if args.open
            && let Err(error) = open(&address)
        {
            say(ProgressGlyph::Warning, &clean(&format!("{error:#}; open the address yourself")));
        }
        let access = args.place.access_words();
        tokio::select! {
            () = server.serve(site, &access, CancellationToken::new()) => {}
            interrupted = tokio::signal::ctrl_c() => interrupted.context("cannot wait for Ctrl-C")?,
        }
        Ok(ExitCode::Success)
    })
}

/// Selects all namespaces. If the user may list neither their objects nor the namespaces themselves, or if that is not known
/// because an authorizer is away, the given namespace stays.
async fn widest(site: CommandScope) -> anyhow::Result<CommandScope> {
    let may_list =
        async |group: &str, resource: &str| match site.cluster.may("list", group, resource).await {
            Err(error @ ClusterError::AccessNotEvaluated(_)) => {
                let text =
                    format!("cannot tell whether you may list {resource} everywhere: {error}");
                say(ProgressGlyph::Warning, &clean(&text));
                Ok(false)
            }
            answer => answer,
        };
    let is_everywhere = may_list("kustomize.toolkit.fluxcd.io", "kustomizations").await?
        || may_list("", "namespaces").await?;
    Ok(site.everywhere(is_everywhere))
}

/// Opens an address in a browser.
fn open(address: &str) -> anyhow::Result<()> {
    let mut command = Command::new(OPENER);
    command.arg(address).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().map(drop).with_context(|| format!("{OPENER} cannot be started"))
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use serde_json::{Value, json};

    use super::*;

    #[tokio::test]
    async fn a_user_of_one_namespace_or_of_unknown_rights_sees_that_one() {
        for (allowed, failure, expected) in [
            ("", "", "apps"),
            ("\"kustomizations\"", "", ""),
            ("\"namespaces\"", "", ""),
            ("", "the webhook is away", "apps"),
            ("\"namespaces\"", "the webhook is away", ""),
        ] {
            let cluster = fake_cluster::answering(move |(_, body)| {
                let asked: Value = body;
                let resource = asked["spec"]["resourceAttributes"]["resource"].to_string();
                let status = json!({"allowed": resource == allowed, "evaluationError": failure});
                (200, Body::from(json!({"status": status}).to_string()))
            });
            let site = CommandScope { cluster: cluster.await, namespace: "apps".to_owned() };
            assert_eq!(widest(site).await.unwrap().namespace, expected, "{allowed} {failure}");
        }
    }
}
