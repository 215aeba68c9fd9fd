package embedded

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nats-io/nats-server/v2/server"
)

// What a directory, an account or a stream isn't.
var (
	ErrNotStoreDir = errors.New("not a store directory of a nats-server")
	ErrNoAccount   = errors.New("no such account in the store directory")
	ErrNoStream    = errors.New("no such stream in the store directory")
)

// ClusteredError says that a store directory belongs to a node of a cluster.
type ClusteredError struct{ Dir string }

func (e *ClusteredError) Error() string {
	return fmt.Sprintf("store directory %s belongs to a node of a cluster, which would delete a stream that it finds there "+
		"and doesn't know: restore over a connection to the running cluster", e.Dir)
}

// CheckDir checks that dir is a server's store_dir, which holds jetstream/.
func CheckDir(dir string) error {
	if isDir(filepath.Join(dir, server.JetStreamStoreDir)) {
		return nil
	}
	return notStoreDir(dir)
}

// CheckTarget checks that dir is a store directory, or can become one: an empty
// directory, or a missing one whose parent exists.
func CheckTarget(dir string) error {
	if isDir(filepath.Join(dir, server.JetStreamStoreDir)) {
		return checkUnclustered(dir)
	}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		if parent := filepath.Dir(filepath.Clean(dir)); !isDir(parent) {
			return fmt.Errorf("%s: %w: there is no directory %s to make it in", dir, ErrNotStoreDir, parent)
		}
		return nil
	}
	// A disk's own directory doesn't count.
	entries = slices.DeleteFunc(entries, func(e os.DirEntry) bool { return e.Name() == "lost+found" })
	if err == nil && len(entries) == 0 {
		return nil
	}
	return notStoreDir(dir)
}

// checkUnclustered looks for the log of a cluster's metadata.
func checkUnclustered(dir string) error {
	root := filepath.Join(dir, server.JetStreamStoreDir)
	accounts, err := subdirectories(root)
	for _, name := range accounts {
		if isDir(filepath.Join(root, name, "_js_", "_meta_")) {
			return &ClusteredError{dir}
		}
	}
	return err
}

func isDir(path string) bool {
	fi, err := os.Stat(path)
	return err == nil && fi.IsDir()
}

// notStoreDir says what dir is instead, and what to name in its place.
func notStoreDir(dir string) error {
	fi, err := os.Stat(dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("%s: %w: there is no such directory", dir, ErrNotStoreDir)
	case err != nil:
		return fmt.Errorf("%s: %w: %w", dir, ErrNotStoreDir, err)
	case !fi.IsDir():
		return fmt.Errorf("%s: %w: it is a file", dir, ErrNotStoreDir)
	}
	path, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	if what, root := insideJetStream(path); root != "" {
		return fmt.Errorf("%s: %w: it is %s; give %s", dir, ErrNotStoreDir, what, root)
	}
	names, _ := subdirectories(path)
	for _, name := range names {
		if isDir(filepath.Join(path, name, server.JetStreamStoreDir)) {
			return fmt.Errorf("%s: %w: it has no directory %s, but %s has", dir, ErrNotStoreDir, server.JetStreamStoreDir, filepath.Join(dir, name))
		}
	}
	return fmt.Errorf("%s: %w: it has no directory %s (give the server's store_dir)", dir, ErrNotStoreDir, server.JetStreamStoreDir)
}

// insideJetStream tells what a path below a store directory is, and returns the
// store directory.
func insideJetStream(path string) (what, root string) {
	whats := []string{
		"the directory jetstream inside of a store directory", "an account's directory in a store directory",
		"an account's streams in a store directory", "a stream's directory in a store directory",
	}
	depth := 0
	for at := path; at != filepath.Dir(at); at = filepath.Dir(at) {
		if filepath.Base(at) == server.JetStreamStoreDir {
			if accounts, err := Accounts(filepath.Dir(at)); err != nil || len(accounts) == 0 {
				return "", ""
			}
			if depth >= len(whats) {
				return "a part of a stream's directory in a store directory", filepath.Dir(at)
			}
			return whats[depth], filepath.Dir(at)
		}
		depth++
	}
	return "", ""
}

// ChooseAccount returns the account to open: the named one or, when the name is
// empty, the only one that has streams, or else $G.
func ChooseAccount(storeDir, name string) (string, error) {
	if strings.ContainsAny(name, `/\`) || strings.HasPrefix(name, ".") {
		return "", fmt.Errorf("%w: %q can't be the name of one", ErrNoAccount, name)
	}
	all, err := Accounts(storeDir)
	if err != nil || name != "" {
		return name, err
	}
	var used []string
	for _, account := range all {
		dirs, err := StreamDirs(storeDir, account)
		if err != nil {
			return "", err
		}
		if len(dirs) > 0 {
			used = append(used, account)
		}
	}
	switch {
	case len(used) == 1:
		return used[0], nil
	case len(used) > 1:
		return "", fmt.Errorf("%w: none is named, and several have streams: %s", ErrNoAccount, strings.Join(used, ", "))
	case len(all) == 1:
		return all[0], nil
	}
	return GlobalAccount, nil
}

// findStream returns the stream's directory, or says which streams there are.
func findStream(storeDir, account, stream string) (string, error) {
	accounts, err := Accounts(storeDir)
	if err != nil {
		return "", err
	}
	if !slices.Contains(accounts, account) {
		return "", fmt.Errorf("%w: %q; there %s", ErrNoAccount, account, listed("account", accounts))
	}
	dirs, err := StreamDirs(storeDir, account)
	if err != nil {
		return "", err
	}
	var names []string
	for _, dir := range dirs {
		if filepath.Base(dir) == stream {
			return dir, nil
		}
		names = append(names, filepath.Base(dir))
	}
	return "", fmt.Errorf("%w: %q in account %s; there %s (a memory stream isn't on disk)", ErrNoStream, stream, account, listed("stream", names))
}

// listed is "are the streams A, B and 3 more".
func listed(kind string, names []string) string {
	const most = 20
	switch {
	case len(names) == 0:
		return "is none"
	case len(names) == 1:
		return fmt.Sprintf("is the %s %s", kind, names[0])
	case len(names) > most:
		return fmt.Sprintf("are the %ss %s and %d more", kind, strings.Join(names[:most], ", "), len(names)-most)
	}
	return fmt.Sprintf("are the %ss %s", kind, strings.Join(names, ", "))
}

// ChooseCipher returns the cipher to open an account's directory with, so that
// the server encrypts nothing there anew: the one that its streams have, or want
// if there are none. It refuses a key that doesn't fit, or that streams in plain
// text would be encrypted with.
func ChooseCipher(storeDir, account, key, want string) (string, error) {
	if want == "chacha" {
		want = CipherChaCha
	}
	dirs, err := StreamDirs(storeDir, account)
	if err != nil {
		return "", err
	}
	found := ""
	for _, dir := range dirs {
		a := asset{dir: dir, account: account, stream: filepath.Base(dir)}
		m, err := a.read(key)
		switch {
		case isKeyError(err):
			return "", err
		case err != nil:
			continue // the server will say so
		case m.sealed == nil && key != "":
			return "", &KeyError{a.stream, "it isn't encrypted, and a server with a key would encrypt it: give none"}
		case m.sealed == nil:
			continue
		case found != "" && found != m.sealed.cipher:
			return "", &KeyError{a.stream, fmt.Sprintf("it is encrypted with %s and others with %s: a server would encrypt one of them anew", m.sealed.cipher, found)}
		}
		found = m.sealed.cipher
		if want != "" && want != found {
			return "", &KeyError{a.stream, fmt.Sprintf("it is encrypted with %s: a server with %s would encrypt it anew", found, want)}
		}
	}
	return cmp.Or(found, want), nil
}

// made remembers what of a directory was there before a server opened it.
type made struct {
	root    string
	existed map[string]bool
}

func remember(root string) *made {
	m := &made{root: root, existed: map[string]bool{}}
	for _, path := range m.paths() {
		m.existed[path] = true
	}
	return m
}

// paths lists the directory and those that a server makes in it by opening it,
// the deepest first.
func (m *made) paths() []string {
	paths := []string{m.root}
	for _, pattern := range [][]string{{"*"}, {server.JetStreamStoreDir, "*"}, {server.JetStreamStoreDir, "*", "*"}} {
		found, _ := filepath.Glob(filepath.Join(append([]string{globQuote(m.root)}, pattern...)...))
		paths = append(paths, found...)
	}
	slices.Reverse(paths)
	return slices.DeleteFunc(paths, func(path string) bool { return !isDir(path) })
}

// globQuote takes the meaning out of a path's special characters.
func globQuote(path string) string {
	if os.PathSeparator == '\\' {
		return path // no way to quote there
	}
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(path)
}

// remove removes what wasn't there before and is empty.
func (m *made) remove() error {
	var errs []error
	for _, path := range m.paths() {
		if m.existed[path] {
			continue
		}
		if entries, err := os.ReadDir(path); err != nil || len(entries) > 0 {
			continue
		}
		errs = append(errs, os.Remove(path))
	}
	return errors.Join(errs...)
}
