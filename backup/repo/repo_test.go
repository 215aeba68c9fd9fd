package repo_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jetkeep/jetkeep/backup/repo"
	"github.com/jetkeep/jetkeep/format"
)

func wantErr(t *testing.T, err, want error, text ...string) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("got %v, want %v", err, want)
		return
	}
	for _, s := range text {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("%q isn't in: %v", s, err)
		}
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("more than one line: %v", err)
	}
}

func TestInitAndOpen(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "above", "repo")
	_, err := repo.OpenDir(dir)
	wantErr(t, err, repo.ErrNoRepository, "jetkeep init", dir)
	if _, err := os.Stat(dir); err == nil {
		t.Error("opening made it")
	}
	r, err := repo.InitDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	again, err := repo.OpenDir(dir)
	if err != nil || again.ID() != r.ID() || len(r.ID()) != 32 {
		t.Errorf("ids %q and %q, %v", r.ID(), again.ID(), err)
	}
	_, err = repo.InitDir(dir)
	wantErr(t, err, repo.ErrExists, dir)
	if other, _ := newRepo(t); other.ID() == r.ID() {
		t.Error("two repositories share an id")
	}
}

func TestOpenRefuses(t *testing.T) {
	for _, c := range []struct {
		config string
		want   error
	}{
		{`{"version":2,"id":"x","salt":"eA=="}`, repo.ErrVersion},
		{`{"id":"x","salt":"eA=="}`, repo.ErrVersion},
		{`{"version":1,"id":"","salt":"eA=="}`, repo.ErrDamaged},
		{`{"version":1,"id":"x"}`, repo.ErrDamaged},
		{`{`, repo.ErrDamaged},
		{``, repo.ErrDamaged},
	} {
		dir := t.TempDir()
		writeFile(t, filepath.Join(dir, "jetkeep.json"), c.config)
		_, err := repo.OpenDir(dir)
		wantErr(t, err, c.want, dir)
	}
	file := filepath.Join(t.TempDir(), "file")
	writeFile(t, file, "x")
	_, err := repo.OpenDir(file)
	if err == nil {
		t.Error("a file opened")
	}
	single := t.TempDir()
	writeFile(t, filepath.Join(single, format.BackupFileName), "{}")
	_, err = repo.OpenDir(single)
	wantErr(t, err, repo.ErrNoRepository, "single backup")
}

func TestListAndFind(t *testing.T) {
	r, _ := newRepo(t)
	second := take(t, r, "S", start.Add(time.Hour), "second")
	first := take(t, r, "S", start, "first")
	take(t, r, "a/b $x", start, "other")
	if streams, err := r.Streams(t.Context()); err != nil || !slices.Equal(streams, []string{"S", "a/b $x"}) {
		t.Errorf("Streams = %q, %v", streams, err)
	}
	entries, err := r.List(t.Context(), "S")
	if err != nil || len(entries) != 2 || entries[0].ID != first.Manifest.ID || entries[1].ID != second.Manifest.ID || entries[0].Manifest == nil {
		t.Errorf("List = %+v, %v", entries, err)
	}
	for id, want := range map[string]string{"": "second", repo.Latest: "second", first.Manifest.ID: "first"} {
		b, err := r.Find(t.Context(), "S", id)
		if err != nil {
			t.Error(err)
			continue
		}
		sound(t, b, want)
		if b.Format() != "v2" || !strings.Contains(b.Location(), b.Manifest.ID) {
			t.Error(b.Format(), b.Location())
		}
	}
	_, err = r.Find(t.Context(), "none", repo.Latest)
	wantErr(t, err, repo.ErrNoBackup, `"none" has none`, "there are backups of S, a/b $x")
	_, err = r.Find(t.Context(), "none", repo.NewID(start))
	wantErr(t, err, repo.ErrNoBackup, `"none" has none`)
	_, err = r.Find(t.Context(), "S", repo.NewID(start))
	wantErr(t, err, repo.ErrNoBackup, "newest first, there are "+second.Manifest.ID+", "+first.Manifest.ID)
	_, err = r.Find(t.Context(), "S", "../../x")
	wantErr(t, err, repo.ErrNoBackup, first.Manifest.ID)
}

func TestDamageIsReportedAndHidesNothing(t *testing.T) {
	for _, c := range []struct {
		name   string
		damage func(t *testing.T, dir string)
		want   error
		text   string
	}{
		{"archive missing", func(t *testing.T, dir string) { os.Remove(filepath.Join(dir, format.ArchiveV2Name)) }, repo.ErrDamaged, format.ArchiveV2Name},
		{"archive cut", func(t *testing.T, dir string) { os.Truncate(filepath.Join(dir, format.ArchiveV2Name), 3) }, repo.ErrDamaged, "3 bytes"},
		{"backup.json missing", func(t *testing.T, dir string) { os.Remove(filepath.Join(dir, format.BackupFileName)) }, repo.ErrDamaged, format.BackupFileName},
		{"second archive", func(t *testing.T, dir string) { writeFile(t, filepath.Join(dir, format.ArchiveV1Name), "x") }, repo.ErrDamaged, format.ArchiveV1Name},
		{"manifest cut", func(t *testing.T, dir string) { os.Truncate(filepath.Join(dir, format.ManifestName), 30) }, repo.ErrDamaged, "manifest"},
		{"manifest empty", func(t *testing.T, dir string) { os.Truncate(filepath.Join(dir, format.ManifestName), 0) }, repo.ErrDamaged, "manifest"},
		{"manifest newer", func(t *testing.T, dir string) {
			writeFile(t, filepath.Join(dir, format.ManifestName), `{"manifest_version":2}`)
		}, format.ErrManifestVersion, "version 1"},
		{"manifest of another backup", func(t *testing.T, dir string) { putManifest(t, dir, manifest("x", "S", "second")) }, repo.ErrDamaged, `"x"`},
		{"manifest of another stream", func(t *testing.T, dir string) { putManifest(t, dir, manifest(filepath.Base(dir), "T", "second")) }, repo.ErrDamaged, `"T"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, _ := newRepo(t)
			first := take(t, r, "S", start, "first")
			second := take(t, r, "S", start.Add(time.Hour), "second")
			c.damage(t, second.Location())
			entries, err := r.List(t.Context(), "S")
			if err != nil || len(entries) != 2 || entries[0].Err != nil || entries[1].ID != second.Manifest.ID {
				t.Fatalf("List = %+v, %v", entries, err)
			}
			wantErr(t, entries[1].Err, c.want, c.text, second.Manifest.ID)
			_, err = r.Find(t.Context(), "S", second.Manifest.ID)
			wantErr(t, err, c.want)
			_, err = r.Find(t.Context(), "S", repo.Latest)
			wantErr(t, err, c.want, c.text, "; S@"+first.Manifest.ID+" is the one before")
			if streams, err := r.Streams(t.Context()); err != nil || !slices.Contains(streams, "S") {
				t.Errorf("Streams = %q, %v", streams, err)
			}
		})
	}
}

func putManifest(t *testing.T, dir string, m *format.Manifest) {
	data, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(dir, format.ManifestName), string(data))
}

func TestOnlyUnreadableManifestIsFoundAsItsError(t *testing.T) {
	r, _ := newRepo(t)
	b := take(t, r, "a/b", start, "x")
	os.Truncate(filepath.Join(b.Location(), format.ManifestName), 5)
	_, err := r.Find(t.Context(), "a/b", repo.Latest)
	wantErr(t, err, repo.ErrDamaged)
	if streams, _ := r.Streams(t.Context()); !slices.Equal(streams, []string{"a/b"}) {
		t.Errorf("Streams = %q", streams)
	}
}

func TestDamageAfterFind(t *testing.T) {
	r, _ := newRepo(t)
	b := take(t, r, "S", start, "the archive")
	writeFile(t, filepath.Join(b.Location(), format.BackupFileName), strings.ToUpper(backupJSON("S")))
	_, err := b.BackupFile(t.Context())
	wantErr(t, err, repo.ErrDamaged, "manifest describes")
	archive := filepath.Join(b.Location(), format.ArchiveV2Name)
	for _, content := range []string{"the arch", "the archive is longer"} {
		writeFile(t, archive, "the archive")
		open, err := b.Archive(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		writeFile(t, archive, content) // after the check of sizes
		_, err = io.ReadAll(open)
		wantErr(t, err, repo.ErrDamaged)
		open.Close()
	}
	os.Remove(archive)
	_, err = b.Archive(t.Context())
	wantErr(t, err, repo.ErrDamaged)
}

func TestArchiveOfSeveralObjects(t *testing.T) {
	r, _ := newRepo(t)
	sound(t, take(t, r, "S", start, "one ", "two ", "", "three"), "one two three")
}

// Where case doesn't matter, two streams share a directory.
func TestStreamsThatShareADirectory(t *testing.T) {
	r, dir := newRepo(t)
	upper, lower := take(t, r, "ORDERS", start, "upper"), take(t, r, "orders", start, "lower")
	os.Rename(lower.Location(), filepath.Join(dir, "ORDERS", lower.Manifest.ID))
	os.Remove(filepath.Join(dir, "orders"))
	if err := os.Symlink("ORDERS", filepath.Join(dir, "orders")); err != nil {
		t.Skip(err)
	}
	for stream, want := range map[string]string{"ORDERS": upper.Manifest.ID, "orders": lower.Manifest.ID} {
		entries, err := r.List(t.Context(), stream)
		if err != nil || len(entries) != 1 || entries[0].ID != want || entries[0].Err != nil {
			t.Errorf("%s: %+v, %v", stream, entries, err)
		}
	}
	if streams, _ := r.Streams(t.Context()); !slices.Equal(streams, []string{"ORDERS", "orders"}) {
		t.Errorf("Streams = %q", streams)
	}
}

func TestCommitRefusesWhatIsNotWhole(t *testing.T) {
	r, dir := newRepo(t)
	for name, spoil := range map[string]func(*format.Manifest){
		"another id":                 func(m *format.Manifest) { m.ID = repo.NewID(start) },
		"another stream":             func(m *format.Manifest) { m.Stream = "T" },
		"no objects":                 func(m *format.Manifest) { m.Objects = nil },
		"no version":                 func(m *format.Manifest) { m.Version = 0 },
		"an object that wasn't put":  func(m *format.Manifest) { m.Objects[0].Key = "other.s2" },
		"an object of another size":  func(m *format.Manifest) { m.Objects[0].Bytes++ },
		"another digest":             func(m *format.Manifest) { m.BackupFileSHA256 = digest("") },
		"an object in another place": func(m *format.Manifest) { m.Objects[0].Key = "../x" },
	} {
		p, err := r.Begin(t.Context(), "S", start)
		if err != nil {
			t.Fatal(err)
		}
		p.Put(t.Context(), format.ArchiveV2Name, strings.NewReader("x"))
		p.Put(t.Context(), format.BackupFileName, strings.NewReader(backupJSON("S")))
		m := manifest(p.ID(), "S", "x")
		spoil(m)
		if _, err := p.Commit(t.Context(), m); err == nil {
			t.Errorf("%s: committed", name)
		}
		if err := p.Abort(); err != nil {
			t.Error(err)
		}
	}
	if left := tree(t, dir); len(left) != 1 {
		t.Errorf("left %q", left)
	}
}

func TestPendingAfterItsEnd(t *testing.T) {
	r, dir := newRepo(t)
	ctx, cancel := context.WithCancel(t.Context())
	p, err := r.Begin(ctx, "S", start)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{format.ManifestName, "", ".x", "a/b", "..", `a\b`} {
		if _, err := p.Put(ctx, name, strings.NewReader("")); err == nil {
			t.Errorf("Put took %q", name)
		}
	}
	p.Put(ctx, format.ArchiveV2Name, strings.NewReader("x"))
	p.Put(ctx, format.BackupFileName, strings.NewReader(backupJSON("S")))
	cancel()
	_, err = p.Commit(ctx, manifest(p.ID(), "S", "x"))
	wantErr(t, err, context.Canceled)
	if err := errors.Join(p.Abort(), p.Abort()); err != nil {
		t.Error(err)
	}
	if left := tree(t, dir); len(left) != 1 {
		t.Errorf("after Abort: %q", left)
	}
	if _, err := p.Put(t.Context(), "x", strings.NewReader("")); err == nil {
		t.Error("Put after Abort")
	}
	if _, err := p.Commit(t.Context(), manifest(p.ID(), "S", "x")); err == nil {
		t.Error("Commit after Abort")
	}

	p, _ = r.Begin(t.Context(), "S", start)
	b, err := write(t.Context(), p, "S", "y")
	if err = errors.Join(err, p.Abort()); err != nil {
		t.Fatal(err)
	}
	sound(t, b, "y")
	for _, path := range tree(t, b.Location()) {
		if strings.HasPrefix(path, ".") {
			t.Errorf("left %s", path)
		}
	}
}

// bare hides that a home is a Guard, as a simple object store has none.
type bare struct{ s repo.Store }

func (b bare) Put(ctx context.Context, k string, r io.Reader) (int64, error) {
	return b.s.Put(ctx, k, r)
}
func (b bare) PutIfAbsent(ctx context.Context, k string, r io.Reader) (int64, error) {
	return b.s.PutIfAbsent(ctx, k, r)
}
func (b bare) GetRange(ctx context.Context, k string, off, n int64) (io.ReadCloser, error) {
	return b.s.GetRange(ctx, k, off, n)
}
func (b bare) List(ctx context.Context, p string) iter.Seq2[repo.ObjectInfo, error] {
	return b.s.List(ctx, p)
}
func (b bare) Delete(ctx context.Context, k string) error { return b.s.Delete(ctx, k) }

func TestHomeThatIsNoGuard(t *testing.T) {
	home := bare{newDir(t, t.TempDir())}
	r, err := repo.Init(t.Context(), home)
	if err != nil {
		t.Fatal(err)
	}
	sound(t, take(t, r, "S", start, "x"), "x")
	p, err := r.Begin(t.Context(), "T", start)
	if err != nil {
		t.Fatal(err)
	}
	p.Put(t.Context(), format.ArchiveV2Name, strings.NewReader("x"))
	if err := p.Abort(); err != nil {
		t.Error(err)
	}
	for o := range home.List(t.Context(), "T/") {
		t.Error("left", o.Key)
	}
	if removed, err := r.CleanAbandoned(t.Context(), "T"); err != nil || removed != nil {
		t.Error(removed, err)
	}
}
