//! Makes a Provider and an Alert for each service.

/// The API version of both kinds.
pub(super) const VERSION: &str = "notification.toolkit.fluxcd.io/v1beta3";

/// The kind of the objects that events are about. Other controllers report about this kind. windlass ignores events
/// about its own kinds if another program posts them.
pub(super) const KIND: &str = "ExternalArtifact";

/// The manifests for these services. Each service has a name and a URL.
pub(super) fn all(namespace: &str, services: &[(&str, String)]) -> Vec<String> {
    let objects = services.iter().map(|(name, url)| {
        format!(
            "\
apiVersion: {VERSION}
kind: Provider
metadata: {{name: {name}, namespace: {namespace}}}
spec: {{type: generic, address: \"{url}\", timeout: 15s}}
---
apiVersion: {VERSION}
kind: Alert
metadata: {{name: {name}, namespace: {namespace}}}
spec:
  providerRef: {{name: {name}}}
  eventSources: [{{kind: {KIND}, name: \"*\"}}]
"
        )
    });
    objects.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_service_has_a_provider_and_an_alert() {
        let text = all("bench", &[("live", "http://127.0.0.1:1/".to_owned())]).concat();
        let documents = goyaml::documents(text.as_bytes(), &goyaml::YamlLimits::default()).unwrap();
        let kinds: Vec<_> = documents.iter().map(|it| it.value["kind"].clone()).collect();
        assert_eq!(kinds, ["Provider", "Alert"]);
        assert_eq!(documents[0].value["spec"]["address"], "http://127.0.0.1:1/");
    }
}
