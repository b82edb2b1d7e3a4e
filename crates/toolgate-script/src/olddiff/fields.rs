/// Returns the byte ranges of the fields of an f-string, including their braces.
pub(super) fn find_fields(literal: &str) -> Vec<(usize, usize)> {
    let Some(open) = literal.find(['"', '\'']) else {
        return Vec::new();
    };
    if !literal[..open].to_ascii_lowercase().contains('f') {
        return Vec::new();
    }
    let bytes = literal.as_bytes();
    let mut fields = Vec::new();
    let mut at = open;
    while at < bytes.len() {
        if bytes[at] == b'{' && bytes.get(at + 1) != Some(&b'{') {
            let end = super::lex::field_end(literal, at, 0, true);
            fields.push((at, end));
            at = end;
        } else {
            at += if bytes[at] == b'{' { 2 } else { 1 };
        }
    }
    fields
}
