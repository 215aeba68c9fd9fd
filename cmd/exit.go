package cmd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/jetkeep/jetkeep/backup"
	"github.com/jetkeep/jetkeep/backup/repo"
	"github.com/jetkeep/jetkeep/format"
	"github.com/jetkeep/jetkeep/internal/connect"
	"github.com/jetkeep/jetkeep/internal/embedded"
	"github.com/jetkeep/jetkeep/internal/jsapi"
	"github.com/jetkeep/jetkeep/internal/tarfile"
	"github.com/jetkeep/jetkeep/restore"
	"github.com/jetkeep/jetkeep/verify"
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

// leaver is an error after which something has to be removed by hand.
type leaver interface {
	error
	// LeftBehind says what, and how.
	LeftBehind() string
}

func leftBehind(err error) bool { return is[leaver](err) }

// cleanupError says that something temporary couldn't be removed.
type cleanupError struct{ err error }

func (e *cleanupError) Error() string      { return "left behind: " + e.LeftBehind() }
func (e *cleanupError) LeftBehind() string { return fmt.Sprintf("%v: remove it by hand", e.err) }
func (e *cleanupError) Unwrap() error      { return e.err }

// cleanedUp marks the error of a clean-up, if it's one.
func cleanedUp(err error) error {
	if err == nil {
		return nil
	}
	return &cleanupError{err}
}

// exitCode chooses the exit code for an error: the only place that does. The
// order matters: what is said first hides what lies deeper.
func exitCode(err error) int {
	for _, c := range []struct {
		code int
		is   func(error) bool
	}{
		{exitOK, func(err error) bool { return err == nil }},
		{exitLeftBehind, leftBehind},
		{exitInterrupted, anyOf(errInterrupted)},
		{exitUsage, isUsage},
		{exitRefused, is[*restore.Refused]},
		{exitLocked, isBusy},
		{exitNotFound, isNoStore},
		{exitDamaged, is[*embedded.DamagedError]},
		{exitRefused, is[*embedded.ClusteredError]},
		{exitConnection, is[*embedded.KeyError]},
		{exitConnection, isDenied},
		{exitFailed, anyOf(backup.ErrNeedsV2, format.ErrV1, verify.ErrV1)},
		{exitNotFound, isGone},
		// What a server sent damaged may arrive whole the next time.
		{exitTransfer, is[*backup.TransferError]},
		// What is damaged in a backup stays so.
		{exitDamaged, isDamage},
		{exitTransfer, is[*restore.TransferError]},
		{exitNotFound, isMissing},
		{exitConnection, isUnreachable},
		{exitInterrupted, anyOf(context.Canceled)},
	} {
		if c.is(err) {
			return c.code
		}
	}
	return exitFailed
}

// is tests for a type of error.
func is[T error](err error) bool {
	_, ok := errors.AsType[T](err)
	return ok
}

// anyOf tests for one of several sentinels.
func anyOf(sentinels ...error) func(error) bool {
	return func(err error) bool {
		return slices.ContainsFunc(sentinels, func(s error) bool { return errors.Is(err, s) })
	}
}

// isBusy is a stream that a restore hasn't finished, or a store directory that
// a server has open. A backup that was taken of the former is damaged.
func isBusy(err error) bool {
	return isStoreInUse(err) || errors.Is(err, format.ErrBeingRestored) && !errors.Is(err, repo.ErrDamaged)
}

func isUsage(err error) bool { return is[*usageError](err) || errors.Is(err, connect.ErrSettings) }

// isDenied is about who may do what, and where: trying again wouldn't help.
func isDenied(err error) bool {
	return is[*jsapi.PermissionError](err) || errors.Is(err, connect.ErrAuth) || errors.Is(err, connect.ErrConnect)
}

// isGone is a stream that was deleted while it was backed up.
func isGone(err error) bool {
	return errors.Is(err, backup.ErrStreamGone) ||
		is[*backup.TransferError](err) && jsapi.IsCode(err, jsapi.CodeStreamNotFound)
}

func isDamage(err error) bool {
	return is[*format.DamageError](err) || is[*restore.CheckError](err) || is[*demoError](err) ||
		anyOf(format.ErrMismatch, repo.ErrDamaged, tarfile.ErrNotTar, tarfile.ErrTruncated)(err)
}

// isMissing is what the command line names and isn't there.
func isMissing(err error) bool {
	return anyOf(repo.ErrNoRepository, repo.ErrNoBackup, repo.ErrNotBackup)(err) ||
		jsapi.IsCode(err, jsapi.CodeStreamNotFound)
}

// isUnreachable is a server that answers no JetStream request, at present or at
// all, or a connection that is lost.
func isUnreachable(err error) bool {
	return jsapi.Temporary(err) || errors.Is(err, nats.ErrConnectionClosed) ||
		jsapi.IsCode(err, jsapi.CodeNotEnabled, jsapi.CodeNotEnabledForAccount)
}
