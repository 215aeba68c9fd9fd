package cmd

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/jetkeep/jetkeep/internal/ui"
)

// flagGroup is a set of flags under a heading of its own in the help.
type flagGroup struct {
	title string
	flags *pflag.FlagSet
}

// addGroup adds flags to a command and returns them as a group for setHelp.
func addGroup(c *cobra.Command, title string, add func(*pflag.FlagSet)) flagGroup {
	g := flagGroup{title, pflag.NewFlagSet(title, pflag.ContinueOnError)}
	g.flags.SortFlags = false
	add(g.flags)
	c.Flags().AddFlagSet(g.flags)
	return g
}

// setHelp gives a verb its help: what it does, how, with which flags, and what
// the exit status means.
func setHelp(c *cobra.Command, codes []int, groups ...flagGroup) {
	c.SetHelpFunc(func(c *cobra.Command, _ []string) {
		w := c.OutOrStdout()
		var b strings.Builder
		fmt.Fprintf(&b, "%s\n\nUSAGE\n  %s\n", strings.TrimSpace(c.Long), c.UseLine())
		for _, g := range groups {
			fmt.Fprintf(&b, "\n%s\n%s", g.title, g.flags.FlagUsagesWrapped(helpWidth(w)))
		}
		fmt.Fprintf(&b, "\nEXAMPLES\n%s\n", c.Example)
		fmt.Fprintf(&b, "\nEXIT STATUS\n%s", exitStatus(codes))
		_, _ = io.WriteString(w, b.String())
	})
}

func setRootHelp(root *cobra.Command) {
	root.SetHelpFunc(func(c *cobra.Command, _ []string) {
		var b strings.Builder
		fmt.Fprintf(&b, "%s\n\nUSAGE\n  jetkeep VERB [flags]\n\nVERBS\n", c.Long)
		for _, v := range root.Commands() {
			if v.IsAvailableCommand() && v.Name() != "help" {
				fmt.Fprintf(&b, "  %-10s %s\n", v.Name(), v.Short)
			}
		}
		b.WriteString("\nENVIRONMENT\n" +
			"  JETKEEP_REPO      the repository, in place of --repo\n" +
			"  NATS_URL, NATS_CREDS, NATS_CONTEXT, …  as for the nats CLI\n" +
			"  NO_COLOR          no progress bar on terminals\n" +
			"\n`jetkeep VERB --help` says more about each.\n")
		_, _ = io.WriteString(c.OutOrStdout(), b.String())
	})
}

func helpWidth(w io.Writer) int {
	if watched, ok := w.(*watchedWriter); ok {
		w = watched.w
	}
	return max(40, min(100, ui.Width(w)))
}

// watchedWriter keeps the first error, which cobra's help has no way to return.
type watchedWriter struct {
	w   io.Writer
	err error
}

func (w *watchedWriter) Write(p []byte) (int, error) {
	n, err := w.w.Write(p)
	if w.err == nil {
		w.err = err
	}
	return n, err
}
