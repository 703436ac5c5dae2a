//! Reads the entries of an untrusted tar archive.
//!
//! Here: headers, PAX and GNU long names, bodies, all within bounds.
//! Elsewhere: which entries are accepted ([`super::extract`]).

use std::io::{self, Read};

use super::{
    ExtractError,
    tar_header::{TAR_BLOCK_BYTES, is_sound, number, text},
};

/// The largest header that only describes the next one, as Go has it.
const MAX_SPECIAL: u64 = 1 << 20;

/// An entry, before it is validated.
#[derive(Debug)]
pub(super) struct ArchiveEntry {
    /// The name as the archive has it.
    pub(super) name: Vec<u8>,
    /// The size that its header claims.
    pub(super) size: u64,
    /// Permission bits, and in old archives the file type.
    pub(super) mode: u64,
    /// The type flag; the old `NUL` is resolved to `0` or `5`.
    pub(super) flag: u8,
}

/// Goes from entry to entry. Reading from it returns the body of the current entry.
#[derive(Debug)]
pub(super) struct TarReader<R> {
    input: R,
    /// The rest of the current body.
    remaining: u64,
    padding: u64,
}

/// The path and the size that earlier headers give the next entry.
#[derive(Debug, Default)]
struct TarHeaderOverrides {
    path: Option<Vec<u8>>,
    size: Option<u64>,
}

impl<R: Read> TarReader<R> {
    pub(super) fn new(input: R) -> Self {
        Self { input, remaining: 0, padding: 0 }
    }

    /// The next entry; none at the end.
    ///
    /// Differs(go): sparse files are refused instead of being expanded, because nothing that Flux reads has them.
    pub(super) fn next(&mut self) -> Result<Option<ArchiveEntry>, ExtractError> {
        let mut pax = TarHeaderOverrides::default();
        let mut long_name = None;
        loop {
            if !self.skip_body()? {
                return Ok(None);
            }
            let Some(block) = self.header()? else { return Ok(None) };
            let mut entry = parse(&block)?;
            match entry.flag {
                b'x' => pax = parse_pax(&self.special(entry.size)?)?,
                b'g' => {
                    // Parity(go): a global header is an entry of its own, and applies to nothing.
                    let global = parse_pax(&self.special(entry.size)?)?;
                    let name = global.path.unwrap_or(entry.name);
                    return Ok(Some(ArchiveEntry { name, size: 0, mode: 0, flag: b'g' }));
                }
                b'L' => long_name = Some(text(&self.special(entry.size)?).to_vec()),
                b'K' => drop(self.special(entry.size)?),
                _ => {
                    // Parity(go): a GNU long name goes before the name in a PAX record.
                    let name = long_name.filter(|name| !name.is_empty()).or(pax.path);
                    entry.name = name.unwrap_or(entry.name);
                    entry.size = pax.size.unwrap_or(entry.size);
                    if entry.flag == 0 {
                        entry.flag = if entry.name.ends_with(b"/") { b'5' } else { b'0' };
                    }
                    // Links, devices, folders and pipes have no body, even if their size is not zero.
                    let has_body = !matches!(entry.flag, b'1'..=b'6');
                    self.begin_body(if has_body { entry.size } else { 0 });
                    return Ok(Some(entry));
                }
            }
        }
    }

    fn begin_body(&mut self, size: u64) {
        self.remaining = size;
        self.padding =
            (TAR_BLOCK_BYTES as u64 - size % TAR_BLOCK_BYTES as u64) % TAR_BLOCK_BYTES as u64;
    }

    /// Skips the rest of a body. Returns whether the archive continues.
    fn skip_body(&mut self) -> Result<bool, ExtractError> {
        let remaining = self.remaining;
        let padding = self.padding;
        self.begin_body(0);
        if io::copy(&mut (&mut self.input).take(remaining), &mut io::sink())? < remaining {
            return Err(ExtractError::Tar("it ends in the middle of a file"));
        }
        // Parity(go): only the padding of the last file may be missing.
        Ok(io::copy(&mut (&mut self.input).take(padding), &mut io::sink())? == padding)
    }

    /// The next header block. `None` at the end of the archive, with or without an end marker.
    fn header(&mut self) -> Result<Option<[u8; TAR_BLOCK_BYTES]>, ExtractError> {
        let Some(block) = self.block()? else { return Ok(None) };
        if block != [0; TAR_BLOCK_BYTES] {
            return Ok(Some(block));
        }
        match self.block()? {
            Some(second) if second != [0; TAR_BLOCK_BYTES] => {
                Err(ExtractError::Tar("a header follows the end of the archive"))
            }
            Some(_) | None => Ok(None),
        }
    }

    fn block(&mut self) -> Result<Option<[u8; TAR_BLOCK_BYTES]>, ExtractError> {
        let mut block = [0; TAR_BLOCK_BYTES];
        let mut filled = 0;
        while filled < TAR_BLOCK_BYTES {
            match self.input.read(&mut block[filled..]) {
                Ok(0) if filled == 0 => return Ok(None),
                Ok(0) => return Err(ExtractError::Tar("it ends in the middle of a header")),
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Some(block))
    }

    /// The body of a header that describes another one.
    fn special(&mut self, size: u64) -> Result<Vec<u8>, ExtractError> {
        if size > MAX_SPECIAL {
            return Err(ExtractError::Tar("an extended header is larger than 1 MiB"));
        }
        self.begin_body(size);
        let mut body = Vec::new();
        self.read_to_end(&mut body)?;
        if (body.len() as u64) < size {
            return Err(ExtractError::Tar("it ends in the middle of an extended header"));
        }
        Ok(body)
    }
}

impl<R: Read> Read for TarReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = (&mut self.input).take(self.remaining).read(buffer)?;
        self.remaining -= read as u64;
        Ok(read)
    }
}

fn parse(block: &[u8; TAR_BLOCK_BYTES]) -> Result<ArchiveEntry, ExtractError> {
    if !is_sound(block) {
        return Err(ExtractError::Tar("a header has a wrong checksum"));
    }
    let wrong = || ExtractError::Tar("a number in a header is malformed");
    let mut name = text(&block[..100]).to_vec();
    let prefix = text(&block[345..500]);
    // Only USTAR and PAX have the prefix. GNU uses these bytes for other fields.
    if &block[257..263] == b"ustar\0" && !prefix.is_empty() {
        name = [prefix, b"/", &name].concat();
    }
    let size = number(&block[124..136]).ok_or_else(wrong)?;
    let mode = number(&block[100..108]).ok_or_else(wrong)?;
    Ok(ArchiveEntry { name, size, mode, flag: block[156] })
}

/// Parses the records of a PAX header. Each record begins with its own length.
fn parse_pax(mut records: &[u8]) -> Result<TarHeaderOverrides, ExtractError> {
    let wrong = || ExtractError::Tar("an extended header is malformed");
    let mut found = TarHeaderOverrides::default();
    while !records.is_empty() {
        let space = records.iter().take(20).position(|byte| *byte == b' ').ok_or_else(wrong)?;
        let digits = str::from_utf8(&records[..space]).ok();
        let len: usize = digits.and_then(|digits| digits.parse().ok()).ok_or_else(wrong)?;
        let record = records.get(space + 1..len).and_then(|record| record.strip_suffix(b"\n"));
        let record = record.ok_or_else(wrong)?;
        let equals = record.iter().position(|byte| *byte == b'=').ok_or_else(wrong)?;
        let key = &record[..equals];
        let value = &record[equals + 1..];
        match key {
            b"" => return Err(wrong()),
            sparse if sparse.starts_with(b"GNU.sparse.") => {
                return Err(ExtractError::Tar("it contains a sparse file, which is not supported"));
            }
            // Parity(go): an empty value leaves the value of the header itself.
            b"path" => found.path = Some(value.to_vec()).filter(|path| !path.is_empty()),
            b"size" if value.is_empty() => found.size = None,
            b"size" => {
                let size: Option<i64> =
                    str::from_utf8(value).ok().and_then(|size| size.parse().ok());
                found.size = Some(size.and_then(|size| size.try_into().ok()).ok_or_else(wrong)?);
            }
            _ => {}
        }
        records = &records[len..];
    }
    Ok(found)
}
