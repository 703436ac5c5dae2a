//! `windlass tree`: prints the objects that an object applied, down to Pods, with the health of each. For a Freeze, it prints
//! the objects that the Freeze holds.
//!
//! Elsewhere: reading the tree (`windlass_answers::tree`).

use apply::dry_run_refusal;
use clap::Args as ClapArgs;
use windlass_answers::tree::{self, ObjectTreeBranch};

use super::command_scope::ClusterScope;
use super::complete;
use super::kind_argument;
use super::object_row::is_silent;
use super::output::{ReportFormat, report};
use windlass_cli_installation::cluster_operators;
use windlass_cli_runtime::connection::{ProgressGlyph, print, say};
use windlass_cli_runtime::exit_code::ExitCode;
use windlass_cli_runtime::table::{TerminalScreen, TextColour, clean, cut};

/// The flags of `windlass tree`.
#[derive(Debug, Clone, ClapArgs)]
pub(super) struct TreeArgs {
    /// A source, Kustomization, HelmRelease, Helmfile or Freeze
    #[arg(required = true, num_args = 1..=2, value_name = "KIND/NAME", add = complete::objects())]
    what: Vec<String>,
    #[command(flatten)]
    place: ClusterScope,
    /// Only objects of windlass and Flux
    #[arg(long)]
    compact: bool,
    /// Format
    #[arg(short, long, value_enum, default_value_t = ReportFormat::Text, value_name = "FORMAT")]
    output: ReportFormat,
}

pub(super) const EXAMPLES: &str = "Examples:
  windlass tree ks/app -n apps                  a Kustomization, its source, what it applied
  windlass tree gitrepo/app -n apps             a source, its newest change, and everything that uses it
  windlass tree hr/web -n apps                  a HelmRelease, its HelmChart, what it released
  windlass tree freeze/black-friday             a Freeze, the objects that wait for its end
  windlass tree hr/web -o json

Exit status: 0; 2 if the object cannot be read; 3 if the cluster cannot be reached.";

/// Prints a tree.
///
/// # Errors
/// The object cannot be read.
pub(super) fn run(args: &TreeArgs) -> anyhow::Result<ExitCode> {
    let branch = args.place.run(async |site| {
        let target = kind_argument::one(&site.cluster, &args.what).await?;
        let object = kind_argument::read(&site, &target).await?;
        let is_silent = is_silent(&object);
        let top = tree::read(&site, object, args.compact).await?;
        cluster_operators::say_doubt(&site.cluster).await;
        if is_silent && let Some(text) = cluster_operators::unseen(&site.cluster).await {
            say(ProgressGlyph::Warning, &text);
        }
        anyhow::Ok(top)
    })?;
    if report(&branch, args.output)?.is_none() {
        let mut out = String::new();
        draw(&branch, "", "", TerminalScreen::of_stdout(), &mut out);
        print(&out)?;
    }
    Ok(ExitCode::Success)
}

fn draw(branch: &ObjectTreeBranch, first: &str, rest: &str, on: TerminalScreen, out: &mut String) {
    let colour = match branch.health.as_str() {
        "Ready" | "Current" if branch.message.is_empty() => TextColour::Good,
        "Succeeded" => TextColour::Good,
        "NotReady" | "Failed" | "NotFound" | "RolledBack" | "Stalled" => TextColour::Bad,
        _ => TextColour::Busy,
    };
    let mut line = format!("{first}{}", clean(&branch.object));
    let mut more = format!(" {}", branch.health);
    let message = dry_run_refusal::first_with_count(&branch.message);
    for text in [branch.revision.as_str(), &*message].into_iter().filter(|it| !it.is_empty()) {
        more = format!("{more} {}", clean(text));
    }
    let left = on.width.unwrap_or(usize::MAX).saturating_sub(line.chars().count());
    line.push_str(&on.paint(&cut(&more, left), Some(colour)));
    out.push_str(&line);
    out.push('\n');
    for (at, below) in branch.below.iter().enumerate() {
        let is_last = at + 1 == branch.below.len();
        let (first, more) = if is_last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        draw(below, &format!("{rest}{first}"), &format!("{rest}{more}"), on, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn branch(
        object: &str,
        health: &str,
        message: &str,
        below: Vec<ObjectTreeBranch>,
    ) -> ObjectTreeBranch {
        let text = str::to_owned;
        ObjectTreeBranch {
            id: None,
            object: text(object),
            health: text(health),
            revision: String::new(),
            message: text(message),
            below,
        }
    }

    #[test]
    fn lines_fit_terminals_of_both_widths() {
        let pod = branch(
            "Pod/apps/web-7d9c5b8f6d-x2x7q",
            "InProgress",
            "container 'app' of Pod web-7d9c5b8f6d-x2x7q CrashLoopBackOff (exit code 1): back-off \u{1b}[2J",
            vec![],
        );
        let web = branch("Deployment/apps/web", "InProgress", "Available: 0/1", vec![pod]);
        let map = branch("ConfigMap/apps/settings", "Current", "", vec![]);
        let mut shop =
            branch("Kustomization/apps/shop", "NotReady", "HealthCheckFailed", vec![web, map]);
        shop.revision = "main@sha1:01234567".to_owned();
        let top = branch("GitRepository/apps/shop", "Ready", "", vec![shop]);
        let text = crate::golden_file_comparison::at_both_widths(|on| {
            let mut out = String::new();
            draw(&top, "", "", on, &mut out);
            out
        });
        expect_test::expect_file!["goldens/tree.txt"].assert_eq(&text);
    }

    #[test]
    fn every_object_has_a_line_with_its_health() {
        let pod = branch("Pod/apps/web-1", "Failed", "container 'app' CrashLoopBackOff", vec![]);
        let web = branch("Deployment/apps/web", "InProgress", "Available: 0/1", vec![pod]);
        let map = branch("ConfigMap/apps/a", "Current", "", vec![]);
        let top = branch("Kustomization/apps/app", "NotReady", "", vec![web, map]);
        let mut out = String::new();
        draw(&top, "", "", TerminalScreen { width: Some(52), is_coloured: false }, &mut out);
        let expected = "\
Kustomization/apps/app NotReady
├─ Deployment/apps/web InProgress Available: 0/1
│  └─ Pod/apps/web-1 Failed container 'app' CrashLo…
└─ ConfigMap/apps/a Current
";
        assert_eq!(out, expected);
    }
}
