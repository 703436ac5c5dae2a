//! Prints the demo in the terminal: titles, commands, their output, and the results with times.
//!
//! `testbed::progress` has colours and progress lines.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use testbed::progress::{bold, dim, green};

/// The lines that were printed so far, without colours.
static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// The lines that were printed so far.
pub(super) fn said() -> Vec<String> {
    SAID.lock().clone()
}

/// Prints a line with colours, and records it without them.
fn say(shown: &str, plain: String) {
    eprintln!("{shown}");
    SAID.lock().push(plain);
}

/// Prints the title of a scene.
pub(super) fn title(text: &str) {
    say("", String::new());
    say(&format!("{} {}", bold("▶"), bold(text)), format!("▶ {text}"));
}

/// Prints a command as a user would type it.
pub(super) fn command(line: &str) {
    say(&format!("  {} {line}", dim("$")), format!("  $ {line}"));
}

/// Prints the output of a program.
pub(super) fn output(text: &str) {
    for line in text.trim_end().lines() {
        let line = format!("    {line}");
        say(&line, line.clone());
    }
}

/// Prints a result that was reached.
pub(super) fn fact(text: &str) {
    say(&format!("  {} {text}", green("✔")), format!("  ✔ {text}"));
}

/// Prints an event, and how long after `since` it happened.
pub(super) fn moment(since: Instant, at: Instant, text: &str) {
    let after = format!("{:>6.2} s", at.saturating_duration_since(since).as_secs_f64());
    say(&format!("  {} {text}", dim(&after)), format!("  {after} {text}"));
}

/// A duration as text, such as `63 ms`.
pub(super) fn milliseconds(time: Duration) -> String {
    format!("{} ms", time.as_millis())
}

/// The command line of kubectl with these arguments, as a user would type it into a shell.
pub(super) fn typed<Argument: AsRef<str>>(arguments: &[Argument]) -> String {
    let mut line = "kubectl".to_owned();
    for argument in arguments.iter().map(AsRef::as_ref) {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_=/.,:+%@".contains(c);
        // An argument with a command substitution is printed in its own quotes, because the shell has to evaluate it.
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
