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

	"github.com/jetkeep/jetkeep/internal/connect"
	"github.com/jetkeep/jetkeep/internal/embedded"
	"github.com/jetkeep/jetkeep/internal/jsapi"
	"github.com/jetkeep/jetkeep/internal/ui"
)

type demoOptions struct{ Dir string }

func (o *demoOptions) AddFlags(f *pflag.FlagSet) {
	f.StringVar(&o.Dir, "dir", "", "`directory` to work in, new or empty (a new one among the temporary files)")
}

func newDemoCommand(a *app) *cobra.Command {
	var o demoOptions
	c := &cobra.Command{
		Use:   "demo [flags]",
		Short: "Lose a stream and get it back, without a server",
		Long: "Show the main job: a server inside this process gets a stream ORDERS, which is\n" +
			"backed up, verified, lost, restored, and compared message by message. Each step is\n" +
			"printed as the command that you would type. The repository is left to play with.",
		Example: "  jetkeep demo\n  jetkeep demo --dir ./demo",
		Args:    exactly(0, "demo takes no argument"),
		RunE:    func(c *cobra.Command, _ []string) error { return runDemo(c.Context(), o, a.p) },
	}
	setHelp(c, []int{exitOK, exitFailed, exitUsage, exitDamaged, exitInterrupted}, addGroup(c, "FLAGS", o.AddFlags))
	return c
}

func runDemo(ctx context.Context, o demoOptions, p *printer) (err error) {
	dir, err := demoDir(o.Dir)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = &demoDirError{dir, err}
		}
	}()
	srv, err := embedded.Start(ctx, embedded.Options{StoreDir: filepath.Join(dir, "store")})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, srv.Stop()) }()
	nc, err := srv.Connect("")
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jsapi.New(nc, jsapi.Options{})
	if err != nil {
		return err
	}
	defer js.Close()
	d := &demo{p: p, dir: dir, repo: filepath.Join(dir, "repo"), srv: srv, js: js}
	if err := d.run(ctx); err != nil {
		return err
	}
	if err := srv.Stop(); err != nil {
		return err
	}
	return d.say("\nThe repository is %s. Play with it:\n"+
		"  jetkeep verify %s --repo %[1]s\n"+
		"  jetkeep restore %[2]s --repo %[1]s --store-dir %[3]s\n"+
		"The second command makes a store directory that a nats-server can be started on.\n",
		shellWord(d.repo), demoStream, shellWord(filepath.Join(dir, "new-server")))
}

// demoDir makes the directory to work in.
func demoDir(dir string) (string, error) {
	if dir == "" {
		return os.MkdirTemp("", "jetkeep-demo-")
	}
	entries, err := os.ReadDir(dir)
	if err == nil && len(entries) > 0 {
		return "", usagef("--dir %s isn't empty", dir)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("--dir: %w", err)
	}
	return filepath.Abs(dir)
}

// demo runs the steps.
type demo struct {
	p         *printer
	dir, repo string
	srv       *embedded.Server
	js        *jsapi.Client
}

// link connects to the demo's server, as a verb does to a real one.
func (d *demo) link() (*link, error) {
	nc, err := d.srv.Connect("")
	if err != nil {
		return nil, err
	}
	return &link{
		Connection: &connect.Connection{NC: nc, Resolved: &connect.Resolved{Server: "a server in this process"}},
		account:    known(embedded.GlobalAccount),
	}, nil
}

func (d *demo) run(ctx context.Context) error {
	if err := d.say("A demonstration in %s. No server is needed: one runs inside this process.\n", d.dir); err != nil {
		return err
	}
	before, err := d.fill(ctx)
	if err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{d.backup, d.verify, d.lose, d.plan, d.restore} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return d.compare(ctx, before)
}

// step prints what comes next.
func (d *demo) step(text, command string) error {
	return d.say("\n# %s\n$ %s\n", text, command)
}

func (d *demo) say(format string, args ...any) error {
	if _, err := fmt.Fprintf(d.p.std.Out, format, args...); err != nil {
		return &outputError{"", err}
	}
	return nil
}

func (d *demo) fill(ctx context.Context) (*demoContents, error) {
	if err := d.step("A stream of orders, as real ones are: headers, TTLs, deleted messages, consumers with work left.", "nats stream info "+demoStream); err != nil {
		return nil, err
	}
	if err := fillDemo(ctx, d.js.Conn()); err != nil {
		return nil, fmt.Errorf("filling the demo's stream: %w", err)
	}
	c, err := readDemo(ctx, d.js)
	if err != nil {
		return nil, err
	}
	return c, d.say("%s", c.describe())
}

func (d *demo) backup(ctx context.Context) error {
	if err := d.step("Back it up.", fmt.Sprintf("jetkeep backup %s --repo %s --init", demoStream, shellWord(d.repo))); err != nil {
		return err
	}
	var o backupOptions
	setDefaults(o.AddFlags)
	o.Repo.path, o.Init = d.repo, true
	dest, err := openDestination(o, d.p)
	if err != nil {
		return err
	}
	l, err := d.link()
	if err != nil {
		return err
	}
	defer l.Close()
	return backupTo(ctx, o, demoStream, nil, l, dest, time.Now(), d.p)
}

func (d *demo) verify(ctx context.Context) error {
	if err := d.step("Is the backup sound, and what is in it?", fmt.Sprintf("jetkeep verify %s --repo %s", demoStream, shellWord(d.repo))); err != nil {
		return err
	}
	return runVerify(ctx, verifyOptions{Repo: repoFlag{d.repo}}, demoStream, d.p)
}

func (d *demo) lose(ctx context.Context) error {
	if err := d.step("The worst day: the stream is gone.", "nats stream rm "+demoStream+" --force"); err != nil {
		return err
	}
	if err := d.js.DeleteStream(ctx, demoStream); err != nil {
		return err
	}
	_, err := d.js.StreamInfo(ctx, demoStream)
	if !jsapi.IsCode(err, jsapi.CodeStreamNotFound) {
		return fmt.Errorf("stream %s is still there: %w", demoStream, err)
	}
	if err := d.say("%v\n", err); err != nil {
		return err
	}
	// Until now every message was alive; meanwhile some TTLs have run out.
	return waitForTTL(ctx)
}

func (d *demo) plan(ctx context.Context) error {
	return d.restoreWith(ctx, "What would a restore do?", " --dry-run", func(o *restoreOptions) { o.DryRun = true })
}

func (d *demo) restore(ctx context.Context) error {
	return d.restoreWith(ctx, "Restore it: loaded out of reach, compared entry by entry, then made live.", " --check full", func(o *restoreOptions) { o.Check = "full" })
}

func (d *demo) restoreWith(ctx context.Context, text, flags string, set func(*restoreOptions)) error {
	if err := d.step(text, fmt.Sprintf("jetkeep restore %s --repo %s%s", demoStream, shellWord(d.repo), flags)); err != nil {
		return err
	}
	var o restoreOptions
	setDefaults(o.AddFlags)
	o.Repo.path = d.repo
	set(&o)
	src, err := openSource(ctx, d.p, demoStream, o.Repo)
	if err != nil {
		return err
	}
	l, err := d.link()
	if err != nil {
		return err
	}
	defer l.Close()
	return restoreFrom(ctx, o, src, l, demoStream, d.p)
}

// compare holds the restored stream against what was lost.
func (d *demo) compare(ctx context.Context, before *demoContents) error {
	if err := d.say("\n# Is it what was lost? Every message, read one by one, and every consumer.\n"); err != nil {
		return err
	}
	after, err := readDemo(ctx, d.js)
	if err != nil {
		return err
	}
	expired, diffs := before.compare(after, time.Now())
	if len(diffs) > 0 {
		return &demoError{diffs}
	}
	next, err := publishNext(ctx, d.js.Conn())
	if err != nil {
		return err
	}
	if want := before.last + 1; next != want {
		return &demoError{[]string{fmt.Sprintf("the next message got sequence %d instead of %d", next, want)}}
	}
	return d.say("%s equal in subject, time, headers and payload; %s whose TTL is over left out, the sequences kept\n"+
		"%s where they stood, with the same messages pending\n"+
		"the next message got sequence %s: no sequence is used twice\n",
		ui.Plural(len(after.messages), "message"), ui.Plural(expired, "message"),
		ui.Plural(len(after.consumers), "consumer"), ui.Count(next))
}

// demoError says that the restored stream isn't the lost one.
type demoError struct{ diffs []string }

func (e *demoError) Error() string {
	return "the restored stream differs: " + strings.Join(e.diffs, "; ")
}

// demoDirError says that a demonstration failed, and where it left what it made.
type demoDirError struct {
	dir string
	err error
}

func (e *demoDirError) Error() string   { return fmt.Sprintf("%v; %s", e.err, e.remains()) }
func (e *demoDirError) Unwrap() error   { return e.err }
func (e *demoDirError) remains() string { return "the demonstration's directory stays: " + e.dir }

// setDefaults sets a verb's options to what they are without any flag.
func setDefaults(add func(*pflag.FlagSet)) {
	add(pflag.NewFlagSet("", pflag.ContinueOnError))
}

// shellWord quotes a path for a shell where it needs it.
func shellWord(s string) string {
	if strings.ContainsAny(s, " \t\n'\"$`\\&;|<>()*?[]#~=%!{}") {
		return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
	}
	return s
}
