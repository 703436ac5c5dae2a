//! Seals forms, which proves that a page of this server has a form for this user, this action, this object and this version of
//! the object. The same key seals the messages about finished actions.
//!
//! Another site cannot read a page of this server, so it has no seal. The forms of `windlass ui` are valid until it ends, and
//! those of a user who has logged in until the session ends.
//! Elsewhere: the key of a session, which all replicas derive (`login/sealed_cookie.rs`).

use aws_lc_rs::hmac::{self, HMAC_SHA256};
use windlass_runtime::random_bytes;

use super::ActionForm;
use crate::login::UserSession;

/// The length of the key, in bytes.
const KEY_BYTES: usize = 32;

/// Separates the seal of a message from the message.
const SEAL_END: char = '.';

/// Makes and verifies the seals of forms and of messages.
pub(crate) struct FormSeal {
    key: hmac::Key,
}

impl FormSeal {
    /// Makes a new random key, which stays in memory.
    pub(crate) fn new() -> Self {
        let mut bytes = [0; KEY_BYTES];
        random_bytes::fill(&mut bytes);
        Self { key: hmac::Key::new(HMAC_SHA256, &bytes) }
    }

    /// Uses the key of a session.
    pub(crate) fn of_session(session: &UserSession) -> Self {
        Self { key: hmac::Key::new(HMAC_SHA256, session.form_key.expose()) }
    }

    /// Computes the seal of a form.
    pub(super) fn of(&self, form: &ActionForm) -> String {
        hex::encode(hmac::sign(&self.key, &sealed(form)))
    }

    /// Whether the fixed fields of a form that a browser sent are those of a form of a page.
    pub(super) fn is_on(&self, form: &ActionForm) -> bool {
        self.verifies(&form.seal, &sealed(form))
    }

    /// The message with its seal, as an address contains it.
    pub(super) fn of_message(&self, message: &str) -> String {
        let seal = hmac::sign(&self.key, &sealed_message(message));
        format!("{}{SEAL_END}{message}", hex::encode(seal))
    }

    /// The message of an address. Returns `None` if an action of this user did not end with the message.
    pub(super) fn message(&self, sealed: &str) -> Option<String> {
        let (seal, message) = sealed.split_once(SEAL_END)?;
        self.verifies(seal, &sealed_message(message)).then(|| message.to_owned())
    }

    fn verifies(&self, seal: &str, content: &[u8]) -> bool {
        hex::decode(seal).is_ok_and(|tag| hmac::verify(&self.key, content, &tag).is_ok())
    }
}

/// The fields of a form that the user does not type, as bytes with a separator between the fields.
fn sealed(form: &ActionForm) -> Vec<u8> {
    let ActionForm { action, place, uid, version, digest, .. } = form;
    let parts: [&str; 7] =
        [action.word(), &place.kind, &place.namespace, &place.name, uid, version, digest];
    serde_json::json!(parts).to_string().into_bytes()
}

/// A message as bytes. They are not those of a form, because they are no list.
fn sealed_message(message: &str) -> Vec<u8> {
    serde_json::json!(message).to_string().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::super::ObjectAction;
    use super::*;
    use crate::route::ObjectAddress;

    fn form() -> ActionForm {
        let [kind, namespace, name] = ["ks", "apps", "web"].map(str::to_owned);
        ActionForm {
            action: ObjectAction::Suspend,
            place: ObjectAddress { kind, namespace, name },
            uid: "u".to_owned(),
            version: "7".to_owned(),
            generation: 1,
            digest: String::new(),
            seal: String::new(),
            reason: String::new(),
            until: String::new(),
            branch: String::new(),
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

    #[test]
    fn a_message_is_that_of_a_finished_action_and_no_seal_of_a_form() {
        let seal = FormSeal::new();
        let sealed = seal.of_message("Kustomization/apps/web is resumed. <b>");
        assert_eq!(seal.message(&sealed).unwrap(), "Kustomization/apps/web is resumed. <b>");
        assert_eq!(FormSeal::new().message(&sealed), None);
        let of_form = format!("{}.Kustomization/apps/web is resumed", seal.of(&form()));
        let invented = sealed.replace("resumed", "deleted");
        for other in ["", ".", "it is all well", "00.it is all well", &of_form, &invented] {
            assert_eq!(seal.message(other), None, "{other}");
        }
    }
}
