//! Refspecs: further references of the remote to which a commit is pushed, besides its branch.

use super::PushError;
use crate::error::shown;
use crate::reference::full_name;

/// The full name of the reference that a refspec such as `HEAD:refs/for/main` sends a branch to.
///
/// The source is `HEAD`, the full name of the branch that was pushed, or a pattern with one `*` that matches it.
///
/// Parity(flux): a refspec that forces (`+…`), deletes (`:…`) or has no destination is refused.
/// Differs(flux): `HEAD` is understood, where there the push fails after the branch was pushed.
///
/// # Errors
/// [`PushError::InvalidRefspec`], saying what is wrong; [`Error::InvalidReference`](crate::Error::InvalidReference) for a
/// destination that Git does not take for a name.
pub fn refspec_destination(refspec: &str, branch: &str) -> Result<String, PushError> {
    let invalid = |reason: String| PushError::InvalidRefspec { refspec: shown(refspec), reason };
    if refspec.starts_with('+') {
        return Err(invalid("a refspec that begins with `+` is not allowed".to_owned()));
    }
    let pair = refspec.split_once(':').filter(|(_, to)| !to.is_empty() && !to.contains(':'));
    let Some((from, to)) = pair else {
        return Err(invalid("it must be `source:destination`".to_owned()));
    };
    if from.is_empty() {
        return Err(invalid("a refspec without a source is not allowed".to_owned()));
    }
    let own = format!("refs/heads/{branch}");
    let destination = match (from.split_once('*'), to.split_once('*')) {
        (None, None) if from == "HEAD" || from == own => Some(to.to_owned()),
        (Some((prefix, suffix)), Some((before, after))) => {
            let rest = own.strip_prefix(prefix).and_then(|rest| rest.strip_suffix(suffix));
            rest.map(|rest| format!("{before}{rest}{after}"))
        }
        (None, None) => None,
        _ => return Err(invalid("either both sides have a `*` or none has".to_owned())),
    };
    let unmatched = || invalid(format!("its source matches neither `HEAD` nor `{}`", shown(&own)));
    let destination = destination.ok_or_else(unmatched)?;
    if !destination.starts_with("refs/") || destination.contains('*') {
        return Err(invalid(
            "its destination must be a full name, as in `refs/heads/x`".to_owned(),
        ));
    }
    Ok(full_name("destination", "", &destination)?)
}

#[cfg(test)]
mod tests {
    use super::refspec_destination;

    fn destination(refspec: &str) -> String {
        refspec_destination(refspec, "main").unwrap_or_else(|error| error.to_string())
    }

    #[test]
    fn a_refspec_sends_the_branch_or_head_to_a_full_name() {
        assert_eq!(destination("refs/heads/main:refs/heads/copy"), "refs/heads/copy");
        assert_eq!(destination("HEAD:refs/for/main"), "refs/for/main");
        assert_eq!(destination("refs/heads/*:refs/heads/copy/*"), "refs/heads/copy/main");
        assert_eq!(destination("refs/*in:refs/x/*"), "refs/x/heads/ma");
    }

    #[test]
    fn a_refspec_that_forces_deletes_or_means_nothing_is_refused() {
        for (refspec, reason) in [
            ("+refs/heads/main:refs/heads/x", "a refspec that begins with `+` is not allowed"),
            (":refs/heads/x", "a refspec without a source is not allowed"),
            ("refs/heads/main", "it must be `source:destination`"),
            ("refs/heads/main:", "it must be `source:destination`"),
            ("a:b:c", "it must be `source:destination`"),
            ("refs/heads/*:refs/heads/x", "either both sides have a `*` or none has"),
            ("main:refs/heads/x", "its source matches neither `HEAD` nor `refs/heads/main`"),
            ("HEAD:main", "its destination must be a full name, as in `refs/heads/x`"),
        ] {
            assert_eq!(destination(refspec), format!("invalid refspec `{refspec}`: {reason}"));
        }
        for refspec in ["HEAD:refs/heads/../x", "HEAD:refs/heads/a\nb", "HEAD:refs/heads/x.lock"] {
            let error = destination(refspec);
            assert!(error.contains("is not a valid destination"), "{error}");
        }
    }
}
