//! What recorded cases do not cover: bounds, the policy for MACs, services, and that no message holds a secret.

use std::fmt::Write as _;

use aes_gcm::aead::consts::U32;
use aes_gcm::aead::{Aead as _, Payload};
use aes_gcm::aes::Aes256;
use aes_gcm::{AesGcm, KeyInit as _, Nonce};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha512};
use zeroize::Zeroizing;

use crate::limits::DecryptionDeadline;
use crate::{
    DataKeyServices, DecryptionKeys, Error, KeyServiceMasterKey, MacPolicy, SopsDecryptor,
    SopsFormat, SopsLimits,
};

const DATA_KEY: [u8; 32] = [7; 32];
const MODIFIED: &str = "2026-11-23T00:00:00Z";
/// What no text may show.
const CANARY: &str = "c4nary-s3cret";

/// An encrypted value.
fn sealed(plain: &str, path: &str, datatype: &str) -> String {
    let cipher = AesGcm::<Aes256, U32>::new_from_slice(&DATA_KEY).unwrap();
    let nonce = Nonce::<U32>::try_from(&[9; 32][..]).unwrap();
    let payload = Payload { msg: plain.as_bytes(), aad: path.as_bytes() };
    let sealed = cipher.encrypt(&nonce, payload).unwrap();
    let (data, tag) = sealed.split_at(sealed.len() - 16);
    let [data, nonce, tag] = [data, &[9; 32], tag].map(|part| STANDARD.encode(part));
    format!("ENC[AES256_GCM,data:{data},iv:{nonce},tag:{tag},type:{datatype}]")
}

/// A file of Vault's, with one password.
fn file(mac: &str) -> String {
    let password = sealed(CANARY, "password:", "str");
    let mac = sealed(mac, MODIFIED, "str");
    format!(
        "password: {password}\nsops:\n  lastmodified: \"{MODIFIED}\"\n  mac: {mac}\n  hc_vault:\n  - \
         {{vault_address: 'https://vault', engine_path: sops, key_name: one, created_at: '{MODIFIED}', enc: 'vault:v1:x'}}\n"
    )
}

fn mac_of(plain: &str) -> String {
    let mut mac = String::new();
    for byte in Sha512::digest(plain) {
        write!(mac, "{byte:02X}").unwrap();
    }
    mac
}

/// A Vault that decrypts everything.
struct FakeVault(Vec<u8>);

impl DataKeyServices for FakeVault {
    fn decrypt(&self, key: &KeyServiceMasterKey) -> Result<Zeroizing<Vec<u8>>, String> {
        match key {
            KeyServiceMasterKey::Vault { key_name, .. } if key_name == "none" => {
                Err("permission denied".to_owned())
            }
            KeyServiceMasterKey::Vault { key_name, .. } if key_name.starts_with("part-") => {
                // Parts of a line through the data key: each byte and the place.
                let x = if key_name == "part-1" { 1 } else { 2 };
                let part = self.0.iter().map(|byte| byte ^ x).chain([x]);
                Ok(Zeroizing::new(part.collect()))
            }
            KeyServiceMasterKey::Vault { .. } => Ok(Zeroizing::new(self.0.clone())),
            _ => Err("another service".to_owned()),
        }
    }
}

fn decrypt(data: &str, policy: MacPolicy) -> Result<String, Error> {
    let keys = DecryptionKeys::default();
    let vault = FakeVault(DATA_KEY.to_vec());
    let decryptor = SopsDecryptor::new(&keys).with_services(&vault).with_mac(policy);
    let plain = decryptor.decrypt(data.as_bytes(), SopsFormat::Yaml, SopsFormat::Yaml)?;
    Ok(String::from_utf8(plain.to_vec()).unwrap())
}

#[test]
fn a_mac_counts_where_it_is_required() {
    let plain = format!("password: {CANARY}\n");
    let right = file(&mac_of(CANARY));
    assert_eq!(decrypt(&right, MacPolicy::Require).unwrap(), plain);
    for wrong in [file(&mac_of("other")), file("")] {
        assert_eq!(decrypt(&wrong, MacPolicy::Ignore).unwrap(), plain);
        let error = decrypt(&wrong, MacPolicy::Require).unwrap_err();
        assert!(matches!(error, Error::Integrity(_)), "{error}");
        assert!(!error.to_string().contains(&mac_of(CANARY)));
    }
    let added =
        format!("more: text\n{right}").replace("  mac:", "  encrypted_regex: ^password$\n  mac:");
    assert!(matches!(decrypt(&added, MacPolicy::Require), Err(Error::Integrity(_))));
}

#[test]
fn groups_are_combined_from_as_many_parts_as_the_threshold_says() {
    let group = |name: &str| {
        format!(
            "  - hc_vault:\n    - {{vault_address: v, engine_path: e, key_name: {name}, created_at: '{MODIFIED}', enc: x}}\n"
        )
    };
    let file = |names: [&str; 3]| {
        let groups: String = names.into_iter().map(group).collect();
        let password = sealed(CANARY, "password:", "str");
        format!(
            "password: {password}\nsops:\n  lastmodified: '{MODIFIED}'\n  mac: x\n  shamir_threshold: 2\n  \
             key_groups:\n{groups}"
        )
    };
    let plain = format!("password: {CANARY}\n");
    assert_eq!(decrypt(&file(["part-1", "none", "part-2"]), MacPolicy::Ignore).unwrap(), plain);
    let error =
        decrypt(&file(["part-1", "none", "none"]), MacPolicy::Ignore).unwrap_err().to_string();
    assert!(error.contains("Group 0: SUCCESS"), "{error}");
    assert!(error.contains("only 1 part(s)") && error.contains("permission denied"), "{error}");
}

#[test]
fn without_services_their_keys_are_refused_by_name() {
    let keys = DecryptionKeys::default();
    let error =
        SopsDecryptor::new(&keys).decrypt(file("").as_bytes(), SopsFormat::Yaml, SopsFormat::Yaml);
    let error = error.unwrap_err().to_string();
    assert!(error.contains("https://vault/v1/sops/keys/one: FAILED"), "{error}");
    assert!(error.contains("sops.vault-token"), "{error}");
}

#[test]
fn bounds_are_named() {
    let keys = DecryptionKeys::default();
    let vault = FakeVault(DATA_KEY.to_vec());
    let check = |limits: SopsLimits, data: &str, format, wanted: &str| {
        let decryptor = SopsDecryptor::new(&keys).with_services(&vault).with_limits(limits);
        let error = decryptor.decrypt(data.as_bytes(), format, format).unwrap_err().to_string();
        assert!(error.contains(wanted), "{error}");
    };
    let limits = SopsLimits::default();
    let file = file("");
    check(SopsLimits { bytes: 10, ..limits }, &file, SopsFormat::Yaml, "longer than 10 bytes");
    check(
        SopsLimits { master_keys: 0, ..limits },
        &file,
        SopsFormat::Yaml,
        "more than 0 master keys",
    );
    let nested = |open: &str, close: &str| format!("{}{}", open.repeat(200), close.repeat(200));
    check(
        limits,
        &format!("a: {}\n{file}", nested("[", "]")),
        SopsFormat::Yaml,
        "max depth of 127",
    );
    check(limits, &format!("{{\"a\":{}}}", nested("[", "]")), SopsFormat::Json, "recursion limit");
    check(
        SopsLimits { entries: 3, ..limits },
        "{\"a\":[1,2,3,4]}",
        SopsFormat::Json,
        "more than 3 values",
    );
    check(
        SopsLimits { entries: 3, ..limits },
        "A=1\nB=2\nC=3\nD=4\n",
        SopsFormat::Dotenv,
        "more than 3 values",
    );
    check(
        SopsLimits { entries: 3, ..limits },
        "A=1\nB=2\nC=3\nD=4\n",
        SopsFormat::Ini,
        "more than 3 values",
    );
    let bomb = "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: [*b,*b,*b,*b,*b,*b,*b,*b,*b]\n";
    check(SopsLimits { entries: 500, ..limits }, bomb, SopsFormat::Yaml, "failed to load");
    let flat = format!("sops{}=1\n", "_a__map_b".repeat(200));
    check(limits, &flat, SopsFormat::Dotenv, "nested more than 127 deep");
}

#[test]
fn text_that_aliases_repeat_is_bounded_in_every_document() {
    let keys = DecryptionKeys::default();
    let limits = SopsLimits { bytes: 2000, ..SopsLimits::default() };
    let check = |data: &str| {
        assert!(data.len() <= limits.bytes);
        let decryptor = SopsDecryptor::new(&keys).with_limits(limits);
        let error =
            decryptor.decrypt(data.as_bytes(), SopsFormat::Yaml, SopsFormat::Yaml).unwrap_err();
        assert!(error.to_string().contains("more than 4000 bytes"), "{error}");
    };
    let long = "x".repeat(900);
    let aliases = "*a,".repeat(20);
    check(&format!("x: &a {long} # mac: ENC[\n---\nb: [{aliases}]\n"));
    check(&format!("x: &a {{{long}: 1}}\n---\nb: [{aliases}]\n"));
    check(&format!("x: &a\n  # {long}\n  y: 1\nb: [{aliases}]\n"));
    check(&format!("x: &a\n  # {long}\n  - 1\nb: [{aliases}]\n"));
    let lines = format!("a: 1 # x\n{}", "# x\n".repeat(300));
    let limits = SopsLimits { entries: 200, ..SopsLimits::default() };
    let error = SopsDecryptor::new(&keys).with_limits(limits);
    let error = error.decrypt(lines.as_bytes(), SopsFormat::Yaml, SopsFormat::Yaml).unwrap_err();
    assert!(error.to_string().contains("more than 200 values, keys and comments"), "{error}");
}

#[test]
fn a_mac_covers_the_values_of_a_file_that_was_opened_and_no_comment() {
    let keys = DecryptionKeys::default();
    let vault = FakeVault(DATA_KEY.to_vec());
    let decryptor = SopsDecryptor::new(&keys).with_services(&vault);
    let old = "ENC[AES256_GCM,data:b2xk,iv:a,tag:b,type:str]";
    let right = format!("# {old}\n{}", file(&mac_of(CANARY)));
    let covered = decryptor.check(right.as_bytes()).unwrap();
    let mac = sealed(&mac_of(CANARY), MODIFIED, "str");
    assert_eq!(covered, [sealed(CANARY, "password:", "str").into_bytes(), mac.into_bytes()]);
    // Flux's marks are literal: these three files have none, and are encrypted nevertheless.
    for mark in ["mac: 'ENC[x]'", "mac:  ENC[x]", "{\"mac\":\"ENC[x]\"}"] {
        let file = format!("password: {old}\nsops:\n  {mark}\n");
        assert_eq!(decryptor.check(file.as_bytes()).unwrap(), Vec::<Vec<u8>>::new(), "{mark}");
    }
}

#[test]
fn decrypting_ends_when_the_caller_says_so() {
    let keys = DecryptionKeys::default();
    let vault = FakeVault(DATA_KEY.to_vec());
    let stop = golang::work_meter::StopSignal::default();
    let decryptor = SopsDecryptor::new(&keys).with_services(&vault).with_stop(&stop);
    let file = file(&mac_of(CANARY));
    let decrypt = || decryptor.decrypt(file.as_bytes(), SopsFormat::Yaml, SopsFormat::Yaml);
    assert!(decrypt().is_ok());
    stop.set();
    assert!(matches!(decrypt(), Err(Error::Stopped)));
    assert!(matches!(decryptor.check(file.as_bytes()), Err(Error::Stopped)));
}

/// An OpenPGP message: session keys by RSA for anonymous recipients, and what they encrypt.
fn anonymous_message(recipients: usize) -> String {
    let recipient = [&[0xc1, 13, 3][..], &[0; 8], &[1, 0, 8, 0xff]].concat();
    let packets = [recipient.repeat(recipients), [&[0xd2, 21, 1][..], &[7; 20]].concat()];
    let armor = STANDARD.encode(packets.concat());
    format!("-----BEGIN PGP MESSAGE-----\n\n{armor}\n-----END PGP MESSAGE-----\n")
}

#[test]
fn an_encrypted_data_key_is_short_and_has_few_recipients() {
    let keys = DecryptionKeys::default();
    let long = "x".repeat(70_000);
    for problem in [
        keys.pgp(&long, DecryptionDeadline::default()),
        keys.age(&long, DecryptionDeadline::default()),
    ] {
        assert_eq!(problem.unwrap_err(), "the encrypted data key is longer than 65536 bytes");
    }
    let open = |recipients: usize| {
        keys.pgp(&anonymous_message(recipients), DecryptionDeadline::default()).unwrap_err()
    };
    assert!(open(64).ends_with("no secret key"), "{}", open(64));
    assert!(open(65).ends_with("more than 64 session keys"), "{}", open(65));
}

#[test]
fn only_some_recipients_of_an_age_message_are_compared_with_identities() {
    const AGE_IDENTITY: &str =
        "AGE-SECRET-KEY-PQ-12WQVX9DNKS60EFY6HSP46F8J7GWYFXESMEUZ4LPXTVV00278FKJSPH4J68\n";
    let header = format!("age-encryption.org/v1\n{}--- ", "-> other\n\n".repeat(500));
    let mac = STANDARD.encode([7; 32]).trim_end_matches('=').to_owned();
    let message = [header.as_bytes(), mac.as_bytes(), b"\n", &[7; 16]].concat();
    let encoded = STANDARD.encode(message).into_bytes();
    let lines: Vec<&str> =
        encoded.chunks(64).map(|line| std::str::from_utf8(line).unwrap()).collect();
    let message = format!(
        "-----BEGIN AGE ENCRYPTED FILE-----\n{}\n-----END AGE ENCRYPTED FILE-----\n",
        lines.join("\n")
    );
    let open = |identities: usize| {
        let file = AGE_IDENTITY.repeat(identities);
        let keys = DecryptionKeys::import("apps/keys", [("id.agekey", file.as_bytes())]).unwrap();
        keys.age(&message, DecryptionDeadline::default()).unwrap_err()
    };
    assert!(open(19).contains("identity did not match any of the recipients"), "{}", open(19));
    assert!(open(21).contains("none of the first 10000 pairs"), "{}", open(21));
}

#[test]
fn nothing_secret_is_said() {
    let secret = "AGE-SECRET-KEY-1QQPQZRFR7ZZ2WCV";
    let error =
        DecryptionKeys::import("apps/keys", [("id.agekey", secret.as_bytes())]).unwrap_err();
    assert!(!format!("{error} {error:?}").contains("QQPQ"), "{error}");
    let keys =
        DecryptionKeys::import("apps/keys", [("sops.vault-token", CANARY.as_bytes())]).unwrap();
    let decryptor = SopsDecryptor::new(&keys);
    assert!(!format!("{keys:?} {decryptor:?} {:?}", keys.credentials()).contains(CANARY));
    let strings = [
        (format!("{CANARY}\n"), SopsFormat::Dotenv),
        (format!("{CANARY}\n"), SopsFormat::Ini),
        (format!("\"{CANARY}\""), SopsFormat::Json),
        (format!("[{CANARY}"), SopsFormat::Yaml),
        (CANARY.to_owned(), SopsFormat::Yaml),
        (file("").replace("ENC[AES256_GCM", CANARY), SopsFormat::Yaml),
    ];
    for (text, format) in strings {
        let vault = FakeVault(DATA_KEY.to_vec());
        let error =
            decryptor.with_services(&vault).decrypt(text.as_bytes(), format, SopsFormat::Yaml);
        let error = error.unwrap_err();
        assert!(!format!("{error} {error:?}").contains(CANARY), "{error}");
    }
    let value = crate::value::SopsValue::from_text(CANARY);
    assert_eq!(format!("{value:?}"), "string");
}

#[test]
fn entries_of_a_secrets_data_become_texts() {
    // Recorded answers of kyaml have the others (`res-data-…`).
    let keys = DecryptionKeys::default();
    let decrypted = |data: serde_json::Value| {
        let object = serde_json::json!({"kind": "Secret", "metadata": {"name": "s"}, "data": data});
        let serde_json::Value::Object(mut object) = object else { panic!() };
        SopsDecryptor::new(&keys).decrypt_resource(&mut object).unwrap();
        object.remove("data")
    };
    let json = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
    for (data, texts) in [
        (r#"{"k": "", "l": "djE="}"#, Some(r#"{"k": "", "l": "djE="}"#)),
        (r#"{"k": null}"#, Some(r#"{"k": ""}"#)),
        (r#"{"k": 1234, "l": true, "m": 1.5}"#, Some(r#"{"k": "1234", "l": "true", "m": "1.5"}"#)),
        (r#"{"k": ["a"], "l": {"a": "b"}, "m": {}}"#, Some(r#"{"k": "", "l": "", "m": ""}"#)),
        ("{}", None),
        (r#"["a"]"#, None),
        (r#""text""#, None),
    ] {
        assert_eq!(decrypted(json(data)), texts.map(json), "{data}");
    }
}

/// A key that GnuPG made, which nothing is encrypted to.
const PUBLIC_KEY: &str = "\
-----BEGIN PGP PUBLIC KEY BLOCK-----

mDMEZeGZEBYJKwYBBAHaRw8BAQdAWAOmF+mFVULGQnh48O3cYNZ2QirOJ98sV+7X
zyO7oDK0KHJlYy1pbXAgdGhyb3dhd2F5IDxyZWMtaW1wQGV4YW1wbGUudGVzdD6I
kAQTFggAOBYhBKSX/dlTtaMV74141f6qzjINGldoBQJl4ZkQAhsDBQsJCAcCBhUK
CQgLAgQWAgMBAh4BAheAAAoJEP6qzjINGldo9w0A/RN/GJNeSanpoIfe1wH5vKZp
PRAbyhTsrFDd2UMkXsM4AP4/X/yKDvN5WjmX8gOrkwmb++ggMnyPlIu99jvyaPIw
DLg4BGXhmRASCisGAQQBl1UBBQEBB0DBsvkfgEHSeXrkqiP4ikZ+QdcvQD/fS+BK
Q/uZT4VHIAMBCAeIeAQYFggAIBYhBKSX/dlTtaMV74141f6qzjINGldoBQJl4ZkQ
AhsMAAoJEP6qzjINGldom4MBAKGhxjTqSZz51lybLNUokfettw7j0E/5SKGKujvv
h9wfAQDrqyoJxRSnHFtOosee12D3Jym+Ozq+51WVLzWRaDL4Cw==
=sbON
-----END PGP PUBLIC KEY BLOCK-----
";

#[test]
fn a_public_key_is_imported_and_opens_nothing() {
    let import =
        |entries: &[(&str, &[u8])]| DecryptionKeys::import("apps/keys", entries.iter().copied());
    assert!(import(&[("a.asc", PUBLIC_KEY.as_bytes())]).is_ok());
    for wrong in ["", "garbage", "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nmQE=\n-----END"] {
        let entries = [("a.asc", PUBLIC_KEY.as_bytes()), ("b.asc", wrong.as_bytes())];
        let error = import(&entries).unwrap_err().to_string();
        assert!(error.contains("'b.asc'") && error.contains("no OpenPGP key found"), "{error}");
    }
}

/// A key without a passphrase, which only signs.
const PRIVATE_KEY: &str = "\
-----BEGIN PGP PRIVATE KEY BLOCK-----

lFgEaVW5ABYJKwYBBAHaRw8BAQdANzuh8u8yzKuNkdekSSdjjrUMsWQDdUBdliZj
APRBa0kAAQDajiBilTgUl6xuou1aX/fRlanPIusO510KCsApM5V7UA+JtBVCb3Qg
PGJvdEBleGFtcGxlLmNvbT6IkAQTFggAOBYhBANhWRNUOhd+XrANjQYuzXlJLWlv
BQJpVbkAAhsDBQsJCAcCBhUKCQgLAgQWAgMBAh4BAheAAAoJEAYuzXlJLWlvGWEA
/0ds1eBJ1w0BS2mqR5lU2M+Nwgri/6XryVn/fFSyRvhDAQDniFOPmReuwsKWxnHs
zl9rSKF6A1SfaP10vxa12BXZCQ==
=xeOa
-----END PGP PRIVATE KEY BLOCK-----
";

#[test]
fn a_private_key_whose_numbers_do_not_belong_together_is_no_key() {
    let import = |entries: &[(&str, &[u8])]| {
        let keys = DecryptionKeys::import("apps/keys", entries.iter().copied());
        keys.map(|keys| format!("{keys:?}")).map_err(|error| error.to_string())
    };
    // RSA with the prime 7 taken twice: 49 and 5; then 5, 7, 7, 1 and their checksum.
    let public: [u8; 12] = [4, 0, 0, 0, 1, 1, 0, 6, 49, 0, 3, 5];
    let private: [u8; 15] = [0, 0, 3, 5, 0, 3, 7, 0, 3, 7, 0, 1, 1, 0, 30];
    let packet = [&[0xc5, 27][..], &public, &private].concat();
    let block = format!(
        "-----BEGIN PGP PRIVATE KEY BLOCK-----\n\n{}\n-----END PGP PRIVATE KEY BLOCK-----\n",
        STANDARD.encode(&packet)
    );
    for wrong in [block.as_bytes(), &packet] {
        let error = import(&[("a.asc", wrong)]).unwrap_err();
        assert!(error.contains("'a.asc'") && error.contains("no OpenPGP key found"), "{error}");
    }
    // It keeps no other key of its file from being used.
    let both = format!("{block}{PRIVATE_KEY}");
    let keys = import(&[("a.asc", both.as_bytes())]).unwrap();
    assert!(keys.contains("pgp: 1"), "{keys}");
}

/// The key, with a passphrase that is derived with Argon2 in so many passes over two to so many KiB.
fn locked_private_key(passes: u8, memory: u8) -> Vec<u8> {
    let armor: String = PRIVATE_KEY.lines().filter(|line| line.len() > 20).skip(1).collect();
    let armor = armor.split("-----").next().unwrap();
    let key = STANDARD.decode(armor).unwrap();
    // The packet of the key, whose public part is followed by the secret one, and what belongs to it.
    let (packet, rest) = key.split_at(90);
    let argon2 = [&[4][..], &[7; 16], &[passes, 4, memory]].concat();
    let secret = [&[253, 9, 2][..], &argon2, &[7; 15], &[7; 50]].concat();
    let content = [&packet[2..53], &secret].concat();
    let header = [0xc5, u8::try_from(content.len()).unwrap()];
    [&header[..], &content, rest].concat()
}

#[test]
fn a_key_whose_passphrase_takes_too_much_is_not_tried() {
    let open = |key: &[u8]| {
        let keys = DecryptionKeys::import("apps/keys", [("a.asc", key)]).unwrap();
        keys.pgp("no message", DecryptionDeadline::default()).unwrap_err()
    };
    for (passes, memory) in [(3, 18), (9, 16)] {
        let error = open(&locked_private_key(passes, memory));
        assert!(error.contains("more than 128 MiB or 8 passes"), "{error}");
    }
    let error = open(&locked_private_key(3, 16));
    assert!(!error.contains("passphrase"), "{error}");
}

#[test]
fn only_some_session_keys_are_decrypted_and_only_some_keys_unlocked() {
    let open = |key: &[u8], copies: usize, recipients: usize| {
        let names: Vec<String> = (0..copies).map(|at| format!("{at}.asc")).collect();
        let entries = names.iter().map(|name| (name.as_str(), key));
        let keys = DecryptionKeys::import("apps/keys", entries).unwrap();
        keys.pgp(&anonymous_message(recipients), DecryptionDeadline::default()).unwrap_err()
    };
    let plain = |copies| open(PRIVATE_KEY.as_bytes(), copies, 64);
    assert!(plain(5).contains("session keys failed 256 times"), "{}", plain(5));
    assert!(!plain(4).contains("256 times"), "{}", plain(4));
    let locked = |copies| open(&locked_private_key(1, 5), copies, 1);
    assert!(locked(5).contains("more than 4 private keys"), "{}", locked(5));
    assert!(!locked(4).contains("more than 4"), "{}", locked(4));
}
