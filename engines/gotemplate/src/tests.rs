//! What the recorded answers do not hold: objects, limits, bad input, and sets that share templates.

use std::sync::Arc;

use golang::GoRuntimeValue;
use golang::value::{
    FunctionSignature, GoFunction, GoObject, GoSlice, GoString, GoType, ReflectKind,
};
use proptest::prelude::*;

use crate::{
    MissingKeyPolicy, REQUIRED_STACK_BYTES, TemplateFunctionError, TemplateFunctions,
    TemplateLimitError, TemplateLimits, TemplateSet,
};

fn functions() -> TemplateFunctions {
    let mut functions = TemplateFunctions::default();
    functions.insert(
        "include",
        FunctionSignature::new([GoType::String, GoType::Any], GoType::String),
        |call, values| {
            let GoRuntimeValue::String(name) = &values[0] else { return Ok(GoRuntimeValue::Nil) };
            Ok(GoRuntimeValue::string(call.run(&name.lossy(), values[1].clone())?))
        },
    );
    functions.insert(
        "list",
        FunctionSignature::variadic([GoType::Any], GoType::list()),
        |_, items| Ok(GoRuntimeValue::list(items.iter().cloned())),
    );
    functions
}

fn run_with(
    text: &str,
    data: GoRuntimeValue,
    limits: TemplateLimits,
) -> Result<String, TemplateFunctionError> {
    let mut set = TemplateSet::new("t", functions())
        .with_missing_key(MissingKeyPolicy::Zero)
        .with_limits(limits);
    set.parse("t", text.as_bytes())?;
    set.run("t", data).map(|output| String::from_utf8(output).unwrap())
}

fn check(text: &str, data: GoRuntimeValue, wanted: &str) {
    let got =
        run_with(text, data, TemplateLimits::default()).unwrap_or_else(|error| error.to_string());
    assert_eq!(got, wanted, "{text}");
}

/// Runs something on a thread with the stack that the limits ask for.
fn with_stack<T: Send>(run: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .stack_size(REQUIRED_STACK_BYTES)
            .spawn_scoped(scope, run)
            .unwrap();
        thread.join().unwrap()
    })
}

#[derive(Debug)]
struct VersionSetFixture;

impl GoObject for VersionSetFixture {
    fn type_name(&self) -> &'static str {
        "common.VersionSet"
    }

    fn underlying(&self) -> Option<GoRuntimeValue> {
        Some(GoRuntimeValue::List(GoSlice::new(
            GoType::String,
            vec![GoRuntimeValue::from("v1"), GoRuntimeValue::from("apps/v1")],
        )))
    }

    fn method(self: Arc<Self>, name: &str) -> Option<GoFunction> {
        let signature = FunctionSignature::new([GoType::String], GoType::Bool);
        (name == "Has").then(|| {
            GoFunction::new(signature, |values| {
                Ok(GoRuntimeValue::Bool(
                    matches!(&values[0], GoRuntimeValue::String(text) if **text == *b"v1"),
                ))
            })
        })
    }
}

/// A map whose keys are structs.
#[derive(Debug)]
struct StructKeyMapFixture;

impl GoObject for StructKeyMapFixture {
    fn type_name(&self) -> &'static str {
        "update.ObjectChanges"
    }

    fn kind(&self) -> ReflectKind {
        ReflectKind::Map
    }

    fn entries(&self) -> Option<Vec<(GoRuntimeValue, GoRuntimeValue)>> {
        let key = GoRuntimeValue::object(ReleaseFixture { is_pointer: false });
        Some(vec![(key, GoRuntimeValue::int(5))])
    }
}

#[test]
fn a_map_may_have_keys_that_are_no_strings() {
    let data = || GoRuntimeValue::map([("M", GoRuntimeValue::object(StructKeyMapFixture))]);
    check(
        "{{range $k, $v := .M}}{{$k.Version}}={{$v}}{{end}} {{len .M}} {{.M}} {{if .M}}yes{{end}}",
        data(),
        "v1.2.3-gke=5 1 map[{v1.2.3-gke}:5] yes",
    );
}

#[derive(Debug)]
struct ReleaseFixture {
    is_pointer: bool,
}

impl GoObject for ReleaseFixture {
    fn type_name(&self) -> &'static str {
        if self.is_pointer { "*common.Capabilities" } else { "common.KubeVersion" }
    }

    fn kind(&self) -> ReflectKind {
        if self.is_pointer { ReflectKind::Pointer } else { ReflectKind::Struct }
    }

    fn fields(&self) -> Vec<(&'static str, GoRuntimeValue)> {
        match self.is_pointer {
            true => vec![("KubeVersion", GoRuntimeValue::object(Self { is_pointer: false }))],
            false => vec![("Version", GoRuntimeValue::from("v1.2.3-gke"))],
        }
    }

    fn addressed_text(&self) -> Option<GoString> {
        (!self.is_pointer).then(|| GoString::from("v1.2.3"))
    }
}

#[test]
fn objects_have_fields_methods_and_text() {
    let data = || {
        GoRuntimeValue::map([
            ("V", GoRuntimeValue::object(VersionSetFixture)),
            ("C", GoRuntimeValue::object(ReleaseFixture { is_pointer: true })),
        ])
    };
    check("{{.V.Has \"v1\"}} {{.V.Has \"v2\"}} {{\"v1\" | .V.Has}}", data(), "true false true");
    check(
        "{{range $i, $v := .V}}{{$i}}{{$v}} {{end}}{{len .V}} {{index .V 1}} {{.V}}",
        data(),
        "0v1 1apps/v1 2 apps/v1 [v1 apps/v1]",
    );
    check("{{.C.KubeVersion}} {{.C.KubeVersion.Version}}", data(), "v1.2.3 v1.2.3-gke");
    check("{{printf \"%v\" .C.KubeVersion}} {{.C}}", data(), "{v1.2.3-gke} {{v1.2.3-gke}}");
    for (text, wanted) in [
        (
            "{{.V.Has}}",
            "template: t:1:4: executing \"t\" at <.V.Has>: wrong number of args for Has: want 1 got 0",
        ),
        ("{{.V.Has 1}}", "template: t:1:9: executing \"t\" at <1>: expected string; found 1"),
        (
            "{{.C.Nope}}",
            "template: t:1:4: executing \"t\" at <.C.Nope>: can't evaluate field Nope in type interface {}",
        ),
        (
            "{{.V.x}}",
            "template: t:1:4: executing \"t\" at <.V.x>: can't evaluate field x in type interface {}",
        ),
        (
            "{{.C.KubeVersion.Version 1}}",
            "template: t:1:4: executing \"t\" at <.C.KubeVersion.Version>: Version has arguments but cannot be invoked as function",
        ),
    ] {
        check(text, data(), wanted);
    }
}

#[test]
fn a_position_out_of_an_interface_is_taken_by_index_only() {
    let data = || {
        GoRuntimeValue::map([
            ("n", GoRuntimeValue::int(1)),
            ("l", GoRuntimeValue::strings(["a", "b"])),
        ])
    };
    check("{{index .l .n}}", data(), "b");
    let wanted = "template: t:1:2: executing \"t\" at <slice .l .n>: error calling slice: \
                  cannot index slice/array with type interface {}";
    check("{{slice .l .n}}", data(), wanted);
}

#[test]
fn what_is_parsed_into_a_clone_is_seen_in_it_only() {
    let mut set = TemplateSet::new("s", functions());
    set.parse("a", b"{{define \"x\"}}old{{end}}{{template \"x\"}}").unwrap();
    let mut other = set.clone();
    let empty = other.parse("a", b"{{define \"x\"}}new{{end}} ").unwrap();
    assert_eq!(set.run("a", GoRuntimeValue::Nil).unwrap(), b"old");
    // The text itself is empty, so that it does not replace the one before.
    assert_eq!(other.run("a", GoRuntimeValue::Nil).unwrap(), b"new");
    assert_eq!(empty.name(), "a");
    let error = set.run("b", GoRuntimeValue::Nil).unwrap_err();
    assert_eq!(error.to_string(), "template: no template \"b\" associated with template \"s\"");
}

#[test]
fn an_error_says_where_it_is_and_keeps_its_source() {
    let text = "{{define \"x\"}}\n {{.a.b.c}}{{end}}{{include \"x\" .}}";
    let error = run_with(
        text,
        GoRuntimeValue::map([("a", GoRuntimeValue::Nil)]),
        TemplateLimits::default(),
    )
    .unwrap_err();
    let TemplateFunctionError::Exec(outer) = error else { panic!("{error}") };
    let Some(TemplateFunctionError::Exec(inner)) = outer.source.as_deref() else {
        panic!("{outer}")
    };
    let place = inner.place.clone().unwrap();
    assert_eq!(
        (inner.template.as_str(), place.line, place.column, place.node.as_str()),
        ("x", 2, 5, ".a.b.c")
    );
    assert_eq!(inner.message, "nil pointer evaluating interface {}.b");
    assert!(outer.to_string().ends_with(&inner.to_string()));
}

#[test]
fn runs_without_end_reach_a_limit() {
    let few = TemplateLimits { steps: 10_000, output: 100_000, ..TemplateLimits::default() };
    let limit = |text: &str| run_with(text, GoRuntimeValue::Nil, few).unwrap_err().limit();
    assert_eq!(
        limit("{{range 9223372036854775807}}{{end}}"),
        Some(TemplateLimitError::Steps(10_000))
    );
    assert!(limit("{{printf \"%1000000d\" 1}}").is_some());
    assert_eq!(
        limit("{{range 4000}}{{printf \"%60d\" 1}}{{end}}"),
        Some(TemplateLimitError::Output(100_000))
    );
    let doubling = "{{$x := list 1}}{{range 100}}{{$x = list $x $x}}{{end}}{{$x}}";
    assert!(limit(doubling).is_some());
    assert!(limit("{{$x := 1}}{{range 3000}}{{$x = list $x}}{{end}}{{$x}}").is_some());
}

#[test]
fn nothing_is_nested_deeper_than_the_stack_allows() {
    with_stack(|| {
        let recursion = "{{define \"r\"}}{{template \"r\"}}{{end}}{{template \"r\"}}";
        check(
            recursion,
            GoRuntimeValue::Nil,
            "template: t:1:25: executing \"r\" at <{{template \"r\"}}>: exceeded maximum template depth (100000)",
        );
        let include = "{{define \"r\"}}{{include \"r\" .}}{{end}}{{include \"r\" .}}";
        let error = run_with(include, GoRuntimeValue::Nil, TemplateLimits::default()).unwrap_err();
        assert_eq!(error.limit(), Some(TemplateLimitError::Calls(12_000)));
        drop(error);
        let parentheses = |count| format!("{{{{{}1{}}}}}", "(".repeat(count), ")".repeat(count));
        check(&parentheses(10_000), GoRuntimeValue::Nil, "1");
        check(
            &parentheses(10_001),
            GoRuntimeValue::Nil,
            "template: t:1: max expression depth exceeded",
        );
        let blocks = |count| "{{if 1}}".repeat(count) + "x" + &"{{end}}".repeat(count);
        check(&blocks(2_000), GoRuntimeValue::Nil, "x");
        check(
            &blocks(2_001),
            GoRuntimeValue::Nil,
            "template: t:1: max nesting of blocks exceeded (2000)",
        );
    });
}

proptest! {
    #[test]
    fn no_text_makes_the_parser_or_a_run_panic(
        pieces in prop::collection::vec(prop::sample::select(vec![
            "{{", "}}", "{{-", "-}}", " ", "- ", ".a", ".", "$x", "$", ":=", "=", ",", "|", "(", ")", "\"s\"",
            "`r`", "1", "-3", "1.5e3", "0x", "1i", "'a'", "if", "range", "with", "else", "end", "define",
            "template", "block", "break", "continue", "nil", "true", "printf", "index", "slice", "len", "eq",
            "lt", "and", "or", "not", "call", "list", "include", "\"t\"", "\n", "/*", "*/", "é", "\u{a0}", "text",
        ]), 0..24),
    ) {
        let text = pieces.concat();
        let limits = TemplateLimits { steps: 5_000, output: 50_000, calls: 50, templates: 50, nesting: 50 };
        let data = GoRuntimeValue::map([("a", GoRuntimeValue::list([GoRuntimeValue::int(1), GoRuntimeValue::from("b"), GoRuntimeValue::Nil]))]);
        drop(run_with(&text, data.clone(), limits));
        drop(run_with(&format!("{{{{ {text} }}}}"), data, limits));
    }

    #[test]
    fn no_bytes_make_the_parser_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        let mut set = TemplateSet::new("t", TemplateFunctions::default());
        drop(set.parse("t", &bytes));
        drop(set.parse("t", &[b"{{", &*bytes, b"}}"].concat()));
    }
}
