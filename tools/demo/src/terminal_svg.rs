//! Draws the output of the demo as an SVG of a terminal, for the README.

use std::fmt::Write as _;

/// The width of a character and the height of a line in pixels, at the font size below.
const CHARACTER_WIDTH: f64 = 7.83;
const LINE_HEIGHT: usize = 18;
const FONT_SIZE: usize = 13;
/// The space around the text, and the height of the bar above it.
const TEXT_MARGIN_PIXELS: usize = 16;
const BAR_HEIGHT: usize = 30;
/// The number of characters after which a line is cut.
const MAX_COLUMNS: usize = 118;

const BACKGROUND: &str = "#1b1f27";
const TEXT: &str = "#d6dae2";
const DIM: &str = "#8089a0";
const GREEN: &str = "#8cc265";

/// Draws the lines. The first characters of a line say its style, because the demo begins each style with its own
/// sign.
pub(super) fn svg(lines: Vec<String>) -> String {
    let lines: Vec<String> = lines.into_iter().map(|line| cut(&line)).collect();
    let columns = lines.iter().map(|line| line.chars().count()).max().unwrap_or_default();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "a picture has some hundreds of pixels"
    )]
    let width = (columns as f64 * CHARACTER_WIDTH).ceil() as usize + 2 * TEXT_MARGIN_PIXELS;
    let height = BAR_HEIGHT + lines.len() * LINE_HEIGHT + 2 * TEXT_MARGIN_PIXELS;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" role=\"img\">\n\
         <title>The output of cargo xtask demo</title>\n\
         <rect width=\"{width}\" height=\"{height}\" rx=\"8\" fill=\"{BACKGROUND}\"/>\n"
    );
    for (place, color) in [(20, "#e06c75"), (40, "#e5c07b"), (60, GREEN)] {
        writeln!(out, "<circle cx=\"{place}\" cy=\"16\" r=\"6\" fill=\"{color}\"/>").ok();
    }
    writeln!(
        out,
        "<g font-family=\"ui-monospace, SFMono-Regular, Menlo, Consolas, monospace\" \
         font-size=\"{FONT_SIZE}\" fill=\"{TEXT}\" xml:space=\"preserve\">"
    )
    .ok();
    for (number, line) in lines.iter().enumerate().filter(|(_, line)| !line.is_empty()) {
        let y = BAR_HEIGHT + TEXT_MARGIN_PIXELS + number * LINE_HEIGHT;
        let style = style(line);
        writeln!(out, "<text x=\"{TEXT_MARGIN_PIXELS}\" y=\"{y}\"{style}>{}</text>", escaped(line))
            .ok();
    }
    out.push_str("</g>\n</svg>\n");
    out
}

fn style(line: &str) -> String {
    match line.trim_start().chars().next() {
        Some('▶') => " font-weight=\"bold\"".to_owned(),
        Some('✔') => format!(" fill=\"{GREEN}\""),
        Some('$') => " fill=\"#61afef\"".to_owned(),
        Some(first) if first.is_ascii_digit() => format!(" fill=\"{DIM}\""),
        _ => String::new(),
    }
}

fn cut(line: &str) -> String {
    if line.chars().count() <= MAX_COLUMNS {
        return line.trim_end().to_owned();
    }
    line.chars().take(MAX_COLUMNS - 1).chain(['…']).collect()
}

/// Escapes a text for XML, and leaves out characters that XML does not allow.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            c if c.is_control() => {}
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_a_text_of_the_picture_and_is_escaped() {
        let lines =
            ["▶ a <title>", "", "  $ kubectl get & wait", &"x".repeat(200)].map(str::to_owned);
        let picture = svg(Vec::from(lines));
        assert_eq!(picture.matches("<text ").count(), 3, "{picture}");
        assert!(picture.contains(" font-weight=\"bold\">▶ a &lt;title&gt;</text>"), "{picture}");
        assert!(picture.contains(">  $ kubectl get &amp; wait</text>"), "{picture}");
        assert!(
            picture.contains(&format!(">{}…</text>", "x".repeat(MAX_COLUMNS - 1))),
            "{picture}"
        );
    }
}
