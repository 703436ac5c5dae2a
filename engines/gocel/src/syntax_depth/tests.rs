//! What counts as deep, and where a token ends.

use super::*;

fn depth(source: &str) -> usize {
    let mut nesting = ExpressionNesting::default();
    let mut lexer = CelLexer { source, at: 0 };
    let mut deepest = 0;
    while let Ok(Some(token)) = {
        lexer.skip_hidden();
        lexer.next()
    } {
        nesting.take(token);
        deepest = deepest.max(nesting.deepest());
    }
    assert_eq!(lexer.at, source.len(), "{source}");
    deepest
}

#[test]
fn chains_add_up_and_end_where_operands_lie_side_by_side() {
    for (text, want) in [
        ("a", 0),
        ("a + b + c", 2),
        ("a + b, c + d", 1),
        ("a.b && c.d || e.f", 1),
        ("((1))", 4),
        ("[1, 2, 3]", 2),
        ("a ? b : c ? d : e", 2),
        ("a.?b[?0]", 5),
        ("1.5 + .5e-3 + 0xFFu", 2),
        ("1in[1]", 3),
        ("'+' in \"+\"", 1),
        ("br'\\' + B\"\"\"\"+\"\"\" // +", 1),
        ("'\\x41\\u00e9\\U0001F600\\101\\n' + ''", 1),
        ("inner + `a.b-c`", 1),
    ] {
        assert_eq!(depth(text), want, "{text}");
    }
}

#[test]
fn an_invalid_token_is_reported_unless_little_follows() {
    assert_eq!(check("'a"), Ok(()));
    let long = format!("1 + '\\q{}", "x".repeat(300));
    assert_eq!(check(&long), Err(UnreadableExpression::NoToken(4)));
    assert_eq!(check(&"(".repeat(300)), Err(UnreadableExpression::TooDeep));
}
