//! The control plane that all stories of a test run share.
//!
//! Here: starting the control plane once, or using the one that the environment names.
//! Elsewhere: the control plane (`crate::control_plane`), the namespace of a story (`super::story`).

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use kube::Client;
use tokio::sync::OnceCell;

use crate::control_plane::{self, ApiServerOidcIssuer, ControlPlane};

/// A control plane that is ready.
#[derive(Debug)]
pub struct TestBed {
    kubeconfig: PathBuf,
    operator_kubeconfig: PathBuf,
    audit_log: Option<PathBuf>,
    /// The control plane if this process started it. `None` if the environment named a cluster.
    plane: Option<ControlPlane>,
}

impl TestBed {
    /// The bed of this process. It starts at the first call and ends with the process. `$WINDLASS_TEST_KUBECONFIG` names
    /// another cluster to use instead.
    pub async fn shared() -> Result<&'static Self> {
        static SHARED: OnceCell<TestBed> = OnceCell::const_new();
        SHARED.get_or_try_init(Self::open).await
    }

    async fn open() -> Result<Self> {
        if let Some(given) = std::env::var_os("WINDLASS_TEST_KUBECONFIG") {
            return Self::given(PathBuf::from(given));
        }
        let plane = ControlPlane::start().await.context("the test bed does not start")?;
        Ok(Self {
            kubeconfig: plane.kubeconfig(),
            operator_kubeconfig: plane.operator_kubeconfig(),
            audit_log: Some(plane.state().audit_log()),
            plane: Some(plane),
        })
    }

    /// A control plane of `cargo xtask cluster up` has further files beside its kubeconfig.
    fn given(kubeconfig: PathBuf) -> Result<Self> {
        anyhow::ensure!(
            kubeconfig.is_file(),
            "WINDLASS_TEST_KUBECONFIG names {}, which is not a file",
            kubeconfig.display()
        );
        let beside = |name: &str| {
            kubeconfig.parent().map(|folder| folder.join(name)).filter(|path| path.is_file())
        };
        Ok(Self {
            operator_kubeconfig: beside("operator.kubeconfig").unwrap_or(kubeconfig.clone()),
            audit_log: beside("log/audit.log"),
            plane: None,
            kubeconfig,
        })
    }

    /// The kubeconfig of the administrator.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// The kubeconfig for the program under test. A given cluster without `operator.kubeconfig` uses that of the administrator.
    pub fn operator_kubeconfig(&self) -> &Path {
        &self.operator_kubeconfig
    }

    /// Writes a kubeconfig with a token of a service account.
    ///
    /// # Errors
    /// There is no such account, or the cluster is not ours.
    pub async fn account_kubeconfig(&self, namespace: &str, name: &str) -> Result<PathBuf> {
        let plane = self.plane.as_ref().context("this cluster is not ours")?;
        plane.service_account_kubeconfig(namespace, name).await
    }

    /// Makes a server the issuer of logins that the API server trusts, as [`ControlPlane::trusted_issuer`] does.
    ///
    /// # Errors
    /// Another story has made one, or the cluster is not ours.
    pub async fn trusted_issuer(&self, server: SocketAddr) -> Result<ApiServerOidcIssuer> {
        let plane = self.plane.as_ref().context("this cluster is not ours")?;
        plane.trusted_issuer(server).await
    }

    /// The audit log of the API server, in which requests are counted by user agent. `None` on a given cluster without such a
    /// log beside its kubeconfig.
    pub fn audit_log(&self) -> Option<&Path> {
        self.audit_log.as_deref()
    }

    /// Makes a client with the rights of the administrator. It works only within the current runtime, so each test makes its
    /// own.
    pub async fn client(&self) -> Result<Client> {
        control_plane::client(&self.kubeconfig).await
    }
}
