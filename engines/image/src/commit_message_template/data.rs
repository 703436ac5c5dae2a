//! An update as data for templates: Go's values of Flux's types.
//!
//! All data is built before a template runs. Values that occur in several places are built once, and their size is counted
//! first.

use std::collections::BTreeMap;
use std::sync::Arc;

use golang::GoRuntimeValue;
use golang::value::{
    FunctionSignature, GoFunction, GoMap, GoObject, GoSlice, GoString, GoType, ReflectKind,
};

use super::CommitMessageData;
use crate::update_result::{ImageValueChange, ObjectChanges, ObjectIdentifier, UpdateResult};

/// The approximate memory of a change besides its strings, in bytes.
const BYTES_PER_CHANGE: u64 = 512;

/// The approximate memory of an object besides its names, in bytes. An object occurs as a field of several structs.
const BYTES_PER_OBJECT: u64 = 2048;

/// The approximate memory of each place that lists a change, or of a map entry, in bytes.
const BYTES_PER_PLACE: u64 = 96;

/// A struct without methods that templates can call.
#[derive(Debug)]
struct TemplateDataStruct {
    type_name: &'static str,
    fields: Vec<(&'static str, GoRuntimeValue)>,
    /// The fields of embedded structs, which count as fields of the outer struct.
    promoted: Vec<(&'static str, GoRuntimeValue)>,
}

impl TemplateDataStruct {
    fn value(
        type_name: &'static str,
        fields: Vec<(&'static str, GoRuntimeValue)>,
    ) -> GoRuntimeValue {
        GoRuntimeValue::object(Self { type_name, fields, promoted: Vec::new() })
    }
}

impl GoObject for TemplateDataStruct {
    fn type_name(&self) -> &str {
        self.type_name
    }

    fn fields(&self) -> Vec<(&'static str, GoRuntimeValue)> {
        self.fields.clone()
    }

    fn field(&self, name: &str) -> Option<GoRuntimeValue> {
        let mut known = self.fields.iter().chain(&self.promoted);
        known.find(|(field, _)| *field == name).map(|(_, value)| value.clone())
    }
}

/// A namespace and a name in the data of commit messages: Flux's `types.NamespacedName`.
#[derive(Debug)]
struct NamespacedName {
    namespace: String,
    name: String,
}

impl NamespacedName {
    fn parts(&self) -> [(&'static str, GoRuntimeValue); 2] {
        let value = |text: &String| GoRuntimeValue::from(text.as_str());
        [("Namespace", value(&self.namespace)), ("Name", value(&self.name))]
    }
}

impl GoObject for NamespacedName {
    fn type_name(&self) -> &'static str {
        "types.NamespacedName"
    }

    fn fields(&self) -> Vec<(&'static str, GoRuntimeValue)> {
        self.parts().into()
    }

    fn method(self: Arc<Self>, name: &str) -> Option<GoFunction> {
        match name {
            "String" => {
                let signature = FunctionSignature::new([], GoType::String);
                let text = GoRuntimeValue::from(format!("{}/{}", self.namespace, self.name));
                Some(GoFunction::new(signature, move |_| Ok(text.clone())))
            }
            "MarshalLog" => {
                let mut fields: Vec<_> = self.parts().into();
                fields.reverse();
                let value =
                    TemplateDataStruct::value("struct { Name string; Namespace string }", fields);
                Some(GoFunction::new(FunctionSignature::new([], GoType::Any), move |_| {
                    Ok(value.clone())
                }))
            }
            _ => None,
        }
    }

    fn text(&self) -> Option<GoString> {
        Some(GoString::from(format!("{}/{}", self.namespace, self.name)))
    }
}

/// The result of an update in the data of commit messages: Flux's `update.Result`.
#[derive(Debug)]
struct UpdateResultData {
    files: GoRuntimeValue,
    changes: GoRuntimeValue,
    objects: GoRuntimeValue,
}

impl GoObject for UpdateResultData {
    fn type_name(&self) -> &'static str {
        "update.Result"
    }

    fn fields(&self) -> Vec<(&'static str, GoRuntimeValue)> {
        vec![("FileChanges", self.files.clone())]
    }

    fn method(self: Arc<Self>, name: &str) -> Option<GoFunction> {
        let (value, result) = match name {
            "Changes" => (self.changes.clone(), GoType::Slice(Arc::new(change_type()))),
            "Objects" => (self.objects.clone(), object_changes_type()),
            _ => return None,
        };
        Some(GoFunction::new(FunctionSignature::new([], result), move |_| Ok(value.clone())))
    }
}

/// `update.ObjectChanges`: a map with structs as keys.
#[derive(Debug)]
struct ObjectChangesData {
    entries: Vec<(GoRuntimeValue, GoRuntimeValue)>,
}

impl GoObject for ObjectChangesData {
    fn type_name(&self) -> &'static str {
        "update.ObjectChanges"
    }

    fn kind(&self) -> ReflectKind {
        ReflectKind::Map
    }

    fn entries(&self) -> Option<Vec<(GoRuntimeValue, GoRuntimeValue)>> {
        Some(self.entries.clone())
    }
}

fn change_type() -> GoType {
    GoType::Named("update.Change".into(), ReflectKind::Struct)
}

fn object_changes_type() -> GoType {
    GoType::Named("update.ObjectChanges".into(), ReflectKind::Map)
}

/// The approximate memory of [`template_data`], in bytes.
pub(super) fn template_data_bytes(data: &CommitMessageData<'_>) -> u64 {
    let bytes = |strings: &[&String]| strings.iter().map(|text| text.len() as u64).sum::<u64>();
    let of_change = |change: &ImageValueChange| {
        let ImageValueChange { old_value, new_value, setter } = change;
        BYTES_PER_CHANGE + bytes(&[old_value, new_value, setter])
    };
    let of_object = |object: &ObjectIdentifier| {
        let ObjectIdentifier { api_version, kind, name, namespace } = object;
        BYTES_PER_OBJECT + 4 * bytes(&[api_version, kind, name, namespace])
    };
    let objects = data.changed.objects();
    let files = data.changed.files();
    let values = data.values.into_iter().flatten();
    let changes: u64 = data.changed.changes().into_iter().map(of_change).sum();
    let names: u64 = objects.keys().map(|object| of_object(object)).sum();
    // Each is listed below its file and below its object.
    let listed: u64 = files.values().map(|it| it.len() as u64).sum();
    let places = 3 * data.changed.len() as u64 + listed;
    let files: u64 = files.keys().map(|file| BYTES_PER_PLACE + file.len() as u64).sum();
    let values: u64 = values.map(|(name, value)| BYTES_PER_PLACE + bytes(&[name, value])).sum();
    changes + names + BYTES_PER_PLACE * places + files + values
}

/// The data with which the template of a commit message is rendered: Flux's `source.TemplateData`.
pub(super) fn template_data(data: &CommitMessageData<'_>) -> GoRuntimeValue {
    let namespace = data.namespace.to_owned();
    let name = data.name.to_owned();
    let values = match data.values {
        None => GoMap::nil(GoType::String),
        Some(values) => GoMap::new(
            GoType::String,
            values.iter().map(|(name, value)| {
                (GoString::from(name.as_str()), GoRuntimeValue::from(value.as_str()))
            }),
        ),
    };
    TemplateDataStruct::value(
        "source.TemplateData",
        vec![
            ("AutomationObject", GoRuntimeValue::object(NamespacedName { namespace, name })),
            ("Changed", result(data.changed)),
            ("Values", GoRuntimeValue::Map(values)),
        ],
    )
}

fn result(result: &UpdateResult) -> GoRuntimeValue {
    let files = result.files();
    let changes = result.changes();
    let objects = result.objects();
    let shared = SharedTemplateValues {
        changes: changes.iter().map(|change| (*change, change_value(change))).collect(),
        objects: objects.keys().map(|object| (*object, identifier(object))).collect(),
    };
    let files = match files.is_empty() {
        true => GoMap::nil(object_changes_type()),
        false => GoMap::new(
            object_changes_type(),
            files.into_iter().map(|(file, objects)| (GoString::from(file), shared.map(&objects))),
        ),
    };
    let changes = match changes.is_empty() {
        true => GoRuntimeValue::List(GoSlice::nil(change_type())),
        false => shared.list(&changes),
    };
    let objects = shared.map(&objects);
    GoRuntimeValue::object(UpdateResultData { files: GoRuntimeValue::Map(files), changes, objects })
}

/// The values of all changes and objects, which occur in several places.
struct SharedTemplateValues<'r> {
    changes: BTreeMap<&'r ImageValueChange, GoRuntimeValue>,
    objects: BTreeMap<&'r ObjectIdentifier, GoRuntimeValue>,
}

impl SharedTemplateValues<'_> {
    fn map(&self, objects: &ObjectChanges<'_>) -> GoRuntimeValue {
        let entry = |(object, changes): (&&ObjectIdentifier, &Vec<&ImageValueChange>)| {
            Some((self.objects.get(*object)?.clone(), self.list(changes)))
        };
        let entries = objects.iter().filter_map(entry).collect();
        GoRuntimeValue::object(ObjectChangesData { entries })
    }

    fn list(&self, changes: &[&ImageValueChange]) -> GoRuntimeValue {
        let values = changes.iter().filter_map(|change| self.changes.get(*change).cloned());
        GoRuntimeValue::List(GoSlice::new(change_type(), values.collect()))
    }
}

fn change_value(change: &ImageValueChange) -> GoRuntimeValue {
    let text = |text: &String| GoRuntimeValue::from(text.as_str());
    TemplateDataStruct::value(
        "update.Change",
        vec![
            ("OldValue", text(&change.old_value)),
            ("NewValue", text(&change.new_value)),
            ("Setter", text(&change.setter)),
        ],
    )
}

/// `update.ObjectIdentifier`, which has the fields of the structs within.
fn identifier(object: &ObjectIdentifier) -> GoRuntimeValue {
    let text = |text: &String| GoRuntimeValue::from(text.as_str());
    let of_type = vec![("APIVersion", text(&object.api_version)), ("Kind", text(&object.kind))];
    let of_name = vec![("Name", text(&object.name)), ("Namespace", text(&object.namespace))];
    let within = vec![
        ("TypeMeta", TemplateDataStruct::value("yaml.TypeMeta", of_type.clone())),
        ("NameMeta", TemplateDataStruct::value("yaml.NameMeta", of_name.clone())),
    ];
    let names: Vec<(&'static str, GoRuntimeValue)> = of_type.into_iter().chain(of_name).collect();
    let resource = GoRuntimeValue::object(TemplateDataStruct {
        type_name: "yaml.ResourceIdentifier",
        fields: within.clone(),
        promoted: names.clone(),
    });
    GoRuntimeValue::object(TemplateDataStruct {
        type_name: "update.ObjectIdentifier",
        fields: vec![("ResourceIdentifier", resource)],
        promoted: within.into_iter().chain(names).collect(),
    })
}
