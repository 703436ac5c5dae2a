//! The tab with the last log lines of the containers of an object, or of the objects that it applied.
//!
//! Elsewhere: finding the containers (`windlass_answers::logged_containers`), sorting the lines
//! (`windlass_answers::container_logs`).

use std::collections::VecDeque;

use maud::{Markup, html};
use objects::{Object, clean_line};
use serde_json::Value;
use windlass_answers::command_scope::CommandScope;
use windlass_answers::container_logs::{ContainerLogStream, as_json, in_order};
use windlass_answers::logged_containers::{self, LoggingContainer};
use windlass_cli_runtime::table::cut;
use windlass_cluster::container_logs::{ContainerLogLine, LogOptions};

use crate::page_elements::remarks;

/// How many of the last lines of each container are read.
pub(super) const LAST_LINES: u32 = 100;

/// The longest line, in characters.
const MAX_LINE_CHARACTERS: usize = 4_000;

/// How many bytes of all lines together are kept. The oldest lines are dropped first.
const MAX_KEPT_BYTES: usize = 2 << 20;

/// A log line, and the container that printed it.
struct LogLineWithContainer {
    container: LoggingContainer,
    line: ContainerLogLine,
}

/// The last log lines, sorted by time.
#[derive(Default)]
pub(super) struct LastLogLines {
    lines: VecDeque<LogLineWithContainer>,
    bytes: usize,
    /// How many lines were read but dropped.
    dropped: usize,
    containers: usize,
    /// Containers that have not printed anything, with the reason.
    silent: Vec<String>,
    /// Remarks about logs that could not be read.
    pub(super) left_out: Vec<String>,
}

impl LastLogLines {
    fn add(&mut self, container: &LoggingContainer, line: &ContainerLogLine) {
        let line = ContainerLogLine { at: line.at, text: cut(&line.text, MAX_LINE_CHARACTERS) };
        self.bytes += line.text.len();
        self.lines.push_back(LogLineWithContainer { container: container.clone(), line });
        while self.bytes > MAX_KEPT_BYTES {
            let Some(first) = self.lines.pop_front() else { return };
            self.bytes -= first.line.text.len();
            self.dropped += 1;
        }
    }
}

/// Reads the last log lines of each container.
///
/// # Errors
/// The Pods cannot be found.
pub(super) async fn read(site: &CommandScope, object: Object) -> anyhow::Result<LastLogLines> {
    let found = logged_containers::of_object(site, object).await?;
    let wanted = LogOptions { tail: Some(LAST_LINES), ..LogOptions::default() };
    let sources = found
        .containers
        .iter()
        .map(|container| ContainerLogStream::open(&site.cluster, container, wanted))
        .collect();
    let containers = found.containers.len();
    let mut lines =
        LastLogLines { containers, silent: found.silent.clone(), ..LastLogLines::default() };
    let failed = in_order(sources, |container, line| {
        lines.add(container, line);
        Ok(())
    });
    let failed = failed.await?;
    lines.left_out = found.left_out.iter().cloned().chain(failed).collect();
    Ok(lines)
}

/// The lines as the command prints them with `-o json`.
pub(super) fn json(found: &LastLogLines) -> Value {
    found.lines.iter().map(|it| as_json(&it.container, &it.line)).collect()
}

/// The tab with the log lines.
pub(super) fn content(found: &LastLogLines) -> Markup {
    let LastLogLines { lines, dropped, containers, silent, left_out, .. } = found;
    let is_one = *containers == 1;
    html! {
        (remarks(left_out))
        (remarks(silent))
        section class="panel" {
            header {
                h2 { "What containers printed" }
                span class="more" { "the last " (LAST_LINES) " lines of each, " (containers) " containers" }
            }
            @if lines.is_empty() && left_out.is_empty() { p { "No container has printed anything." } }
            @if *dropped > 0 { p { (dropped) " earlier lines are left out; the command prints them." } }
            @if !lines.is_empty() {
                pre class="log lines" { @for it in lines { (line(it, is_one)) } }
            }
        }
    }
}

fn line(it: &LogLineWithContainer, is_one: bool) -> Markup {
    let LogLineWithContainer { container, line } = it;
    html! {
        span class="dim" {
            @if let Some(at) = line.at { (at.strftime("%H:%M:%S ").to_string()) }
            @if !is_one { bdi { (clean_line(&container.pod)) " " (clean_line(&container.name)) } " " }
        }
        bdi { (clean_line(&line.text)) }
        "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hostile_strings::assert_text_only;

    fn container(pod: &str) -> LoggingContainer {
        LoggingContainer { namespace: "apps".into(), pod: pod.into(), name: "app".into() }
    }

    fn printed(text: &str) -> ContainerLogLine {
        let at = Some("2026-11-24T12:00:00Z".parse().unwrap());
        ContainerLogLine { at, text: text.to_owned() }
    }

    #[test]
    fn what_containers_print_is_escaped_and_steers_no_reader() {
        let mut found = LastLogLines { containers: 2, ..LastLogLines::default() };
        found.add(&container("web-1"), &printed("  at \u{1b}[2J<script>\u{202e}"));
        let html = content(&found).into_string();
        let line = "<pre class=\"log lines\"><span class=\"dim\">12:00:00 <bdi>web-1 app</bdi> </span>\
            <bdi>  at \\u{1b}[2J&lt;script&gt;\\u{202e}</bdi>\n</pre>";
        assert!(html.contains(line), "{html}");
        assert_eq!(json(&found)[0]["line"], "  at \u{1b}[2J<script>\u{202e}");
    }

    #[test]
    fn hostile_strings_are_text_only() {
        assert_text_only(|hostile| {
            let mut found = LastLogLines {
                containers: 2,
                silent: vec![hostile.to_owned()],
                left_out: vec![hostile.to_owned()],
                ..LastLogLines::default()
            };
            found.add(&container(hostile), &printed(hostile));
            content(&found).into_string()
        });
    }

    #[test]
    fn the_last_lines_are_kept_and_a_long_one_is_cut() {
        let mut found = LastLogLines::default();
        for _ in 0..1_000 {
            found.add(&container("web-1"), &printed(&"x".repeat(64 << 10)));
        }
        assert!(found.bytes <= MAX_KEPT_BYTES && found.lines.len() > 500, "{}", found.lines.len());
        assert_eq!(found.lines.len() + found.dropped, 1_000);
        assert!(content(&found).into_string().contains(" earlier lines are left out"));
    }

    #[test]
    fn that_nothing_was_printed_is_said_only_where_all_was_read() {
        let left_out = vec!["Pod/apps/web: forbidden <b>".to_owned()];
        let hidden = LastLogLines { left_out, ..LastLogLines::default() };
        let html = content(&hidden).into_string();
        assert!(!html.contains("No container has printed") && html.contains("forbidden &lt;b&gt;"));
        assert!(
            content(&LastLogLines::default()).into_string().contains("No container has printed")
        );
    }
}
