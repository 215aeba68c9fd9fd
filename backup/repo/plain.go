package repo

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/jetkeep/jetkeep/format"
)

// OpenPlain opens a backup in a directory of its own: ours, with a manifest, or
// one of the nats CLI. What isn't one is ErrNotBackup, and the text says what
// it is and what to do; if it is one with something missing or broken, the
// error is ErrDamaged too.
func OpenPlain(path string) (*Backup, error) {
	ctx := context.Background()
	dir, err := NewDir(path)
	if err != nil {
		return nil, err
	}
	if err := checkPlain(path, dir.root); err != nil {
		return nil, err
	}
	b := &Backup{home: dir}
	data, err := readSmall(ctx, dir, format.ManifestName)
	switch {
	case err == nil:
		b.Manifest, err = parseManifest(data)
		if err != nil {
			err = fmt.Errorf("%s: %w", path, err)
		}
	case errors.Is(err, ErrNotFound):
		b.archive, err = natsArchive(path, dir.root)
	}
	if err == nil {
		err = b.check(ctx)
	}
	if err == nil {
		_, err = b.BackupFile(ctx)
	}
	if errors.Is(err, ErrDamaged) && !errors.Is(err, ErrNotBackup) {
		err = fmt.Errorf("%w: %w", ErrNotBackup, err)
	}
	if err != nil {
		return nil, err
	}
	return b, nil
}

// notBackup explains what is at path instead of a backup.
func notBackup(path, why string, args ...any) error {
	return fmt.Errorf("%s: %w: %w", path, ErrNotBackup, fmt.Errorf(why, args...))
}

// checkPlain refuses what isn't a backup directory.
func checkPlain(path, root string) error {
	fi, err := os.Stat(root)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return notBackup(path, "no such directory (%w)", fs.ErrNotExist)
	case err != nil:
		return err
	case !fi.IsDir() && isPart(filepath.Base(root)):
		return notBackup(path, "a file of one: name its directory, %s", filepath.Dir(path))
	case !fi.IsDir():
		return notBackup(path, "a file, where the directory with %s is expected", format.BackupFileName)
	case isFile(root, configName):
		return notBackup(path, "a repository: use --repo %s and a stream's name", path)
	case !isFile(root, format.BackupFileName):
		return checkNeighbours(path, root)
	case isFile(root, format.ManifestName):
		return nil
	case isFile(root, lockName), isFile(filepath.Dir(filepath.Dir(root)), configName):
		return notBackup(path, "an unfinished one: it has no %s", format.ManifestName)
	}
	return nil
}

// checkNeighbours explains a directory without backup.json.
func checkNeighbours(path, root string) error {
	for _, name := range []string{format.ManifestName, format.ArchiveV2Name, format.ArchiveV1Name} {
		if isFile(root, name) {
			return notBackup(path, "%w: it has %s, but %s is missing", ErrDamaged, name, format.BackupFileName)
		}
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		return err
	}
	var names []string
	for _, e := range entries {
		if isFile(filepath.Join(root, e.Name()), format.BackupFileName) {
			names = append(names, filepath.Join(path, e.Name()))
		}
	}
	switch n := len(names); {
	case n > 0 && isFile(filepath.Dir(root), configName):
		return notBackup(path, "backups of a stream in a repository: use --repo %s and the stream's name, %s", filepath.Dir(root), streamName(filepath.Base(root)))
	case n > 3:
		names = append(names[:3], "…")
		fallthrough
	case n > 0:
		return notBackup(path, "the parent directory of %d: name one, such as %s", n, strings.Join(names, ", "))
	}
	return notBackup(path, "it has no %s", format.BackupFileName)
}

// natsArchive finds the archive that belongs to a backup.json without manifest.
func natsArchive(path, root string) (string, error) {
	v2, v1 := isFile(root, format.ArchiveV2Name), isFile(root, format.ArchiveV1Name)
	switch {
	case v1 && v2:
		return "", notBackup(path, "%w: two archives, %s and %s: remove the one that doesn't belong to %s", ErrDamaged, format.ArchiveV2Name, format.ArchiveV1Name, format.BackupFileName)
	case v2:
		return format.ArchiveV2Name, nil
	case v1:
		return format.ArchiveV1Name, nil
	}
	return "", notBackup(path, "%w: the archive is missing, %s or %s", ErrDamaged, format.ArchiveV2Name, format.ArchiveV1Name)
}

func isPart(name string) bool {
	switch name {
	case format.BackupFileName, format.ManifestName, format.ArchiveV1Name, format.ArchiveV2Name:
		return true
	}
	return false
}

func isFile(dir, name string) bool {
	fi, err := os.Stat(filepath.Join(dir, name))
	return err == nil && fi.Mode().IsRegular()
}
