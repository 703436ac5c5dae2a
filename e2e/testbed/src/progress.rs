//! How long work is shown to a person: steps with a sign, a word and a time. Colour is never the only signal.
#![expect(clippy::print_stderr, reason = "this is how long work is shown")]

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

fn paint(code: &str, text: &str) -> String {
    let plain = std::env::var_os("NO_COLOR").is_some() || !std::io::stderr().is_terminal();
    if plain { text.to_owned() } else { format!("\x1b[{code}m{text}\x1b[0m") }
}

/// Red, where colours are wanted.
pub fn red(text: &str) -> String {
    paint("31", text)
}

/// Green, where colours are wanted.
pub fn green(text: &str) -> String {
    paint("32", text)
}

/// Bold, where colours are wanted.
pub fn bold(text: &str) -> String {
    paint("1", text)
}

/// Dim, where colours are wanted.
pub fn dim(text: &str) -> String {
    paint("2", text)
}

/// `1 min 5 s`, `3.2 s`.
pub fn spell(time: Duration) -> String {
    let seconds = time.as_secs();
    if seconds >= 60 {
        format!("{} min {} s", seconds / 60, seconds % 60)
    } else {
        format!("{:.1} s", time.as_secs_f64())
    }
}

/// Says how far a step is.
pub fn note(text: &str) {
    eprintln!("  {}", dim(text));
}

/// Runs one step of a longer work, saying when it begins and how it ended.
///
/// # Errors
/// The step's own.
pub fn step<T>(name: &str, work: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
    eprintln!("{} {name}", bold("▶"));
    let begun = Instant::now();
    let outcome = work();
    let took = spell(begun.elapsed());
    match &outcome {
        Ok(_) => eprintln!("{} {name} {}", green("✔ done"), dim(&format!("({took})"))),
        Err(_) => eprintln!("{} {name} {}", red("✘ failed"), dim(&format!("({took})"))),
    }
    outcome
}

/// The exit code of a command, whose error is printed.
pub fn exit_code(outcome: anyhow::Result<ExitCode>) -> ExitCode {
    outcome.unwrap_or_else(|error| {
        eprintln!("{} {error:#}", red("error:"));
        ExitCode::FAILURE
    })
}
