//! Understands command lines in the style of `flux` and `kubectl`. If windlass has no such command, the error names the command
//! to use instead.
//!
//! Here: flags before the verb, types of sources, and verbs that windlass does not have. Below: flags that it does not have
//! (`flux_and_kubectl_syntax/flux_flags.rs`).
//! Elsewhere: other names of kinds (`kind_argument.rs`), flags with the same meaning (beside each command).

mod flux_flags;

use std::ffi::OsString;

/// Flags of kubectl and flux that may come before the verb. Each has a value.
const BEFORE_THE_VERB: [&str; 9] = [
    "-n",
    "--namespace",
    "--kubeconfig",
    "--context",
    "--cluster",
    "--user",
    "--as",
    "--as-group",
    "--timeout",
];

/// Other flags with a value. The value is not a word of the command.
const WITH_VALUE: [&str; 10] = [
    "-o",
    "--output",
    "-l",
    "--selector",
    "--label-selector",
    "--status-selector",
    "--reason",
    "--until",
    "--owner",
    "--types",
];

/// Verbs after which `flux` expects the type of a source or an image: `get sources git`, `get image policy`.
const OF_TYPES: [&str; 7] = ["get", "reconcile", "suspend", "resume", "export", "describe", "why"];

/// The names of source types in `flux`.
const SOURCES: [(&str, &str); 7] = [
    ("git", "gitrepository"),
    ("oci", "ocirepository"),
    ("helm", "helmrepository"),
    ("chart", "helmchart"),
    ("bucket", "bucket"),
    ("external", "externalartifact"),
    ("all", "sources"),
];

/// The names of image kinds in `flux`.
const IMAGES: [(&str, &str); 4] = [
    ("repository", "imagerepository"),
    ("policy", "imagepolicy"),
    ("update", "imageupdateautomation"),
    ("all", "images"),
];

/// The name of the source-watcher's kind in `flux`.
const ARTIFACTS: [(&str, &str); 3] = [
    ("generator", "artifactgenerator"),
    ("generators", "artifactgenerator"),
    ("all", "artifactgenerator"),
];

/// The types that `flux` accepts after a word such as `source`. `None` if no types follow this word.
fn types_of(group: &str) -> Option<&'static [(&'static str, &'static str)]> {
    match group {
        "source" | "sources" => Some(&SOURCES),
        "image" | "images" => Some(&IMAGES),
        "artifact" | "artifacts" => Some(&ARTIFACTS),
        _ => None,
    }
}

/// Translates a command line into the syntax of windlass.
pub(super) fn understood(mut line: Vec<OsString>) -> Vec<OsString> {
    if line.is_empty() {
        return line;
    }
    let program = line.remove(0);
    let early = early(&line);
    let flags: Vec<OsString> = line.drain(..early).collect();
    if !flags.is_empty() && !line.is_empty() {
        let end = line.iter().position(|it| it == "--").unwrap_or(line.len());
        line.splice(end..end, flags);
    } else {
        // There is no verb, so the error shows the line as the user typed it.
        line.splice(0..0, flags);
    }
    of_type(&mut line);
    flux_flags::understand(&mut line);
    line.insert(0, program);
    line
}

/// How many words before the verb are flags that have to be moved behind it.
fn early(line: &[OsString]) -> usize {
    let mut at = 0;
    while let Some(word) = line.get(at).and_then(|it| it.to_str()) {
        let has_value =
            |flag: &str| word.strip_prefix(flag).is_some_and(|rest| rest.starts_with('='));
        if BEFORE_THE_VERB.contains(&word) {
            at += 2;
        } else if BEFORE_THE_VERB.iter().any(|flag| has_value(flag)) {
            at += 1;
        } else {
            break;
        }
    }
    at.min(line.len())
}

/// Translates for example `get sources git app` into `get gitrepository app`.
fn of_type(line: &mut Vec<OsString>) {
    let has_types =
        line.first().and_then(|it| it.to_str()).is_some_and(|it| OF_TYPES.contains(&it));
    let mut words = positions(line);
    let (Some(group), Some(kind)) = (words.next(), words.next()) else { return };
    drop(words);
    let text = |at: usize| line.get(at).and_then(|it| it.to_str()).unwrap_or_default();
    let Some(types) = types_of(text(group)).filter(|_| has_types) else { return };
    let Some((_, meant)) = types.iter().find(|(word, _)| *word == text(kind)) else { return };
    if let Some(slot) = line.get_mut(kind) {
        *slot = (*meant).into();
    }
    line.remove(group);
}

/// The positions of the words after the verb that are neither flags nor their values.
fn positions(line: &[OsString]) -> impl Iterator<Item = usize> {
    let mut is_value = false;
    line.iter().enumerate().skip(1).take_while(|(_, it)| *it != "--").filter_map(
        move |(at, word)| {
            let was_value = std::mem::take(&mut is_value);
            let word = word.to_str().unwrap_or_default();
            if word.starts_with('-') {
                is_value = BEFORE_THE_VERB.contains(&word) || WITH_VALUE.contains(&word);
                return None;
            }
            (!was_value).then_some(at)
        },
    )
}

/// The advice for a command of `flux` that has another name in windlass or does not exist there. `None` if no advice is known.
pub(super) fn answer(line: &[OsString]) -> Option<String> {
    let line = line.get(1..)?;
    let words: Vec<&str> = positions(line).filter_map(|at| line.get(at)?.to_str()).collect();
    let word = |at: usize, otherwise: &'static str| words.get(at).copied().unwrap_or(otherwise);
    let verb = line.first()?.to_str()?;
    let name = word(1, "NAME");
    Some(match verb {
        "debug" => match word(0, "hr") {
            "ks" | "kustomization" => format!(
                "`flux debug kustomization` is `windlass build ks/{name}` here, which prints what is applied"
            ),
            _ => format!("`flux debug helmrelease` is `windlass values hr/{name}` here"),
        },
        "create" => "windlass creates no objects from flags: write a manifest, such as with `windlass export` of another \
                     object, and apply it with kubectl or commit it"
            .to_owned(),
        "delete" => {
            let group = word(0, "KIND");
            let (kind, name) = match types_of(group) {
                Some(types) => {
                    let kind = word(1, "NAME");
                    let found = types.iter().find(|(word, _)| *word == kind);
                    (found.map_or(kind, |it| it.1), word(2, "NAME"))
                }
                None => (group, word(1, "NAME")),
            };
            format!("`flux delete` is `kubectl delete {kind} {name}` here")
        }
        "push" | "pull" | "list" | "tag" => format!(
            "windlass does not {verb} artifacts: use `flux {verb} artifact`, `oras` or `crane`; an OCIRepository reads them"
        ),
        "envsubst" => "windlass substitutes when it builds: `windlass build ks/NAME` prints the result".to_owned(),
        "install" | "bootstrap" if line.iter().any(is_version) => format!(
            "windlass {verb} has no --version: it installs the version that it is, v{}; --image names another image",
            env!("CARGO_PKG_VERSION")
        ),
        _ => return flux_flags::answer(line),
    })
}

fn is_version(word: &OsString) -> bool {
    word.to_str().is_some_and(|it| it == "--version" || it == "-v" || it.starts_with("--version="))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split_whitespace().map(OsString::from).collect()
    }

    fn read(line: &str) -> String {
        let line = understood(words(line)).into_iter().map(|it| it.into_string().unwrap());
        line.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn flags_before_the_verb_are_understood() {
        assert_eq!(read("windlass -n apps get ks"), "windlass get ks -n apps");
        assert_eq!(
            read("windlass --context=a -n apps build ks/app -- --no-remote-bases"),
            "windlass build ks/app --context=a -n apps -- --no-remote-bases"
        );
        // A line without a verb stays as the user typed it.
        assert_eq!(read("windlass -n apps"), "windlass -n apps");
        assert_eq!(read("windlass -n apps get ks --verbose"), "windlass get ks -n apps");
        assert_eq!(read("windlass -V"), "windlass -V");
        assert_eq!(read("windlass"), "windlass");
    }

    #[test]
    fn sources_are_named_by_their_type() {
        assert_eq!(read("windlass get sources git -A"), "windlass get gitrepository -A");
        assert_eq!(
            read("windlass -n apps reconcile source git app"),
            "windlass reconcile gitrepository app -n apps"
        );
        assert_eq!(read("windlass get -n apps sources all"), "windlass get -n apps sources");
        assert_eq!(read("windlass suspend source chart a"), "windlass suspend helmchart a");
        assert_eq!(read("windlass get artifacts generators"), "windlass get artifactgenerator");
        assert_eq!(read("windlass get image policy app"), "windlass get imagepolicy app");
        assert_eq!(read("windlass get images all -A"), "windlass get images -A");
        // A source with that name, a namespace with that name, and another command.
        assert_eq!(read("windlass get ks source git"), "windlass get ks source git");
        assert_eq!(read("windlass get -n sources git"), "windlass get -n sources git");
        assert_eq!(read("windlass get sources -o wide"), "windlass get sources -o wide");
        assert_eq!(read("windlass template source git"), "windlass template source git");
    }

    #[test]
    fn what_windlass_does_not_have_is_answered_with_what_does_it() {
        let answer_to = |line: &str| answer(&words(line)).unwrap_or_default();
        assert!(answer_to("windlass debug hr web -n apps").contains("`windlass values hr/web`"));
        assert!(
            answer_to("windlass debug -n apps kustomization web")
                .contains("`windlass build ks/web`")
        );
        assert!(
            answer_to("windlass delete source git app")
                .contains("`kubectl delete gitrepository app`")
        );
        assert!(
            answer_to("windlass delete image update app")
                .contains("delete imageupdateautomation app`")
        );
        assert!(answer_to("windlass events -w -n apps").contains("`kubectl events --watch`"));
        assert!(answer_to("windlass install --export --version v2").contains("has no --version"));
        assert!(answer_to("windlass events -n apps --watch").contains("`kubectl events --watch`"));
        assert_eq!(answer_to("windlass get ks"), "");
        assert_eq!(answer_to("windlass install --export"), "");
    }
}
