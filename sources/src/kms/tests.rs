//! A Vault on loopback that answers well, wrongly, too much or not at all; and credentials that do not count.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::thread;

use http_client::{EgressDenyList, EgressRules};
use parking_lot::Mutex;
use sops::DecryptionKeys;

use super::*;

const TOKEN: &str = "hvs.t0ken";
const KEY: &[u8] = b"0123456789abcdef0123456789abcdef";

/// A server that gives each request the same answer, and remembers the requests.
struct FakeKmsServer {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
}

impl FakeKmsServer {
    /// A server with this answer; without one it does not respond.
    fn start(answer: Option<String>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let seen = asked.clone();
        thread::spawn(move || {
            let mut open = Vec::new();
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut request = Vec::new();
                let mut buffer = [0; 4096];
                while !request.ends_with(b"}") {
                    let read = stream.read(&mut buffer).unwrap_or_default();
                    if read == 0 {
                        break;
                    }
                    request.extend_from_slice(&buffer[..read]);
                }
                seen.lock().push(String::from_utf8_lossy(&request).into_owned());
                match &answer {
                    Some(answer) => stream.write_all(answer.as_bytes()).unwrap_or_default(),
                    None => open.push(stream),
                }
            }
        });
        Self { address, asked }
    }

    fn answering(status: &str, body: &str) -> Self {
        let length = body.len();
        let head =
            format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {length}\r\n");
        Self::start(Some(format!("{head}\r\n{body}")))
    }

    fn key(&self, name: &str) -> KeyServiceMasterKey {
        vault(&format!("http://{}", self.address), name)
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().clone()
    }
}

fn vault(address: &str, name: &str) -> KeyServiceMasterKey {
    KeyServiceMasterKey::Vault {
        address: address.to_owned(),
        engine_path: "sops".to_owned(),
        key_name: name.to_owned(),
        encrypted: "vault:v1:abc".to_owned(),
    }
}

fn keys(entries: &[(&str, &str)]) -> DecryptionKeys {
    DecryptionKeys::import(
        "apps/keys",
        entries.iter().map(|(name, value)| (*name, value.as_bytes())),
    )
    .unwrap()
}

fn session<'k>(
    keys: &'k DecryptionKeys,
    flag: Option<&'static str>,
    egress: &EgressRules,
) -> KmsSession<'k> {
    let clients = Arc::new(HttpClientCache::within(egress.clone()));
    let budgets = Arc::new(HostBudgets::within(egress.clone()));
    let mut session = KmsSession::new(keys.credentials(), flag, clients, budgets);
    session.limit = Duration::from_secs(60);
    session
}

/// The answer of a Vault to a request with a token.
async fn asked(server: &FakeKmsServer) -> Result<DataKey, String> {
    let keys = keys(&[("sops.vault-token", TOKEN)]);
    let mut session = session(&keys, None, &EgressRules::with_loopback());
    session.decrypt(&server.key("one")).await.map_err(|error| {
        assert!(!format!("{error} {error:?} {session:?}").contains(TOKEN), "{error:?}");
        error.to_string()
    })
}

fn base64(bytes: &[u8]) -> String {
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

#[tokio::test]
async fn a_transit_engine_is_asked_as_sops_asks_it() {
    let answer = format!(r#"{{"data": {{"plaintext": "{}"}}}}"#, base64(KEY));
    let server = FakeKmsServer::answering("200 OK", &answer);
    assert_eq!(asked(&server).await.unwrap().as_slice(), KEY);
    let request = server.asked().concat();
    assert!(request.starts_with("PUT /v1/sops/decrypt/one HTTP/1.1\r\n"), "{request}");
    assert!(request.contains(&format!("x-vault-token: {TOKEN}\r\n")), "{request}");
    assert!(request.ends_with("\r\n\r\n{\"ciphertext\":\"vault:v1:abc\"}"), "{request}");
}

#[tokio::test]
async fn errors_of_a_server_are_quoted_without_the_token() {
    for (status, body, wanted) in [
        (
            "403 Forbidden",
            r#"{"errors": ["permission denied"]}"#,
            "status 403: permission denied; check that the token",
        ),
        ("403 Forbidden", r#"{"errors": ["bad token hvs.t0ken"]}"#, "bad token ****"),
        (
            "400 Bad Request",
            r#"{"errors": ["invalid ciphertext"]}"#,
            "status 400: invalid ciphertext",
        ),
        ("500 Oops", "<html>", "HTTP status 500"),
        ("200 OK", "{}", "it has no data key"),
        ("200 OK", r#"{"data": {"plaintext": "not base64"}}"#, "its data key is not base64"),
        ("307 Elsewhere", "", "HTTP status 307"),
    ] {
        let why = asked(&FakeKmsServer::answering(status, body)).await.unwrap_err();
        assert!(why.starts_with("failed to decrypt sops data key with Vault: "), "{why}");
        assert!(why.contains(wanted), "{why}");
    }
    let large = format!(r#"{{"data": "{}"}}"#, "x".repeat(LARGEST_ANSWER));
    let why = asked(&FakeKmsServer::answering("200 OK", &large)).await.unwrap_err();
    assert!(why.contains("it is too large for a data key"), "{why}");
}

#[tokio::test]
async fn a_server_that_stalls_is_given_up_and_not_asked_a_second_time() {
    let server = FakeKmsServer::start(None);
    let keys = keys(&[("sops.vault-token", TOKEN)]);
    let mut session = session(&keys, None, &EgressRules::with_loopback());
    session.limit = Duration::from_secs(2);
    let mut error_of =
        async |name| session.decrypt(&server.key(name)).await.unwrap_err().to_string();
    let first = error_of("one").await;
    assert!(first.ends_with(&format!("{} did not respond within 2s", server.address)), "{first}");
    let second = error_of("two").await;
    assert!(second.ends_with("did not respond to an earlier request of this build"), "{second}");
    assert_eq!(server.asked().len(), 1);
}

#[tokio::test]
async fn addresses_that_specs_may_not_name_are_not_asked_by_files_either() {
    let server = FakeKmsServer::answering("200 OK", "{}");
    let keys = keys(&[("sops.vault-token", TOKEN)]);
    let egress = EgressRules::Named(Arc::new(EgressDenyList::default()));
    let mut session = session(&keys, None, &egress);
    for address in ["http://169.254.169.254", "http://[fd00:ec2::254]"] {
        let why = session.decrypt(&vault(address, "one")).await.unwrap_err().to_string();
        assert!(why.contains("link-local or cloud metadata address"), "{why}");
    }
    for host in ["127.0.0.1", "localhost"] {
        let address = format!("http://{host}:{}", server.address.port());
        let why = session.decrypt(&vault(&address, "one")).await.unwrap_err().to_string();
        assert!(why.contains("resolves to windlass itself"), "{why}");
    }
    assert!(server.asked().is_empty());
}

#[tokio::test]
async fn neither_a_file_nor_a_redirect_leads_a_token_to_metadata_or_to_a_service_of_the_cluster() {
    let rules = EgressDenyList::default().with_loopback();
    rules.refuse_services(vec!["10.96.0.0/12".parse().unwrap()]);
    let egress = EgressRules::Named(Arc::new(rules));
    let keys = keys(&[("sops.vault-token", TOKEN)]);
    for (place, wanted) in [
        ("http://169.254.169.254", "link-local or cloud metadata address"),
        ("http://[fd00:ec2::254]", "link-local or cloud metadata address"),
        ("http://10.96.0.1:8200", "resolves to a Service of the cluster"),
        ("http://[::ffff:10.96.0.1]:8200", "resolves to a Service of the cluster"),
    ] {
        let head = "HTTP/1.1 307 Elsewhere\r\nconnection: close\r\ncontent-length: 0\r\n";
        let answer = format!("{head}location: {place}/v1/sops/decrypt/one\r\n\r\n");
        let server = FakeKmsServer::start(Some(answer));
        for key in [server.key("one"), vault(place, "one")] {
            let mut session = session(&keys, None, &egress);
            let why = session.decrypt(&key).await.unwrap_err().to_string();
            assert!(why.contains(wanted), "{place}: {why}");
        }
        assert_eq!(server.asked().len(), 1, "{place}");
    }
}

#[tokio::test]
async fn keys_of_clouds_do_not_name_the_server_that_gets_their_credentials() {
    let server = FakeKmsServer::answering("200 OK", "{}");
    let keys = keys(&[
        ("sops.aws-kms", "aws_access_key_id: a\naws_secret_access_key: b\n"),
        ("sops.azure-kv", "tenantId: t\nclientId: c\nclientSecret: s\n"),
        ("sops.gcp-kms", r#"{"type": "service_account"}"#),
    ]);
    let mut session = session(&keys, None, &EgressRules::with_loopback());
    let place = server.address.to_string();
    let encrypted = || "AAAA".to_owned();
    let aws = |arn: String| KeyServiceMasterKey::AwsKms {
        arn,
        role: String::new(),
        context: BTreeMap::new(),
        profile: String::new(),
        encrypted: encrypted(),
    };
    let google =
        |resource_id: String| KeyServiceMasterKey::GcpKms { resource_id, encrypted: encrypted() };
    let azure = |vault_url: String| KeyServiceMasterKey::AzureKeyVault {
        vault_url,
        name: "k".to_owned(),
        version: "1".to_owned(),
        encrypted: encrypted(),
    };
    for key in [
        aws(format!("arn:aws:kms:{place}/:1:key/a")),
        aws(format!("arn:aws:kms:a@{place}:1:key/a")),
        google(format!("http://{place}/locations/l/keyRings/r/cryptoKeys/k")),
        google(format!("projects/..//{place}/keyRings/r/cryptoKeys/k")),
        azure(format!("http://{place}")),
        azure(format!("https://{place}/.vault.azure.net")),
        azure(format!("https://shop.vault.azure.net@{place}")),
    ] {
        let why = session.decrypt(&key).await.unwrap_err().to_string();
        assert!(why.contains("correct the file"), "{key}: {why}");
    }
    assert!(server.asked().is_empty());
}

#[tokio::test]
async fn without_credentials_of_the_secret_the_flag_is_named_and_no_server_asked() {
    let empty = DecryptionKeys::default();
    let flag = Some("--no-cross-namespace-refs");
    let mut session = session(&empty, flag, &EgressRules::with_loopback());
    let encrypted = || "AAAA".to_owned();
    let aws = KeyServiceMasterKey::AwsKms {
        arn: "arn:aws:kms:eu-west-1:1:key/a".to_owned(),
        role: "arn:aws:iam::1:role/r".to_owned(),
        context: BTreeMap::new(),
        profile: String::new(),
        encrypted: encrypted(),
    };
    let resource_id = "projects/p/locations/l/keyRings/r/cryptoKeys/k".to_owned();
    let google = KeyServiceMasterKey::GcpKms { resource_id, encrypted: encrypted() };
    let azure = KeyServiceMasterKey::AzureKeyVault {
        vault_url: "https://shop.vault.azure.net".to_owned(),
        name: "k".to_owned(),
        version: "1".to_owned(),
        encrypted: encrypted(),
    };
    for key in [&aws, &google, &azure] {
        let why = session.decrypt(key).await.unwrap_err().to_string();
        let wanted = format!(
            "failed to decrypt sops data key with {}: the identity of windlass is not used with \
             --no-cross-namespace-refs; add credentials to `{}` in the Secret",
            key.service(),
            key.entry().unwrap(),
        );
        assert!(why.starts_with(&wanted), "{why}");
    }
    let why = session.decrypt(&vault("http://127.0.0.1:1", "k")).await.unwrap_err().to_string();
    assert!(why.contains("add `sops.vault-token` to the Secret"), "{why}");

    // A managed identity belongs to the machine, even if a Secret names it.
    let keys = keys(&[("sops.azure-kv", "clientId: c\n")]);
    let mut session = self::session(&keys, flag, &EgressRules::with_loopback());
    let why = session.decrypt(&azure).await.unwrap_err().to_string();
    assert!(why.contains("a managed identity of windlass's machine is not used"), "{why}");
}

#[tokio::test]
async fn credentials_that_cannot_be_used_are_named_and_not_shown() {
    for (entry, value, key, wanted) in [
        (
            "sops.gcp-kms",
            r#"{"type": "external_account", "private_key": "hunter2"}"#,
            KeyServiceMasterKey::GcpKms {
                resource_id: "projects/p/locations/l/keyRings/r/cryptoKeys/k".to_owned(),
                encrypted: "AAAA".to_owned(),
            },
            "cannot be used: is of type `external_account`",
        ),
        (
            "sops.azure-kv",
            "tenantId: t\nclientId: c\nclientCertificate: hunter2\n",
            KeyServiceMasterKey::AzureKeyVault {
                vault_url: "https://shop.vault.azure.net".to_owned(),
                name: "k".to_owned(),
                version: "1".to_owned(),
                encrypted: "AAAA".to_owned(),
            },
            "`clientCertificate` is not supported",
        ),
        (
            "sops.vault-token",
            "hunter2\u{7f}",
            vault("http://127.0.0.1:1", "k"),
            "characters that no token",
        ),
    ] {
        let keys = keys(&[(entry, value)]);
        let mut session = session(&keys, None, &EgressRules::with_loopback());
        let error = session.decrypt(&key).await.unwrap_err();
        let text = format!("{error} {error:?}");
        assert!(text.contains(&format!("`{entry}` in the Secret")), "{text}");
        assert!(text.contains(wanted) && !text.contains("hunter2"), "{text}");
    }
}
