//! Formats commands that a user can paste into a shell.
//!
//! Names of some kinds, such as Role, may contain any character except `/` and `%`. The creator of such an object may not be
//! trustworthy. So names are quoted.
//! Elsewhere: commands in advice, which are left out if a name would need quotes (engine `cause`).

use objects::clean_line;

/// Formats words as a command. Words with special characters of the shell are quoted, and invisible characters are escaped.
pub(crate) fn shell_line(words: &[&str]) -> String {
    let words: Vec<String> = words.iter().map(|word| quoted(word)).collect();
    words.join(" ")
}

fn quoted(word: &str) -> String {
    let word = clean_line(word);
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./:,=@+".contains(letter);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word,
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_is_more_than_a_word_to_a_shell() {
        let line = |name: &str| shell_line(&["windlass", "why", name]);
        assert_eq!(line("ks/apps-1_a.b:c"), "windlass why ks/apps-1_a.b:c");
        assert_eq!(line("role/$(id)`id`;a&&b|c >d"), "windlass why 'role/$(id)`id`;a&&b|c >d'");
        assert_eq!(line("role/it's\n\u{1b}[2J"), r"windlass why 'role/it'\''s \u{1b}[2J'");
        for name in ["", "~", "*", "!1", "a\\", "\"", "#", "{a,b}", "ä"] {
            assert!(line(name).starts_with("windlass why '"), "{name}");
        }
    }
}
