package repo_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jetkeep/jetkeep/backup/repo"
	"github.com/jetkeep/jetkeep/format"
)

// A backup is begun, written and committed, and then found again.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "jetkeep-example-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	r, err := repo.InitDir(filepath.Join(dir, "backups"))
	if err != nil {
		log.Fatal(err)
	}
	if err := takeExample(ctx, r); err != nil {
		log.Fatal(err)
	}
	stream, id := repo.ParseRef("ORDERS@latest")
	b, err := r.Find(ctx, stream, id)
	if err != nil {
		log.Fatal(err)
	}
	archive, err := b.Archive(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer archive.Close()
	data, err := io.ReadAll(archive)
	fmt.Printf("%s: %s %v\n", b.Manifest.Stream, data, err)
	// Output: ORDERS: the archive <nil>
}

func takeExample(ctx context.Context, r *repo.Repository) error {
	p, err := r.Begin(ctx, "ORDERS", time.Now())
	if err != nil {
		return err
	}
	defer p.Abort() // does nothing once committed
	n, err := p.Put(ctx, format.ArchiveV2Name, strings.NewReader("the archive"))
	if err != nil {
		return err
	}
	if _, err := p.Put(ctx, format.BackupFileName, strings.NewReader(backupJSON("ORDERS"))); err != nil {
		return err
	}
	_, err = p.Commit(ctx, &format.Manifest{
		Version: format.ManifestVersion, ID: p.ID(), Stream: "ORDERS", Format: "v2",
		Objects:          []format.ArchiveObject{{Key: format.ArchiveV2Name, Bytes: n}},
		BackupFileSHA256: digest(backupJSON("ORDERS")),
	})
	return err
}
