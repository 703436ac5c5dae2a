//! The values of policies, and the marker comments that say where these values are set.
//!
//! Elsewhere: which comment belongs to which value (`marker_value_rewrite.rs`).

use std::collections::{BTreeMap, BTreeSet};

use golang::GoRuntimeValue;
use golang::json;
use golang::strconv::{QuotingStyle, quote};
use golang::url::GoUrl;
use golang::value::GoMap;

use crate::image_reference::{ImageRef, is_reference};

/// The member of a marker that names a setter.
const SHORT_REFERENCE: &str = "$imagepolicy";

/// The prefix of setter names in a schema.
const DEFINITION_PREFIX: &str = "io.k8s.cli.setters.";

/// The extension of a schema that is a setter.
const SETTER_EXTENSION: &str = "x-k8s-cli";

/// The fields of an ImagePolicy that an update needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyResult {
    /// The namespace of the policy.
    pub namespace: String,
    /// The name of the policy.
    pub name: String,
    /// `status.latestRef`. Without it, the policy sets nothing.
    pub latest: Option<ImageRef>,
}

/// A policy has a result that is not an image reference.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("encountered invalid image ref {}: could not parse reference: {reference}", quoted(.reference))]
pub struct InvalidImageRef {
    /// The result.
    pub reference: String,
}

fn quoted(text: &str) -> String {
    String::from_utf8_lossy(&quote(text.as_bytes(), QuotingStyle::Printable)).into_owned()
}

/// The values of policies, by the names that markers use.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ImageSetterValues {
    values: BTreeMap<String, String>,
    /// Policies as `namespace:name` whose tag may only be written to a file together with the digest.
    with_digest: BTreeSet<String>,
    /// Policies without a result, as `namespace:name`.
    unset: BTreeSet<String>,
}

impl ImageSetterValues {
    /// The setters of some policies: the whole image, and its parts with the suffixes `:tag`, `:name` and `:digest`. If two
    /// policies have the same name, the last one counts.
    ///
    /// # Errors
    /// A result is not an image reference, even if no file uses it.
    pub fn new(policies: &[PolicyResult]) -> Result<Self, InvalidImageRef> {
        let mut values = BTreeMap::new();
        let mut unset = BTreeSet::new();
        for PolicyResult { namespace, name, latest } in policies {
            let setter = format!("{namespace}:{name}");
            let Some(latest) = latest else {
                unset.insert(setter);
                continue;
            };
            let reference = latest.to_string();
            if !is_reference(&reference) {
                return Err(InvalidImageRef { reference });
            }
            values.insert(format!("{setter}:tag"), latest.tag.clone());
            values.insert(format!("{setter}:name"), latest.name.clone());
            values.insert(format!("{setter}:digest"), latest.digest.clone());
            values.insert(setter, reference);
        }
        Ok(Self { values, with_digest: BTreeSet::new(), unset })
    }

    /// Requires that the tags of some policies (`namespace:name`) are only written to a file together with the digest.
    #[must_use]
    pub fn requiring_digests(self, policies: impl IntoIterator<Item = String>) -> Self {
        Self { with_digest: policies.into_iter().collect(), ..self }
    }

    /// Whether any policy requires the digest.
    pub(crate) fn requires_digests(&self) -> bool {
        !self.with_digest.is_empty()
    }

    /// The policies for which the setters of a file set the tag but not the required digest. The digest may be set alone or as
    /// a part of the image.
    pub(crate) fn without_digest<'s>(
        &'s self,
        setters: &'s BTreeSet<String>,
    ) -> impl Iterator<Item = &'s str> {
        let is_tag_alone = move |policy: &&'s str| {
            let sets = |part: &str| setters.contains(&format!("{policy}{part}"));
            sets(":tag") && !sets(":digest") && !sets("")
        };
        self.with_digest.iter().map(String::as_str).filter(is_tag_alone)
    }

    /// Whether a setter refers to a known policy that has no result yet. The name of the setter may end with a part of the
    /// image.
    pub(crate) fn is_unset(&self, setter: &str) -> bool {
        let mut parts = setter.split(':');
        let policy = parts.next().zip(parts.next());
        policy.is_some_and(|(namespace, name)| self.unset.contains(&format!("{namespace}:{name}")))
    }

    pub(crate) fn contains(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }

    /// The assignment for the setter that a reference of a schema leads to. `None` if the reference names no setter or
    /// no value is known for it.
    fn of_reference(&self, reference: &str) -> Option<MarkerAssignment> {
        let name = definition(reference)?;
        let value = self.values.get(&name)?.clone();
        Some(MarkerAssignment { setter: name, value, is_of_policy: true })
    }
}

/// A value that a marker wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MarkerAssignment {
    /// The setter that the change is recorded for.
    pub(crate) setter: String,
    pub(crate) value: String,
    /// Whether the value belongs to a policy, and is therefore a string. A whole setter may have any value.
    pub(crate) is_of_policy: bool,
}

/// The content of a comment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SetterMarker {
    /// The value of the field is replaced.
    Assign(MarkerAssignment),
    /// No setter has this name.
    Unknown(String),
}

impl SetterMarker {
    /// Reads the comment of a value, including its `#`; `None` if it is not a marker.
    ///
    /// Parity(flux): besides `{"$imagepolicy": "…"}` there are two forms that kyaml reads, a `$ref` to a setter and a whole
    /// setter. Differs(flux): a whole setter that is not of strings is not a marker; in Flux the run fails.
    pub(crate) fn read(comment: &str, setters: &ImageSetterValues) -> Option<Self> {
        let text = comment.trim_start_matches('#');
        let decoded = json::decode(text.as_bytes()).ok()?;
        let GoRuntimeValue::Map(members) = decoded.value else { return None };
        let name = short_reference(&members).filter(|name| !name.is_empty());
        if let Some(name) = &name {
            let reference = format!("#/definitions/{DEFINITION_PREFIX}{name}");
            if let Some(assignment) = setters.of_reference(&reference) {
                return Some(Self::Assign(assignment));
            }
        }
        let linked = string(&members, "$ref").and_then(|it| setters.of_reference(&it));
        let assignment = linked.or_else(|| whole_setter(&members));
        assignment.map(Self::Assign).or_else(|| name.map(Self::Unknown))
    }
}

/// The name of a setter in a map; `None` if another value of the map is not a string.
fn short_reference(members: &GoMap) -> Option<String> {
    let is_string =
        |value: &GoRuntimeValue| matches!(value, GoRuntimeValue::String(_) | GoRuntimeValue::Nil);
    let entries = members.entries();
    entries.iter().all(|(_, value)| is_string(value)).then(|| string(members, SHORT_REFERENCE))?
}

fn string(members: &GoMap, name: &str) -> Option<String> {
    match members.get(name.as_bytes())? {
        GoRuntimeValue::String(text) => Some(text.lossy().into_owned()),
        _ => None,
    }
}

/// Reads a marker `{"x-k8s-cli": {"setter": {"name": "…", "value": "…"}}}`. It contains the value, so no policy is
/// needed. `None` if the marker has another form.
fn whole_setter(members: &GoMap) -> Option<MarkerAssignment> {
    let entries = members.entries();
    let is_extension = |key: &[u8]| key.eq_ignore_ascii_case(SETTER_EXTENSION.as_bytes());
    let (_, extension) = entries.into_iter().find(|(key, _)| is_extension(key))?;
    let GoRuntimeValue::Map(extension) = extension else { return None };
    let GoRuntimeValue::Map(setter) = extension.get(b"setter")? else { return None };
    let member = |name: &str| match setter.get(name.as_bytes()) {
        Some(GoRuntimeValue::String(text)) => Some(text.lossy().into_owned()),
        Some(GoRuntimeValue::Nil) | None => Some(String::new()),
        Some(_) => None,
    };
    Some(MarkerAssignment { setter: member("name")?, value: member("value")?, is_of_policy: false })
}

/// The name of the setter in a reference, which is a URL whose fragment is a JSON pointer. `None` if the reference
/// names no setter.
fn definition(reference: &str) -> Option<String> {
    let url = GoUrl::parse(reference.as_bytes()).ok()?;
    let pointer = String::from_utf8(url.fragment).ok()?;
    let key = pointer.strip_prefix("/definitions/")?;
    if key.contains('/') {
        return None;
    }
    let key = key.replace("~1", "/").replace("~0", "~");
    key.strip_prefix(DEFINITION_PREFIX).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn setters() -> ImageSetterValues {
        let policy = |name: &str, tag: &str| {
            let latest = ImageRef {
                name: "ghcr.io/acme/web".to_owned(),
                tag: tag.to_owned(),
                digest: String::new(),
            };
            let namespace = "apps".to_owned();
            PolicyResult { namespace, name: name.to_owned(), latest: Some(latest) }
        };
        ImageSetterValues::new(&[policy("web", "v2"), policy("w~b", "v3")]).unwrap()
    }

    fn value(comment: &str) -> Option<String> {
        match SetterMarker::read(comment, &setters())? {
            SetterMarker::Assign(assignment) => Some(assignment.value),
            SetterMarker::Unknown(name) => Some(format!("unknown {name}")),
        }
    }

    #[test]
    fn a_marker_is_one_object_of_strings() {
        let is = |comment: &str, wanted: &str| assert_eq!(value(comment).as_deref(), Some(wanted));
        is(r#"# {"$imagepolicy": "apps:web:tag"}"#, "v2");
        is(r#"##{"a":"b","$imagepolicy":"apps:web:digest"} "#, "");
        is(
            r#"# {"$imagepolicy": "apps:web", "$imagepolicy": "apps:web:name"}"#,
            "ghcr.io/acme/web",
        );
        is(r#"# {"$imagepolicy": "other:web"}"#, "unknown other:web");
        is(r#"# {"$ref": "x#/definitions/io.k8s.cli.setters.apps:web:tag", "n": 1}"#, "v2");
        is(r#"# {"X-K8S-CLI": {"setter": {"value": "any"}}}"#, "any");
        for none in [
            r#"# {"$imagepolicy": "apps:web"} x"#,
            r#"# {"$imagepolicy": "apps:web", "n": 1}"#,
            r#"# {"$imagepolicy": null}"#,
            r#"# # {"$imagepolicy": "apps:web"}"#,
            "# null",
            r#"# {"x-k8s-cli": {"setter": {"value": 5}}}"#,
        ] {
            assert_eq!(value(none), None, "{none}");
        }
    }

    #[test]
    fn names_are_parts_of_a_pointer_in_a_url() {
        let of = |name: &str| value(&format!(r#"# {{"$imagepolicy": "{name}"}}"#)).unwrap();
        assert_eq!(of("apps:w%65b:tag"), "v2");
        assert_eq!((of("apps:w~0b:tag"), of("apps:w~b:tag")), ("v3".to_owned(), "v3".to_owned()));
        for unknown in ["apps:web~1", "apps:web:tag/", "apps:web%", "apps:web:tag#x", "apps:web:"] {
            assert_eq!(of(unknown), format!("unknown {unknown}"));
        }
    }

    #[test]
    fn a_tag_that_needs_its_digest_has_it_in_the_same_file() {
        let setters = setters().requiring_digests(["apps:web".to_owned()]);
        assert!(setters.requires_digests());
        let alone = |names: &[&str]| {
            let names: BTreeSet<String> = names.iter().map(|name| (*name).to_owned()).collect();
            setters.without_digest(&names).map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(alone(&["apps:web:tag", "apps:web:name"]), ["apps:web"]);
        assert_eq!(alone(&["apps:web:tag", "apps:other:digest"]), ["apps:web"]);
        for fine in [
            vec!["apps:web:tag", "apps:web:digest"],
            vec!["apps:web:tag", "apps:web"],
            vec!["apps:web:name"],
            vec!["apps:other:tag"],
            vec![],
        ] {
            assert!(alone(&fine).is_empty(), "{fine:?}");
        }
    }

    #[test]
    fn a_result_that_is_no_image_fails_all() {
        let latest =
            ImageRef { name: "Web".to_owned(), tag: "1".to_owned(), digest: String::new() };
        let policy =
            PolicyResult { namespace: "a".to_owned(), name: "b".to_owned(), latest: Some(latest) };
        let unset = PolicyResult { latest: None, ..policy.clone() };
        assert!(ImageSetterValues::new(&[unset]).unwrap().values.is_empty());
        let error = ImageSetterValues::new(&[policy]).unwrap_err().to_string();
        assert_eq!(
            error,
            r#"encountered invalid image ref "Web:1": could not parse reference: Web:1"#
        );
    }

    proptest! {
        #[test]
        fn no_comment_breaks_the_reader(comment in "#? ?[{}\":,$a-z0-9~%/#\\[\\] ]{0,40}") {
            let _marker = SetterMarker::read(&comment, &setters());
        }
    }
}
