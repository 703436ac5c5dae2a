//! The template functions for passwords: hashing them, and deriving them from a master password.

use aws_lc_rs::hmac;
use blowfish::Blowfish;
use golang::GoRuntimeValue;
use gotemplate::{FunctionCallContext, TemplateFunctionError};
use scrypt::{Params, scrypt};

use crate::arguments::{TEXT_OVERHEAD_BYTES, int, text};
use crate::function_table::{SprigFunctionEntry, bounded, random};
use crate::template_environment::RandomBytesEnvironment;

pub(crate) const ENTRIES: &[SprigFunctionEntry] = &[
    random("bcrypt", "func(string) string", bcrypt),
    random("htpasswd", "func(string, string) string", htpasswd),
    bounded(
        "derivePassword",
        "func(uint32, string, string, string, string) string",
        derive_password,
    ),
];

/// Two to this power times the key is mixed in.
const BCRYPT_COST: u32 = 10;
/// The steps that a hash counts for. Hashing cannot be interrupted.
const PASSWORD_HASH_STEPS: usize = 1_000_000;

/// Hashes a password by bcrypt. If the password is not valid, the result is the error's text.
fn bcrypt(
    template_environment: RandomBytesEnvironment<'_>,
    call: &mut FunctionCallContext<'_>,
    args: &[GoRuntimeValue],
) -> Result<GoRuntimeValue, TemplateFunctionError> {
    call.work(PASSWORD_HASH_STEPS)?;
    call.produce(TEXT_OVERHEAD_BYTES + 60)?;
    Ok(GoRuntimeValue::from(hashed(template_environment, text(args, 0))))
}

/// A line of an htpasswd file: a name, and a password hashed by bcrypt.
fn htpasswd(
    template_environment: RandomBytesEnvironment<'_>,
    call: &mut FunctionCallContext<'_>,
    args: &[GoRuntimeValue],
) -> Result<GoRuntimeValue, TemplateFunctionError> {
    let name = text(args, 0);
    call.produce(name.len() + TEXT_OVERHEAD_BYTES + 80)?;
    if name.contains(&b':') {
        return Ok(GoRuntimeValue::string([b"invalid username: ", name].concat()));
    }
    call.work(PASSWORD_HASH_STEPS)?;
    let hash = hashed(template_environment, text(args, 1));
    Ok(GoRuntimeValue::string([name, b":", hash.as_bytes()].concat()))
}

fn hashed(template_environment: RandomBytesEnvironment<'_>, password: &[u8]) -> String {
    if password.len() > 72 {
        return "failed to encrypt string with bcrypt: bcrypt: password length exceeds 72 bytes"
            .to_owned();
    }
    let mut salt = [0; 16];
    template_environment.fill(&mut salt);
    format!("$2a${BCRYPT_COST}${}{}", encoded(&salt), encoded(&digest(password, &salt)[..23]))
}

/// bcrypt itself, of a password of at most 72 bytes.
fn digest(password: &[u8], salt: &[u8; 16]) -> Vec<u8> {
    let key = [password, b"\0"].concat();
    let mut state = Blowfish::bc_init_state();
    state.salted_expand_key(salt, &key);
    for _ in 0..1_u32 << BCRYPT_COST {
        state.bc_expand_key(&key);
        state.bc_expand_key(salt);
    }
    let mut digest = Vec::new();
    for block in b"OrpheanBeholderScryDoubt".chunks_exact(8) {
        let word =
            |at| u32::from_be_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]]);
        let mut pair = [word(0), word(4)];
        for _ in 0..64 {
            pair = state.bc_encrypt(pair);
        }
        digest.extend(pair.into_iter().flat_map(u32::to_be_bytes));
    }
    digest
}

/// Bytes in bcrypt's own base64, which has no padding.
fn encoded(bytes: &[u8]) -> String {
    const BCRYPT_ALPHABET: &[u8; 64] =
        b"./ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    let mut out = String::new();
    for chunk in bytes.chunks(3) {
        let bits = chunk.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte));
        let bits = bits << (8 * (3 - chunk.len()));
        for digit in 0..=chunk.len() {
            out.push(char::from(BCRYPT_ALPHABET[(bits >> (18 - 6 * digit)) as usize & 63]));
        }
    }
    out
}

/// The prefix of keys in Master Password.
const MASTER_PASSWORD_SCOPE: &[u8] = b"com.lyndir.masterpassword";

/// The password of a user for a site, by Master Password.
fn derive_password(
    call: &mut FunctionCallContext<'_>,
    args: &[GoRuntimeValue],
) -> Result<GoRuntimeValue, TemplateFunctionError> {
    let kind = text(args, 1);
    call.produce(kind.len() + 2 * TEXT_OVERHEAD_BYTES)?;
    let Some(templates) = templates(kind) else {
        return Ok(GoRuntimeValue::string([b"cannot find password template ", kind].concat()));
    };
    let [password, user, site] = [2, 3, 4].map(|at| text(args, at));
    call.work(PASSWORD_HASH_STEPS + password.len() + user.len() + site.len())?;
    call.has_room(user.len() + site.len())?;
    let length = |text: &[u8]| (text.len() as u32).to_be_bytes();
    let salt = [MASTER_PASSWORD_SCOPE, &length(user), user].concat();
    let mut key = [0; 64];
    let derived = Params::new(15, 8, 2).map(|params| scrypt(password, &salt, &params, &mut key));
    if !matches!(derived, Ok(Ok(()))) {
        return Err("failed to derive password".into());
    }
    let counter = (int(args, 0) as u32).to_be_bytes();
    let message = [MASTER_PASSWORD_SCOPE, &length(site), site, &counter].concat();
    let seed = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &key), &message);
    let (first, rest) = seed.as_ref().split_first().unwrap_or((&0, &[]));
    let template = templates[usize::from(*first) % templates.len()];
    let character = |(class, byte): (u8, &u8)| {
        let characters = characters(class);
        characters[usize::from(*byte) % characters.len()]
    };
    let password: Vec<u8> = template.bytes().zip(rest).map(character).collect();
    Ok(GoRuntimeValue::string(password))
}

/// The shapes of passwords of a kind, in which each letter stands for a class of characters. `None` if the kind is not
/// known.
fn templates(kind: &[u8]) -> Option<&'static [&'static str]> {
    Some(match kind {
        b"maximum" => &["anoxxxxxxxxxxxxxxxxx", "axxxxxxxxxxxxxxxxxno"],
        b"long" => &[
            "CvcvnoCvcvCvcv",
            "CvcvCvcvnoCvcv",
            "CvcvCvcvCvcvno",
            "CvccnoCvcvCvcv",
            "CvccCvcvnoCvcv",
            "CvccCvcvCvcvno",
            "CvcvnoCvccCvcv",
            "CvcvCvccnoCvcv",
            "CvcvCvccCvcvno",
            "CvcvnoCvcvCvcc",
            "CvcvCvcvnoCvcc",
            "CvcvCvcvCvccno",
            "CvccnoCvccCvcv",
            "CvccCvccnoCvcv",
            "CvccCvccCvcvno",
            "CvcvnoCvccCvcc",
            "CvcvCvccnoCvcc",
            "CvcvCvccCvccno",
            "CvccnoCvcvCvcc",
            "CvccCvcvnoCvcc",
            "CvccCvcvCvccno",
        ],
        b"medium" => &["CvcnoCvc", "CvcCvcno"],
        b"short" => &["Cvcn"],
        b"basic" => &["aaanaaan", "aannaaan", "aaannaaa"],
        b"pin" => &["nnnn"],
        _ => return None,
    })
}

/// The characters of a class, in Master Password's order.
fn characters(class: u8) -> &'static [u8] {
    match class {
        b'V' => b"AEIOU",
        b'C' => b"BCDFGHJKLMNPQRSTVWXYZ",
        b'v' => b"aeiou",
        b'c' => b"bcdfghjklmnpqrstvwxyz",
        b'a' => b"AEIOUaeiouBCDFGHJKLMNPQRSTVWXYZbcdfghjklmnpqrstvwxyz",
        b'n' => b"0123456789",
        b'o' => b"@&%?,=[]_:-+*$#!'^~;()/.",
        _ => b"AEIOUaeiouBCDFGHJKLMNPQRSTVWXYZbcdfghjklmnpqrstvwxyz0123456789!@#$%^&*()",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_rendering::{check, render};

    #[test]
    fn a_hash_is_that_of_other_implementations() {
        // From the tests of Go's bcrypt.
        let salt = [101, 201, 101, 75, 19, 227, 199, 20, 239, 236, 133, 32, 30, 109, 243, 30];
        assert_eq!(encoded(&salt), "XajjQvNhvvRt5GSeFk1xFe");
        let wanted = "yqRrsxkhBkUiQeg0dt.wU1qD4aFDcga";
        assert_eq!(encoded(&digest(b"allmine", &salt)[..23]), wanted);
        let hash = render(r#"{{ bcrypt "pw" }}"#);
        assert!(hash.starts_with("$2a$10$") && hash.len() == 60, "{hash}");
        assert_ne!(hash, render(r#"{{ bcrypt "pw" }}"#));
    }

    #[test]
    fn what_bcrypt_cannot_hash_is_said_in_the_result() {
        let long = "x".repeat(73);
        let wanted =
            "failed to encrypt string with bcrypt: bcrypt: password length exceeds 72 bytes";
        check(&format!("{{{{ bcrypt \"{long}\" }}}}"), wanted);
        check(&format!("{{{{ htpasswd \"u\" \"{long}\" }}}}"), &format!("u:{wanted}"));
        check(r#"{{ htpasswd "a:b" "pw" }}"#, "invalid username: a:b");
        assert!(render(r#"{{ htpasswd "" "pw" }}"#).starts_with(":$2a$10$"));
    }

    #[test]
    fn passwords_are_derived_as_master_password_does() {
        check(r#"{{ derivePassword 1 "long" "password" "user" "example.com" }}"#, "ZedaFaxcZaso9*");
        check(
            r#"{{ derivePassword 1 "maximum" "s3cret" "gardener" "shop.example.org" }}"#,
            "I3&dBlsB%AKm2BoOoaxS",
        );
        check(r#"{{ derivePassword 1 "nope" "p" "u" "s" }}"#, "cannot find password template nope");
    }
}
