//! `windlass trace`: traces any object of the cluster back to the commit from which it comes.
//!
//! Elsewhere: finding the steps (`windlass_answers::trace`).

use clap::Args as ClapArgs;
use windlass_answers::trace::{TraceStep, way};

use super::command_scope::ClusterScope;
use super::complete;
use super::kind_argument;
use super::output::{ReportFormat, report};
use windlass_cli_installation::cluster_operators;
use windlass_cli_runtime::connection::print;
use windlass_cli_runtime::exit_code::ExitCode;
use windlass_cli_runtime::table::{TerminalScreen, TextColour, clean};

/// The flags of `windlass trace`.
#[derive(Debug, Clone, ClapArgs)]
pub(super) struct TraceArgs {
    /// The object, of any kind
    #[arg(required = true, num_args = 1..=2, value_name = "KIND/NAME", add = complete::objects())]
    what: Vec<String>,
    /// Kind of the object, as `flux trace` has it
    #[arg(long, hide = true, value_name = "KIND")]
    kind: Option<String>,
    /// Group and version of the kind, as `flux trace` has it
    #[arg(long, hide = true, requires = "kind", value_name = "GROUP/VERSION")]
    api_version: Option<String>,
    #[command(flatten)]
    place: ClusterScope,
    /// Format
    #[arg(short, long, value_enum, default_value_t = ReportFormat::Text, value_name = "FORMAT")]
    output: ReportFormat,
}

pub(super) const EXAMPLES: &str = "Examples:
  windlass trace deployment/web -n apps         who applied it, from which revision of which source
  windlass trace pod/web-7f9c -n apps           the same of a Pod, through its controllers

Exit status: 0; 2 if the object cannot be read; 3 if the cluster cannot be reached.";

/// Prints the steps back to the source.
///
/// # Errors
/// The object cannot be read.
pub(super) fn run(args: &TraceArgs) -> anyhow::Result<ExitCode> {
    let stops = args.place.run(async |site| {
        let target = kind_argument::one(&site.cluster, &words(args)).await?;
        let object = kind_argument::read(&site, &target).await?;
        cluster_operators::say_doubt(&site.cluster).await;
        anyhow::Ok(way(&site, object).await)
    })?;
    if report(&stops, args.output)?.is_none() {
        print(&text(&stops, TerminalScreen::of_stdout()))?;
    }
    Ok(ExitCode::Success)
}

/// The kind and the name: `KIND/NAME`, or the flags of `flux trace`.
fn words(args: &TraceArgs) -> Vec<String> {
    let Some(kind) = &args.kind else { return args.what.clone() };
    let group = args.api_version.as_deref().and_then(|it| it.split_once('/'));
    let kind = group.map_or_else(|| kind.clone(), |(group, _)| format!("{kind}.{group}"));
    [vec![kind], args.what.clone()].concat()
}

fn text(stops: &[TraceStep], on: TerminalScreen) -> String {
    let mut out = String::new();
    for stop in stops {
        out.push_str(&format!("{}: {}\n", stop.relation, clean(&stop.object)));
        let ready = on.paint(&stop.ready, TextColour::of_ready(&stop.ready));
        let mut line = |title: &str, text: &str| {
            if !text.is_empty() {
                out.push_str(&format!("  {title:<10}{}\n", on.wrapped(text, 12)));
            }
        };
        line("ready", &ready);
        line("revision", &clean(&stop.revision));
        line("url", &clean(&stop.url));
        line("path", &clean(&stop.path));
        line("message", &clean(&stop.message));
        for (key, value) in &stop.metadata {
            let key = key.strip_prefix("org.opencontainers.image.").unwrap_or(key);
            line(&clean(key), &clean(value));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn the_way_fits_terminals_of_both_widths() {
        let of = |object: &str, relation| TraceStep {
            object: object.to_owned(),
            relation,
            ready: String::new(),
            revision: String::new(),
            url: String::new(),
            path: String::new(),
            message: String::new(),
            metadata: BTreeMap::new(),
        };
        let revision = "main@sha1:0123456789abcdef0123456789abcdef01234567";
        let message =
            "kustomize build failed: a.yaml: line 3: did not find expected node content \u{1b}[2J";
        let authors = ("org.opencontainers.image.authors".to_owned(), "Alice".to_owned());
        let stops = [
            of("Deployment/apps/web", "the object"),
            TraceStep {
                ready: "False".to_owned(),
                revision: revision.to_owned(),
                path: "./deploy/shop".to_owned(),
                message: message.to_owned(),
                ..of("Kustomization/apps/shop", "applied by")
            },
            TraceStep {
                revision: revision.to_owned(),
                url: "https://git.example.com/shop.git".to_owned(),
                metadata: BTreeMap::from([authors]),
                ..of("GitRepository/apps/shop", "from")
            },
        ];
        let text = crate::golden_file_comparison::at_both_widths(|on| text(&stops, on));
        expect_test::expect_file!["goldens/trace.txt"].assert_eq(&text);
    }
}
