//! Encrypts and decrypts strings with a password, by AES-256 in CBC mode.
//!
//! Parity(sprig): the password itself is the key, cut or filled with zeros, and nothing authenticates the text.

use aws_lc_rs::cipher::{
    AES_256, DecryptingKey, DecryptionContext, EncryptionContext, PaddedBlockEncryptingKey,
    UnboundCipherKey,
};
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::iv::FixedLength;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use golang::GoRuntimeValue;
use gotemplate::{FunctionCallContext, TemplateFunctionError};

use super::super::encoding::decode64;
use crate::arguments::{TEXT_OVERHEAD_BYTES, text};
use crate::function_table::{SprigFunctionEntry, bounded, random};
use crate::template_environment::RandomBytesEnvironment;

pub(crate) const ENTRIES: &[SprigFunctionEntry] = &[
    random("encryptAES", "func(string, string) (string, error)", encrypt_aes),
    bounded("decryptAES", "func(string, string) (string, error)", decrypt_aes),
];

/// Bytes of a block.
const AES_BLOCK_BYTES: usize = 16;

/// Encrypts a text. The result is base64 and begins with the random block. An empty text stays empty.
fn encrypt_aes(
    template_environment: RandomBytesEnvironment<'_>,
    call: &mut FunctionCallContext<'_>,
    args: &[GoRuntimeValue],
) -> Result<GoRuntimeValue, TemplateFunctionError> {
    let password = text(args, 0);
    let plain = text(args, 1);
    if plain.is_empty() {
        return Ok(GoRuntimeValue::from(""));
    }
    call.work(plain.len() / 8)?;
    call.produce(plain.len() * 2 + TEXT_OVERHEAD_BYTES)?;
    let mut iv = [0; AES_BLOCK_BYTES];
    template_environment.fill(&mut iv);
    let encrypted = encrypted(password, plain, iv).map_err(failed)?;
    Ok(GoRuntimeValue::from(STANDARD.encode([iv.as_slice(), &encrypted].concat())))
}

fn encrypted(
    password: &[u8],
    plain: &[u8],
    iv: [u8; AES_BLOCK_BYTES],
) -> Result<Vec<u8>, Unspecified> {
    let mut text = plain.to_vec();
    let context = EncryptionContext::Iv128(FixedLength::from(iv));
    PaddedBlockEncryptingKey::cbc_pkcs7(key(password)?)?.less_safe_encrypt(&mut text, context)?;
    Ok(text)
}

/// The text that was encrypted.
fn decrypt_aes(
    call: &mut FunctionCallContext<'_>,
    args: &[GoRuntimeValue],
) -> Result<GoRuntimeValue, TemplateFunctionError> {
    let password = text(args, 0);
    let encoded = text(args, 1);
    if encoded.is_empty() {
        return Ok(GoRuntimeValue::from(""));
    }
    call.work(encoded.len() / 2)?;
    call.produce(encoded.len() + TEXT_OVERHEAD_BYTES)?;
    let mut all = decode64(encoded)?;
    // Parity(sprig): the first block is cut from Go's buffer, which has room for padding too.
    let room = encoded.len() / 4 * 3;
    if room < AES_BLOCK_BYTES {
        return Err(out_of_range(&format!("[:{AES_BLOCK_BYTES}] with capacity {room}")));
    }
    let Some((iv, text)) = all.split_first_chunk_mut::<AES_BLOCK_BYTES>() else {
        return Err(out_of_range(&format!("[{AES_BLOCK_BYTES}:{}]", all.len())));
    };
    if text.len() % AES_BLOCK_BYTES != 0 {
        return Err("crypto/cipher: input not full blocks".into());
    }
    let Some(last) = text.len().checked_sub(1) else {
        return Err("runtime error: index out of range [-1]".into());
    };
    decrypt(password, *iv, text).map_err(failed)?;
    let padding = usize::from(text[last]);
    match text.len().checked_sub(padding) {
        Some(length) => Ok(GoRuntimeValue::string(&text[..length])),
        None => Err(out_of_range(&format!("[:-{}]", padding - text.len()))),
    }
}

fn decrypt(password: &[u8], iv: [u8; AES_BLOCK_BYTES], text: &mut [u8]) -> Result<(), Unspecified> {
    let context = DecryptionContext::Iv128(FixedLength::from(iv));
    DecryptingKey::cbc(key(password)?)?.decrypt(text, context).map(drop)
}

fn key(password: &[u8]) -> Result<UnboundCipherKey, Unspecified> {
    let mut key = [0; 32];
    let length = password.len().min(key.len());
    key[..length].copy_from_slice(&password[..length]);
    UnboundCipherKey::new(&AES_256, &key)
}

fn out_of_range(what: &str) -> TemplateFunctionError {
    format!("runtime error: slice bounds out of range {what}").into()
}

fn failed(_: Unspecified) -> TemplateFunctionError {
    "the text cannot be encrypted or decrypted".into()
}

#[cfg(test)]
mod tests {
    use crate::test_rendering::{check, render};

    #[test]
    fn what_was_encrypted_is_decrypted_with_the_same_password() {
        check(r#"{{ decryptAES "key" (encryptAES "key" "secret text") }}"#, "secret text");
        check(r#"{{ encryptAES "key" "text" | b64dec | len }}{{ encryptAES "" "" }}"#, "32");
        assert_ne!(render(r#"{{ encryptAES "k" "x" }}"#), render(r#"{{ encryptAES "k" "x" }}"#));
        // Made by sprig 3.3.0.
        let text = "MDEyMzQ1Njc4OTAxMjM0NVFTQnRiM0psSUhOb2IzSjBJRw==";
        check(
            &format!("{{{{ decryptAES \"k\" \"{text}\" }}}}"),
            "error calling decryptAES: crypto/cipher: input not full blocks",
        );
    }

    #[test]
    fn what_cannot_be_decrypted_panics_as_in_go() {
        let check = |template: &str, wanted: &str| {
            check(template, &format!("error calling decryptAES: {wanted}"));
        };
        check(
            r#"{{ decryptAES "wrong" "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVphYmNkZWY=" }}"#,
            "runtime error: slice bounds out of range [:-55]",
        );
        check(r#"{{ decryptAES "k" "short" }}"#, "illegal base64 data at input byte 4");
        check(
            r#"{{ decryptAES "k" "YWJj" }}"#,
            "runtime error: slice bounds out of range [:16] with capacity 3",
        );
        check(
            r#"{{ decryptAES "k" "QUJDREVGR0hJSktMTU5PUA==" }}"#,
            "runtime error: index out of range [-1]",
        );
    }
}
