package repo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"
)

var (
	// ErrExists says that a key is taken, or that a repository exists already.
	ErrExists = errors.New("exists already")
	// ErrNotFound says that a key isn't there.
	ErrNotFound = errors.New("not found")
	// ErrNoRepository says that a home holds no repository.
	ErrNoRepository = errors.New("no repository")
	// ErrVersion says that a repository was written by a newer jetkeep.
	ErrVersion = errors.New("unknown repository version")
	// ErrNoBackup says that there's no such backup in the repository.
	ErrNoBackup = errors.New("no such backup")
	// ErrNotBackup says that a path isn't a plain backup directory.
	ErrNotBackup = errors.New("not a backup")
	// ErrDamaged says that parts of a backup are missing or not what its
	// manifest says.
	ErrDamaged = errors.New("damaged backup")
)

// Store is a repository's home. Keys are slash-separated names, none of which
// is empty or begins with a dot. All methods may be called concurrently.
//
// Package repotest holds the suite that every home passes.
type Store interface {
	// Put writes an object, whole or not at all, and returns its size once it's
	// durable. Objects never change: a key that is taken is ErrExists. Only one
	// writer may put a key; where several compete, they need PutIfAbsent. A home
	// that decides every Put atomically may make them the same.
	Put(ctx context.Context, key string, r io.Reader) (int64, error)
	// PutIfAbsent is Put for competing writers: exactly one succeeds, all the
	// others get ErrExists.
	PutIfAbsent(ctx context.Context, key string, r io.Reader) (int64, error)
	// GetRange reads n bytes from off, or to the end when n is negative. Where
	// the object ends earlier so does the reader, without an error. A missing
	// key is ErrNotFound. The reader fails once ctx is done.
	GetRange(ctx context.Context, key string, off, n int64) (io.ReadCloser, error)
	// List yields the objects whose key begins with prefix, sorted by key, and
	// never one that is still being put. It ends after the first error.
	List(ctx context.Context, prefix string) iter.Seq2[ObjectInfo, error]
	// Delete removes an object; a missing one is ErrNotFound.
	Delete(ctx context.Context, key string) error
}

// ObjectInfo describes an object in a home.
type ObjectInfo struct {
	Key     string
	Size    int64
	ModTime time.Time
}

// Guard is what a home offers beside [Store] to tell living writers from dead
// ones. A group is all the objects whose keys begin with its name and a slash.
// In a home without it nothing that a dead writer left is ever removed.
type Guard interface {
	// Hold reserves a new group for its caller. ErrExists means that the group
	// is there already, or was taken at the same moment: try another name.
	Hold(ctx context.Context, group string) (Hold, error)
	// Groups names the groups directly below parent, those without a single
	// object included.
	Groups(ctx context.Context, parent string) ([]string, error)
	// Discard removes a group with everything in it, and reports whether it
	// did. It leaves alone a group that holds the object named unless, and one
	// whose writer lives or may live.
	Discard(ctx context.Context, group, unless string) (bool, error)
}

// Hold is a writer's claim on a group; it ends with the process at the latest.
type Hold interface {
	// Finish ends the claim; the objects stay.
	Finish() error
	// Drop removes the whole group and ends the claim. If that fails, the group
	// stays recognisable for Discard.
	Drop() error
}

// location says where a key is, for people.
func location(home Store, key string) string {
	switch h := home.(type) {
	case interface{ Location(key string) string }:
		return h.Location(key)
	case fmt.Stringer:
		return h.String() + "/" + key
	}
	return key
}

// readSmall reads an object that is expected to be small.
func readSmall(ctx context.Context, home Store, key string) ([]byte, error) {
	const limit = 256 << 20 // 1,000 subjects of 64 KiB fit, escaped
	r, err := home.GetRange(ctx, key, 0, limit+1)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	if err == nil && len(data) > limit {
		err = fmt.Errorf("%s: %w: larger than %d bytes", location(home, key), ErrDamaged, limit)
	}
	return data, err
}

// sizeOf returns an object's size, or ErrNotFound.
func sizeOf(ctx context.Context, home Store, key string) (int64, error) {
	for o, err := range home.List(ctx, key) {
		if err != nil {
			return 0, err
		}
		if o.Key == key {
			return o.Size, nil
		}
		break // sorted: the key itself would have come first
	}
	return 0, fmt.Errorf("%s: %w", location(home, key), ErrNotFound)
}
