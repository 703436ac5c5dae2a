//! The template functions for versions and version ranges. Elsewhere: the methods of versions (`golang::semver`).

use golang::GoRuntimeValue;
use golang::semver::{MAX_VERSION, SemverVersion, SemverVersionError, VersionConstraint};
use golang::strconv::parse_uint;
use gotemplate::TemplateFunctionError;

use crate::arguments::{SprigResult, text};
use crate::function_table::{SprigFunctionEntry, plain};

pub(crate) const ENTRIES: &[SprigFunctionEntry] = &[
    plain("semver", "func(string) (*semver.Version, error)", semver),
    plain("semverCompare", "func(string, string) (bool, error)", semver_compare),
];

/// The function `semver` of templates: reads a text as a version.
fn semver(args: &[GoRuntimeValue]) -> SprigResult {
    Ok(GoRuntimeValue::object(version(text(args, 0))?))
}

/// Whether the version in the second text is within the range in the first.
fn semver_compare(args: &[GoRuntimeValue]) -> SprigResult {
    let range = String::from_utf8_lossy(text(args, 0));
    let constraint = VersionConstraint::parse_in_go_words(&range)?;
    Ok(GoRuntimeValue::Bool(constraint.matches(&version(text(args, 1))?)))
}

/// Reads a version, with the words of Masterminds/semver.
fn version(text: &[u8]) -> Result<SemverVersion, TemplateFunctionError> {
    let text = String::from_utf8_lossy(text);
    SemverVersion::parse(&text).map_err(|error| match error {
        SemverVersionError::TooLong => {
            format!("version string is too long (max {MAX_VERSION} bytes)").into()
        }
        SemverVersionError::LeadingZero => "version segment starts with 0".into(),
        SemverVersionError::InvalidNumber => {
            let numbers = text.trim_start_matches('v').split(['.', '-', '+']);
            let reason = numbers.take(3).find_map(|number| parse_uint(number, 10, 64).err());
            let reason = reason.map_or_else(String::new, |reason| reason.to_string());
            format!("error parsing version segment: {reason}").into()
        }
        _ => "invalid semantic version".into(),
    })
}

#[cfg(test)]
mod tests {
    use crate::testing::check;

    #[test]
    fn versions_are_read_and_compared() {
        check(&[
            (
                r#"{{ semver "v1.2" }} {{ (semver "1.2.3-a+b").Prerelease }} {{ (semver "1.2.3").IncMinor }}"#,
                "1.2.0 a 1.3.0",
            ),
            (
                r#"{{ (semver "1.2.3").Compare (semver "1.3.0") }} {{ (semver "v1.2").Original }}"#,
                "-1 v1.2",
            ),
            (
                r#"{{ semverCompare ">=1.19-0" "1.25.3-gke.100" }} {{ semverCompare "~1.2.3" "1.3.0" }}"#,
                "true false",
            ),
        ]);
    }

    #[test]
    fn what_is_no_version_is_refused_in_the_library_s_words() {
        check(&[
            (r#"{{ semver "" }}"#, "error: error calling semver: invalid semantic version"),
            (
                r#"{{ semver "1.2.3-01" }}"#,
                "error: error calling semver: version segment starts with 0",
            ),
            (
                r#"{{ semver "1.99999999999999999999" }}"#,
                r#"error: error calling semver: error parsing version segment: strconv.ParseUint: parsing "99999999999999999999": value out of range"#,
            ),
            (
                r#"{{ semverCompare "foo" "1.0.0" }}"#,
                r#"error: error calling semverCompare: improper constraint: "foo""#,
            ),
            (
                r#"{{ semverCompare "1.2.3-01" "1.0.0" }}"#,
                "error: error calling semverCompare: constraint parser error",
            ),
            (
                r#"{{ semverCompare (repeat 200 "1||") "1" }}"#,
                "error: error calling semverCompare: constraint string is too long (max 512 bytes)",
            ),
            (
                r#"{{ semverCompare (repeat 40 "1||") "1" }}"#,
                "error: error calling semverCompare: too many constraint groups (max 32)",
            ),
        ]);
    }
}
