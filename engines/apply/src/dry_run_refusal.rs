//! How an API server's refusal of a dry-run is reported, and when it means that an object must be recreated.
//!
//! Here: judging a refusal by its reason and message, joining the refusals of one run in one text, and splitting that
//! text again. Elsewhere: sending the dry-run (the program).

use std::borrow::Cow;
use std::collections::BTreeMap;

use objects::ObjectId;

/// The message that says which object was refused and why, in Flux's words.
///
/// `reason` is the `reason` of the API server's Status. It is empty if the Status has none.
pub fn describe(id: &ObjectId, reason: &str, message: &str) -> String {
    let subject = id.subject();
    match (reason, id.namespace.is_empty()) {
        ("NotFound", true) => format!("{subject} namespace not specified: {message}"),
        ("NotFound", false) => format!("{subject} not found: {message}"),
        ("", _) => format!("{subject} dry-run failed: {message}"),
        _ => format!("{subject} dry-run failed ({reason}): {message}"),
    }
}

/// How many objects are named that were refused for the same reason.
const MOST_NAMED: usize = 8;

/// How many objects have to be refused for the same reason to be reported in one line.
const MIN_GROUPED_REFUSALS: usize = 3;

/// How many lines the refusals of a run may take. The objects of further refusals are only counted.
const MAX_REFUSAL_LINES: usize = 64;

/// Joins all refusals of a run in one text. Refusals that differ only by their object share one line, such as those for
/// a missing CustomResourceDefinition. That line names the first objects and counts all of them.
pub(crate) fn together(refused: &[(&ObjectId, &str)]) -> String {
    let key = |(id, text): &(&ObjectId, &str)| {
        let bare = text.replace(&id.subject(), "").replace(&format!("\"{}\"", id.name), "");
        (id.kind.clone(), bare)
    };
    let mut lines: Vec<Vec<&(&ObjectId, &str)>> = Vec::new();
    let mut places: BTreeMap<(String, String), usize> = BTreeMap::new();
    for one in refused {
        let key = key(one);
        match places.get(&key).and_then(|at| lines.get_mut(*at)) {
            Some(alike) => alike.push(one),
            None => {
                places.insert(key, lines.len());
                lines.push(vec![one]);
            }
        }
    }
    let omitted: usize = lines.iter().skip(MAX_REFUSAL_LINES).map(Vec::len).sum();
    let shown = lines.iter().take(MAX_REFUSAL_LINES);
    let descriptions = shown.flat_map(|alike| match alike.as_slice() {
        [(_, text), ..] if alike.len() >= MIN_GROUPED_REFUSALS => {
            let named = alike.iter().take(MOST_NAMED).map(|(id, _)| id.subject());
            let named = named.collect::<Vec<_>>().join(", ");
            let more = alike.len().saturating_sub(MOST_NAMED);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            vec![format!("{text} ({} objects: {named}{more})", alike.len())]
        }
        few => few.iter().map(|(_, text)| (*text).to_owned()).collect(),
    });
    let rest = (omitted > 0).then(|| format!("and {omitted} more objects were rejected"));
    descriptions.chain(rest).collect::<Vec<_>>().join("\n")
}

/// The first refusal of a joined text, with the number of further ones. Any other text is returned as it is.
pub fn first_with_count(text: &str) -> Cow<'_, str> {
    match split(text).as_slice() {
        [first, more @ ..] if !more.is_empty() => {
            format!("{first} (and {} more)", more.len()).into()
        }
        _ => text.into(),
    }
}

/// The words that follow the object in a refusal that [`describe`] wrote.
const WORDS_AFTER_OBJECT: [&str; 3] =
    ["dry-run failed", "not found: ", "namespace not specified: "];

/// The object named at the beginning of a refusal. `None` if the refusal begins with no object, or is about several.
pub fn subject(refusal: &str) -> Option<&str> {
    first_object(refusal).filter(|_| !is_of_several(refusal))
}

fn first_object(refusal: &str) -> Option<&str> {
    let (subject, rest) = refusal.split_once(' ')?;
    let is_refusal = WORDS_AFTER_OBJECT.iter().any(|words| rest.starts_with(words));
    (is_refusal && subject.contains('/')).then_some(subject)
}

/// Whether a refusal is about several objects that were refused for the same reason.
pub fn is_of_several(refusal: &str) -> bool {
    refusal.ends_with(')') && refusal.contains(" objects: ")
}

/// Splits a text with several dry-run refusals of one run into the single refusals.
///
/// A refusal may have several lines, as the API server writes them. A text of another form is returned as one part.
pub fn split(text: &str) -> Vec<&str> {
    let mut begins = vec![0];
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        if at > 0 && first_object(line).is_some() {
            begins.push(at);
        }
        at += line.len();
    }
    let ends = begins.iter().skip(1).copied().chain([text.len()]);
    begins
        .iter()
        .zip(ends)
        .filter_map(|(from, to)| text.get(*from..to))
        .map(str::trim_end)
        .collect()
}

/// Whether a refusal may go away when the object is deleted and created again, which `force` allows.
///
/// Parity(flux): every `Conflict` and `Invalid` counts, so a manifest that is plainly wrong counts as well.
/// Deleting for one of those destroys a good object for nothing: make sure first that the manifest would be accepted.
pub fn may_be_immutable(reason: &str, message: &str) -> bool {
    matches!(reason, "Conflict" | "Invalid") || says_immutable(message)
}

/// Whether a refusal names an immutable field.
pub fn says_immutable(message: &str) -> bool {
    message.contains("is immutable") || message.contains("immutable field")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_object_reason_and_message() {
        let id = ObjectId::new("shop", "web", "apps", "Deployment");
        assert_eq!(
            describe(&id, "Invalid", "bad"),
            "Deployment/shop/web dry-run failed (Invalid): bad"
        );
        assert_eq!(describe(&id, "", "bad"), "Deployment/shop/web dry-run failed: bad");
        assert_eq!(describe(&id, "NotFound", "no ns"), "Deployment/shop/web not found: no ns");
        let id = ObjectId::new("", "web", "apps", "Deployment");
        assert_eq!(describe(&id, "NotFound", "x"), "Deployment/web namespace not specified: x");
    }

    #[test]
    fn refusals_that_differ_by_their_object_alone_are_one_line() {
        let ids: Vec<ObjectId> = (0..60)
            .map(|at| {
                ObjectId::new("apps", &format!("s{at}"), "external-secrets.io", "ExternalSecret")
            })
            .collect();
        let texts: Vec<String> = ids
            .iter()
            .map(|id| describe(id, "", "no matches for kind \"ExternalSecret\""))
            .collect();
        let mut refused: Vec<(&ObjectId, &str)> =
            ids.iter().zip(texts.iter().map(String::as_str)).collect();
        let web = ObjectId::new("apps", "web", "apps", "Deployment");
        refused.insert(1, (&web, "Deployment/apps/web dry-run failed: bad"));
        let text = together(&refused);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2);
        assert!(
            lines[0].starts_with(
                "ExternalSecret/apps/s0 dry-run failed: no matches for kind \"ExternalSecret\" (60 objects: \
                 ExternalSecret/apps/s0, ExternalSecret/apps/s1, "
            ) && lines[0].ends_with("ExternalSecret/apps/s7 and 52 more)"),
            "{text}"
        );
        assert_eq!(lines[1], "Deployment/apps/web dry-run failed: bad");
        // A few refusals are listed one by one, and so are those that differ.
        assert_eq!(together(&refused[..4]).lines().count(), 2);
        assert_eq!(together(&refused[..3]).lines().count(), 3);
        // They are taken apart as they were put together.
        assert_eq!(split(&text), lines);
        assert_eq!((subject(lines[0]), subject(lines[1])), (None, Some("Deployment/apps/web")));
    }

    #[test]
    fn a_line_has_the_first_refusal_and_counts_the_others() {
        let first = "Service/apps/a dry-run failed (Invalid): spec: Invalid value:\nis wrong";
        let second = "Deployment/apps/b dry-run failed (Forbidden): no";
        let several = format!("{first}\n{second}\n{second}");
        assert_eq!(first_with_count(&several), format!("{first} (and 2 more)"));
        for one in [first, "", "build failed:\na.yaml: line 3"] {
            assert_eq!(first_with_count(one), one);
        }
    }

    #[test]
    fn a_text_has_a_bounded_number_of_refusals() {
        let ids: Vec<ObjectId> =
            (0..70).map(|at| ObjectId::new("apps", "a", "", &format!("Kind{at}"))).collect();
        let texts: Vec<String> =
            ids.iter().map(|id| describe(id, "Forbidden", &format!("no {}", id.kind))).collect();
        let refused: Vec<(&ObjectId, &str)> =
            ids.iter().zip(texts.iter().map(String::as_str)).collect();
        let text = together(&refused);
        assert_eq!(text.lines().count(), MAX_REFUSAL_LINES + 1);
        assert!(text.ends_with("\nand 6 more objects were rejected"), "{text}");
    }

    #[test]
    fn the_lines_of_one_refusal_stay_together() {
        let first =
            "Service/apps/a dry-run failed (Invalid): spec: Invalid value:\n1/2 of it\nis wrong";
        let second = "Widget/w namespace not specified: the server could not find it";
        assert_eq!(split(&format!("{first}\n{second}")), [first, second]);
        let other = "build failed:\na.yaml: line 3";
        assert_eq!((split(other), subject(other)), (vec![other], None));
        assert_eq!(split(""), [""]);
    }

    #[test]
    fn immutability_is_read_from_the_reason_or_the_text() {
        assert!(may_be_immutable("Invalid", ""));
        assert!(may_be_immutable("Forbidden", "admission denied: field is immutable here"));
        assert!(!may_be_immutable("Forbidden", "quota exceeded"));
        assert!(!says_immutable("Invalid value"));
    }
}
