// Package backup takes a backup of one stream: it asks the server for a
// snapshot, streams the archive into a [repo.Writer] while inspecting it, and
// commits only what arrived whole and sound.
//
// The server gives a snapshot up when five seconds pass without an
// acknowledged chunk, so the transfer never waits for the writer alone: chunks
// are acknowledged as the writer takes them, and while it stalls one is
// acknowledged every second and a half, up to a limit in memory. Whatever the
// stream's size, memory stays within that limit and a few blocks.
//
// A backup only reads, so an attempt that fails for a passing reason (a stall,
// a moved leader, a lost connection) is repeated from the start; after a stall
// or a lost connection with smaller chunks, which a slow link needs. Package
// backup never prints and never deletes anything but its own unfinished work.
package backup
