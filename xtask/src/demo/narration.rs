//! How the demo speaks: titles, what a user would type, what came of it and when.
//!
//! Elsewhere: colours and steps of work (`crate::progress`).

use std::time::{Duration, Instant};

use crate::progress::{bold, dim, green};

/// Begins a scene.
pub(super) fn title(text: &str) {
    eprintln!("\n{} {}", bold("▶"), bold(text));
}

/// What a user would type.
pub(super) fn command(line: &str) {
    eprintln!("  {} {line}", dim("$"));
}

/// What a program prints.
pub(super) fn output(text: &str) {
    for line in text.trim_end().lines() {
        eprintln!("    {line}");
    }
}

/// Something that came true.
pub(super) fn fact(text: &str) {
    eprintln!("  {} {text}", green("✔"));
}

/// Something that happened, and when.
pub(super) fn moment(since: Instant, at: Instant, text: &str) {
    let after = at.saturating_duration_since(since).as_secs_f64();
    eprintln!("  {} {text}", dim(&format!("{after:>6.2} s")));
}

/// `63 ms`.
pub(super) fn milliseconds(time: Duration) -> String {
    format!("{} ms", time.as_millis())
}

/// The command line of kubectl with these arguments, as it is typed into a shell.
pub(super) fn typed<Argument: AsRef<str>>(arguments: &[Argument]) -> String {
    let mut line = "kubectl".to_owned();
    for argument in arguments.iter().map(AsRef::as_ref) {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_=/.,:+%@".contains(c);
        // A part that the shell is to fill in is not quoted.
        if argument.contains("\"$(") || argument.chars().all(is_plain) {
            line.push_str(&format!(" {argument}"));
        } else {
            line.push_str(&format!(" '{}'", argument.replace('\'', r"'\''")));
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_can_be_typed_as_it_is_shown() {
        assert_eq!(typed(&["get", "-n", "shop", "a,b"]), "kubectl get -n shop a,b");
        assert_eq!(typed(&["patch", "-p", r#"{"a":1}"#]), r#"kubectl patch -p '{"a":1}'"#);
        assert_eq!(typed(&["at=\"$(date)\""]), "kubectl at=\"$(date)\"");
    }
}
