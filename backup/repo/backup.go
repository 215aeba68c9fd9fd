package repo

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"sync"

	"github.com/jetkeep/jetkeep/format"
)

// Backup is a complete backup, in a repository or a directory of its own.
type Backup struct {
	// Manifest is nil for a directory that the nats CLI wrote.
	Manifest *format.Manifest

	home   Store
	prefix string // of its objects' keys
	label  string // in place of where it is
	// archive is the only object of the archive when there's no manifest.
	archive string
}

// Location says where the backup is, for people.
func (b *Backup) Location() string {
	if b.label != "" {
		return b.label
	}
	return location(b.home, b.prefix)
}

// SetLabel has Location, and errors about the backup, say this: for one that is
// only for the moment where it is.
func (b *Backup) SetLabel(label string) { b.label = label }

// at says where an object is, for people.
func (b *Backup) at(name string) string {
	if b.label != "" {
		return b.label + ": " + name
	}
	return location(b.home, b.prefix+name)
}

// Format is "v2" for the archive of servers from 2.15 on, "v1" before.
func (b *Backup) Format() string {
	switch {
	case b.Manifest != nil:
		return b.Manifest.Format
	case b.archive == format.ArchiveV1Name:
		return "v1"
	}
	return "v2"
}

// BackupFile reads backup.json and, when there's a manifest, checks its digest.
func (b *Backup) BackupFile(ctx context.Context) (*format.BackupFile, error) {
	data, err := readSmall(ctx, b.home, b.prefix+format.BackupFileName)
	if err != nil {
		return nil, b.missing(err)
	}
	if b.Manifest != nil {
		sum := sha256.Sum256(data)
		if got := hex.EncodeToString(sum[:]); got != b.Manifest.BackupFileSHA256 {
			return nil, fmt.Errorf("%s: %w: %s isn't the one that the manifest describes (SHA-256 %s, not %s)",
				b.Location(), ErrDamaged, format.BackupFileName, got, b.Manifest.BackupFileSHA256)
		}
	}
	if len(data) == 0 {
		return nil, fmt.Errorf("%s: %w: %s is empty", b.Location(), ErrDamaged, format.BackupFileName)
	}
	f, err := format.ParseBackupFile(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", b.Location(), ErrDamaged, err)
	}
	return f, nil
}

// missing marks an object that isn't there as damage.
func (b *Backup) missing(err error) error {
	if errors.Is(err, ErrNotFound) {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return err
}

// parts returns the objects of the archive. Without a manifest Bytes is -1.
func (b *Backup) parts() []format.ArchiveObject {
	if b.Manifest != nil {
		return b.Manifest.Objects
	}
	return []format.ArchiveObject{{Key: b.archive, Bytes: -1}}
}

// check looks whether all objects are there, with the sizes that the manifest
// says, and no second archive.
func (b *Backup) check(ctx context.Context) error {
	for _, p := range b.parts() {
		size, err := sizeOf(ctx, b.home, b.prefix+p.Key)
		if err != nil {
			return b.missing(err)
		}
		if p.Bytes >= 0 && size != p.Bytes {
			return fmt.Errorf("%s: %w: it has %d bytes, the manifest says %d", b.at(p.Key), ErrDamaged, size, p.Bytes)
		}
	}
	if _, err := sizeOf(ctx, b.home, b.prefix+format.BackupFileName); err != nil {
		return b.missing(err)
	}
	for _, name := range []string{format.ArchiveV2Name, format.ArchiveV1Name} {
		if slices.ContainsFunc(b.parts(), func(p format.ArchiveObject) bool { return p.Key == name }) {
			continue
		}
		switch _, err := sizeOf(ctx, b.home, b.prefix+name); {
		case err == nil:
			return fmt.Errorf("%s: %w: %s doesn't belong to it", b.Location(), ErrDamaged, name)
		case !errors.Is(err, ErrNotFound):
			return err
		}
	}
	return nil
}

// ArchiveSize returns the size of the archive as it's stored.
func (b *Backup) ArchiveSize(ctx context.Context) (int64, error) {
	if err := b.check(ctx); err != nil {
		return 0, err
	}
	if b.Manifest == nil {
		return sizeOf(ctx, b.home, b.prefix+b.archive)
	}
	var total int64
	for _, p := range b.Manifest.Objects {
		total += p.Bytes
	}
	return total, nil
}

// Archive reads the archive: all its objects, one after another. An object that
// is missing, or not as long as the manifest says, is ErrDamaged. Digests are
// for the reader to check.
func (b *Backup) Archive(ctx context.Context) (io.ReadCloser, error) {
	if err := b.check(ctx); err != nil {
		return nil, err
	}
	return &archiveReader{ctx: ctx, b: b, parts: b.parts()}, nil
}

// archiveReader reads objects one after another. Close may be called while a
// Read is under way, and ends it if the store's own reader lets it.
type archiveReader struct {
	ctx   context.Context
	b     *Backup
	parts []format.ArchiveObject // the current one first
	read  int64                  // of the current one

	mu     sync.Mutex
	cur    io.ReadCloser
	closed bool
}

func (r *archiveReader) Read(p []byte) (int, error) {
	for len(r.parts) > 0 {
		part := r.parts[0]
		cur, err := r.open(part)
		if err != nil {
			return 0, err
		}
		n, err := cur.Read(p)
		r.read += int64(n)
		ended := err == io.EOF
		if part.Bytes >= 0 && (r.read > part.Bytes || ended && r.read < part.Bytes) {
			return n, fmt.Errorf("%s: %w: its size differs from the %d bytes in the manifest", r.b.at(part.Key), ErrDamaged, part.Bytes)
		}
		if !ended {
			return n, err
		}
		if err := r.next(); err != nil || n > 0 {
			return n, err
		}
	}
	return 0, io.EOF
}

// open returns the current object's reader.
func (r *archiveReader) open(part format.ArchiveObject) (io.Reader, error) {
	r.mu.Lock()
	cur, closed := r.cur, r.closed
	r.mu.Unlock()
	switch {
	case closed:
		return nil, fs.ErrClosed
	case cur != nil:
		return cur, nil
	}
	cur, err := r.b.home.GetRange(r.ctx, r.b.prefix+part.Key, 0, -1)
	if err != nil {
		return nil, r.b.missing(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, errors.Join(fs.ErrClosed, cur.Close())
	}
	r.cur, r.read = cur, 0
	return cur, nil
}

// next goes on to the next object.
func (r *archiveReader) next() error {
	r.parts = r.parts[1:]
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.closeCurrent()
}

func (r *archiveReader) closeCurrent() error {
	if r.cur == nil {
		return nil
	}
	err := r.cur.Close()
	r.cur = nil
	return err
}

// Close ends the reading.
func (r *archiveReader) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	return r.closeCurrent()
}
