//! Root objects: what every kind has around its spec and status.
//!
//! Here: the macro that declares a kind for kube, and the parts of it that need no macro.
//! kube's own derive does not fit: Flux's CRDs admit an object without `spec`, which that
//! derive cannot parse, and its schemas say `nullable` where Flux's do not.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;

/// How a kind is called.
pub struct KindNames {
    /// Its API group.
    pub group: &'static str,
    /// The version of the group.
    pub version: &'static str,
    /// The kind as manifests have it.
    pub kind: &'static str,
    /// Its plural in paths.
    pub plural: &'static str,
    /// Its short names.
    pub short: &'static [&'static str],
    /// The category, by which `kubectl get` and `windlass get` list several kinds at once: `fluxcd-sources`,
    /// `fluxcd-appliers`, `fluxcd-images` and `fluxcd-notifications` are reconciled, and are in `all` and `fluxcd` as well.
    /// `fluxcd-audits` and `fluxcd-incidents` are records, `fluxcd-gates` are gates: neither is reconciled or in `all`.
    pub category: &'static str,
    /// Whether its objects belong to no namespace.
    pub cluster_scoped: bool,
    /// Whether it has a status, which is a subresource then.
    pub(crate) has_status: bool,
    pub(crate) columns: &'static [PrinterColumn],
}

impl KindNames {
    /// Whether its objects record what happened, instead of saying what is to be.
    pub fn is_record(&self) -> bool {
        matches!(self.category, "fluxcd-audits" | "fluxcd-incidents")
    }

    /// Whether its objects say when other objects may change, and are not reconciled themselves.
    pub fn is_gate(&self) -> bool {
        self.category == "fluxcd-gates"
    }
}

/// A kind that has [`KindNames`].
pub(crate) trait CustomResourceNames {
    /// How it is called.
    const CALLED: &'static KindNames;
}

/// A column of `kubectl get`.
#[derive(Clone, Copy)]
pub(crate) struct PrinterColumn {
    pub(crate) name: &'static str,
    pub(crate) type_: &'static str,
    pub(crate) json_path: &'static str,
    /// Columns with a priority are shown with `-o wide` only.
    pub(crate) priority: Option<i32>,
}

impl PrinterColumn {
    /// A column that shows a text.
    pub(crate) const fn text(name: &'static str, json_path: &'static str) -> Self {
        Self { name, type_: "string", json_path, priority: None }
    }

    /// The same, shown with `-o wide` only.
    pub(crate) const fn wide(name: &'static str, json_path: &'static str) -> Self {
        Self { priority: Some(1), ..Self::text(name, json_path) }
    }
}

pub(crate) const AGE: PrinterColumn =
    PrinterColumn { type_: "date", ..PrinterColumn::text("Age", ".metadata.creationTimestamp") };
pub(crate) const READY: PrinterColumn =
    PrinterColumn::text("Ready", r#".status.conditions[?(@.type=="Ready")].status"#);
pub(crate) const STATUS: PrinterColumn =
    PrinterColumn::text("Status", r#".status.conditions[?(@.type=="Ready")].message"#);
/// The kind of the object that an object is about.
pub(crate) const SUBJECT_KIND: PrinterColumn = PrinterColumn::text("Kind", ".spec.subject.kind");
/// The name of the object that an object is about.
pub(crate) const SUBJECT_NAME: PrinterColumn = PrinterColumn::text("Subject", ".spec.subject.name");
pub(crate) const URL: PrinterColumn = PrinterColumn::text("URL", ".spec.url");

/// A root object as it is written: its type in front.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CustomResourceManifest<'a, Spec, Status> {
    pub(crate) api_version: &'a str,
    pub(crate) kind: &'a str,
    pub(crate) metadata: &'a ObjectMeta,
    pub(crate) spec: &'a Spec,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) status: Option<&'a Status>,
}

/// Declares the root object of a kind: the struct, and what kube asks of it. A kind may have no status, and may belong to no
/// namespace (`scope: Cluster`).
macro_rules! custom_resource {
    (@is_cluster) => { false };
    (@is_cluster Cluster) => { true };
    (@scope) => { kube_core::NamespaceResourceScope };
    (@scope Cluster) => { kube_core::ClusterResourceScope };
    (@has_status) => { false };
    (@has_status $status:ty) => { true };
    (@status_of $object:ident) => { None::<&()> };
    (@status_of $object:ident $status:ty) => { $object.status.as_ref() };
    (
        $(#[$about:meta])*
        $kind:ident {
            spec: $spec:ty,
            $(status: $status:ty,)?
            $(scope: $scope:ident,)?
            api: $group:literal / $version:literal,
            plural: $plural:literal,
            short: [$($short:literal),*],
            category: $category:literal,
            columns: [$($column:expr),+ $(,)?] $(,)?
        }
    ) => {
        $(#[$about])*
        #[derive(Clone, Debug, Default, PartialEq, serde::Deserialize, schemars::JsonSchema)]
        #[serde(rename_all = "camelCase", default)]
        #[schemars(!default)]
        pub struct $kind {
            /// The name and the other facts that every object has.
            #[schemars(skip)]
            pub metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,

            /// The desired state.
            pub spec: $spec,

            $(
                /// The observed state. Written by the controller.
                #[serde(skip_serializing_if = "Option::is_none")]
                pub status: Option<$status>,
            )?
        }

        impl $kind {
            const NAMES: $crate::custom_resource::KindNames = $crate::custom_resource::KindNames {
                group: $group,
                version: $version,
                kind: stringify!($kind),
                plural: $plural,
                short: &[$($short),*],
                category: $category,
                cluster_scoped: $crate::custom_resource::custom_resource!(@is_cluster $($scope)?),
                has_status: $crate::custom_resource::custom_resource!(@has_status $($status)?),
                columns: &[$($column),+],
            };

            /// Makes an object of this name, without namespace and status.
            pub fn new(name: &str, spec: $spec) -> Self {
                let mut object = Self { spec, ..Self::default() };
                object.metadata.name = Some(name.to_owned());
                object
            }
        }

        impl $crate::custom_resource::CustomResourceNames for $kind {
            const CALLED: &'static $crate::custom_resource::KindNames = &Self::NAMES;
        }

        impl serde::Serialize for $kind {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                $crate::custom_resource::CustomResourceManifest {
                    api_version: concat!($group, "/", $version),
                    kind: stringify!($kind),
                    metadata: &self.metadata,
                    spec: &self.spec,
                    status: $crate::custom_resource::custom_resource!(@status_of self $($status)?),
                }
                .serialize(to)
            }
        }

        impl kube_core::Resource for $kind {
            type DynamicType = ();
            type Scope = $crate::custom_resource::custom_resource!(@scope $($scope)?);

            fn kind((): &()) -> std::borrow::Cow<'_, str> {
                stringify!($kind).into()
            }

            fn group((): &()) -> std::borrow::Cow<'_, str> {
                $group.into()
            }

            fn version((): &()) -> std::borrow::Cow<'_, str> {
                $version.into()
            }

            fn api_version((): &()) -> std::borrow::Cow<'_, str> {
                concat!($group, "/", $version).into()
            }

            fn plural((): &()) -> std::borrow::Cow<'_, str> {
                $plural.into()
            }

            fn meta(&self) -> &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &self.metadata
            }

            fn meta_mut(
                &mut self,
            ) -> &mut k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &mut self.metadata
            }
        }

        impl kube_core::object::HasSpec for $kind {
            type Spec = $spec;

            fn spec(&self) -> &$spec {
                &self.spec
            }

            fn spec_mut(&mut self) -> &mut $spec {
                &mut self.spec
            }
        }

        $(
            impl kube_core::object::HasStatus for $kind {
                type Status = $status;

                fn status(&self) -> Option<&$status> {
                    self.status.as_ref()
                }

                fn status_mut(&mut self) -> &mut Option<$status> {
                    &mut self.status
                }
            }
        )?

        impl kube_core::CustomResourceExt for $kind {
            fn crd() -> k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition
            {
                $crate::schema::crd::<Self>(&Self::NAMES)
            }

            fn crd_name() -> &'static str {
                concat!($plural, ".", $group)
            }

            fn api_resource() -> kube_core::ApiResource {
                kube_core::ApiResource::erase::<Self>(&())
            }

            fn shortnames() -> &'static [&'static str] {
                &[$($short),*]
            }
        }
    };
}

pub(crate) use custom_resource;
