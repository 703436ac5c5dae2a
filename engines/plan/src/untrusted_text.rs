//! Escapes text from manifests and errors, because anyone who can propose a change may have written it.
//!
//! Here: the length of a line, names of objects outside of code, fences of Markdown. Elsewhere: which characters of a line are
//! escaped (`objects::clean_line`), the printed lines (`plan_lines.rs`), their place (`table.rs`, `markdown.rs`, `sarif.rs`).

/// A longer line is cut.
const MAX_LINE_BYTES: usize = 1600;

/// A longer name is cut. The names of kinds and namespaces and of most objects are shorter.
const MAX_NAME_CHARACTERS: usize = 400;

/// A line of [`objects::clean_line`], cut if it is long.
pub fn clean_line(text: &str) -> String {
    let begin = text.get(..text.floor_char_boundary(MAX_LINE_BYTES)).unwrap_or_default();
    let mut line = objects::clean_line(begin);
    if begin.len() < text.len() {
        line.push('…');
    }
    line
}

/// Keeps only characters that are valid in Kubernetes names. HTML, Markdown and mentions of users are removed.
pub(crate) fn plain_name(name: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-._:/".contains(letter);
    let letters = name.chars().take(MAX_NAME_CHARACTERS);
    letters.map(|letter| if is_plain(letter) { letter } else { '?' }).collect()
}

/// A Markdown fence around some lines. It is longer than every run of backticks in them.
pub(crate) fn fence_around<'l>(lines: impl Iterator<Item = &'l str>) -> String {
    let runs = lines.flat_map(|line| line.split(|letter| letter != '`')).map(str::len);
    "`".repeat(runs.max().unwrap_or_default().max(2) + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_no_control_characters_and_an_end() {
        assert_eq!(clean_line("a\nb\u{1b}[2J\u{202e}c"), "a b\\u{1b}[2J\\u{202e}c");
        assert_eq!(clean_line("\u{61c}a\u{e0041}\u{ad}"), "\\u{61c}a\\u{e0041}\\u{ad}");
        let long = clean_line(&"é".repeat(MAX_LINE_BYTES));
        assert!(long.ends_with("é…") && long.len() <= MAX_LINE_BYTES + '…'.len_utf8());
    }

    #[test]
    fn a_name_has_neither_markup_nor_mentions() {
        assert_eq!(plain_name("Role/a/system:x-1.y"), "Role/a/system:x-1.y");
        assert_eq!(plain_name("<b>`@all` [x]\n"), "?b???all???x??");
        assert_eq!(plain_name(&"a".repeat(1000)).len(), MAX_NAME_CHARACTERS);
    }

    #[test]
    fn a_fence_is_longer_than_all_runs_of_backticks() {
        assert_eq!(fence_around(["a", "b"].into_iter()), "```");
        assert_eq!(fence_around(["a ``` b", "`````", ""].into_iter()), "``````");
    }
}
