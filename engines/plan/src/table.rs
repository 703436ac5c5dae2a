//! Prints a plan as plain text for a terminal. Signs show the kind of change, without colours.
//!
//! Elsewhere: the lines of an applier (`plan_lines.rs`).

use crate::change_plan::ChangePlan;
use crate::plan_lines::{applier_lines, applier_summary, finding_line, summary_text};
use crate::untrusted_text::clean_line;

/// A plan as plain text. Each line ends with a newline, and has no control characters.
pub fn table_text(plan: &ChangePlan) -> String {
    let mut text = String::new();
    let mut add = |indent: usize, line: &str| {
        text.push_str(&" ".repeat(indent));
        text.push_str(line.trim_end());
        text.push('\n');
    };
    for finding in &plan.findings {
        add(0, &finding_line(finding));
    }
    if plan.omitted_findings > 0 {
        add(0, &format!("… {} more findings", plan.omitted_findings));
    }
    for change in &plan.appliers {
        let file = change.file.as_ref().map(|file| format!(" ({file})")).unwrap_or_default();
        let subject = change.applier.subject();
        add(0, &clean_line(&format!("{subject}{file}: {}", applier_summary(change))));
        applier_lines(change).iter().for_each(|line| add(2, line));
    }
    let revisions = format!("{} -> {}", plan.base_revision, plan.head_revision);
    add(0, &clean_line(&format!("{revisions}: {}", summary_text(plan))));
    text
}
