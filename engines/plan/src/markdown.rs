//! Prints a plan as a pull request comment, in the Markdown that forges show.
//!
//! Here: the structure of the comment, and which lines of a long one are left out.
//! Elsewhere: the lines of an applier (`plan_lines.rs`), escaping (`untrusted_text.rs`).
//!
//! Outside of fences there are only fixed words, numbers, and names as code. A name keeps only characters that are valid in
//! names. A manifest can therefore not mention a user, add a link or HTML, or end a fence. No line begins with a slash, because
//! forges and their bots read it as a command.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::change_plan::{ApplierChange, ChangePlan};
use crate::plan_check::destroys;
use crate::plan_lines::{FIELD_INDENT, applier_lines, applier_summary, finding_line, summary_text};
use crate::untrusted_text::{fence_around, plain_name};

/// The longest comment. GitHub allows 65536 characters.
const MAX_COMMENT_BYTES: usize = 60_000;

/// The most that its findings may have.
const MAX_FINDINGS_BYTES: usize = 12_000;

/// The space reserved for the line that says how much was left out.
const LAST_LINE_BYTES: usize = 200;

/// The smallest part of the comment about an applier. If there is less space, the part is left out.
const MIN_APPLIER_BYTES: usize = 1024;

/// The space that each part reserves for the line that says how many lines were left out.
const OMITTED_LINES_BYTES: usize = 40;

/// The longest fence. If a longer one would be needed, backticks are replaced by other quotation marks.
const MAX_FENCE_CHARACTERS: usize = 16;

/// The first line of a comment, by which a program finds the comment that it wrote earlier. The plans of several clusters each
/// have a name, which is escaped. A plan without a name passes an empty one.
pub fn comment_marker(name: &str) -> String {
    match name {
        "" => "<!-- windlass plan -->".to_owned(),
        name => format!("<!-- windlass plan: {} -->", plain_name(name)),
    }
}

/// A plan as one comment of at most 60000 bytes. If parts were left out, the last line says so.
pub fn markdown_comment(plan: &ChangePlan) -> String {
    named_markdown_comment(plan, "", MAX_COMMENT_BYTES)
}

/// A part of a comment.
struct PullRequestCommentPart {
    text: String,
    /// How many lines were left out.
    omitted_lines: usize,
}

/// A plan as one comment of at most `most` bytes, with the marker of a name. If parts were left out, the last line says so.
pub fn named_markdown_comment(plan: &ChangePlan, name: &str, most: usize) -> String {
    let marker = comment_marker(name);
    let title = match name {
        "" => "Plan".to_owned(),
        name => format!("Plan `{}`", plain_name(name)),
    };
    let revisions = [&plan.base_revision, &plan.head_revision].map(|it| plain_name(it));
    let [base, head] = revisions;
    let mut text = format!("{marker}\n### {title}: {}\n\n", summary_text(plan));
    let _ = write!(text, "From `{base}` to `{head}`.\n\n");
    let mut omitted_lines = plan.omitted_findings;
    let findings: Vec<String> = plan.findings.iter().map(finding_line).collect();
    if !findings.is_empty() {
        let part = fenced(&findings, "", MAX_FINDINGS_BYTES.min(most / 4));
        text.push_str(&part.text);
        omitted_lines = omitted_lines.saturating_add(part.omitted_lines);
    }
    let mut omitted_appliers = 0;
    let mut parts = BTreeMap::new();
    let mut left = most.saturating_sub(LAST_LINE_BYTES + text.len());
    let mut unlisted = plan.appliers.len();
    for (at, change) in by_severity(&plan.appliers) {
        let share = left.checked_div(unlisted).unwrap_or(left).max(MIN_APPLIER_BYTES).min(left);
        unlisted = unlisted.saturating_sub(1);
        match applier_part(change, share) {
            Some(part) => {
                left = left.saturating_sub(part.text.len());
                omitted_lines = omitted_lines.saturating_add(part.omitted_lines);
                parts.insert(at, part.text);
            }
            None => omitted_appliers += 1,
        }
    }
    parts.values().for_each(|part| text.push_str(part));
    if omitted_appliers > 0 || omitted_lines > 0 {
        let _ = writeln!(
            text,
            "This comment is cut (appliers left out: {omitted_appliers}, lines left out: {omitted_lines}): \
             `windlass plan -o table` prints the whole plan."
        );
    }
    text
}

/// Appliers with their positions, in the order in which they get space in the comment. Destructive changes come first, so that
/// other changes cannot push them out.
fn by_severity(appliers: &[ApplierChange]) -> Vec<(usize, &ApplierChange)> {
    let mut all: Vec<(usize, &ApplierChange)> = appliers.iter().enumerate().collect();
    all.sort_by_key(|(_, change)| (!destroys(change), change.comparison.is_complete()));
    all
}

/// A line of an applier that does not begin with a slash, as the pointer to a field does.
fn without_slash(line: String) -> String {
    match line.strip_prefix(FIELD_INDENT) {
        Some(pointer) if pointer.starts_with('/') => format!("{FIELD_INDENT}· {pointer}"),
        _ => line,
    }
}

/// The part of the comment about one applier, in at most `most` bytes. `None` if that is too little.
fn applier_part(change: &ApplierChange, most: usize) -> Option<PullRequestCommentPart> {
    let subject = plain_name(&change.applier.subject());
    let digest = change.blind_digest.iter();
    let digest = digest.map(|it| format!("Blind digest: <code>{}</code>\n\n", plain_name(it)));
    let head = format!(
        "<details><summary><code>{subject}</code>: {}</summary>\n\n{}",
        applier_summary(change),
        digest.collect::<String>()
    );
    let end = "</details>\n\n";
    let lines: Vec<String> = applier_lines(change).into_iter().map(without_slash).collect();
    let left = most.checked_sub(head.len() + end.len())?;
    let body = fenced(&lines, "diff", left);
    if body.text.len() > left {
        return None;
    }
    let text = format!("{head}{}{end}", body.text);
    Some(PullRequestCommentPart { text, omitted_lines: body.omitted_lines })
}

/// Lines in a fence, as many as fit into `most` bytes. An empty fence may take more.
fn fenced(lines: &[String], language: &str, most: usize) -> PullRequestCommentPart {
    let mut fence = fence_around(lines.iter().map(String::as_str));
    // A manifest with a long line of backticks would need a long fence, and leave little space for the changes.
    let has_long_fence = fence.len() > MAX_FENCE_CHARACTERS;
    if has_long_fence {
        fence = fence_around(std::iter::empty());
    }
    let mut text = format!("{fence}{language}\n");
    let kept = 2 * fence.len() + language.len() + OMITTED_LINES_BYTES;
    let mut left = most.saturating_sub(kept);
    let mut listed = 0;
    for line in lines {
        let Some(rest) = left.checked_sub(line.len() + 1) else { break };
        left = rest;
        listed += 1;
        let line = if has_long_fence { line.replace('`', "'") } else { line.clone() };
        let _ = writeln!(text, "{line}");
    }
    let omitted_lines = lines.len() - listed;
    if omitted_lines > 0 {
        let _ = writeln!(text, "… {omitted_lines} more");
    }
    let _ = write!(text, "{fence}\n\n");
    PullRequestCommentPart { text, omitted_lines }
}
