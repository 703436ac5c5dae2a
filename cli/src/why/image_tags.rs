//! The lines about image tags below the screen of an ImagePolicy.
//!
//! Elsewhere: why each tag is not chosen (`windlass_answers::why`).

use windlass_answers::why::ImageTagReport;

use super::titled;
use windlass_cli_runtime::table::{PagedTable, TableCell, TerminalScreen};

/// The maximum number of listed tags without `--all`.
const MAX_LISTED_TAGS: usize = 20;

/// The lines below the screen of the policy.
pub(super) fn text(report: &ImageTagReport, lists_all: bool, on: TerminalScreen) -> String {
    let count = if lists_all { report.tags.len() } else { MAX_LISTED_TAGS };
    let rows: Vec<Vec<TableCell>> = report
        .tags
        .iter()
        .take(count)
        .map(|it| vec![TableCell::new(&it.tag), TableCell::new(&it.message).vital()])
        .collect();
    let mut out = String::new();
    if !rows.is_empty() {
        out.push('\n');
    }
    out.push_str(&PagedTable::new(&["TAG", "WHY NOT"], on).page(&rows));
    let mut line = |text: &str| out.push_str(&titled("tags", text, on));
    if let Some(more) = report.tags.len().checked_sub(count).filter(|more| *more > 0) {
        line(&format!("{more} more: --all lists them"));
    }
    if report.unlisted > 0 {
        line(&format!(
            "{} more of {} are not in its status, and nothing is said of them: give all tags of the image with --tags FILE",
            report.unlisted, report.image_repository
        ));
    }
    for remark in &report.remarks {
        line(remark);
    }
    out
}

#[cfg(test)]
mod tests {
    use windlass_answers::why::UnchosenTag;

    use super::*;

    #[test]
    fn the_table_has_a_bound_and_says_what_it_leaves_out() {
        let tag = |at: usize| UnchosenTag {
            tag: format!("1.0.{at}"),
            reason: "Lower",
            message: "is lower than 1.1.0".to_owned(),
        };
        let report = ImageTagReport {
            image_repository: "ImageRepository/apps/app".to_owned(),
            chosen: Some("1.1.0".to_owned()),
            tags: (0..30).rev().map(tag).collect(),
            unlisted: 215,
            remarks: Vec::new(),
        };
        let on = TerminalScreen { width: Some(100), is_coloured: false };
        let shown = text(&report, false, on);
        assert!(shown.starts_with("\nTAG     WHY NOT\n1.0.29  is lower than 1.1.0\n"), "{shown}");
        assert!(shown.contains("\ntags     10 more: --all lists them\n"), "{shown}");
        assert!(shown.contains("tags     215 more of ImageRepository/apps/app are not"), "{shown}");
        assert!(shown.lines().all(|line| line.chars().count() <= 100), "{shown}");
        let whole = text(&report, true, on);
        assert!(whole.contains("\n1.0.0   is lower") && !whole.contains("--all"), "{whole}");
    }
}
