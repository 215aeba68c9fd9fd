package repo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/jetkeep/jetkeep/format"
)

// Writer is a backup in the making: objects are put, and then it's committed or
// aborted. [Pending] writes into a repository, [PlainPending] into a directory.
type Writer interface {
	// ID is the id that the manifest has to bear.
	ID() string
	// Put writes an object other than the manifest. It may be called
	// concurrently.
	Put(ctx context.Context, name string, r io.Reader) (int64, error)
	// Commit checks the manifest against what was put, and makes the backup
	// exist. After an error the writer is still to be aborted.
	Commit(ctx context.Context, m *format.Manifest) (*Backup, error)
	// Abort removes everything. After a Commit that succeeded, or a second
	// time, it does nothing, so it can be deferred.
	Abort() error
}

var (
	_ Writer = (*Pending)(nil)
	_ Writer = (*PlainPending)(nil)
)

var errFinished = errors.New("the backup is committed or aborted already")

// writer is what both kinds of Writer share.
type writer struct {
	id       string
	home     Store
	prefix   string
	mu       sync.Mutex // guards finished
	finished bool
}

// ID returns the id of the backup.
func (w *writer) ID() string { return w.id }

// Location says where the backup is in the making, for people.
func (w *writer) Location() string { return location(w.home, w.prefix) }

func (w *writer) isFinished() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.finished
}

// finish reports whether it's the first time.
func (w *writer) finish() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	first := !w.finished
	w.finished = true
	return first
}

// Put writes an object of the backup. The name is a plain file name, such as
// format.ArchiveV2Name; the manifest is Commit's.
func (w *writer) Put(ctx context.Context, name string, r io.Reader) (int64, error) {
	if w.isFinished() {
		return 0, errFinished
	}
	if name == "" || name[0] == '.' || strings.ContainsAny(name, `/\`) || name == format.ManifestName {
		return 0, fmt.Errorf("%q can't be the name of an object in a backup", name)
	}
	return w.home.Put(ctx, w.prefix+name, r)
}

// putManifest checks that the backup is whole, and puts its manifest.
func (w *writer) putManifest(ctx context.Context, m *format.Manifest) error {
	if w.isFinished() {
		return errFinished
	}
	if m.ID != w.id {
		return fmt.Errorf("the manifest's id is %q, not %q", m.ID, w.id)
	}
	data, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	if _, err := format.ParseManifest(data); err != nil {
		return err
	}
	b := &Backup{Manifest: m, home: w.home, prefix: w.prefix}
	if err := b.check(ctx); err != nil {
		return err
	}
	f, err := b.BackupFile(ctx)
	if err != nil {
		return err
	}
	if f.StreamName() != m.Stream {
		return fmt.Errorf("the manifest is of stream %q, %s of stream %q", m.Stream, format.BackupFileName, f.StreamName())
	}
	_, err = w.home.PutIfAbsent(ctx, w.prefix+format.ManifestName, bytes.NewReader(append(data, '\n')))
	return err
}

// Pending is a backup that is being written into a repository.
type Pending struct {
	writer
	stream     string
	hold       Hold // nil where the home is no Guard
	cleaned    []string
	cleanedErr error
}

// Begin starts a backup of a stream under a new id for that time. It first
// removes what dead writers left of the stream's; what came of that is in
// [Pending.Cleaned].
func (r *Repository) Begin(ctx context.Context, stream string, start time.Time) (*Pending, error) {
	if stream == "" {
		return nil, errors.New("begin a backup: the stream has no name")
	}
	p := &Pending{stream: stream}
	p.home = r.home
	p.cleaned, p.cleanedErr = r.CleanAbandoned(ctx, stream)
	for try := 0; ; try++ {
		err := p.reserve(ctx, NewID(start))
		if err == nil {
			return p, nil
		}
		if !errors.Is(err, ErrExists) || try == maxTries {
			return nil, fmt.Errorf("begin a backup of stream %q: %w", stream, err)
		}
	}
}

func (p *Pending) reserve(ctx context.Context, id string) error {
	group := PathName(p.stream) + "/" + id
	p.id, p.prefix = id, group+"/"
	g, ok := p.home.(Guard)
	if !ok {
		return ctx.Err() // the id's random part has to do
	}
	hold, err := g.Hold(ctx, group)
	p.hold = hold
	return err
}

// Cleaned returns the ids of abandoned backups that Begin removed, and why it
// couldn't remove others. That doesn't keep a new backup from being taken.
func (p *Pending) Cleaned() ([]string, error) { return p.cleaned, p.cleanedErr }

// Commit puts the manifest, after which the backup exists.
func (p *Pending) Commit(ctx context.Context, m *format.Manifest) (*Backup, error) {
	if m.Stream != p.stream {
		return nil, fmt.Errorf("commit backup %s of stream %q: the manifest is of stream %q", p.id, p.stream, m.Stream)
	}
	if err := p.putManifest(ctx, m); err != nil {
		return nil, fmt.Errorf("commit backup %s of stream %q: %w", p.id, p.stream, err)
	}
	p.finish()
	if p.hold != nil {
		_ = p.hold.Finish() // the backup exists; a lock that nobody holds does no harm
	}
	return &Backup{Manifest: m, home: p.home, prefix: p.prefix}, nil
}

// Abort removes everything that was put. It needs no context, since it has to
// work after one was cancelled.
func (p *Pending) Abort() error {
	if !p.finish() {
		return nil
	}
	ctx := context.Background()
	// First of all it must not list any more.
	err := p.home.Delete(ctx, p.prefix+format.ManifestName)
	if errors.Is(err, ErrNotFound) {
		err = nil
	}
	if p.hold != nil {
		err = errors.Join(err, p.hold.Drop())
	} else {
		err = errors.Join(err, p.deleteAll(ctx))
	}
	if err != nil {
		return fmt.Errorf("remove unfinished backup %s of stream %q: %w", p.id, p.stream, err)
	}
	return nil
}

func (p *Pending) deleteAll(ctx context.Context) error {
	var errs []error
	for o, err := range p.home.List(ctx, p.prefix) {
		if err == nil {
			err = p.home.Delete(ctx, o.Key)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// CleanAbandoned removes the backups of a stream that have no manifest and whose
// writer is dead, and returns their ids. It does all that it can before it
// returns an error.
func (r *Repository) CleanAbandoned(ctx context.Context, stream string) (removed []string, err error) {
	g, ok := r.home.(Guard)
	if !ok {
		return nil, nil
	}
	parent := PathName(stream)
	ids, err := g.Groups(ctx, parent)
	for _, id := range ids {
		if !ValidID(id) {
			continue // not ours
		}
		gone, e := g.Discard(ctx, parent+"/"+id, format.ManifestName)
		if gone {
			removed = append(removed, id)
		}
		err = errors.Join(err, e)
	}
	if err != nil {
		err = fmt.Errorf("remove abandoned backups of stream %q: %w", stream, err)
	}
	return removed, err
}
