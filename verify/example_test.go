package verify_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/jetkeep/jetkeep/backup/repo"
	"github.com/jetkeep/jetkeep/format"
	"github.com/jetkeep/jetkeep/verify"
)

func ExampleCheck() {
	dir, err := exampleBackup()
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)

	b, err := repo.OpenPlain(dir) // or Find of a repo.Repository
	if err != nil {
		log.Print(err) // repo.ErrNotBackup
		return
	}
	report, err := verify.Check(context.Background(), b)
	if damage, ok := errors.AsType[*format.DamageError](err); ok {
		log.Printf("damaged at byte %d, last good entry %s", damage.Offset, damage.LastGood)
		return
	}
	if err != nil {
		log.Print(err)
		return
	}
	fmt.Println(report.Stream, report.Figures.Messages, report.Figures.Subject.Top[0].Subject)
	fmt.Println(report.Notes[0])

	// Output:
	// ORDERS 2 ORDERS.new
	// no manifest (the nats CLI writes none): there are no digests to compare with
}

// exampleBackup makes a directory as the nats CLI does.
func exampleBackup() (dir string, err error) {
	dir, err = os.MkdirTemp("", "example-")
	if err != nil {
		return "", err
	}
	state := `{"messages": 2, "bytes": 90, "first_seq": 1, "last_seq": 2}`
	var archive bytes.Buffer
	w := format.NewWriter(&archive)
	var head format.Head
	head.StateJSON = []byte(state)
	w.WriteHead(&head)
	w.WriteMessage(&format.Message{Seq: 1, Time: 1e18, Subject: []byte("ORDERS.new"), Payload: []byte("one")})
	w.WriteMessage(&format.Message{Seq: 2, Time: 1e18, Subject: []byte("ORDERS.new"), Payload: []byte("two")})
	if err := w.Close(); err != nil { // or what a call before it met
		return "", err
	}
	file := `{"config": {"name": "ORDERS", "subjects": ["ORDERS.>"]}, "state": ` + state + `}`
	return dir, errors.Join(
		os.WriteFile(filepath.Join(dir, format.BackupFileName), []byte(file), 0o600),
		os.WriteFile(filepath.Join(dir, format.ArchiveV2Name), archive.Bytes(), 0o600),
	)
}
