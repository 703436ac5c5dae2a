//! Certificates are read back by another library, and their signatures are verified.

use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};

use super::pem;
use crate::test_rendering::{check, render};

/// Renders a certificate's PEM and gives it, read, to a check.
fn with_certificate(template: &str, check: impl FnOnce(&X509Certificate<'_>)) {
    let text = render(template);
    let block = pem::decode(text.as_bytes()).unwrap_or_else(|| panic!("{template}: {text}"));
    let (rest, certificate) = X509Certificate::from_der(&block.bytes).unwrap();
    assert!(rest.is_empty() && block.label == "CERTIFICATE");
    check(&certificate);
}

#[test]
fn an_authority_says_that_it_signs_certificates() {
    with_certificate(r#"{{ (genCA "root ca" 365).Cert }}"#, |ca| {
        assert_eq!(ca.subject().to_string(), "CN=root ca");
        assert_eq!(ca.subject(), ca.issuer());
        assert!(ca.is_ca());
        let usage = ca.key_usage().unwrap().unwrap();
        assert!(usage.critical && usage.value.flags == 0b10_0101, "{:b}", usage.value.flags);
        let extended = ca.extended_key_usage().unwrap().unwrap().value;
        assert!(extended.server_auth && extended.client_auth && !extended.any);
        let validity = ca.validity();
        assert_eq!(validity.not_before.timestamp(), 1_577_966_400);
        assert_eq!(validity.not_after.timestamp(), 1_577_966_400 + 365 * 86_400);
        assert!(ca.subject_alternative_name().unwrap().is_none());
        ca.verify_signature(None).unwrap();
    });
}

#[test]
fn a_certificate_has_names_and_the_signature_of_its_authority() {
    let both = r#"{{ $ca := genCAWithKey "ca" 1 (genPrivateKey "ecdsa") }}{{ $ca.Cert }}{{ (genSignedCert "a.b" (list "10.0.0.1" "::1") (list "a.b" "*.c.d") 30000 $ca).Cert }}"#
        .replace("(list \"10.0.0.1\" \"::1\")", "(mustFromJson \"[\\\"10.0.0.1\\\",\\\"::1\\\"]\")")
        .replace("(list \"a.b\" \"*.c.d\")", "(mustFromJson \"[\\\"a.b\\\",\\\"*.c.d\\\"]\")");
    let text = render(&both);
    let end = "-----END CERTIFICATE-----\n";
    let (first, second) =
        text.split_at(text.find(end).unwrap_or_else(|| panic!("{text}")) + end.len());
    let [first, second] = [first, second].map(|text| pem::decode(text.as_bytes()).unwrap().bytes);
    let (_, ca) = X509Certificate::from_der(&first).unwrap();
    let (_, leaf) = X509Certificate::from_der(&second).unwrap();
    leaf.verify_signature(Some(ca.public_key())).unwrap();
    assert!(leaf.verify_signature(None).is_err() && !leaf.is_ca());
    assert_eq!(leaf.issuer().to_string(), "CN=ca");
    // Beyond 2049 times have another form.
    assert_eq!(leaf.validity().not_after.timestamp(), 1_577_966_400 + 30_000 * 86_400);
    let names = leaf.subject_alternative_name().unwrap().unwrap();
    let names: Vec<String> = names
        .value
        .general_names
        .iter()
        .map(|name| match name {
            GeneralName::DNSName(host) => (*host).to_owned(),
            GeneralName::IPAddress(address) => format!("{address:?}"),
            other => other.to_string(),
        })
        .collect();
    assert_eq!(names[..3], ["a.b", "*.c.d", "[10, 0, 0, 1]"]);
    assert_eq!(leaf.key_usage().unwrap().unwrap().value.flags, 0b101);
}

#[test]
fn keys_of_every_kind_sign_themselves_and_come_back_as_they_were() {
    for kind in ["rsa", "ecdsa", "ed25519"] {
        let template = format!(
            "{{{{ $k := genPrivateKey \"{kind}\" }}}}{{{{ $c := genSelfSignedCertWithKey \"x\" nil nil 1 $k }}}}{{{{ eq $c.Key $k }}}}\n{{{{ $c.Cert }}}}"
        );
        with_certificate(&template, |certificate| {
            assert!(!certificate.is_ca());
            certificate.verify_signature(None).unwrap();
        });
        assert!(render(&template).starts_with("true\n-----BEGIN"), "{kind}");
    }
    check(r#"{{ genPrivateKey "nope" }}"#, "Unknown type nope");
    check(r#"{{ substr 0 31 (genCA "x" 1).Key }}"#, "-----BEGIN RSA PRIVATE KEY-----");
}

#[test]
fn keys_of_dsa_have_their_form_and_sign_nothing() {
    let key = render(r#"{{ genPrivateKey "dsa" }}"#);
    let block = pem::decode(key.as_bytes()).unwrap();
    assert_eq!(block.label, "DSA PRIVATE KEY");
    super::dsa::check(&block.bytes).unwrap();
    let template = format!("{{{{ genCAWithKey \"x\" 1 {key:?} }}}}");
    check(
        &template,
        "error calling genCAWithKey: error creating certificate: x509: certificate private key does not implement crypto.Signer",
    );
}

#[test]
fn what_is_no_key_or_address_is_said_in_the_words_of_sprig() {
    for (template, wanted) in [
        (
            r#"genSelfSignedCertWithKey "x" nil nil 365 "bad""#,
            "parsing private key: no PEM data in input",
        ),
        (
            r#"genSelfSignedCert "x" (fromJsonArray "[\"not-an-ip\"]") nil 365"#,
            "error parsing ip: not-an-ip",
        ),
        (
            r#"genSelfSignedCert "x" nil (fromJsonArray "[5]") 365"#,
            "error processing alternate dns name: 5 is not a string",
        ),
        (r#"buildCustomCert "???" "x""#, "unable to decode base64 certificate"),
        (r#"buildCustomCert "" """#, "unable to decode certificate"),
        (
            r#"genSelfSignedCert "x" nil (fromJsonArray "[\"é\"]") 365"#,
            "error creating certificate: x509: \"é\" cannot be encoded as an IA5String",
        ),
    ] {
        let function = template.split(' ').next().unwrap();
        check(&format!("{{{{ {template} }}}}"), &format!("error calling {function}: {wanted}"));
    }
}

#[test]
fn a_certificate_that_is_there_is_taken_as_it_is() {
    let template = r#"{{ $ca := genCAWithKey "ca" 1 (genPrivateKey "ecdsa") }}{{ $c := buildCustomCert (b64enc $ca.Cert) (b64enc $ca.Key) }}{{ eq $c.Cert $ca.Cert }} {{ eq $c.Key $ca.Key }}"#;
    check(template, "true true");
}
