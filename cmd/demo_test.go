package cmd

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// runArgs runs a command line in this process.
func runArgs(t *testing.T, args ...string) (code int, out, errs string) {
	t.Helper()
	var o, e bytes.Buffer
	code = Run(context.Background(), args, Streams{In: strings.NewReader(""), Out: &o, Err: &e}, Build{})
	return code, o.String(), e.String()
}

func TestDemoLosesAStreamAndGetsItBack(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "demo")
	code, out, errs := runArgs(t, "demo", "--dir", dir)
	if code != exitOK {
		t.Fatalf("exit %d: %s\n%s", code, errs, out)
	}
	for _, want := range []string{
		"$ jetkeep backup ORDERS --repo", "$ jetkeep verify ORDERS", "$ nats stream rm ORDERS", "stream not found (10059)",
		"$ jetkeep restore ORDERS", "--dry-run", "286 messages equal", "5 messages whose TTL is over left out",
		"2 consumers where they stood", "the next message got sequence 301",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q isn't in the output:\n%s", want, out)
		}
	}
	// What it leaves to play with works as it says.
	commands := regexp.MustCompile(`(?m)^  jetkeep (.+)$`).FindAllStringSubmatch(out, -1)
	if len(commands) != 2 {
		t.Fatalf("%d commands to play with:\n%s", len(commands), out)
	}
	for _, c := range commands {
		if code, out, errs := runArgs(t, strings.Fields(c[1])...); code != exitOK {
			t.Errorf("jetkeep %s: exit %d: %s%s", c[1], code, out, errs)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "new-server", "jetstream")); err != nil {
		t.Error(err)
	}
}

// TestInterruptedDemoSaysWhereItIs: it's the one verb that leaves something.
func TestInterruptedDemoSaysWhereItIs(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "demo")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(signalError{os.Interrupt})
	var errs bytes.Buffer
	code := Run(ctx, []string{"demo", "--dir", dir}, Streams{In: strings.NewReader(""), Out: io.Discard, Err: &errs}, Build{})
	if code != exitInterrupted || strings.Contains(errs.String(), "nothing is left") || strings.Count(errs.String(), dir) != 1 {
		t.Errorf("exit %d: %s", code, &errs)
	}
}

func TestDemoNeedsAnEmptyDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "mine"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, errs := runArgs(t, "demo", "--dir", dir); code != exitUsage || !strings.Contains(errs, "isn't empty") {
		t.Errorf("exit %d: %s", code, errs)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("something was left: %v", entries)
	}
}
