//! Shell completion of kinds, and of object names and namespaces in the cluster.
//!
//! Elsewhere: the shell scripts (`completion_and_man.rs`), the protocol of the shells (`clap_complete`).

use std::ffi::OsStr;
use std::path::Path;
use std::time::Duration;

use anyhow::bail;
use clap::{Args as _, Command, FromArgMatches as _};
use clap_complete::engine::{
    ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter as _,
};
use objects::{Gvk, Object};

use super::command_scope::{ClusterScope, CommandScope};
use super::kind_argument;
use windlass_cluster::object_pages::ObjectQuery;

/// How long a completion may take.
const COMPLETION_TIMEOUT: Duration = Duration::from_secs(2);

/// The maximum number of suggested names.
const MAX_COMPLETION_NAMES: usize = 500;

/// Flags that select the cluster and the namespace. Each has a value.
const OF_PLACE: [&str; 8] =
    ["--kubeconfig", "--context", "--cluster", "--user", "--as", "--as-group", "--namespace", "-n"];

/// Words that stand for several kinds.
const CATEGORIES: [&str; 3] = ["all", "sources", "appliers"];

/// Completes `KIND`, `KIND/NAME` and `KIND NAME`.
pub(super) fn objects() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| candidates(of_objects(text(current), &typed(), None)))
}

/// Completes `NAME` and `KIND/NAME` for a command that accepts only one kind.
pub(super) fn objects_of(kind: &'static str) -> ArgValueCompleter {
    ArgValueCompleter::new(move |current: &OsStr| {
        candidates(of_objects(text(current), &typed(), Some(kind)))
    })
}

/// The shell completion of an argument that is a directory, or the name of an object.
pub(super) fn directories_and_objects() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| {
        let mut found = PathCompleter::dir().complete(current);
        if text(current).contains('/') && !Path::new(current).exists() {
            found.extend(candidates(of_objects(text(current), &typed(), None)));
        }
        found
    })
}

/// The shell completion of an argument that is a namespace of the cluster.
pub(super) fn namespaces() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| {
        let found = asked(&typed(), async |site| {
            let resource = site.cluster.resource(&Gvk::new("v1", "Namespace")).await?;
            let query = ObjectQuery::all(&resource);
            let part = site.cluster.list_at_most(query, None, MAX_COMPLETION_NAMES).await?;
            Ok(part.objects.iter().map(|it| it.name().to_owned()).collect())
        });
        candidates(found.into_iter().filter(|it| it.starts_with(text(current))).collect())
    })
}

fn text(current: &OsStr) -> &str {
    current.to_str().unwrap_or_default()
}

fn candidates(words: Vec<String>) -> Vec<CompletionCandidate> {
    let is_plain = |word: &String| !word.chars().any(char::is_control);
    words.into_iter().filter(is_plain).map(CompletionCandidate::new).collect()
}

/// The words of the command line to complete. The shell's own arguments come before `--`.
fn typed() -> Vec<String> {
    let words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    words.skip_while(|word| word != "--").skip(1).collect()
}

/// The possible names of an object, if the last word is the beginning of its name.
fn of_objects(current: &str, words: &[String], only: Option<&str>) -> Vec<String> {
    let fitting = |found: Vec<String>| -> Vec<String> {
        found.into_iter().filter(|it| it.starts_with(current)).collect()
    };
    if let Some((kind, _)) = current.split_once('/') {
        let names = names(kind, words).into_iter();
        return fitting(names.map(|name| format!("{kind}/{name}")).collect());
    }
    let before = words.len().checked_sub(2).and_then(|at| words.get(at));
    match (before.filter(|word| is_kind(word)), only) {
        (Some(kind), _) => fitting(names(kind, words)),
        (None, Some(kind)) => fitting(names(kind, words)),
        (None, None) => fitting(kinds(current)),
    }
}

/// The kinds of windlass. If the user typed a plural or short name, that form is included.
fn kinds(current: &str) -> Vec<String> {
    let mut found: Vec<String> = CATEGORIES.iter().map(|it| (*it).to_owned()).collect();
    for names in crds::names() {
        found.push(names.kind.to_lowercase());
        found.extend(kind_argument::words(names).filter(|word| word == current));
    }
    found.sort();
    found.dedup();
    found
}

fn is_kind(word: &str) -> bool {
    crds::names().flat_map(kind_argument::words).any(|it| it == word.to_lowercase())
}

/// The names of the objects of a kind in the namespace of the command line.
fn names(kind: &str, words: &[String]) -> Vec<String> {
    let kind = vec![kind.to_owned()];
    asked(words, async |site| {
        let targets = kind_argument::targets(&site.cluster, &kind).await?;
        let [target] = targets.as_slice() else { bail!("that are several kinds") };
        let namespace = site.namespace_of(target);
        let query = ObjectQuery { namespace, ..ObjectQuery::all(&target.resource) };
        let part = site.cluster.list_at_most(query, None, MAX_COMPLETION_NAMES).await?;
        Ok(part.objects.iter().map(Object::name).map(str::to_owned).collect())
    })
}

/// The suggestions from the cluster of a command line. Empty if the request fails or takes too long, because an error message
/// would disturb the command line.
fn asked(
    words: &[String],
    work: impl AsyncFnOnce(CommandScope) -> anyhow::Result<Vec<String>>,
) -> Vec<String> {
    let Some(mut place) = place(words) else { return Vec::new() };
    place.timeout = Some(COMPLETION_TIMEOUT);
    place.run(work).unwrap_or_default()
}

/// The cluster and the namespace that the flags in these words select. `None` if the flags cannot be parsed.
fn place(words: &[String]) -> Option<ClusterScope> {
    let mut kept = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let name = word.split('=').next().unwrap_or_default();
        if OF_PLACE.contains(&name) {
            kept.push(word.clone());
            kept.extend(words.next().filter(|_| !word.contains('=')).cloned());
        }
    }
    let command = ClusterScope::augment_args(Command::new("place").no_binary_name(true));
    let matches = command.try_get_matches_from(kept).ok()?;
    ClusterScope::from_arg_matches(&matches).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn kinds_are_completed_without_a_cluster() {
        let of = |current: &str| of_objects(current, &words("windlass get x"), None);
        assert_eq!(of("kust"), ["kustomization"]);
        assert_eq!(of("ks"), ["ks"]);
        assert_eq!(of("app"), ["appliers"]);
        assert!(of("").contains(&"gitrepository".to_owned()) && of("zzz").is_empty());
    }

    #[test]
    fn names_are_those_of_the_place_that_the_command_line_names() {
        let given = place(&words("windlass get ks/ -n apps -A -o json --kubeconfig=/x -l a=b"));
        let shown = format!("{:?}", given.unwrap());
        assert!(shown.contains("\"/x\"") && shown.contains("\"apps\""), "{shown}");
        // This flag has no value yet.
        assert!(place(&words("windlass get ks/ --context")).is_none());
    }

    #[test]
    fn a_cluster_that_does_not_answer_offers_nothing() {
        let line = words("windlass get --kubeconfig=/nowhere ks/");
        assert!(of_objects("ks/", &line, None).is_empty());
        assert!(
            of_objects("", &words("windlass values --kubeconfig=/nowhere "), Some("hr")).is_empty()
        );
    }
}
