package embedded_test

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"testing"

	"github.com/minio/highwayhash"
)

// rewriteMeta changes a meta.inf and redoes its checksum.
func rewriteMeta(t *testing.T, dir string, f func([]byte) []byte) {
	t.Helper()
	rewrite(t, filepath.Join(dir, "meta.inf"), f)
	b, err := os.ReadFile(filepath.Join(dir, "meta.inf"))
	if err != nil {
		t.Fatal(err)
	}
	key := sha256.Sum256([]byte(filepath.Base(dir)))
	h, err := highwayhash.New64(key[:])
	if err != nil {
		t.Fatal(err)
	}
	h.Write(b)
	if err := os.WriteFile(filepath.Join(dir, "meta.sum"), []byte(hex.EncodeToString(h.Sum(nil))), 0o600); err != nil {
		t.Fatal(err)
	}
}
