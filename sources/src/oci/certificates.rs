//! Certificates for the connection to a registry, from the keys that Flux reads in a Secret.

use std::collections::BTreeMap;

use http_client::{ClientCertificateAndKey, TlsConfig};
use objects::RedactedValue;

use super::Error;

/// Reads `ca.crt`, `tls.crt` and `tls.key`, or the older `caFile`, `certFile` and `keyFile`.
///
/// # Errors
/// [`Error::BadSecret`] naming the key that is missing. No text of the Secret is repeated.
pub fn tls_from_secret(data: &BTreeMap<String, Vec<u8>>) -> Result<TlsConfig, Error> {
    let either = |key: &str, older: &str| {
        let some = |key: &str| data.get(key).filter(|value| !value.is_empty()).cloned();
        some(key).or_else(|| some(older))
    };
    let alone = |given: &str, missing: &str| {
        Err(Error::BadSecret(format!("`{given}` of the Secret requires `{missing}`")))
    };
    let identity = match (either("tls.crt", "certFile"), either("tls.key", "keyFile")) {
        (Some(certificate), Some(key)) => {
            Some(ClientCertificateAndKey { certificate, key: RedactedValue::new(key) })
        }
        (None, None) => None,
        (Some(_), None) => return alone("tls.crt", "tls.key"),
        (None, Some(_)) => return alone("tls.key", "tls.crt"),
    };
    let ca = either("ca.crt", "caFile");
    if ca.is_none() && identity.is_none() {
        let why = "the Secret has neither `ca.crt` nor `tls.crt` and `tls.key`";
        return Err(Error::BadSecret(why.to_owned()));
    }
    Ok(TlsConfig { ca, identity })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_are_found_by_either_name_and_wanted_whole() {
        let read = |keys: &[&str]| {
            let data = keys.iter().map(|key| ((*key).to_owned(), b"hunter2".to_vec())).collect();
            let tls = tls_from_secret(&data).map_err(|error| error.to_string())?;
            assert!(!format!("{:?}", tls.identity).contains("hunter2"));
            Ok::<_, String>((tls.ca.is_some(), tls.identity.is_some()))
        };
        assert_eq!(read(&["ca.crt"]), Ok((true, false)));
        assert_eq!(read(&["caFile", "certFile", "keyFile"]), Ok((true, true)));
        assert_eq!(read(&["tls.crt", "tls.key"]), Ok((false, true)));
        for keys in [&["tls.crt"][..], &["tls.key", "ca.crt"], &[], &["other"]] {
            assert!(read(keys).is_err(), "{keys:?}");
        }
    }
}
