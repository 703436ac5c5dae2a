//! One encrypted value: `ENC[AES256_GCM,data:…,iv:…,tag:…,type:…]`.

use aes_gcm::aead::array::ArraySize;
use aes_gcm::aead::consts::{U12, U16, U32};
use aes_gcm::aead::{Aead, Payload};
use aes_gcm::aes::Aes256;
use aes_gcm::{AesGcm, KeyInit as _, Nonce};
use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{GeneralPurpose, GeneralPurposeConfig};
use golang::strconv;
use golang::time::{RFC3339, RFC3339_NANO, Time, Zone};
use zeroize::Zeroizing;

use crate::value::{Bytes, Comment, Value};

/// Go ignores bits that are left over.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);

/// Why a value was not decrypted. Displays in the words of sops, but without the value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CipherError {
    #[error("Input string <redacted> does not match sops' data format")]
    Form,
    #[error("Error base64-decoding {0}: illegal base64 data")]
    Base64(&'static str),
    #[error("crypto/aes: invalid key size {0}")]
    KeySize(usize),
    /// Differs(sops): it takes nonces of any length but none, and writes only those of 32 bytes.
    #[error("a nonce of {0} bytes is not supported: sops writes 32")]
    NonceSize(usize),
    #[error("Could not decrypt with AES_GCM: cipher: message authentication failed")]
    Forged,
    #[error("Unknown datatype: {0}")]
    Datatype(String),
    #[error("the decrypted text is no {0}")]
    Typed(&'static str),
}

struct Parts<'t> {
    data: Vec<u8>,
    nonce: Vec<u8>,
    datatype: &'t str,
}

/// The parts of a value; each is as long as can be, and text behind the last `]` is ignored.
fn parse(text: &[u8]) -> Result<Parts<'_>, CipherError> {
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
    Ok(Parts { data: bytes, nonce, datatype })
}

fn open<N: ArraySize>(
    key: &[u8],
    nonce: &[u8],
    sealed: &[u8],
    path: &[u8],
) -> Result<Bytes, CipherError> {
    let cipher =
        AesGcm::<Aes256, N>::new_from_slice(key).map_err(|_| CipherError::KeySize(key.len()))?;
    let nonce = Nonce::<N>::try_from(nonce).map_err(|_| CipherError::NonceSize(nonce.len()))?;
    let plain = cipher.decrypt(&nonce, Payload { msg: sealed, aad: path });
    plain.map(Zeroizing::new).map_err(|_| CipherError::Forged)
}

/// The plain value. `path` is authenticated with it: the keys that lead to it, each followed by a colon.
pub(crate) fn decrypt(text: &[u8], key: &[u8], path: &str) -> Result<Value, CipherError> {
    if text.is_empty() {
        return Ok(Value::from_text(""));
    }
    let parts = parse(text)?;
    let (nonce, path) = (parts.nonce.as_slice(), path.as_bytes());
    let plain = match nonce.len() {
        32 => open::<U32>(key, nonce, &parts.data, path),
        16 => open::<U16>(key, nonce, &parts.data, path),
        12 => open::<U12>(key, nonce, &parts.data, path),
        other => Err(CipherError::NonceSize(other)),
    }?;
    typed(plain, parts.datatype)
}

fn typed(plain: Bytes, datatype: &str) -> Result<Value, CipherError> {
    let text = || std::str::from_utf8(&plain).unwrap_or("\u{fffd}");
    match datatype {
        "str" => Ok(Value::Text(plain)),
        "comment" => Ok(Value::Comment(Comment { text: plain, inline: false })),
        "int" => strconv::atoi(text()).map(Value::Int).map_err(|_| CipherError::Typed("int")),
        "float" => {
            let float = strconv::parse_float(text(), 64).map(Value::Float);
            float.map_err(|_| CipherError::Typed("float"))
        }
        "bool" => {
            strconv::parse_bool(text()).map(Value::Bool).map_err(|_| CipherError::Typed("bool"))
        }
        "time" => {
            let time = Time::parse(RFC3339, text(), &Zone::Utc);
            time.map(|time| Value::Time(time.format(RFC3339_NANO)))
                .map_err(|_| CipherError::Typed("time"))
        }
        // `bytes`, which sops never writes, is refused too: sops panics over it, and Flux makes that an error.
        other => Err(CipherError::Datatype(other.to_owned())),
    }
}
