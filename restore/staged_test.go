package restore_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jetkeep/jetkeep/backup"
	"github.com/jetkeep/jetkeep/backup/repo"
	"github.com/jetkeep/jetkeep/format"
	"github.com/jetkeep/jetkeep/internal/testnats"
	"github.com/jetkeep/jetkeep/restore"
)

// What a killed restore left looks like a stream, and must not become a backup,
// nor one that was taken of it a restored stream.
func TestStagedStreamsAreNoBackups(t *testing.T) {
	t.Parallel()
	nc := testnats.Single(t).Connect(t)
	stream := testnats.Fill(t, nc, testnats.FillOptions{Messages: 20})
	js := client(t, nc)
	info, err := js.StreamInfo(ctx(t), stream)
	if err != nil {
		t.Fatal(err)
	}
	good := take(t, nc, stream)
	cfg := info.Config.Clone()
	cfg.Set("metadata", map[string]string{format.MarkerID: "R1", format.MarkerBackup: stream + "@ID", format.MarkerState: "staged"})
	if _, err := js.UpdateStream(ctx(t), cfg); err != nil {
		t.Fatal(err)
	}
	r, err := repo.InitDir(t.TempDir() + "/repo")
	if err != nil {
		t.Fatal(err)
	}
	_, err = backup.Take(ctx(t), nc, func(ctx context.Context, stream string, start time.Time) (repo.Writer, error) {
		return r.Begin(ctx, stream, start)
	}, backup.Options{Stream: stream})
	if !errors.Is(err, format.ErrBeingRestored) || !strings.Contains(err.Error(), "R1") {
		t.Errorf("a backup of a staged stream: %v", err)
	}
	if names, err := r.Streams(ctx(t)); err != nil || len(names) > 0 {
		t.Errorf("%v, %v", names, err)
	}

	// One that another tool has taken.
	dir := filepath.Join(t.TempDir(), "plain")
	if err := os.CopyFS(dir, os.DirFS(good.Location())); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, format.ManifestName)); err != nil {
		t.Fatal(err)
	}
	file, err := good.BackupFile(ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	file.Config = cfg
	data, err := json.Marshal(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, format.BackupFileName), data, 0o600); err != nil {
		t.Fatal(err)
	}
	b, err := repo.OpenPlain(dir)
	if err == nil {
		_, err = restore.Prepare(ctx(t), nc, b, restore.Options{As: "OTHER"})
	}
	if !errors.Is(err, format.ErrBeingRestored) || !errors.Is(err, repo.ErrDamaged) {
		t.Errorf("a backup that was taken of one: %v", err)
	}
}
