// Package format reads, checks and writes what a backup is made of: the archive
// of one stream as nats-server 2.15 and later hands it out (V2, NATS ADR-63),
// backup.json and the manifest.
//
// An archive is an S2 framing stream:
//
//	ff 06 00 00 "S2sTwO"                        stream identifier
//	00 | 01 <length:3> <crc:4> <block>          data, compressed or not
//	80..fe <length:3> …                         skippable: padding, an index
//
// Decompressed, it is eight bytes and then entries:
//
//	"NATSARC1"
//	entry := uvarint(len name) varint(ns) uvarint(seq) uvarint(len hdr) uvarint(len payload)
//	         name hdr payload
//
//	state.json          the stream's state; consumer_count says how many follow
//	consumers/<name>    {"config": …, "state": …}
//	<subject>           the messages, in ascending sequence
//	""                  the end marker: every number zero
//
// [Inspector] decodes an archive as its bytes arrive, checks every block and
// entry, and hands messages and checked blocks to whoever wants them; it keeps
// a few blocks in memory whatever the archive's size. [Writer] encodes one.
//
// The package knows nothing of NATS connections, files or repositories, and
// trusts nothing that it reads: whatever the input, it returns an error rather
// than panic, and it allocates for data that came, never for a size that was
// only declared.
package format
