package embedded

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// ErrChanged says that files changed while they were copied.
var ErrChanged = errors.New("the directory changed while it was copied: something uses it")

// CopyOptions say what to copy out of a store directory, and how to open the copy.
type CopyOptions struct {
	StoreDir string
	// Account is the account's name; see ChooseAccount.
	Account string
	// Key opens an encrypted store. Which cipher it has is found out.
	Key string
	// TempDir is where the copy goes. Empty: the system's directory for
	// temporary files.
	TempDir string
	// Log gets all that the server logs, except debugging. Nil: nothing.
	Log *slog.Logger
	// Progress is called for each file; it may be nil.
	Progress func(done, total int64)
}

// Copy is a server on a copy of one stream.
type Copy struct {
	*Server
	// Original is what the stream was before its copy was neutralised.
	Original *Original
	account  string
	stream   string
	temp     string
	blocks   map[string]fs.FileInfo // as they were copied
}

// DamagedError says that a stream in a store directory isn't whole.
type DamagedError struct {
	Dir, Stream string
	// Reasons, in the server's words where it gave any.
	Reasons []string
}

func (e *DamagedError) Error() string {
	return fmt.Sprintf("stream %q in store directory %s is damaged: %s", e.Stream, e.Dir, strings.Join(e.Reasons, "; "))
}

// OpenCopy copies a stream, and opens the copy with everything switched off that
// would change the stream or reach out. The original is only read.
//
// A stream that the server doesn't recover from the copy is a *DamagedError;
// consumers that it doesn't recover are in Unrecovered.
func OpenCopy(ctx context.Context, o CopyOptions, stream string) (*Copy, error) {
	dir, err := findStream(o.StoreDir, o.Account, stream)
	if err != nil {
		return nil, fmt.Errorf("store directory %s: %w", o.StoreDir, err)
	}
	c := &Copy{account: o.Account, stream: stream}
	if err := c.open(ctx, o, dir); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (c *Copy) open(ctx context.Context, o CopyOptions, dir string) error {
	var err error
	if c.temp, err = os.MkdirTemp(o.TempDir, "jetkeep-store-"); err != nil {
		return err
	}
	to := filepath.Join(c.temp, server.JetStreamStoreDir, o.Account, streamsDir, c.stream)
	if err := copyUnused(ctx, o, dir, to, rebuilt); err != nil {
		return err
	}
	original := asset{dir: to, account: o.Account, stream: c.stream}
	so := Options{StoreDir: c.temp, Accounts: []string{o.Account}, Log: o.Log, MaxStore: Unlimited, MaxMemory: Unlimited, Throwaway: true}
	if original.encrypted() {
		if so.EncryptionKey, so.Cipher, err = original.keyAndCipher(o.Key); err != nil {
			return fmt.Errorf("store directory %s: %w", o.StoreDir, err)
		}
	}
	if c.Original, err = neutralise(to, o.Account, so.EncryptionKey); err != nil {
		return fmt.Errorf("store directory %s: %w", o.StoreDir, err)
	}
	if c.blocks, err = c.listBlocks(); err != nil {
		return err
	}
	if c.Server, err = Start(ctx, so); err != nil {
		return err
	}
	c.stands = o.StoreDir
	for _, u := range c.Unrecovered() {
		if u.Consumer == "" {
			return &DamagedError{Dir: o.StoreDir, Stream: c.stream, Reasons: []string{u.Reason}}
		}
	}
	return nil
}

// keyAndCipher returns how to open an encrypted stream. One whose meta.inf is
// damaged may have either cipher: the server will refuse it anyway.
func (a asset) keyAndCipher(key string) (string, string, error) {
	m, err := a.read(key)
	switch {
	case isKeyError(err):
		return "", "", err
	case err != nil || m.sealed == nil:
		return key, "", nil
	}
	return key, m.sealed.cipher, nil
}

// listBlocks stats the copy's message blocks, by file name.
func (c *Copy) listBlocks() (map[string]fs.FileInfo, error) {
	paths, err := filepath.Glob(filepath.Join(globQuote(c.temp), server.JetStreamStoreDir, "*", streamsDir, "*", "msgs", "*.blk"))
	blocks := map[string]fs.FileInfo{}
	for _, path := range paths {
		fi, serr := os.Stat(path)
		if serr == nil {
			blocks[fi.Name()] = fi
		} else if !errors.Is(serr, fs.ErrNotExist) {
			err = serr
		}
	}
	return blocks, err
}

// Lost returns what of the stream's messages is damaged, empty for nothing. The
// server notices damage when it reads, so this is to be asked once all has been
// read. messages is how many were read.
//
// The server itself says only to those who also want a list of all deleted
// sequences, which can be huge. What it does to its files tells as much: a
// block is cut in place where it stops making sense; and when the blocks end
// before the sequence that the index remembers, a block is added that says so.
func (c *Copy) Lost(ctx context.Context, messages uint64) ([]string, error) {
	nc, err := c.Connect(c.account)
	if err != nil {
		return nil, err
	}
	defer nc.Close()
	var info struct {
		State struct {
			Messages uint64 `json:"messages"`
			LastSeq  uint64 `json:"last_seq"`
		} `json:"state"`
	}
	if err := call(ctx, nc, "STREAM.INFO."+c.stream, 0, &info); err != nil {
		return nil, err
	}
	now, err := c.listBlocks()
	if err != nil {
		return nil, err
	}
	var reasons []string
	for _, name := range sortedKeys(now) {
		before, ok := c.blocks[name]
		switch {
		case !ok && info.State.LastSeq > 0:
			reasons = append(reasons, fmt.Sprintf("its last messages, up to sequence %d, can't be read: their block or its end is missing", info.State.LastSeq))
		case ok && os.SameFile(before, now[name]) && now[name].Size() < before.Size():
			reasons = append(reasons, fmt.Sprintf("the last %d of %d bytes of message block %s can't be read", before.Size()-now[name].Size(), before.Size(), name))
		}
	}
	if messages < info.State.Messages {
		reasons = append(reasons, fmt.Sprintf("%d of %d messages can't be read", info.State.Messages-messages, info.State.Messages))
	}
	return reasons, nil
}

// Doubts are signs of damage that also a server leaves that was killed: blocks
// that the index lists and that aren't there, since all in them was deleted, or
// since they are lost.
func (c *Copy) Doubts() []string {
	var doubts []string
	for _, w := range c.Warnings() {
		if strings.Contains(w, "could not locate msg block") {
			doubts = append(doubts, w)
		}
	}
	return doubts
}

// Close stops the server and removes the copy. It may be called more than once.
func (c *Copy) Close() error {
	if c.Server != nil {
		_ = c.Stop() // nobody needs what it couldn't write
	}
	if c.temp == "" {
		return nil
	}
	return os.RemoveAll(c.temp)
}

// StartOnCopy is Start on a temporary copy of the one account that the options
// name, with the original's room: for finding out what opening the original would
// lead to without touching it. Stop removes the copy. A directory that doesn't
// exist counts as empty.
func StartOnCopy(ctx context.Context, o Options, tempDir string, progress func(done, total int64)) (*Server, error) {
	from := o
	temp, err := os.MkdirTemp(tempDir, "jetkeep-store-")
	if err != nil {
		return nil, err
	}
	o.StoreDir, o.Throwaway = temp, true
	s, err := startOnCopy(ctx, from, o, progress)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(temp))
	}
	s.temp, s.stands = temp, from.StoreDir
	return s, nil
}

func startOnCopy(ctx context.Context, from, o Options, progress func(done, total int64)) (*Server, error) {
	streams := filepath.Join(server.JetStreamStoreDir, o.Accounts[0], streamsDir)
	if path := filepath.Join(from.StoreDir, streams); isDir(path) {
		co := CopyOptions{StoreDir: from.StoreDir, Progress: progress}
		if err := copyUnused(ctx, co, path, filepath.Join(o.StoreDir, streams), nil); err != nil {
			return nil, err
		}
	}
	if !isDir(from.StoreDir) {
		from.StoreDir = filepath.Dir(filepath.Clean(from.StoreDir)) // it would be made there
	}
	var err error
	if o.MaxStore, err = maxStore(from); err != nil {
		return nil, err
	}
	return Start(ctx, o)
}

// rebuilt are files that a copied stream does without: what they say of TTLs,
// schedules and sources is switched off there. Block files and index.db don't
// depend on the configuration, and index.db remembers the last sequence of
// blocks that are damaged.
var rebuilt = []string{"thw.db", "sched.db", "sources.db"}

// file is a file or directory to be copied.
type file struct {
	path string // below the root
	dir  bool
	size int64
	time time.Time
}

// copyUnused copies a tree that nothing else may change meanwhile.
func copyUnused(ctx context.Context, o CopyOptions, from, to string, without []string) error {
	unlock, err := lock(o.StoreDir, false)
	if err != nil {
		return fmt.Errorf("store directory %s: %w", o.StoreDir, err)
	}
	defer unlock()
	if err := checkUnused(o.StoreDir); err != nil {
		return fmt.Errorf("store directory %s: %w", o.StoreDir, err)
	}
	files, err := listTree(from, without)
	if err != nil {
		return err
	}
	if err := checkRoom(files, to, o); err != nil {
		return err
	}
	if err := copyTree(ctx, files, from, to, o.Progress); err != nil {
		return fmt.Errorf("copy %s: %w", from, err)
	}
	if err := checkUnused(o.StoreDir); err != nil {
		return fmt.Errorf("store directory %s: %w", o.StoreDir, err)
	}
	after, err := listTree(from, without)
	if err != nil || !slices.Equal(files, after) {
		return fmt.Errorf("copy %s: %w", from, errors.Join(ErrChanged, err))
	}
	return nil
}

// listTree lists what is below root, and root itself, parents first. Symbolic
// links count as what they point to, as they do for the server.
func listTree(root string, without []string) ([]file, error) {
	var files []file
	var visit func(string) error
	visit = func(path string) error {
		fi, err := os.Stat(filepath.Join(root, path))
		if err != nil {
			return err
		}
		if !fi.IsDir() {
			if fi.Mode().IsRegular() && !slices.Contains(without, fi.Name()) {
				files = append(files, file{path, false, fi.Size(), fi.ModTime()})
			}
			return nil
		}
		files = append(files, file{path, true, 0, fi.ModTime()})
		entries, err := os.ReadDir(filepath.Join(root, path))
		for _, e := range entries {
			if err == nil {
				err = visit(filepath.Join(path, e.Name()))
			}
		}
		return err
	}
	return files, visit(".")
}

func sizeOf(files []file) (n int64) {
	for _, f := range files {
		n += f.size
	}
	return n
}

// checkRoom refuses a copy that the disk hasn't room for.
func checkRoom(files []file, to string, o CopyOptions) error {
	parent := to
	for !isDir(parent) {
		parent = filepath.Dir(parent)
	}
	free, err := diskFree(parent)
	if need := sizeOf(files); err == nil && need > free {
		return fmt.Errorf("a copy of the directory needs %d bytes, and %s has %d free: name another place in TMPDIR: %w",
			need, filepath.Dir(parent), free, ErrNoRoom)
	}
	return err
}

// ErrNoRoom says that a temporary copy wouldn't fit.
var ErrNoRoom = errors.New("too little room for a temporary copy")

func copyTree(ctx context.Context, files []file, from, to string, progress func(done, total int64)) error {
	done, total := int64(0), sizeOf(files)
	if err := os.MkdirAll(to, 0o700); err != nil {
		return err
	}
	for _, f := range files {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		target := filepath.Join(to, f.path)
		if f.dir {
			if err := os.Mkdir(target, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
				return err
			}
			continue
		}
		if err := copyFile(filepath.Join(from, f.path), target); err != nil {
			return err
		}
		done += f.size
		if progress != nil {
			progress(done, total)
		}
	}
	return nil
}

// copyFile copies a file; on Linux the kernel does it, and on some file systems
// the two then share their blocks until one is written to.
func copyFile(from, to string) error {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(dst, src)
	return errors.Join(err, dst.Close())
}
