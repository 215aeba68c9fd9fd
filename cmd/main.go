package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Streams are the standard streams. A terminal is one that is an *os.File.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// Main runs the process's own command line and returns its exit code.
func Main(b Build) int {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(50) // most of the heap is buffers, which cost little to collect
	}
	ctx, stop := withSignals(context.Background(), os.Exit)
	defer stop()
	return Run(ctx, os.Args[1:], Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}, b)
}

// Run runs a command line and returns the exit code. When ctx is cancelled it
// cleans up, and returns early.
func Run(ctx context.Context, args []string, std Streams, b Build) int {
	p := &printer{std: std, json: wantsJSON(args)}
	root := newRootCommand(&app{p: p, build: b})
	root.SetArgs(args)
	root.SetIn(std.In)
	out := &watchedWriter{w: std.Out} // for help texts
	root.SetOut(out)
	root.SetErr(std.Err)
	err := root.ExecuteContext(ctx)
	if err == nil && out.err != nil {
		err = &outputError{err: out.err}
	}
	if err == nil {
		return exitOK
	}
	if cause := context.Cause(ctx); cause != nil && !leftBehind(err) {
		err = fmt.Errorf("%w: %w%s", errInterrupted, interruption(cause, err), remainder(err))
	}
	p.fail(err)
	return exitCode(err)
}

// remainder says what an interrupted run has left.
func remainder(err error) string {
	switch e, ok := errors.AsType[*demoDirError](err); {
	case ok:
		return "; " + e.remains()
	case is[*outputError](err): // it was done
		return ""
	}
	return "; nothing is left behind"
}

// interruption says what was interrupted, and by what.
func interruption(cause, err error) error {
	if e, ok := errors.AsType[*demoDirError](err); ok {
		err = e.err
	}
	switch {
	case errors.Is(err, cause): // with the verb and the stream around it
		return err
	case errors.Is(err, context.Canceled):
		return cause
	}
	return fmt.Errorf("%w (%w)", cause, err)
}

// errInterrupted marks what was ended by a signal.
var errInterrupted = errors.New("interrupted")

// withSignals returns a context that SIGINT, SIGTERM and SIGHUP cancel; a SIGHUP
// that was ignored from the start, as under nohup, stays so. A second signal ends
// the process at once. A broken pipe shall be an error of the write, not
// the end of the process before it has cleaned up.
func withSignals(parent context.Context, exit func(int)) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) {
		signal.Notify(signals, syscall.SIGHUP)
	}
	pipe := make(chan os.Signal, 1)
	signal.Notify(pipe, syscall.SIGPIPE)
	done := make(chan struct{})
	go func() {
		for n := 0; ; n++ {
			select {
			case <-done:
				return
			case s := <-signals:
				if n > 0 {
					fmt.Fprintln(os.Stderr, "jetkeep: interrupted again, ending at once: what has not been cleaned up stays")
					exit(exitInterrupted)
				}
				cancel(signalError{s})
			}
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(done)
		cancel(nil)
	}
}

// signalError names the signal that ended a run. It is a cancellation.
type signalError struct{ signal os.Signal }

func (e signalError) Error() string { return "signal " + e.signal.String() }
func (e signalError) Unwrap() error { return context.Canceled }

// app is what every command needs.
type app struct {
	p     *printer
	build Build
}

func newRootCommand(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "jetkeep",
		Short: "Back up NATS JetStream streams and restore them",
		Long: "jetkeep backs up NATS JetStream streams, verifies the backups, and restores them.\n\n" +
			"Backups live in a repository, a directory that `jetkeep init` makes, or each in a\n" +
			"directory of its own. Every backup is checked while it is taken.",
		SilenceUsage:  true,
		SilenceErrors: true,
		// A variable that a script forgot to set would otherwise pass for a flag
		// that wasn't given.
		PersistentPreRunE: func(c *cobra.Command, _ []string) (err error) {
			c.Flags().Visit(func(f *pflag.Flag) {
				if err == nil && f.Value.Type() == "string" && f.Value.String() == "" {
					err = usagef("--%s is empty", f.Name)
				}
			})
			return err
		},
		Args: noSuchVerb,
		RunE: func(c *cobra.Command, _ []string) error {
			c.SetOut(a.p.std.Err)
			_ = c.Help()
			return usagef("name a verb")
		},
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return usagef("%w (see `%s --help`)", err, c.CommandPath())
	})
	verbs := []*cobra.Command{
		newInitCommand(a), newBackupCommand(a), newVerifyCommand(a), newRestoreCommand(a), newDemoCommand(a), newVersionCommand(a),
	}
	root.AddCommand(verbs...)
	setRootHelp(root)
	return root
}

// noSuchVerb takes no argument; what is one is a mistyped verb.
func noSuchVerb(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	c.SuggestionsMinimumDistance = 2
	if s := c.SuggestionsFor(args[0]); len(s) > 0 {
		return usagef("there is no verb %q; did you mean %q?", args[0], s[0])
	}
	return usagef("there is no verb %q (see `jetkeep --help`)", args[0])
}
