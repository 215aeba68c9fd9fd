package verify_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"testing"

	"github.com/jetkeep/jetkeep/format"
)

func sum(data []byte) string {
	s := sha256.Sum256(data)
	return hex.EncodeToString(s[:])
}

func repoManifest(t *testing.T, dir string) *format.Manifest {
	t.Helper()
	m, err := format.ParseManifest(read(t, dir, format.ManifestName))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func saveManifest(t *testing.T, dir string, m *format.Manifest) {
	t.Helper()
	data, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	write(t, data, dir, format.ManifestName)
}
