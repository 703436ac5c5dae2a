//! What our CRDs have beyond what Flux's have, which `cargo xtask conformance` compares.

#[test]
fn the_files_are_named_for_the_crds() {
    for (file, crd) in crds::all() {
        let name = crd.metadata.name.expect("every CRD has a name");
        assert_eq!(file, format!("{name}.yaml"));
    }
}

/// `flux uninstall` deletes every CRD with that label, and takes finalizers from objects of its own kinds only.
#[test]
fn the_crds_of_flux_are_marked_as_its_part_and_no_others() {
    for (file, crd) in crds::all() {
        let labels = crd.metadata.labels.unwrap_or_default();
        let is_of_flux = crd.spec.group.ends_with(".toolkit.fluxcd.io");
        let part_of = labels.get("app.kubernetes.io/part-of").map(String::as_str);
        assert_eq!(part_of, is_of_flux.then_some("flux"), "{file}");
    }
}

#[test]
fn substitution_leaves_every_crd_as_it_is() {
    for (file, crd) in crds::all() {
        let annotations = crd.metadata.annotations.expect("there are annotations");
        assert_eq!(annotations["kustomize.toolkit.fluxcd.io/substitute"], "disabled", "{file}");
    }
}

#[test]
fn every_field_is_described() {
    let mut bare = Vec::new();
    for (file, crd) in crds::all() {
        let version = serde_json::to_value(&crd.spec.versions[0]).expect("it is JSON");
        let root = &version["schema"]["openAPIV3Schema"];
        assert!(root["description"].is_string(), "{file}");
        let mut open = vec![(String::new(), root)];
        while let Some((path, schema)) = open.pop() {
            let properties = schema["properties"].as_object().into_iter().flatten();
            for (name, property) in properties {
                let path = format!("{path}.{name}");
                if !property["description"].is_string() && path != ".metadata" {
                    bare.push(format!("{file}: {path}"));
                }
                open.push((path, property));
            }
            open.extend(schema.get("items").map(|items| (format!("{path}[]"), items)));
        }
    }
    assert_eq!(bare, [""; 0]);
}
