//! Dependencies on objects of any kind, as the annotation [`ANNOTATION`] lists them.
//!
//! Here: [`Needed`], from the text of the annotation. Elsewhere: whether what is needed is ready (the program), what
//! follows from that (`gate.rs`).

use std::fmt;

/// Lists what has to be ready before an object is applied.
pub const ANNOTATION: &str = "windlass.dev/depends-on";

/// How many an object may have.
const MOST: usize = 64;

/// Longest text that is repeated, in characters.
const SHOWN: usize = 200;

/// What an object needs: another object, or a part of it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Needed {
    /// The kind, such as `Helmfile`; with its group where another kind is called the same, such as
    /// `Helmfile.apps.mumoshu.github.io`.
    pub kind: String,
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// A release of a Helmfile: its name, or its namespace and name.
    pub part: Option<String>,
}

impl Needed {
    /// Whether an object of this kind may be meant.
    pub fn may_be(&self, group: &str, kind: &str) -> bool {
        self.kind == kind || self.kind.split_once('.') == Some((kind, group))
    }
}

/// As the annotation has it.
impl fmt::Display for Needed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, namespace, name, part } = self;
        write!(f, "{kind}/{namespace}/{name}")?;
        part.as_ref().map_or(Ok(()), |part| write!(f, "#{part}"))
    }
}

/// Reads `KIND/NAMESPACE/NAME#RELEASE`, of which there may be several with commas between them; without a namespace it is
/// `own`.
///
/// # Errors
/// The entry that cannot be read, and how one is written.
pub fn parse(text: &str, own: &str) -> Result<Vec<Needed>, String> {
    let mut all: Vec<Needed> = Vec::new();
    for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
        let needed = one(entry, own).ok_or_else(|| {
            let shown: String = entry.chars().take(SHOWN).collect();
            format!("`{shown}` is not KIND/NAMESPACE/NAME or Helmfile/NAMESPACE/NAME#RELEASE")
        })?;
        if !all.contains(&needed) {
            all.push(needed);
        }
        if all.len() > MOST {
            return Err(format!("it names more than {MOST} objects"));
        }
    }
    Ok(all)
}

fn one(entry: &str, own: &str) -> Option<Needed> {
    let (object, part) = match entry.split_once('#') {
        Some((object, part)) => (object, Some(part)),
        None => (entry, None),
    };
    let (kind, namespace, name) = match object.split('/').collect::<Vec<_>>().as_slice() {
        [kind, name] => (*kind, own, *name),
        [kind, namespace, name] => (*kind, *namespace, *name),
        _ => return None,
    };
    let is_name = |text: &str| {
        let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
        !text.is_empty() && text.len() <= 253 && text.bytes().all(is_of_name)
    };
    let is_part = |part: &str| part.split('/').count() <= 2 && part.split('/').all(is_name);
    let is_read = [kind, namespace, name].into_iter().all(is_name) && part.is_none_or(is_part);
    is_read.then(|| Needed {
        kind: kind.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        part: part.map(str::to_owned),
    })
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn a_kind_may_be_named_with_its_group() {
        let may_be = |text: &str, group| parse(text, "own").unwrap()[0].may_be(group, "Helmfile");
        for group in ["helmfile.windlass.dev", "apps.mumoshu.github.io"] {
            assert!(may_be("Helmfile/a", group));
        }
        let qualified = "Helmfile.apps.mumoshu.github.io/a";
        assert!(may_be(qualified, "apps.mumoshu.github.io"));
        assert!(!may_be(qualified, "helmfile.windlass.dev") && !may_be("HelmRelease/a", "x"));
    }

    #[test]
    fn entries_are_read_with_and_without_a_namespace_and_a_release() {
        let read = |text: &str| {
            let all = parse(text, "own")?;
            Ok::<_, String>(all.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))
        };
        assert_eq!(
            read(
                "Helmfile/a/b#c, HelmRelease/d,,Kustomization/e/f, Helmfile/a/b#c,Helmfile/a/b#n/c"
            ),
            Ok("Helmfile/a/b#c HelmRelease/own/d Kustomization/e/f Helmfile/a/b#n/c".to_owned())
        );
        assert_eq!(read(" "), Ok(String::new()));
        for wrong in
            ["a", "Helmfile/a/b/c", "Helmfile//b", "Helmfile/a/b#", "Helmfile/a/b#c/d/e", "a/b c"]
        {
            assert!(
                read(wrong).is_err_and(|error| error.contains(&format!("`{wrong}`"))),
                "{wrong}"
            );
        }
        let many: Vec<String> = (0..65).map(|number| format!("HelmRelease/r{number}")).collect();
        assert!(read(&many.join(",")).is_err_and(|error| error.contains("more than 64")));
    }
}
