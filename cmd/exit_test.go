package cmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/jetkeep/jetkeep/backup"
	"github.com/jetkeep/jetkeep/backup/repo"
	"github.com/jetkeep/jetkeep/format"
	"github.com/jetkeep/jetkeep/internal/connect"
	"github.com/jetkeep/jetkeep/internal/jsapi"
	"github.com/jetkeep/jetkeep/internal/tarfile"
	"github.com/jetkeep/jetkeep/restore"
	"github.com/jetkeep/jetkeep/verify"
)

func TestExitCode(t *testing.T) {
	damage := &format.DamageError{Err: format.ErrCorrupt, Reason: "x"}
	notFound := &jsapi.Error{Code: 404, ErrCode: jsapi.CodeStreamNotFound}
	denied := &jsapi.PermissionError{Op: "publish", Subject: "x", Err: nats.ErrPermissionViolation}
	taking := func(err error) error { return &backup.TransferError{Stream: "S", Attempts: 2, Err: err} }
	restoring := func(err error) error { return &restore.TransferError{Stream: "S", Err: err} }
	for _, c := range []struct {
		err  error
		want int
	}{
		{nil, 0},
		{errors.New("anything"), 1},
		{&outputError{err: syscall.ENOSPC}, 1},
		{repo.ErrExists, 1},
		{verify.ErrV1, 1},
		{taking(backup.ErrNeedsV2), 1},
		{&format.DamageError{Err: format.ErrV1}, 1},
		{usagef("x"), 2},
		{connect.ErrSettings, 2},
		{repo.ErrNoRepository, 10},
		{repo.ErrNoBackup, 10},
		{repo.ErrNotBackup, 10},
		{notFound, 10},
		{taking(notFound), 10},
		{taking(backup.ErrStreamGone), 10},
		{damage, 12},
		{&verify.UnsoundError{Err: damage}, 12},
		{&verify.UnsoundError{Err: format.ErrMismatch}, 12},
		{fmt.Errorf("%w: %w", repo.ErrNotBackup, repo.ErrDamaged), 12},
		{tarfile.ErrTruncated, 12},
		{tarfile.ErrNotTar, 12},
		{restoring(damage), 12},
		{restoring(&restore.CheckError{Stream: "S"}), 12},
		{&restore.Refused{Stream: "S"}, 13},
		{connect.ErrConnect, 14},
		{connect.ErrAuth, 14},
		{denied, 14},
		{taking(denied), 14},
		{jsapi.ErrNoResponders, 14},
		{jsapi.ErrTimeout, 14},
		{nats.ErrConnectionClosed, 14},
		{nats.ErrReconnectBufExceeded, 14},
		{nats.ErrDisconnected, 14},
		{&jsapi.Error{ErrCode: jsapi.CodeClusterNotAvailable}, 14},
		{&jsapi.Error{ErrCode: jsapi.CodeNotEnabledForAccount}, 14},
		{taking(backup.ErrStalled), 15},
		{taking(jsapi.ErrTimeout), 15},
		{taking(damage), 15}, // the server sent it so
		{taking(syscall.ENOSPC), 15},
		{restoring(restore.ErrDropped), 15},
		{restoring(notFound), 15},
		{&backup.LeftBehindError{Stream: "S", What: "x", Err: taking(backup.ErrStalled)}, 16},
		{&restore.LeftBehindError{Stream: "S", What: "x", Err: restoring(damage)}, 16},
		{errors.Join(usagef("x"), cleanedUp(syscall.EACCES)), 16},
		{fmt.Errorf("%w: %w", errInterrupted, &backup.LeftBehindError{Err: context.Canceled}), 16},
		{context.Canceled, 130},
		{fmt.Errorf("%w: %w", errInterrupted, context.Canceled), 130},
		{fmt.Errorf("%w: %w", errInterrupted, taking(backup.ErrStalled)), 130},
	} {
		if got := exitCode(c.err); got != c.want {
			t.Errorf("%v: exit code %d, expected %d", c.err, got, c.want)
		}
		if c.err != nil {
			if got := exitCode(fmt.Errorf("wrapped: %w", c.err)); got != c.want {
				t.Errorf("wrapped %v: exit code %d, expected %d", c.err, got, c.want)
			}
		}
	}
}

// TestExitCodesAreDocumented compares docs/exit-codes.md and every verb's help
// with the one table.
func TestExitCodesAreDocumented(t *testing.T) {
	doc, err := os.ReadFile("../docs/exit-codes.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range exitCodes {
		if row := fmt.Sprintf("| %d | %s |", c.code, c.meaning); !strings.Contains(string(doc), row) {
			t.Errorf("docs/exit-codes.md lacks the row %q", row)
		}
	}
	rows := regexp.MustCompile(`(?m)^\| (\d+) \|`).FindAllStringSubmatch(string(doc), -1)
	for _, r := range rows {
		n, _ := strconv.Atoi(r[1])
		if !slices.ContainsFunc(exitCodes, func(c struct {
			code    int
			meaning string
		}) bool {
			return c.code == n
		}) {
			t.Errorf("docs/exit-codes.md has the unknown code %d", n)
		}
	}
}

func TestEveryVerbHasItsHelp(t *testing.T) {
	root := newRootCommand(&app{p: &printer{std: Streams{Out: io.Discard, Err: io.Discard}}})
	for _, v := range root.Commands() {
		if !v.IsAvailableCommand() || v.Name() == "help" {
			continue
		}
		var out bytes.Buffer
		if code := Run(t.Context(), []string{v.Name(), "--help"}, Streams{Out: &out, Err: io.Discard}, Build{}); code != 0 {
			t.Errorf("%s --help: exit code %d", v.Name(), code)
		}
		for _, part := range []string{"USAGE", "FLAGS", "EXAMPLES\n  jetkeep " + v.Name(), "EXIT STATUS\n    0  done"} {
			if !strings.Contains(out.String(), part) {
				t.Errorf("the help of %s lacks %q:\n%s", v.Name(), part, &out)
			}
		}
		for line := range strings.Lines(out.String()) {
			if len([]rune(line)) > 101 {
				t.Errorf("the help of %s has a line of %d columns: %s", v.Name(), len([]rune(line)), line)
			}
		}
	}
}
