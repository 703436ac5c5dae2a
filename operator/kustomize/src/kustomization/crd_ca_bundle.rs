//! CustomResourceDefinitions that carry a placeholder in place of the certificates of their conversion webhook.
//!
//! Kubernetes stores such a definition and never serves it ("The conversion webhook CABundle is invalid"); an injector such as
//! cert-manager sets the certificates later.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use objects::Object;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::{Map, Value};

use windlass_runtime::crd_guard::is_definition;

/// Takes the certificates of a conversion webhook out of a definition if there is none among them. Parity(flux).
pub(super) fn remove_unusable(object: &mut Object) {
    if !is_definition(object) {
        return;
    }
    let client = ["spec", "conversion", "webhook", "clientConfig"];
    let client = client.iter().try_fold(object.fields_mut(), |fields, name| {
        fields.get_mut(*name).and_then(Value::as_object_mut)
    });
    let is_unusable = |client: &Map<String, Value>| {
        let bundle = client.get("caBundle").and_then(Value::as_str);
        bundle.is_some_and(|text| !text.is_empty() && !has_certificate(text))
    };
    if let Some(client) = client.filter(|client| is_unusable(client)) {
        client.remove("caBundle");
    }
}

/// Whether a text is Base64 of PEM with at least one certificate. Parity(go): line breaks in Base64 do not count, and what
/// else is in PEM does not either.
fn has_certificate(text: &str) -> bool {
    let Ok(pem) = BASE64.decode(text.replace(['\r', '\n'], "")) else { return false };
    // A bundle that decodes to nothing does not count as a placeholder.
    pem.is_empty()
        || CertificateDer::pem_slice_iter(&pem)
            .filter_map(Result::ok)
            .any(|certificate| RootCertStore::empty().add(certificate).is_ok())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const VALID_CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----
MIIBbzCCARWgAwIBAgIUEtJo+34nuKteTNtU6MuoamE+5VwwCgYIKoZIzj0EAwIw
DDEKMAgGA1UEAwwBczAgFw0yNjExMjgwMzM0MDlaGA8yMTI2MTEwNDAzMzQwOVow
DDEKMAgGA1UEAwwBczBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABIlWcsGwuMnt
xQhIRDX/ez87qY3K+ZMjfKnsLZ5WUpZKEe+gfYPqvD3RfNNeDllHlEMPqImNMTaw
zL4y58scAiijUzBRMB0GA1UdDgQWBBRukL5POaWuM0PqJRV7hw/6GWJVxjAfBgNV
HSMEGDAWgBRukL5POaWuM0PqJRV7hw/6GWJVxjAPBgNVHRMBAf8EBTADAQH/MAoG
CCqGSM49BAMCA0gAMEUCIGsWgK3CJAE3xIZ7uhZ8t8bDlVb532ICVkPBzEYVRpLf
AiEAnXo5RDATib7mmSzLN01uQniojf7cZmjErDBYWMde8E0=
-----END CERTIFICATE-----
";

    /// The bundle of a definition after a build.
    fn left(kind: &str, bundle: &Value) -> Value {
        let api = match kind {
            "CustomResourceDefinition" => "apiextensions.k8s.io/v1",
            _ => "acme.io/v1",
        };
        let mut object = Object::new(json!({"apiVersion": api, "kind": kind,
            "metadata": {"name": "widgets.acme.io"},
            "spec": {"conversion": {"strategy": "Webhook", "webhook": {
                "clientConfig": {"caBundle": bundle, "service": {"name": "s"}}}}}}))
        .unwrap();
        remove_unusable(&mut object);
        let client = &object.get("spec").unwrap()["conversion"]["webhook"]["clientConfig"];
        assert_eq!(client["service"]["name"], "s");
        client.get("caBundle").cloned().unwrap_or_else(|| "removed".into())
    }

    #[test]
    fn a_placeholder_goes_and_certificates_stay() {
        let good = json!(BASE64.encode(VALID_CERTIFICATE));
        let noisy = json!(BASE64.encode(format!("issuer: s\n{VALID_CERTIFICATE}")));
        let broken = "-----BEGIN CERTIFICATE-----\nYQ==\n-----END CERTIFICATE-----";
        let table = [
            (json!("Cg=="), json!("removed")),
            (json!("no Base64"), json!("removed")),
            (json!(BASE64.encode(broken)), json!("removed")),
            (good.clone(), good),
            (noisy.clone(), noisy),
            (json!(""), json!("")),
            (json!(5), json!(5)),
        ];
        for (bundle, expected) in table {
            assert_eq!(left("CustomResourceDefinition", &bundle), expected, "{bundle}");
        }
        assert_eq!(left("Widget", &json!("Cg==")), "Cg==");
    }
}
