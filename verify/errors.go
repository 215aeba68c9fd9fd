package verify

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jetkeep/jetkeep/backup/repo"
	"github.com/jetkeep/jetkeep/format"
)

// ErrV1 says that an archive was written by a server before 2.15: this version
// can't tell whether it's sound.
var ErrV1 = errors.New("V1 archive (nats-server before 2.15): not yet inspected by this version")

// UnsoundError says why a backup can't be relied on. It wraps a
// [format.DamageError], which says where, [format.ErrMismatch] or
// [repo.ErrDamaged].
type UnsoundError struct {
	Location string
	// Stream is "" when nothing tells which it is.
	Stream string
	Err    error
}

func (e *UnsoundError) Error() string {
	var b strings.Builder
	b.WriteString("the backup")
	if e.Stream != "" {
		fmt.Fprintf(&b, " of stream %q", e.Stream)
	}
	cause := e.Err.Error()
	if !strings.Contains(cause, e.Location) {
		fmt.Fprintf(&b, " in %s", e.Location)
	}
	return fmt.Sprintf("%s is not sound: %s", &b, cause)
}

// Unwrap returns the reason.
func (e *UnsoundError) Unwrap() error { return e.Err }

// judge turns what an inspection returned into what it means for the backup:
// trouble with reading it says nothing about the backup itself.
func (c *checker) judge(err error) error {
	var damage *format.DamageError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, format.ErrV1):
		return c.foreign()
	case errors.As(err, &damage), errors.Is(err, format.ErrMismatch), errors.Is(err, repo.ErrDamaged):
		return &UnsoundError{Location: c.b.Location(), Stream: c.stream(), Err: err}
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	}
	return fmt.Errorf("verify the backup in %s: %w", c.b.Location(), err)
}

func (c *checker) foreign() error {
	return fmt.Errorf("%s: %w", c.b.Location(), ErrV1)
}
