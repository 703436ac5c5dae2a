//! Formats the output of commands for comparison with the files in `goldens/`.
//!
//! Elsewhere: tables (`windlass_cli_runtime::table`).

use windlass_cli_runtime::table::TerminalScreen;

/// The output for terminals with 80 and 140 columns, one after the other. Checks that no line is wider.
pub(crate) fn at_both_widths(text: impl Fn(TerminalScreen) -> String) -> String {
    let at = |width| {
        let text = text(TerminalScreen { width: Some(width), is_coloured: false });
        assert!(text.lines().all(|line| line.chars().count() <= width), "{width}: {text}");
        format!("{width} columns\n\n{text}\n")
    };
    [80, 140].map(at).concat()
}
