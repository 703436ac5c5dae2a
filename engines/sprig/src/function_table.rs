//! The table of functions.

use golang::GoRuntimeValue;
use golang::value::{FunctionSignature, GoType};
use gotemplate::{FunctionCallContext, TemplateFunctionError, TemplateFunctions};

use crate::arguments::TEXT_OVERHEAD_BYTES;
use crate::function_signature;
use crate::functions::{ALL, from_json};
use crate::template_environment::{
    FunctionEnvironment, NOT_ALONE, RandomBytesEnvironment, TemplateEnvironment,
};

/// A function that templates can call, with its name, its signature and its implementation.
pub(crate) struct SprigFunctionEntry {
    /// The name of the function in templates.
    pub(crate) name: &'static str,
    /// The parameters and result, in Go's notation. A second result `error` has no effect here, because every function may
    /// fail.
    pub(crate) signature: &'static str,
    /// The implementation of the function.
    pub(crate) body: SprigFunctionBody,
}

/// The implementation of a function. Its arguments always match the signature.
pub(crate) enum SprigFunctionBody {
    /// A function of its arguments alone. Its string arguments count as read, and a resulting text or slice counts as made, of
    /// about the same length. A function that reads or makes more has another variant.
    Plain(fn(&[GoRuntimeValue]) -> Result<GoRuntimeValue, TemplateFunctionError>),
    /// A function that counts its work itself, because it makes long strings or takes long.
    Bounded(
        fn(
            &mut FunctionCallContext<'_>,
            &[GoRuntimeValue],
        ) -> Result<GoRuntimeValue, TemplateFunctionError>,
    ),
    /// A function that uses the environment of the template.
    Impure(
        fn(
            &dyn TemplateEnvironment,
            &mut FunctionCallContext<'_>,
            &[GoRuntimeValue],
        ) -> Result<GoRuntimeValue, TemplateFunctionError>,
    ),
    /// A function that uses the environment of the template and its random numbers.
    Random(
        fn(
            RandomBytesEnvironment<'_>,
            &mut FunctionCallContext<'_>,
            &[GoRuntimeValue],
        ) -> Result<GoRuntimeValue, TemplateFunctionError>,
    ),
}

/// A function that needs its arguments alone.
pub(crate) const fn plain(
    name: &'static str,
    signature: &'static str,
    body: fn(&[GoRuntimeValue]) -> Result<GoRuntimeValue, TemplateFunctionError>,
) -> SprigFunctionEntry {
    SprigFunctionEntry { name, signature, body: SprigFunctionBody::Plain(body) }
}

/// An entry for a function that counts its work itself.
pub(crate) const fn bounded(
    name: &'static str,
    signature: &'static str,
    body: fn(
        &mut FunctionCallContext<'_>,
        &[GoRuntimeValue],
    ) -> Result<GoRuntimeValue, TemplateFunctionError>,
) -> SprigFunctionEntry {
    SprigFunctionEntry { name, signature, body: SprigFunctionBody::Bounded(body) }
}

/// A function that reads the environment of the template.
pub(crate) const fn impure(
    name: &'static str,
    signature: &'static str,
    body: fn(
        &dyn TemplateEnvironment,
        &mut FunctionCallContext<'_>,
        &[GoRuntimeValue],
    ) -> Result<GoRuntimeValue, TemplateFunctionError>,
) -> SprigFunctionEntry {
    SprigFunctionEntry { name, signature, body: SprigFunctionBody::Impure(body) }
}

/// A function that draws random bytes from the environment of the template.
pub(crate) const fn random(
    name: &'static str,
    signature: &'static str,
    body: fn(
        RandomBytesEnvironment<'_>,
        &mut FunctionCallContext<'_>,
        &[GoRuntimeValue],
    ) -> Result<GoRuntimeValue, TemplateFunctionError>,
) -> SprigFunctionEntry {
    SprigFunctionEntry { name, signature, body: SprigFunctionBody::Random(body) }
}

/// Functions that Helm added and sprig does not have.
const OF_HELM: [&str; 20] = [
    "durationDays",
    "durationHours",
    "durationMicroseconds",
    "durationMilliseconds",
    "durationMinutes",
    "durationNanoseconds",
    "durationRoundTo",
    "durationSeconds",
    "durationTruncateTo",
    "durationWeeks",
    "fromJsonArray",
    "fromToml",
    "fromYaml",
    "fromYamlArray",
    "mustToDuration",
    "mustToToml",
    "mustToYaml",
    "toToml",
    "toYaml",
    "toYamlPretty",
];

/// Functions that sprig leaves out of its hermetic set, in which the same input must always give the same result.
/// Parity(sprig): others, such as `ago` and `genCA`, depend on the time or on randomness too, and stay.
const NOT_HERMETIC: [&str; 15] = [
    "date",
    "dateInZone",
    "dateModify",
    "date_in_zone",
    "date_modify",
    "getHostByName",
    "htmlDate",
    "htmlDateInZone",
    "now",
    "randAlpha",
    "randAlphaNum",
    "randAscii",
    "randBytes",
    "randNumeric",
    "uuidv4",
];

/// The functions of sprig's `HermeticTxtFuncMap`, without Helm's functions. `H` is the host type of the runs.
pub fn hermetic_functions<H: TemplateEnvironment + 'static>() -> TemplateFunctions {
    let mut functions =
        functions_but::<H>(|name| OF_HELM.contains(&name) || NOT_HERMETIC.contains(&name));
    let signature = FunctionSignature::new([GoType::String], GoType::Any);
    functions.insert("fromJson", signature, from_json);
    functions
}

/// All functions. `H` is the host type of the runs.
///
/// # Panics
/// Never: a test parses the signatures of all entries.
pub fn functions<H: TemplateEnvironment + 'static>() -> TemplateFunctions {
    functions_but::<H>(|_| false)
}

fn functions_but<H: TemplateEnvironment + 'static>(
    is_absent: impl Fn(&str) -> bool,
) -> TemplateFunctions {
    let mut functions = TemplateFunctions::default();
    for entry in ALL.iter().copied().flatten().filter(|entry| !is_absent(entry.name)) {
        let Some(signature) = function_signature::parse(entry.signature) else {
            debug_assert!(false, "`{}` has no signature: {}", entry.name, entry.signature);
            continue;
        };
        match entry.body {
            SprigFunctionBody::Plain(body) => {
                insert_plain(&mut functions, entry.name, signature, body);
            }
            SprigFunctionBody::Bounded(body) => functions.insert(entry.name, signature, body),
            SprigFunctionBody::Impure(body) => {
                functions.insert(entry.name, signature, move |call, args| {
                    let template_environment =
                        call.host::<H>().ok_or("this run knows nothing of the world")?;
                    body(
                        &FunctionEnvironment { template_environment, function: entry.name },
                        call,
                        args,
                    )
                });
            }
            SprigFunctionBody::Random(body) => {
                functions.insert(entry.name, signature, move |call, args| {
                    let template_environment =
                        call.host::<H>().ok_or("this run knows nothing of the world")?;
                    let seen = FunctionEnvironment { template_environment, function: entry.name };
                    let draws = RandomBytesEnvironment::of(&seen).ok_or(NOT_ALONE)?;
                    body(draws, call, args)
                });
            }
        }
    }
    functions
}

/// The length from which the cost of reading a text exceeds that of a function call.
const MIN_LONG_TEXT_BYTES: usize = 256;

fn insert_plain(
    functions: &mut TemplateFunctions,
    name: &str,
    signature: FunctionSignature,
    body: fn(&[GoRuntimeValue]) -> Result<GoRuntimeValue, TemplateFunctionError>,
) {
    // A result of type `interface {}` is an existing value.
    let makes = matches!(signature.result, GoType::String | GoType::Slice(_));
    functions.insert(name, signature, move |call, args| {
        let given = args.iter().filter_map(GoRuntimeValue::bytes).map(|text| text.len()).sum();
        if given >= MIN_LONG_TEXT_BYTES {
            call.work(given / 4)?;
            call.has_room(given)?;
        }
        let value = body(args)?;
        match &value {
            GoRuntimeValue::String(text) if makes => {
                call.produce(text.len() + TEXT_OVERHEAD_BYTES)?;
            }
            GoRuntimeValue::List(list) if makes => crate::arguments::copied(call, list.len())?,
            _ => {}
        }
        Ok(value)
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_that_are_not_hermetic_are_in_the_full_set_only() {
        let all = functions::<crate::testing::FixedTimeEnvironment>();
        let hermetic = hermetic_functions::<crate::testing::FixedTimeEnvironment>();
        let absent: Vec<&str> = OF_HELM.iter().chain(&NOT_HERMETIC).copied().collect();
        assert!(absent.iter().all(|name| all.signature(name).is_some()));
        assert!(absent.iter().all(|name| hermetic.signature(name).is_none()));
        assert_eq!(all.names().count(), hermetic.names().count() + absent.len());
    }

    #[test]
    fn every_signature_is_what_it_says_and_no_name_is_there_twice() {
        let mut names = std::collections::BTreeSet::new();
        for entry in ALL.iter().copied().flatten() {
            let parsed = function_signature::parse(entry.signature).expect(entry.name);
            let shown = parsed.to_string();
            let said = entry
                .signature
                .strip_suffix(", error)")
                .map_or_else(|| entry.signature.to_owned(), |head| head.replacen(") (", ") ", 1));
            assert_eq!(shown, said, "{}", entry.name);
            assert!(names.insert(entry.name), "{} is there twice", entry.name);
        }
    }
}
