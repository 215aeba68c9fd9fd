// Package repo is where backups live: their layout, how one comes to exist, and
// how they are found again.
//
// # Layout
//
//	<repository>/
//	    jetkeep.json                 version, id and salt; without it there's no repository
//	    <stream>/                    PathName of the stream
//	        <id>/                    UTC start time and a random suffix: 20261130T155200.123Z-1a2b3c
//	            backup.json          configuration and state, as the server gave them
//	            stream.arc.s2        the archive (stream.tar.s2 for servers before 2.15)
//	            manifest.json        put last: the backup exists when this does
//	            .lock                only while a writer is at work
//
// A plain backup is one such innermost directory by itself: what `-o DIR`
// writes, and what the nats CLI writes, without a manifest.
//
// # Promises
//
// Objects never change once written. A backup exists when its manifest does,
// and the manifest is put last, if absent, after everything that it names is
// safe on disk. Any failure before that leaves nothing that lists; what a dead
// writer left is removed by the next [Repository.Begin] of the stream. Files
// are 0600 and directories 0700, whatever the umask. What can't be read is
// reported beside what can, and never hides it.
//
// A repository stands on a [Store]: five operations that a directory, S3 and a
// NATS object store can all honour. Only [Dir] and plain backups know of file
// paths. Directories that several machines share need a file system with hard
// links or file locks that work between them. Symbolic links inside a
// repository aren't followed.
//
// # What it never does
//
// It doesn't decode archives, talk to a server, print, or decide which backups
// to keep. It checks sizes and the digest of backup.json; the digests of the
// archive are for whoever reads all of it. It never removes a directory that
// isn't named like a backup, nor one that holds a manifest.
package repo
