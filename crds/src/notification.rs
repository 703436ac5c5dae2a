//! The group `notification.toolkit.fluxcd.io`: alerts about events, and webhooks that trigger reconciliations.
//!
//! Here: one file per kind, and how an Alert and a Receiver name objects. Elsewhere: what is sent and which requests count
//! (`engines/notify`), sending and receiving (`operator/notification`).

mod alert;
mod provider;
mod receiver;

pub use alert::{Alert, AlertSpec, EventSeverity, EventSource};
pub use provider::{Provider, ProviderSpec};
pub use receiver::{
    OidcProvider, OidcValidation, OidcVariable, Receiver, ReceiverResource, ReceiverSpec,
    ReceiverStatus,
};

/// The kinds that an Alert and a Receiver may name.
///
/// Read as strings, so that an object which names a kind of a newer version can be read.
const KINDS: [&str; 12] = [
    "Bucket",
    "GitRepository",
    "Kustomization",
    "HelmRelease",
    "HelmChart",
    "HelmRepository",
    "ImageRepository",
    "ImagePolicy",
    "ImageUpdateAutomation",
    "OCIRepository",
    "ArtifactGenerator",
    "ExternalArtifact",
];
