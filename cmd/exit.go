package cmd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jetkeep/jetkeep/backup"
	"github.com/jetkeep/jetkeep/backup/repo"
	"github.com/jetkeep/jetkeep/format"
	"github.com/jetkeep/jetkeep/internal/connect"
	"github.com/jetkeep/jetkeep/internal/jsapi"
	"github.com/jetkeep/jetkeep/internal/tarfile"
)

// The exit codes. docs/exit-codes.md has the same table.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitIncomplete  = 3
	exitNotFound    = 10
	exitLocked      = 11
	exitDamaged     = 12
	exitRefused     = 13
	exitConnection  = 14
	exitTransfer    = 15
	exitLeftBehind  = 16
	exitInterrupted = 130
)

// exitCodes says what each code means, for help texts and docs.
var exitCodes = []struct {
	code    int
	meaning string
}{
	{exitOK, "done"},
	{exitFailed, "failed for another reason; unknown codes count as failure"},
	{exitUsage, "wrong usage"},
	{exitIncomplete, "a set is incomplete: some streams failed or were skipped"},
	{exitNotFound, "no such repository, backup or stream"},
	{exitLocked, "locked by another run"},
	{exitDamaged, "the archive is damaged, or verification found a difference"},
	{exitRefused, "preflight refused; nothing was touched"},
	{exitConnection, "no connection, authentication or permission"},
	{exitTransfer, "the transfer failed; nothing is left behind; safe to try again"},
	{exitLeftBehind, "failed, and something is left behind: the message says what, and how to remove it"},
	{exitInterrupted, "interrupted, after cleaning up"},
}

// exitStatus lists what the codes mean that a verb can return.
func exitStatus(codes []int) string {
	var b strings.Builder
	for _, c := range exitCodes {
		if slices.Contains(codes, c.code) {
			fmt.Fprintf(&b, "  %3d  %s\n", c.code, c.meaning)
		}
	}
	return b.String()
}

// usageError says that the command line is wrong.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

// usagef makes a usageError.
func usagef(format string, args ...any) error {
	return &usageError{fmt.Errorf(format, args...)}
}

// leaving is what errors of engines have that failed and left something behind.
type leaving interface {
	error
	// LeftBehind says what it is.
	LeftBehind() string
}

// leftBehind reports whether something has to be removed by hand.
func leftBehind(err error) bool {
	var l leaving
	return errors.As(err, &l) && l.LeftBehind() != ""
}

// exitCode chooses the exit code for an error: the only place that does. The
// order matters: a cause deep inside a failed transfer must not hide that it
// was one.
func exitCode(err error) int {
	for _, c := range []struct {
		code int
		is   func(error) bool
	}{
		{exitOK, func(err error) bool { return err == nil }},
		{exitLeftBehind, leftBehind},
		{exitInterrupted, anyOf(errInterrupted)},
		{exitUsage, isUsage},
		{exitConnection, isDenied},
		{exitNotFound, isGone},
		{exitTransfer, isTransfer},
		{exitDamaged, isDamage},
		{exitNotFound, anyOf(repo.ErrNoRepository, repo.ErrNoBackup, repo.ErrNotBackup)},
		{exitConnection, isUnreachable},
		{exitInterrupted, anyOf(context.Canceled)},
	} {
		if c.is(err) {
			return c.code
		}
	}
	return exitFailed
}

// anyOf tests for one of several sentinels.
func anyOf(sentinels ...error) func(error) bool {
	return func(err error) bool {
		return slices.ContainsFunc(sentinels, func(s error) bool { return errors.Is(err, s) })
	}
}

func isUsage(err error) bool {
	var u *usageError
	return errors.As(err, &u) || errors.Is(err, connect.ErrSettings)
}

// isDenied is about who may do what: trying again wouldn't help.
func isDenied(err error) bool {
	var p *jsapi.PermissionError
	return errors.As(err, &p) || errors.Is(err, connect.ErrAuth) || errors.Is(err, connect.ErrConnect)
}

func isGone(err error) bool {
	return errors.Is(err, backup.ErrStreamGone) || jsapi.IsCode(err, jsapi.CodeStreamNotFound)
}

func isTransfer(err error) bool {
	var t *backup.TransferError
	return errors.As(err, &t)
}

func isDamage(err error) bool {
	var d *format.DamageError
	if errors.As(err, &d) && !errors.Is(err, format.ErrV1) {
		return true
	}
	return anyOf(format.ErrMismatch, repo.ErrDamaged, tarfile.ErrNotTar, tarfile.ErrTruncated)(err)
}

// isUnreachable is a server that answers no JetStream request.
func isUnreachable(err error) bool {
	return anyOf(jsapi.ErrNoResponders, jsapi.ErrTimeout)(err) ||
		jsapi.IsCode(err, jsapi.CodeNotEnabled, jsapi.CodeNotEnabledForAccount)
}
