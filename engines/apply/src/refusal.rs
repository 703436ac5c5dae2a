//! How an API server's refusal of a dry-run is told, and when it means that an object must be recreated.
//!
//! Here: judging a refusal by its reason and text. Elsewhere: sending the dry-run (the program).

use objects::ObjectId;

/// Tells which object was refused and why, in Flux's words.
///
/// `reason` is the `reason` of the API server's Status, empty when there is none.
pub fn describe(id: &ObjectId, reason: &str, message: &str) -> String {
    let subject = id.subject();
    match (reason, id.namespace.is_empty()) {
        ("NotFound", true) => format!("{subject} namespace not specified: {message}"),
        ("NotFound", false) => format!("{subject} not found: {message}"),
        ("", _) => format!("{subject} dry-run failed: {message}"),
        _ => format!("{subject} dry-run failed ({reason}): {message}"),
    }
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
    fn immutability_is_read_from_the_reason_or_the_text() {
        assert!(may_be_immutable("Invalid", ""));
        assert!(may_be_immutable("Forbidden", "admission denied: field is immutable here"));
        assert!(!may_be_immutable("Forbidden", "quota exceeded"));
        assert!(!says_immutable("Invalid value"));
    }
}
