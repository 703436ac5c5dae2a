//! Seals forms, which proves that this process made a form for this action, this object and this version of the object.
//!
//! Another site cannot read a page of this server, so it has no seal. After the server has ended, its forms are no longer
//! valid.

use aws_lc_rs::hmac::{self, HMAC_SHA256};
use windlass_runtime::random_bytes;

use super::ActionForm;

/// The length of the key, in bytes.
const KEY_BYTES: usize = 32;

/// Makes and verifies the seals of forms.
pub(super) struct FormSeal {
    key: hmac::Key,
}

impl FormSeal {
    /// Makes a new random key, which stays in memory.
    pub(super) fn new() -> Self {
        let mut bytes = [0; KEY_BYTES];
        random_bytes::fill(&mut bytes);
        Self { key: hmac::Key::new(HMAC_SHA256, &bytes) }
    }

    /// Computes the seal of a form.
    pub(super) fn of(&self, form: &ActionForm) -> String {
        hex::encode(hmac::sign(&self.key, &sealed(form)))
    }

    /// Whether the fixed fields of a form that a browser sent are unchanged since this process made the form.
    pub(super) fn is_on(&self, form: &ActionForm) -> bool {
        let Ok(tag) = hex::decode(&form.seal) else { return false };
        hmac::verify(&self.key, &sealed(form), &tag).is_ok()
    }
}

/// The fields of a form that the user does not type, as bytes with a separator between the fields.
fn sealed(form: &ActionForm) -> Vec<u8> {
    let ActionForm { action, place, uid, version, digest, .. } = form;
    let parts: [&str; 7] =
        [action.word(), &place.kind, &place.namespace, &place.name, uid, version, digest];
    serde_json::json!(parts).to_string().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::super::ObjectAction;
    use super::*;
    use crate::route::ObjectPlace;

    fn form() -> ActionForm {
        let [kind, namespace, name] = ["ks", "apps", "web"].map(str::to_owned);
        ActionForm {
            action: ObjectAction::Suspend,
            place: ObjectPlace { kind, namespace, name },
            uid: "u".to_owned(),
            version: "7".to_owned(),
            generation: 1,
            digest: String::new(),
            seal: String::new(),
            reason: String::new(),
            until: String::new(),
        }
    }

    #[test]
    fn a_form_counts_for_what_it_was_made_for_only() {
        let seal = FormSeal::new();
        let sealed = ActionForm { seal: seal.of(&form()), ..form() };
        assert!(seal.is_on(&sealed));
        let typed =
            ActionForm { reason: "because".to_owned(), until: "2h".to_owned(), ..sealed.clone() };
        assert!(seal.is_on(&typed));
        let mut place = sealed.place.clone();
        place.name = "db".to_owned();
        for other in [
            ActionForm { action: ObjectAction::Resume, ..sealed.clone() },
            ActionForm { place, ..sealed.clone() },
            ActionForm { uid: "v".to_owned(), ..sealed.clone() },
            ActionForm { version: "8".to_owned(), ..sealed.clone() },
            ActionForm { digest: "d".to_owned(), ..sealed.clone() },
            ActionForm { seal: String::new(), ..sealed.clone() },
            ActionForm { seal: "00".repeat(32), ..sealed.clone() },
            ActionForm { seal: "zz".to_owned(), ..sealed.clone() },
        ] {
            assert!(!seal.is_on(&other), "{other:?}");
        }
        assert!(!FormSeal::new().is_on(&sealed), "of another process");
    }
}
