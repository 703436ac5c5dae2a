//! Numbers in a row.

use golang::GoRuntimeValue;
use golang::value::{GoSlice, GoType};
use gotemplate::{FunctionCallContext, TemplateFunctionError};

use crate::arguments::{SprigResult, int, made};
use crate::function_table::{SprigFunctionEntry, bounded};

pub(crate) const ENTRIES: &[SprigFunctionEntry] = &[
    bounded("seq", "func(...int) string", seq),
    bounded("until", "func(int) []int", until),
    bounded("untilStep", "func(int, int, int) []int", until_step),
];

/// A sequence of numbers as a text, including the last one. With one argument it begins at 1. With three, the middle one is the
/// step.
fn seq(call: &mut FunctionCallContext<'_>, args: &[GoRuntimeValue]) -> SprigResult {
    let (start, step, end) = match args {
        [_] => (1, None, int(args, 0)),
        [_, _] => (int(args, 0), None, int(args, 1)),
        [_, _, _] => (int(args, 0), Some(int(args, 1)), int(args, 2)),
        _ => return Ok(GoRuntimeValue::from("")),
    };
    let direction = if end < start { -1 } else { 1 };
    if end < start && step.is_some_and(|step| step > 0) {
        return Ok(GoRuntimeValue::from(""));
    }
    let row = row(call, start, end.wrapping_add(direction), step.unwrap_or(direction))?;
    let mut text = String::new();
    for number in row {
        let number = number.to_string();
        call.produce(number.len() + 1)?;
        if !text.is_empty() {
            text.push(' ');
        }
        text.push_str(&number);
    }
    Ok(GoRuntimeValue::from(text))
}

/// The numbers from 0 up or down to the argument, without the argument itself.
fn until(call: &mut FunctionCallContext<'_>, args: &[GoRuntimeValue]) -> SprigResult {
    let end = int(args, 0);
    ints(call, 0, end, if end < 0 { -1 } else { 1 })
}

/// Numbers from the first to the second, which is left out, by steps.
fn until_step(call: &mut FunctionCallContext<'_>, args: &[GoRuntimeValue]) -> SprigResult {
    ints(call, int(args, 0), int(args, 1), int(args, 2))
}

fn ints(call: &mut FunctionCallContext<'_>, start: i64, end: i64, step: i64) -> SprigResult {
    let numbers = row(call, start, end, step)?;
    Ok(GoRuntimeValue::List(GoSlice::new(GoType::INT, numbers.map(GoRuntimeValue::int).collect())))
}

/// The numbers of a sequence; empty if the step leads away from the end.
///
/// Differs(helm 4): they end where `int` does, instead of wrapping around.
fn row(
    call: &mut FunctionCallContext<'_>,
    start: i64,
    end: i64,
    step: i64,
) -> Result<impl Iterator<Item = i64> + use<>, TemplateFunctionError> {
    let leads_there = if end < start { step < 0 } else { step > 0 };
    let distance = end.abs_diff(start);
    let count = if leads_there { distance.div_ceil(step.unsigned_abs()) } else { 0 };
    made(call, usize::try_from(count).unwrap_or(usize::MAX))?;
    let after = move |number: &i64| number.checked_add(step);
    let row = std::iter::successors(Some(start), after);
    Ok(row.take(usize::try_from(count).unwrap_or(usize::MAX)))
}

#[cfg(test)]
mod tests {
    use crate::testing::check;

    #[test]
    fn numbers_come_in_a_row() {
        check(&[
            (r#"{{ until 3 }} {{ until -2 }} {{ until 0 }}"#, "[0 1 2] [0 -1] []"),
            (
                r#"{{ untilStep 0 10 3 }} {{ untilStep 0 3 -1 }} {{ untilStep 3 0 -2 }}"#,
                "[0 3 6 9] [] [3 1]",
            ),
            (
                r#"{{ seq 5 }}|{{ seq -1 }}|{{ seq 0 2 4 }}|{{ seq 3 1 }}"#,
                "1 2 3 4 5|1 0 -1|0 2 4|3 2 1",
            ),
            (r#"{{ seq }}|{{ seq 1 0 5 }}|{{ seq 5 1 0 }}"#, "||"),
        ]);
    }

    #[test]
    fn no_row_exhausts_the_process() {
        check(&[
            (
                r#"{{ until 1000000000 }}"#,
                "error: error calling until: the output is longer than 268435456 bytes",
            ),
            (
                r#"{{ seq -9223372036854775807 9223372036854775806 }}"#,
                "error: error calling seq: the output is longer than 268435456 bytes",
            ),
        ]);
    }
}
