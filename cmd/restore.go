package cmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/jetkeep/jetkeep/format"
	"github.com/jetkeep/jetkeep/internal/connect"
	"github.com/jetkeep/jetkeep/internal/ui"
	"github.com/jetkeep/jetkeep/restore"
)

type restoreOptions struct {
	Repo       repoFlag
	DryRun     bool
	ConfigFile string
	Check      string
	ChunkSize  sizeValue
	WindowSize sizeValue
	Engine     restore.Options // what the flags set directly
	Connection connect.Settings
	// SystemContext is a NATS context of the system account.
	SystemContext string
	Store         storeFlags
	// ReplicasGiven tells --replicas 0 from none.
	ReplicasGiven bool
}

func (o *restoreOptions) AddFlags(f *pflag.FlagSet) {
	o.Repo.AddFlags(f)
	f.BoolVarP(&o.DryRun, "dry-run", "n", false, "make the plan, print it, and touch nothing")
	f.StringVar(&o.Engine.As, "as", "", "restore under another `name`; a KV bucket's or object store's subjects move with it")
	f.StringVar(&o.ConfigFile, "config", "", "a JSON `file` with the stream configuration to use instead of the backup's")
	f.StringSliceVar(&o.Engine.Subjects, "subjects", nil, "`subjects` to listen on instead of the configuration's")
	f.IntVar(&o.Engine.Replicas, "replicas", 0, "number of replicas instead of the configuration's")
	f.StringVar(&o.Engine.PlacementCluster, "placement-cluster", "", "place the stream in this `cluster`")
	f.StringSliceVar(&o.Engine.PlacementTags, "placement-tag", nil, "place the stream on servers with this `tag` (repeatable; an empty one removes the placement)")
	f.StringVar(&o.Engine.Storage, "storage", "", "file or memory, instead of the configuration's")
	f.BoolVar(&o.Engine.NoConsumers, "no-consumers", false, "leave the consumers out")
	f.BoolVar(&o.Engine.AcceptLoss, "accept-loss", false, "go on although the target's limits will remove messages")
	f.BoolVar(&o.Engine.KeepFailed, "keep-failed", false, "keep the staged stream when the restore fails")
	f.StringVar(&o.Check, "check", "state", "what is compared before the stream goes live: `state or full`")
	o.ChunkSize, o.WindowSize = 256<<10, 8<<20
	f.Var(&o.ChunkSize, "chunk-size", "bytes to send at once")
	f.Var(&o.WindowSize, "window-size", "bytes on their way that aren't acknowledged yet")
	f.DurationVar(&o.Engine.IdleTimeout, "idle-timeout", 30*time.Second, "fail when either side is silent for so long")
	f.DurationVar(&o.Engine.FinishTimeout, "finish-timeout", 15*time.Minute, "give the server so long after the last byte, and its replicas to catch up")
	f.StringVar(&o.SystemContext, "system-context", "", "NATS `context` of the system account, which shows the servers' versions, tags and room")
	o.Store.AddFlags(f)
	f.StringVar(&o.Store.Cipher, "store-cipher", "", "`chachapoly or aes`, for a store directory whose first stream this is")
	jsonFlag(f)
}

func newRestoreCommand(a *app) *cobra.Command {
	var o restoreOptions
	c := &cobra.Command{
		Use:   "restore STREAM[@ID] | DIR | - [flags]",
		Short: "Restore a stream from a backup",
		Long: "Restore one stream, whole or not at all.\n\n" +
			"First a plan is made, with every check that can be made beforehand; --dry-run prints\n" +
			"it and stops. Then the stream is loaded out of everyone's reach, compared with the\n" +
			"backup, and made live in one step. A restore that fails or is interrupted leaves\n" +
			"nothing behind. Stop applications first that create or update the stream when they\n" +
			"start: they could take a staged stream over.\n\n" +
			"The backup is named as for verify; - reads the tar that `backup -o -` writes.\n\n" +
			"--store-dir restores into the directory of a nats-server that doesn't run; one that\n" +
			"doesn't exist is made. A server can be started on it afterwards. What opening the\n" +
			"directory does to the account's other streams is what starting a server on it would\n" +
			"do: expired messages go, mirrors and sources within the account catch up. Only\n" +
			"--dry-run works on a copy. Limits that the server's configuration sets for the\n" +
			"account aren't known. A node of a cluster has to be restored to over a connection.",
		Example: "  jetkeep restore ORDERS --repo /backups --dry-run\n" +
			"  jetkeep restore ORDERS --repo /backups\n" +
			"  jetkeep restore ORDERS --repo /backups --as ORDERS_COPY --check full\n" +
			"  jetkeep restore ./orders-before-upgrade --replicas 1\n" +
			"  jetkeep restore ORDERS --repo /backups --store-dir /var/lib/nats",
		Args: exactly(1, "restore takes one backup: a stream, a directory or -"),
		RunE: func(c *cobra.Command, args []string) error {
			o.ReplicasGiven = c.Flags().Changed("replicas")
			return runRestore(c.Context(), o, args[0], a.p)
		},
	}
	setHelp(c, []int{exitOK, exitFailed, exitUsage, exitNotFound, exitLocked, exitDamaged, exitRefused, exitConnection, exitTransfer, exitLeftBehind, exitInterrupted},
		addGroup(c, "FLAGS", o.AddFlags), o.Store.rival(addGroup(c, "CONNECTION", o.Connection.AddFlags)))
	return c
}

// check refuses what contradicts itself.
func (o *restoreOptions) check() error {
	e := &o.Engine
	switch {
	case o.Check != "state" && o.Check != "full":
		return usagef("--check %q is neither state nor full", o.Check)
	case e.Storage != "" && e.Storage != "file" && e.Storage != "memory":
		return usagef("--storage %q is neither file nor memory", e.Storage)
	case (o.ReplicasGiven || e.Replicas != 0) && (e.Replicas < 1 || e.Replicas > 5):
		return usagef("--replicas %d isn't between 1 and 5", e.Replicas)
	case e.As != "" && !validStream(e.As):
		return usagef("--as %q can't be the name of a stream", e.As)
	case o.ChunkSize < 1<<10 || o.ChunkSize > 64<<20:
		return usagef("--chunk-size %s isn't between 1KiB and 64MiB", &o.ChunkSize)
	case o.WindowSize < o.ChunkSize || o.WindowSize > 1<<30:
		return usagef("--window-size %s isn't between the chunk size, %s, and 1GiB", &o.WindowSize, &o.ChunkSize)
	case e.IdleTimeout < time.Second:
		return usagef("--idle-timeout %v is below a second", e.IdleTimeout)
	case e.FinishTimeout < time.Second:
		return usagef("--finish-timeout %v is below a second", e.FinishTimeout)
	case o.SystemContext != "" && o.Store.Dir != "":
		return usagef("--system-context is about servers, and --store-dir works without one: give one of them")
	}
	return o.Store.check()
}

// engine returns the engine's options.
func (o *restoreOptions) engine(l *link) (restore.Options, error) {
	e := o.Engine
	e.Domain, e.APIPrefix, e.RequestTimeout = l.JS.Domain, l.JS.Prefix, l.JS.Timeout
	// The plan asks for the account by itself.
	t := target{Server: l.Resolved.Server, StoreDir: l.StoreDir}
	e.Server, e.Context = t.where(), l.Resolved.Context
	e.FullCheck = o.Check == "full"
	e.ChunkSize, e.WindowSize = int(o.ChunkSize), int(o.WindowSize)
	if o.ConfigFile == "" {
		return e, nil
	}
	data, err := os.ReadFile(o.ConfigFile)
	if err != nil {
		return e, usagef("--config: %w", err)
	}
	cfg, err := format.ParseObject(data)
	if err != nil {
		return e, usagef("--config %s: %w", o.ConfigFile, err)
	}
	// A whole stream info, as `nats stream info --json` prints it, will do too.
	if nested := cfg.Raw("config"); nested != nil && !cfg.Has("subjects") && !cfg.Has("storage") {
		if cfg, err = format.ParseObject(nested); err != nil {
			return e, usagef("--config %s: %w", o.ConfigFile, err)
		}
	}
	e.Config = &cfg
	return e, nil
}

func runRestore(ctx context.Context, o restoreOptions, arg string, p *printer) (err error) {
	if err := o.check(); err != nil {
		return err
	}
	src, err := openSource(ctx, p, arg, o.Repo)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(src.explain(err), src.Close()) }()
	l, stream, err := o.open(ctx, src, p)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	if o.SystemContext != "" {
		system, err := connect.ConnectContext(ctx, o.SystemContext, "jetkeep restore")
		if err != nil {
			return fmt.Errorf("--system-context: %w", err)
		}
		defer system.Close()
		o.Engine.System = system.NC
	}
	return restoreFrom(ctx, o, src, l, stream, p)
}

// restoreFrom makes the plan, carries it out, and prints what became of it. A
// dry run prints the plan, and ends as the restore would if that were refused.
func restoreFrom(ctx context.Context, o restoreOptions, src *source, l *link, stream string, p *printer) error {
	engine, err := o.engine(l)
	if err != nil {
		return err
	}
	start := time.Now()
	plan, res, err := restoreSource(ctx, engine, src, l, stream, o.DryRun, p)
	if err != nil {
		err = explainRestore(err, l)
	}
	if err := l.end(stream, o.DryRun, err); err != nil {
		return err
	}
	if !o.DryRun {
		return printRestore(p, newRestoreSummary(plan, res, l, time.Since(start)))
	}
	if err := printPlan(p, plan); err != nil {
		return err
	}
	if bad := plan.Refusals(); len(bad) > 0 {
		return explainRestore(&restore.Refused{Stream: plan.Target.Stream, Findings: bad}, l)
	}
	return nil
}

// open opens what is restored to, a server or a store directory, and returns the
// name that the stream will have.
func (o *restoreOptions) open(ctx context.Context, src *source, p *printer) (*link, string, error) {
	stream := o.Engine.As
	if stream == "" {
		file, err := src.BackupFile(ctx)
		if err != nil {
			return nil, "", err
		}
		stream = file.StreamName()
	}
	var l *link
	var err error
	if o.Store.Dir != "" {
		l, err = openStoreTarget(ctx, *o, stream, p)
	} else {
		l, err = openLink(ctx, o.Connection, "restore")
	}
	return l, stream, err
}

// noteWaiting returns what notes once what a restore has been waiting for longer
// than is usual.
func noteWaiting(bar *ui.Progress) func(restore.Progress) {
	var since time.Time
	var said string
	return func(s restore.Progress) {
		switch {
		case s.Waiting == "":
			since = time.Time{}
		case since.IsZero():
			since = time.Now()
		case time.Since(since) > 3*time.Second && s.Waiting != said:
			said = s.Waiting
			bar.Note(string(s.Phase), "still waiting: %s", said)
		}
	}
}

// restoreSource makes the plan and, unless it's a dry run, carries it out, with
// progress.
func restoreSource(ctx context.Context, engine restore.Options, src *source, l *link, stream string, dryRun bool, p *printer) (*restore.Plan, *restore.Result, error) {
	bar := p.progress(stream)
	defer func() { bar.Done() }()
	waiting := noteWaiting(bar)
	engine.Progress = func(s restore.Progress) {
		bar.Update(ui.Status{Phase: string(s.Phase), Bytes: s.Bytes, TotalBytes: s.Total, Messages: s.Messages})
		waiting(s)
	}
	plan, err := restore.Prepare(ctx, l.NC, src.Backup, engine)
	if err != nil || dryRun {
		return plan, nil, err
	}
	bar.Done()
	for _, f := range plan.Findings {
		if f.Level == restore.Warning {
			p.warn("%s", f.Text)
		}
	}
	bar = p.progress(stream)
	waiting = noteWaiting(bar)
	res, err := restore.Run(ctx, l.NC, plan)
	return plan, res, err
}

// explainRestore adds where it failed.
func explainRestore(err error, l *link) error {
	return fmt.Errorf("%w (%s)", err, l.at())
}
