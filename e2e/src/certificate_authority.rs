//! The certificate authority of a test bed.
//!
//! Here: issuing certificates for servers, for Kubernetes users and for signers.
//! Elsewhere: writing the certificates (`control_plane`), using them in servers (`git_server`).

use std::path::Path;

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

/// The certificate authority that signs the certificates of a bed's servers. No program outside of the bed trusts it.
#[derive(Debug)]
pub struct TestCertificateAuthority {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
    key: String,
}

/// A certificate and its private key, both in PEM.
#[derive(Clone)]
pub struct IssuedCertificate {
    /// The certificate without that of the authority.
    pub certificate: String,
    /// The private key in PKCS#8.
    pub key: String,
}

impl TestCertificateAuthority {
    /// Makes a new authority with a new key.
    pub fn generate() -> Result<Self> {
        let key = KeyPair::generate().context("cannot generate a key")?;
        let certificate = params()?.self_signed(&key).context("cannot sign")?.pem();
        Self::from_pem(certificate, &key.serialize_pem())
    }

    /// Reads `ca.crt` and `ca.key`, as [`TestCertificateAuthority::save`] wrote them.
    pub fn load(folder: &Path) -> Result<Self> {
        let read = |name: &str| {
            let path = folder.join(name);
            std::fs::read_to_string(&path)
                .with_context(|| format!("cannot read {}", path.display()))
        };
        Self::from_pem(read("ca.crt")?, &read("ca.key")?)
    }

    /// Writes the certificate and the key of the authority to a folder, as `ca.crt` and `ca.key`.
    pub fn save(&self, folder: &Path) -> Result<()> {
        crate::control_plane::write_private(&folder.join("ca.crt"), &self.certificate)?;
        crate::control_plane::write_private(&folder.join("ca.key"), &self.key)
    }

    /// The certificate of the authority in PEM.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// Issues a serving certificate for host names and IP addresses.
    pub fn issue_server(&self, names: &[&str]) -> Result<IssuedCertificate> {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(names).context("not a host name")?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.issue(params)
    }

    /// Issues a client certificate. For Kubernetes, the common name is the user, and the organisation is the group.
    pub fn issue_user(&self, user: &str, groups: &[&str]) -> Result<IssuedCertificate> {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, user);
        // A certificate name has one entry of each type, so it has room for one group only.
        anyhow::ensure!(groups.len() <= 1, "a certificate carries one group at most");
        for group in groups {
            params.distinguished_name.push(DnType::OrganizationName, *group);
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.issue(params)
    }

    /// Issues a certificate for signing code, for an organisation in the state of Washington. Trust policies of Notation
    /// require the country and the state, too.
    pub fn issue_signer(&self, organisation: &str) -> Result<IssuedCertificate> {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CountryName, "US");
        params.distinguished_name.push(DnType::StateOrProvinceName, "WA");
        params.distinguished_name.push(DnType::OrganizationName, organisation);
        params.distinguished_name.push(DnType::CommonName, "releases");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::CodeSigning];
        self.issue(params)
    }

    fn issue(&self, mut params: CertificateParams) -> Result<IssuedCertificate> {
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate().context("cannot generate a key")?;
        let certificate = params.signed_by(&key, &self.issuer).context("cannot sign")?;
        Ok(IssuedCertificate { certificate: certificate.pem(), key: key.serialize_pem() })
    }

    fn from_pem(certificate: String, key: &str) -> Result<Self> {
        let parsed = KeyPair::from_pem(key).context("the authority's key is damaged")?;
        Ok(Self { issuer: Issuer::new(params()?, parsed), certificate, key: key.to_owned() })
    }
}

/// The fields of the authority's certificate. They are always the same, so the authority can be loaded again without parsing
/// its certificate.
fn params() -> Result<CertificateParams> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name.push(DnType::CommonName, "windlass-testbed");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(params)
}
