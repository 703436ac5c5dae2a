//! Lists words that a Kubernetes engineer would not search for or not understand at once, with better ones.
//!
//! The lists apply to Rust sources, to pages and to `deploy/chart/files/crds`. In Rust sources they apply to
//! messages, comments, identifiers and names of files.
//!
//! `docs/glossary.md` has the terms of the project. `CONTRIBUTING.md` says how messages are written, and `names`
//! checks other parts of names.

use std::collections::BTreeSet;

use proc_macro2::TokenStream;

use super::dead_code::identifiers;
use super::{assert_none, files, read};

/// Phrases that no name, comment or message may have.
const NOWHERE: &[(&str, &str)] = &[
    ("a look", "an observation, a run or a check"),
    ("as nobody", "anonymously"),
    ("breaks off", "is interrupted, or panics"),
    ("broke off", "was interrupted, or panicked"),
    ("farewell", "finalize"),
    ("left alone", "not changed, paused or excluded"),
    ("leaver", "prune candidate"),
    ("leavers", "prune candidates"),
    ("look at", "observe, compare or check"),
    ("looked at", "observed, compared or checked"),
    ("looking at", "observing, comparing or checking"),
    ("looks at", "observes, compares or checks"),
    ("news", "event, or change"),
    ("of no use", "no effect, or cannot be combined"),
    ("refused us", "authentication failed, or rejected"),
    ("refused with", "rejected; the status names it"),
    ("the cluster refused", "the request failed"),
    ("worldly", "impure"),
];

/// Phrases that users must not read in messages, on pages or in descriptions of fields.
const UNREAD: &[(&str, &str)] = &[
    ("a fault in windlass", "a bug in windlass"),
    ("again and again", "repeatedly"),
    ("are asked", "receive requests"),
    ("asked again", "retried"),
    ("be had", "be obtained"),
    ("beside it", "requires"),
    ("cannot be told", "cannot tell whether"),
    ("does not answer", "did not respond"),
    ("goes on when", "continues on resume"),
    ("is not asked", "is not allowed, or is paused"),
    ("it is no", "it is not a"),
    ("not asked", "not allowed, or paused"),
    ("our own", "of windlass"),
    ("refuses us", "rejects the request"),
    ("somebody", "another client, user or controller"),
    ("texts", "strings, or messages"),
    ("tried again", "retried"),
    ("whoever", "who"),
];

/// Words that comments, identifiers and names of files must not have. They hide which client, controller, user or
/// object acts.
const HIDING_WHO_ACTS: &[(&str, &str)] = &[
    ("nobody", "which client, controller or user does not act"),
    ("somebody", "another client, user or controller"),
    ("told", "reported, or which condition, event or message says it"),
    ("whoever", "the client, user, controller or caller that acts"),
    ("wish", "spec, or desired state"),
    ("wished", "desired"),
    ("wishes", "specs, or desired states"),
];

/// The places where a phrase may stay. Each has a path, a phrase (empty for all of them) and a reason.
const EXEMPT: &[(&str, &str, &str)] = &[
    ("xtask/src/tidy/words.rs", "", "the lists themselves"),
    ("docs/decisions/", "", "decisions are not rewritten"),
    ("CHANGELOG.md", "", "entries of the past are not rewritten"),
    ("CONTRIBUTING.md", "our own", "it speaks to those who write the project"),
    ("ARCHITECTURE.md", "our own", "it speaks to those who write the project"),
];

/// The folders of crates whose messages users read.
const SPEAKING: [&str; 10] = [
    "src/",
    "cli/",
    "web/",
    "operator/",
    "sources/src/",
    "sources/artifacts/src/",
    "sources/git/src/",
    "sources/http-client/src/",
    "engines/",
    "crds/src/",
];

fn is_exempt(path: &str, phrase: &str) -> bool {
    EXEMPT.iter().any(|(start, it, _)| path.starts_with(start) && (it.is_empty() || *it == phrase))
}

/// Whether a text has a phrase as whole words. An underscore also ends a word.
fn has(text: &str, phrase: &str) -> bool {
    let is_end = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric());
    text.match_indices(phrase).any(|(at, _)| {
        is_end(text[..at].chars().next_back()) && is_end(text[at + phrase.len()..].chars().next())
    })
}

/// The phrases of a list that some lines have. Each line comes with its number.
fn faults<'t>(
    path: &str,
    lines: impl Iterator<Item = (usize, &'t str)>,
    list: &[(&str, &str)],
) -> Vec<String> {
    let mut faults = Vec::new();
    for (number, line) in lines {
        let text = line.to_lowercase();
        for (phrase, instead) in list {
            if has(&text, phrase) && !is_exempt(path, phrase) {
                faults.push(format!("{path}:{number}: `{phrase}`: write {instead}"));
            }
        }
    }
    faults
}

fn numbered(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().map(|(at, line)| (at + 1, line))
}

/// The lines of a Rust file that users may read. They are lines of code, and comments that become help or
/// descriptions of fields.
fn read_by_users<'t>(path: &str, text: &'t str) -> Vec<(usize, &'t str)> {
    let code = text.split_once("#[cfg(test)]\nmod tests {").map_or(text, |(code, _)| code);
    let has_help =
        ["operator/serve/src/settings", "cli/", "crds/src/"].iter().any(|it| path.starts_with(it));
    let is_read = |line: &str| match line.trim_start() {
        line if line.starts_with("/// ") => has_help,
        line => !line.starts_with("//") && !line.contains("reason = "),
    };
    numbered(code).filter(|(_, line)| is_read(line)).collect()
}

/// The comments of a Rust file that are on lines of their own.
fn comments(text: &str) -> impl Iterator<Item = (usize, &str)> {
    numbered(text).filter(|(_, line)| line.trim_start().starts_with("//"))
}

/// Splits an identifier or a path into words. A word begins after an underscore or at a capital letter.
fn words_of(name: &str) -> String {
    let mut words = String::new();
    let mut is_after_small = false;
    for c in name.chars() {
        if c.is_uppercase() && is_after_small {
            words.push('_');
        }
        is_after_small = !c.is_uppercase();
        words.extend(c.to_lowercase());
    }
    words
}

/// The comments, the identifiers and the name of a Rust file that hide who acts.
fn faults_of_actors(path: &str, text: &str) -> Vec<String> {
    let mut found = faults(path, comments(text), HIDING_WHO_ACTS);
    let tokens: TokenStream = text.parse().unwrap_or_else(|e| panic!("{path}: {e}"));
    let mut names = BTreeSet::from([path.to_owned()]);
    identifiers(tokens, &mut names);
    for name in names {
        let words = words_of(&name);
        for (word, instead) in HIDING_WHO_ACTS {
            if has(&words, word) && !is_exempt(path, word) {
                found.push(format!("{path}: `{word}` in `{name}`: write {instead}"));
            }
        }
    }
    found
}

pub(super) fn is_test(path: &str) -> bool {
    path.contains("/tests/") || path.ends_with("/tests.rs") || path.ends_with("/testing.rs")
}

#[test]
fn names_comments_and_messages_use_the_terms_of_the_field() {
    let mut found = Vec::new();
    for path in files("", ".rs") {
        let text = read(&path);
        found.extend(faults(&path, numbered(&text), NOWHERE));
        if SPEAKING.iter().any(|start| path.starts_with(start)) && !is_test(&path) {
            found.extend(faults(&path, read_by_users(&path, &text).into_iter(), UNREAD));
        }
    }
    assert_none(&found);
}

#[test]
fn comments_and_names_say_who_acts() {
    let all = files("", ".rs");
    assert_none(&all.iter().flat_map(|it| faults_of_actors(it, &read(it))).collect::<Vec<_>>());
}

#[test]
fn comments_and_names_that_hide_who_acts_are_found() {
    let text =
        "// Nobody's\nstruct WasTold;\nfn a_wish() { say(\"told\") }\n/// [`Whoever`]\nmod b;\n";
    let found = faults_of_actors("src/told.rs", text);
    let places: Vec<&str> = found.iter().filter_map(|it| it.split(": write").next()).collect();
    assert_eq!(
        places,
        [
            "src/told.rs:1: `nobody`",
            "src/told.rs:4: `whoever`",
            "src/told.rs: `told` in `WasTold`",
            "src/told.rs: `wish` in `a_wish`",
            "src/told.rs: `told` in `src/told.rs`",
        ]
    );
    assert_none(&faults_of_actors("src/a.rs", "// untold\nstruct Wishbone;\n"));
}

#[test]
fn pages_and_descriptions_use_the_terms_of_the_field() {
    let pages = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"];
    let pages = pages.map(str::to_owned).into_iter().chain(files("docs", ".md"));
    let mut found = Vec::new();
    for path in pages.chain(files("deploy/chart/files/crds", ".yaml")) {
        let text = read(&path);
        found.extend(faults(&path, numbered(&text), NOWHERE));
        found.extend(faults(&path, numbered(&text), UNREAD));
    }
    assert_none(&found);
}

#[test]
fn words_are_found_with_file_line_and_what_to_write() {
    let check = |text: &str| faults("a.rs", numbered(text), NOWHERE);
    assert_eq!(
        check("fn a() {}\nfn target_of_farewell() {}\n"),
        ["a.rs:2: `farewell`: write finalize"]
    );
    assert_eq!(check("// Whoever Looked at it").len(), 1);
    assert_none(&check("// newsletters, a lookup"));
    let users =
        |text: &str| faults("src/a.rs", read_by_users("src/a.rs", text).into_iter(), UNREAD);
    assert_eq!(users("// somebody\nlet text = \"somebody\";\n").len(), 1);
    assert_none(&users("#[cfg(test)]\nmod tests {\n    const A: &str = \"somebody\";\n}\n"));
    let help = faults(
        "cli/src/lib.rs",
        read_by_users("cli/src/lib.rs", "/// Somebody").into_iter(),
        UNREAD,
    );
    assert_eq!(help.len(), 1);
}

#[test]
fn exemptions_are_few_and_have_a_reason() {
    assert!(EXEMPT.len() <= 10 && EXEMPT.iter().all(|(.., reason)| !reason.is_empty()));
}

/// The glossary has at most sixty terms in alphabetical order, because a longer one would not be read.
#[test]
fn the_glossary_is_short_and_sorted() {
    let page = read("docs/glossary.md");
    let terms: Vec<String> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split(" |").next())
        .filter(|term| *term != "term")
        .map(str::to_lowercase)
        .collect();
    assert!((40..=60).contains(&terms.len()), "{} terms", terms.len());
    assert!(terms.is_sorted(), "the terms are not sorted: {terms:?}");
}
