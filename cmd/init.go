package cmd

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/jetkeep/jetkeep/backup/repo"
)

type initOptions struct{ Repo repoFlag }

func (o *initOptions) AddFlags(f *pflag.FlagSet) {
	o.Repo.AddFlags(f)
	jsonFlag(f)
}

func newInitCommand(a *app) *cobra.Command {
	var o initOptions
	c := &cobra.Command{
		Use:   "init [flags]",
		Short: "Make a repository",
		Long: "Make a repository, in which backups are kept. Other verbs refuse a directory that\n" +
			"isn't one, so that a mistyped path or a disk that isn't mounted can't pass for an\n" +
			"empty repository.",
		Example: "  jetkeep init --repo /backups",
		Args:    exactly(0, "init takes no argument: name the repository with --repo"),
		RunE:    func(*cobra.Command, []string) error { return runInit(o, a.p) },
	}
	setHelp(c, []int{exitOK, exitFailed, exitUsage, exitInterrupted}, addGroup(c, "FLAGS", o.AddFlags))
	return c
}

// initSummary is the result of init.
type initSummary struct {
	MessageType string `json:"message_type"` // "summary"
	Repository  string `json:"repository"`
	ID          string `json:"repository_id"`
}

func runInit(o initOptions, p *printer) error {
	path, err := repositoryPath(o.Repo, "")
	if err != nil {
		return err
	}
	r, err := repo.InitDir(path)
	if errors.Is(err, repo.ErrExists) {
		return usagef("%w; it can be used as it is", err)
	}
	if err != nil {
		return err
	}
	s := initSummary{"summary", r.Location(), r.ID()}
	return p.result(s, func(w io.Writer) {
		fmt.Fprintf(w, "made repository %s (id %s)\n", s.Repository, s.ID)
	}, "the repository was made")
}

// exactly takes n arguments, and says what to do otherwise.
func exactly(n int, text string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) != n {
			return usagef("%s (see `%s --help`)", text, c.CommandPath())
		}
		return nil
	}
}
