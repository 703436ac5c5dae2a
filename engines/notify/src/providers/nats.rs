//! Type `nats`: publishes the event on a subject. Subject, payload and login are decided here; the program has the transport.

use std::fmt;

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use golang::url::{GoUrl, UrlUserInfo};

use crate::delivery_message::{DeliveryMessage, NatsLogin, NatsMessage};
use crate::event::FluxEvent;
use crate::event_delivery::ProviderNextAction;
use crate::provider_options::ProviderOptions;

/// A key that signs the nonce of a server, and optionally the JWT of the user. Its `Debug` shows neither.
#[derive(Clone)]
pub struct NatsKey {
    seed: [u8; 32],
    prefix: u8,
    jwt: Option<String>,
}

impl fmt::Debug for NatsKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NatsKey")
    }
}

impl NatsKey {
    /// The JWT of the user; `None` if the key has none.
    pub fn jwt(&self) -> Option<&str> {
        self.jwt.as_deref()
    }

    /// The public key in NATS's format. `None` if the seed is not a key.
    pub fn public(&self) -> Option<String> {
        let pair = Ed25519KeyPair::from_seed_unchecked(&self.seed).ok()?;
        let mut raw = vec![self.prefix];
        raw.extend(pair.public_key().as_ref());
        raw.extend(checksum(&raw).to_le_bytes());
        Some(base32(&raw))
    }

    /// The signature of a nonce in NATS's format. `None` if the seed is not a key.
    pub fn sign(&self, nonce: &[u8]) -> Option<String> {
        let pair = Ed25519KeyPair::from_seed_unchecked(&self.seed).ok()?;
        Some(URL_SAFE_NO_PAD.encode(pair.sign(nonce)))
    }

    /// Reads a seed in base 32: the letter `S`, the purpose of the key, 32 bytes and a checksum.
    fn from_seed(text: &str, jwt: Option<String>) -> Result<Self, &'static str> {
        let raw = from_base32(text.trim())
            .filter(|raw| raw.len() >= 4)
            .ok_or("nkeys: invalid encoded key")?;
        let (body, sum) = raw.split_last_chunk::<2>().ok_or("nkeys: invalid encoded key")?;
        if checksum(body) != u16::from_le_bytes(*sum) {
            return Err("nkeys: invalid checksum");
        }
        let [first, second, seed @ ..] = body else { return Err("nkeys: invalid seed") };
        let seed = seed.try_into().map_err(|_| "nkeys: invalid seed")?;
        if first & 0xf8 != SEED_PREFIX_BITS {
            return Err("nkeys: invalid seed");
        }
        Ok(Self { seed, prefix: (first & 7) << 5 | (second & 0xf8) >> 3, jwt })
    }

    /// Reads a credentials file: a JWT and a seed, each between lines of dashes.
    fn from_credentials(text: &str) -> Result<Self, &'static str> {
        let mut blocks = text.lines().map(str::trim).skip_while(|line| !line.starts_with("---"));
        let mut lines = Vec::new();
        let mut is_after_mark = false;
        for line in blocks.by_ref() {
            if line.starts_with("---") {
                is_after_mark = true;
            } else if is_after_mark && !line.is_empty() {
                lines.push(line);
                is_after_mark = false;
            }
        }
        let seed = lines.iter().find(|line| {
            line.starts_with("SU") || line.starts_with("SA") || line.starts_with("SO")
        });
        let seed =
            seed.ok_or("unable to extract key pair from bytes: nkeys: no nkey seed found")?;
        let jwt = lines.first().filter(|line| *line != seed).map(|line| (*line).to_owned());
        Self::from_seed(seed, jwt)
    }
}

/// The first bits of a seed, which encode the letter `S`.
const SEED_PREFIX_BITS: u8 = 18 << 3;

/// The checksum CRC-16 of XMODEM, which ends NATS's keys.
fn checksum(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |sum, byte| {
        (0..8).fold(sum ^ u16::from(*byte) << 8, |sum, _| {
            if sum & 0x8000 == 0 { sum << 1 } else { sum << 1 ^ 0x1021 }
        })
    })
}

const BASE32_ALPHABET: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

fn base32(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.chunks(5) {
        let mut group = [0; 8];
        group[3..3 + chunk.len()].copy_from_slice(chunk);
        let bits = u64::from_be_bytes(group);
        for digit in 0..(chunk.len() * 8).div_ceil(5) {
            let at = (bits >> (35 - 5 * digit)) & 31;
            text.push(char::from(BASE32_ALPHABET[usize::try_from(at).unwrap_or_default()]));
        }
    }
    text
}

fn from_base32(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut bits = 0_u32;
    let mut count = 0;
    for letter in text.bytes() {
        let digit = BASE32_ALPHABET.iter().position(|known| *known == letter)?;
        bits = bits << 5 | u32::try_from(digit).ok()?;
        count += 5;
        if count >= 8 {
            count -= 8;
            bytes.push(u8::try_from(bits >> count & 0xff).ok()?);
            bits &= (1 << count) - 1;
        }
    }
    Some(bytes)
}

pub(super) fn flow(options: ProviderOptions, event: FluxEvent) -> ProviderNextAction {
    if options.url.is_empty() {
        return ProviderNextAction::refused("NATS server (address) cannot be empty");
    }
    let subject = options.channel.clone();
    if subject.is_empty() {
        return ProviderNextAction::refused("NATS subject (channel) cannot be empty");
    }
    let publishing = format!("error publishing event to subject {subject}: ");
    let message = match login(&options) {
        Ok(login) => NatsMessage {
            server: options.url,
            name: "NATS Provider Publisher",
            subject,
            data: event.to_json(),
            login,
        },
        Err(error) => return ProviderNextAction::failed(format!("{publishing}{error}")),
    };
    let then = move |result: Result<(), String>| {
        ProviderNextAction::end(result.map_err(|error| format!("{publishing}{error}")))
    };
    ProviderNextAction::Publish(DeliveryMessage::Nats(Box::new(message)), Box::new(then))
}

/// Credentials come before a seed, and a seed before a password.
fn login(options: &ProviderOptions) -> Result<NatsLogin, String> {
    let text = |key| options.secret.text(key).filter(|text| !text.is_empty());
    if let Some(credentials) = text("creds") {
        let key = NatsKey::from_credentials(&credentials)
            .map_err(|error| format!("error connecting to server: error signing nonce: {error}"))?;
        return Ok(NatsLogin::Key(key));
    }
    if let Some(seed) = text("nkey") {
        let key = NatsKey::from_seed(&seed, None)
            .map_err(|error| format!("error parsing nkey seed: {error}"))?;
        return Ok(NatsLogin::Key(key));
    }
    // Credentials in the address take precedence.
    let user = GoUrl::parse(options.url.as_bytes()).ok().and_then(|url| url.user);
    if let Some(UrlUserInfo { name, password: Some(password) }) = user {
        let lossy = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        return Ok(NatsLogin::Password(lossy(&name), lossy(&password)));
    }
    if options.username.is_empty() || options.password.is_empty() {
        return Ok(NatsLogin::None);
    }
    Ok(NatsLogin::Password(options.username.clone(), options.password.clone()))
}
