// Package ui shows how far a run is: a bar on a terminal, plain lines without
// one, JSON lines for programs. It also writes numbers, sizes and times for
// people.
//
// Without a terminal it writes no control character, ever. It never writes
// results, decides nothing, and swallows errors of the progress output, since
// a backup must not fail because nobody watches.
package ui
