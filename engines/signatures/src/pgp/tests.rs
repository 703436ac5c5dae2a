//! Which signatures of a trusted key are over what it is asked about.

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use pgp::types::KeyDetails as _;

use super::*;

const NOW: u64 = 1_800_000_000;
const CREATED: [u8; 4] = 1_700_000_000_u32.to_be_bytes();

/// A packet of OpenPGP that is short.
fn packet(tag: u8, body: &[u8]) -> Vec<u8> {
    [&[0xc0 | tag, u8::try_from(body.len()).unwrap()], body].concat()
}

/// A signature by Ed25519 with SHA-256 over what is hashed before its own bytes.
fn signature(key: &Ed25519KeyPair, id: &[u8], kind: u8, hashed: &[u8]) -> Vec<u8> {
    let mut body = vec![4, kind, 27, 8, 0, 9, 5, 2];
    body.extend(CREATED);
    // It may certify and sign.
    body.extend([2, 27, 3]);
    let trailer = [4, 0xff, 0, 0, 0, u8::try_from(body.len()).unwrap()];
    let digest = crate::sha256(&[hashed, &body, &trailer].concat());
    body.extend([0, 10, 9, 16]);
    body.extend(id);
    body.extend(&digest[..2]);
    body.extend(key.sign(&digest).as_ref());
    packet(2, &body)
}

#[test]
fn a_signature_counts_only_if_it_is_over_the_whole_payload() {
    let key = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
    let mut body = vec![4];
    body.extend(CREATED);
    body.push(27);
    body.extend(key.public_key().as_ref());
    let Some(Ok(Packet::PublicKey(public))) = keyring::packets(&packet(6, &body)).next() else {
        unreachable!("it is a public key");
    };
    let id = public.legacy_key_id();
    let length = u8::try_from(body.len()).unwrap();
    let owned = [&[0x99, 0, length][..], &body, &[0xb4, 0, 0, 0, 1, b'x']].concat();
    let certified = signature(&key, id.as_ref(), 0x13, &owned);
    let mut effort = PgpVerificationBudget::default();
    let ring = [packet(6, &body), packet(13, b"x"), certified].concat();
    let ring = read_ring(&ring, &mut effort).unwrap();

    let payload = b"tree 4b825dc642cb6eb9a060e54bf8d69288fbee4904\n";
    let mut verify_kind = |kind: u8, signed: &[u8]| {
        let signature = signature(&key, id.as_ref(), kind, signed);
        check(&signature, payload, &ring, NOW, &mut effort).map(|_| ())
    };
    assert_eq!(verify_kind(0x00, payload), Ok(()));
    // Text is signed with the ends of lines that mail has.
    let text = [&payload[..payload.len() - 1], b"\r\n"].concat();
    assert_eq!(verify_kind(0x01, &text), Ok(()));
    for (kind, signed) in [(0x02, &payload[..1]), (0x40, &payload[..1]), (0x02, payload)] {
        let why = verify_kind(kind, signed).unwrap_err();
        assert_eq!(
            why,
            format!("openpgp: unsupported feature: unsupported signature type: {kind}")
        );
    }
    assert!(verify_kind(0x00, &payload[..1]).is_err());
}
