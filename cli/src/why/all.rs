//! `windlass why all`: the screen of everything that is not ready.
//!
//! Elsewhere: finding the causes (`windlass_answers::why::unready_objects`), the screen of one object (`why.rs`).

use reconcile::Time;
use windlass_answers::why::unready_objects::{
    CauseGroup, UnreadyObjectsOverview, UnreadyObjectsResult, find, in_words,
};

use super::WhyArgs;
use crate::command_scope::{CommandScope, say_left_out};
use crate::kind_argument::ResourceArgument;
use crate::output::report;
use windlass_cli_runtime::connection::print;
use windlass_cli_runtime::exit_code::ExitCode;
use windlass_cli_runtime::table::{TerminalScreen, TextColour, age, clean, cut_within};

/// The maximum number of named objects of a cause.
const MOST_NAMED: usize = 8;

/// The longest text of a cause, in characters.
const MAX_CAUSE_CHARACTERS: usize = 600;

/// Explains the objects of some kinds.
///
/// # Errors
/// The API server did not respond.
pub(super) async fn run(
    site: CommandScope,
    args: &WhyArgs,
    targets: &[ResourceArgument],
) -> anyhow::Result<ExitCode> {
    let now = jiff::Timestamp::now();
    let site = site.everywhere(args.scope.all_namespaces);
    let UnreadyObjectsResult { overview, is_unattended } =
        find(&site, targets, &args.scope.labels).await?;
    if report(&overview, args.output)?.is_none() {
        print(&screen(&overview, &site.namespace, TerminalScreen::of_stdout(), now))?;
    }
    say_left_out(&overview.left_out);
    Ok(match () {
        // If no operator is running, nothing is reconciled.
        () if !overview.causes.is_empty() || overview.unexplained > 0 || is_unattended => {
            ExitCode::ProblemsFound
        }
        () if !overview.left_out.is_empty() => ExitCode::Failed,
        () => ExitCode::Success,
    })
}

/// The text of the screen.
fn screen(
    overview: &UnreadyObjectsOverview,
    namespace: &str,
    on: TerminalScreen,
    now: Time,
) -> String {
    let mut out = String::new();
    for CauseGroup { cause, since, objects, advice } in &overview.causes {
        let since = since.map(|at| format!(" ({})", age(Some(at), now))).unwrap_or_default();
        let line = clean(&format!("{cause}{since}"));
        // Only a terminal has too little room for the whole text.
        let line = match on.width {
            Some(_) => on.wrapped(&cut_within(&line, MAX_CAUSE_CHARACTERS), 2),
            None => line,
        };
        out.push_str(&format!("{} {line}\n", on.paint("✗", Some(TextColour::Bad))));
        let named = objects.iter().take(MOST_NAMED).cloned().collect::<Vec<_>>().join(", ");
        let more = objects.len().saturating_sub(MOST_NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let noun = if objects.len() == 1 { "object" } else { "objects" };
        let text = format!("{} {noun}: {named}{more}", objects.len());
        out.push_str(&format!("  {}\n", on.wrapped(&clean(&text), 4)));
        if let Some(advice) = advice {
            out.push_str(&format!("  fix: {}\n", on.wrapped(&clean(&advice.text), 7)));
            if let Some(command) = &advice.command {
                // The command is on one line, so that the user can copy it.
                out.push_str(&format!("       {}\n", clean(command)));
            }
        }
    }
    let sum = overview.sum(&in_words(namespace));
    out.push_str(&format!("{}\n", on.wrapped(&sum, 2)));
    for remark in &overview.remarks {
        out.push_str(&format!("⚠ {}\n", on.wrapped(&clean(remark), 2)));
    }
    out
}

#[cfg(test)]
mod tests {
    use cause::{CauseAdvice, CauseKind, ExaminedObjectState, SecondCause, StateExplanation};
    use expect_test::expect;
    use objects::ObjectId;

    use super::*;
    use fake_cluster::answer_examples::explanation as why;

    fn id(kind: &str, name: &str) -> ObjectId {
        ObjectId::new("apps", name, "", kind)
    }

    fn shown(objects: usize, whys: Vec<StateExplanation>) -> String {
        let overview = UnreadyObjectsOverview::of(objects, whys);
        let now = "2026-11-24T12:00:00Z".parse().unwrap();
        screen(&overview, "", TerminalScreen { width: Some(80), is_coloured: false }, now)
    }

    #[test]
    fn objects_that_fail_for_one_cause_are_reported_once() {
        let source = || Some((id("GitRepository", "app"), CauseKind::Fetch, "connection refused"));
        let mut whys: Vec<StateExplanation> = (0..118)
            .map(|at| {
                why(
                    id("HelmRelease", &format!("r{at:03}")),
                    ExaminedObjectState::NotReady,
                    source(),
                )
            })
            .collect();
        let own = id("Kustomization", "web");
        let text = "a.yaml: line 3: no such field";
        whys.push(why(
            own.clone(),
            ExaminedObjectState::NotReady,
            Some((own, CauseKind::Build, text)),
        ));
        whys.push(why(id("Alert", "all"), ExaminedObjectState::Suspended, None));
        expect![[r#"
            ✗ GitRepository/apps/app: connection refused (5m)
              118 objects: HelmRelease/apps/r000, HelmRelease/apps/r001,
                HelmRelease/apps/r002, HelmRelease/apps/r003, HelmRelease/apps/r004,
                HelmRelease/apps/r005, HelmRelease/apps/r006, HelmRelease/apps/r007 and 110
                more
              fix: correct it
                   kubectl get
            ✗ Kustomization/apps/web: a.yaml: line 3: no such field (5m)
              1 object: Kustomization/apps/web
              fix: correct it
                   kubectl get
            ► 119 of 340 objects in all namespaces are not ready (causes: 2, suspended: 1)
        "#]]
        .assert_eq(&shown(340, whys));
    }

    #[test]
    fn a_source_and_what_it_keeps_from_being_ready_are_one_cause() {
        let source = || id("GitRepository", "app");
        let cause = || Some((source(), CauseKind::Fetch, "connection refused"));
        let whys = [source(), id("Kustomization", "web")];
        let text =
            shown(2, whys.map(|it| why(it, ExaminedObjectState::NotReady, cause())).to_vec());
        assert!(
            text.contains("2 objects: GitRepository/apps/app, Kustomization/apps/web"),
            "{text}"
        );
        assert!(text.contains("(causes: 1)"), "{text}");
    }

    #[test]
    fn equal_failures_of_different_objects_are_one_cause() {
        let whys = ["a", "b"].map(|name| {
            let own = id("HelmRelease", name);
            let text = format!("HelmRelease/apps/{name}: no such chart");
            why(own.clone(), ExaminedObjectState::NotReady, Some((own, CauseKind::Spec, &text)))
        });
        let text = shown(2, whys.to_vec());
        assert!(
            text.starts_with("✗ no such chart (5m)\n  2 objects: HelmRelease/apps/a"),
            "{text}"
        );
    }

    #[test]
    fn what_is_suspended_and_failed_before_is_a_row_of_its_own() {
        let suspended = |name: &str| {
            let own = id("HelmRelease", name);
            let said = Some((own.clone(), CauseKind::Suspension, "suspended by alice"));
            let mut it = why(own.clone(), ExaminedObjectState::Suspended, said);
            let mut cause = it.cause.clone().unwrap();
            cause.problem = CauseKind::Apply;
            cause.text = "upgrade failed".to_owned();
            let advice = Some(CauseAdvice { text: "correct the chart".to_owned(), command: None });
            it.second = Some(SecondCause { cause, advice });
            it
        };
        let text = shown(3, vec![suspended("pay"), suspended("shop")]);
        let row =
            "✗ HelmRelease/apps/pay is suspended by alice, and failing: upgrade failed (5m)\n";
        assert!(text.starts_with(row), "{text}");
        assert!(
            text.contains("fix: correct the chart; correct it\n       kubectl get\n"),
            "{text}"
        );
        let sum = "► 2 of 3 objects in all namespaces are not ready (causes: 2, suspended: 2)\n";
        assert!(text.ends_with(sum), "{text}");
    }

    #[test]
    fn an_object_is_listed_with_both_causes_that_keep_it_from_being_ready() {
        let kind = (id("Kustomization", "a"), CauseKind::Apply, "no matches for kind Widget");
        let own = id("Kustomization", "a");
        let first = why(own, ExaminedObjectState::NotReady, Some(kind));
        let pod = (id("Pod", "web-1"), CauseKind::Scheduling, "no node");
        let mut both = why(id("Kustomization", "b"), ExaminedObjectState::NotReady, Some(pod));
        let mut cause = both.cause.clone().unwrap();
        cause.object = both.object.clone();
        cause.problem = CauseKind::Apply;
        cause.text = "no matches for kind Widget".to_owned();
        both.second = Some(SecondCause { cause, advice: both.advice.clone() });
        let text = shown(2, vec![first, both]);
        assert!(text.contains("2 objects: Kustomization/apps/a, Kustomization/apps/b"), "{text}");
        assert!(text.contains("Pod/apps/web-1: no node"), "{text}");
        assert!(text.ends_with("► 2 of 2 objects in all namespaces are not ready (causes: 2)\n"));
    }

    #[test]
    fn that_nothing_fails_says_no_more_than_was_read() {
        assert_eq!(shown(0, vec![]), "► there are no such objects in all namespaces\n");
        let ready = why(id("Provider", "slack"), ExaminedObjectState::Ready, None);
        assert_eq!(
            shown(3, vec![ready]),
            "✔ none of 3 objects in all namespaces reports that it is not ready\n"
        );
    }

    #[test]
    fn one_object_is_said_to_be_one() {
        let failing = || {
            let own = id("Kustomization", "web");
            vec![why(
                own.clone(),
                ExaminedObjectState::NotReady,
                Some((own, CauseKind::Build, "no such field")),
            )]
        };
        for (objects, sum) in [
            (4, "► 1 of 4 objects in all namespaces is not ready (causes: 1)\n"),
            (1, "► 1 of 1 object in all namespaces is not ready (causes: 1)\n"),
        ] {
            let text = shown(objects, failing());
            assert!(text.ends_with(sum), "{text}");
        }
    }
}
