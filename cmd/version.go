package cmd

import (
	"cmp"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Build says what was built. Empty fields are taken from what the Go tool put
// into the binary.
type Build struct{ Version, Commit string }

type versionOptions struct{}

// AddFlags adds --json, the only one.
func (o *versionOptions) AddFlags(f *pflag.FlagSet) { jsonFlag(f) }

func newVersionCommand(a *app) *cobra.Command {
	var o versionOptions
	c := &cobra.Command{
		Use:     "version [flags]",
		Short:   "Print the version",
		Long:    "Print the version of jetkeep, of Go, and of the NATS modules that are built in.",
		Example: "  jetkeep version\n  jetkeep version --json",
		Args:    exactly(0, "version takes no argument"),
		RunE:    func(*cobra.Command, []string) error { return runVersion(o, a.build, a.p) },
	}
	setHelp(c, []int{exitOK, exitFailed, exitUsage}, addGroup(c, "FLAGS", o.AddFlags))
	return c
}

// versionSummary is the result of version.
type versionSummary struct {
	MessageType string `json:"message_type"` // "summary"
	Version     string `json:"version"`
	Commit      string `json:"commit,omitempty"`
	Go          string `json:"go_version"`
	Platform    string `json:"platform"`
	// Modules of NATS by path, as far as they are built in.
	NATS       string `json:"nats_go,omitempty"`
	NATSServer string `json:"nats_server,omitempty"`
}

func runVersion(_ versionOptions, b Build, p *printer) error {
	s := describe(b)
	return p.result(s, func(w io.Writer) {
		fmt.Fprintf(w, "jetkeep %s\n", s.Version)
		for _, l := range [][2]string{
			{"commit", s.Commit}, {"go", s.Go}, {"platform", s.Platform}, {"nats.go", s.NATS}, {"nats-server", s.NATSServer},
		} {
			if l[1] != "" {
				fmt.Fprintf(w, "  %-12s %s\n", l[0], l[1])
			}
		}
	}, "")
}

// describe fills in what the Go tool knows.
func describe(b Build) versionSummary {
	s := versionSummary{
		MessageType: "summary", Version: b.Version, Commit: b.Commit,
		Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
	info, ok := debug.ReadBuildInfo()
	if ok {
		s.Version = cmp.Or(s.Version, info.Main.Version)
		for _, set := range info.Settings {
			if set.Key == "vcs.revision" {
				s.Commit = cmp.Or(s.Commit, set.Value)
			}
		}
		for _, m := range info.Deps {
			if m.Replace != nil {
				m = m.Replace
			}
			switch m.Path {
			case "github.com/nats-io/nats.go":
				s.NATS = m.Version
			case "github.com/nats-io/nats-server/v2":
				s.NATSServer = m.Version
			}
		}
	}
	s.Version = cmp.Or(s.Version, "(devel)")
	return s
}
