//! How the demo speaks: titles, what a user would type, what came of it and when.
//!
//! Elsewhere: colours and steps of work (`testbed::progress`).

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use testbed::progress::{bold, dim, green};

/// What was said so far, without colours.
static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// What was said so far, a line each.
pub(super) fn said() -> Vec<String> {
    SAID.lock().clone()
}

/// Says a line: as a terminal shows it, and as it is without colours.
fn say(shown: &str, plain: String) {
    eprintln!("{shown}");
    SAID.lock().push(plain);
}

/// Begins a scene.
pub(super) fn title(text: &str) {
    say("", String::new());
    say(&format!("{} {}", bold("▶"), bold(text)), format!("▶ {text}"));
}

/// What a user would type.
pub(super) fn command(line: &str) {
    say(&format!("  {} {line}", dim("$")), format!("  $ {line}"));
}

/// What a program prints.
pub(super) fn output(text: &str) {
    for line in text.trim_end().lines() {
        let line = format!("    {line}");
        say(&line, line.clone());
    }
}

/// Something that came true.
pub(super) fn fact(text: &str) {
    say(&format!("  {} {text}", green("✔")), format!("  ✔ {text}"));
}

/// Something that happened, and when.
pub(super) fn moment(since: Instant, at: Instant, text: &str) {
    let after = format!("{:>6.2} s", at.saturating_duration_since(since).as_secs_f64());
    say(&format!("  {} {text}", dim(&after)), format!("  {after} {text}"));
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
