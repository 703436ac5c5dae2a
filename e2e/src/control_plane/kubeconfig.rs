//! Writes and reads the kubeconfig files of the test bed.
//!
//! Here: the text of the files, and a client made from one.
//! Elsewhere: the users and the locations of the files (`state_folder`, `crate::control_plane`).

use std::path::Path;

use anyhow::{Context, Result};
use base64::prelude::{BASE64_STANDARD, Engine};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use crate::certificate_authority::IssuedCertificate;

/// The credential of a user.
pub(super) enum KubeconfigCredential<'a> {
    /// A bearer token.
    Token(&'a str),
    /// A client certificate.
    Certificate(&'a IssuedCertificate),
}

/// The text of a kubeconfig with one cluster and one user.
pub(super) fn render(
    server: &str,
    authority: &str,
    user: &str,
    who: &KubeconfigCredential<'_>,
) -> String {
    let authority = BASE64_STANDARD.encode(authority);
    let credential = match who {
        KubeconfigCredential::Token(token) => format!("token: {token}"),
        KubeconfigCredential::Certificate(issued) => format!(
            "client-certificate-data: {}\n    client-key-data: {}",
            BASE64_STANDARD.encode(&issued.certificate),
            BASE64_STANDARD.encode(&issued.key),
        ),
    };
    format!(
        "\
apiVersion: v1
kind: Config
clusters:
- name: testbed
  cluster:
    server: {server}
    certificate-authority-data: {authority}
users:
- name: {user:?}
  user:
    {credential}
contexts:
- name: testbed
  context:
    cluster: testbed
    user: {user:?}
current-context: testbed
"
    )
}

/// Makes a client from a kubeconfig file. The client works only within the current runtime.
pub async fn client(kubeconfig: &Path) -> Result<Client> {
    let file = Kubeconfig::read_from(kubeconfig)
        .with_context(|| format!("cannot read the kubeconfig {}", kubeconfig.display()))?;
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
        .await
        .with_context(|| format!("cannot use the kubeconfig {}", kubeconfig.display()))?;
    Ok(Client::try_from(config)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rendered_kubeconfig_reads_back() {
        let who = KubeconfigCredential::Token("t0ken");
        let text = render("https://127.0.0.1:1", "PEM", "system:serviceaccount:a:b", &who);
        let read = Kubeconfig::from_yaml(&text).expect("a kubeconfig");
        let cluster = read.clusters[0].cluster.as_ref().expect("a cluster");
        assert_eq!(cluster.server.as_deref(), Some("https://127.0.0.1:1"));
        assert_eq!(cluster.certificate_authority_data.as_deref(), Some("UEVN"));
        assert_eq!(read.auth_infos[0].name, "system:serviceaccount:a:b");
        assert!(read.auth_infos[0].auth_info.as_ref().expect("a user").token.is_some());
    }
}
