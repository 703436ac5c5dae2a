//! The problems of values, in the words of Helm's library.
//!
//! Numbers have English thousands separators, as that library writes them.

use boon::{ErrorKind, InstanceLocation, InstanceToken, ValidationError};
use golang::regexp::GoRegexp;
use golang::strconv::{FloatTextFormat, QuotingStyle, format_float, quote};
use serde_json::{Number, Value as Json};

use super::pattern::ReplacedSchemaPatterns;

/// An error to report, with the schema from which its own schema was reached.
struct SchemaErrorReport<'a> {
    error: &'a ValidationError<'a, 'a>,
    indent: usize,
    /// The address of the schema that was being applied.
    from: String,
    /// How many parts of the error's path in the values belong to that schema.
    base: usize,
    /// Whether the parent error already names the first keyword on the path.
    is_in_keyword: bool,
}

/// An error and its causes as text, one line each.
///
/// `is_of_schema` says that the schema itself was checked.
pub(super) fn tree<'a>(
    error: &'a ValidationError<'a, 'a>,
    patterns: &ReplacedSchemaPatterns,
    is_of_schema: bool,
) -> String {
    let mut text = String::new();
    let from = error.schema_url.to_owned();
    let mut pending =
        vec![SchemaErrorReport { error, indent: 0, from, base: 0, is_in_keyword: false }];
    while let Some(SchemaErrorReport { error, mut indent, from, base, is_in_keyword }) =
        pending.pop()
    {
        let place = &error.instance_location;
        let mut line = |indent: usize, length: usize, problem: &str| {
            text.push('\n');
            text.push_str(&"  ".repeat(indent - 1));
            let place = quoted(&pointer(place, length, patterns, is_of_schema));
            text.push_str(&format!("- at {place}: {problem}"));
        };
        // If a keyword has one error, the crate reports only that error, while Go reports the keyword, too.
        let way = steps(error.schema_url.strip_prefix(from.as_str()).unwrap_or_default());
        for (keyword, length) in keywords(&way).skip(usize::from(is_in_keyword)) {
            line(indent, base + length, keyword);
            indent += 1;
        }
        let (mut from, mut base) = match &error.kind {
            ErrorKind::Reference { url, .. } => ((*url).to_owned(), place.tokens.len()),
            ErrorKind::PropertyName { .. } => (format!("{}/propertyNames", error.schema_url), 0),
            _ => (error.schema_url.to_owned(), place.tokens.len()),
        };
        let lost = lost_group(error, &from);
        let is_step = matches!(error.kind, ErrorKind::Reference { .. })
            && (error.causes.len() == 1 || lost.is_some());
        if let ErrorKind::Schema { .. } = error.kind {
            text.push_str(&problem(&error.kind, patterns, is_of_schema));
        } else if !is_step {
            line(indent, place.tokens.len(), &problem(&error.kind, patterns, is_of_schema));
        }
        let is_in_keyword =
            matches!(error.kind, ErrorKind::AllOf | ErrorKind::AnyOf | ErrorKind::OneOf(None));
        let mut indent = if is_step { indent } else { indent + 1 };
        if let (Some(way), Some(first)) = (lost, error.causes.first()) {
            let place = &first.instance_location;
            let mut line = |length: usize, problem: &str| {
                text.push('\n');
                text.push_str(&"  ".repeat(indent - 1));
                let place = quoted(&pointer(place, length, patterns, is_of_schema));
                text.push_str(&format!("- at {place}: {problem}"));
                indent += 1;
            };
            for (keyword, length) in keywords(&way) {
                line(base + length, keyword);
            }
            from.extend(way.iter().map(|step| step.text));
            base += way.iter().filter(|step| step.goes_in).count();
            line(base, "validation failed");
        }
        pending.extend(in_order(&error.causes).into_iter().rev().map(|error| SchemaErrorReport {
            error,
            indent,
            from: from.clone(),
            base,
            is_in_keyword,
        }));
    }
    text
}

/// A step from a schema to a schema in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SchemaStep<'a> {
    /// The step as addresses write it, such as `/allOf/0`.
    text: &'a str,
    /// Go's message about the keyword, if the keyword applies several schemas to one value.
    problem: Option<&'static str>,
    /// Whether the step leads to a property or an item of the value.
    goes_in: bool,
}

/// The steps of a path through a schema.
fn steps(way: &str) -> Vec<SchemaStep<'_>> {
    let mut steps = Vec::new();
    let mut rest = &way[way.find('/').unwrap_or(way.len())..];
    while !rest.is_empty() {
        let end = |from: usize| rest[from..].find('/').map_or(rest.len(), |at| from + at);
        let first = end(1);
        let second = if first < rest.len() { end(first + 1) } else { first };
        let is_number =
            second > first + 1 && rest[first + 1..second].bytes().all(|byte| byte.is_ascii_digit());
        let (length, problem, goes_in) = match &rest[1..first] {
            "allOf" => (second, Some("'allOf' failed"), false),
            "anyOf" => (second, Some("'anyOf' failed"), false),
            "oneOf" => (second, Some("'oneOf' failed, none matched"), false),
            "properties" | "patternProperties" | "prefixItems" => (second, None, true),
            "dependentSchemas" | "dependencies" | "$defs" | "definitions" => (second, None, false),
            "items" if is_number => (second, None, true),
            "items"
            | "additionalItems"
            | "unevaluatedItems"
            | "contains"
            | "additionalProperties"
            | "unevaluatedProperties" => (first, None, true),
            _ => (first, None, false),
        };
        steps.push(SchemaStep { text: &rest[..length], problem, goes_in });
        rest = &rest[length..];
    }
    steps
}

/// The keywords with several schemas on a path. Each has Go's message, and the number of preceding parts of the value's
/// path.
fn keywords<'a>(way: &'a [SchemaStep<'a>]) -> impl Iterator<Item = (&'static str, usize)> + 'a {
    way.iter().enumerate().filter_map(|(at, step)| {
        let length = way[..at].iter().filter(|step| step.goes_in).count();
        step.problem.map(|problem| (problem, length))
    })
}

/// The path to a group of errors that the crate reports as errors of a whole schema, because the group was the only
/// error of a keyword. `None` if the error is no such group.
fn lost_group<'a>(error: &'a ValidationError<'_, '_>, from: &str) -> Option<Vec<SchemaStep<'a>>> {
    let is_whole = matches!(error.kind, ErrorKind::Schema { .. } | ErrorKind::Reference { .. });
    if !is_whole || error.causes.len() < 2 {
        return None;
    }
    let ways = error.causes.iter().map(|cause| cause.schema_url.strip_prefix(from).map(steps));
    let mut common: Option<Vec<SchemaStep<'a>>> = None;
    for way in ways {
        let way = way?;
        common = Some(match common {
            None => way,
            Some(common) => {
                let same = common.into_iter().zip(way).take_while(|(a, b)| a == b);
                same.map(|(step, _)| step).collect()
            }
        });
    }
    let mut way = common?;
    // Errors of several properties or items belong to none of them, even if all have the same schema.
    let places: Vec<_> = error.causes.iter().map(|it| shown_place(it)).collect();
    let same = |depth: usize| places.iter().all(|place| place.get(depth) == places[0].get(depth));
    let mut depth =
        if from.ends_with("/propertyNames") { 0 } else { error.instance_location.tokens.len() };
    let end = way.iter().position(|step| {
        let leaves = step.goes_in && !same(depth);
        depth += usize::from(step.goes_in);
        leaves
    });
    way.truncate(end.unwrap_or(way.len()));
    Some(way).filter(|way| way.iter().any(|step| step.problem.is_some()))
}

/// Sorts errors as they are reported. For `unevaluated…` keywords, the crate has no order, so they are sorted by key.
fn in_order<'a>(errors: &'a [ValidationError<'a, 'a>]) -> Vec<&'a ValidationError<'a, 'a>> {
    let mut ordered: Vec<_> = errors.iter().collect();
    let is_unordered = |error: &ValidationError<'_, '_>| error.schema_url.contains("/unevaluated");
    let places: Vec<_> = (0..errors.len()).filter(|at| is_unordered(&errors[*at])).collect();
    let mut sorted: Vec<_> = places.iter().map(|at| &errors[*at]).collect();
    sorted.sort_by_cached_key(|error| shown_place(error));
    for (at, error) in places.into_iter().zip(sorted) {
        ordered[at] = error;
    }
    ordered
}

/// The parts of an error's path in the values.
fn shown_place(error: &ValidationError<'_, '_>) -> Vec<String> {
    let shown = |token: &InstanceToken<'_>| match token {
        InstanceToken::Prop(name) => name.to_string(),
        InstanceToken::Item(index) => format!("{index:09}"),
    };
    error.instance_location.tokens.iter().map(shown).collect()
}

/// A text as Go's `%q` prints it.
pub(super) fn go_quoted(text: &str) -> String {
    String::from_utf8_lossy(&quote(text.as_bytes(), QuotingStyle::Printable)).into_owned()
}

/// Puts a text in single quotes, as the library prints it.
fn quoted(text: &str) -> String {
    let quoted = go_quoted(text).replace("\\\"", "\"").replace('\'', "\\'");
    format!("'{}'", &quoted[1..quoted.len() - 1])
}

fn pointer(
    place: &InstanceLocation<'_>,
    length: usize,
    patterns: &ReplacedSchemaPatterns,
    is_of_schema: bool,
) -> String {
    let mut pointer = String::new();
    let mut is_pattern = false;
    for token in place.tokens.iter().take(length) {
        pointer.push('/');
        match token {
            InstanceToken::Prop(name) => {
                let name = if is_pattern { patterns.original(name) } else { name };
                pointer.push_str(&name.replace('~', "~0").replace('/', "~1"));
                is_pattern = is_of_schema && name == "patternProperties";
            }
            InstanceToken::Item(index) => pointer.push_str(&index.to_string()),
        }
    }
    pointer
}

fn problem(
    kind: &ErrorKind<'_, '_>,
    patterns: &ReplacedSchemaPatterns,
    is_of_schema: bool,
) -> String {
    match kind {
        ErrorKind::Schema { url } => format!("jsonschema validation failed with {}", quoted(url)),
        ErrorKind::Group | ErrorKind::Reference { .. } => "validation failed".to_owned(),
        ErrorKind::ContentSchema => "'contentSchema' failed".to_owned(),
        ErrorKind::PropertyName { prop } => {
            let name = if is_of_schema { patterns.original(prop) } else { prop };
            format!("invalid propertyName {}", quoted(name))
        }
        ErrorKind::RefCycle { url, kw_loc1, kw_loc2 } => {
            let url = go_quoted(url);
            format!("both {kw_loc1} and {kw_loc2} resolve to {url} causing reference cycle")
        }
        ErrorKind::FalseSchema => "false schema".to_owned(),
        ErrorKind::Type { got, want } => {
            let want: Vec<_> = want.iter().map(|kind| kind.to_string()).collect();
            format!("got {got}, want {}", want.join(" or "))
        }
        ErrorKind::Enum { want } => of_enum(want),
        ErrorKind::Const { want: Json::Array(_) | Json::Object(_) } => "'const' failed".to_owned(),
        ErrorKind::Const { want } => format!("value must be {}", shown(want)),
        ErrorKind::Format { got, want, err } => {
            of_format(got, want, &err.to_string(), is_of_schema.then_some(patterns))
        }
        ErrorKind::Required { want } if want.len() == 1 => {
            format!("missing property {}", quoted(want[0]))
        }
        ErrorKind::Required { want } => format!("missing properties {}", joined(want)),
        ErrorKind::Dependency { prop, missing }
        | ErrorKind::DependentRequired { prop, missing } => {
            format!("properties {} required, if {} exists", joined(missing), quoted(prop))
        }
        ErrorKind::AdditionalProperties { got } => {
            format!("additional properties {} not allowed", joined(got))
        }
        ErrorKind::Pattern { got, want } => {
            let want = quoted(patterns.original(want));
            format!("{} does not match pattern {want}", quoted(got))
        }
        ErrorKind::ContentEncoding { want, err } => {
            format!("value is not {} encoded: {err}", quoted(want))
        }
        ErrorKind::ContentMediaType { want, err, .. } => {
            format!("value if not of mediatype {}: {err}", quoted(want))
        }
        ErrorKind::Not => "'not' failed".to_owned(),
        ErrorKind::AllOf => "'allOf' failed".to_owned(),
        ErrorKind::AnyOf => "'anyOf' failed".to_owned(),
        ErrorKind::OneOf(None) => "'oneOf' failed, none matched".to_owned(),
        ErrorKind::OneOf(Some((first, second))) => {
            let first = count(*first);
            let second = count(*second);
            format!("'oneOf' failed, subschemas {first}, {second} matched")
        }
        numbers => of_numbers(numbers),
    }
}

fn of_numbers(kind: &ErrorKind<'_, '_>) -> String {
    let counts = |keyword: &str, got: usize, want: usize| {
        format!("{keyword}: got {}, want {}", count(got), count(want))
    };
    let numbers = |keyword: &str, got: &Number, want: &Number| {
        format!("{keyword}: got {}, want {}", number(got), number(want))
    };
    match kind {
        ErrorKind::MinProperties { got, want } => counts("minProperties", *got, *want),
        ErrorKind::MaxProperties { got, want } => counts("maxProperties", *got, *want),
        ErrorKind::MinItems { got, want } => counts("minItems", *got, *want),
        ErrorKind::MaxItems { got, want } => counts("maxItems", *got, *want),
        ErrorKind::MinLength { got, want } => counts("minLength", *got, *want),
        ErrorKind::MaxLength { got, want } => counts("maxLength", *got, *want),
        ErrorKind::Minimum { got, want } => numbers("minimum", got, want),
        ErrorKind::Maximum { got, want } => numbers("maximum", got, want),
        ErrorKind::ExclusiveMinimum { got, want } => numbers("exclusiveMinimum", got, want),
        ErrorKind::ExclusiveMaximum { got, want } => numbers("exclusiveMaximum", got, want),
        ErrorKind::MultipleOf { got, want } => numbers("multipleOf", got, want),
        ErrorKind::Contains => "no items match contains schema".to_owned(),
        ErrorKind::MinContains { got, want } if got.is_empty() => {
            let want = count(*want);
            format!("min {want} items required to match contains schema, but none matched")
        }
        ErrorKind::MinContains { got, want } => of_contains("min", got, *want),
        ErrorKind::MaxContains { got, want } => of_contains("max", got, *want),
        ErrorKind::UniqueItems { got: [first, second] } => {
            format!("items at {} and {} are equal", count(*first), count(*second))
        }
        ErrorKind::AdditionalItems { got } => {
            format!("last {} additionalItem(s) not allowed", count(*got))
        }
        other => other.to_string(),
    }
}

fn of_contains(bound: &str, got: &[usize], want: usize) -> String {
    let places: Vec<_> = got.iter().map(usize::to_string).collect();
    let want = count(want);
    let found = count(got.len());
    let places = places.join(" ");
    format!(
        "{bound} {want} items required to match contains schema, but matched {found} items at {places}"
    )
}

fn of_enum(want: &[Json]) -> String {
    if want.iter().any(|item| item.is_array() || item.is_object()) {
        return "'enum' failed".to_owned();
    }
    let shown: Vec<_> = want.iter().map(shown).collect();
    let one_of = if shown.len() == 1 { "" } else { "one of " };
    format!("value must be {one_of}{}", shown.join(", "))
}

fn of_format(
    got: &Json,
    want: &str,
    problem: &str,
    patterns: Option<&ReplacedSchemaPatterns>,
) -> String {
    match (got, patterns) {
        (Json::String(text), patterns) if want == "regex" => {
            let pattern = patterns.map_or(text.as_str(), |patterns| patterns.original(text));
            let fault = GoRegexp::new(pattern).err().map(|fault| fault.to_string());
            let fault = fault.unwrap_or_else(|| problem.to_owned());
            format!("{} is not valid regex: {fault}", quoted(pattern))
        }
        (got, _) => format!("{} is not valid {want}: {problem}", shown(got)),
    }
}

fn joined(names: &[impl AsRef<str>]) -> String {
    let quoted: Vec<_> = names.iter().map(|name| quoted(name.as_ref())).collect();
    quoted.join(", ")
}

/// A value as the library shows it. Differs(helm 4): a number is written as short as possible, not as in the schema.
fn shown(value: &Json) -> String {
    match value {
        Json::Null => "<nil>".to_owned(),
        Json::String(text) => quoted(text),
        Json::Array(_) | Json::Object(_) => "value".to_owned(),
        other => other.to_string(),
    }
}

/// A whole number with thousands separators.
fn count(number: usize) -> String {
    grouped(&number.to_string())
}

/// A number with thousands separators. A number from a million on, or a very small one, is written as a power of ten.
fn number(number: &Number) -> String {
    let float = number.as_f64().unwrap_or_default();
    let digits = format_float(float, FloatTextFormat::Exponent, None);
    let (mantissa, exponent) = digits.split_once('e').unwrap_or((&digits, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    // A number of up to 21 digits that are all known is never short for this rule: it examines six.
    if float == 0.0 {
        return "0".to_owned();
    }
    if (-4..6).contains(&exponent) {
        let plain = format_float(float, FloatTextFormat::Fixed, None);
        let (whole, fraction) = plain.split_once('.').map_or((plain.as_str(), ""), |it| it);
        let (sign, whole) = whole.strip_prefix('-').map_or(("", whole), |whole| ("-", whole));
        let point = if fraction.is_empty() { "" } else { "." };
        return format!("{sign}{}{point}{fraction}", grouped(whole));
    }
    let raised = |digit: char| match digit {
        '1' => '¹',
        '2' => '²',
        '3' => '³',
        '0' => '⁰',
        other => char::from_u32('⁰' as u32 + other.to_digit(10).unwrap_or_default()).unwrap_or('⁰'),
    };
    let sign = if exponent < 0 { "⁻" } else { "" };
    let power: String = format!("{:02}", exponent.abs()).chars().map(raised).collect();
    format!("{mantissa}×10{sign}{power}")
}

fn grouped(digits: &str) -> String {
    let mut grouped = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}
