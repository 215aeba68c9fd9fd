package repo

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"testing"

	"github.com/jetkeep/jetkeep/format"
)

// pipeStore hands out the reading end of a pipe.
type pipeStore struct {
	Store
	r *io.PipeReader
}

func (p pipeStore) GetRange(context.Context, string, int64, int64) (io.ReadCloser, error) {
	return p.r, nil
}

// TestCloseEndsARead: an archive may be closed while it's read, since that is how
// a read that waits is ended.
func TestCloseEndsARead(t *testing.T) {
	pr, pw := io.Pipe()
	a := &archiveReader{
		ctx: context.Background(), b: &Backup{home: pipeStore{r: pr}},
		parts: []format.ArchiveObject{{Key: "k", Bytes: -1}},
	}
	read := make(chan error)
	go func() {
		var err error
		for buf := make([]byte, 10); err == nil; {
			_, err = a.Read(buf)
		}
		read <- err
	}()
	if _, err := pw.Write([]byte("some")); err != nil {
		t.Fatal(err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-read; err == nil || err == io.EOF {
		t.Errorf("the read ended with %v", err)
	}
	if _, err := a.Read(make([]byte, 1)); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("a read after Close: %v", err)
	}
}
