//! `windlass audit`: prints ReleaseAudits, which say what windlass did to releases and Kustomizations.
//!
//! Elsewhere: the fields of an audit (`crds::windlass_release`), finding audits (`windlass_answers::audit`), writing them
//! (`windlass_runtime::audit`).

use std::time::Duration;

use clap::{Args as ClapArgs, ValueEnum};
use crds::windlass_release::{AuditCause, AuditChanges, AuditOutcome, AuditRevision, ReleaseAudit};
use windlass_answers::audit::{
    self, AuditedObjectName, ListedAudits, ended, parse_subject, to_list,
};

use super::command_scope::{NamespaceScope, say_left_out};
use windlass_cli_runtime::connection::{ProgressGlyph, print, say};
use windlass_cli_runtime::exit_code::ExitCode;
use windlass_cli_runtime::table::{PagedTable, TableCell, TerminalScreen, TextColour};
use windlass_serve::settings::parse_duration;

/// The flags of `windlass audit`.
#[derive(Debug, Clone, ClapArgs)]
pub(super) struct AuditArgs {
    #[command(flatten)]
    scope: NamespaceScope,
    /// List only those of an object, such as HelmRelease/web or Kustomization/apps
    #[arg(value_name = "KIND/NAME", value_parser = parse_subject)]
    subject: Option<AuditedObjectName>,
    /// The same
    #[arg(
        long = "for",
        value_name = "KIND/NAME",
        value_parser = parse_subject,
        hide = true,
        conflicts_with = "subject"
    )]
    other: Option<AuditedObjectName>,
    /// List only operations that ended within this time, such as 24h
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    since: Option<Duration>,
    /// Format
    #[arg(short, long, value_enum, default_value_t = AuditFormat::Table, hide_default_value = true)]
    output: AuditFormat,
}

pub(super) const EXAMPLES: &str = "Examples:
  windlass audit -n apps                        of all objects of a namespace
  windlass audit hr/web -n apps                 of a HelmRelease
  windlass audit -A --since 24h -o jsonl        a JSON object a line, for an archive

Exit status: 0; 2 if something could not be read; 3 if the cluster cannot be reached.";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum AuditFormat {
    /// A table for people
    Table,
    /// A list as JSON
    Json,
    /// A list as YAML
    Yaml,
    /// One JSON object a line
    Jsonl,
}

/// Prints audits.
///
/// # Errors
/// The cluster cannot be reached, or the kind is not installed.
pub(super) fn run(args: &AuditArgs) -> anyhow::Result<ExitCode> {
    let subject = args.subject.as_ref().or(args.other.as_ref());
    let ListedAudits { audits, left_out } = args.scope.place.run(async |site| {
        let site = site.everywhere(args.scope.all_namespaces);
        let since = args.since.and_then(|by| jiff::Timestamp::now().saturating_sub(by).ok());
        audit::find(&site, &args.scope.labels, subject, since).await
    })?;
    if !audits.is_empty() || args.output != AuditFormat::Table {
        print(&shown(&audits, args.output, args.scope.all_namespaces)?)?;
    } else if left_out.is_empty() {
        say(ProgressGlyph::Action, &nothing(args));
    }
    say_left_out(&left_out);
    Ok(if left_out.is_empty() { ExitCode::Success } else { ExitCode::Failed })
}

/// The message if there are no audits. It names the object, the time and the namespace of the command.
fn nothing(args: &AuditArgs) -> String {
    let subject = args.subject.as_ref().or(args.other.as_ref());
    let of = subject.map(|it| format!(" of {}/{}", it.kind, it.name)).unwrap_or_default();
    let since = args.since.map(|it| format!(" of the last {} s", it.as_secs())).unwrap_or_default();
    let place = args.scope.nothing().replacen("no such objects", "", 1);
    format!("no audits{of}{since}{place}")
}

fn shown(
    audits: &[ReleaseAudit],
    format: AuditFormat,
    with_namespace: bool,
) -> anyhow::Result<String> {
    Ok(match format {
        AuditFormat::Table => table(audits, with_namespace, TerminalScreen::of_stdout()),
        AuditFormat::Json => format!("{}\n", serde_json::to_string_pretty(&to_list(audits)?)?),
        AuditFormat::Yaml => goyaml::emit_with_escapes(&to_list(audits)?)?,
        AuditFormat::Jsonl => {
            let mut text = String::new();
            for audit in audits {
                text.push_str(&serde_json::to_string(audit)?);
                text.push('\n');
            }
            text
        }
    })
}

fn table(audits: &[ReleaseAudit], with_namespace: bool, on: TerminalScreen) -> String {
    let titles = [
        "NAMESPACE",
        "ENDED",
        "SUBJECT",
        "OPERATION",
        "OUTCOME",
        "CHANGES",
        "FROM",
        "TO",
        "CAUSE",
        "DURATION",
    ];
    let skipped = usize::from(!with_namespace);
    let rows: Vec<Vec<TableCell>> =
        audits.iter().map(|audit| row(audit).into_iter().skip(skipped).collect()).collect();
    PagedTable::new(&titles[skipped..], on).page(&rows)
}

fn row(audit: &ReleaseAudit) -> [TableCell; 10] {
    let spec = &audit.spec;
    let release = spec.subject.release.as_ref();
    let release = release.map(|it| match it.kube_context.as_str() {
        "" if it.name == spec.subject.name => String::new(),
        "" => format!(" ({})", it.name),
        context => format!(" ({context}/{}/{})", it.namespace, it.name),
    });
    let release = release.unwrap_or_default();
    let causes: Vec<String> = spec.causes.iter().map(cause).collect();
    let at = ended(audit).map(|at| at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
    [
        TableCell::new(audit.metadata.namespace.as_deref().unwrap_or_default()),
        TableCell::new(&at.unwrap_or_default()),
        TableCell::new(&format!("{}/{}{release}", spec.subject.kind, spec.subject.name)),
        TableCell::new(&spec.operation.to_string()),
        // This column comes before the long ones, because a narrow terminal cuts lines.
        TableCell::coloured(&spec.outcome.to_string(), colour(spec.outcome)),
        TableCell::new(&changes(&spec.changes)),
        TableCell::new(&state(spec.from.as_ref())),
        TableCell::new(&state(spec.to.as_ref())),
        TableCell::new(&causes.join(",")),
        TableCell::new(spec.duration.as_deref().unwrap_or_default()),
    ]
}

fn colour(outcome: AuditOutcome) -> Option<TextColour> {
    match outcome {
        AuditOutcome::Succeeded => Some(TextColour::Good),
        AuditOutcome::Failed => Some(TextColour::Bad),
        _ => Some(TextColour::Busy),
    }
}

fn state(of: Option<&AuditRevision>) -> String {
    let Some(of) = of else { return String::new() };
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    match (text(&of.revision), text(&of.chart), text(&of.chart_version)) {
        (revision, chart, _) if chart.is_empty() => revision,
        (revision, chart, version) => format!("{revision}:{chart}@{version}"),
    }
}

fn changes(of: &AuditChanges) -> String {
    let partial = if of.partial { "?" } else { "" };
    format!("+{} ~{} -{}{partial}", of.added, of.changed, of.removed)
}

fn cause(of: &AuditCause) -> String {
    let cause = match &of.object {
        Some(object) => format!("{}:{object}", of.type_.as_str()),
        None => of.type_.as_str().to_owned(),
    };
    // The user's name comes from an annotation. Everyone who may write the annotation can put any name there.
    let user = of.claimed_user.as_ref().map(|user| format!(" by {user} (claimed)"));
    let reason = of.reason.as_ref().map(|reason| format!(": {reason}"));
    cause + &user.unwrap_or_default() + &reason.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use fake_cluster::answer_examples::audit;

    fn audits(found: Vec<Value>) -> Vec<ReleaseAudit> {
        found.into_iter().map(|it| serde_json::from_value(it).unwrap()).collect()
    }

    #[test]
    fn the_table_fits_terminals_of_both_widths() {
        let found = vec![
            audit("shop", "HelmRelease", "2026-01-03T00:00:00Z"),
            audit("apps", "Kustomization", "2026-01-04T00:00:00Z"),
        ];
        let audits = audits(found);
        let text = crate::golden_file_comparison::at_both_widths(|on| table(&audits, true, on));
        expect_test::expect_file!["goldens/audit.txt"].assert_eq(&text);
    }

    #[test]
    fn a_cause_names_the_user_who_is_claimed_to_have_asked_and_why() {
        let cause = |of: Value| cause(&serde_json::from_value(of).unwrap());
        assert_eq!(cause(json!({"type": "Failure"})), "Failure");
        assert_eq!(
            cause(json!({"type": "Values", "object": "Secret/apps/v"})),
            "Values:Secret/apps/v"
        );
        let asked = json!({"type": "Request", "claimedUser": "alice", "reason": "incident-1234"});
        assert_eq!(cause(asked), "Request by alice (claimed): incident-1234");
    }

    #[test]
    fn a_release_of_a_context_is_named_in_full() {
        let mut found = audit("web", "Helmfile", "2026-01-03T00:00:00Z");
        found["spec"]["subject"]["release"]["kubeContext"] = json!("east");
        let audits = audits(vec![found]);
        let table = shown(&audits, AuditFormat::Table, true).unwrap();
        assert!(table.contains("Helmfile/web (east/apps/shop)"), "{table}");
    }

    #[test]
    fn each_format_has_the_same_audits() {
        let found = vec![audit("we\u{1b}b", "HelmRelease", "2026-01-03T00:00:00Z")];
        let audits = audits(found);
        let table = shown(&audits, AuditFormat::Table, true).unwrap();
        let line = table.lines().nth(1).unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(
            line,
            "apps 2026-01-03T00:00:00Z HelmRelease/we\\u{1b}b (shop) Upgrade Succeeded +1 ~2 -0? 1:web@1.0.0 2:web@1.1.0 \
             Values:Secret/apps/v,Spec 1.5s"
        );
        assert!(!shown(&audits, AuditFormat::Table, false).unwrap().contains("NAMESPACE"));
        let json: Value =
            serde_json::from_str(&shown(&audits, AuditFormat::Json, true).unwrap()).unwrap();
        assert_eq!(json["kind"], "ReleaseAuditList");
        assert_eq!(json["items"][0]["kind"], "ReleaseAudit");
        let lines = shown(&audits, AuditFormat::Jsonl, true).unwrap();
        assert_eq!(serde_json::from_str::<Value>(&lines).unwrap(), json["items"][0]);
        assert!(
            shown(&audits, AuditFormat::Yaml, true).unwrap().contains("kind: ReleaseAuditList\n")
        );
    }
}
