//! Flags of `flux` that windlass does not have. A flag that requests the default behaviour is ignored. For other flags, the
//! error names the command to use instead.
//!
//! Elsewhere: flags with the same name in windlass and `flux` (beside each command).

use std::ffi::OsString;

use FluxFlagSupport::{Answered, Ignored, LeftOut, LeftOutWithValue};

/// Commands with the flags of `flux`. Other commands have the flags of kustomize or Helm.
const VERBS: [&str; 13] = [
    "build",
    "check",
    "diff",
    "events",
    "export",
    "get",
    "logs",
    "reconcile",
    "resume",
    "stats",
    "suspend",
    "trace",
    "tree",
];

/// Flags that need no value here, but may have one in `flux`: `--watch=true`.
const SWITCHES: [&str; 14] = [
    "--all",
    "--all-namespaces",
    "--compact",
    "--follow",
    "--force",
    "--no-header",
    "--pre",
    "--reset",
    "--wait",
    "--watch",
    "--with-source",
    "-A",
    "-f",
    "-w",
];

/// How windlass treats a flag of `flux`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FluxFlagSupport {
    /// The flag has no effect, also as `=false`.
    Ignored,
    /// The flag requests the default behaviour of windlass.
    LeftOut,
    /// The flag has a value, and requests the default behaviour of windlass.
    LeftOutWithValue,
    /// windlass does not have the flag. The text names an alternative.
    Answered(&'static str),
}

/// A flag of `flux`, and what windlass does with it.
#[derive(Debug)]
struct FluxFlag {
    name: &'static str,
    /// The commands that have the flag. Empty for all commands.
    verbs: &'static [&'static str],
    fate: FluxFlagSupport,
}

const fn flag(
    name: &'static str,
    verbs: &'static [&'static str],
    fate: FluxFlagSupport,
) -> FluxFlag {
    FluxFlag { name, verbs, fate }
}

const BUILDS: &[&str] = &["build", "diff"];
const IN_KUBECONFIG: FluxFlagSupport = Answered(
    "windlass connects as a kubeconfig says: set it there (`kubectl config set-cluster`, `kubectl config set-credentials`), and \
     choose it with --kubeconfig, --context, --cluster and --user",
);
const ONE_PROGRAM: FluxFlagSupport =
    Answered("windlass is one program without components: `windlass check` checks all of it");

const FOLLOWED: FluxFlagSupport = Answered(
    "`kubectl events --watch` follows events; `windlass logs -f` and `windlass get --watch` follow what windlass does",
);

/// The flags of Flux 2.9.
const FLAGS: &[FluxFlag] = &[
    flag("--cache-dir", &[], LeftOutWithValue),
    flag("--disable-compression", &[], Ignored),
    flag("--kube-api-burst", &[], LeftOutWithValue),
    flag("--kube-api-qps", &[], LeftOutWithValue),
    // Parity(kubectl): the namespace of the context is the default.
    flag("--ns-follows-kube-context", &[], LeftOut),
    flag("--verbose", &[], Ignored),
    flag("--as-uid", &[], IN_KUBECONFIG),
    flag("--certificate-authority", &[], IN_KUBECONFIG),
    flag("--client-certificate", &[], IN_KUBECONFIG),
    flag("--client-key", &[], IN_KUBECONFIG),
    flag("--insecure-skip-tls-verify", &[], IN_KUBECONFIG),
    flag("--server", &[], IN_KUBECONFIG),
    flag("--tls-server-name", &[], IN_KUBECONFIG),
    flag("--token", &[], IN_KUBECONFIG),
    flag("--in-memory-build", BUILDS, Ignored),
    flag("--progress-bar", &["diff"], Ignored),
    // This is the default of windlass and of Flux's controllers.
    flag("--strict-substitute", BUILDS, LeftOut),
    flag(
        "--dry-run",
        &["build"],
        Answered(
            "`windlass build DIR` builds without a cluster, `windlass build ks/NAME` with what the cluster has",
        ),
    ),
    flag(
        "--ignore-not-found",
        &["diff"],
        Answered(
            "`windlass diff` compares what a Kustomization of the cluster applies: create it first, suspended",
        ),
    ),
    flag(
        "--ignore-paths",
        BUILDS,
        Answered(
            "name the paths in a .sourceignore of the folder, which windlass reads as the source does",
        ),
    ),
    flag(
        "--kustomization-file",
        BUILDS,
        Answered(
            "windlass takes the spec that the cluster has: `kubectl diff -f FILE` shows what the file changes, and `windlass \
             build DIR` builds a folder without it",
        ),
    ),
    flag(
        "--local-sources",
        BUILDS,
        Answered("give the folder of one Kustomization with --path, and run it for each"),
    ),
    flag(
        "--recursive",
        BUILDS,
        Answered(
            "run it for each Kustomization: `windlass tree ks/NAME --compact` lists those that one applies",
        ),
    ),
    flag("--components", &["check"], ONE_PROGRAM),
    flag("--components-extra", &["check"], ONE_PROGRAM),
    flag("--poll-interval", &["check"], LeftOutWithValue),
    flag("--watch", &["events"], FOLLOWED),
    flag("-w", &["events"], FOLLOWED),
    flag(
        "--with-credentials",
        &["export"],
        Answered("windlass exports no Secrets: `kubectl get secret NAME -o yaml` prints one"),
    ),
    flag(
        "--show-source",
        &["get"],
        Answered(
            "`windlass tree ks/NAME` shows the source of an object, `windlass get sources` all of them",
        ),
    ),
    flag("--since-time", &["logs"], Answered("give a duration with --since, such as --since 10m")),
];

/// Translates the flags of `flux` in a command line. The first word is the verb.
pub(super) fn understand(line: &mut Vec<OsString>) {
    let Some(verb) = verb(line).filter(|verb| VERBS.contains(verb)).map(str::to_owned) else {
        return;
    };
    let end = line.iter().position(|it| it == "--").unwrap_or(line.len());
    let rest = line.split_off(end);
    let mut words = std::mem::take(line).into_iter();
    line.extend(words.next());
    while let Some(word) = words.next() {
        let text = word.to_str().unwrap_or_default();
        match found(text, &verb).map(|flag| flag.fate) {
            Some(Ignored) => {}
            // With `=false`, the flag requests another behaviour.
            Some(LeftOut) if !text.ends_with("=false") => {}
            Some(LeftOutWithValue) => {
                if !text.contains('=') {
                    words.next();
                }
            }
            _ => line.extend(switch(word)),
        }
    }
    line.extend(rest);
}

fn verb(line: &[OsString]) -> Option<&str> {
    line.first()?.to_str()
}

/// Finds the flag of `flux` that a word contains, among those of this verb. `None` if the verb has no such flag.
fn found(word: &str, verb: &str) -> Option<&'static FluxFlag> {
    let name = word.split_once('=').map_or(word, |(name, _)| name);
    let mut all = FLAGS.iter().filter(|it| it.name == name);
    all.find(|it| it.verbs.is_empty() || it.verbs.contains(&verb))
}

/// Replaces a switch with the value `true` by the switch alone, and keeps every other word. `None` if the value is `false`,
/// because the switch is then removed.
fn switch(word: OsString) -> Option<OsString> {
    let given = word.to_str().and_then(|it| it.split_once('='));
    match given.filter(|(name, _)| SWITCHES.contains(name)) {
        Some((name, "true")) => Some(name.into()),
        Some((_, "false")) => None,
        _ => Some(word),
    }
}

/// The advice for the first flag of `flux` that windlass does not have. `None` if there is no such flag.
pub(super) fn answer(line: &[OsString]) -> Option<String> {
    let verb = verb(line).filter(|verb| VERBS.contains(verb))?;
    let words = line.iter().skip(1).take_while(|it| *it != "--").filter_map(|it| it.to_str());
    words.filter(|word| word.starts_with('-')).find_map(|word| {
        let FluxFlag { name, fate, .. } = found(word, verb)?;
        match fate {
            Answered(text) => Some(format!("windlass {verb} has no {name}: {text}")),
            LeftOut => Some(format!("windlass {verb} always does what {name} asks for")),
            Ignored | LeftOutWithValue => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split_whitespace().map(OsString::from).collect()
    }

    fn read(line: &str) -> String {
        let mut line = words(line);
        understand(&mut line);
        let line = line.into_iter().map(|it| it.into_string().unwrap());
        line.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn flags_that_ask_for_what_is_done_anyway_are_left_out() {
        for (line, expected) in [
            ("get ks --verbose --kube-api-qps 50 -A", "get ks -A"),
            ("get ks --kube-api-burst=300 --watch=true", "get ks --watch"),
            ("get ks --all-namespaces=false", "get ks"),
            ("reconcile ks app --with-source=true", "reconcile ks app --with-source"),
            ("diff ks app --progress-bar=true --path .", "diff ks app --path ."),
            ("diff ks app --progress-bar=false --in-memory-build=false", "diff ks app"),
            ("get ks --verbose=false --disable-compression=false", "get ks"),
            ("diff ks/app -- --verbose", "diff ks/app -- --verbose"),
            ("build ks/app --strict-substitute", "build ks/app"),
            ("template web --verbose", "template web --verbose"),
            ("build . --enable-helm=true", "build . --enable-helm=true"),
            ("get", "get"),
        ] {
            assert_eq!(read(line), expected);
        }
        assert_eq!(read("diff ks app --strict-substitute=false").matches("--").count(), 1);
    }

    #[test]
    fn flags_that_windlass_does_not_have_are_answered_with_what_does_it() {
        for (line, part) in [
            ("export source git app --with-credentials", "`kubectl get secret NAME -o yaml`"),
            ("events --watch", "`kubectl events --watch`"),
            ("events -A -w", "windlass events has no -w: `kubectl events --watch`"),
            ("build ks app --recursive", "windlass build has no --recursive: "),
            ("diff ks app --ignore-paths=a", ".sourceignore"),
            ("diff ks app --strict-substitute=false", "--strict-substitute"),
            ("logs --since-time=2026-11-24T12:00:00Z", "--since 10m"),
            ("check --components=source-controller", "without components"),
            ("get ks --server https://a", "set it there"),
            ("get ks --show-source", "`windlass tree ks/NAME`"),
        ] {
            let text = answer(&words(line)).unwrap_or_default();
            assert!(text.contains(part), "{line}: {text}");
        }
        for line in ["get ks --no-such-flag", "template web --server", "get ks -- --recursive"] {
            assert_eq!(answer(&words(line)), None, "{line}");
        }
    }
}
