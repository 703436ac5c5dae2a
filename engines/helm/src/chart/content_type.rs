//! The content type of bytes, for the error message about a file that is not an archive. The names are those of Go's
//! `http.DetectContentType`.

/// How many bytes Helm examines. A shorter file is filled up with zeros, which no text contains.
const LOOKED_AT: usize = 512;

/// The first bytes of each content type. For texts, only a byte order mark is listed.
const CONTENT_TYPE_SIGNATURES: [(&[u8], &str); 24] = [
    (b"%PDF-", "application/pdf"),
    (b"%!PS-Adobe-", "application/postscript"),
    (b"\xfe\xff", "text/plain; charset=utf-16be"),
    (b"\xff\xfe", "text/plain; charset=utf-16le"),
    (b"\xef\xbb\xbf", "text/plain; charset=utf-8"),
    (b"\x00\x00\x01\x00", "image/x-icon"),
    (b"\x00\x00\x02\x00", "image/x-icon"),
    (b"BM", "image/bmp"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"ID3", "audio/mpeg"),
    (b"OggS\x00", "application/ogg"),
    (b"MThd\x00\x00\x00\x06", "audio/midi"),
    (b"\x1a\x45\xdf\xa3", "video/webm"),
    (b"\x00\x01\x00\x00", "font/ttf"),
    (b"OTTO", "font/otf"),
    (b"ttcf", "font/collection"),
    (b"wOFF", "font/woff"),
    (b"wOF2", "font/woff2"),
    (b"PK\x03\x04", "application/zip"),
    (b"Rar!\x1a\x07\x00", "application/x-rar-compressed"),
    (b"\x00asm", "application/wasm"),
];

const HTML: [&str; 17] = [
    "<!DOCTYPE HTML",
    "<HTML",
    "<HEAD",
    "<SCRIPT",
    "<IFRAME",
    "<H1",
    "<DIV",
    "<FONT",
    "<TABLE",
    "<A",
    "<STYLE",
    "<TITLE",
    "<B",
    "<BODY",
    "<BR",
    "<P",
    "<!--",
];

/// Whether data begins like gzip.
pub(super) fn is_gzip(bytes: &[u8]) -> bool {
    bytes.starts_with(b"\x1f\x8b\x08")
}

/// The content type of data, judged by its beginning.
pub(super) fn content_type(bytes: &[u8]) -> &'static str {
    let is_short = bytes.len() < LOOKED_AT;
    let bytes = &bytes[..bytes.len().min(LOOKED_AT)];
    let text = bytes.trim_ascii_start();
    let is_html = HTML.iter().any(|tag| {
        let begins =
            text.get(..tag.len()).is_some_and(|it| it.eq_ignore_ascii_case(tag.as_bytes()));
        begins && matches!(text.get(tag.len()), Some(b' ' | b'>'))
    });
    if is_html {
        return "text/html; charset=utf-8";
    }
    if text.starts_with(b"<?xml") {
        return "text/xml; charset=utf-8";
    }
    if let Some((_, found)) =
        CONTENT_TYPE_SIGNATURES.iter().find(|(begin, _)| bytes.starts_with(begin))
    {
        return found;
    }
    let is_binary = |byte: &u8| matches!(byte, 0..=8 | 11 | 14..=26 | 28..=31);
    if is_short || bytes.iter().any(is_binary) {
        "application/octet-stream"
    } else {
        "text/plain; charset=utf-8"
    }
}
