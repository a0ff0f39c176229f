//! Unsigned LEB128 and a bounded cursor. Nothing here trusts a length before it was compared with what is left.

use peat_types::Result;

use super::damaged;

/// Appends `value` in its shortest form.
pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(u8::try_from(value & 0x7f).unwrap_or(0) | 0x80);
        value >>= 7;
    }
    out.push(u8::try_from(value).unwrap_or(0));
}

/// Appends a length and the bytes.
pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Maps signed to unsigned so that small magnitudes stay short.
pub(crate) fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)).cast_unsigned()
}

/// Undoes [`zigzag`].
pub(crate) fn unzigzag(value: u64) -> i64 {
    (value >> 1).cast_signed() ^ -((value & 1).cast_signed())
}

/// A cursor over bytes from outside.
pub(crate) struct Reader<'a> {
    all: &'a [u8],
    pos: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(all: &'a [u8]) -> Self {
        Self { all, pos: 0 }
    }

    /// Bytes consumed so far.
    pub(crate) fn pos(&self) -> usize {
        self.pos
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pos == self.all.len()
    }

    /// What is left.
    pub(crate) fn rest(&self) -> &'a [u8] {
        &self.all[self.pos..]
    }

    /// The next `len` bytes.
    pub(crate) fn take(&mut self, len: usize) -> Result<&'a [u8]> {
        let taken = self.rest().get(..len).ok_or_else(|| damaged("bytes end too early"))?;
        self.pos += len;
        Ok(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        self.take(N)?.try_into().map_err(|_| damaged("bytes end too early"))
    }

    pub(crate) fn u8(&mut self) -> Result<u8> {
        Ok(self.array::<1>()?[0])
    }

    pub(crate) fn u32le(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// A varint in its shortest form; any other form is damage, so that equal values have equal bytes.
    pub(crate) fn varint(&mut self) -> Result<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            let part = u64::from(byte & 0x7f);
            if shift == 63 && part > 1 || shift > 0 && byte == 0 {
                return Err(damaged("a number is not in its shortest form"));
            }
            value |= part << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(damaged("a number is too long"))
    }

    /// A varint that counts bytes or items which must still follow, each at least one byte long.
    pub(crate) fn count(&mut self) -> Result<usize> {
        let value = usize::try_from(self.varint()?).map_err(|_| damaged("a length is too large"))?;
        if value > self.rest().len() {
            return Err(damaged("a length exceeds what follows"));
        }
        Ok(value)
    }

    /// A length and so many bytes.
    pub(crate) fn bytes(&mut self) -> Result<&'a [u8]> {
        let len = self.count()?;
        self.take(len)
    }

    pub(crate) fn str(&mut self) -> Result<&'a str> {
        std::str::from_utf8(self.bytes()?).map_err(|e| damaged("a name is not UTF-8").with_source(e))
    }
}
