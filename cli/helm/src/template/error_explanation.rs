//! Explains a failing template to a user at a terminal: the line with a mark below it, the calling templates, and the missing
//! value.
//!
//! Elsewhere: the error text, which is Helm's (`helm::render`).

use std::io::IsTerminal as _;

use helm::render::TemplateErrorTraceEntry;
use helm::template::Error;

/// The maximum number of templates that are listed.
const MAX_SHOWN_TEMPLATES: usize = 12;

/// The maximum number of characters of a line that are shown.
const MAX_LINE_CHARACTERS: usize = 160;

/// The explanation below an error on a terminal. `None` if the output is not a terminal.
pub(super) fn error(error: &Error) -> Option<String> {
    if !std::io::stderr().is_terminal() {
        return None;
    }
    let is_plain = std::env::var_os("NO_COLOR").is_some_and(|set| !set.is_empty());
    let Error::Render(error) = error else { return None };
    shown(error.trail(), if is_plain { &PLAIN } else { &COLOURED })
}

/// The control sequences before and after a text.
#[derive(Clone, Copy)]
struct TerminalStyle {
    before: &'static str,
    after: &'static str,
}

/// The styles of the parts of an explanation.
struct ExplanationStyle {
    error: TerminalStyle,
    place: TerminalStyle,
    dim: TerminalStyle,
}

const NO_STYLE: TerminalStyle = TerminalStyle { before: "", after: "" };
const PLAIN: ExplanationStyle =
    ExplanationStyle { error: NO_STYLE, place: NO_STYLE, dim: NO_STYLE };
const COLOURED: ExplanationStyle = ExplanationStyle {
    error: TerminalStyle { before: "\x1b[31;1m", after: "\x1b[0m" },
    place: TerminalStyle { before: "\x1b[36m", after: "\x1b[0m" },
    dim: TerminalStyle { before: "\x1b[2m", after: "\x1b[0m" },
};

fn styled(text: &str, TerminalStyle { before, after }: TerminalStyle) -> String {
    format!("{before}{text}{after}")
}

fn shown(trail: &[TemplateErrorTraceEntry], style: &ExplanationStyle) -> Option<String> {
    let last = trail.iter().rev().find(|step| step.text.is_some())?;
    let line = last.text.as_deref()?;
    let number = last.line.to_string();
    let gutter = " ".repeat(number.len());
    let bar = styled("|", style.dim);
    let place = styled(&format!("{}:{}:{}", last.source, last.line, last.column), style.place);
    let mut text = format!("\n{gutter} --> {place}\n");
    let (line, before) = window(line, last.column);
    text.push_str(&format!("{} {bar} {line}\n", styled(&number, style.dim)));
    let mark = "^".repeat(
        last.node.chars().count().clamp(1, MAX_LINE_CHARACTERS.saturating_sub(before).max(1)),
    );
    let mark = styled(&mark, style.error);
    text.push_str(&format!("{gutter} {bar} {}{mark}\n", " ".repeat(before)));
    if let Some(missing) = &last.missing {
        text.push_str(&format!("value: {} is not set\n", styled(missing, style.error)));
    }
    if trail.len() > 1 {
        text.push_str("on the way:\n");
        for step in trail.iter().take(MAX_SHOWN_TEMPLATES) {
            let place = format!("{}:{}:{}", step.source, step.line, step.column);
            text.push_str(&format!("  {} in {}\n", styled(&place, style.place), step.template));
        }
        if trail.len() > MAX_SHOWN_TEMPLATES {
            text.push_str(&format!("  and {} more\n", trail.len() - MAX_SHOWN_TEMPLATES));
        }
    }
    Some(text)
}

/// The part of a line around a column, with spaces instead of tabs. Also returns how many characters of it are before the
/// column.
fn window(line: &str, column: usize) -> (String, usize) {
    let visible = |character: char| if character.is_control() { ' ' } else { character };
    let before =
        line.get(..column).map_or_else(|| line.chars().count(), |text| text.chars().count());
    let skipped = before.saturating_sub(MAX_LINE_CHARACTERS / 2);
    let part = line.chars().skip(skipped).take(MAX_LINE_CHARACTERS).map(visible).collect();
    (part, before - skipped)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(
        template: &str,
        line: usize,
        column: usize,
        text: Option<&str>,
    ) -> TemplateErrorTraceEntry {
        TemplateErrorTraceEntry {
            template: template.to_owned(),
            source: format!("app/templates/{template}"),
            line,
            column,
            node: ".Values.a.b".to_owned(),
            text: text.map(str::to_owned),
            missing: Some(".Values.a".to_owned()),
        }
    }

    #[test]
    fn the_failing_line_has_a_mark_below_the_node_and_the_way_is_listed() {
        let trail = [
            step("a.yaml", 2, 3, Some("k: {{ include }}")),
            step("h", 10, 9, Some("héy: {{ .Values.a.b }}")),
        ];
        expect_test::expect![[r"

               --> app/templates/h:10:9
            10 | héy: {{ .Values.a.b }}
               |         ^^^^^^^^^^^
            value: .Values.a is not set
            on the way:
              app/templates/a.yaml:2:3 in a.yaml
              app/templates/h:10:9 in h
        "]]
        .assert_eq(&shown(&trail, &PLAIN).unwrap());
        assert!(shown(&trail, &COLOURED).unwrap().contains("\x1b[31;1m^^^"));
        assert!(shown(&[step("a", 1, 1, None)], &PLAIN).is_none());
    }
}
