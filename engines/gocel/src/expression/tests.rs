//! What expressions answer, compared with answers of Go; bombs, and strings that nest.

use super::*;
use serde_json::json;

fn object() -> Json {
    json!({
        "metadata": {"name": "podinfo", "generation": 3, "creationTimestamp": "2026-01-02T03:04:05Z", "annotations": null},
        "spec": {"replicas": 2, "ratio": 1.5, "list": [1, 2, 3], "names": ["a", "b", "ü"], "text": "Hello, World"},
        "status": {"conditions": [
            {"type": "Ready", "status": "True"},
            {"type": "Synced", "status": "False"},
        ]},
    })
}

/// What Go answers, as the error's end or the value; recorded from cel-go 0.26.1 through fluxcd/pkg/runtime 0.110.1.
fn answer(text: &str) -> String {
    let object = object();
    let fields = object.as_object().unwrap();
    let outcome = CelExpression::parse(text).and_then(|it| it.evaluate_bool_over(fields));
    match outcome {
        Ok(value) => value.to_string(),
        Err(Error::Evaluate { reason, .. }) => reason,
        Err(Error::NotBoolean(_)) => "no boolean".to_owned(),
        Err(Error::Program(reason)) => format!("program: {reason}"),
        Err(other) => other.to_string(),
    }
}

#[test]
fn objects_are_read_as_cel_go_reads_them() {
    let cases = [
        ("status.conditions.exists(e, e.type == 'Ready' && e.status == 'True')", "true"),
        ("status.conditions.filter(e, e.type == 'Ready').all(e, e.status == 'True')", "true"),
        ("status.conditions.map(e, e.status == 'True', e.type) == ['Ready']", "true"),
        ("status.conditions.exists_one(e, e.status == 'True')", "true"),
        ("has(status.observedGeneration)", "false"),
        ("has(status.nope) || spec.replicas == 2.0", "true"),
        ("has(nope.field)", "no such attribute(s): nope.field"),
        ("status.nope", "no such key: nope"),
        ("metadata.annotations.a == 1", "no such key: a"),
        ("metadata.annotations == null", "true"),
        ("spec.list[5] == 1", "index out of bounds: 5"),
        ("spec.list['a'] == 1", "unsupported index type 'string' in list"),
        ("spec.list[spec.replicas] == 3", "true"),
        ("spec.list[x]", "no such attribute(s): spec.list"),
        ("spec.?nope.?deeper.orValue(1) == 1", "true"),
        ("spec.?replicas.optMap(x, x + 1).value() == 3", "true"),
        ("spec.?nope.optMap(x, x + 1).orValue(7) == 7", "true"),
        ("[?spec.?replicas, ?spec.?nope] == [2]", "true"),
        ("spec.names.last().value() == 'ü'", "true"),
        ("(true ? nope : status).replicas", "no such attribute(s): nope.replicas"),
        ("spec.replicas", "no boolean"),
        ("type(timestamp(0)) == google.protobuf.Timestamp", "true"),
    ];
    for (text, want) in cases {
        assert_eq!(answer(text), want, "{text}");
    }
}

#[test]
fn logic_absorbs_errors_that_do_not_matter() {
    let cases = [
        ("nope || true", "true"),
        ("nope && false", "false"),
        ("nope || false", "no such attribute(s): nope"),
        ("1 && true", "no such overload"),
        ("spec.list.exists(x, x == 3 || 1 / 0 == 1)", "true"),
        ("spec.list.exists(x, x / 0 == 1)", "division by zero"),
        ("1 ? true : false", "no such overload"),
        ("true ? true : nope", "true"),
    ];
    for (text, want) in cases {
        assert_eq!(answer(text), want, "{text}");
    }
}

#[test]
fn functions_answer_as_those_of_cel_go() {
    let cases = [
        ("spec.replicas + 'a' == 3", "no such overload"),
        ("spec.text.startsWith(1)", "no such overload"),
        ("size(5) == 3", "no such overload: size"),
        ("unknown(1)", "no such overload: unknown"),
        ("unknown()", "program: no such overload: unknown()"),
        ("'a'.trim(1) == 'a'", "program: no such overload: trim(lhs, rhs)"),
        ("spec.list.join(',') == '1'", "no such overload: join(list, string)"),
        ("['a', 1].join() == ''", "join: invalid input: 1"),
        ("int(spec.text) == 5", "type conversion error from 'string' to 'int'"),
        ("int('x') == 5", "program: type conversion error from 'string' to 'int'"),
        ("spec.list[null] == 3", "program: invalid qualifier type: types.Null"),
        ("9223372036854775807 + 1 == 0", "integer overflow"),
        ("timestamp(metadata.creationTimestamp).getHours('Europe/Berlin') == 4", "true"),
        ("timestamp(metadata.creationTimestamp).getHours('-02:30') == 0", "true"),
        ("duration('90m').getHours() == 1 && string(duration('1500ms')) == '1.5s'", "true"),
        ("'hello'.replace('', '_', 2) == '_h_ello'", "true"),
        ("'a,b,c'.split(',', 2) == ['a', 'b,c'] && 'abc'.split('', 2) == ['a', 'bc']", "true"),
        ("'hello'.lastIndexOf('lo', 3) == 3 && 'hello'.indexOf('l', 9) == -1", "true"),
        ("'%d %s %.2f'.format([1, [null, {'a': 1}], 1.5]) == '1 [null, {a: 1}] 1.50'", "true"),
        ("'%.3f'.format([1]) == '%!f(int64=001)'", "true"),
        ("sets.equivalent([1, 1], [1.0]) && sets.intersects([1], [2, 1])", "true"),
        ("base64.decode('aGVsbG8') == b'hello'", "true"),
        ("string(1e30) == '1e+30' && string(100000.0) == '100000'", "true"),
    ];
    for (text, want) in cases {
        assert_eq!(answer(text), want, "{text}");
    }
}

#[test]
fn what_is_no_expression_is_shown_with_its_place() {
    let error = CelExpression::parse("foo.").unwrap_err().to_string();
    let want = "failed to parse the CEL expression 'foo.': ERROR: <input>:1:5: Syntax error: no viable alternative at input '.'\n | foo.\n | ....^";
    assert_eq!(error, want);
    let error = CelExpression::parse("spec.list[").unwrap_err().to_string();
    assert!(error.contains("1:11: Syntax error: mismatched input '<EOF>'"), "{error}");
    assert!(!error.contains("Incomplete"), "{error}");
}

#[test]
fn names_and_types_are_checked_where_they_are_known() {
    let refusal =
        |text: &str| CelExpression::compile(text, &["self", "dep"]).unwrap_err().to_string();
    let cases = [
        ("foo == 1", "undeclared reference to 'foo' (in container '')"),
        (
            "self == 'a'",
            "found no matching overload for '_==_' applied to '(map(string, dyn), string)'",
        ),
        ("self.a.nope()", "undeclared reference to 'nope' (in container '')"),
        ("[1, 'a'] == self.b", "expected type 'int' but found 'string'"),
        (
            "1.all(x, true)",
            "expression of type 'int' cannot be range of a comprehension (must be list, map, or dynamic)",
        ),
        ("optional.none() && true", "expected type 'bool' but found 'optional_type(_var0)'"),
    ];
    for (text, want) in cases {
        assert!(refusal(text).contains(want), "{text}: {}", refusal(text));
    }
    assert_eq!(refusal("'foo'"), "CEL expression output type mismatch: expected bool, got string");
    assert_eq!(refusal("self.a"), "CEL expression output type mismatch: expected bool, got dyn");
    let expression = CelExpression::compile(
        "dep.status.conditions.exists(c, c.type == 'Ready' && c.status == self.want)",
        &["self", "dep"],
    )
    .unwrap();
    let one = json!({"want": "True"});
    let two = object();
    assert_eq!(expression.evaluate_bool(&[("self", &one), ("dep", &two)]), Ok(true));
    let error = expression.evaluate_bool(&[("self", &one)]).unwrap_err().to_string();
    assert!(error.ends_with("no such attribute(s): dep"), "{error}");
}

#[test]
fn bombs_end_with_an_error_that_says_so() {
    let list: Vec<u32> = (0..1000).collect();
    let object = json!({"l": list, "t": "x".repeat(1 << 20)});
    let fields = object.as_object().unwrap();
    let reason = |text: &str| {
        CelExpression::parse(text).unwrap().evaluate_bool_over(fields).unwrap_err().to_string()
    };
    let bombs = [
        "l.all(a, l.all(b, l.all(c, a + b + c >= 0)))",
        "l.map(a, l.map(b, l.map(c, t))).size() == 1",
        "l.map(a, t + t).size() == 1",
        "l.exists(a, l == [1]) || l.all(a, l == l)",
        "l.all(a, t.replace('', t).size() > 0)",
        "l.all(a, '%s'.format([l]) != '')",
        "l.all(a, t.matches(t.substring(0, 900) + string(a)) || true)",
    ];
    for text in bombs {
        let reason = reason(text);
        assert!(reason.contains("the expression needs too m"), "{text}: {reason}");
    }
    // A filter over a long list stays within the cost limit.
    let fair = CelExpression::parse("l.filter(a, a % 2 == 0).map(a, a * 2).size() == 500").unwrap();
    assert_eq!(fair.evaluate_bool_over(fields), Ok(true));
}

/// Runs on the stack that this crate asks for.
fn on_stack(run: impl FnOnce() + Send + 'static) {
    std::thread::Builder::new()
        .stack_size(REQUIRED_STACK_BYTES)
        .spawn(run)
        .unwrap()
        .join()
        .unwrap();
}

#[test]
fn strings_that_nest_or_go_on_for_long_are_refused_or_read() {
    on_stack(|| {
        let long = [
            "(".repeat(100_000),
            format!("{}1{}", "(".repeat(5000), ")".repeat(5000)),
            format!("{}1{}", "[".repeat(251), "]".repeat(251)),
            format!("{}a", "a.b(".repeat(5000)),
            "-".repeat(50_000),
            format!("1{}", " + 1".repeat(20_000)),
            format!("1{}", " in 1".repeat(16_000)),
            format!("1{}", "in[1]".repeat(16_000)),
            format!("0xA{}", "in 0xA".repeat(16_000)),
            format!("'a'{}", "in'a'".repeat(16_000)),
            format!("a{}", ".b".repeat(20_000)),
            format!("a{}", ".?b".repeat(20_000)),
            format!("a{}", "[0]".repeat(20_000)),
            format!("a{}", "[?0]".repeat(20_000)),
            format!("a{}", ".`b`".repeat(20_000)),
            format!("true{}", " ? true : true".repeat(5000)),
            format!("{}1{}", "{1:".repeat(20_000), "}".repeat(20_000)),
            format!("{}1{}", "a{b:".repeat(20_000), "}".repeat(20_000)),
            format!("{}1{}", "[1+".repeat(20_000), "]".repeat(20_000)),
            format!("{}1{}", format!("({}", "1+".repeat(100)).repeat(400), ")".repeat(400)),
            format!("{}true{}", "[1].all(a,".repeat(9_000), ")".repeat(9_000)),
            "a".repeat(100_001),
            format!("'{}", "x".repeat(90_000)),
        ];
        for text in long {
            assert!(CelExpression::parse(&text).is_err(), "{}", text.get(..20).unwrap());
        }
        let wide = format!("true{}", " && true".repeat(5000));
        assert_eq!(CelExpression::compile(&wide, &[]).unwrap().evaluate_bool(&[]), Ok(true));
        // Types that double with every call.
        let doubling = format!("[1]{}.size() == 1", ".map(a, {a: a})".repeat(30));
        let error = CelExpression::compile(&doubling, &[]).unwrap_err().to_string();
        assert!(error.contains("too large to be checked"), "{error}");
    });
}

#[test]
fn quotes_that_open_nothing_hide_nothing() {
    on_stack(|| {
        let sum = format!("1{}", " + 1".repeat(24_000));
        for before in [
            "// \"\n",
            "// '\n",
            r#"r"\" == '' || "#,
            r"R'\' == '' || ",
            r#"br"\" == b'' || "#,
            "B'' == b'' || ",
            r#"""" " """ == '' || "#,
            "''' ' ''' == '' || ",
            r"r'''\''' == '' || ",
            r"'\'' == '' || ",
            // The parser skips what is not a token, and goes on after it.
            r"'\q' || ",
            "'\n",
            r#"""" \ || "#,
            r"rb'\' || ",
            "\u{1F600} || ",
            "` || ",
        ] {
            let text = format!("{before}{sum}");
            let error = CelExpression::parse(&text).unwrap_err().to_string();
            let is_limited = error.contains("recursion limit exceeded")
                || error.contains("token recognition error at: '");
            assert!(is_limited, "{before}: {}", error.get(96_000..).unwrap());
        }
        // And what they do open does not count towards the depth.
        for text in [
            format!("'{}' != ''", "+ ".repeat(1000)),
            format!("r\"{}\" != ''", r"\( ".repeat(1000)),
            format!("\"\"\"{}\"\"\" != ''", "('\n".repeat(1000)),
            format!("// {}\ntrue == true", "((".repeat(1000)),
            format!("b'{}' != b''", "[".repeat(1000)),
            format!("[{}].size() == 1000", ["1 + 1"; 1000].join(", ")),
        ] {
            assert_eq!(CelExpression::parse(&text).unwrap().evaluate_bool(&[]), Ok(true), "{text}");
        }
    });
}

#[test]
fn what_is_as_deep_as_may_be_is_read_checked_and_evaluated() {
    on_stack(|| {
        let nested = |open: &str, inner: &str, close: &str, times: usize| {
            format!("{}{inner}{}", open.repeat(times), close.repeat(times))
        };
        // A bracket counts twice, as it is an operator too.
        for text in [
            nested("(", "true", ")", 120),
            format!("{} == []", nested("[", "1", "]", 120)),
            format!("{} != {{}}", nested("{1: ", "1", "}", 120)),
            nested("[1].all(a, ", "true", ")", 60),
            nested("[1].exists(a, a == 1 && ", "true", ")", 60),
            nested("[true].map(a, ", "true", ")[0]", 40),
            format!("{} == 1", nested("optional.of(1).optMap(a, ", "1", ").value()", 20)),
            format!("1{} == 240", " + 1".repeat(239)),
            format!("{}true", "true ? true : ".repeat(240)),
            nested("!(", "true", ")", 80),
            format!("self{}.size() == 1", ".a".repeat(240)),
            format!("self{} == 1", "[?'a']".repeat(80)),
            format!("{} == self", nested("dyn(", "self", ")", 100)),
        ] {
            // The result does not matter: each must return.
            drop(CelExpression::compile(&text, &["self"]));
            let expression = CelExpression::parse(&text).unwrap();
            drop(expression.evaluate_bool(&[("self", &object())]));
        }
    });
}

#[test]
fn targets_that_double_are_refused() {
    on_stack(|| {
        let text = format!("optional.of(1){}.hasValue()", ".optMap(x, x)".repeat(40));
        let error = CelExpression::parse(&text).unwrap_err().to_string();
        assert!(error.contains("optMap and optFlatMap make the expression too large"), "{error}");
    });
}

#[test]
fn the_expressions_of_a_run_share_what_it_may_use_up() {
    let list: Vec<u32> = (0..1000).collect();
    let object = json!({"l": list});
    let fields = object.as_object().unwrap();
    let dear = CelExpression::parse("l.all(a, l.exists(b, b == 10))").unwrap();
    let mut run =
        WorkMeter::new(WorkAllowance { steps: 3_000_000, bytes: 1 << 30 }, StopSignal::default());
    let outcomes: Vec<_> =
        (0..1000).map(|_| dear.evaluate_bool_over_within(fields, &mut run)).collect();
    let held = outcomes.iter().filter(|it| **it == Ok(true)).count();
    assert!(held > 3 && held < 100, "{held}");
    let error = outcomes.last().unwrap().clone().unwrap_err().to_string();
    assert!(
        error.contains("the expressions of one object need too many steps in total"),
        "{error}"
    );
    // Nor is there an end to what they may read.
    let mut run = WorkMeter::new(READING, StopSignal::default());
    let long = format!("'{}' != ''", "x".repeat(10_000));
    let read = (0..100).map(|_| CelExpression::parse_within(&long, &mut run));
    assert_eq!(read.filter_map(Result::err).last(), Some(Error::TooMuch));
    on_stack(|| {
        let patterns = "|| 'a'.matches('a{1000}') ".repeat(3000);
        let error = CelExpression::parse(&format!("false {patterns}")).unwrap_err().to_string();
        assert!(error.contains("too many or too large regular expressions"), "{error}");
    });
}
