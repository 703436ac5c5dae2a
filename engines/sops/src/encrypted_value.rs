//! One encrypted value: `ENC[AES256_GCM,data:…,iv:…,tag:…,type:…]`.

use aes_gcm::aead::consts::U32;
use aes_gcm::aead::{Aead, Payload};
use aes_gcm::aes::Aes256;
use aes_gcm::{AesGcm, KeyInit as _, Nonce};
use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{GeneralPurpose, GeneralPurposeConfig};
use golang::strconv;
use golang::time::{GoTime, GoTimeZone, RFC3339, RFC3339_NANO};
use zeroize::Zeroizing;

use crate::aes_256_gcm;
use crate::value::{SecretBytes, SopsComment, SopsValue};

/// Go ignores bits that are left over.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);

/// Why a value was not decrypted. It displays sops's message without the value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CipherError {
    #[error("Input string <redacted> does not match sops' data format")]
    Form,
    #[error("Error base64-decoding {0}: illegal base64 data")]
    Base64(&'static str),
    #[error("crypto/aes: invalid key size {0}")]
    KeySize(usize),
    #[error("cipher: the nonce can't have zero length")]
    NoNonce,
    #[error("Could not decrypt with AES_GCM: cipher: message authentication failed")]
    Forged,
    #[error("Unknown datatype: {0}")]
    Datatype(String),
    #[error("the decrypted text is no {0}")]
    Typed(&'static str),
}

struct CiphertextParts<'t> {
    data: Vec<u8>,
    nonce: Vec<u8>,
    datatype: &'t str,
}

/// Splits an encrypted value into its parts. Each part is matched greedily, and text after the last `]` is ignored.
fn parse(text: &[u8]) -> Result<CiphertextParts<'_>, CipherError> {
    let line = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = std::str::from_utf8(line).map_err(|_| CipherError::Form)?;
    let inner = line.strip_prefix("ENC[AES256_GCM,data:").ok_or(CipherError::Form)?;
    let (inner, _) = inner.rsplit_once(']').ok_or(CipherError::Form)?;
    let (inner, datatype) = inner.rsplit_once(",type:").ok_or(CipherError::Form)?;
    let (inner, tag) = inner.rsplit_once(",tag:").ok_or(CipherError::Form)?;
    let (data, nonce) = inner.rsplit_once(",iv:").ok_or(CipherError::Form)?;
    if [data, nonce, tag, datatype].iter().any(|part| part.is_empty()) {
        return Err(CipherError::Form);
    }
    let decode = |part: &str, name| {
        let decoded = if part.contains('\r') {
            BASE64.decode(part.replace('\r', ""))
        } else {
            BASE64.decode(part)
        };
        decoded.map_err(|_| CipherError::Base64(name))
    };
    let mut bytes = decode(data, "data")?;
    let nonce = decode(nonce, "iv")?;
    bytes.extend(decode(tag, "tag")?);
    Ok(CiphertextParts { data: bytes, nonce, datatype })
}

/// Decrypts a value that sops encrypted.
fn open(
    key: &[u8],
    nonce: [u8; 32],
    sealed: &[u8],
    path: &[u8],
) -> Result<SecretBytes, CipherError> {
    let cipher =
        AesGcm::<Aes256, U32>::new_from_slice(key).map_err(|_| CipherError::KeySize(key.len()))?;
    let nonce = Nonce::<U32>::from(nonce);
    let plain = cipher.decrypt(&nonce, Payload { msg: sealed, aad: path });
    plain.map(Zeroizing::new).map_err(|_| CipherError::Forged)
}

/// Decrypts a value. `path` is authenticated with it: the keys that lead to the value, each followed by a colon.
pub(crate) fn decrypt(text: &[u8], key: &[u8], path: &str) -> Result<SopsValue, CipherError> {
    if text.is_empty() {
        return Ok(SopsValue::from_text(""));
    }
    let parts = parse(text)?;
    let nonce = parts.nonce.as_slice();
    let path = path.as_bytes();
    let plain = match <[u8; 32]>::try_from(nonce) {
        Ok(nonce) => open(key, nonce, &parts.data, path),
        Err(_) if nonce.is_empty() => Err(CipherError::NoNonce),
        // Parity(sops): it writes 32 bytes, and takes any number of them.
        Err(_) => aes_256_gcm::open(key, nonce, &parts.data, path),
    }?;
    typed(plain, parts.datatype)
}

fn typed(plain: SecretBytes, datatype: &str) -> Result<SopsValue, CipherError> {
    let text = || std::str::from_utf8(&plain).unwrap_or("\u{fffd}");
    match datatype {
        "str" => Ok(SopsValue::Text(plain)),
        "comment" => Ok(SopsValue::Comment(SopsComment { text: plain, inline: false })),
        "int" => strconv::atoi(text()).map(SopsValue::Int).map_err(|_| CipherError::Typed("int")),
        "float" => {
            let float = strconv::parse_float(text(), 64).map(SopsValue::Float);
            float.map_err(|_| CipherError::Typed("float"))
        }
        "bool" => {
            strconv::parse_bool(text()).map(SopsValue::Bool).map_err(|_| CipherError::Typed("bool"))
        }
        "time" => {
            let time = GoTime::parse(RFC3339, text(), &GoTimeZone::Utc);
            time.map(|time| SopsValue::Time(time.format(RFC3339_NANO)))
                .map_err(|_| CipherError::Typed("time"))
        }
        // `bytes` is rejected, too. sops never writes this type and panics when it reads it, which Flux turns into an error.
        other => Err(CipherError::Datatype(other.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_iv_may_have_any_length_but_none() {
        // Made and opened again with Go 1.26, as `aes/cipher.go` of sops 3.13 does it.
        for (length, text) in [
            (
                1,
                "ENC[AES256_GCM,data:3Lh6Tfl3C7bqI0cPRvLZ988rCCDe,iv:Wg==,tag:datSNRl0/l6pvVwQ59ogmQ==,type:str]",
            ),
            (
                8,
                "ENC[AES256_GCM,data:fFCPJMfvLbXzvWtDPYIGFVa7fgEK,iv:WltYWV5fXF0=,tag:xPv3Uv0XWqSfY7SaNNaNqQ==,type:str]",
            ),
            (
                12,
                "ENC[AES256_GCM,data:TOL0yveO0p+Dr2JIibykKgrGo9al3w==,iv:WltYWV5fXF1SU1BR,tag:xBO56BRUfTvKMz4KbVO2VA==,type:str]",
            ),
            (
                16,
                "ENC[AES256_GCM,data:+aKcr9USADdGWpD2jCFY74NWOQ1TDQ==,iv:WltYWV5fXF1SU1BRVldUVQ==,tag:XyvoBiBrR416ey6PldNupw==,type:str]",
            ),
            (
                24,
                "ENC[AES256_GCM,data:iUNg3UxeLAUqlfyioLMjhTIacDwFTA==,iv:WltYWV5fXF1SU1BRVldUVUpLSElOT0xN,tag:P0BshYN10jTG71xZv4kuIA==,type:str]",
            ),
            (
                33,
                "ENC[AES256_GCM,data:p3o7Oo40tEyJgcQvgbULIoXRHoNx1w==,iv:WltYWV5fXF1SU1BRVldUVUpLSElOT0xNQkNAQUZHREV6,tag:gg1mcVwKdbBwN7a7vOuskw==,type:str]",
            ),
            (
                100,
                "ENC[AES256_GCM,data:trP/1IYNO3xCA5cba1KDtiCGXlgzvDo=,iv:WltYWV5fXF1SU1BRVldUVUpLSElOT0xNQkNAQUZHREV6e3h5fn98fXJzcHF2d3R1amtoaW5vbG1iY2BhZmdkZRobGBkeHxwdEhMQERYXFBUKCwgJDg8MDQIDAAEGBwQFOjs4OQ==,tag:2oN/yYDl2pbQO5ptz3G7cQ==,type:str]",
            ),
        ] {
            let value = decrypt(text.as_bytes(), &[7; 32], "a:b:").unwrap();
            let SopsValue::Text(plain) = value else { panic!("{value:?}") };
            assert_eq!(*plain, format!("plain with an iv of {length}").into_bytes());
            assert_eq!(decrypt(text.as_bytes(), &[7; 32], "a:").unwrap_err(), CipherError::Forged);
        }
        let none = b"ENC[AES256_GCM,data:3Lg=,iv:\r,tag:datSNRl0/l6pvVwQ59ogmQ==,type:str]";
        assert_eq!(decrypt(none, &[7; 32], "a:").unwrap_err(), CipherError::NoNonce);
    }
}
