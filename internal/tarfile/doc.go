// Package tarfile carries one backup through a pipe: its files as a plain tar,
// without directories, backup.json and the manifest first.
//
// What comes out of a pipe is hostile until proven otherwise. Unpack takes
// only the files that a backup consists of, under exactly these names, each
// once and as a plain file; it writes no more than arrives, and nowhere but
// into a new temporary directory. A tar without its end is an error, so that a
// broken pipe can't pass for a short backup. Whether the backup is sound is for
// package verify to say.
package tarfile
