//! Servers on this machine, for specs that may not lead there.

use std::sync::Arc;

use git::{Error, GitServerCache};
use http_client::EgressRules;

use crate::ssh_server::GitSshServer;
use crate::test_repository::{BareRepository, ssh_key};
use crate::{FetchCase, main_branch};

/// A case of a tenant whose specs may name other machines only.
fn of_tenant(mut case: FetchCase) -> FetchCase {
    case.context.known = Arc::new(GitServerCache::within(EgressRules::Named(Arc::default())));
    case
}

#[test]
fn no_spec_leads_to_this_machine_over_http_or_ssh() {
    let keys = tempfile::tempdir().unwrap();
    let path = keys.path().join("id");
    let identity = ssh_key(&path, "ed25519", "");
    let server = GitSshServer::start(&[&path], true);
    let repository = BareRepository::with_history();
    let known_hosts = server.known_hosts("ed25519");
    let secret = [("identity", &*identity), ("known_hosts", &*known_hosts)];
    let ssh = FetchCase::new(&server.url(&repository.path()), &secret);
    ssh.fetch(&main_branch()).unwrap();
    for case in [
        of_tenant(ssh),
        of_tenant(FetchCase::new("http://127.0.0.1:9090/app", &[])),
        of_tenant(FetchCase::new("http://localhost:9090/app", &[])),
        of_tenant(FetchCase::new("http://[::1]:9090/app", &[])),
    ] {
        let error = case.refused(&main_branch());
        assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
        assert!(error.to_string().contains("resolves to windlass itself"), "{error}");
    }
}
