// Package cmd is the command line: flags in, options out. It's the only package
// that prints, and the only one that knows exit codes.
//
// Each verb is one file with the same four parts: a constructor of the command,
// a struct with its options, their flags, and a run function that takes the
// options and a printer, for tests to call directly. There are no package-level
// commands and no init. Engines return errors; exit.go turns them into codes,
// report.go into the line or the JSON object on standard error.
package cmd
