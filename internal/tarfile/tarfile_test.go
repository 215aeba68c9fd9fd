package tarfile

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/jetkeep/jetkeep/format"
)

// backupDir makes a directory with files of a backup.
func backupDir(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

var files = map[string]string{
	format.BackupFileName: `{"config": {}}`,
	format.ManifestName:   "{}",
	format.ArchiveV2Name:  strings.Repeat("\x00", 1024), // looks like the end of a tar
}

func packed(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := Pack(t.Context(), &b, backupDir(t, files)); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// tmp has Unpack use a directory of the test's, and returns it.
func tmp(t *testing.T) string {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	t.Setenv("TMP", dir)
	return dir
}

func checkEmpty(t *testing.T, dir string) {
	t.Helper()
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestWhatIsPackedComesOut(t *testing.T) {
	dir := tmp(t)
	for _, read := range []func(io.Reader) io.Reader{
		func(r io.Reader) io.Reader { return r }, iotest.OneByteReader, iotest.HalfReader, iotest.DataErrReader,
		func(r io.Reader) io.Reader { return io.MultiReader(r, bytes.NewReader(make([]byte, 9000))) }, // tools pad
	} {
		got, cleanup, err := Unpack(t.Context(), read(bytes.NewReader(packed(t, files))))
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range files {
			data, err := os.ReadFile(filepath.Join(got, name))
			if err != nil || string(data) != want {
				t.Errorf("%s: %q, %v", name, data, err)
			}
			if fi, err := os.Stat(filepath.Join(got, name)); err != nil || fi.Mode() != 0o600 {
				t.Errorf("%s: %v, %v", name, fi.Mode(), err)
			}
		}
		if err := cleanup(); err != nil {
			t.Error(err)
		}
		checkEmpty(t, dir)
	}
}

func TestEveryCutIsRefused(t *testing.T) {
	dir := tmp(t)
	whole := packed(t, files)
	for n := range len(whole) {
		if near := (n + 2) % blockSize; near > 4 && n%17 != 0 {
			continue // each byte would take long, and the blocks are what matters
		}
		_, _, err := Unpack(t.Context(), bytes.NewReader(whole[:n]))
		if err == nil {
			t.Errorf("%d of %d bytes are taken for all", n, len(whole))
		} else if !errors.Is(err, ErrTruncated) && !errors.Is(err, ErrNotTar) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	checkEmpty(t, dir)
}

// handmade makes a tar of headers.
func handmade(t *testing.T, headers ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range headers {
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.CopyN(w, strings.NewReader(strings.Repeat("x", int(h.Size))), h.Size); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestOnlyTheFilesOfABackupAreTaken(t *testing.T) {
	dir := tmp(t)
	ok := tar.Header{Name: format.BackupFileName, Size: 3, Mode: 0o600}
	file := func(name string) tar.Header { return tar.Header{Name: name, Size: 3, Mode: 0o600} }
	for name, data := range map[string][]byte{
		"parent":         handmade(t, ok, file("../evil")),
		"absolute":       handmade(t, ok, file("/tmp/evil")),
		"dot":            handmade(t, file("./backup.json")),
		"below":          handmade(t, ok, file("x/stream.arc.s2")),
		"unknown":        handmade(t, ok, file("passwd")),
		"other case":     handmade(t, ok, file("Manifest.json")),
		"twice":          handmade(t, ok, ok),
		"symbolic link":  handmade(t, ok, tar.Header{Typeflag: tar.TypeSymlink, Name: format.ManifestName, Linkname: "/etc/passwd"}),
		"hard link":      handmade(t, ok, tar.Header{Typeflag: tar.TypeLink, Name: format.ManifestName, Linkname: format.BackupFileName}),
		"directory":      handmade(t, ok, tar.Header{Typeflag: tar.TypeDir, Name: format.ManifestName}),
		"device":         handmade(t, ok, tar.Header{Typeflag: tar.TypeChar, Name: format.ManifestName}),
		"fifo":           handmade(t, ok, tar.Header{Typeflag: tar.TypeFifo, Name: format.ManifestName}),
		"nothing":        handmade(t),
		"no backup.json": handmade(t, file(format.ArchiveV2Name)),
		"behind the end": append(handmade(t, ok), "more"...),
		"a second tar":   append(handmade(t, ok), handmade(t, file(format.ManifestName))...),
		"text":           []byte(strings.Repeat("this is no tar\n", 100)),
		"sparse":         sparse(t),
	} {
		_, _, err := Unpack(t.Context(), bytes.NewReader(data))
		if !errors.Is(err, ErrNotTar) {
			t.Errorf("%s: %v", name, err)
		}
	}
	checkEmpty(t, dir)
}

// sparse makes a tar whose file of a terabyte takes up a kilobyte.
func sparse(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	// archive/tar refuses to write the keys of sparse files, so others of the
	// same length stand for them.
	err := w.WriteHeader(&tar.Header{
		Name: format.BackupFileName, Size: 512, Mode: 0o600, Format: tar.FormatPAX,
		PAXRecords: map[string]string{"XXX.sparse.major": "1", "XXX.sparse.minor": "0", "XXX.sparse.realsize": "1099511627776", "XXX.sparse.name": format.BackupFileName},
	})
	if err != nil {
		t.Fatal(err)
	}
	block := make([]byte, 512)
	copy(block, "1\n1099511627776\n0\n")
	if _, err := w.Write(block); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return bytes.ReplaceAll(b.Bytes(), []byte("XXX.sparse"), []byte("GNU.sparse"))
}

func TestErrorsOfTheSourceComeBack(t *testing.T) {
	dir := tmp(t)
	broken := errors.New("the line is down")
	whole := packed(t, files)
	for _, n := range []int{0, 100, 512, 600, 2000, len(whole) - 1, len(whole)} {
		_, _, err := Unpack(t.Context(), io.MultiReader(bytes.NewReader(whole[:n]), iotest.ErrReader(broken)))
		if !errors.Is(err, broken) {
			t.Errorf("after %d bytes: %v", n, err)
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(broken)
	if _, _, err := Unpack(ctx, bytes.NewReader(whole)); !errors.Is(err, broken) {
		t.Errorf("cancelled: %v", err)
	}
	checkEmpty(t, dir)
}

// failing fails after n bytes.
type failing struct{ n int }

func (f *failing) Write(p []byte) (int, error) {
	if f.n -= len(p); f.n < 0 {
		return 0, fs.ErrClosed
	}
	return len(p), nil
}

func TestPackReportsEveryFailure(t *testing.T) {
	dir := backupDir(t, files)
	size := len(packed(t, files))
	for n := 0; n < size; n += 256 {
		if err := Pack(t.Context(), &failing{n}, dir); !errors.Is(err, fs.ErrClosed) {
			t.Errorf("a writer that fails after %d bytes: %v", n, err)
		}
	}
	if err := Pack(t.Context(), io.Discard, t.TempDir()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an empty directory: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Pack(ctx, io.Discard, dir); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}
