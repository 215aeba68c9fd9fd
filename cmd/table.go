package cmd

import (
	"fmt"
	"io"
	"strings"
)

// table writes rows of a label and its value; empty values are left out.
func table(w io.Writer, rows [][2]string) {
	width := len("consumers")
	for _, r := range rows {
		width = max(width, len(r[0]))
	}
	for _, r := range rows {
		if r[1] != "" {
			fmt.Fprintf(w, "  %-*s  %s\n", width, r[0], r[1])
		}
	}
}

// join joins what isn't empty.
func join(sep string, parts ...string) string {
	var kept []string
	for _, p := range parts {
		if p != "" {
			kept = append(kept, p)
		}
	}
	return strings.Join(kept, sep)
}
