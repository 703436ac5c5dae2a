//! `windlass changes`: shows the result of a source's change for all appliers that it affects.
//!
//! Elsewhere: finding changes (`windlass_answers::change_sets`), rolling a change back (`rollback/change_rollback.rs`).

use std::time::Duration;

use anyhow::bail;
use clap::{Args as ClapArgs, ValueEnum};
use crds::windlass_release::{ChangeSet, ChangeSetVerdict};
use reconcile::Time;
use windlass_answers::change_sets::{
    ListedChangeSets, find, is_bad, is_named, is_over, members, newer, progress, to_list, unnamed,
    verdict,
};
use windlass_answers::failed_change_hints::way_back;
use windlass_answers::rolled_back_commit_warning;
use windlass_answers::rollout_waves::{self, ListedRollout};

use super::command_scope::{CommandScope, NamespaceScope, say_left_out};
use windlass_cli_installation::cluster_operators;
use windlass_cli_runtime::connection::{ProgressGlyph, print, say};
use windlass_cli_runtime::exit_code::ExitCode;
use windlass_cli_runtime::table::{
    PagedTable, TableCell, TerminalScreen, TextColour, age, clean, cut,
};

/// How often a watched change is read.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The longest subject in the table, in characters.
const MAX_SUBJECT_CHARACTERS: usize = 60;

/// For how many failed changes the rollback command is printed below the table.
const MAX_WAYS_BACK: usize = 5;

/// The longest revision in the table, in characters.
const MAX_REVISION_CHARACTERS: usize = 24;

/// The flags of `windlass changes`.
#[derive(Debug, Clone, ClapArgs)]
pub(super) struct ChangesArgs {
    /// One change: its name, its revision, or the beginning of its commit
    #[arg(value_name = "REV")]
    revision: Option<String>,
    #[command(flatten)]
    scope: NamespaceScope,
    /// Print the change whenever it changes, until it has a verdict; without REV the newest one
    #[arg(short, long)]
    watch: bool,
    /// Format
    #[arg(short, long, value_enum, default_value_t = ChangesFormat::Table, hide_default_value = true)]
    output: ChangesFormat,
}

pub(super) const EXAMPLES: &str = "Examples:
  windlass changes -n flux-system               the last changes of the sources of a namespace
  windlass changes 5f0c9d0 -n flux-system       what became of one commit
  windlass changes 5f0c9d0 -A --watch           until all that it changes came to its end
  windlass changes -A -o json                   for machines

A change is one revision of a source with all Kustomizations, Helmfiles and HelmReleases that it changes, and has one verdict.
`>` marks those whose spec another one applied. Members of other namespaces are counted. The last ten changes of each source are
kept. `windlass rollback change/NAME` takes the Kustomizations of one back to what they had before.

Exit status: 0; 1 if REV failed, stalled or was rolled back; 2 if something could not be read, or there is no such change; 3 if
the cluster cannot be reached.";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ChangesFormat {
    /// A table for people
    Table,
    /// A list as JSON
    Json,
    /// A list as YAML
    Yaml,
}

/// Prints changes.
///
/// # Errors
/// The cluster cannot be reached, the kind is not installed, or there is no such change.
pub(super) fn run(args: &ChangesArgs) -> anyhow::Result<ExitCode> {
    if args.watch {
        return args.scope.place.follow(async |site| {
            let site = site.everywhere(args.scope.all_namespaces);
            cluster_operators::say_doubt(&site.cluster).await;
            watch(&site, args).await
        });
    }
    let (found, facts, place) = args.scope.place.run(async |site| {
        let site = site.everywhere(args.scope.all_namespaces);
        if args.output == ChangesFormat::Table {
            cluster_operators::say_doubt(&site.cluster).await;
        }
        let found = find(&site, &args.scope.labels).await?;
        let facts = match &args.revision {
            Some(word) if args.output == ChangesFormat::Table => {
                NamedChangeFacts::read(&site, &found.changes, word).await
            }
            Some(_) | None => NamedChangeFacts::default(),
        };
        anyhow::Ok((found, facts, site.in_words()))
    })?;
    let ListedChangeSets { changes: known, left_out } = found;
    let is_chosen = |it: &&ChangeSet| args.revision.as_ref().is_none_or(|word| is_named(it, word));
    let changes: Vec<ChangeSet> = known.iter().filter(is_chosen).cloned().collect();
    if args.output != ChangesFormat::Table {
        let list = to_list(&changes)?;
        let text = match args.output {
            ChangesFormat::Yaml => goyaml::emit_with_escapes(&list)?,
            ChangesFormat::Json | ChangesFormat::Table => {
                format!("{}\n", serde_json::to_string_pretty(&list)?)
            }
        };
        print(&text)?;
    } else if args.revision.is_some() {
        let screen = TerminalScreen::of_stdout();
        for (at, change) in changes.iter().enumerate() {
            let warning = facts.warnings.get(at).and_then(Option::as_deref);
            print(&details(change, &known, warning, screen))?;
        }
        print(&wave_lines(&facts.rollouts, &changes))?;
    } else if !changes.is_empty() {
        let screen = TerminalScreen::of_stdout();
        let now = jiff::Timestamp::now();
        print(&table(&changes, args.scope.all_namespaces, now, screen))?;
        for text in ways_back(&changes) {
            say(ProgressGlyph::Warning, &clean(&text));
        }
    }
    say_left_out(&left_out);
    match (&args.revision, changes.is_empty(), left_out.is_empty()) {
        (Some(word), true, true) => bail!("there is no change {} {place}", clean(word)),
        (None, true, true) => {
            say(ProgressGlyph::Action, &format!("no changes {place}"));
            Ok(ExitCode::Success)
        }
        // A change that the user may not list may still exist.
        (_, _, false) => Ok(ExitCode::Failed),
        (Some(_), false, true) => Ok(exit_code(&changes)),
        (None, false, true) => Ok(ExitCode::Success),
    }
}

/// What is read in addition to the changes that the user named.
#[derive(Default)]
struct NamedChangeFacts {
    /// For each named change, in their order, the warning that a later revision applies it again.
    warnings: Vec<Option<String>>,
    /// The rollouts that are about the named changes.
    rollouts: Vec<ListedRollout>,
}

impl NamedChangeFacts {
    async fn read(site: &CommandScope, known: &[ChangeSet], word: &str) -> Self {
        let named: Vec<ChangeSet> = known.iter().filter(|it| is_named(it, word)).cloned().collect();
        let mut warnings = Vec::new();
        for change in &named {
            warnings.push(rolled_back_commit_warning::of_change(site, change, known).await);
        }
        Self { warnings, rollouts: listed_rollouts(site, &named).await }
    }
}

/// The exit code for the changes that the user named.
fn exit_code(changes: &[ChangeSet]) -> ExitCode {
    match changes.iter().any(is_bad) {
        true => ExitCode::ProblemsFound,
        false => ExitCode::Success,
    }
}

/// Prints a change each time it changes, until it is finished. If the change does not exist yet, the command waits for it,
/// because the commit may have been pushed just now.
async fn watch(site: &CommandScope, args: &ChangesArgs) -> anyhow::Result<ExitCode> {
    let screen = TerminalScreen::of_stdout();
    let mut printed = String::new();
    let mut chosen: Option<String> = args.revision.clone();
    let mut is_awaited = false;
    loop {
        let ListedChangeSets { changes: known, left_out } = find(site, &args.scope.labels).await?;
        let is_chosen = |it: &&ChangeSet| chosen.as_ref().is_none_or(|word| is_named(it, word));
        let change = known.iter().find(is_chosen);
        match change {
            Some(change) => {
                // The user did not ask about a later change.
                chosen = change.metadata.name.clone();
                let asked = std::slice::from_ref(change);
                let waves = wave_lines(&listed_rollouts(site, asked).await, asked);
                let warning = rolled_back_commit_warning::of_change(site, change, &known).await;
                let text = details(change, &known, warning.as_deref(), screen) + &waves;
                if text != printed {
                    print(&text)?;
                    printed = text;
                }
                if is_over(change) {
                    say_left_out(&left_out);
                    return Ok(exit_code(std::slice::from_ref(change)));
                }
            }
            None if !left_out.is_empty() => {
                say_left_out(&left_out);
                return Ok(ExitCode::Failed);
            }
            None if !std::mem::replace(&mut is_awaited, true) => {
                say(ProgressGlyph::Action, "there is no such change yet, waiting for it");
            }
            None => {}
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// The rollback command for each failed change, printed below the table. Only the newest change of a source can be rolled back.
fn ways_back(changes: &[ChangeSet]) -> Vec<String> {
    let newest = changes.iter().filter(|change| newer(changes, change).is_none());
    let failed = newest.filter_map(|change| {
        let name = change.metadata.name.as_deref().unwrap_or_default();
        let source = &change.spec.source;
        let command = way_back(change)?;
        Some(format!(
            "change {name} of {}/{} is {}; to take it back: {command}",
            source.kind,
            source.name,
            verdict(change)
        ))
    });
    failed.take(MAX_WAYS_BACK).collect()
}

fn colour(verdict: ChangeSetVerdict) -> TextColour {
    match verdict {
        ChangeSetVerdict::Succeeded => TextColour::Good,
        ChangeSetVerdict::Progressing | ChangeSetVerdict::Superseded => TextColour::Busy,
        ChangeSetVerdict::Failed | ChangeSetVerdict::RolledBack | ChangeSetVerdict::Stalled => {
            TextColour::Bad
        }
    }
}

fn table(changes: &[ChangeSet], with_namespace: bool, now: Time, on: TerminalScreen) -> String {
    let titles =
        ["NAMESPACE", "CHANGE", "SOURCE", "REVISION", "VERDICT", "ENDED", "AGE", "SUBJECT"];
    let skipped = usize::from(!with_namespace);
    let rows: Vec<Vec<TableCell>> =
        changes.iter().map(|it| row(it, now).into_iter().skip(skipped).collect()).collect();
    PagedTable::new(&titles[skipped..], on).page(&rows)
}

fn row(change: &ChangeSet, now: Time) -> [TableCell; 8] {
    let spec = &change.spec;
    let subject = spec.commit.as_ref().map(|it| it.subject.as_str()).unwrap_or_default();
    let verdict = verdict(change);
    let created = change.metadata.creation_timestamp.as_ref().map(|at| at.0);
    [
        TableCell::new(change.metadata.namespace.as_deref().unwrap_or_default()),
        TableCell::new(change.metadata.name.as_deref().unwrap_or_default()).vital(),
        TableCell::new(&format!("{}/{}", spec.source.kind, spec.source.name)),
        TableCell::new(&cut(&spec.revision, MAX_REVISION_CHARACTERS)),
        TableCell::coloured(verdict.as_str(), Some(colour(verdict))),
        TableCell::new(&progress(change)),
        TableCell::new(&age(created, now)),
        TableCell::new(&cut(subject, MAX_SUBJECT_CHARACTERS)),
    ]
}

/// The rollouts that are about the changes. If they cannot be listed, a warning says so.
async fn listed_rollouts(site: &CommandScope, changes: &[ChangeSet]) -> Vec<ListedRollout> {
    match rollout_waves::list(site, changes).await {
        Ok(rollouts) => rollouts,
        Err(error) => {
            let text = format!("the waves of staged rollouts are not known: {error:#}");
            say(ProgressGlyph::Warning, &clean(&text));
            Vec::new()
        }
    }
}

/// The present wave of each change in each rollout, one line each.
fn wave_lines(rollouts: &[ListedRollout], changes: &[ChangeSet]) -> String {
    let lines = changes
        .iter()
        .flat_map(|change| rollouts.iter().filter_map(move |rollout| rollout.line(change)));
    lines.map(|it| format!("{}\n", clean(&it))).collect()
}

/// The details of a change. `known` are the changes of its source, because only the newest one can be rolled back. `warning`
/// says that a later revision applies it again.
pub(super) fn details(
    change: &ChangeSet,
    known: &[ChangeSet],
    warning: Option<&str>,
    on: TerminalScreen,
) -> String {
    let spec = &change.spec;
    let name = change.metadata.name.as_deref().unwrap_or_default();
    let namespace = change.metadata.namespace.as_deref().unwrap_or_default();
    let source = format!("{}/{namespace}/{}", spec.source.kind, spec.source.name);
    let mut lines = vec![
        format!("change {} of {}", clean(name), clean(&source)),
        format!("revision: {}", clean(&spec.revision)),
    ];
    if let Some(commit) = &spec.commit {
        let by = match (commit.author.is_empty(), commit.time.is_empty()) {
            (true, true) => String::new(),
            (false, true) => format!(" ({})", commit.author),
            (true, false) => format!(" ({})", commit.time),
            (false, false) => format!(" ({}, {})", commit.author, commit.time),
        };
        lines.push(format!("commit: {}", clean(&format!("{}{by}", commit.subject))));
    }
    let verdict = verdict(change);
    let message = change.status.as_ref().and_then(|it| it.message.as_deref()).unwrap_or_default();
    let shown = on.paint(verdict.as_str(), Some(colour(verdict)));
    lines.push(format!("verdict: {shown}: {}", clean(message)));
    for member in members(change) {
        let bad = member.is_bad.then_some(TextColour::Bad);
        let state = format!("{:<11}", clean(&member.state));
        lines.push(format!("  {} {}", on.paint(&state, bad), clean(&member.subject)));
    }
    lines.extend(unnamed(change).iter().map(|text| format!("  {text}")));
    let left = change.status.iter().flat_map(|it| &it.not_rolled_back);
    lines.extend(left.map(|text| format!("not rolled back: {}", clean(text))));
    let status = change.status.as_ref();
    if let Some(asked) = status.and_then(|it| it.rollback.as_ref()) {
        let is_done = status.is_some_and(|it| it.rolled_back_at.is_some());
        let state = if is_done { "carried out" } else { "not carried out yet" };
        let why = asked.reason.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
        lines.push(clean(&format!("rollback: {} asked for it{why}, {state}", asked.user)));
    }
    let command = way_back(change).filter(|_| newer(known, change).is_none());
    lines.extend(command.map(|command| format!("to take it back: {}", clean(&command))));
    lines.extend(warning.map(|text| format!("note: {}", clean(text))));
    lines.into_iter().map(|line| format!("{line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn change() -> ChangeSet {
        serde_json::from_value(json!({
            "metadata": {"name": "fleet-17-1a2b3c4d", "namespace": "flux-system",
                "creationTimestamp": "2026-11-30T09:00:00Z"},
            "spec": {"source": {"kind": "GitRepository", "name": "fleet", "uid": "u"},
                "revision": "main@sha1:5f0c9d0c2f6a3f1f8a110d9f6f4e3f434f0c9d0c", "digest": "sha256:1",
                "sequence": 17,
                "commit": {"subject": "Scale\u{1b}[31m the shop", "author": "Alice",
                    "time": "2026-11-30T08:59:00Z"}},
            "status": {"verdict": "Failed", "message": "2 members: 1 failed, 1 succeeded (ks/shop)",
                "members": ["Failed ks/shop", "Succeeded > hr/web"],
                "counts": {"members": 2, "failed": 1, "succeeded": 1},
                "otherNamespaces": {"members": 1, "succeeded": 1},
                "notRolledBack": ["hf/db: it stays"]},
        }))
        .unwrap()
    }

    const PLAIN: TerminalScreen = TerminalScreen { width: None, is_coloured: false };

    #[test]
    fn a_change_is_printed_with_its_members_and_without_control_characters() {
        expect_test::expect![[r#"
            change fleet-17-1a2b3c4d of GitRepository/flux-system/fleet
            revision: main@sha1:5f0c9d0c2f6a3f1f8a110d9f6f4e3f434f0c9d0c
            commit: Scale\u{1b}[31m the shop (Alice, 2026-11-30T08:59:00Z)
            verdict: Failed: 2 members: 1 failed, 1 succeeded (ks/shop)
              Failed      ks/shop
              Succeeded   > hr/web
              1 member of other namespaces: 1 succeeded
            not rolled back: hf/db: it stays
            to take it back: windlass rollback change/fleet-17-1a2b3c4d -n flux-system
        "#]]
        .assert_eq(&details(&change(), &[], None, PLAIN));
    }

    #[test]
    fn below_the_table_the_newest_change_of_a_source_that_failed_has_its_command() {
        let mut older = change();
        older.spec.sequence = 16;
        older.metadata.name = Some("fleet-16-1a2b3c4d".to_owned());
        let expected = "change fleet-17-1a2b3c4d of GitRepository/fleet is Failed; to take it back: windlass rollback \
                        change/fleet-17-1a2b3c4d -n flux-system";
        assert_eq!(ways_back(&[change(), older.clone()]), [expected]);
        let text = details(&older, &[change()], None, PLAIN);
        assert!(!text.contains("to take it back"), "a newer one is applied: {text}");
        let text = details(&older, &[], Some("it\u{1b} comes back"), PLAIN);
        assert!(text.ends_with("\nnote: it\\u{1b} comes back\n"), "{text}");
        let mut asked = change();
        let rollback = crds::windlass_release::ChangeSetRollbackRequest {
            user: "alice".to_owned(),
            reason: Some("incident-1".to_owned()),
            ..Default::default()
        };
        asked.status.as_mut().unwrap().rollback = Some(rollback);
        assert!(ways_back(std::slice::from_ref(&asked)).is_empty());
        let text = details(&asked, &[], None, PLAIN);
        assert!(
            text.ends_with("rollback: alice asked for it (incident-1), not carried out yet\n"),
            "{text}"
        );
    }

    #[test]
    fn the_table_has_a_line_for_each_change() {
        let now = "2026-11-30T10:00:00Z".parse().unwrap();
        let text = table(&[change()], true, now, PLAIN);
        for part in ["CHANGE", "fleet-17-1a2b3c4d", "GitRepository/fleet", "Failed", "3/3", "60m"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains('\u{1b}'), "{text:?}");
        assert_eq!(exit_code(&[change()]), ExitCode::ProblemsFound);
    }
}
