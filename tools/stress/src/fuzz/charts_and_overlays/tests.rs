//! Renders changed charts in this process. The engine has to give a release or an error.

use conformance::corpus::helm_engine;

use super::*;

#[test]
fn a_changed_chart_is_rendered_or_refused() {
    let cases = small(CorpusKind::Charts).unwrap();
    let mut rendered = 0;
    for seed in 0..150 {
        let changed = change(&cases, seed).unwrap();
        let files = changed.files.iter().filter_map(|(path, content)| {
            Some((path.strip_prefix("chart/")?.to_owned(), content.clone()))
        });
        let files: BTreeMap<String, Vec<u8>> = files.collect();
        let outcome = helm_engine::on_stack(|| {
            let chart = helm_engine::chart(files)?;
            helm_engine::render(&chart, None, &helm_engine::environment(seed)).map(drop)
        });
        let outcome = outcome.unwrap_or_else(|fault| panic!("seed {seed}: {fault}"));
        if let Err(error) = &outcome {
            // The engine catches a panic in a template function and reports it as an error.
            assert!(
                !format!("{error}").starts_with("rendering template failed"),
                "seed {seed}: {error}"
            );
        }
        rendered += usize::from(outcome.is_ok());
    }
    assert!(rendered > 20, "only {rendered} charts were still charts");
}
