//! Changes bytes at random, and inserts words that often break parsers.
//!
//! `super` says what the code must not do with the changed files.

use std::collections::BTreeMap;

use e2e::random_sequence::RandomSequence;

/// Words that often break the parsers of a language.
pub(super) type LanguageWords = [&'static [u8]];

/// Pieces of templates, YAML and JSON, numbers at their limits, and bytes that are not text.
pub(super) const TEMPLATE_FRAGMENTS: [&[u8]; 60] = [
    b"{{",
    b"}}",
    b"{{-",
    b"-}}",
    b"{{- end }}",
    b"{{ else }}",
    b"{{ break }}",
    b"{{/*",
    b"*/}}",
    b"{{ . }}",
    b"{{ $ }}",
    b"{{ .Values }}",
    b"{{ toYaml .Values }}",
    b"{{ range .Values }}",
    b"{{ with .Values.nope }}",
    b"{{ define \"x\" }}",
    b"{{ template \"x\" . }}",
    b"{{ include \"x\" . }}",
    b"{{ define \"x\" }}{{ include \"x\" . }}{{ end }}",
    b"{{ tpl \"{{ . }}\" . }}",
    b"{{ range $i := until 100000000 }}x{{ end }}",
    b"{{ repeat 100000000 \"x\" }}",
    b"{{ regexMatch \"(a{900}){900}\" \"a\" }}",
    b"{{ printf \"%999999999d\" 1 }}",
    b"{{ index .Values 1 2 3 }}",
    b"{{ fail \"no\" }}",
    b"{{ required \"no\" .nope }}",
    b"{{ set .Values \"a\" .Values | toJson }}",
    b" | toYaml",
    b" | fromYaml",
    b" | quote",
    b" | int",
    b" | nindent -1",
    b".nope.nope",
    b"$x := ",
    b"(",
    b")",
    b"\"",
    b"`",
    b"'",
    b"null",
    b"true",
    b"-1",
    b"9223372036854775808",
    b"1e309",
    b"0x",
    b"~",
    b": ",
    b"- ",
    b"---\n",
    b"&a ",
    b"*a",
    b"<<: *a\n",
    b"!!binary ",
    b"\n",
    b"\r\n",
    b"\t",
    b"\0",
    b"\xff\xfe",
    b"\xef\xbb\xbf",
];

/// Pieces of kustomizations and manifests, paths and URLs that lead outside, and constructs that grow without end.
pub(super) const KUSTOMIZATION_FRAGMENTS: [&[u8]; 66] = [
    b"resources:\n- ",
    b"resources:\n- .\n",
    b"resources:\n- ..\n",
    b"resources:\n- /etc/passwd\n",
    b"resources:\n- http://127.0.0.1:1/a.yaml\n",
    b"components:\n- .\n",
    b"bases: []\n",
    b"crds:\n- ",
    b"generators:\n- |-\n  ",
    b"transformers:\n- ",
    b"validators:\n- ",
    b"configurations:\n- ",
    b"openapi:\n  path: ",
    b"configMapGenerator:\n- name: a\n  literals: [a=b]\n",
    b"secretGenerator:\n- envs: [a]\n",
    b"behavior: merge",
    b"behavior: replace",
    b"disableNameSuffixHash: true",
    b"generatorOptions:\n",
    b"patches:\n- patch: |-\n    ",
    b"patchesStrategicMerge:\n- ",
    b"patchesJson6902:\n- ",
    b"- op: replace\n  path: /metadata/name\n  value: ",
    b"- op: copy\n  from: \n  path: /a\n",
    b"- op: test\n  path: /spec/-\n",
    b"$patch: delete\n",
    b"$patch: replace\n",
    b"$retainKeys: [a]\n",
    b"$setElementOrder/containers: []\n",
    b"target:\n  kind: .*\n",
    b"target:\n  name: (a+)+$\n",
    b"labelSelector: a in (b",
    b"replacements:\n- source: {kind: ConfigMap}\n  targets: []\n",
    b"fieldPaths: [spec.*.*.name]\n",
    b"fieldPaths: [\"metadata.annotations.[a=b]\"]\n",
    b"delimiter: \"\"\n      index: -99999999\n",
    b"options: {create: true}\n",
    b"vars:\n- name: A\n  objref: {kind: A}\n",
    b"$(A)",
    b"$$(A",
    b"images:\n- name: .*\n  newTag: \"1\"\n",
    b"digest: sha256:",
    b"tagSuffix: -x\n",
    b"replicas:\n- name: a\n  count: -1\n",
    b"namePrefix: ",
    b"nameSuffix: ",
    b"namespace: ",
    b"commonLabels:\n  a: b\n",
    b"labels:\n- pairs: {a: b}\n  includeSelectors: true\n",
    b"commonAnnotations: {a: 1}\n",
    b"sortOptions: {order: legacy}\n",
    b"helmCharts:\n- name: a\n",
    b"buildMetadata: [originAnnotations, transformerAnnotations]\n",
    b"kind: List\nitems:\n- ",
    b"kind: Component\n",
    b"apiVersion: builtin\nkind: PatchTransformer\n",
    b"null",
    b"true",
    b"9223372036854775808",
    b"---\n",
    b"&a ",
    b"*a",
    b"<<: *a\n",
    b"!!binary ",
    b"\t",
    b"\xff\xfe",
];

/// Changes some places in one or two of the files.
pub(super) fn files(
    files: &mut BTreeMap<String, Vec<u8>>,
    words: &LanguageWords,
    random: &mut RandomSequence,
) {
    let names: Vec<String> = files.keys().cloned().collect();
    for _ in 0..=random.below(2) {
        let Some(name) = names.get(random.below(names.len())) else { return };
        let other = names.get(random.below(names.len())).and_then(|name| files.get(name)).cloned();
        if let Some(text) = files.get_mut(name) {
            for _ in 0..=random.below(4) {
                change(text, other.as_deref().unwrap_or_default(), words, random);
            }
        }
    }
    // The case may also lose a file, or have a file in another place.
    if random.chance(3)
        && let Some(name) = names.get(random.below(names.len()))
        && let Some(text) = files.remove(name)
        && random.chance(50)
        && let Some(place) = names.get(random.below(names.len()))
    {
        files.insert(place.clone(), text);
    }
}

/// Changes some places of one input with pieces of another one. Sometimes it repeats one piece very often.
pub(super) fn input(
    text: &mut Vec<u8>,
    other: &[u8],
    words: &LanguageWords,
    random: &mut RandomSequence,
) {
    for _ in 0..=random.below(5) {
        change(text, other, words, random);
    }
    if random.chance(4) {
        let at = random.below(text.len() + 1);
        let piece = match random.chance(50) {
            true => word(words, random).to_vec(),
            false => {
                let until = (at + 1 + random.below(8)).min(text.len());
                text.get(at..until).unwrap_or_default().to_vec()
            }
        };
        let times = 1 << random.below(17);
        let times = times.min(MOST_BYTES / piece.len().max(1));
        insert(text, at, &piece.repeat(times));
    }
    text.truncate(MOST_BYTES);
}

/// The size limit of an input. It is large enough to exceed the depth and length that any code without a limit could
/// bear.
const MOST_BYTES: usize = 256 << 10;

/// Changes one place of a text.
fn change(text: &mut Vec<u8>, other: &[u8], words: &LanguageWords, random: &mut RandomSequence) {
    let at = random.below(text.len() + 1);
    let longest = if random.chance(80) { 12 } else { 400 };
    let until = (at + random.below(longest)).min(text.len());
    match random.below(7) {
        0 => {
            if let Some(byte) = text.get_mut(at) {
                *byte ^= 1 << random.below(8);
            }
        }
        1 => drop(text.drain(at..until)),
        2 => {
            let piece = text.get(at..until).unwrap_or_default().to_owned();
            insert(text, at, &piece.repeat(random.below(4)));
        }
        3 => {
            let from = random.below(other.len());
            let piece =
                other.iter().copied().skip(from).take(random.below(120)).collect::<Vec<_>>();
            insert(text, at, &piece);
        }
        4 => {
            // Replaces one word by another, because the meaning is in names and numbers.
            let is_word = |byte: &u8| byte.is_ascii_alphanumeric();
            let begin =
                text.iter().take(at).rposition(|byte| !is_word(byte)).map_or(0, |it| it + 1);
            let length = text.iter().skip(begin).take_while(|byte| is_word(byte)).count();
            drop(text.splice(begin..begin + length, word(words, random).iter().copied()));
        }
        _ => insert(text, at, word(words, random)),
    }
}

fn word(words: &LanguageWords, random: &mut RandomSequence) -> &'static [u8] {
    words.get(random.below(words.len())).copied().unwrap_or_default()
}

fn insert(text: &mut Vec<u8>, at: usize, piece: &[u8]) {
    drop(text.splice(at..at, piece.iter().copied()));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(seed: u64) -> BTreeMap<String, Vec<u8>> {
        let text = b"a: {{ .Values.a }}\nb: 17\n".to_vec();
        let mut all = BTreeMap::from([("a".to_owned(), text.clone()), ("b".to_owned(), text)]);
        files(&mut all, &TEMPLATE_FRAGMENTS, &mut RandomSequence::new(seed));
        all
    }

    #[test]
    fn a_seed_repeats_its_changes_and_most_seeds_change_something() {
        assert_eq!(changed(3), changed(3));
        let untouched = changed(u64::MAX);
        let different = (0..200).filter(|seed| changed(*seed) != untouched).count();
        assert!(different > 190, "{different}");
    }

    #[test]
    fn empty_files_are_no_trouble() {
        for seed in 0..200 {
            let mut all = BTreeMap::from([("a".to_owned(), Vec::new())]);
            files(&mut all, &TEMPLATE_FRAGMENTS, &mut RandomSequence::new(seed));
            files(&mut BTreeMap::new(), &TEMPLATE_FRAGMENTS, &mut RandomSequence::new(seed));
        }
    }
}
