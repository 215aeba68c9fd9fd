package embedded

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/nats-io/nats-server/v2/server"
)

// The layout of a store directory:
//
//	jetstream/<account>/streams/<stream>/meta.inf, meta.sum, msgs/, obs/<consumer>/meta.inf, …
//
// A directory whose name begins with a dot is a stream that is being removed.
const (
	streamsDir   = "streams"
	consumersDir = "obs"
)

// Accounts lists the accounts that have a directory for streams, sorted. A
// directory that doesn't exist has none.
func Accounts(storeDir string) ([]string, error) {
	root := filepath.Join(storeDir, server.JetStreamStoreDir)
	names, err := subdirectories(root)
	if err != nil {
		return nil, err
	}
	var accounts []string
	for _, name := range names {
		// The system account's directory has raft logs instead.
		if fi, err := os.Stat(filepath.Join(root, name, streamsDir)); err == nil && fi.IsDir() {
			accounts = append(accounts, name)
		}
	}
	return accounts, nil
}

// StreamDirs lists an account's stream directories as paths, sorted. The last
// element of each is the stream's name.
func StreamDirs(storeDir, account string) ([]string, error) {
	return subdirectoryPaths(filepath.Join(storeDir, server.JetStreamStoreDir, account, streamsDir))
}

// ConsumerDirs lists the consumer directories in a stream's directory as paths,
// sorted. The last element of each is the consumer's name.
func ConsumerDirs(streamDir string) ([]string, error) {
	return subdirectoryPaths(filepath.Join(streamDir, consumersDir))
}

func subdirectoryPaths(dir string) ([]string, error) {
	names, err := subdirectories(dir)
	for i := range names {
		names[i] = filepath.Join(dir, names[i])
	}
	return names, err
}

func subdirectories(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// maxStore is the limit that the server gets.
func maxStore(o Options) (int64, error) {
	switch {
	case o.MaxStore == Unlimited:
		return unlimited, nil
	case o.MaxStore != 0:
		return o.MaxStore, nil
	}
	var used int64
	err := walk(filepath.Join(o.StoreDir, server.JetStreamStoreDir), func(_ string, fi fs.FileInfo) error {
		if fi.Mode().IsRegular() {
			used += fi.Size()
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	free, err := diskFree(o.StoreDir)
	if err != nil {
		return 0, err
	}
	// The server takes zero for "work it out yourself".
	return max(1, used+free), nil
}

// walk calls f for everything under root, parents first. What vanishes while
// walking is left out: the server removes deleted streams in the background.
func walk(root string, f func(path string, fi fs.FileInfo) error) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		var fi fs.FileInfo
		if err == nil {
			fi, err = d.Info()
		}
		if err == nil {
			err = f(path, fi)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
}

// syncTree makes all files and directories under root durable, and root's own
// entry in its parent.
func syncTree(root string) error {
	err := walk(root, func(path string, fi fs.FileInfo) error {
		switch {
		case fi.IsDir():
			return syncDir(path)
		case fi.Mode().IsRegular():
			return syncFile(path)
		}
		return nil
	})
	return errors.Join(err, syncDir(filepath.Dir(root)))
}

func syncFile(path string) error {
	// Some systems sync only what is open for writing.
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
