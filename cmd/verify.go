package cmd

import (
	"context"
	"errors"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/jetkeep/jetkeep/internal/ui"
	"github.com/jetkeep/jetkeep/verify"
)

type verifyOptions struct{ Repo repoFlag }

func (o *verifyOptions) AddFlags(f *pflag.FlagSet) {
	o.Repo.AddFlags(f)
	jsonFlag(f)
}

func newVerifyCommand(a *app) *cobra.Command {
	var o verifyOptions
	c := &cobra.Command{
		Use:   "verify STREAM[@ID] | DIR | - [flags]",
		Short: "Check a backup and say what it holds",
		Long: "Check that a backup is sound: that every block and entry of the archive is whole and\n" +
			"in order, and that archive, backup.json and manifest belong together. Then say what\n" +
			"it holds, or where the damage is. No server is needed.\n\n" +
			"STREAM is the latest backup of a stream in the repository, STREAM@ID another one.\n" +
			"An argument with a slash, or one that starts with a dot, is a directory, also one\n" +
			"that the nats CLI wrote; - is a tar on standard input.",
		Example: "  jetkeep verify ORDERS --repo /backups\n" +
			"  jetkeep verify ORDERS@20261130T155200.123Z-1a2b3c --repo /backups\n" +
			"  jetkeep verify ./orders-before-upgrade --json\n" +
			"  ssh vault cat orders.tar | jetkeep verify -",
		Args: exactly(1, "verify takes one backup: a stream, a directory or -"),
		RunE: func(c *cobra.Command, args []string) error { return runVerify(c.Context(), o, args[0], a.p) },
	}
	setHelp(c, []int{exitOK, exitFailed, exitUsage, exitNotFound, exitDamaged, exitInterrupted}, addGroup(c, "FLAGS", o.AddFlags))
	return c
}

func runVerify(ctx context.Context, o verifyOptions, arg string, p *printer) (err error) {
	src, err := openSource(ctx, p, arg, o.Repo)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(src.explain(err), src.Close()) }()
	r, err := checkSource(ctx, src, p)
	if err != nil {
		return err
	}
	r.Location = jsonLocation(r.Location)
	return printReport(p, r, src.Name)
}

// checkSource runs the engine with progress.
func checkSource(ctx context.Context, src *source, p *printer) (*verify.Report, error) {
	name := src.Name
	if src.Manifest != nil {
		name = src.Manifest.Stream
	}
	bar := p.progress(name)
	defer bar.Done()
	return verify.Options{Progress: func(s verify.Progress) {
		bar.Update(ui.Status{Phase: "verify", Bytes: s.Bytes, TotalBytes: s.Total, Messages: s.Messages})
	}}.Check(ctx, src.Backup)
}
