package repo_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jetkeep/jetkeep/backup/repo"
	"github.com/jetkeep/jetkeep/format"
)

// natsDir writes what the nats CLI would.
func natsDir(t *testing.T, dir, archive string) {
	writeFile(t, filepath.Join(dir, format.BackupFileName), backupJSON("S"))
	writeFile(t, filepath.Join(dir, archive), "the archive")
}

func TestOpenPlainReadsWhatNatsWrote(t *testing.T) {
	for archive, version := range map[string]string{format.ArchiveV2Name: "v2", format.ArchiveV1Name: "v1"} {
		dir := t.TempDir()
		natsDir(t, dir, archive)
		writeFile(t, filepath.Join(dir, "README"), "anything else doesn't matter")
		b, err := repo.OpenPlain(dir)
		if err != nil {
			t.Fatal(err)
		}
		if b.Manifest != nil || b.Format() != version || b.Location() != dir {
			t.Errorf("%v, %s, %s", b.Manifest, b.Format(), b.Location())
		}
		sound(t, b, "the archive")
	}
}

func TestOpenPlainOpensABackupOfARepository(t *testing.T) {
	r, _ := newRepo(t)
	b, err := repo.OpenPlain(take(t, r, "S", start, "x").Location())
	if err != nil {
		t.Fatal(err)
	}
	sound(t, b, "x")
}

func TestOpenPlainExplainsTheWrongThing(t *testing.T) {
	at := func(t *testing.T, dir, name, data string) { writeFile(t, filepath.Join(dir, name), data) }
	for _, c := range []struct {
		name string
		make func(t *testing.T, dir string) string // returns the path to open
		also error
		text []string
	}{
		{"missing path", func(t *testing.T, dir string) string { return dir + "/x" }, fs.ErrNotExist, []string{"/x: ", "no such directory"}},
		{"random directory", func(t *testing.T, dir string) string { at(t, dir, "x", ""); at(t, dir, "d/e", ""); return dir }, nil, []string{"no backup.json"}},
		{"file", func(t *testing.T, dir string) string { at(t, dir, "x", ""); return dir + "/x" }, nil, []string{"a file", "directory with backup.json"}},
		{"archive file", func(t *testing.T, dir string) string {
			natsDir(t, dir, format.ArchiveV2Name)
			return dir + "/" + format.ArchiveV2Name
		}, nil, []string{"name its directory"}},
		{"parent of two", func(t *testing.T, dir string) string {
			natsDir(t, dir+"/A", format.ArchiveV2Name)
			natsDir(t, dir+"/B", format.ArchiveV1Name)
			return dir
		}, nil, []string{"parent directory of 2", "/A, ", "/B"}},
		{"parent of many", func(t *testing.T, dir string) string {
			for _, n := range []string{"A", "B", "C", "D", "E"} {
				natsDir(t, dir+"/"+n, format.ArchiveV2Name)
			}
			return dir
		}, nil, []string{"parent directory of 5", "/C, …"}},
		{"repository", func(t *testing.T, dir string) string { repo.InitDir(dir); return dir }, nil, []string{"a repository", "--repo"}},
		{"stream in a repository", func(t *testing.T, dir string) string {
			r, _ := repo.InitDir(dir)
			take(t, r, "a b", start, "x")
			return dir + "/a%20b"
		}, nil, []string{"--repo", "a b"}},
		{"two archives", func(t *testing.T, dir string) string {
			natsDir(t, dir, format.ArchiveV2Name)
			natsDir(t, dir, format.ArchiveV1Name)
			return dir
		}, repo.ErrDamaged, []string{format.ArchiveV2Name, format.ArchiveV1Name}},
		{"two archives and a manifest", func(t *testing.T, dir string) string {
			natsDir(t, dir, format.ArchiveV2Name)
			natsDir(t, dir, format.ArchiveV1Name)
			putManifest(t, dir, manifest(repo.NewID(start), "S", "the archive"))
			return dir
		}, repo.ErrDamaged, []string{format.ArchiveV1Name}},
		{"archive missing", func(t *testing.T, dir string) string {
			at(t, dir, format.BackupFileName, backupJSON("S"))
			return dir
		}, repo.ErrDamaged, []string{"archive is missing"}},
		{"archive of the manifest missing", func(t *testing.T, dir string) string {
			natsDir(t, dir, format.ArchiveV1Name)
			putManifest(t, dir, manifest(repo.NewID(start), "S", "the archive"))
			return dir
		}, repo.ErrDamaged, []string{format.ArchiveV2Name}},
		{"backup.json missing", func(t *testing.T, dir string) string { at(t, dir, format.ArchiveV2Name, "x"); return dir }, repo.ErrDamaged, []string{"backup.json is missing"}},
		{"backup.json empty", func(t *testing.T, dir string) string {
			natsDir(t, dir, format.ArchiveV2Name)
			at(t, dir, format.BackupFileName, "")
			return dir
		}, repo.ErrDamaged, []string{"is empty"}},
		{"backup.json broken", func(t *testing.T, dir string) string {
			natsDir(t, dir, format.ArchiveV2Name)
			at(t, dir, format.BackupFileName, backupJSON("S")[:20])
			return dir
		}, repo.ErrDamaged, []string{format.BackupFileName}},
		{"backup.json changed", func(t *testing.T, dir string) string {
			natsDir(t, dir, format.ArchiveV2Name)
			putManifest(t, dir, manifest(repo.NewID(start), "S", "the archive"))
			at(t, dir, format.BackupFileName, backupJSON("T"))
			return dir
		}, repo.ErrDamaged, []string{"SHA-256"}},
		{"manifest broken", func(t *testing.T, dir string) string {
			natsDir(t, dir, format.ArchiveV2Name)
			at(t, dir, format.ManifestName, "{")
			return dir
		}, repo.ErrDamaged, []string{format.ManifestName}},
		{"unfinished", func(t *testing.T, dir string) string {
			natsDir(t, dir, format.ArchiveV2Name)
			at(t, dir, ".lock", "")
			return dir
		}, nil, []string{"unfinished"}},
		{"unfinished in a repository", func(t *testing.T, dir string) string {
			repo.InitDir(dir)
			sub := filepath.Join(dir, "S", repo.NewID(start))
			natsDir(t, sub, format.ArchiveV2Name)
			return sub
		}, nil, []string{"unfinished"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := repo.OpenPlain(c.make(t, t.TempDir()))
			wantErr(t, err, repo.ErrNotBackup, c.text...)
			if c.also != nil {
				wantErr(t, err, c.also)
			}
		})
	}
	if _, err := repo.OpenPlain(""); err == nil {
		t.Error("an empty path")
	}
}

func TestPlainBackup(t *testing.T) {
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty")
	os.Mkdir(empty, 0o755)
	for _, target := range []string{filepath.Join(dir, "new"), empty, filepath.Join(dir, strings.Repeat("l", 250))} {
		p, err := repo.BeginPlain(target)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := write(t.Context(), p, "S", "the archive"); err != nil {
			t.Fatal(err)
		}
		if err := p.Abort(); err != nil { // does nothing
			t.Error(err)
		}
		b, err := repo.OpenPlain(target)
		if err != nil {
			t.Fatal(err)
		}
		sound(t, b, "the archive")
		if left := tree(t, target); len(left) != 3 {
			t.Errorf("%q", left)
		}
		if fi, _ := os.Stat(target); fi.Mode().Perm() != 0o700 {
			t.Errorf("%o", fi.Mode().Perm())
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".*")); len(left) > 0 {
		t.Errorf("left %q", left)
	}
}

func TestBeginPlainRefuses(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "full", "x"), "")
	for name, want := range map[string]error{"full": repo.ErrExists, "full/x": repo.ErrExists, "missing/x": fs.ErrNotExist} {
		_, err := repo.BeginPlain(filepath.Join(dir, name))
		wantErr(t, err, want, dir)
	}
}

// What others put there meanwhile is never overwritten.
func TestPlainTargetTakenMeanwhile(t *testing.T) {
	target := filepath.Join(t.TempDir(), "out")
	p, err := repo.BeginPlain(target)
	if err != nil {
		t.Fatal(err)
	}
	other, err := repo.BeginPlain(target) // doesn't remove the living one
	if err != nil {
		t.Fatal(err)
	}
	if _, err := write(t.Context(), other, "S", "other"); err != nil {
		t.Fatal(err)
	}
	_, err = write(t.Context(), p, "S", "mine")
	wantErr(t, err, repo.ErrExists, target)
	if err := p.Abort(); err != nil {
		t.Error(err)
	}
	b, err := repo.OpenPlain(target)
	if err != nil {
		t.Fatal(err)
	}
	sound(t, b, "other")
}
