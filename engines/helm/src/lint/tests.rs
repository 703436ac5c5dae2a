//! Messages of the linter about charts. Expected answers are those of `helm lint` of Helm 4.2.4.

use golang::time::{GoTime, GoTimeZone};

use super::*;
use crate::capabilities::Capabilities;
use crate::chart::read_values;

/// Lints a chart of files, with values.
fn linted(files: &[(&str, &str)], values: &str) -> String {
    let files = files
        .iter()
        .map(|(name, text)| ChartFile { name: (*name).to_owned(), data: text.as_bytes().into() });
    let values = read_values(values.as_bytes()).unwrap();
    let subject = LintSubject {
        place: "/c",
        files: files.collect(),
        values: &values,
        namespace: "default",
        skip_schema: false,
    };
    let local = GoTimeZone::fixed("UTC", 0);
    let env = RenderEnvironment {
        now: GoTime::from_unix(0, 0, local.clone()),
        local,
        random: std::sync::Arc::new(|_: &mut [u8]| {}),
        capabilities: std::sync::Arc::new(Capabilities::default()),
        cluster: None,
        stop: golang::work_meter::StopSignal::default(),
        names: None,
    };
    // Templates take stack.
    let thread = std::thread::Builder::new().stack_size(crate::render::REQUIRED_STACK_BYTES);
    let messages = std::thread::scope(|scope| {
        let work = || lint(&subject, &env, &mut Vec::new());
        thread.spawn_scoped(scope, work).unwrap().join().unwrap()
    });
    match messages {
        Ok(messages) => messages.iter().map(|message| format!("{message}\n")).collect(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_chart_that_is_only_a_name() {
    let files = [("Chart.yaml", "name: c\n")];
    let expected = [
        "[ERROR] Chart.yaml: apiVersion is required. The value must be either \"v1\" or \"v2\"\n",
        "[ERROR] Chart.yaml: version is required\n",
        "[INFO] Chart.yaml: icon is recommended\n",
        "[WARNING] Chart.yaml: version '' is not a valid SemVerV2\n",
        "[INFO] values.yaml: file does not exist\n",
        "[WARNING] templates/: directory does not exist\n",
        "[ERROR] : unable to load chart\n",
        "	validation: chart.metadata.version is required\n",
    ];
    assert_eq!(linted(&files, "{}"), expected.concat());
}

#[test]
fn each_field_of_the_metadata_is_checked() {
    let files = [(
        "Chart.yaml",
        "apiVersion: v3x\nname: a/b\nversion: 1.0\nappVersion: 2\nicon: no\ntype: library\nmaintainers:\n- {name: m, email: no}\nsources: ['']\ndependencies:\n- {name: x, version: 1.0.0}\nfoo: 1\n",
    )];
    let expected = [
        "[WARNING] Chart.yaml: failed to strictly parse chart metadata file\n",
        "	error unmarshaling JSON: while decoding JSON: json: unknown field \"foo\"\n",
        "[ERROR] Chart.yaml: chart name \"a/b\" is invalid\n",
        "[ERROR] Chart.yaml: apiVersion 'v3x' is not valid. The value must be either \"v1\" or \"v2\"\n",
        "[ERROR] Chart.yaml: version should be of type string but it's of type float64\n",
        "[ERROR] Chart.yaml: appVersion should be of type string but it's of type float64\n",
        "[ERROR] Chart.yaml: invalid email 'false' for maintainer 'm'\n",
        "[ERROR] Chart.yaml: invalid source URL ''\n",
        "[ERROR] Chart.yaml: invalid icon URL 'false'\n",
        "[ERROR] Chart.yaml: chart type is not valid in apiVersion 'v3x'. It is valid in apiVersion 'v2'\n",
        "[ERROR] Chart.yaml: dependencies are not valid in the Chart file with apiVersion 'v3x'. They are valid in apiVersion 'v2'\n",
        "[WARNING] Chart.yaml: version '1' is not a valid SemVerV2\n",
        "[INFO] values.yaml: file does not exist\n",
        "[WARNING] templates/: directory does not exist\n",
        "[ERROR] : unable to load chart\n",
        "	validation: chart.metadata.name \"a/b\" is invalid\n",
    ];
    assert_eq!(linted(&files, "{}"), expected.concat());
}

#[test]
fn addresses_and_unknown_keys_of_maintainers_are_reported() {
    let files = [
        (
            "Chart.yaml",
            "apiVersion: v2\nname: c\nversion: 0.1.0\nicon: https://a.b/c.png\nmaintainers:\n- {name: m, email: a@b.c, url: https://a.b}\n- {name: m, url: 'a b', nick: n}\n",
        ),
        ("values.yaml", ""),
        ("templates/_x.tpl", ""),
    ];
    let expected = [
        "[WARNING] Chart.yaml: failed to strictly parse chart metadata file\n",
        "	error unmarshaling JSON: while decoding JSON: json: unknown field \"nick\"\n",
        "[ERROR] Chart.yaml: invalid url 'a b' for maintainer 'm'\n",
    ];
    assert_eq!(linted(&files, "{}"), expected.concat());
}

#[test]
fn what_is_no_yaml_has_no_fields() {
    let files = [("Chart.yaml", "a: [\n")];
    let expected = [
        "[ERROR] Chart.yaml: unable to parse YAML\n",
        "	error converting YAML to JSON: yaml: line 1: did not find expected node content\n",
        "[INFO] values.yaml: file does not exist\n",
        "[WARNING] templates/: directory does not exist\n",
        "[ERROR] : unable to load chart\n",
        "	cannot load Chart.yaml: error converting YAML to JSON: yaml: line 1: did not find expected node content\n",
    ];
    assert_eq!(linted(&files, "{}"), expected.concat());
}

#[test]
fn a_field_of_another_shape_is_no_metadata() {
    let files = [("Chart.yaml", "apiVersion: v2\nname: [a]\nversion: 1.0.0\n")];
    let expected = [
        "[ERROR] Chart.yaml: unable to parse YAML\n",
        "	error unmarshaling JSON: while decoding JSON: json: cannot unmarshal array into Go struct field Metadata.name of type string\n",
        "[INFO] values.yaml: file does not exist\n",
        "[WARNING] templates/: directory does not exist\n",
        "[ERROR] : unable to load chart\n",
        "	cannot load Chart.yaml: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal array into Go struct field Metadata.name of type string\n",
    ];
    assert_eq!(linted(&files, "{}"), expected.concat());
}

#[test]
fn a_duplicate_key_is_reported() {
    let files = [(
        "Chart.yaml",
        "apiVersion: v2\nname: c\nversion: 0.1.0\nicon: https://a.b/c.png\nname: c\n",
    )];
    let expected = [
        "[WARNING] Chart.yaml: failed to strictly parse chart metadata file\n",
        "	error converting YAML to JSON: yaml: unmarshal errors:\n",
        "  line 5: key \"name\" already set in map\n",
        "[INFO] values.yaml: file does not exist\n",
        "[WARNING] templates/: directory does not exist\n",
    ];
    assert_eq!(linted(&files, "{}"), expected.concat());
}

#[test]
fn values_are_validated_alone_and_with_templates() {
    let files = [
        ("Chart.yaml", "apiVersion: v2\nname: c\nversion: 0.1.0\nicon: https://a.b/c.png\n"),
        ("values.yaml", "a: text\n"),
        ("values.schema.json", "{\"properties\": {\"a\": {\"type\": \"integer\"}}}"),
        ("templates/a.yaml", "a: b\n"),
    ];
    let expected = [
        "[ERROR] values.yaml: - at '/a': got string, want integer\n",
        "\n",
        "[ERROR] templates/: values don't meet the specifications of the schema(s) in the following chart(s):\n",
        "c:\n",
        "- at '/a': got string, want integer\n",
        "\n",
    ];
    assert_eq!(linted(&files, "{}"), expected.concat());
}

#[test]
fn given_values_replace_those_of_the_chart() {
    let files = [
        ("Chart.yaml", "apiVersion: v2\nname: c\nversion: 0.1.0\nicon: https://a.b/c.png\n"),
        ("values.yaml", "a: text\n"),
        ("values.schema.json", "{\"properties\": {\"a\": {\"type\": \"integer\"}}}"),
        ("templates/a.yaml", "kind: A\nmetadata: {name: a}\n"),
    ];
    assert_eq!(linted(&files, "{a: 1}"), "");
}

#[test]
fn values_that_cannot_be_read_are_reported_at_each_step() {
    let files = [
        ("Chart.yaml", "apiVersion: v2\nname: c\nversion: 0.1.0\nicon: https://a.b/c.png\n"),
        ("values.yaml", "a: [\n"),
        ("templates/a.yaml", "a: b\n"),
    ];
    let expected = [
        "[ERROR] values.yaml: unable to parse YAML: error converting YAML to JSON: yaml: line 1: did not find expected node content\n",
        "[ERROR] templates/: cannot load values.yaml: cannot unmarshal yaml document: error converting YAML to JSON: yaml: line 1: did not find expected node content\n",
        "[ERROR] : unable to load chart\n",
        "	cannot load values.yaml: cannot unmarshal yaml document: error converting YAML to JSON: yaml: line 1: did not find expected node content\n",
    ];
    assert_eq!(linted(&files, "{}"), expected.concat());
}

#[test]
fn objects_are_checked_by_kind() {
    let files = [
        ("Chart.yaml", "apiVersion: v2\nname: c\nversion: 0.1.0\nicon: https://a.b/c.png\n"),
        ("values.yaml", ""),
        (
            "templates/a.yaml",
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\n---\n# nothing\n---\napiVersion: v1\nkind: Service\nmetadata: {name: 1a}\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: a.b}\n---\nkind: Role\nmetadata: {name: 'a:%/b'}\n---\nkind: List\nitems:\n- metadata: {annotations: {helm.sh/resource-policy: keep}}\n",
        ),
        ("templates/b.json", "{}"),
        ("templates/c.yml", "\n  a: b\n"),
        ("templates/d.yaml", "{{ fail \"no\" }}{{ required \"r\" .Values.x }}"),
    ];
    let expected = [
        "[ERROR] templates/a.yaml: a Deployment must contain matchLabels or matchExpressions, and \"d\" does not\n",
        "[WARNING] templates/a.yaml: object name does not conform to Kubernetes naming requirements: \"1a\": metadata.name: Invalid value: \"1a\": a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')\n",
        "[WARNING] templates/a.yaml: object name does not conform to Kubernetes naming requirements: \"a.b\": metadata.name: Invalid value: \"a.b\": must not contain dots\n",
        "[WARNING] templates/a.yaml: object name does not conform to Kubernetes naming requirements: \"a:%/b\": [metadata.name: Invalid value: \"a:%/b\": may not contain '/', metadata.name: Invalid value: \"a:%/b\": may not contain '%']\n",
        "[WARNING] templates/a.yaml: object name does not conform to Kubernetes naming requirements: \"\": metadata.name: Invalid value: \"\": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')\n",
        "[ERROR] templates/b.json: file extension '.json' not valid. Valid extensions are .yaml, .yml, .tpl, or .txt\n",
        "[WARNING] templates/c.yml: document starts with an illegal indent: \"  a: b\", which may cause parsing problems\n",
        "[WARNING] templates/c.yml: object name does not conform to Kubernetes naming requirements: \"\": metadata.name: Invalid value: \"\": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')\n",
    ];
    assert_eq!(linted(&files, "{}"), expected.concat());
}

#[test]
fn deprecated_versions_of_kubernetes_are_reported() {
    let files = [
        ("Chart.yaml", "apiVersion: v2\nname: c\nversion: 0.1.0\nicon: https://a.b/c.png\n"),
        ("values.yaml", ""),
        (
            "templates/a.yaml",
            "apiVersion: extensions/v1beta1\nkind: Ingress\nmetadata: {name: a}\n---\napiVersion: policy/v1beta1\nkind: PodSecurityPolicy\nmetadata: {name: a}\n---\napiVersion: v1\nkind: Endpoints\nmetadata: {name: a}\n---\napiVersion: batch/v1\nkind: CronJob\nmetadata: {name: a}\n",
        ),
    ];
    let expected = [
        "[WARNING] templates/a.yaml: extensions/v1beta1 Ingress is deprecated in v1.14+, unavailable in v1.22+; use networking.k8s.io/v1 Ingress\n",
        "[WARNING] templates/a.yaml: v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice\n",
    ];
    assert_eq!(linted(&files, "{}"), expected.concat());
}

#[test]
fn a_template_that_gives_no_yaml_ends_the_check() {
    let files = [
        ("Chart.yaml", "apiVersion: v2\nname: c\nversion: 0.1.0\nicon: https://a.b/c.png\n"),
        ("values.yaml", ""),
        ("templates/a.yaml", "a: b: c\n"),
        ("templates/b.json", "x"),
    ];
    let expected = [
        "[ERROR] templates/a.yaml: unable to parse YAML: error converting YAML to JSON: yaml: mapping values are not allowed in this context\n",
    ];
    assert_eq!(linted(&files, "{}"), expected.concat());
}

#[test]
fn a_name_of_another_shape_is_reported() {
    let files = [
        ("Chart.yaml", "apiVersion: v2\nname: c\nversion: 0.1.0\nicon: https://a.b/c.png\n"),
        ("values.yaml", ""),
        ("templates/a.yaml", "kind: A\nmetadata: {name: {a: b}}\n"),
    ];
    let expected = [
        "[ERROR] templates/a.yaml: unable to parse YAML: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal object into Go struct field k8sYamlMetadata.Metadata.Name of type string\n",
    ];
    assert_eq!(linted(&files, "{}"), expected.concat());
}

#[test]
fn a_list_is_no_object() {
    let files = [
        ("Chart.yaml", "apiVersion: v2\nname: c\nversion: 0.1.0\nicon: https://a.b/c.png\n"),
        ("values.yaml", ""),
        ("templates/a.yaml", "- a\n"),
    ];
    let expected = [
        "[ERROR] templates/a.yaml: unable to parse YAML: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal array into Go value of type rules.k8sYamlStruct\n",
    ];
    assert_eq!(linted(&files, "{}"), expected.concat());
}

#[test]
fn a_template_that_fails_is_reported() {
    let files = [
        ("Chart.yaml", "apiVersion: v2\nname: c\nversion: 0.1.0\nicon: https://a.b/c.png\n"),
        ("values.yaml", ""),
        ("templates/a.yaml", "{{ index .Values.x 1 }}"),
    ];
    let expected = [
        "[ERROR] templates/: template: c/templates/a.yaml:1:3: executing \"c/templates/a.yaml\" at <index .Values.x 1>: error calling index: index of untyped nil\n",
    ];
    assert_eq!(linted(&files, "{}"), expected.concat());
}

#[test]
fn a_file_that_is_no_template_is_reported() {
    let files = [
        ("Chart.yaml", "apiVersion: v2\nname: c\nversion: 0.1.0\nicon: https://a.b/c.png\n"),
        ("values.yaml", ""),
        ("templates/a.yaml", "{{ if }}"),
    ];
    let expected =
        ["[ERROR] templates/: parse error at (c/templates/a.yaml:1): missing value for if\n"];
    assert_eq!(linted(&files, "{}"), expected.concat());
}

#[test]
fn two_dependencies_of_one_name_cannot_be_loaded() {
    let files = [
        (
            "Chart.yaml",
            "apiVersion: v2\nname: c\nversion: 0.1.0\nicon: https://a.b/c.png\ndependencies:\n- {name: x, version: 1.0.0, repository: https://a.b}\n- {name: y, alias: x, version: 1.0.0, repository: https://a.b}\n",
        ),
        ("values.yaml", ""),
        ("charts/z/Chart.yaml", "apiVersion: v2\nname: z\nversion: 1.0.0\n"),
        ("templates/_a.tpl", ""),
    ];
    let expected = [
        "[ERROR] templates/: validation: more than one dependency with name or alias \"x\"\n",
        "[ERROR] : unable to load chart\n",
        "	validation: more than one dependency with name or alias \"x\"\n",
    ];
    assert_eq!(linted(&files, "{}"), expected.concat());
}

#[test]
fn crds_are_checked_until_one_cannot_be_read() {
    let files = [
        ("Chart.yaml", "apiVersion: v2\nname: c\nversion: 0.1.0\nicon: https://a.b/c.png\n"),
        ("values.yaml", ""),
        (
            "crds/a.yaml",
            "apiVersion: v1\nkind: CustomResourceDefinition\n---\napiVersion: apiextensions.k8s.io/v1\nkind: A\n",
        ),
        ("crds/b.yaml", "a: b: c\n"),
        ("templates/_a.tpl", ""),
    ];
    let expected = [
        "[ERROR] crds/a.yaml: apiVersion is not in 'apiextensions.k8s.io'\n",
        "[ERROR] crds/a.yaml: object kind is not 'CustomResourceDefinition'\n",
        "[ERROR] crds/b.yaml: unable to parse YAML: error converting YAML to JSON: yaml: mapping values are not allowed in this context\n",
    ];
    assert_eq!(linted(&files, "{}"), expected.concat());
}

#[test]
fn a_directory_without_a_chart_is_an_error() {
    assert_eq!(
        linted(&[("values.yaml", "")], ""),
        "unable to check Chart.yaml file in chart: stat /c/Chart.yaml: no such file or directory"
    );
}
