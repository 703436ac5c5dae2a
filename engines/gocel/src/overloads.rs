//! The functions of CEL as Flux declares them: cel-go's standard library, its extensions `Strings`, `Sets` and
//! `Encoders`, and optional values.
//!
//! Here: names and signatures. Elsewhere: the implementations (`functions`), and operators and functions with their own
//! order of evaluation ([`crate::eval`]).
//!
//! Sources: cel-go 0.26 `common/stdlib`, `ext`, `cel/library.go`.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use crate::expression_types::CelType;

/// One signature of a function.
#[derive(Debug)]
pub(crate) struct FunctionOverload {
    /// Whether the first argument is written before the dot.
    pub(crate) is_member: bool,
    pub(crate) params: Vec<CelType>,
    pub(crate) result: CelType,
    /// The type parameters of the signature.
    pub(crate) generics: Vec<&'static str>,
}

/// How a call finds its implementation at run time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallDispatch {
    /// The types of the arguments decide.
    Signature,
    /// There is one implementation for this number of arguments, which checks their types itself.
    Single(usize),
}

/// A declared function of the expression language: its overloads and how a call chooses one.
#[derive(Debug)]
pub(crate) struct CelFunction {
    pub(crate) dispatch: CallDispatch,
    pub(crate) overloads: Vec<FunctionOverload>,
}

/// The declared function with this name. `None` if no such function is declared.
pub(crate) fn function(name: &str) -> Option<&'static CelFunction> {
    FUNCTIONS.get(name)
}

static FUNCTIONS: LazyLock<BTreeMap<&'static str, CelFunction>> = LazyLock::new(|| {
    let mut functions = BTreeMap::new();
    for line in TABLE.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let Some((head, signatures)) = line.split_once(' ') else { continue };
        let (name, dispatch) = match head.rsplit_once('/') {
            Some((name, arity)) => (name, CallDispatch::Single(arity.parse().unwrap_or(2))),
            None => (head, CallDispatch::Signature),
        };
        let overloads = signatures.split_whitespace().map(overload).collect();
        functions.insert(name, CelFunction { dispatch, overloads });
    }
    functions
});

fn overload(text: &str) -> FunctionOverload {
    let (params, result) = text.split_once('>').unwrap_or((text, "d"));
    let is_member = params.starts_with('.');
    let mut rest = params.trim_start_matches('.');
    let mut list = Vec::new();
    while !rest.is_empty() {
        list.push(parse(&mut rest));
    }
    let generics = ["A", "B"].into_iter().filter(|name| text.contains(name)).collect();
    FunctionOverload { is_member, params: list, result: parse(&mut &*result), generics }
}

/// Reads one type: a letter, or one of `l`, `o`, `y` before another, or `m` before two.
fn parse(rest: &mut &str) -> CelType {
    let mut letters = rest.chars();
    let letter = letters.next();
    *rest = letters.as_str();
    match letter {
        Some('b') => CelType::Bool,
        Some('i') => CelType::Int,
        Some('u') => CelType::Uint,
        Some('f') => CelType::Double,
        Some('s') => CelType::String,
        Some('x') => CelType::Bytes,
        Some('D') => CelType::Duration,
        Some('T') => CelType::Timestamp,
        Some('l') => CelType::list(parse(rest)),
        Some('o') => CelType::optional(parse(rest)),
        Some('y') => CelType::Of(Some(Arc::new(parse(rest)))),
        Some('m') => {
            let key = parse(rest);
            CelType::map(key, parse(rest))
        }
        Some(param @ ('A' | 'B')) => CelType::Param(param.to_string().into()),
        _ => CelType::Dyn,
    }
}

/// The table of functions, one line each: the name, and then the signatures. If one implementation is for all
/// signatures, the number of arguments follows the name. A dot before a signature makes it a member. b bool, i int, u
/// uint, f double, s string, x bytes, D duration, T timestamp, d dyn, l list of, m map of, o optional, y type of; A and
/// B stand for any type.
const TABLE: &str = "
_?_:_ bAA>A
_&&_ bb>b
_||_ bb>b
!_/1 b>b
@not_strictly_false b>b
_==_ AA>b
_!=_ AA>b
_+_/2 xx>x ff>f DD>D DT>T TD>T ii>i lAlA>lA ss>s uu>u
_/_/2 ff>f ii>i uu>u
_%_/2 ii>i uu>u
_*_/2 ff>f ii>i uu>u
-_/1 f>f i>i
_-_/2 ff>f DD>D ii>i TD>T TT>D uu>u
_<_/2 bb>b ii>b if>b iu>b uu>b uf>b ui>b ff>b fi>b fu>b ss>b xx>b TT>b DD>b
_<=_/2 bb>b ii>b if>b iu>b uu>b uf>b ui>b ff>b fi>b fu>b ss>b xx>b TT>b DD>b
_>_/2 bb>b ii>b if>b iu>b uu>b uf>b ui>b ff>b fi>b fu>b ss>b xx>b TT>b DD>b
_>=_/2 bb>b ii>b if>b iu>b uu>b uf>b ui>b ff>b fi>b fu>b ss>b xx>b TT>b DD>b
_[_] lAi>A mABA>B olAi>oA omABA>oB
_[?_] lAi>oA olAi>oA mABA>oB omABA>oB
@in/2 AlA>b AmAB>b
size/1 x>i .x>i lA>i .lA>i mAB>i .mAB>i s>i .s>i
type/1 A>yA
bool b>b s>b
bytes x>x s>x
double f>f i>f s>f u>f
duration D>D i>D s>D
dyn/1 A>d
int i>i f>i D>i s>i T>i u>i
string s>s b>s x>s f>s D>s i>s T>s u>s
timestamp T>T i>T s>T
uint u>u f>u i>u s>u
contains .ss>b
endsWith .ss>b
startsWith .ss>b
matches/2 ss>b .ss>b
getFullYear .T>i .Ts>i
getMonth .T>i .Ts>i
getDayOfYear .T>i .Ts>i
getDayOfMonth .T>i .Ts>i
getDate .T>i .Ts>i
getDayOfWeek .T>i .Ts>i
getHours .T>i .Ts>i .D>i
getMinutes .T>i .Ts>i .D>i
getSeconds .T>i .Ts>i .D>i
getMilliseconds .T>i .Ts>i .D>i
charAt .si>s
indexOf .ss>i .ssi>i
lastIndexOf .ss>i .ssi>i
lowerAscii .s>s
upperAscii .s>s
replace .sss>s .sssi>s
split .ss>ls .ssi>ls
substring .si>s .sii>s
trim .s>s
format .sld>s
strings.quote s>s
join .ls>s .lss>s
reverse .s>s
sets.contains lAlA>b
sets.equivalent lAlA>b
sets.intersects lAlA>b
base64.decode s>x
base64.encode x>s
optional.of A>oA
optional.ofNonZeroValue A>oA
optional.none >oA
value .oA>A
hasValue .oA>b
or .oAoA>oA
orValue .oAA>A
last .lA>oA
first .lA>oA
optional.unwrap loA>lA
unwrapOpt .loA>lA
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_table_is_read() {
        let lines = TABLE.lines().filter(|line| !line.is_empty()).count();
        assert_eq!(FUNCTIONS.len(), lines);
        let split = function("split").unwrap();
        assert_eq!(split.overloads.len(), 2);
        assert_eq!(split.overloads[1].params, [CelType::String, CelType::String, CelType::Int]);
        assert_eq!(split.overloads[1].result, CelType::list(CelType::String));
        assert_eq!(function("_[_]").unwrap().overloads[1].generics, ["A", "B"]);
    }
}
