//! The lines about members in a ChangeSet, each of at most 64 bytes and of a limited number.
//!
//! A name that is too long is cut, and a part of its digest is appended, so that it still identifies one object.

use super::digest_of;
use super::member_state::MemberState;

/// How many lines are listed. As JSON, they take at most 128 KiB.
const MAX_LINES: usize = 1_900;

/// How many bytes a name in a line may have, next to the longest state, mark and kind.
const MAX_NAME_BYTES: usize = 44;

/// How many hexadecimal digits of the digest a cut name ends with.
const NAME_DIGEST_LENGTH: usize = 8;

/// The mark of a member whose spec another member applied.
const CHILD: &str = "> ";

/// The kind of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MemberKind {
    /// A Kustomization.
    Kustomization,
    /// A HelmRelease.
    HelmRelease,
    /// A Helmfile.
    Helmfile,
    /// A Helmfile of helmfile-operator.
    OperatorHelmfile,
}

impl MemberKind {
    /// All kinds.
    pub const ALL: [Self; 4] =
        [Self::Kustomization, Self::HelmRelease, Self::Helmfile, Self::OperatorHelmfile];

    /// The kind of an object as a member. `None` if the object applies nothing and cannot be a member.
    #[must_use]
    pub fn of(group: &str, kind: &str) -> Option<Self> {
        match (group, kind) {
            ("kustomize.toolkit.fluxcd.io", "Kustomization") => Some(Self::Kustomization),
            ("helm.toolkit.fluxcd.io", "HelmRelease") => Some(Self::HelmRelease),
            ("helmfile.windlass.dev", "Helmfile") => Some(Self::Helmfile),
            ("apps.mumoshu.github.io", "Helmfile") => Some(Self::OperatorHelmfile),
            _ => None,
        }
    }

    /// The name of the kind in lines.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Kustomization => "ks",
            Self::HelmRelease => "hr",
            Self::Helmfile => "hf",
            Self::OperatorHelmfile => "hfo",
        }
    }
}

/// A member of a change.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChangeSetMember {
    /// The progress of the member.
    pub state: MemberState,
    /// Whether another member applied the member's spec.
    pub is_child: bool,
    /// The kind of the member.
    pub kind: MemberKind,
    /// The name of the member.
    pub name: String,
}

/// A name in the form that lines have, which is cut if it is too long.
#[must_use]
pub fn shown_name(name: &str) -> String {
    if name.len() <= MAX_NAME_BYTES {
        return name.to_owned();
    }
    let begin = name.floor_char_boundary(MAX_NAME_BYTES - NAME_DIGEST_LENGTH - 1);
    format!("{}~{}", &name[..begin], digest_of(&[name], NAME_DIGEST_LENGTH))
}

impl ChangeSetMember {
    /// The kind and name of the member, in the form that lines have.
    #[must_use]
    pub fn subject(&self) -> String {
        format!("{}/{}", self.kind.as_str(), shown_name(&self.name))
    }

    /// The line about the member.
    fn line(&self) -> String {
        let mark = if self.is_child { CHILD } else { "" };
        format!("{} {mark}{}", self.state.as_str(), self.subject())
    }
}

/// The kind and name of an object, in the form that lines have. `None` if the object applies nothing.
#[must_use]
pub fn subject_of(group: &str, kind: &str, name: &str) -> Option<String> {
    MemberKind::of(group, kind).map(|kind| format!("{}/{}", kind.as_str(), shown_name(name)))
}

/// The parts of a line about a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberLineFields<'l> {
    /// The progress of the member.
    pub state: MemberState,
    /// Whether another member applied the member's spec.
    pub is_child: bool,
    /// The kind and name of the member, in the form that lines have.
    pub subject: &'l str,
}

/// Reads a line about a member. `None` if the text is not such a line.
#[must_use]
pub fn read(line: &str) -> Option<MemberLineFields<'_>> {
    let (state, subject) = line.split_once(' ')?;
    let state = MemberState::ALL.into_iter().find(|it| it.as_str() == state)?;
    let child = subject.strip_prefix(CHILD);
    Some(MemberLineFields { state, is_child: child.is_some(), subject: child.unwrap_or(subject) })
}

/// The lines about members, failures first, and the number of members without a line.
#[must_use]
pub fn lines(mut members: Vec<ChangeSetMember>) -> (Vec<String>, usize) {
    members.sort();
    let omitted = members.len().saturating_sub(MAX_LINES);
    let lines = members.iter().take(MAX_LINES).map(ChangeSetMember::line).collect();
    (lines, omitted)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The longest line, in bytes.
    const MAX_LINE_BYTES: usize = 64;

    fn member(state: MemberState, name: &str) -> ChangeSetMember {
        ChangeSetMember {
            state,
            is_child: true,
            kind: MemberKind::OperatorHelmfile,
            name: name.to_owned(),
        }
    }

    #[test]
    fn a_line_is_short_whatever_the_name_is_and_still_names_one_object() {
        let long = "x".repeat(253);
        for state in MemberState::ALL {
            for kind in MemberKind::ALL {
                let line = ChangeSetMember { kind, ..member(state, &long) }.line();
                assert!(line.len() <= MAX_LINE_BYTES, "{line}");
                let read = read(&line).unwrap();
                assert_eq!((read.state, read.is_child), (state, true));
            }
        }
        assert_ne!(shown_name(&long), shown_name(&format!("{long}y")));
        assert_eq!(shown_name("shop"), "shop");
    }

    #[test]
    fn only_kinds_that_apply_objects_are_members() {
        let kind = MemberKind::of;
        assert_eq!(kind("helm.toolkit.fluxcd.io", "HelmRelease"), Some(MemberKind::HelmRelease));
        assert_eq!(kind("helmfile.windlass.dev", "Helmfile"), Some(MemberKind::Helmfile));
        let operator = Some(MemberKind::OperatorHelmfile);
        assert_eq!(kind("apps.mumoshu.github.io", "Helmfile"), operator);
        assert_eq!(kind("source.toolkit.fluxcd.io", "GitRepository"), None);
        assert_eq!(kind("example.com", "Kustomization"), None);
        let subject = subject_of("kustomize.toolkit.fluxcd.io", "Kustomization", "shop");
        assert_eq!(subject.as_deref(), Some("ks/shop"));
    }

    #[test]
    fn all_lines_fit_and_failures_come_first() {
        let mut members: Vec<_> =
            (0..5_000).map(|at| member(MemberState::Succeeded, &format!("{at:0253}"))).collect();
        members.push(member(MemberState::Failed, "z"));
        let (lines, omitted) = lines(members);
        assert_eq!((lines.len(), omitted), (MAX_LINES, 5_001 - MAX_LINES));
        assert_eq!(lines[0], "Failed > hfo/z");
        let bytes: usize = lines.iter().map(|line| line.len() + 3).sum();
        assert!(bytes <= 128 << 10, "{bytes}");
    }

    #[test]
    fn a_line_is_read_as_it_was_written() {
        let direct = ChangeSetMember { is_child: false, ..member(MemberState::Waiting, "shop") };
        let line = direct.line();
        let expected =
            MemberLineFields { state: MemberState::Waiting, is_child: false, subject: "hfo/shop" };
        assert_eq!(read(&line), Some(expected));
        assert_eq!(direct.subject(), "hfo/shop");
        assert_eq!(read("Future ks/shop"), None);
        assert_eq!(read(""), None);
    }
}
