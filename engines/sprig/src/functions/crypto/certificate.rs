//! Certificates of X.509, with the fields and extensions that Go writes, in its order.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use golang::GoRuntimeValue;
use golang::strconv::{QuotingStyle, quote};
use golang::time::{GoDuration, GoTime, GoTimeZone};
use golang::value::{GoObject, GoString};
use gotemplate::TemplateFunctionError;
use x509_parser::prelude::{FromDer as _, ParsedExtension, X509Certificate};
use yasna::models::TaggedDerValue;
use yasna::tags::{TAG_GENERALIZEDTIME, TAG_UTCTIME};
use yasna::{DERWriter, DERWriterSeq, Tag};

use super::key::{PrivateKey, oid};
use super::pem;
use crate::template_environment::RandomBytesEnvironment;

/// A `sprig.certificate`: a certificate and its private key, both in PEM.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct CertificateAndKey {
    pub(super) cert: GoString,
    pub(super) key: GoString,
}

impl fmt::Debug for CertificateAndKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CertificateAndKey").field("cert", &self.cert).finish_non_exhaustive()
    }
}

impl GoObject for CertificateAndKey {
    fn type_name(&self) -> &'static str {
        "sprig.certificate"
    }

    fn fields(&self) -> Vec<(&'static str, GoRuntimeValue)> {
        vec![
            ("Cert", GoRuntimeValue::String(self.cert.clone())),
            ("Key", GoRuntimeValue::String(self.key.clone())),
        ]
    }

    fn equals(&self, other: &dyn GoObject) -> bool {
        let other: &dyn std::any::Any = other;
        other.downcast_ref::<Self>() == Some(self)
    }
}

/// The content of a certificate.
pub(super) struct CertificateFields<'a> {
    pub(super) common_name: &'a [u8],
    pub(super) days: i64,
    pub(super) addresses: Vec<IpAddr>,
    pub(super) hosts: Vec<GoString>,
    pub(super) is_authority: bool,
}

impl<'a> CertificateFields<'a> {
    /// A request for a certificate with a common name, valid for this number of days.
    pub(super) fn new(common_name: &'a [u8], days: i64) -> Self {
        Self { common_name, days, addresses: vec![], hosts: vec![], is_authority: false }
    }
}

/// A certificate authority that can sign the certificates of a template.
pub(super) struct CertificateAuthority {
    /// The name of the issuer, in DER.
    name: Vec<u8>,
    key_id: Vec<u8>,
    public_info: Vec<u8>,
    key: PrivateKey,
}

impl CertificateAuthority {
    /// The authority that a `sprig.certificate` is.
    ///
    /// # Errors
    /// It holds no certificate or no key, in sprig's words.
    pub(super) fn parse(pair: &GoRuntimeValue) -> Result<Self, String> {
        let text = |name| match pair {
            GoRuntimeValue::Object(object) => match object.field(name) {
                Some(GoRuntimeValue::String(text)) => text,
                _ => GoString::default(),
            },
            _ => GoString::default(),
        };
        let block = pem::decode(&text("Cert")).ok_or("unable to decode certificate")?;
        let certificate = read(&block.bytes).map_err(|error| {
            format!("error parsing certificate: decodedSignerCert.Bytes: {error}")
        })?;
        let key = PrivateKey::from_pem(&text("Key"))
            .map_err(|error| format!("error parsing private key: {error}"))?;
        let key_id = certificate.extensions().iter().find_map(|extension| {
            match extension.parsed_extension() {
                ParsedExtension::SubjectKeyIdentifier(id) => Some(id.0.to_vec()),
                _ => None,
            }
        });
        Ok(Self {
            name: certificate.subject().as_raw().to_vec(),
            key_id: key_id.unwrap_or_default(),
            public_info: certificate.public_key().raw.to_vec(),
            key,
        })
    }
}

/// Whether bytes are a certificate.
///
/// # Errors
/// They are not, in Go's words.
pub(super) fn check(der: &[u8]) -> Result<(), String> {
    read(der).map(drop)
}

fn read(der: &[u8]) -> Result<X509Certificate<'_>, String> {
    match X509Certificate::from_der(der) {
        Ok(([], certificate)) => Ok(certificate),
        Ok(_) => Err("x509: trailing data".to_owned()),
        Err(_) => Err("x509: malformed certificate".to_owned()),
    }
}

/// The addresses of a list.
///
/// # Errors
/// One of the items is not an IP address.
pub(super) fn addresses(list: &GoRuntimeValue) -> Result<Vec<IpAddr>, TemplateFunctionError> {
    let address = |item: &GoRuntimeValue| {
        let GoRuntimeValue::String(text) = item else {
            return Err(format!("error parsing ip: {} is not a string", printed(item)));
        };
        let parsed: Option<IpAddr> = std::str::from_utf8(text).ok().and_then(|it| it.parse().ok());
        parsed.ok_or_else(|| format!("error parsing ip: {}", text.lossy()))
    };
    Ok(items(list).iter().map(address).collect::<Result<_, _>>()?)
}

/// The names of hosts in a list.
///
/// # Errors
/// One of the items is not a string.
pub(super) fn hosts(list: &GoRuntimeValue) -> Result<Vec<GoString>, TemplateFunctionError> {
    let host = |item: &GoRuntimeValue| match item {
        GoRuntimeValue::String(text) => Ok(text.clone()),
        other => {
            let text = printed(other);
            Err(format!("error processing alternate dns name: {text} is not a string"))
        }
    };
    Ok(items(list).iter().map(host).collect::<Result<_, _>>()?)
}

fn items(list: &GoRuntimeValue) -> &[GoRuntimeValue] {
    match list {
        GoRuntimeValue::List(list) => list.items(),
        _ => &[],
    }
}

fn printed(value: &GoRuntimeValue) -> String {
    let text = golang::fmt::sprint(std::slice::from_ref(value)).unwrap_or_default();
    String::from_utf8_lossy(&text).into_owned()
}

/// A certificate that its own key signs.
pub(super) fn self_signed(
    template_environment: RandomBytesEnvironment<'_>,
    request: &CertificateFields<'_>,
    key: &PrivateKey,
) -> Result<GoRuntimeValue, TemplateFunctionError> {
    let name = name(request.common_name).map_err(failed)?;
    issue(template_environment, request, key, &IssuerNameAndKey { name: &name, key_id: &[], key })
}

/// A certificate that an authority signs.
pub(super) fn signed(
    template_environment: RandomBytesEnvironment<'_>,
    request: &CertificateFields<'_>,
    key: &PrivateKey,
    authority: &CertificateAuthority,
) -> Result<GoRuntimeValue, TemplateFunctionError> {
    let CertificateAuthority { name, key_id, public_info, key: signer } = authority;
    if signer.is_signer() && signer.public_info().as_ref() != Ok(public_info) {
        return Err(failed("x509: provided PrivateKey doesn't match parent's PublicKey"));
    }
    issue(template_environment, request, key, &IssuerNameAndKey { name, key_id, key: signer })
}

fn failed(error: impl fmt::Display) -> TemplateFunctionError {
    format!("error creating certificate: {error}").into()
}

/// The issuer of a certificate: its key and name.
struct IssuerNameAndKey<'a> {
    name: &'a [u8],
    key_id: &'a [u8],
    key: &'a PrivateKey,
}

fn issue(
    template_environment: RandomBytesEnvironment<'_>,
    request: &CertificateFields<'_>,
    key: &PrivateKey,
    issuer: &IssuerNameAndKey<'_>,
) -> Result<GoRuntimeValue, TemplateFunctionError> {
    if !issuer.key.is_signer() {
        return Err(failed("x509: certificate private key does not implement crypto.Signer"));
    }
    let public_info = key.public_info().map_err(failed)?;
    let subject = name(request.common_name).map_err(failed)?;
    if let Some(host) = request.hosts.iter().find(|host| !host.is_ascii()) {
        let host = String::from_utf8_lossy(&quote(host, QuotingStyle::Printable)).into_owned();
        return Err(failed(format!("x509: {host} cannot be encoded as an IA5String")));
    }
    let begin = template_environment.now().in_zone(GoTimeZone::Utc);
    // Parity(go): a number of days that does not fit into a `time.Duration` wraps around.
    let end = begin.add(GoDuration(request.days.wrapping_mul(86_400_000_000_000)));
    let validity = [moment(&begin).map_err(failed)?, moment(&end).map_err(failed)?];
    let mut serial = [0; 16];
    template_environment.fill(&mut serial);
    let algorithm = issuer.key.signature_algorithm();
    let is_self_signed = issuer.name == subject;
    let body = yasna::construct_der(|writer| {
        writer.write_sequence(|writer| {
            // Version 3.
            writer.next().write_tagged(Tag::context(0), |writer| writer.write_i64(2));
            writer.next().write_bigint_bytes(&serial, true);
            writer.next().write_der(&algorithm);
            writer.next().write_der(issuer.name);
            writer.next().write_sequence(|writer| {
                validity.iter().for_each(|moment| writer.next().write_tagged_der(moment));
            });
            writer.next().write_der(&subject);
            writer.next().write_der(&public_info);
            writer.next().write_tagged(Tag::context(3), |writer| {
                writer.write_sequence(|writer| {
                    let authority_id = if is_self_signed { &[] } else { issuer.key_id };
                    extensions(writer, request, key.public_key(), authority_id);
                });
            });
        });
    });
    let signature =
        issuer.key.sign(&body).ok_or_else(|| failed("the library failed to sign it"))?;
    let certificate = yasna::construct_der(|writer| {
        writer.write_sequence(|writer| {
            writer.next().write_der(&body);
            writer.next().write_der(&algorithm);
            writer.next().write_bitvec_bytes(&signature, signature.len() * 8);
        });
    });
    let cert = pem::encode("CERTIFICATE", &certificate).into();
    Ok(GoRuntimeValue::Object(Arc::new(CertificateAndKey { cert, key: key.to_pem().into() })))
}

const KEY_USAGE: u64 = 15;
const EXTENDED_KEY_USAGE: u64 = 37;
const BASIC_CONSTRAINTS: u64 = 19;
const SUBJECT_KEY_ID: u64 = 14;
const AUTHORITY_KEY_ID: u64 = 35;
const SUBJECT_ALTERNATIVE_NAME: u64 = 17;

fn extensions(
    writer: &mut DERWriterSeq<'_>,
    request: &CertificateFields<'_>,
    public_key: &[u8],
    authority_id: &[u8],
) {
    let is_authority = request.is_authority;
    // The certificate may sign and encipher keys. An authority may also sign certificates.
    let (usage, bits) = if is_authority { (0b1010_0100, 6) } else { (0b1010_0000, 3) };
    extension(writer, KEY_USAGE, true, |writer| writer.write_bitvec_bytes(&[usage], bits));
    extension(writer, EXTENDED_KEY_USAGE, false, |writer| {
        writer.write_sequence(|writer| {
            // Servers and clients.
            oid(writer.next(), &[1, 3, 6, 1, 5, 5, 7, 3, 1]);
            oid(writer.next(), &[1, 3, 6, 1, 5, 5, 7, 3, 2]);
        });
    });
    extension(writer, BASIC_CONSTRAINTS, true, |writer| {
        writer.write_sequence(|writer| {
            if is_authority {
                writer.next().write_bool(true);
            }
        });
    });
    if is_authority {
        let id = digest(&SHA256, public_key);
        let id = id.as_ref().get(..20).unwrap_or_default();
        extension(writer, SUBJECT_KEY_ID, false, |writer| writer.write_bytes(id));
    }
    if !authority_id.is_empty() {
        extension(writer, AUTHORITY_KEY_ID, false, |writer| {
            writer.write_sequence(|writer| {
                writer.next().write_tagged_implicit(Tag::context(0), |writer| {
                    writer.write_bytes(authority_id);
                });
            });
        });
    }
    if !request.hosts.is_empty() || !request.addresses.is_empty() {
        let is_nameless = request.common_name.is_empty();
        extension(writer, SUBJECT_ALTERNATIVE_NAME, is_nameless, |writer| {
            writer.write_sequence(|writer| names(writer, request));
        });
    }
}

fn names(writer: &mut DERWriterSeq<'_>, request: &CertificateFields<'_>) {
    for host in &request.hosts {
        writer.next().write_tagged_implicit(Tag::context(2), |writer| writer.write_bytes(host));
    }
    for address in &request.addresses {
        let bytes = match address.to_canonical() {
            IpAddr::V4(address) => address.octets().to_vec(),
            IpAddr::V6(address) => address.octets().to_vec(),
        };
        writer.next().write_tagged_implicit(Tag::context(7), |writer| writer.write_bytes(&bytes));
    }
}

fn extension(
    writer: &mut DERWriterSeq<'_>,
    id: u64,
    is_critical: bool,
    content: impl FnOnce(DERWriter<'_>),
) {
    writer.next().write_sequence(|writer| {
        oid(writer.next(), &[2, 5, 29, id]);
        if is_critical {
            writer.next().write_bool(true);
        }
        writer.next().write_bytes(&yasna::construct_der(content));
    });
}

/// A name in DER that has only a common name. An empty name has no parts.
fn name(common_name: &[u8]) -> Result<Vec<u8>, String> {
    let text = std::str::from_utf8(common_name).map_err(|_| "asn1: string not valid UTF-8")?;
    let is_printable = |byte: u8| {
        byte.is_ascii_alphanumeric()
            || matches!(byte, b'\''..=b')' | b'+'..=b'/' | b' ' | b':' | b'=' | b'?')
    };
    Ok(yasna::construct_der(|writer| {
        writer.write_sequence(|writer| {
            if text.is_empty() {
                return;
            }
            writer.next().write_set(|writer| {
                writer.next().write_sequence(|writer| {
                    oid(writer.next(), &[2, 5, 4, 3]);
                    if text.bytes().all(is_printable) {
                        writer.next().write_printable_string(text);
                    } else {
                        writer.next().write_utf8_string(text);
                    }
                });
            });
        });
    }))
}

/// A time in DER. Its form depends on the year.
fn moment(time: &GoTime) -> Result<TaggedDerValue, String> {
    let date = time.date();
    let clock = time.clock();
    let rest = format!(
        "{:02}{:02}{:02}{:02}{:02}Z",
        date.month, date.day, clock.hour, clock.minute, clock.second
    );
    let (tag, text) = match date.year {
        1950..2050 => (TAG_UTCTIME, format!("{:02}{rest}", date.year % 100)),
        0..10_000 => (TAG_GENERALIZEDTIME, format!("{:04}{rest}", date.year)),
        _ => {
            return Err(
                "asn1: structure error: cannot represent time as GeneralizedTime".to_owned()
            );
        }
    };
    Ok(TaggedDerValue::from_tag_and_bytes(tag, text.into_bytes()))
}
