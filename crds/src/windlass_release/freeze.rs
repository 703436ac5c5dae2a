//! Freeze: times at which windlass begins nothing in some namespaces.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::condition::{self, Condition};
use crate::custom_resource::{AGE, PrinterColumn, READY, custom_resource};
use crate::schema;
use crate::string_enum::choice;

custom_resource! {
    /// Times at which no change of some namespaces begins: no revision is applied, no release is
    /// changed, nothing is pruned and no image is committed. What is under way ends, and users may
    /// delete. A Freeze without schedules, periods and calendar denies as long as it exists.
    Freeze {
        spec: FreezeSpec,
        status: FreezeStatus,
        scope: Cluster,
        api: "release.windlass.dev" / "v1alpha1",
        plural: "freezes",
        short: [],
        category: "fluxcd-gates",
        columns: [
            PrinterColumn::text("Reason", ".spec.reason"),
            READY,
            PrinterColumn::wide("Kinds", ".spec.kinds"),
            PrinterColumn::wide("Drift correction", ".spec.driftCorrection"),
            AGE,
        ],
    }
}

/// What is held, when and why.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct FreezeSpec {
    /// Why, as everything that is held says.
    #[schemars(length(min = 1, max = 512))]
    pub reason: String,

    /// Selects the namespaces of the objects that are held, by labels. An empty selector selects all
    /// of them.
    #[schemars(schema_with = "schema::label_selector")]
    pub namespace_selector: LabelSelector,

    /// The kinds of the objects that are held; all of them if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 4))]
    pub kinds: Vec<FreezeKind>,

    /// Recurring times at which it denies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub schedules: Vec<FreezeSchedule>,

    /// Periods in which it denies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub periods: Vec<FreezePeriod>,

    /// An iCalendar file (RFC 5545) at whose events it denies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calendar: Option<FreezeCalendarSource>,

    /// Whether drift is corrected meanwhile.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "Allow"))]
    pub drift_correction: Option<FreezeDriftCorrection>,
}

/// A recurring time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct FreezeSchedule {
    /// When it begins: five fields as in a CronJob, or a macro such as `@daily`.
    #[schemars(length(min = 1, max = 128))]
    pub cron: String,

    /// How long it lasts, from `1s` to `168h`, such as `62h`.
    #[schemars(length(min = 1, max = 32))]
    pub duration: String,

    /// The time zone, as the IANA database names it, such as `Europe/Berlin`; UTC by default.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 64))]
    pub time_zone: String,
}

/// A period.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct FreezePeriod {
    /// When it begins: a date such as `2026-12-24`, a local time such as `2026-12-24T18:00`, or a time
    /// with an offset such as `2026-12-24T18:00:00Z`.
    #[schemars(length(min = 1, max = 64))]
    pub from: String,

    /// When it ends. The day of a date is part of the period.
    #[schemars(length(min = 1, max = 64))]
    pub to: String,

    /// The time zone of dates and local times, as the IANA database names it; UTC by default.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 64))]
    pub time_zone: String,
}

/// Where an iCalendar file is, and how it is read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct FreezeCalendarSource {
    /// The ConfigMap with the file. Who may change it says when the Freeze denies.
    pub config_map_ref: FreezeConfigMapKey,

    /// The time zone of events of whole days and of times without one, as the IANA database names it;
    /// UTC by default.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 64))]
    pub time_zone: String,
}

/// A key of a ConfigMap.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct FreezeConfigMapKey {
    /// The name of the ConfigMap.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,

    /// Its namespace.
    #[schemars(length(min = 1, max = 63))]
    pub namespace: String,

    /// The key.
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
}

/// Whether its times can be read, and the calendar that counts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct FreezeStatus {
    /// The generation of the spec that this status speaks of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// The conditions of this object.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "condition::list")]
    pub conditions: Vec<Condition>,

    /// The last calendar that could be read. Without it, a Freeze with a calendar denies at all times.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calendar: Option<FreezeCalendarStatus>,
}

/// A calendar that was read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct FreezeCalendarStatus {
    /// The calendar of the spec that it was read from. It counts as long as the spec has that.
    pub source: FreezeCalendarSource,

    /// The times of its events, as an iCalendar file.
    #[schemars(length(max = 131072))]
    pub text: String,
}

choice! {
    /// A kind whose objects are held.
    FreezeKind {
        /// A Kustomization: no revision is applied, and nothing is pruned.
        #[default]
        Kustomization = "Kustomization",
        /// A HelmRelease: nothing is installed, upgraded or rolled back by request.
        HelmRelease = "HelmRelease",
        /// A Helmfile: the same for each of its releases.
        Helmfile = "Helmfile",
        /// An ImageUpdateAutomation: nothing is committed.
        ImageUpdateAutomation = "ImageUpdateAutomation",
    }
}

choice! {
    /// Whether drift is corrected while a Freeze denies.
    FreezeDriftCorrection {
        /// It is.
        #[default]
        Allow = "Allow",
        /// It is not.
        Deny = "Deny",
    }
}
