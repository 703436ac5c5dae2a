//! What expressions answer, compared with answers of Go; bombs, and texts that nest.

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
    let outcome = Expression::parse(text).and_then(|it| it.evaluate_bool_over(fields));
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
    let error = Expression::parse("foo.").unwrap_err().to_string();
    let want = "failed to parse the CEL expression 'foo.': ERROR: <input>:1:5: Syntax error: no viable alternative at input '.'\n | foo.\n | ....^";
    assert_eq!(error, want);
    let error = Expression::parse("spec.list[").unwrap_err().to_string();
    assert!(error.contains("1:11: Syntax error: mismatched input '<EOF>'"), "{error}");
    assert!(!error.contains("Incomplete"), "{error}");
}

#[test]
fn names_and_types_are_checked_where_they_are_known() {
    let refusal = |text: &str| Expression::compile(text, &["self", "dep"]).unwrap_err().to_string();
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
    let expression = Expression::compile(
        "dep.status.conditions.exists(c, c.type == 'Ready' && c.status == self.want)",
        &["self", "dep"],
    )
    .unwrap();
    let (one, two) = (json!({"want": "True"}), object());
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
        Expression::parse(text).unwrap().evaluate_bool_over(fields).unwrap_err().to_string()
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
    // A filter over a long list is no bomb.
    let fair = Expression::parse("l.filter(a, a % 2 == 0).map(a, a * 2).size() == 500").unwrap();
    assert_eq!(fair.evaluate_bool_over(fields), Ok(true));
}

#[test]
fn texts_that_nest_or_go_on_for_long_are_refused_or_read() {
    let run = || {
        for text in [
            "(".repeat(100_000),
            format!("{}1{}", "(".repeat(5000), ")".repeat(5000)),
            format!("{}1{}", "[".repeat(65), "]".repeat(65)),
            format!("{}a", "a.b(".repeat(5000)),
            "-".repeat(50_000),
            format!("1{}", " + 1".repeat(20_000)),
            format!("a{}", ".b".repeat(20_000)),
            format!("true{}", " ? true : true".repeat(5000)),
            "a".repeat(100_001),
            format!("'{}", "x".repeat(90_000)),
        ] {
            assert!(Expression::parse(&text).is_err(), "{}", text.get(..20).unwrap());
        }
        let wide = format!("true{}", " && true".repeat(5000));
        assert_eq!(Expression::compile(&wide, &[]).unwrap().evaluate_bool(&[]), Ok(true));
        // Types that double with every call.
        let doubling = format!("[1]{}.size() == 1", ".map(a, {a: a})".repeat(30));
        let error = Expression::compile(&doubling, &[]).unwrap_err().to_string();
        assert!(error.contains("too large to be checked"), "{error}");
    };
    // The stack of a thread that was asked for nothing else.
    std::thread::Builder::new().stack_size(2 << 20).spawn(run).unwrap().join().unwrap();
}
