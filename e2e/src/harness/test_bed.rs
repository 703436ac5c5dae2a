//! The control plane that all stories of a test run share.
//!
//! Here: starting it once, or using the one that is named in the environment.
//! Elsewhere: the control plane (`crate::control_plane`), a story's own namespace (`super::story`).

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use kube::Client;
use tokio::sync::OnceCell;

use crate::control_plane::{self, ControlPlane, TrustedIssuer};

/// A control plane that is ready.
#[derive(Debug)]
pub struct TestBed {
    kubeconfig: PathBuf,
    operator_kubeconfig: PathBuf,
    audit_log: Option<PathBuf>,
    /// Ours to end, unless it was given to us.
    plane: Option<ControlPlane>,
}

impl TestBed {
    /// The bed of this process: started when first asked for, gone when the process ends.
    /// `$WINDLASS_TEST_KUBECONFIG` names another cluster to use instead.
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

    /// A cluster of ours (`cargo xtask cluster up`) has more files beside the kubeconfig.
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

    /// The administrator's kubeconfig.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// The kubeconfig for the program under test. On a cluster that is not ours it is the
    /// administrator's.
    pub fn operator_kubeconfig(&self) -> &Path {
        &self.operator_kubeconfig
    }

    /// A kubeconfig with a token of a service account.
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
    pub async fn trusted_issuer(&self, server: SocketAddr) -> Result<TrustedIssuer> {
        let plane = self.plane.as_ref().context("this cluster is not ours")?;
        plane.trusted_issuer(server).await
    }

    /// The API server's audit log, where requests are counted by user agent; not there on a
    /// cluster that is not ours.
    pub fn audit_log(&self) -> Option<&Path> {
        self.audit_log.as_deref()
    }

    /// A client for the administrator. It works only within the current runtime, so each test
    /// makes its own.
    pub async fn client(&self) -> Result<Client> {
        control_plane::client(&self.kubeconfig).await
    }
}
