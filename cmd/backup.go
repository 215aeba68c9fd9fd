package cmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/jetkeep/jetkeep/backup"
	"github.com/jetkeep/jetkeep/backup/repo"
	"github.com/jetkeep/jetkeep/internal/connect"
	"github.com/jetkeep/jetkeep/internal/jsapi"
	"github.com/jetkeep/jetkeep/internal/tarfile"
	"github.com/jetkeep/jetkeep/internal/ui"
)

type backupOptions struct {
	Repo        repoFlag
	Output      string
	Init        bool
	NoConsumers bool
	ChunkSize   sizeValue
	WindowSize  sizeValue
	QueueSize   sizeValue
	Retries     int
	IdleTimeout time.Duration
	AcceptLoss  bool
	Connection  connect.Settings
	Store       storeFlags
	Version     string
}

func (o *backupOptions) AddFlags(f *pflag.FlagSet) {
	o.Repo.AddFlags(f)
	f.BoolVar(&o.Init, "init", false, "make the repository when it isn't there")
	f.StringVarP(&o.Output, "output", "o", "", "write a plain backup `directory`, or a tar to standard output with -")
	f.BoolVar(&o.NoConsumers, "no-consumers", false, "leave the consumers out")
	o.ChunkSize, o.QueueSize = 128<<10, 32<<20
	f.Var(&o.ChunkSize, "chunk-size", "bytes that the server sends at once")
	f.Var(&o.WindowSize, "window-size", "bytes on their way that aren't acknowledged yet (0: 8MiB, or 16MiB over a long line)")
	f.Var(&o.QueueSize, "queue-size", "bytes to hold in memory while the disk stalls")
	f.IntVar(&o.Retries, "retries", 5, "repeat a failed attempt so often; 0 for never")
	f.DurationVar(&o.IdleTimeout, "idle-timeout", 30*time.Second, "end an attempt when nothing arrives for so long")
	o.Store.AddFlags(f)
	f.BoolVar(&o.AcceptLoss, "accept-loss", false, "back up what can be read of a damaged stream in a store directory")
	jsonFlag(f)
}

func newBackupCommand(a *app) *cobra.Command {
	var o backupOptions
	c := &cobra.Command{
		Use:   "backup STREAM [flags]",
		Short: "Back up a stream",
		Long: "Back up one stream, with its configuration, messages and consumers.\n\n" +
			"The backup is checked while it arrives, and exists only once it is whole and sound;\n" +
			"a run that fails or is interrupted leaves nothing behind. It goes into a repository\n" +
			"(--repo), into a directory of its own (-o DIR, which `nats backup restore\n" +
			"stream` reads, too), or to standard output as a tar (-o -).\n\n" +
			"--store-dir backs up out of the directory of a nats-server that doesn't run. It works\n" +
			"on a copy of the stream's files in the directory for temporary files ($TMPDIR), which\n" +
			"needs as much room; the original is only read. Messages whose time is over are in the\n" +
			"backup, too. What is in memory only isn't: memory streams, and consumers that keep\n" +
			"their state in memory.",
		Example: "  jetkeep backup ORDERS --repo /backups\n" +
			"  jetkeep backup ORDERS --repo /backups --init --context prod\n" +
			"  jetkeep backup ORDERS -o ./orders-before-upgrade\n" +
			"  jetkeep backup ORDERS -o - | ssh vault 'cat > orders.tar'\n" +
			"  jetkeep backup ORDERS --repo /backups --store-dir /var/lib/nats --account SHOP",
		Args: exactly(1, "backup takes the name of one stream"),
		RunE: func(c *cobra.Command, args []string) error {
			o.Version = describe(a.build).Version
			return runBackup(c.Context(), o, args[0], a.p)
		},
	}
	setHelp(c, []int{exitOK, exitFailed, exitUsage, exitNotFound, exitLocked, exitDamaged, exitConnection, exitTransfer, exitLeftBehind, exitInterrupted},
		addGroup(c, "FLAGS", o.AddFlags), o.Store.rival(addGroup(c, "CONNECTION", o.Connection.AddFlags)))
	return c
}

// validStream reports whether a stream can have a name.
func validStream(name string) bool {
	return name != "" && !strings.ContainsAny(name, " \t\r\n.*>/\\\x00")
}

// check refuses what contradicts itself.
func (o *backupOptions) check(stream string) error {
	switch {
	case !validStream(stream):
		return usagef("%q can't be the name of a stream", stream)
	case o.Output != "" && o.Repo.path != "":
		return usagef("--repo and -o are two destinations: give one of them")
	case o.Output != "" && o.Init:
		return usagef("--init makes a repository, and -o writes outside of any: give one of them")
	case o.ChunkSize < 1<<10 || o.ChunkSize > 64<<20:
		return usagef("--chunk-size %s isn't between 1KiB and 64MiB", &o.ChunkSize)
	case o.WindowSize != 0 && o.WindowSize < o.ChunkSize || o.WindowSize > 1<<30:
		return usagef("--window-size %s isn't between the chunk size, %s, and 1GiB", &o.WindowSize, &o.ChunkSize)
	case o.QueueSize < max(o.WindowSize, 8<<20):
		return usagef("--queue-size %s is below the window size, or 8MiB", &o.QueueSize)
	case o.Retries < 0:
		return usagef("--retries %d is negative", o.Retries)
	case o.IdleTimeout < time.Second:
		return usagef("--idle-timeout %v is below a second", o.IdleTimeout)
	case o.AcceptLoss && o.Store.Dir == "":
		return usagef("--accept-loss is for --store-dir, which isn't given")
	}
	return o.Store.check()
}

func runBackup(ctx context.Context, o backupOptions, stream string, p *printer) (err error) {
	if err := o.check(stream); err != nil {
		return err
	}
	d, err := openDestination(o, p)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cleanedUp(d.cleanup())) }()
	start := time.Now()
	l, original, err := o.open(ctx, stream, p)
	if err != nil {
		return &streamError{stream, err}
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	return backupTo(ctx, o, stream, original, l, d, start, p)
}

// backupTo takes the backup and prints what became of it.
func backupTo(ctx context.Context, o backupOptions, stream string, original *backup.Original, l *link, d *destination, start time.Time, p *printer) error {
	res, err := takeBackup(ctx, o, stream, original, l, d, p)
	if err != nil {
		return &streamError{stream, explainBackup(err, stream, l)}
	}
	if d.tar {
		if err := tarfile.Pack(ctx, p.std.Out, d.dir); err != nil {
			return &streamError{stream, fmt.Errorf("stream %q: %w", stream, err)}
		}
	}
	if n := len(res.Manifest.MissingConsumers); n > 0 {
		p.warn("%s of stream %q not in the backup: %s (the server listed them and left them out)",
			ui.Plural(n, "consumer"), stream, strings.Join(res.Manifest.MissingConsumers, ", "))
	}
	return printBackup(p, newBackupSummary(res, d, l, time.Since(start)))
}

// open opens what is backed up from: a server, or a copy out of a store
// directory, which comes with what the original is.
func (o *backupOptions) open(ctx context.Context, stream string, p *printer) (*link, *backup.Original, error) {
	if o.Store.Dir != "" {
		return openStoreCopy(ctx, *o, stream, p)
	}
	l, err := openLink(ctx, o.Connection, "backup")
	return l, nil, err
}

// takeBackup runs the engine with progress.
func takeBackup(ctx context.Context, o backupOptions, stream string, original *backup.Original, l *link, d *destination, p *printer) (*backup.Result, error) {
	bar := p.progress(stream)
	defer bar.Done()
	retries := o.Retries
	if retries == 0 {
		retries = backup.NoRetries
	}
	return backup.Take(ctx, l.NC, d.begin, backup.Options{
		Stream: stream, Domain: l.JS.Domain, APIPrefix: l.JS.Prefix, RequestTimeout: l.JS.Timeout,
		NoConsumers: o.NoConsumers, ChunkSize: int(o.ChunkSize), WindowSize: int(o.WindowSize), QueueSize: int64(o.QueueSize),
		IdleTimeout: o.IdleTimeout, Retries: retries,
		Context: l.Resolved.Context, Account: l.account, Version: o.Version, Original: original,
		Progress: func(s backup.Progress) {
			bar.Update(ui.Status{Phase: "backup", Bytes: s.RawBytes, TotalBytes: s.Total, Messages: s.Messages})
		},
		Retrying: func(n int, err error, wait time.Duration) {
			bar.Note("retry", "attempt %d on stream %q failed, the next in %s: %s", n, stream, ui.Duration(wait), oneLine(err))
		},
	})
}

// explainBackup adds where it failed and what to do.
func explainBackup(err error, stream string, l *link) error {
	if l.StoreDir != "" {
		return explainStoreBackup(err, stream, l)
	}
	if jsapi.IsCode(err, jsapi.CodeStreamNotFound) {
		return fmt.Errorf("%w on %s: check the name (`nats stream ls` lists them), the account and the JetStream domain", err, l)
	}
	if is[*jsapi.Error](err) || is[*backup.TransferError](err) || isUnreachable(err) {
		return fmt.Errorf("%w (server %s)", err, l)
	}
	return err
}

// destination is where a backup goes.
type destination struct {
	repository *repo.Repository // nil outside of one, and before --init has made it
	dir        string           // of a plain backup
	tar        bool
	begin      backup.Destination
	cleanup    func() error
	cleaned    []string // ids of abandoned backups that were removed
}

// openDestination finds out early what can't work, and makes nothing yet but a
// temporary directory.
func openDestination(o backupOptions, p *printer) (*destination, error) {
	d := &destination{cleanup: func() error { return nil }}
	switch o.Output {
	case "":
		return d, d.openRepository(o)
	case "-":
		return d, d.openSpool(p)
	}
	d.dir = o.Output
	d.begin = d.beginPlain
	parent := filepath.Dir(filepath.Clean(o.Output))
	if fi, err := os.Stat(parent); err != nil || !fi.IsDir() {
		return nil, usagef("-o %s: there is no directory %s to make it in", o.Output, parent)
	}
	return d, nil
}

func (d *destination) openRepository(o backupOptions) error {
	path, err := repositoryPath(o.Repo, "")
	if err != nil {
		if o.Repo.value() == "" {
			return usagef("no destination is named: give --repo (or set JETKEEP_REPO) or -o")
		}
		return err
	}
	r, err := repo.OpenDir(path)
	if errors.Is(err, repo.ErrNoRepository) && o.Init {
		err = nil
	}
	if err != nil {
		return err
	}
	d.repository = r
	d.begin = func(ctx context.Context, stream string, start time.Time) (repo.Writer, error) {
		if d.repository == nil {
			if d.repository, err = initOrOpen(path); err != nil {
				return nil, err
			}
		}
		w, err := backup.To(d.repository)(ctx, stream, start)
		if p, ok := w.(*repo.Pending); ok {
			d.cleaned, _ = p.Cleaned() // what couldn't be removed is tried again next time
		}
		return w, err
	}
	return nil
}

// initOrOpen makes a repository, unless another run has just done so.
func initOrOpen(path string) (*repo.Repository, error) {
	r, err := repo.InitDir(path)
	if errors.Is(err, repo.ErrExists) {
		return repo.OpenDir(path)
	}
	return r, err
}

// openSpool prepares for a tar, for which the backup has to be complete first.
func (d *destination) openSpool(p *printer) error {
	if ui.IsTerminal(p.std.Out) {
		return usagef("standard output is a terminal: -o - writes a tar, for a pipe or a file")
	}
	tmp, err := os.MkdirTemp("", "jetkeep-")
	if err != nil {
		return fmt.Errorf("spool the backup: %w", err)
	}
	p.taken = true
	d.tar, d.dir = true, filepath.Join(tmp, "backup")
	d.begin = d.beginPlain
	d.cleanup = func() error { return os.RemoveAll(tmp) }
	return nil
}

// beginPlain begins a backup in a directory of its own, which must be vacant.
func (d *destination) beginPlain(ctx context.Context, stream string, start time.Time) (repo.Writer, error) {
	w, err := backup.ToDir(d.dir)(ctx, stream, start)
	if errors.Is(err, repo.ErrExists) {
		return nil, usagef("-o %w", err)
	}
	return w, err
}
