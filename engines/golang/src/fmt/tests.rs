//! What the recorded answers do not hold: objects, limits, and values that never come from JSON.

use super::{Error, FormatLimits, sprint, sprint_within, sprintf};
use crate::value::{
    GoMap, GoObject, GoRuntimeValue, GoSlice, GoString, GoType, IntegerKind, ReflectKind,
    SizedInteger,
};

fn check(format: &str, values: &[GoRuntimeValue], wanted: &str) {
    let text = sprintf(format, values).unwrap();
    assert_eq!(String::from_utf8_lossy(&text), wanted, "{format}");
}

#[derive(Debug)]
struct VersionStruct {
    kind: ReflectKind,
    text: Option<&'static str>,
}

impl GoObject for VersionStruct {
    fn type_name(&self) -> &'static str {
        if self.kind == ReflectKind::Pointer { "*semver.Version" } else { "semver.Version" }
    }

    fn kind(&self) -> ReflectKind {
        self.kind
    }

    fn fields(&self) -> Vec<(&'static str, GoRuntimeValue)> {
        vec![("major", GoRuntimeValue::int(1)), ("pre", GoRuntimeValue::from("rc"))]
    }

    fn text(&self) -> Option<GoString> {
        self.text.map(GoString::from)
    }
}

#[test]
fn structs_pointers_and_stringers_print_as_in_go() {
    let plain = GoRuntimeValue::object(VersionStruct { kind: ReflectKind::Struct, text: None });
    let pointer = GoRuntimeValue::object(VersionStruct { kind: ReflectKind::Pointer, text: None });
    let named =
        GoRuntimeValue::object(VersionStruct { kind: ReflectKind::Pointer, text: Some("v1") });
    check(
        "%v|%+v|%d|%T",
        &vec![plain.clone(); 4],
        "{1 rc}|{major:1 pre:rc}|{1 %!d(string=rc)}|semver.Version",
    );
    check("%#v", &[plain], r#"semver.Version{major:1, pre:"rc"}"#);
    check("%v|%+v", &[pointer.clone(), pointer], "&{1 rc}|&{major:1 pre:rc}");
    check("%v|%5s|%q|%x", &vec![named.clone(); 4], r#"v1|   v1|"v1"|7631"#);
    check("%d|%t", &vec![named.clone(); 2], "&{1 %!d(string=rc)}|&{%!t(int=1) %!t(string=rc)}");
    check("%v", &[GoRuntimeValue::list([named])], "[v1]");
}

#[test]
fn typed_containers_bytes_and_nils_print_as_in_go() {
    let bytes = GoRuntimeValue::Bytes(GoString::from("hi"));
    check(
        "%v|%s|%x|%q|%#v|%d",
        &vec![bytes; 6],
        r#"[104 105]|hi|6869|"hi"|[]byte{0x68, 0x69}|[104 105]"#,
    );
    let labels =
        GoRuntimeValue::Map(GoMap::new(GoType::String, [("a".into(), GoRuntimeValue::from("b"))]));
    check("%#v", &[labels], r#"map[string]string{"a":"b"}"#);
    check(
        "%v|%#v",
        &vec![GoRuntimeValue::Map(GoMap::nil(GoType::Any)); 2],
        "map[]|map[string]interface {}(nil)",
    );
    check("%v|%#v", &vec![GoRuntimeValue::List(GoSlice::nil(GoType::INT)); 2], "[]|[]int(nil)");
    let byte = GoRuntimeValue::Integer(SizedInteger::new(IntegerKind::Uint8, 5));
    check("%v|%#v|%T|%d", &vec![byte; 4], "5|0x5|uint8|5");
    check(
        "%v|%.1f|%s",
        &vec![GoRuntimeValue::Complex(1.0, -2.5); 3],
        "(1-2.5i)|(1.0-2.5i)|%!s(complex128=(1-2.5i))",
    );
    check(
        "%s",
        &[GoRuntimeValue::from("x"), GoRuntimeValue::Nil, GoRuntimeValue::int(1)],
        "x%!(EXTRA <nil>, int=1)",
    );
}

#[test]
fn flags_are_those_of_go() {
    let number = |number| GoRuntimeValue::int(number);
    check(
        "%05d|%-5d|%+d|% d|%.3d|%x|%#x|%08.3f",
        &[
            number(-42),
            number(42),
            number(42),
            number(42),
            number(7),
            number(-255),
            number(255),
            GoRuntimeValue::Float(-1.5),
        ],
        "-0042|42   |+42| 42|007|-ff|0xff|-001.500",
    );
    check(
        "%#g|%#.3g|%#.0f|%#x|%+.0e",
        &[1.0, 12.0, 3.0, 1.5, 5.0].map(GoRuntimeValue::Float),
        "1.00000|12.0|3.|0x1.8000p+00|+5e+00",
    );
    check(
        "%#o|%O|%#b|%U|%#U|%c|%q",
        &[8, 8, 5, 0x1F600, 0x41, 0x4e16, 0x27].map(number),
        r"010|0o10|0b101|U+1F600|U+0041 'A'|世|'\''",
    );
    check(
        "%[2]*[1]d|%6.2f|%[3]v|%[x]d|%!",
        &[number(5), number(4)],
        "   5|%!f(int=    04)|%!v(BADINDEX)|%!d(BADINDEX)|%!!(MISSING)",
    );
    check("%", &[], "%!(NOVERB)");
    check("%z|%d", &[GoRuntimeValue::from("x")], "%!z(string=x)|%!d(MISSING)");
}

#[test]
fn text_beyond_the_limits_is_an_error() {
    let mut value = GoRuntimeValue::from("0123456789");
    for _ in 0..60 {
        value = GoRuntimeValue::list([value.clone(), value]);
    }
    assert_eq!(sprint(&[value]), Err(Error::TooLong(64 << 20)));
    let map = GoMap::new(GoType::Any, []);
    map.insert("self", GoRuntimeValue::Map(map.clone()));
    assert_eq!(sprint(&[GoRuntimeValue::Map(map.clone())]), Err(Error::TooDeep(500)));
    map.remove(b"self");
    let limits = FormatLimits { bytes: 3, depth: 0 };
    assert_eq!(sprint_within(&[GoRuntimeValue::from("abc")], limits).unwrap(), b"abc");
    assert!(sprint_within(&[GoRuntimeValue::from("abcd")], limits).is_err());
}

#[test]
fn what_is_infinite_shows_its_sign() {
    let values = [f64::INFINITY, f64::NEG_INFINITY, f64::NAN].map(GoRuntimeValue::Float);
    assert_eq!(sprintf("%v %v %v", &values).unwrap(), b"+Inf -Inf NaN");
    assert_eq!(sprintf("%08v|% v|%+v", &values).unwrap(), b"    +Inf|-Inf|NaN");
}
