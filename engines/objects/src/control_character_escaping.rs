//! Makes text from other sources safe for a terminal, a log or a web page, such as messages of servers, values of manifests,
//! and output of containers.
//!
//! Elsewhere: values of Secrets in such text (`masking.rs`), the length of lines and markup (the crate that prints the text).

use std::fmt::Write as _;

/// Writes a text on one line and escapes unsafe characters, as in `\u{1b}`. Unsafe characters control a terminal, change the
/// direction of text, or are invisible. Blanks at both ends stay.
#[must_use]
pub fn clean_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\n' | '\r' | '\t' | '\u{2028}' | '\u{2029}' => line.push(' '),
            letter if letter.is_control() || is_invisible(letter) => {
                let _ = write!(line, "\\u{{{:x}}}", u32::from(letter));
            }
            letter => line.push(letter),
        }
    }
    line
}

/// Characters that are invisible or change the direction of text, so that the text can be misread.
fn is_invisible(letter: char) -> bool {
    matches!(
        letter,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}'
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_steers_a_terminal_turns_a_text_around_or_is_unseen() {
        let line = clean_line("  a\u{1b}[2Jb\r\n\u{7}c\u{202e}d\u{9b}31m\u{2028}e\u{200b}\u{61c}");
        assert_eq!(line, "  a\\u{1b}[2Jb  \\u{7}c\\u{202e}d\\u{9b}31m e\\u{200b}\\u{61c}");
        assert_eq!(clean_line("Grüße, \"日本\" …"), "Grüße, \"日本\" …");
    }
}
