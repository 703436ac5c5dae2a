//! Formats predicted changes for people: a line for each object, its fields below, and a summary.

use plan::FieldChange;
use serde_json::Value;
use windlass_answers::diff::{DiffAction, DiffChange, DiffReport};

use windlass_cli_runtime::table::{TerminalScreen, TextColour, clean, cut};

/// The indentation of fields, in characters.
const FIELD_INDENT_CHARACTERS: usize = 4;

/// The text of the predicted changes.
pub(super) fn text(difference: &DiffReport, on: TerminalScreen) -> String {
    let mut out = String::new();
    for DiffChange { action, object, fields, note } in &difference.changes {
        let (sign, word, colour) = match action {
            DiffAction::Created => ("+", "created", TextColour::Good),
            DiffAction::Changed => ("~", "changed", TextColour::Busy),
            DiffAction::Recreated => ("±", "recreated", TextColour::Bad),
            DiffAction::Removed => ("-", "removed", TextColour::Bad),
        };
        let line = fitting(&clean(&format!("{sign} {word} {}", object.subject())), 0, on);
        out.push_str(&on.paint(&line, Some(colour)));
        out.push('\n');
        fields.fields.iter().for_each(|it| out.push_str(&field(it, on)));
        if fields.omitted_fields > 0 {
            let omitted = fields.omitted_fields;
            out.push_str(&format!("{:FIELD_INDENT_CHARACTERS$}… {omitted} more\n", ""));
        }
        if let Some(note) = note {
            out.push_str(&format!(
                "{:FIELD_INDENT_CHARACTERS$}{}\n",
                "",
                on.wrapped(note, FIELD_INDENT_CHARACTERS)
            ));
        }
    }
    out.push_str(&on.wrapped(&sum(difference), 0));
    out.push('\n');
    out
}

/// The lines of a field. It takes one line if it fits.
fn field(field: &FieldChange, on: TerminalScreen) -> String {
    let value = |value: &Option<Value>| value.as_ref().map_or("(none)".into(), Value::to_string);
    let path = clean(&field.path);
    let old = value(&field.old);
    let new = value(&field.new);
    let old = clean(&old);
    let new = clean(&new);
    let line = format!("{path}: {old} -> {new}");
    let room = on.width.map_or(usize::MAX, |width| width.saturating_sub(FIELD_INDENT_CHARACTERS));
    let lines = match line.chars().count() <= room {
        true => vec![line],
        false => vec![path, format!("  - {old}"), format!("  + {new}")],
    };
    let lines = lines.iter().map(|line| {
        format!("{:FIELD_INDENT_CHARACTERS$}{}\n", "", fitting(line, FIELD_INDENT_CHARACTERS, on))
    });
    lines.collect()
}

fn fitting(line: &str, indent: usize, on: TerminalScreen) -> String {
    on.width.map_or_else(|| line.to_owned(), |width| cut(line, width.saturating_sub(indent)))
}

/// The summary, with the number of objects for each action.
fn sum(difference: &DiffReport) -> String {
    let DiffReport { changes, unchanged, skipped, problems } = difference;
    let of = |action| changes.iter().filter(|it| it.action == action).count();
    let counts = [
        (of(DiffAction::Created), "created"),
        (of(DiffAction::Changed), "changed"),
        (of(DiffAction::Recreated), "recreated"),
        (of(DiffAction::Removed), "removed"),
        (*unchanged, "unchanged"),
        (*skipped, "skipped"),
        (problems.len(), "not compared"),
    ];
    let counts = counts.iter().filter(|(count, _)| *count > 0);
    let counts: Vec<String> = counts.map(|(count, word)| format!("{count} {word}")).collect();
    match counts.is_empty() {
        true => "no objects".to_owned(),
        false => counts.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use objects::{Object, SecretMasking};
    use serde_json::json;

    use super::*;

    fn object(name: &str, value: &str) -> Object {
        Object::new(json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"value": value},
            "metadata": {"name": name, "namespace": "apps", "resourceVersion": "1"}}))
        .unwrap()
    }

    fn difference() -> DiffReport {
        let secrets = SecretMasking::default();
        let long = |with: &str| with.repeat(60);
        let a = object("b", &long("one "));
        let b = object("b", &long("two\u{1b}[2J"));
        let mut many = DiffChange::between(&object("a", "1"), &object("a", "2"), &secrets);
        many.fields.omitted_fields = 70;
        let note = Some("an immutable field changes: the object is deleted and created again");
        let changes = vec![
            DiffChange::of(DiffAction::Created, &object("new", "")),
            many,
            DiffChange::between(&a, &b, &secrets),
            DiffChange::of(DiffAction::Recreated, &object("c", "")).noted(note),
            DiffChange::of(DiffAction::Removed, &object("gone", "")),
        ];
        let problems = vec!["x".to_owned()];
        DiffReport { changes, unchanged: 3, skipped: 1, problems }
    }

    #[test]
    fn lines_are_no_wider_than_the_terminal() {
        let on = TerminalScreen { width: Some(80), is_coloured: false };
        let text = text(&difference(), on);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.chars().all(|it| it == '\n' || !it.is_control()), "{text:?}");
        expect![[r#"
            + created ConfigMap/apps/new
            ~ changed ConfigMap/apps/a
                /data/value: "1" -> "2"
                … 70 more
            ~ changed ConfigMap/apps/b
                /data/value
                  - "one one one one one one one one one one one one one one one one one on…
                  + "two\u001b[2Jtwo\u001b[2Jtwo\u001b[2Jtwo\u001b[2Jtwo\u001b[2Jtwo\u001b[…
            ± recreated ConfigMap/apps/c
                an immutable field changes: the object is deleted and created again
            - removed ConfigMap/apps/gone
            1 created, 2 changed, 1 recreated, 1 removed, 3 unchanged, 1 skipped, 1 not
            compared
        "#]]
        .assert_eq(&text);
    }

    #[test]
    fn the_report_fits_terminals_of_both_widths() {
        let text = crate::golden_file_comparison::at_both_widths(|on| text(&difference(), on));
        expect_test::expect_file!["../goldens/diff.txt"].assert_eq(&text);
    }

    #[test]
    fn elsewhere_lines_are_whole_and_colour_says_nothing_by_itself() {
        let plain = text(&difference(), TerminalScreen { width: None, is_coloured: false });
        assert!(plain.contains(&format!("/data/value: \"{}", "one ".repeat(60))), "{plain}");
        let coloured = text(&difference(), TerminalScreen { width: None, is_coloured: true });
        let without = ["32", "33", "31", "0"]
            .iter()
            .fold(coloured.clone(), |text, code| text.replace(&format!("\u{1b}[{code}m"), ""));
        assert_eq!(without, plain);
        assert_ne!(coloured, plain);
        assert_eq!(
            text(&DiffReport::default(), TerminalScreen { width: None, is_coloured: false }),
            "no objects\n"
        );
    }
}
