//! Formats the predicted commit of an ImageUpdateAutomation for people: a line, a table of values, the message, and the diff.

use objects::clean_line;

use super::update_plan::ImageUpdatePlan;
use windlass_cli_runtime::table::{PagedTable, TableCell, TerminalScreen, TextColour, clean};

/// The indentation of message lines.
const MESSAGE_INDENT: &str = "  ";

/// The reader of a diff.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DiffAudience {
    /// A program such as `git apply`, which needs every byte unchanged.
    Program,
    /// A terminal. The content of a file must not be able to control it.
    Terminal,
}

/// The text of a plan.
pub(super) fn text(plan: &ImageUpdatePlan, on: TerminalScreen, reader: DiffAudience) -> String {
    let mut out = on.paint(&clean(&headline(plan)), colour(plan));
    out.push('\n');
    let rows: Vec<Vec<TableCell>> = plan
        .changes
        .iter()
        .map(|change| {
            let values = format!("{} → {}", change.from, change.to);
            let [file, object, values] =
                [change.file.as_str(), &change.object, &values].map(TableCell::new);
            vec![file, object, values.vital()]
        })
        .collect();
    out.push_str(&PagedTable::new(&["FILE", "OBJECT", "FROM → TO"], on).page(&rows));
    if let Some(message) = &plan.message {
        out.push_str("message:\n");
        for line in message.lines() {
            out.push_str(&indented(line));
        }
    }
    if let Some(diff) = &plan.diff {
        match reader {
            DiffAudience::Program => out.push_str(diff),
            DiffAudience::Terminal => out.push_str(&shown(diff, on)),
        }
    }
    out
}

fn headline(plan: &ImageUpdatePlan) -> String {
    let ImageUpdatePlan { automation, changes, error, .. } = plan;
    if error.is_some() && changes.is_empty() {
        return format!("{automation}: it is not known what would be committed");
    }
    let mut files: Vec<&str> = changes.iter().map(|it| it.file.as_str()).collect();
    files.dedup();
    match (changes.len(), files.len()) {
        (0, _) => format!("{automation}: nothing would be committed"),
        (1, _) => format!("{automation}: 1 value would be committed"),
        (values, 1) => format!("{automation}: {values} values would be committed, in 1 file"),
        (values, files) => {
            format!("{automation}: {values} values would be committed, in {files} files")
        }
    }
}

fn colour(plan: &ImageUpdatePlan) -> Option<TextColour> {
    Some(match (&plan.error, plan.changes.is_empty()) {
        (Some(_), _) => TextColour::Bad,
        (None, true) => TextColour::Good,
        (None, false) => TextColour::Busy,
    })
}

/// An indented line of a message. Its own indentation stays.
fn indented(line: &str) -> String {
    match line.is_empty() {
        true => "\n".to_owned(),
        false => format!("{MESSAGE_INDENT}{}\n", clean_line(line)),
    }
}

/// A diff in which control characters are escaped.
fn shown(diff: &str, on: TerminalScreen) -> String {
    let line = |line: &str| {
        let colour = match line.as_bytes().first() {
            Some(b'+') => Some(TextColour::Good),
            Some(b'-') => Some(TextColour::Bad),
            _ => None,
        };
        format!("{}\n", on.paint(&clean_line(line), colour))
    };
    diff.lines().map(line).collect()
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::super::update_plan::PlannedImageChange;
    use super::*;

    fn change(file: &str, object: &str, to: &str) -> PlannedImageChange {
        let [file, object, setter, from, to] =
            [file, object, "apps:web", "ghcr.io/acme/web:1.4.2", to].map(str::to_owned);
        PlannedImageChange { file, object, setter, from, to }
    }

    fn plan() -> ImageUpdatePlan {
        ImageUpdatePlan {
            automation: "ImageUpdateAutomation/apps/web".to_owned(),
            changes: vec![
                change("deploy/web.yaml", "Deployment/apps/web", "ghcr.io/acme/web:1.5.0"),
                change("deploy/web.yaml", "", "ghcr.io/acme/web:1.5.0\u{1b}[2J"),
            ],
            message: Some("Update images\n\n  * web".to_owned()),
            diff: Some("--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a: 1\r\n+a: 2\r\n".to_owned()),
            ..ImageUpdatePlan::default()
        }
    }

    #[test]
    fn a_plan_names_values_and_the_message_on_a_screen_of_any_width() {
        let on = TerminalScreen { width: Some(100), is_coloured: false };
        expect![[r#"
            ImageUpdateAutomation/apps/web: 2 values would be committed, in 1 file
            FILE             OBJECT               FROM → TO
            deploy/web.yaml  Deployment/apps/web  ghcr.io/acme/web:1.4.2 → ghcr.io/acme/web:1.5.0
            deploy/web.yaml  -                    ghcr.io/acme/web:1.4.2 → ghcr.io/acme/web:1.5.0\u{1b}[2J
            message:
              Update images

                * web
            --- a/x
            +++ b/x
            @@ -1 +1 @@
            -a: 1
            +a: 2
        "#]]
        .assert_eq(&text(&plan(), on, DiffAudience::Terminal));
        let narrow = TerminalScreen { width: Some(30), is_coloured: false };
        let text = text(&plan(), narrow, DiffAudience::Terminal);
        assert!(text.contains("ghcr.io/acme/web:1.5.0"), "it has a line below");
    }

    #[test]
    fn programs_get_the_diff_byte_for_byte() {
        let elsewhere = TerminalScreen { width: None, is_coloured: false };
        let text = text(&plan(), elsewhere, DiffAudience::Program);
        assert!(text.ends_with(&plan().diff.unwrap()), "{text:?}");
    }

    #[test]
    fn a_terminal_of_unknown_size_is_not_steered_by_a_diff() {
        let diff = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a: 1\n+a: \u{1b}]0;title\u{7}\u{202e}2\n";
        let plan = ImageUpdatePlan { diff: Some(diff.to_owned()), ..plan() };
        let unsized_terminal = TerminalScreen { width: None, is_coloured: false };
        let text = text(&plan, unsized_terminal, DiffAudience::Terminal);
        assert!(text.ends_with("+a: \\u{1b}]0;title\\u{7}\\u{202e}2\n"), "{text:?}");
    }

    #[test]
    fn nothing_and_a_failure_are_not_the_same() {
        let on = TerminalScreen { width: None, is_coloured: false };
        let automation = "ImageUpdateAutomation/apps/web".to_owned();
        let settled = ImageUpdatePlan { automation, ..ImageUpdatePlan::default() };
        let name = "ImageUpdateAutomation/apps/web";
        let text = |plan: &ImageUpdatePlan| text(plan, on, DiffAudience::Program);
        assert_eq!(text(&settled), format!("{name}: nothing would be committed\n"));
        let failed = ImageUpdatePlan { error: Some("no".to_owned()), ..settled };
        let expected = format!("{name}: it is not known what would be committed\n");
        assert_eq!(text(&failed), expected);
    }
}
