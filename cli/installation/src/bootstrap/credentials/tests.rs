//! Tests that the credentials of one repository are neither sent to another server nor replaced without need.

use super::*;
use fake_cluster::with_objects;

const HOST: &str =
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIE7uB8zS7hJ3zQm9Jd0mZ3n5cDdYj9n4H0r2k1kq1F3F";
const OLD: &str = "ssh://git@old.example.com/team/fleet";
const NEW: &str = "ssh://git@new.example.com/team/fleet";

fn encoded(text: &str) -> String {
    STANDARD.encode(text)
}

/// A private key in the format that OpenSSH writes.
fn identity() -> String {
    let folder = private_folder().unwrap();
    let path = folder.path().join("key");
    generate(&path).unwrap();
    read(&path).unwrap()
}

/// A source that follows a repository, and its Secret.
fn followed(url: &str, data: &Value) -> Vec<Value> {
    let metadata = json!({"name": "flux-system", "namespace": "flux-system"});
    vec![
        json!({
            "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository", "metadata": metadata,
            "spec": {"url": url, "secretRef": {"name": "flux-system"}},
        }),
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}),
    ]
}

async fn found(
    objects: Vec<Value>,
    url: &str,
    given: &GitCredentialsArgs,
) -> anyhow::Result<RepositoryCredentials> {
    let (cluster, _) = with_objects(objects).await;
    let url = Url::parse(url).unwrap();
    RepositoryCredentials::find(&cluster, "flux-system", &url, given, None).await
}

/// Credentials with host keys of the new server, so that the server need not be asked.
fn known(folder: &Path) -> GitCredentialsArgs {
    let path = folder.join("known_hosts");
    std::fs::write(&path, format!("new.example.com {HOST}\n")).unwrap();
    GitCredentialsArgs { known_hosts_file: Some(path), ..GitCredentialsArgs::key("flux-system") }
}

#[tokio::test]
async fn the_key_of_an_earlier_repository_is_renewed_and_that_of_this_one_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let given = known(folder.path());
    let key = identity();
    let data = json!({
        "identity": encoded(&key), "known_hosts": encoded(&format!("old.example.com {HOST}\n")),
    });
    let renewed = found(followed(OLD, &data), NEW, &given).await.unwrap();
    assert!(renewed.is_generated() && renewed.generated_key().is_some());
    assert!(renewed.data["identity"] != key && renewed.is_new);
    for same in [NEW.to_owned(), format!("{NEW}.git")] {
        let kept = found(followed(&same, &data), NEW, &given).await.unwrap();
        assert!(!kept.is_generated() && kept.data["identity"] == key, "{same}");
    }
}

#[tokio::test]
async fn a_password_is_not_sent_to_another_repository() {
    let data = json!({"username": encoded("me"), "password": encoded("hunter2")});
    let given = GitCredentialsArgs::key("flux-system");
    let old = "https://old.example.com/fleet";
    let new = "https://new.example.com/fleet";
    let other = found(followed(old, &data), new, &given).await.unwrap();
    assert!(!other.has_secret());
    let same = found(followed(new, &data), new, &given).await.unwrap();
    assert_eq!(same.data["password"], "hunter2");
}

#[test]
fn host_keys_count_for_the_server_and_port_that_they_name() {
    let is_known = |hosts: &str, url: &str| {
        let folder = tempfile::tempdir().unwrap();
        let text = format!("{hosts} {HOST}\n");
        knows(&text, &Url::parse(url).unwrap(), folder.path()).unwrap()
    };
    assert!(is_known("new.example.com", NEW));
    assert!(is_known("*.example.com", NEW));
    assert!(!is_known("old.example.com", NEW));
    let port = "ssh://git@new.example.com:2222/team/fleet";
    assert!(!is_known("new.example.com", port));
    assert!(is_known("[new.example.com]:2222", port));
    assert!(is_known("[127.0.0.1]:2222", "ssh://git@127.0.0.1:2222/a"));
}
