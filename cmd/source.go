package cmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/jetkeep/jetkeep/backup/repo"
	"github.com/jetkeep/jetkeep/internal/tarfile"
	"github.com/jetkeep/jetkeep/internal/ui"
)

const stdinName = "standard input"

// source is the backup that an argument names.
type source struct {
	*repo.Backup
	// Name is how a person calls it: "ORDERS@ID", the path, "standard input".
	Name    string
	spool   string // its directory, if that's a temporary one
	cleanup func() error
}

// Close removes what had to be spooled.
func (s *source) Close() error {
	if s.cleanup == nil {
		return nil
	}
	return cleanedUp(s.cleanup())
}

// explain has an error about what was spooled speak of standard input.
func (s *source) explain(err error) error {
	if err == nil || s.spool == "" {
		return err
	}
	return &spoolError{s.spool, err}
}

// spoolError names standard input where its error has a temporary directory.
type spoolError struct {
	dir string
	err error
}

func (e *spoolError) Error() string {
	text := strings.ReplaceAll(e.err.Error(), e.dir+string(filepath.Separator), stdinName+": ")
	return strings.ReplaceAll(text, e.dir, stdinName)
}

func (e *spoolError) Unwrap() error { return e.err }

// openSource finds the backup that an argument names: STREAM, STREAM@latest or
// STREAM@ID in the repository, the path of a directory, or - for a tar on
// standard input.
func openSource(ctx context.Context, p *printer, arg string, r repoFlag) (*source, error) {
	switch {
	case arg == "":
		return nil, usagef("the argument is empty: name a stream, a directory or -")
	case arg == "-":
		return unpackSource(ctx, p, r)
	case isPath(arg):
		if r.path != "" {
			return nil, usagef("%s is a path, and --repo %s a repository: give one of them", arg, r.path)
		}
		b, err := repo.OpenPlain(arg)
		if err != nil {
			return nil, err
		}
		return &source{Backup: b, Name: arg}, nil
	}
	home, err := openRepository(r, arg)
	if err != nil {
		return nil, err
	}
	stream, id := repo.ParseRef(arg)
	b, err := home.Find(ctx, stream, id)
	if err != nil {
		return nil, &streamError{stream, err}
	}
	return &source{Backup: b, Name: stream + "@" + b.Manifest.ID}, nil
}

func unpackSource(ctx context.Context, p *printer, r repoFlag) (*source, error) {
	if r.path != "" {
		return nil, usagef("- is standard input, and --repo %s a repository: give one of them", r.path)
	}
	if ui.IsTerminal(p.std.In) {
		return nil, usagef("standard input is a terminal, where a tar from `jetkeep backup -o -` is expected")
	}
	dir, cleanup, err := tarfile.Unpack(ctx, p.std.In)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", stdinName, err)
	}
	b, err := repo.OpenPlain(dir)
	if err != nil {
		return nil, errors.Join(&spoolError{dir, err}, cleanedUp(cleanup()))
	}
	b.SetLabel(stdinName) // where it has been spooled to means nothing to anybody
	return &source{Backup: b, Name: stdinName, spool: dir, cleanup: cleanup}, nil
}

// jsonLocation is a backup's location for JSON, where standard input is -.
func jsonLocation(location string) string {
	if location == stdinName {
		return "-"
	}
	return location
}

// isPath tells a path from a stream's name, which holds none of these.
func isPath(arg string) bool {
	return strings.HasPrefix(arg, ".") || strings.Contains(arg, "/") ||
		runtime.GOOS == "windows" && strings.Contains(arg, `\`)
}

// openRepository opens the repository. arg, if not empty, is what the user
// wants to find in it.
func openRepository(r repoFlag, arg string) (*repo.Repository, error) {
	path, err := repositoryPath(r, arg)
	if err != nil {
		return nil, err
	}
	return repo.OpenDir(path)
}

// repositoryPath returns the path of the repository that was named.
func repositoryPath(r repoFlag, arg string) (string, error) {
	path := r.value()
	switch {
	case path == "":
		if fi, err := os.Stat(arg); arg != "" && err == nil && fi.IsDir() {
			return "", usagef("no repository is named: give --repo or set JETKEEP_REPO (for the directory here, write ./%s)", arg)
		}
		return "", usagef("no repository is named: give --repo or set JETKEEP_REPO")
	case strings.Contains(path, "://"):
		return "", usagef("%s is a URL; this version keeps repositories in directories only", path)
	}
	return path, nil
}
