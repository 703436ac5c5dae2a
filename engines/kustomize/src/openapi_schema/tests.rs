//! The built-in schemas of Kubernetes' kinds.

use super::{OpenApiSchemas, ResourceSchema};

fn at<'s>(
    schema: &'s OpenApiSchemas,
    kind: (&str, &str),
    path: &[&str],
) -> Option<ResourceSchema<'s>> {
    let start = schema.of(kind.0, kind.1);
    path.iter().fold(start, |found, part| match *part {
        "[]" => found?.elements(),
        part => found?.field(part),
    })
}

#[test]
fn the_lists_of_pods_are_merged_by_their_keys() {
    let schema = OpenApiSchemas::builtin();
    let pod = ["spec", "template", "spec"];
    let keys = |path: &[&str]| {
        let path: Vec<&str> = pod.iter().chain(path).copied().collect();
        at(&schema, ("apps/v1", "Deployment"), &path)
            .map(|it| (it.is_merged(), it.merge_keys().join(",")))
    };
    assert_eq!(keys(&["containers"]), Some((true, "name".to_owned())));
    assert_eq!(
        keys(&["containers", "[]", "ports"]),
        Some((true, "containerPort,protocol".to_owned()))
    );
    assert_eq!(keys(&["containers", "[]", "args"]), None);
    assert_eq!(keys(&["tolerations"]), None);
    let finalizers = at(&schema, ("v1", "ConfigMap"), &["metadata", "finalizers"]).expect("known");
    assert!(finalizers.is_merged() && finalizers.merge_keys().is_empty());
    assert!(schema.of("extensions/v1beta1", "Deployment").is_none());
}

#[test]
fn scopes_of_unknown_kinds_are_unknown() {
    let schema = OpenApiSchemas::builtin();
    assert_eq!(schema.is_namespaced("v1", "Node"), Some(false));
    assert_eq!(schema.is_namespaced("apps/v1", "Deployment"), Some(true));
    assert_eq!(schema.is_namespaced("example.com/v1", "Node"), None);
}

#[test]
fn a_document_adds_kinds_that_may_refer_to_others() {
    let document = r##"{"definitions": {
        "Foo": {"properties": {"list": {"$ref": "#/definitions/List"}, "loop": {"$ref": "#/definitions/Loop"}},
            "x-kubernetes-group-version-kind": [{"group": "example.com", "version": "v1", "kind": "Foo"}]},
        "List": {"type": "array", "items": {"type": "object"}, "x-kubernetes-patch-strategy": "merge",
            "x-kubernetes-patch-merge-key": "id"},
        "Loop": {"$ref": "#/definitions/Loop"}},
        "paths": {"/apis/example.com/v1/foos": {"get": {
            "x-kubernetes-group-version-kind": {"group": "example.com", "version": "v1", "kind": "Foo"}}}}}"##;
    let schema = OpenApiSchemas::with_openapi(&goyaml::to_json(document.as_bytes()).unwrap())
        .expect("OpenAPI");
    let list = at(&schema, ("example.com/v1", "Foo"), &["list"]).expect("a known field");
    assert_eq!((list.is_merged(), list.merge_keys()), (true, vec!["id".to_owned()]));
    assert!(at(&schema, ("example.com/v1", "Foo"), &["loop"]).is_none());
    assert_eq!(schema.is_namespaced("example.com/v1", "Foo"), Some(false));
    assert!(schema.of("apps/v1", "Deployment").is_none());
    let mut schema = OpenApiSchemas::builtin();
    schema.add_openapi(&goyaml::to_json(document.as_bytes()).unwrap()).expect("OpenAPI");
    assert!(schema.of("apps/v1", "Deployment").is_some());
}
