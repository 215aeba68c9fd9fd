package verify_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetkeep/jetkeep/backup"
	"github.com/jetkeep/jetkeep/backup/repo"
	"github.com/jetkeep/jetkeep/format"
	"github.com/jetkeep/jetkeep/internal/testnats"
	"github.com/jetkeep/jetkeep/verify"
)

// take backs a stream up into a directory of its own.
func take(t *testing.T, nc *nats.Conn, stream string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "backup")
	_, err := backup.Take(t.Context(), nc, func(context.Context, string, time.Time) (repo.Writer, error) {
		return repo.BeginPlain(dir)
	}, backup.Options{Stream: stream, Account: func() string { return "A" }, Context: "prod", Version: "v1"})
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// open opens a directory that has to look like a backup.
func open(t *testing.T, dir string) *repo.Backup {
	t.Helper()
	b, err := repo.OpenPlain(dir)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func check(t *testing.T, dir string) *verify.Report {
	t.Helper()
	r, err := verify.Check(t.Context(), open(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func read(t *testing.T, parts ...string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(parts...))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func write(t *testing.T, data []byte, parts ...string) {
	t.Helper()
	path := filepath.Join(parts...)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// copyOf copies a backup, so that it can be changed.
func copyOf(t *testing.T, dir string, without ...string) string {
	t.Helper()
	to := t.TempDir()
	for _, name := range []string{format.BackupFileName, format.ManifestName, format.ArchiveV2Name} {
		if !slices.Contains(without, name) {
			write(t, read(t, dir, name), to, name)
		}
	}
	return to
}

func TestReportSaysWhatABackupHolds(t *testing.T) {
	nc := testnats.Single(t).Connect(t)
	stream := testnats.Fill(t, nc, testnats.FillOptions{TTL: time.Hour, Consumers: true})
	dir := take(t, nc, stream)
	b := open(t, dir)
	r, err := verify.Check(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	m := b.Manifest
	if r.Stream != stream || r.ID != m.ID || r.Format != "v2" || r.Location != dir || r.Expired != 0 || len(r.Notes) != 0 || r.Uncovered != nil {
		t.Errorf("%+v", r)
	}
	if r.Bytes != m.Objects[0].Bytes || r.RawBytes != m.Objects[0].RawBytes || r.SHA256 != m.Objects[0].SHA256 || r.BackupFileSHA256 != m.BackupFileSHA256 {
		t.Errorf("%+v\n%+v", r, m)
	}
	if r.Taken == nil || r.Taken.Account != "A" || r.Taken.Context != "prod" || r.Taken.Jetkeep != "v1" || !r.Taken.Started.Equal(m.Started) {
		t.Errorf("%+v", r.Taken)
	}
	if r.Figures.Messages != m.Figures.Messages || r.Figures.TTL.Messages == 0 || len(r.Figures.Consumers) != 8 || r.Figures.Gaps == 0 || r.Figures.Largest == nil {
		t.Errorf("%+v", r.Figures)
	}

	// In two hours every TTL is over.
	r, err = verify.Options{Now: time.Now().Add(2 * time.Hour)}.Check(t.Context(), b)
	if err != nil || r.Expired != r.Figures.TTL.Messages || len(r.Notes) != 1 {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestDirectoriesOfTheNatsCLI(t *testing.T) {
	nc := testnats.Single(t).Connect(t)
	stream := testnats.Fill(t, nc, testnats.FillOptions{Consumers: true})
	dir := filepath.Join(t.TempDir(), "peer")
	c := exec.Command(testnats.Peer(t), "-s", nc.ConnectedUrl(), "backup", "stream", stream, dir, "--no-progress")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	r := check(t, dir)
	if r.ID != "" || r.Taken != nil || r.Stream != stream || r.Figures.Messages == 0 || len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "no manifest") {
		t.Errorf("%+v", r)
	}
}

func TestStreamsOfAllKinds(t *testing.T) {
	nc := testnats.Single(t).Connect(t)
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(30*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	origin := testnats.Fill(t, nc, testnats.FillOptions{})
	for name, cfg := range map[string]jetstream.StreamConfig{
		"never used": {Subjects: []string{"never.used"}},
		"later":      {Subjects: []string{"later"}, FirstSeq: 1000},
		"memory":     {Subjects: []string{"memory"}, Storage: jetstream.MemoryStorage},
		"mirror":     {Mirror: &jetstream.StreamSource{Name: origin}},
		"sourced":    {Sources: []*jetstream.StreamSource{{Name: origin}}},
		"mapped":     {Subjects: []string{"mapped.*"}, SubjectTransform: &jetstream.SubjectTransformConfig{Source: "mapped.*", Destination: "other.{{wildcard(1)}}"}},
	} {
		t.Run(name, func(t *testing.T) {
			cfg.Name = testnats.Name(t)
			s, err := js.CreateStream(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			want := uint64(0)
			switch {
			case cfg.Mirror != nil || cfg.Sources != nil:
				testnats.Eventually(t, func() error {
					info, err := s.Info(t.Context())
					if err == nil && info.State.Msgs == 0 {
						err = errors.New("nothing has come yet")
					}
					if err == nil {
						want = info.State.Msgs
					}
					return err
				})
			case cfg.SubjectTransform != nil:
				want = 1
				if _, err := js.Publish(t.Context(), "mapped.x", nil); err != nil {
					t.Fatal(err)
				}
			}
			r := check(t, take(t, nc, cfg.Name))
			if r.Figures.Messages < want || r.Uncovered != nil || len(r.Notes) > 0 {
				t.Errorf("%d messages of %d, notes %q", r.Figures.Messages, want, r.Notes)
			}
		})
	}
}

func TestUncoveredSubjectsAreNoted(t *testing.T) {
	nc := testnats.Single(t).Connect(t)
	stream := testnats.Fill(t, nc, testnats.FillOptions{NoDeletes: true, Messages: 100})
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(30*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	s, err := js.Stream(t.Context(), stream)
	if err != nil {
		t.Fatal(err)
	}
	cfg := s.CachedInfo().Config
	cfg.Subjects = []string{stream + ".packed.*", "new.one"}
	if _, err := js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	r := check(t, take(t, nc, stream))
	if u := r.Uncovered; u == nil || u.Messages != 60 || len(u.Subjects) != 3 || u.Subjects[0].Messages != 20 || len(r.Notes) != 1 {
		t.Errorf("%+v, %q", u, r.Notes)
	}
}

// editJSON changes a JSON file as a map.
func editJSON(t *testing.T, dir, name string, edit func(map[string]any)) {
	t.Helper()
	var v map[string]any
	d := json.NewDecoder(bytes.NewReader(read(t, dir, name)))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	edit(v)
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	write(t, data, dir, name)
}

func TestUnsoundBackups(t *testing.T) {
	nc := testnats.Single(t).Connect(t)
	stream := testnats.Fill(t, nc, testnats.FillOptions{TTL: time.Hour, Consumers: true})
	dir := take(t, nc, stream)
	other := take(t, nc, testnats.Fill(t, nc, testnats.FillOptions{Messages: 30}))
	archive := read(t, dir, format.ArchiveV2Name)
	figure := func(name string, v any) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			editJSON(t, dir, format.ManifestName, func(m map[string]any) { m["figures"].(map[string]any)[name] = v })
		}
	}
	object := func(name string, v any) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			editJSON(t, dir, format.ManifestName, func(m map[string]any) { m["objects"].([]any)[0].(map[string]any)[name] = v })
		}
	}
	for name, c := range map[string]struct {
		plain bool // without manifest
		edit  func(t *testing.T, dir string)
		is    error
		text  string
	}{
		"cut": {true, func(t *testing.T, dir string) { write(t, archive[:len(archive)-1], dir, format.ArchiveV2Name) },
			format.ErrTruncated, "ends inside an S2 chunk at byte"},
		"empty": {true, func(t *testing.T, dir string) { write(t, nil, dir, format.ArchiveV2Name) }, format.ErrTruncated, "no data at all"},
		"flipped": {false, func(t *testing.T, dir string) {
			a := slices.Clone(archive)
			a[len(a)/2] ^= 1
			write(t, a, dir, format.ArchiveV2Name)
		}, format.ErrCorrupt, "at byte"},
		"garbage behind it": {true, func(t *testing.T, dir string) {
			write(t, append(slices.Clone(archive), "x"...), dir, format.ArchiveV2Name)
		}, format.ErrCorrupt, "behind the end marker"},
		"another stream's archive": {true, func(t *testing.T, dir string) {
			write(t, read(t, other, format.ArchiveV2Name), dir, format.ArchiveV2Name)
		}, format.ErrMismatch, "last_seq is 500"},
		"same size, another content": {false, func(t *testing.T, dir string) {
			// A valid archive: padding in place of what a bit less padding was.
			a := append(slices.Clone(archive), "\xfe\x04\x00\x00abcd"...)
			write(t, a, dir, format.ArchiveV2Name)
			object("bytes", len(a))(t, dir)
		}, format.ErrMismatch, "SHA-256"},
		"raw bytes":     {false, object("raw_bytes", 1), format.ErrMismatch, "decompressed"},
		"digest":        {false, object("sha256", "00"), format.ErrMismatch, "the manifest says 00"},
		"last sequence": {false, object("last_seq", 7), format.ErrMismatch, "sequences"},
		"messages":      {false, figure("messages", 1), format.ErrMismatch, "messages is 1 in the manifest"},
		"consumers":     {false, figure("consumers", nil), format.ErrMismatch, "consumers is absent in the manifest"},
		"ttl":           {false, figure("ttl", map[string]any{"messages": 0}), format.ErrMismatch, "ttl is"},
		"time":          {false, figure("last_ts", "2020-01-01T00:00:00Z"), format.ErrMismatch, "last_ts"},
		"format": {false, func(t *testing.T, dir string) {
			editJSON(t, dir, format.ManifestName, func(m map[string]any) { m["format"] = "v3" })
		}, format.ErrMismatch, "v3"},
		"no consumers": {false, func(t *testing.T, dir string) {
			editJSON(t, dir, format.ManifestName, func(m map[string]any) { m["no_consumers"] = true })
		}, format.ErrMismatch, "left out"},
		"stream of manifest": {false, func(t *testing.T, dir string) {
			editJSON(t, dir, format.ManifestName, func(m map[string]any) { m["stream"] = "OTHER" })
		}, format.ErrMismatch, `"OTHER"`},
	} {
		t.Run(name, func(t *testing.T) {
			var without []string
			if c.plain {
				without = append(without, format.ManifestName)
			}
			dir := copyOf(t, dir, without...)
			c.edit(t, dir)
			r, err := verify.Check(t.Context(), open(t, dir))
			var unsound *verify.UnsoundError
			if r != nil || !errors.As(err, &unsound) || !errors.Is(err, c.is) {
				t.Fatalf("%+v, %v", r, err)
			}
			if unsound.Location != dir || unsound.Stream != stream && name != "stream of manifest" {
				t.Errorf("%+v", unsound)
			}
			if !strings.Contains(err.Error(), c.text) || !strings.Contains(err.Error(), dir) {
				t.Errorf("%v", err)
			}
			if _, damaged := errors.AsType[*format.DamageError](err); damaged == errors.Is(err, format.ErrMismatch) {
				t.Errorf("the damage can't be reached: %v", err)
			}
		})
	}
}

func TestArchiveInSeveralObjects(t *testing.T) {
	nc := testnats.Single(t).Connect(t)
	dir := copyOf(t, take(t, nc, testnats.Fill(t, nc, testnats.FillOptions{})))
	archive := read(t, dir, format.ArchiveV2Name)
	first, second := archive[:1000], archive[1000:]
	if err := os.Remove(filepath.Join(dir, format.ArchiveV2Name)); err != nil {
		t.Fatal(err)
	}
	write(t, first, dir, "part-1")
	write(t, second, dir, "part-2")
	b := repoManifest(t, dir)
	o := b.Objects[0]
	b.Objects = []format.ArchiveObject{
		{Key: "part-1", Bytes: int64(len(first)), SHA256: sum(first), RawBytes: 10, FirstSeq: o.FirstSeq, LastSeq: 9},
		{Key: "part-2", Bytes: int64(len(second)), SHA256: sum(second), RawBytes: o.RawBytes - 10, FirstSeq: 10, LastSeq: o.LastSeq},
	}
	saveManifest(t, dir, b)
	if r := check(t, dir); r.SHA256 != sum(archive) || r.Bytes != int64(len(archive)) {
		t.Errorf("%+v", r)
	}
	b.Objects[1].SHA256 = sum(first)
	saveManifest(t, dir, b)
	if _, err := verify.Check(t.Context(), open(t, dir)); !errors.Is(err, format.ErrMismatch) || !strings.Contains(err.Error(), "part-2") {
		t.Errorf("%v", err)
	}
}

func TestV1IsItsOwnError(t *testing.T) {
	nc := testnats.Single(t).Connect(t)
	dir := copyOf(t, take(t, nc, testnats.Fill(t, nc, testnats.FillOptions{})), format.ManifestName)
	if err := os.Rename(filepath.Join(dir, format.ArchiveV2Name), filepath.Join(dir, format.ArchiveV1Name)); err != nil {
		t.Fatal(err)
	}
	_, err := verify.Check(t.Context(), open(t, dir))
	if _, unsound := errors.AsType[*verify.UnsoundError](err); unsound || !errors.Is(err, verify.ErrV1) || !strings.Contains(err.Error(), dir) {
		t.Errorf("%v", err)
	}
}

func TestTroubleWithReadingSaysNothingAboutTheBackup(t *testing.T) {
	nc := testnats.Single(t).Connect(t)
	b := open(t, take(t, nc, testnats.Fill(t, nc, testnats.FillOptions{})))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := verify.Check(ctx, b)
	if _, unsound := errors.AsType[*verify.UnsoundError](err); unsound || !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

func TestProgressIsReported(t *testing.T) {
	nc := testnats.Single(t).Connect(t)
	b := open(t, take(t, nc, testnats.Fill(t, nc, testnats.FillOptions{})))
	if _, err := (verify.Options{Progress: func(verify.Progress) {}}).Check(t.Context(), b); err != nil {
		t.Error(err)
	}
}
