//! `windlass why all`: everything that is not ready, grouped by its cause.
//!
//! Elsewhere: one object (`why.rs`), the walk to the cause (engine `cause`).

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;

use cause::{Advice, Cause, Problem, State, Why, condition};
use objects::{Object, ObjectId};
use reconcile::Time;
use serde::{Serialize, Serializer};

use super::Args;
use crate::cli::connection::print;
use crate::cli::fact_source::Facts;
use crate::cli::kind::{self, ResourceArgument};
use crate::cli::operators;
use crate::cli::output::report;
use crate::cli::scope::{Site, say_left_out};
use crate::cli::table::{Colour, Screen, age, clean, cut};

/// Where objects are that no namespace limits.
const EVERYWHERE: &str = "in all namespaces";

/// How many objects are explained.
const MOST_EXPLAINED: usize = 500;

/// How many objects of a cause are named.
const MOST_NAMED: usize = 8;

/// Objects that are not ready for one cause.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Group {
    cause: String,
    #[serde(serialize_with = "moment")]
    since: Option<Time>,
    objects: Vec<String>,
    advice: Option<Advice>,
}

#[expect(clippy::ref_option, reason = "serde calls it so")]
fn moment<S: Serializer>(at: &Option<Time>, to: S) -> Result<S::Ok, S::Error> {
    at.map(|at| format!("{at:.0}")).serialize(to)
}

/// Everything that was found.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Overview {
    /// How many objects were read.
    objects: usize,
    not_ready: usize,
    suspended: usize,
    /// How many of those that are not ready were not explained.
    unexplained: usize,
    causes: Vec<Group>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    remarks: Vec<String>,
    /// What this user may not list.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    left_out: Vec<String>,
}

/// Explains the objects of some kinds.
///
/// # Errors
/// The API server did not respond.
pub(super) async fn run(
    site: Site,
    args: &Args,
    targets: &[ResourceArgument],
) -> anyhow::Result<ExitCode> {
    let now = jiff::Timestamp::now();
    let site = site.everywhere(args.scope.all_namespaces);
    let mut facts = Facts::new(&site.cluster);
    let mut overview = Overview::default();
    let mut suspects = Vec::new();
    for target in targets {
        let refused = site.list(target, &args.scope.labels, |objects| {
            for object in objects {
                overview.objects += 1;
                if cause::suspension(&object, now).is_some() {
                    overview.suspended += 1;
                } else if is_suspect(&object) {
                    suspects.push(object.id());
                    facts.knows(&target.resource, object);
                }
            }
            Ok(())
        });
        let refused = refused.await?;
        overview.left_out.extend(refused);
    }
    overview.unexplained = suspects.len().saturating_sub(MOST_EXPLAINED);
    let mut whys = Vec::new();
    for id in suspects.iter().take(MOST_EXPLAINED) {
        whys.push(facts.explain(id).await?);
    }
    overview.take(whys);
    overview.remarks.extend(operators::absence(&site.cluster, now).await);
    if report(&overview, args.output)?.is_none() {
        print(&overview.screen(&site.namespace, Screen::of_stdout(), now))?;
    }
    say_left_out(&overview.left_out);
    Ok(match () {
        () if !overview.causes.is_empty() || overview.unexplained > 0 => {
            ExitCode::from(crate::cli::EXIT_PROBLEMS_FOUND)
        }
        () if !overview.left_out.is_empty() => ExitCode::from(crate::cli::EXIT_FAILED),
        () => ExitCode::SUCCESS,
    })
}

/// Whether an object may not be what its spec asks for: all but those that say so of their newest spec.
fn is_suspect(object: &Object) -> bool {
    match condition(object, "Ready") {
        None => !matches!(object.kind(), "ExternalArtifact"),
        Some(said) => {
            let observed = object.get("status").and_then(|it| it["observedGeneration"].as_i64());
            let seen = said.generation.or(observed);
            said.status != "True" || seen.is_some_and(|seen| seen < object.generation())
        }
    }
}

impl Overview {
    /// Groups what was explained.
    fn take(&mut self, whys: Vec<Why>) {
        let mut groups: BTreeMap<(Option<Problem>, String), Vec<Why>> = BTreeMap::new();
        let shared = shared(&whys);
        for why in whys {
            match why.state {
                // What is suspended on purpose is no failure.
                State::Suspended => self.suspended += 1,
                // Deleted since it was listed.
                State::Missing => {}
                State::Ready if why.cause.is_none() => {}
                _ => {
                    self.not_ready += 1;
                    groups.entry(key(&why, &shared)).or_default().push(why);
                }
            }
        }
        let mut causes: Vec<Group> = groups.into_values().filter_map(group).collect();
        causes.sort_by_key(|it| std::cmp::Reverse(it.objects.len()));
        self.causes = causes;
    }

    /// What a person reads.
    fn screen(&self, namespace: &str, on: Screen, now: Time) -> String {
        let mut out = String::new();
        for Group { cause, since, objects, advice } in &self.causes {
            let since = since.map(|at| format!(" ({})", age(Some(at), now))).unwrap_or_default();
            let line = on.wrapped(&cut(&clean(&format!("{cause}{since}")), 600), 2);
            out.push_str(&format!("{} {line}\n", on.paint("✗", Some(Colour::Bad))));
            let named = objects.iter().take(MOST_NAMED).cloned().collect::<Vec<_>>().join(", ");
            let more = objects.len().saturating_sub(MOST_NAMED);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            let noun = if objects.len() == 1 { "object" } else { "objects" };
            let text = format!("{} {noun}: {named}{more}", objects.len());
            out.push_str(&format!("  {}\n", on.wrapped(&clean(&text), 4)));
            if let Some(advice) = advice {
                out.push_str(&format!("  fix: {}\n", on.wrapped(&clean(&advice.text), 7)));
                if let Some(command) = &advice.command {
                    // Whole and on one line, to be copied.
                    out.push_str(&format!("       {}\n", clean(command)));
                }
            }
        }
        let place = match namespace {
            "" => EVERYWHERE.to_owned(),
            namespace => format!("in namespace {namespace}"),
        };
        out.push_str(&format!("{}\n", on.wrapped(&self.sum(&place), 2)));
        for remark in &self.remarks {
            out.push_str(&format!("⚠ {}\n", on.wrapped(&clean(remark), 2)));
        }
        out
    }

    /// The last line: it says no more than was read.
    fn sum(&self, place: &str) -> String {
        let Self { objects, not_ready, suspended, unexplained, causes, remarks, left_out } = self;
        let failing = not_ready + unexplained;
        let is_whole = left_out.is_empty();
        if *objects == 0 {
            return match is_whole {
                true if place == EVERYWHERE => format!("► there are no such objects {place}"),
                true => format!("► there are no such objects {place}; -A looks in all namespaces"),
                false => {
                    format!("⚠ nothing is known of the objects {place}: they may not be listed")
                }
            };
        }
        let place = match is_whole {
            true => place.to_owned(),
            false => format!("{place} that may be listed"),
        };
        let glyph = if is_whole && remarks.is_empty() { "✔" } else { "⚠" };
        let mut counts = Vec::new();
        if failing > 0 {
            counts.push(format!("causes: {}", causes.len()));
        }
        if *suspended > 0 {
            counts.push(format!("suspended: {suspended}"));
        }
        if *unexplained > 0 {
            counts.push(format!("not examined: {unexplained}; name a namespace or a kind"));
        }
        let counts = match counts.as_slice() {
            [] => String::new(),
            counts => format!(" ({})", counts.join(", ")),
        };
        let noun = if *objects == 1 { "object" } else { "objects" };
        match failing {
            0 => format!(
                "{glyph} none of {objects} {noun} {place} reports that it is not ready{counts}"
            ),
            1 => format!("► 1 of {objects} {noun} {place} is not ready{counts}"),
            _ => format!("► {failing} of {objects} {noun} {place} are not ready{counts}"),
        }
    }
}

/// The objects that are the cause for others, too.
fn shared(whys: &[Why]) -> BTreeSet<ObjectId> {
    let causes = whys.iter().filter_map(|it| Some((&it.object, &it.cause.as_ref()?.object)));
    causes.filter(|(subject, cause)| subject != cause).map(|(_, cause)| cause.clone()).collect()
}

/// By what causes are one: the problem and its text, which names the object if it is about one.
fn key(why: &Why, shared: &BTreeSet<ObjectId>) -> (Option<Problem>, String) {
    match &why.cause {
        Some(cause) if shared.contains(&cause.object) => {
            (Some(cause.problem), format!("{}: {}", cause.object.subject(), cause.text))
        }
        Some(cause) => (Some(cause.problem), bare(cause, &why.object)),
        None => (None, why.message.clone()),
    }
}

/// The text of a cause without the object that was asked about, which is another one each time.
fn bare(cause: &Cause, subject: &ObjectId) -> String {
    match cause.object == *subject {
        true => {
            let named = subject.subject();
            let text = cause.text.strip_prefix(&format!("{named}: ")).unwrap_or(&cause.text);
            text.replace(&named, "it")
        }
        false => format!("{}: {}", cause.object.subject(), cause.text),
    }
}

fn group(whys: Vec<Why>) -> Option<Group> {
    let mut objects: Vec<String> = whys.iter().map(|it| it.object.subject()).collect();
    objects.sort();
    let since = whys.iter().filter_map(|it| it.cause.as_ref()?.since).min();
    let first = whys.into_iter().next()?;
    let text = match &first.cause {
        Some(cause) if cause.problem == Problem::Suspension => {
            format!("{} is {}", cause.object.subject(), cause.text)
        }
        // The object is named once, whether its text has it or not.
        Some(cause) if objects.len() == 1 || cause.object != first.object => {
            let named = cause.object.subject();
            match cause.text.contains(&named) {
                true => cause.text.clone(),
                false => format!("{named}: {}", cause.text),
            }
        }
        Some(cause) => bare(cause, &first.object),
        None if first.message.is_empty() => first.line(),
        None => first.message.clone(),
    };
    Some(Group { cause: text, since, objects, advice: first.advice })
}

/// The kinds that are meant where no object is named.
///
/// # Errors
/// There is no such kind.
pub(super) async fn targets(
    site: &Site,
    words: &[String],
) -> anyhow::Result<Option<Vec<ResourceArgument>>> {
    let all = ["all".to_owned()];
    let words = if words.is_empty() { all.as_slice() } else { words };
    let targets = kind::targets(&site.cluster, words).await?;
    let is_named = targets.iter().any(|it| it.name.is_some());
    Ok((!is_named).then_some(targets))
}

#[cfg(test)]
mod tests {
    use cause::CauseStep;
    use expect_test::expect;

    use super::*;

    fn id(kind: &str, name: &str) -> ObjectId {
        ObjectId::new("apps", name, "", kind)
    }

    fn why(subject: ObjectId, state: State, cause: Option<(ObjectId, Problem, &str)>) -> Why {
        let since = Some("2026-11-24T11:55:00Z".parse().unwrap());
        Why {
            path: vec![CauseStep { object: subject.clone(), since, text: String::new() }],
            object: subject,
            state,
            message: "it says so".to_owned(),
            cause: cause.map(|(object, problem, text)| Cause {
                object,
                problem,
                text: text.to_owned(),
                since,
                lines: Vec::new(),
                event: None,
            }),
            next: None,
            advice: Some(Advice {
                text: "correct it".to_owned(),
                command: Some("kubectl get".to_owned()),
            }),
            remarks: Vec::new(),
        }
    }

    fn shown(objects: usize, whys: Vec<Why>) -> String {
        let mut overview = Overview { objects, ..Overview::default() };
        overview.take(whys);
        let now = "2026-11-24T12:00:00Z".parse().unwrap();
        overview.screen("", Screen { width: Some(80), is_coloured: false }, now)
    }

    #[test]
    fn what_fails_for_one_cause_is_told_once() {
        let source = || Some((id("GitRepository", "app"), Problem::Fetch, "connection refused"));
        let mut whys: Vec<Why> = (0..118)
            .map(|at| why(id("HelmRelease", &format!("r{at:03}")), State::NotReady, source()))
            .collect();
        let own = id("Kustomization", "web");
        let text = "a.yaml: line 3: no such field";
        whys.push(why(own.clone(), State::NotReady, Some((own, Problem::Build, text))));
        whys.push(why(id("Alert", "all"), State::Suspended, None));
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
        let cause = || Some((source(), Problem::Fetch, "connection refused"));
        let whys = [source(), id("Kustomization", "web")];
        let text = shown(2, whys.map(|it| why(it, State::NotReady, cause())).to_vec());
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
            why(own.clone(), State::NotReady, Some((own, Problem::Spec, &text)))
        });
        let text = shown(2, whys.to_vec());
        assert!(
            text.starts_with("✗ no such chart (5m)\n  2 objects: HelmRelease/apps/a"),
            "{text}"
        );
    }

    #[test]
    fn that_nothing_fails_says_no_more_than_was_read() {
        assert_eq!(shown(0, vec![]), "► there are no such objects in all namespaces\n");
        let ready = why(id("Provider", "slack"), State::Ready, None);
        assert_eq!(
            shown(3, vec![ready]),
            "✔ none of 3 objects in all namespaces reports that it is not ready\n"
        );
    }

    #[test]
    fn one_object_is_said_to_be_one() {
        let failing = || {
            let own = id("Kustomization", "web");
            vec![why(own.clone(), State::NotReady, Some((own, Problem::Build, "no such field")))]
        };
        for (objects, sum) in [
            (4, "► 1 of 4 objects in all namespaces is not ready (causes: 1)\n"),
            (1, "► 1 of 1 object in all namespaces is not ready (causes: 1)\n"),
        ] {
            let text = shown(objects, failing());
            assert!(text.ends_with(sum), "{text}");
        }
    }

    #[test]
    fn what_may_not_be_listed_or_may_be_old_is_no_all_clear() {
        let sum = |objects, left_out: &[&str], remarks: &[&str]| {
            let owned = |texts: &[&str]| texts.iter().map(|it| (*it).to_owned()).collect();
            let left_out = owned(left_out);
            let remarks = owned(remarks);
            Overview { objects, left_out, remarks, ..Overview::default() }.sum("in namespace apps")
        };
        let forbidden = ["alerts: forbidden"];
        assert_eq!(
            sum(0, &forbidden, &[]),
            "⚠ nothing is known of the objects in namespace apps: they may not be listed"
        );
        assert_eq!(
            sum(3, &forbidden, &[]),
            "⚠ none of 3 objects in namespace apps that may be listed reports that it is not ready"
        );
        assert_eq!(
            sum(3, &[], &["no operator holds Lease a/b"]),
            "⚠ none of 3 objects in namespace apps reports that it is not ready"
        );
    }

    #[test]
    fn an_object_is_examined_unless_it_says_that_its_newest_spec_is_ready() {
        let suspect = |status: serde_json::Value| {
            let object = serde_json::json!({"apiVersion": "v1", "kind": "X",
                "metadata": {"name": "a", "generation": 2}, "status": status});
            is_suspect(&Object::new(object).unwrap())
        };
        let ready = |status: &str, generation: i64| serde_json::json!({"observedGeneration": generation, "conditions": [{"type": "Ready", "status": status}]});
        assert!(!suspect(ready("True", 2)));
        assert!(
            suspect(ready("True", 1)) && suspect(ready("False", 2)) && suspect(ready("Unknown", 2))
        );
        assert!(suspect(serde_json::json!({})));
    }
}
