//! `windlass why`: explains on one screen why an object is not ready.
//!
//! Here: the screen of one object. Below: the screen of everything that is not ready (`why/all.rs`), and of tags that an
//! ImagePolicy does not choose (`why/image_tags.rs`). Elsewhere: finding the cause (`windlass_answers::why`).

mod all;
mod image_tags;

use std::path::PathBuf;

use anyhow::ensure;
use cause::{CauseAdvice, ExaminedObjectState, StateExplanation};
use clap::Args as ClapArgs;
use reconcile::Time;
use windlass_answers::why::{ObjectExplanation, WhyReport, explain};

use super::command_scope::{CommandScope, NamespaceScope};
use super::complete;
use super::kind_argument::{self, ResourceArgument};
use super::output::{ReportFormat, report};
use windlass_cli_runtime::connection::{ProgressGlyph, print, say};
use windlass_cli_runtime::exit_code::ExitCode;
use windlass_cli_runtime::table::{TerminalScreen, TextColour, age, clean, cut, cut_within};

/// The flags of `windlass why`.
#[derive(Debug, Clone, ClapArgs)]
pub(super) struct WhyArgs {
    /// The objects, as KIND/NAME or KIND NAME; without a name everything of the kind, or of all kinds, that is not ready
    #[arg(value_name = "KIND[/NAME]", add = complete::objects())]
    what: Vec<String>,
    #[command(flatten)]
    scope: NamespaceScope,
    /// Of an ImagePolicy: all tags that it does not choose, instead of 20
    #[arg(long)]
    all: bool,
    /// Of an ImagePolicy: file with all tags of the image, a line each, `-` for stdin; by default the ten that a status has
    #[arg(long, value_name = "FILE")]
    tags: Option<PathBuf>,
    /// Format
    #[arg(short, long, value_enum, default_value_t = ReportFormat::Text, value_name = "FORMAT")]
    output: ReportFormat,
}

pub(super) const EXAMPLES: &str = "Examples:
  windlass why -A                               everything that is not ready, grouped by its cause
  windlass why ks/app -n apps                   why a Kustomization is not ready
  windlass why hr web -n apps -o json           the same of a HelmRelease, for machines
  windlass why deployment/web -n apps           also of what was applied
  windlass why ks/app ks/infra -n apps          of several objects; as JSON they are a list
  windlass why imagepolicy/web -n apps          also why each tag of the image is not chosen
  crane ls ghcr.io/acme/web | windlass why imagepolicy/web -n apps --tags -
                                                the same of all tags that the registry has

Of one object, the first line names the cause. It is looked for in this order: suspension and window, source, dependencies, what the
object itself reports, then the objects that it applied, down through those that apply others, to Pod, container and its last lines.
What fails besides is named, too: containers that crash while the source is down, a second dependency that is not ready, or why
a suspended object failed.

Of an ImagePolicy, a table has the tags that it does not choose, those first of which one would expect it. The API has at most ten
tags of an image, and how many it leaves out is printed. Since when a digest is known is not in the API either: the message of the
policy names the best tags that windlass.dev/min-age keeps waiting.

Without a name, all objects are examined that do not report to be ready, and what all of them applied: whether it exists, and
whether workloads and other objects with a status are healthy. What was not examined, for missing rights or in other clusters, is
named.

Exit status: 0 if the objects are ready, or nothing reports that they are not; 1 if one is not ready, a cause was found, or no
operator is active where no object was named; 2 if something could not be read; 3 if the cluster cannot be reached.";

/// Explains some objects, or everything that is not ready.
///
/// # Errors
/// There is no such kind, the only object does not exist, or the API server did not respond.
pub(super) fn run(args: &WhyArgs) -> anyhow::Result<ExitCode> {
    args.scope.place.run(async |site| {
        if let Some(targets) =
            windlass_answers::why::unready_objects::targets(&site, &args.what).await?
        {
            ensure!(args.tags.is_none(), "--tags is for one ImagePolicy: name it");
            return all::run(site, args, &targets).await;
        }
        let targets = kind_argument::targets(&site.cluster, &args.what).await?;
        args.scope.check(&targets)?;
        let is_of_one = args.tags.is_none() || targets.len() == 1;
        ensure!(is_of_one, "--tags is for one ImagePolicy: name no other object");
        match targets.as_slice() {
            [target] => one(&site, args, target).await,
            several => each(&site, args, several).await,
        }
    })
}

async fn one(
    site: &CommandScope,
    args: &WhyArgs,
    target: &ResourceArgument,
) -> anyhow::Result<ExitCode> {
    let explanation = explain(site, target, args.tags.as_deref()).await?;
    if report(&WhyReport::of(&explanation), args.output)?.is_none() {
        print_explanation(&explanation, args)?;
    }
    Ok(exit_code(std::slice::from_ref(&explanation.why), false))
}

/// Explains several objects. An object that does not exist is named, and the others are still explained.
async fn each(
    site: &CommandScope,
    args: &WhyArgs,
    targets: &[ResourceArgument],
) -> anyhow::Result<ExitCode> {
    let mut explanations = Vec::new();
    let mut absent = 0;
    for target in targets {
        match explain(site, target, args.tags.as_deref()).await {
            Ok(explanation) => explanations.push(explanation),
            Err(error) => {
                absent += 1;
                say(ProgressGlyph::Failure, &clean(&format!("{error:#}")));
            }
        }
    }
    let reports: Vec<WhyReport<'_>> = explanations.iter().map(WhyReport::of).collect();
    if report(&reports, args.output)?.is_none() {
        for explanation in &explanations {
            print_explanation(explanation, args)?;
        }
    }
    let whys: Vec<StateExplanation> = explanations.into_iter().map(|it| it.why).collect();
    Ok(exit_code(&whys, absent > 0))
}

/// The exit code. It says whether a cause was found, or whether an object could not be read.
fn exit_code(whys: &[StateExplanation], is_unread: bool) -> ExitCode {
    let is_hidden = |why: &StateExplanation| why.state == ExaminedObjectState::Hidden;
    let is_unclear = |why: &StateExplanation| is_hidden(why) || !why.unread.is_empty();
    match () {
        () if whys.iter().any(|why| !is_hidden(why) && why.is_finding()) => ExitCode::ProblemsFound,
        () if is_unread || whys.iter().any(is_unclear) => ExitCode::Failed,
        () => ExitCode::Success,
    }
}

/// Prints the explanation of an object's state, and the tags of its images if they are known.
fn print_explanation(explanation: &ObjectExplanation, args: &WhyArgs) -> anyhow::Result<()> {
    let on = TerminalScreen::of_stdout();
    print(&screen(&explanation.why, on, jiff::Timestamp::now()))?;
    let tags = explanation.tags.as_ref();
    tags.map_or(Ok(()), |tags| print(&image_tags::text(tags, args.all, on)))
}

/// The width of the left column, in characters.
const LEFT_COLUMN_CHARACTERS: usize = 9;

/// The text of the screen.
pub(super) fn screen(why: &StateExplanation, on: TerminalScreen, now: Time) -> String {
    let (glyph, colour) = match why.state {
        // The remarks say that some objects could not be read or may be outdated. So the object may not be ready after all.
        ExaminedObjectState::Ready if why.cause.is_none() && !why.remarks.is_empty() => {
            ("⚠", TextColour::Busy)
        }
        ExaminedObjectState::Ready if why.cause.is_none() => ("✔", TextColour::Good),
        ExaminedObjectState::Suspended if why.second.is_some() => ("✗", TextColour::Bad),
        ExaminedObjectState::Ready
        | ExaminedObjectState::Progressing
        | ExaminedObjectState::Suspended => ("◎", TextColour::Busy),
        ExaminedObjectState::Stale | ExaminedObjectState::Degraded => ("⚠", TextColour::Busy),
        ExaminedObjectState::NotReady
        | ExaminedObjectState::Missing
        | ExaminedObjectState::Hidden => ("✗", TextColour::Bad),
    };
    let mut out =
        format!("{} {}\n", on.paint(glyph, Some(colour)), on.wrapped(&clean(&why.line()), 2));
    let mut block = |title: &str, text: &str| out.push_str(&titled(title, text, on));
    // A path with one step would only repeat the first line.
    if why.path.len() > 1 {
        for (at, step) in why.path.iter().enumerate() {
            let title = if at == 0 { "because" } else { "" };
            let since = step.since.map(|since| format!(" ({})", age(Some(since), now)));
            let text =
                format!("{}{}: {}", step.object.subject(), since.unwrap_or_default(), step.text);
            block(title, &cut_within(&clean(&text), 400));
        }
    }
    if let Some(cause) = &why.cause {
        if let Some(since) = cause.since {
            block("since", &format!("{} ago ({since:.0})", age(Some(since), now)));
        }
        for (at, line) in cause.lines.iter().enumerate() {
            block(if at == 0 { "printed" } else { "" }, &cut(&clean(line), 300));
        }
        if let Some(event) = cause.event.as_ref().filter(|event| !event.contains(&cause.text)) {
            block("event", event);
        }
    }
    if let Some(next) = &why.next {
        block("next", next);
    }
    if let Some(advice) = why.advice.as_ref().filter(|_| why.is_finding()) {
        out.push_str(&fix(advice, on));
    }
    if let Some(second) = &why.second {
        out.push_str(&titled("besides", &second.cause.line(&why.object), on));
        for (at, printed) in second.cause.lines.iter().enumerate() {
            let title = if at == 0 { "printed" } else { "" };
            out.push_str(&titled(title, &cut(&clean(printed), 300), on));
        }
        out.push_str(&second.advice.as_ref().map(|advice| fix(advice, on)).unwrap_or_default());
    }
    for remark in &why.remarks {
        out.push_str(&titled("note", remark, on));
    }
    out
}

/// A text with its title in the left column.
fn titled(title: &str, text: &str, on: TerminalScreen) -> String {
    let text = on.wrapped(&clean(text), LEFT_COLUMN_CHARACTERS);
    format!("{title:LEFT_COLUMN_CHARACTERS$}{text}\n")
}

/// The advice. The command is on one line, so that the user can copy it.
fn fix(advice: &CauseAdvice, on: TerminalScreen) -> String {
    let command = advice.command.as_ref().map(|command| {
        let command = clean(command);
        format!("{:LEFT_COLUMN_CHARACTERS$}{command}\n", "")
    });
    let command = command.unwrap_or_default();
    format!("{}{command}", titled("fix", &advice.text, on))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use cause::{CauseKind, CauseStep, RootCause, SecondCause};
    use expect_test::expect;
    use objects::ObjectId;

    use super::*;

    fn why() -> StateExplanation {
        let id = |kind: &str, name: &str| ObjectId::new("apps", name, "", kind);
        let since = Some("2026-11-24T11:55:00Z".parse().unwrap());
        let step =
            |id: ObjectId, text: &str| CauseStep { object: id, since, text: text.to_owned() };
        StateExplanation {
            object: id("Kustomization", "shop"),
            state: ExaminedObjectState::NotReady,
            message: "timeout".to_owned(),
            cause: Some(RootCause {
                object: id("Pod", "web-1"),
                problem: CauseKind::Container,
                text: "container 'app' CrashLoopBackOff (exit code 1): back-off 5m0s restarting failed \
                       container"
                    .to_owned(),
                since,
                lines: vec!["no such table: \u{1b}[31musers".to_owned()],
                event: Some("Pod/apps/web-1 BackOff: Back-off restarting failed container".to_owned()),
            }),
            path: vec![
                step(id("Kustomization", "shop"), "HealthCheckFailed: timeout waiting for Deployment/apps/web"),
                step(id("Deployment", "web"), "InProgress: Available: 0/1"),
            ],
            next: Some(
                "it is retried when its spec or GitRepository/apps/shop changes, and within 1m at the latest"
                    .to_owned(),
            ),
            advice: Some(CauseAdvice {
                text: "read what the container printed".to_owned(),
                command: Some("kubectl -n apps logs web-1 --all-containers --previous".to_owned()),
            }),
            second: None,
            unread: Vec::new(),
            remarks: vec!["Secret/apps/db cannot be read: forbidden".to_owned()],
        }
    }

    fn at(width: usize) -> String {
        let now = "2026-11-24T12:00:00Z".parse().unwrap();
        screen(&why(), TerminalScreen { width: Some(width), is_coloured: false }, now)
    }

    #[test]
    fn the_first_line_names_the_cause_and_the_screen_says_what_to_do() {
        expect![[r#"
            ✗ Kustomization/apps/shop is not ready: Pod/apps/web-1: container 'app'
              CrashLoopBackOff (exit code 1): back-off 5m0s restarting failed container
            because  Kustomization/apps/shop (5m): HealthCheckFailed: timeout waiting for
                     Deployment/apps/web
                     Deployment/apps/web (5m): InProgress: Available: 0/1
            since    5m ago (2026-11-24T11:55:00Z)
            printed  no such table: \u{1b}[31musers
            event    Pod/apps/web-1 BackOff: Back-off restarting failed container
            next     it is retried when its spec or GitRepository/apps/shop changes, and
                     within 1m at the latest
            fix      read what the container printed
                     kubectl -n apps logs web-1 --all-containers --previous
            note     Secret/apps/db cannot be read: forbidden
        "#]]
        .assert_eq(&at(80));
        expect![[r#"
            ✗ Kustomization/apps/shop is not ready: Pod/apps/web-1: container 'app' CrashLoopBackOff (exit code 1): back-off 5m0s restarting failed
              container
            because  Kustomization/apps/shop (5m): HealthCheckFailed: timeout waiting for Deployment/apps/web
                     Deployment/apps/web (5m): InProgress: Available: 0/1
            since    5m ago (2026-11-24T11:55:00Z)
            printed  no such table: \u{1b}[31musers
            event    Pod/apps/web-1 BackOff: Back-off restarting failed container
            next     it is retried when its spec or GitRepository/apps/shop changes, and within 1m at the latest
            fix      read what the container printed
                     kubectl -n apps logs web-1 --all-containers --previous
            note     Secret/apps/db cannot be read: forbidden
        "#]].assert_eq(&at(140));
    }

    #[test]
    fn what_fails_besides_is_named_with_what_helps() {
        let mut why = why();
        let cause = RootCause {
            object: ObjectId::new("apps", "shop", "", "GitRepository"),
            problem: CauseKind::Fetch,
            text: "connection refused".to_owned(),
            since: None,
            lines: Vec::new(),
            event: None,
        };
        let advice = Some(CauseAdvice { text: "check spec.url".to_owned(), command: None });
        why.second = Some(SecondCause { cause, advice });
        let now = "2026-11-24T12:00:00Z".parse().unwrap();
        let text = screen(&why, TerminalScreen { width: Some(80), is_coloured: false }, now);
        let besides =
            "besides  GitRepository/apps/shop: connection refused\nfix      check spec.url\n";
        assert!(text.contains(besides), "{text}");
        why.state = ExaminedObjectState::Suspended;
        assert!(
            screen(&why, TerminalScreen { width: None, is_coloured: false }, now).starts_with("✗")
        );
    }

    #[test]
    fn several_objects_have_the_status_of_the_worst() {
        let of = |state: ExaminedObjectState| StateExplanation { state, cause: None, ..why() };
        let code = |states: &[ExaminedObjectState], is_unread: bool| {
            let whys: Vec<StateExplanation> = states.iter().map(|state| of(*state)).collect();
            exit_code(&whys, is_unread)
        };
        assert_eq!(code(&[ExaminedObjectState::Ready], false), ExitCode::Success);
        assert_eq!(code(&[ExaminedObjectState::Ready], true), ExitCode::Failed);
        assert_eq!(
            code(&[ExaminedObjectState::Ready, ExaminedObjectState::Hidden], false),
            ExitCode::Failed
        );
        assert_eq!(
            code(&[ExaminedObjectState::NotReady, ExaminedObjectState::Hidden], true),
            ExitCode::ProblemsFound
        );
        // An applied object that the user may not read may have failed.
        let unread = vec!["Deployment/apps/web".to_owned()];
        let partly = |state| StateExplanation { unread: unread.clone(), ..of(state) };
        assert_eq!(exit_code(&[partly(ExaminedObjectState::Ready)], false), ExitCode::Failed);
        let code = exit_code(&[partly(ExaminedObjectState::NotReady)], false);
        assert_eq!(code, ExitCode::ProblemsFound);
    }

    /// The condition reasons in the source files below a folder, without those of tests.
    fn reasons(folder: &std::path::Path, found: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.ends_with("tests") {
                reasons(&path, found);
            } else if path.extension().is_some_and(|it| it == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                let code = text.split("#[cfg(test)]").next().unwrap_or_default();
                let has_list = code.contains("\nreasons! {");
                for line in code.lines().filter(|line| !line.trim_start().starts_with("//")) {
                    let constant = line.split_once("Reason::new(\"").map(|(_, rest)| rest);
                    let listed = line.split_once(" = \"").filter(|(name, _)| {
                        has_list
                            && name.trim().bytes().all(|it| it.is_ascii_uppercase() || it == b'_')
                    });
                    let word = constant
                        .or(listed.map(|(_, rest)| rest))
                        .and_then(|it| it.split('"').next());
                    found.extend(word.map(str::to_owned));
                }
            }
        }
    }

    #[test]
    fn every_reason_that_windlass_writes_is_known_to_the_walk() {
        let top = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
        let mut found = BTreeSet::new();
        for folder in ["cli", "operator", "sources", "engines"] {
            reasons(&top.join(folder), &mut found);
        }
        assert!(found.len() > 80, "{found:?}");
        // These reasons do not report a failure.
        let fine = [
            "Succeeded",
            "Progressing",
            "ProgressingWithRetry",
            "ReconciliationSucceeded",
            "InstallSucceeded",
            "UpgradeSucceeded",
            "TestSucceeded",
            "RollbackSucceeded",
            "UninstallSucceeded",
            "AwaitingTests",
            "NoDriftDetected",
            "DriftCorrected",
            "NewArtifact",
            "CRDReleased",
            "CRDExported",
            "ChartPullSucceeded",
            "ChartPackageSucceeded",
            "Open",
            "Closed",
            "DrawsValues",
            "NoEffect",
            "LeftOut",
            "DeletionBudgetExceeded",
            "FreezeOverrun",
        ];
        let is_known = |reason: &str| {
            fine.contains(&reason) || cause::condition_reason::problem(reason).is_some()
        };
        let unknown: Vec<_> = found.iter().filter(|reason| !is_known(reason)).collect();
        assert!(
            unknown.is_empty(),
            "engines/cause/src/condition_reason.rs does not know {unknown:?}"
        );
    }

    #[test]
    fn narrow_terminals_keep_every_word() {
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(words(&at(40)), words(&at(140)));
    }
}
