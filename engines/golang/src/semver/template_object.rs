//! Versions as templates see them: `*semver.Version` and the results of its methods.

use std::any::Any;
use std::sync::Arc;

use super::SemverVersion;
use crate::GoRuntimeValue;
use crate::value::{
    FunctionSignature, GoFunction, GoObject, GoString, GoType, IntegerKind, ReflectKind,
    SizedInteger,
};

const NIL: &str = "runtime error: invalid memory address or nil pointer dereference";

/// `*semver.Version`.
impl GoObject for SemverVersion {
    fn type_name(&self) -> &'static str {
        "*semver.Version"
    }

    fn kind(&self) -> ReflectKind {
        ReflectKind::Pointer
    }

    fn method(self: Arc<Self>, name: &str) -> Option<GoFunction> {
        let compare: fn(&Self, &Self) -> GoRuntimeValue = match name {
            "Compare" => |a, b| GoRuntimeValue::int(a.cmp(b) as i64),
            "Equal" => |a, b| GoRuntimeValue::Bool(a == b),
            "LessThan" => |a, b| GoRuntimeValue::Bool(a < b),
            "LessThanEqual" => |a, b| GoRuntimeValue::Bool(a <= b),
            "GreaterThan" => |a, b| GoRuntimeValue::Bool(a > b),
            "GreaterThanEqual" => |a, b| GoRuntimeValue::Bool(a >= b),
            "Original" => {
                return Some(GoFunction::new(
                    FunctionSignature::new([], GoType::String),
                    move |_| Ok(GoRuntimeValue::from(self.original())),
                ));
            }
            _ => return method(self, name),
        };
        let result = if name == "Compare" { GoType::INT } else { GoType::Bool };
        let parameter = GoType::Named("*semver.Version".into(), ReflectKind::Pointer);
        Some(GoFunction::new(FunctionSignature::new([parameter], result), move |arguments| {
            let [GoRuntimeValue::Object(other)] = arguments else { return Err(NIL.to_owned()) };
            let other: &dyn Any = &**other;
            let other = other.downcast_ref::<Self>().ok_or(NIL)?;
            Ok(compare(&self, other))
        }))
    }

    fn text(&self) -> Option<GoString> {
        Some(self.to_string().into())
    }

    fn equals(&self, other: &dyn GoObject) -> bool {
        let other: &dyn Any = other;
        other.downcast_ref::<Self>().is_some_and(|other| std::ptr::eq(self, other))
    }

    fn deep_equals(&self, other: &dyn GoObject) -> bool {
        let other: &dyn Any = other;
        other.downcast_ref::<Self>().is_some_and(|other| is_same(self, other))
    }
}

/// The object of Go's type `semver.Version`, which does not have the methods of the pointer.
#[derive(Debug)]
struct SemverVersionStructObject(Arc<SemverVersion>);

impl GoObject for SemverVersionStructObject {
    fn type_name(&self) -> &'static str {
        "semver.Version"
    }

    fn kind(&self) -> ReflectKind {
        ReflectKind::Struct
    }

    fn method(self: Arc<Self>, name: &str) -> Option<GoFunction> {
        method(Arc::clone(&self.0), name)
    }

    fn text(&self) -> Option<GoString> {
        self.0.text()
    }

    fn equals(&self, other: &dyn GoObject) -> bool {
        let other: &dyn Any = other;
        other.downcast_ref::<Self>().is_some_and(|other| is_same(&self.0, &other.0))
    }
}

/// Go's `==`. Spelling and metadata count.
fn is_same(a: &SemverVersion, b: &SemverVersion) -> bool {
    a == b && a.prerelease == b.prerelease && a.metadata == b.metadata && a.original == b.original
}

/// The method with this name, if both the pointer and the plain type have it. `None` if they do not.
fn method(version: Arc<SemverVersion>, name: &str) -> Option<GoFunction> {
    type VersionMethod = fn(&SemverVersion) -> Result<GoRuntimeValue, String>;
    let number = |number: u64| {
        GoRuntimeValue::Integer(SizedInteger::new(IntegerKind::Uint64, number as i64))
    };
    let give: (GoType, VersionMethod) = match name {
        "Major" | "Minor" | "Patch" => {
            let number = number(match name {
                "Major" => version.major,
                "Minor" => version.minor,
                _ => version.patch,
            });
            let signature = FunctionSignature::new([], GoType::Integer(IntegerKind::Uint64));
            return Some(GoFunction::new(signature, move |_| Ok(number.clone())));
        }
        "Prerelease" => (GoType::String, |version| Ok(GoRuntimeValue::from(version.prerelease()))),
        "Metadata" => (GoType::String, |version| Ok(GoRuntimeValue::from(version.metadata()))),
        "String" => (GoType::String, |version| Ok(GoRuntimeValue::from(version.to_string()))),
        "IncMajor" => (plain(), |version| {
            let major = increased(version.major, "major")?;
            Ok(next(version, [major, 0, 0], "", ""))
        }),
        "IncMinor" => (plain(), |version| {
            let minor = increased(version.minor, "minor")?;
            Ok(next(version, [version.major, minor, 0], "", ""))
        }),
        "IncPatch" => (plain(), |version| {
            let is_release = version.prerelease.is_empty();
            let patch = if is_release { increased(version.patch, "patch")? } else { version.patch };
            Ok(next(version, [version.major, version.minor, patch], "", ""))
        }),
        "SetPrerelease" | "SetMetadata" => return Some(set(version, name == "SetPrerelease")),
        _ => return None,
    };
    let (result, give) = give;
    Some(GoFunction::new(FunctionSignature::new([], result), move |_| give(&version)))
}

fn plain() -> GoType {
    GoType::Named("semver.Version".into(), ReflectKind::Struct)
}

fn increased(number: u64, name: &str) -> Result<u64, String> {
    number.checked_add(1).ok_or_else(|| format!("{name} version increment would overflow uint64"))
}

/// A version with other parts. It keeps a leading `v`.
fn next(
    version: &SemverVersion,
    numbers: [u64; 3],
    prerelease: &str,
    metadata: &str,
) -> GoRuntimeValue {
    let [major, minor, patch] = numbers;
    let mut next = SemverVersion {
        major,
        minor,
        patch,
        prerelease: prerelease.to_owned(),
        metadata: metadata.to_owned(),
        original: String::new(),
    };
    let sign = if version.original.starts_with('v') { "v" } else { "" };
    next.original = format!("{sign}{next}");
    GoRuntimeValue::object(SemverVersionStructObject(Arc::new(next)))
}

/// The methods `SetPrerelease` and `SetMetadata`.
fn set(version: Arc<SemverVersion>, sets_prerelease: bool) -> GoFunction {
    GoFunction::new(FunctionSignature::new([GoType::String], plain()), move |arguments| {
        let text = match arguments {
            [GoRuntimeValue::String(text)] => text.lossy(),
            _ => "".into(),
        };
        let has_leading_zero = |part: &str| {
            part.len() > 1 && part.starts_with('0') && part.bytes().all(|it| it.is_ascii_digit())
        };
        for part in text.split('.').filter(|_| !text.is_empty()) {
            if part.is_empty() || !part.bytes().all(super::is_identifier) {
                let what = if sets_prerelease { "prerelease" } else { "metadata" };
                return Err(format!("invalid {what} string"));
            }
            if sets_prerelease && has_leading_zero(part) {
                return Err("version segment starts with 0".to_owned());
            }
        }
        let numbers = [version.major, version.minor, version.patch];
        Ok(match sets_prerelease {
            true => next(&version, numbers, &text, &version.metadata),
            false => next(&version, numbers, &version.prerelease, &text),
        })
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::SemverVersion;
    use crate::GoRuntimeValue;
    use crate::fmt::sprint;
    use crate::value::GoObject;
    use crate::work_meter::{StopSignal, WorkAllowance, WorkMeter};

    fn call(version: &str, method: &str, arguments: &[GoRuntimeValue]) -> String {
        let mut meter = WorkMeter::new(WorkAllowance::UNLIMITED, StopSignal::default());
        let version = Arc::new(SemverVersion::parse(version).unwrap());
        let result = version.method(method).unwrap().call(&mut meter, arguments).unwrap();
        String::from_utf8(sprint(&[result]).unwrap()).unwrap()
    }

    #[test]
    fn templates_see_the_methods_of_the_library() {
        let other = GoRuntimeValue::object(SemverVersion::parse("1.3.0").unwrap());
        assert_eq!(call("v1.2.3-rc.1+b", "Prerelease", &[]), "rc.1");
        assert_eq!(call("1.2.3", "Compare", std::slice::from_ref(&other)), "-1");
        assert_eq!(call("1.2.3", "GreaterThan", &[other]), "false");
        assert_eq!(call("v1.2.3-rc.1", "IncPatch", &[]), "1.2.3");
        assert_eq!(call("v1.2.3", "IncMajor", &[]), "2.0.0");
        assert_eq!(call("1.2.3-rc.1", "SetMetadata", &[GoRuntimeValue::from("x")]), "1.2.3-rc.1+x");
    }

    #[test]
    fn what_a_method_gives_knows_no_method_of_the_pointer() {
        let version = Arc::new(SemverVersion::parse("1.2.3").unwrap());
        let mut meter = WorkMeter::new(WorkAllowance::UNLIMITED, StopSignal::default());
        let GoRuntimeValue::Object(next) =
            version.method("IncMinor").unwrap().call(&mut meter, &[]).unwrap()
        else {
            panic!("no object");
        };
        assert_eq!(next.type_name(), "semver.Version");
        assert!(Arc::clone(&next).method("Major").is_some() && next.method("LessThan").is_none());
    }
}
