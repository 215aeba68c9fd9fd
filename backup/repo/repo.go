package repo

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jetkeep/jetkeep/format"
)

const (
	configName    = "jetkeep.json"
	configVersion = 1
)

// config is jetkeep.json. Its fields never change.
type config struct {
	Version int    `json:"version"`
	ID      string `json:"id"`
	// Salt goes into whatever is derived from a secret for this repository.
	Salt []byte `json:"salt"`
}

// Repository holds the backups of streams. Its methods may be called
// concurrently, also by several processes.
type Repository struct {
	home   Store
	config config
}

// Entry is a backup in a list. Manifest is nil when it couldn't be read; Err
// says why, or what is missing from a backup whose manifest is fine.
type Entry struct {
	ID       string
	Manifest *format.Manifest
	Err      error
}

// Init makes a repository; ErrExists when there is one. A home that needs to be
// made first has a method Create, as [Dir.Create].
func Init(ctx context.Context, home Store) (*Repository, error) {
	if c, ok := home.(interface{ Create(context.Context) error }); ok {
		if err := c.Create(ctx); err != nil {
			return nil, fmt.Errorf("make a repository: %w", err)
		}
	}
	c := config{Version: configVersion, ID: randomHex(16), Salt: make([]byte, 32)}
	rand.Read(c.Salt)
	data, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return nil, err
	}
	_, err = home.PutIfAbsent(ctx, configName, bytes.NewReader(append(data, '\n')))
	if errors.Is(err, ErrExists) {
		return nil, fmt.Errorf("repository at %s: %w", location(home, ""), ErrExists)
	}
	if err != nil {
		return nil, fmt.Errorf("make a repository: %w", err)
	}
	return &Repository{home: home, config: c}, nil
}

// Open opens a repository; ErrNoRepository when there is none.
func Open(ctx context.Context, home Store) (*Repository, error) {
	data, err := readSmall(ctx, home, configName)
	if errors.Is(err, ErrNotFound) {
		return nil, noRepository(ctx, home)
	}
	if err != nil {
		return nil, fmt.Errorf("open the repository: %w", err)
	}
	var c config
	if err := json.Unmarshal(data, &c); err != nil {
		return nil, fmt.Errorf("%s: %w: %w", location(home, configName), ErrDamaged, err)
	}
	if c.Version != configVersion {
		return nil, fmt.Errorf("%s: %w %d (this jetkeep reads version %d)", location(home, configName), ErrVersion, c.Version, configVersion)
	}
	if c.ID == "" || len(c.Salt) == 0 {
		return nil, fmt.Errorf("%s: %w: id or salt is missing", location(home, configName), ErrDamaged)
	}
	return &Repository{home: home, config: c}, nil
}

// noRepository says what to do.
func noRepository(ctx context.Context, home Store) error {
	at := location(home, "")
	if _, err := sizeOf(ctx, home, format.BackupFileName); err == nil {
		return fmt.Errorf("%w at %s: it's a single backup, to be named by its path without --repo", ErrNoRepository, at)
	}
	return fmt.Errorf("%w at %s: check the path and that its disk is mounted, or make one with `jetkeep init --repo %s`", ErrNoRepository, at, at)
}

// InitDir is Init in a directory, which is made if missing.
func InitDir(path string) (*Repository, error) {
	home, err := NewDir(path)
	if err != nil {
		return nil, err
	}
	return Init(context.Background(), home)
}

// OpenDir is Open in a directory.
func OpenDir(path string) (*Repository, error) {
	home, err := NewDir(path)
	if err != nil {
		return nil, err
	}
	return Open(context.Background(), home)
}

// ID returns the random id that the repository got when it was made.
func (r *Repository) ID() string { return r.config.ID }

// Location says where the repository is, for people.
func (r *Repository) Location() string { return location(r.home, "") }

// Streams returns the names of the streams that have a backup, sorted.
func (r *Repository) Streams(ctx context.Context) ([]string, error) {
	found := map[string]bool{}
	for o, err := range r.home.List(ctx, "") {
		if err != nil {
			return nil, fmt.Errorf("list streams: %w", err)
		}
		dir, _, ok := manifestKey(o.Key)
		if !ok {
			continue
		}
		data, err := readSmall(ctx, r.home, o.Key)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if errors.Is(err, ErrNotFound) {
			continue // deleted meanwhile
		}
		var m struct {
			Stream string `json:"stream"`
		}
		if err != nil || json.Unmarshal(data, &m) != nil || m.Stream == "" || !strings.EqualFold(PathName(m.Stream), dir) {
			m.Stream = streamName(dir) // so that List gets to report it
		}
		found[m.Stream] = true
	}
	names := make([]string, 0, len(found))
	for name := range found {
		names = append(names, name)
	}
	slices.Sort(names)
	return names, nil
}

// manifestKey splits <dir>/<id>/manifest.json.
func manifestKey(key string) (dir, id string, ok bool) {
	parts := strings.Split(key, "/")
	if len(parts) != 3 || parts[2] != format.ManifestName || !ValidID(parts[1]) {
		return "", "", false
	}
	return parts[0], parts[1], true
}

// List returns the complete backups of a stream, oldest first. One that can't
// be read, or of which something is missing, has its error in its entry.
func (r *Repository) List(ctx context.Context, stream string) ([]Entry, error) {
	ids, err := r.ids(ctx, stream)
	if err != nil {
		return nil, err
	}
	var entries []Entry
	for _, id := range ids {
		e, ok := r.load(ctx, stream, id)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if ok {
			entries = append(entries, e)
		}
	}
	return entries, nil
}

// ids returns the ids that have a manifest, sorted.
func (r *Repository) ids(ctx context.Context, stream string) ([]string, error) {
	var ids []string
	for o, err := range r.home.List(ctx, PathName(stream)+"/") {
		if err != nil {
			return nil, fmt.Errorf("list backups of stream %q: %w", stream, err)
		}
		if _, id, ok := manifestKey(o.Key); ok {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// load reads a manifest and looks for what it names. It reports false for a
// backup that isn't there, or is another stream's: where case doesn't matter,
// two may share a directory.
func (r *Repository) load(ctx context.Context, stream, id string) (Entry, bool) {
	e := Entry{ID: id}
	b := r.backup(stream, id)
	key := b.prefix + format.ManifestName
	data, err := readSmall(ctx, r.home, key)
	if errors.Is(err, ErrNotFound) {
		return e, false
	}
	if err != nil {
		e.Err = err
		return e, true
	}
	m, err := parseManifest(data)
	switch {
	case err != nil:
		e.Err = fmt.Errorf("backup %s of stream %q in %s: %w", id, stream, b.Location(), err)
		return e, true
	case m.ID != id:
		e.Err = fmt.Errorf("%s: %w: the manifest is of backup %q", b.Location(), ErrDamaged, m.ID)
		return e, true
	case !strings.EqualFold(PathName(m.Stream), PathName(stream)):
		e.Err = fmt.Errorf("%s: %w: the manifest is of stream %q", b.Location(), ErrDamaged, m.Stream)
		return e, true
	case m.Stream != stream:
		return e, false
	}
	b.Manifest, e.Manifest = m, m
	e.Err = b.check(ctx)
	return e, true
}

// parseManifest marks what can't be read as damage, unless it's merely newer.
func parseManifest(data []byte) (*format.Manifest, error) {
	m, err := format.ParseManifest(data)
	if err != nil && !errors.Is(err, format.ErrManifestVersion) {
		err = fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return m, err
}

func (r *Repository) backup(stream, id string) *Backup {
	return &Backup{home: r.home, prefix: PathName(stream) + "/" + id + "/"}
}

// Find returns a backup of a stream. The id may be [Latest] or empty: then it's
// the newest one. When that one isn't sound, or needs a newer version, its error
// is returned and names the newest one before it that is: whether an older
// generation will do is for the caller to decide.
func (r *Repository) Find(ctx context.Context, stream, id string) (*Backup, error) {
	if id != Latest && id != "" {
		if !ValidID(id) {
			return nil, r.unknownID(ctx, stream, id)
		}
		if e, ok := r.load(ctx, stream, id); ok {
			return r.found(stream, e)
		}
		return nil, r.unknownID(ctx, stream, id)
	}
	ids, err := r.ids(ctx, stream)
	if err != nil {
		return nil, err
	}
	var broken error
	for _, id := range slices.Backward(ids) {
		e, ok := r.load(ctx, stream, id)
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case !ok:
		case e.Err == nil && broken != nil:
			return nil, fmt.Errorf("%w; %s@%s is the one before", broken, stream, id)
		case e.Err == nil:
			return r.found(stream, e)
		case broken == nil:
			broken = e.Err
		}
	}
	if broken != nil {
		return nil, broken
	}
	return nil, r.noBackups(ctx, stream)
}

func (r *Repository) found(stream string, e Entry) (*Backup, error) {
	if e.Err != nil {
		return nil, e.Err
	}
	b := r.backup(stream, e.ID)
	b.Manifest = e.Manifest
	return b, nil
}

// shown is how many names an error lists.
const shown = 5

// some lists the first few names.
func some(names []string) string {
	if len(names) <= shown {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:shown], ", "), len(names)-shown)
}

func (r *Repository) noBackups(ctx context.Context, stream string) error {
	streams, err := r.Streams(ctx)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return fmt.Errorf("%w: stream %q has none in %s", ErrNoBackup, stream, r.Location())
	case len(streams) == 0:
		return fmt.Errorf("%w: stream %q has none in %s, which holds none yet (`jetkeep backup` takes one)", ErrNoBackup, stream, r.Location())
	}
	return fmt.Errorf("%w: stream %q has none in %s (there are backups of %s)", ErrNoBackup, stream, r.Location(), some(streams))
}

func (r *Repository) unknownID(ctx context.Context, stream, id string) error {
	entries, err := r.List(ctx, stream)
	if err != nil {
		return err
	}
	if len(entries) == 0 {
		return r.noBackups(ctx, stream)
	}
	ids := make([]string, 0, len(entries))
	for _, e := range slices.Backward(entries) {
		ids = append(ids, e.ID)
	}
	return fmt.Errorf("%w: stream %q has no backup %q in %s; newest first, there are %s", ErrNoBackup, stream, id, r.Location(), some(ids))
}
