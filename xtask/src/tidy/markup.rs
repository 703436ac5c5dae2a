//! Checks that only `maud` makes the HTML of pages. It escapes text, so no name of an object can become markup.
//!
//! `web/src/href.rs` says which links a page may have, and `web/src/response.rs` what a browser may run.

use super::{assert_none, files, read};

/// Files that may make HTML of text without escaping, each with a reason. The list is empty, because `maud` makes
/// pictures, too.
const UNESCAPING: [&str; 0] = [];

/// The name that turns escaping off. It is put together here, so that this file itself does not have it.
const UNESCAPED: &str = concat!("Pre", "Escaped");

/// The strings with which tests attack pages. No page has them as markup, and the file is compiled for tests only.
const HOSTILE_STRINGS: &str = "web/src/hostile_strings.rs";

/// HTML attributes that must not have a literal value. A literal would bypass the policy of pages or the escaping of
/// links.
const FORBIDDEN_ATTRIBUTES: [&str; 6] =
    [" href=\"", " src=\"", " style=", " onclick=", " onload=", " onerror="];

/// A link to a part of the same page. The frame of pages has it as a literal.
const OWN_ANCHOR: &str = " href=\"#";

/// The lines of a file that are code, without those of tests.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let code = text.split_once("#[cfg(test)]\nmod tests {").map_or(text, |(code, _)| code);
    let lines = code.lines().enumerate().map(|(at, line)| (at + 1, line));
    lines.filter(|(_, line)| !line.trim_start().starts_with("//"))
}

/// The faults in the HTML of a file.
fn faults(path: &str, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (number, line) in code(text) {
        if line.contains(UNESCAPED) && !UNESCAPING.contains(&path) {
            found.push(format!("{path}:{number}: `{UNESCAPED}` turns escaping off"));
        }
        let attributes = FORBIDDEN_ATTRIBUTES.iter().filter(|it| line.contains(**it));
        let attributes = attributes.filter(|_| !line.contains(OWN_ANCHOR));
        found.extend(
            attributes.map(|it| format!("{path}:{number}: `{}`: write an Href", it.trim())),
        );
    }
    found
}

#[test]
fn pages_escape_everything_and_link_through_one_type() {
    let all = ["web", "cli"].into_iter().flat_map(|folder| files(folder, ".rs"));
    let all = all.filter(|path| path != HOSTILE_STRINGS);
    assert_none(&all.flat_map(|path| faults(&path, &read(&path))).collect::<Vec<_>>());
}

#[test]
fn markup_that_is_not_escaped_is_found() {
    let bad =
        format!("html! {{ ({UNESCAPED}(name)) }}\na href=\"/x\" {{}}\ndiv style=\"top: 0\" {{}}\n");
    assert_eq!(faults("web/src/a.rs", &bad).len(), 3);
    let good =
        "a href=(Href::inside(&route)) {}\na class=\"skip\" href=\"#main\" {}\n// href=\"/x\"\n";
    assert_none(&faults("web/src/a.rs", good));
    let tests = "#[cfg(test)]\nmod tests {\n    assert!(html.contains(\"<a href=\\\"/x\"));\n}\n";
    assert_none(&faults("web/src/a.rs", tests));
}
