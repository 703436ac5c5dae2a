//! What functions use up is counted: all functions of templates, with arguments that charts do not use.

use std::sync::Arc;

use golang::GoRuntimeValue;
use golang::time::{GoTime, GoTimeZone};
use golang::value::{GoMap, GoSlice, GoType};
use golang::work_meter::StopSignal;
use gotemplate::{
    TemplateBudget, TemplateFunctionError, TemplateLimitError, TemplateLimits, TemplateSet,
};
use serde_json::{Value as Json, json};

use super::super::render_function_context::RenderFunctionContext;
use super::super::{ChartTemplates, RenderInput, RenderMode, functions};
use super::{chart, env, on_stack, release, render};
use crate::RenderEnvironment;
use crate::chart::{Chart, ChartFile};
use crate::render_environment::{ClusterLookup, LookupQuery};

/// Go's own, with how many arguments they are given here.
const OF_GO: [(&str, usize); 17] = [
    ("and", 2),
    ("eq", 2),
    ("ge", 2),
    ("gt", 2),
    ("html", 1),
    ("index", 2),
    ("js", 1),
    ("le", 2),
    ("len", 1),
    ("lt", 2),
    ("ne", 2),
    ("not", 1),
    ("or", 2),
    ("print", 1),
    ("printf", 2),
    ("println", 1),
    ("urlquery", 1),
];

/// Functions that examine no item of a list or map that they are given, or at one, and make nothing of it.
///
/// A function is in this list because a reader of its code has checked it, and not because the test fails otherwise.
const LOOK_AT_NO_ITEM: &[&str] = &[
    "add",
    "add1",
    "add1f",
    "addf",
    "ago",
    "all",
    "and",
    "any",
    "biggest",
    "ceil",
    "coalesce",
    "date",
    "dateInZone",
    "date_in_zone",
    "default",
    "dict",
    "dig",
    "div",
    "divf",
    "duration",
    "durationDays",
    "durationHours",
    "durationMicroseconds",
    "durationMilliseconds",
    "durationMinutes",
    "durationNanoseconds",
    "durationRound",
    "durationRoundTo",
    "durationSeconds",
    "durationTruncateTo",
    "durationWeeks",
    "empty",
    "eq",
    "first",
    "float64",
    "floor",
    "ge",
    "get",
    "gt",
    "hasKey",
    "htmlDate",
    "htmlDateInZone",
    "include",
    "index",
    "int",
    "int64",
    "kindIs",
    "kindOf",
    "last",
    "le",
    "len",
    "list",
    "lt",
    "max",
    "maxf",
    "min",
    "minf",
    "mod",
    "mul",
    "mulf",
    "mustFirst",
    "mustLast",
    "mustToDuration",
    "ne",
    "not",
    "omit",
    "or",
    "pick",
    "pluck",
    "required",
    "round",
    "set",
    "sub",
    "subf",
    "ternary",
    "tpl",
    "tuple",
    "typeIs",
    "typeIsLike",
    "typeOf",
    "unset",
    "urlJoin",
];

/// Functions that are given numbers alone, and make of them what has a fixed length.
const OF_NUMBERS: &[&str] = &["randInt"];

/// Functions that take no argument.
const ALONE: &[&str] = &["hello", "now", "uuidv4"];

/// Values that are large in one way or another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HostileValues {
    Text,
    Lines,
    List,
    Map,
    /// A list in lists that hold it twice, thirty times: a thousand million items, in the room of sixty.
    Doubled,
}

const ALL: [HostileValues; 5] = [
    HostileValues::Text,
    HostileValues::Lines,
    HostileValues::List,
    HostileValues::Map,
    HostileValues::Doubled,
];

const ITEMS: usize = 10_000;

impl HostileValues {
    fn any(self) -> GoRuntimeValue {
        match self {
            Self::Text => GoRuntimeValue::from("a".repeat(256 << 10)),
            Self::Lines => GoRuntimeValue::from("a: b\n".repeat(50 << 10)),
            Self::List => GoRuntimeValue::list((0..ITEMS as i64).map(GoRuntimeValue::int)),
            Self::Map => GoRuntimeValue::map(
                (0..ITEMS).map(|at| (format!("k{at}"), GoRuntimeValue::int(at as i64))),
            ),
            Self::Doubled => (0..30).fold(GoRuntimeValue::from("a"), |inner, _| {
                GoRuntimeValue::list([inner.clone(), inner])
            }),
        }
    }

    /// An argument of a type; nothing where a function of it cannot be given what is large.
    fn argument(self, wanted: &GoType) -> Option<GoRuntimeValue> {
        let text = || match self {
            Self::Lines => Self::Lines.any(),
            _ => Self::Text.any(),
        };
        Some(match wanted {
            GoType::Any | GoType::Reflected => self.any(),
            GoType::String => text(),
            GoType::Bool => GoRuntimeValue::Bool(true),
            GoType::Integer(kind) => {
                GoRuntimeValue::Integer(golang::value::SizedInteger::new(*kind, 2_000_000_000))
            }
            GoType::Float64 => GoRuntimeValue::Float(1e9),
            GoType::Map(item) if **item == GoType::Any => match self {
                Self::Map => self.any(),
                _ => GoRuntimeValue::map([("a", self.any())]),
            },
            GoType::Slice(item) if **item == GoType::Any => match self.any() {
                list @ GoRuntimeValue::List(_) => list,
                other => GoRuntimeValue::list([other]),
            },
            GoType::Named(name, _) if &**name == "time.Time" => {
                GoRuntimeValue::object(GoTime::from_unix(0, 0, GoTimeZone::Utc))
            }
            _ => return None,
        })
    }
}

/// Calls a function with values below `.a`, and puts what it gives below `.out.r`.
fn call(
    name: &str,
    arguments: &[GoRuntimeValue],
    limits: TemplateLimits,
) -> Result<Option<GoRuntimeValue>, TemplateFunctionError> {
    let keys: String = (0..arguments.len()).map(|at| format!(" .a{at}")).collect();
    let out = GoMap::default();
    let data = GoMap::new(GoType::Any, [("out".into(), GoRuntimeValue::Map(out.clone()))]);
    for (at, argument) in arguments.iter().enumerate() {
        data.insert(format!("a{at}"), argument.clone());
    }
    let mut set = TemplateSet::new("t", functions::functions()).with_limits(limits);
    set.parse("n", b"{{ define \"a\" }}{{ end }}").unwrap();
    set.parse("t", format!("{{{{ $_ := set .out \"r\" ({name}{keys}) }}}}").as_bytes()).unwrap();
    let host = RenderFunctionContext::new(env(), RenderMode::default());
    set.run_with("t", GoRuntimeValue::Map(data), &host)?;
    Ok(out.get(b"r"))
}

/// Every function, with arguments that are hostile in a way.
fn calls(hostile: HostileValues) -> Vec<(String, Vec<GoRuntimeValue>)> {
    let all = functions::functions();
    let mut calls = Vec::new();
    for name in all.names() {
        let signature = all.signature(name).unwrap();
        let types = signature.params.iter().chain(match signature.is_variadic {
            true => signature.params.last(),
            false => None,
        });
        let arguments: Option<Vec<GoRuntimeValue>> =
            types.map(|wanted| hostile.argument(wanted)).collect();
        if let Some(arguments) = arguments.filter(|it| !it.is_empty()) {
            calls.push((name.to_owned(), arguments));
        }
    }
    for (name, count) in OF_GO {
        calls.push((name.to_owned(), vec![hostile.any(); count]));
    }
    calls
}

/// Bytes that a value has of its own, beside what it was made of.
fn weight(value: &GoRuntimeValue, given: &[GoRuntimeValue]) -> usize {
    let is_given = |list: &GoSlice| {
        given
            .iter()
            .any(|given| matches!(given, GoRuntimeValue::List(given) if given.is_same(list)))
    };
    match value {
        GoRuntimeValue::String(text) | GoRuntimeValue::Bytes(text) => {
            let shared = given.iter().filter_map(GoRuntimeValue::bytes);
            if shared.into_iter().any(|given| given.as_ptr() == text.as_ptr()) {
                0
            } else {
                text.len()
            }
        }
        GoRuntimeValue::List(list) if is_given(list) => 0,
        GoRuntimeValue::List(list) => list.len() * 8,
        GoRuntimeValue::Map(map) => {
            let is_given = given
                .iter()
                .any(|given| matches!(given, GoRuntimeValue::Map(given) if given.is_same(map)));
            if is_given { 0 } else { map.len() * 40 }
        }
        _ => 0,
    }
}

#[test]
fn every_function_counts_what_it_reads() {
    let few = TemplateLimits { steps: 1_000, output: usize::MAX, ..TemplateLimits::default() };
    let mut free = Vec::new();
    on_stack(|| {
        for hostile in ALL {
            let holds_items = !matches!(hostile, HostileValues::Text | HostileValues::Lines);
            for (name, arguments) in calls(hostile) {
                let name = name.as_str();
                if OF_NUMBERS.contains(&name) || holds_items && LOOK_AT_NO_ITEM.contains(&name) {
                    continue;
                }
                let is_large = |value: &GoRuntimeValue| match value {
                    GoRuntimeValue::List(list) => list.len() >= ITEMS,
                    GoRuntimeValue::Map(map) => map.len() >= ITEMS,
                    value => value.bytes().is_some(),
                };
                let has_large = arguments.iter().any(is_large);
                let result = call(name, &arguments, few);
                let counted = matches!(&result, Err(failure) if failure.limit().is_some());
                let refused = matches!(&result, Err(failure) if failure.limit().is_none());
                // A function of lists refuses a map at once, and the other way round.
                if has_large && !(counted || holds_items && refused) {
                    free.push(format!("{name} with {hostile:?}"));
                }
            }
        }
    });
    assert!(free.is_empty(), "they read what is not counted: {}", free.join(", "));
}

#[test]
fn every_function_counts_what_it_makes() {
    const LITTLE: usize = 50_000;
    let little = TemplateLimits { output: LITTLE, steps: 20_000_000, ..TemplateLimits::default() };
    let mut free = Vec::new();
    on_stack(|| {
        for hostile in ALL {
            for (name, arguments) in calls(hostile) {
                let made = call(&name, &arguments, little).ok().flatten().unwrap_or_default();
                if weight(&made, &arguments) > LITTLE {
                    free.push(format!("{name} with {hostile:?}"));
                }
            }
        }
    });
    assert!(free.is_empty(), "they make what is not counted: {}", free.join(", "));
}

#[test]
fn no_function_is_left_out() {
    let all = functions::functions();
    let called: Vec<String> = ALL
        .into_iter()
        .flat_map(|hostile| {
            let calls = calls(hostile);
            calls.into_iter().map(|(name, _)| name)
        })
        .collect();
    let named = |name: &&str| {
        let takes_certificate = name.starts_with("genSignedCert");
        let takes_maps =
            matches!(*name, "keys" | "merge" | "mergeOverwrite") || name.starts_with("mustMerge");
        let takes_length = matches!(*name, "unixEpoch");
        let is_known = called.iter().any(|it| it == name) || ALONE.contains(name);
        !(is_known || takes_certificate || takes_maps || takes_length)
    };
    let missing: Vec<&str> = all.names().filter(named).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn what_cannot_be_interrupted_is_counted_before_it_begins() {
    let few = TemplateLimits { steps: 100_000, ..TemplateLimits::default() };
    for call in [
        r#"genCA "c" 1"#,
        r#"genPrivateKey "rsa""#,
        r#"genPrivateKey "dsa""#,
        r#"genPrivateKey "ecdsa""#,
        r#"genSelfSignedCert "c" nil nil 1"#,
        r#"bcrypt "p""#,
        r#"htpasswd "u" "p""#,
        r#"derivePassword 1 "long" "p" "u" "s""#,
        r#"regexMatch "(a{30}){30}b" (repeat 10000 "a")"#,
    ] {
        let mut set = TemplateSet::new("t", functions::functions()).with_limits(few);
        set.parse("t", format!("{{{{ $_ := {call} }}}}").as_bytes()).unwrap();
        let host = RenderFunctionContext::new(env(), RenderMode::default());
        let limit =
            set.run_with("t", GoRuntimeValue::Nil, &host).err().and_then(|failure| failure.limit());
        assert_eq!(limit, Some(TemplateLimitError::Steps(100_000)), "{call}");
    }
}

/// Renders a chart of one template within limits, and gives its error.
fn error_within(chart: &Chart, env: &RenderEnvironment, limits: TemplateLimits) -> String {
    on_stack(|| {
        let mut budget = TemplateBudget::with_stop(limits, env.stop.clone());
        let templates = ChartTemplates::parse(chart).unwrap();
        let values = GoMap::default();
        let release = release();
        let input = RenderInput { chart, values: &values, release: &release };
        let mode = RenderMode::default();
        let rendered = templates.render_within(input, env, mode, &mut budget, &mut Vec::new());
        rendered.unwrap_err().to_string()
    })
}

const FEW_BYTES: TemplateLimits = TemplateLimits {
    steps: 200_000_000,
    output: 4 << 20,
    nesting: 100,
    templates: 100,
    calls: 12_000,
};

#[test]
fn a_render_that_is_stopped_says_where() {
    let stop = StopSignal::default();
    stop.set();
    let late = RenderEnvironment { stop, ..env() };
    let text = "k: v\n\nlist: {{ range until 100 }}{{ . }}{{ end }}\n";
    let error = error_within(&chart("c", &[("a.yaml", text)]), &late, TemplateLimits::default());
    assert!(error.contains("c/templates/a.yaml:1"), "{error}");
    assert!(error.ends_with("the time limit is reached"), "{error}");
    let text = "a: 1\nb: {{ repeat 1000000000 \"x\" | quote }}\n";
    let error = error_within(&chart("c", &[("a.yaml", text)]), &env(), TemplateLimits::default());
    assert_eq!(
        error,
        "template: c/templates/a.yaml:2:6: executing \"c/templates/a.yaml\" at <repeat 1000000000 \"x\">: error calling repeat: the output is longer than 268435456 bytes"
    );
}

#[test]
fn files_that_are_made_strings_are_counted() {
    let with = |text: &str| {
        let mut chart = chart("c", &[("a", text)]);
        let data: Arc<[u8]> = "x\n".repeat(10_000).into_bytes().into();
        chart.files = vec![ChartFile { name: "big".to_owned(), data }];
        chart
    };
    for call in ["$.Files.AsConfig", "$.Files.AsSecrets", "$.Files.Lines \"big\""] {
        let hold = format!("{{{{ $all = list $all ({call}) }}}}");
        let text = format!("{{{{ $all := list }}}}{{{{ range until 1000 }}}}{hold}{{{{ end }}}}");
        let error = error_within(&with(&text), &env(), FEW_BYTES);
        let method = call.split(' ').next().unwrap_or_default();
        assert!(error.contains(&format!("<{method}>")), "{error}");
        assert!(error.ends_with("the output is longer than 4194304 bytes"), "{error}");
    }
    // What a file holds is shared, and not made.
    let text = "{{ range until 1000 }}{{ $_ := $.Files.Get \"big\" }}{{ end }}{{ fail \"end\" }}";
    let error = error_within(&with(text), &env(), FEW_BYTES);
    assert!(error.ends_with("end"), "{error}");
}

/// A cluster with a list of many objects.
struct ManyObjectsLookup;

impl ClusterLookup for ManyObjectsLookup {
    fn lookup(&self, _: &LookupQuery<'_>) -> Result<Option<Json>, String> {
        let items: Vec<Json> = (0..100).map(|at| json!({ "metadata": { "name": at } })).collect();
        Ok(Some(json!({ "items": items })))
    }
}

#[test]
fn objects_of_the_cluster_are_counted() {
    let text = "{{ $all := list }}{{ range until 1000 }}{{ $all = list $all (lookup \"v1\" \"Pod\" \"\" \"\") }}{{ end }}";
    let env = RenderEnvironment { cluster: Some(Arc::new(ManyObjectsLookup)), ..env() };
    let error = error_within(&chart("c", &[("a", text)]), &env, FEW_BYTES);
    assert!(error.contains("error calling lookup: the output is longer"), "{error}");
}

#[test]
fn errors_of_strings_that_run_each_other_do_not_grow_without_bound() {
    // Each text quotes the error of the next, which is long.
    let text = format!("{{{{/* {} */}}}}{{{{ tpl .t . }}}}", "x".repeat(100_000));
    let chart = chart("c", &[("a", "{{ tpl .Values.t .Values }}")]);
    let error = render(&chart, json!({ "t": text })).unwrap_err();
    assert!(error.len() < 32 << 20, "{} bytes", error.len());
}

#[test]
fn values_that_double_are_not_written_without_end() {
    let doubled = "{{ $x := list 1 }}{{ range until 40 }}{{ $x = list $x $x }}{{ end }}";
    for call in ["toYamlPretty", "toYaml", "toJson", "toToml", "toString", "quote", "html"] {
        let argument = if call == "toToml" { "(dict \"a\" $x)" } else { "$x" };
        // On an error, `toYaml` and similar functions give an empty text.
        let text = format!("{doubled}{{{{ $_ := {call} {argument} }}}}{{{{ fail \"{call}\" }}}}");
        let error = error_within(&chart("c", &[("a", &text)]), &env(), FEW_BYTES);
        assert!(error.contains(call), "{call}: {error}");
    }
}

#[test]
fn files_of_one_chart_stop_together_and_say_where() {
    let stop = StopSignal::default();
    stop.set();
    let late = RenderEnvironment { stop, ..env() };
    let long = format!("{}{{{{ range until 100 }}}}{{{{ end }}}}", "# x\n".repeat(20_000));
    let chart = chart("c", &[("a", &long), ("b", &long), ("d", &long)]);
    let text = error_within(&chart, &late, TemplateLimits::default());
    assert!(text.contains("c/templates/") && text.ends_with("the time limit is reached"), "{text}");
}
