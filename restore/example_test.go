package restore_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetkeep/jetkeep/backup"
	"github.com/jetkeep/jetkeep/backup/repo"
	"github.com/jetkeep/jetkeep/restore"
)

// Example loses a stream and gets it back.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "jetkeep-example-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	nc, stop := exampleServer(filepath.Join(dir, "server"))
	defer stop()
	r, err := repo.InitDir(filepath.Join(dir, "repo"))
	if err != nil {
		log.Fatal(err)
	}
	taken, err := backup.Take(ctx, nc, backup.To(r), backup.Options{Stream: "ORDERS"})
	if err != nil {
		log.Fatal(err)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		log.Fatal(err)
	}

	// While the stream is there, nothing is touched.
	plan, err := restore.Prepare(ctx, nc, taken.Backup, restore.Options{})
	if err != nil {
		log.Fatal(err)
	}
	var refused *restore.Refused
	if _, err := restore.Run(ctx, nc, plan); errors.As(err, &refused) {
		fmt.Println("refused:", refused.Findings[0].Check)
	}

	if err := js.DeleteStream(ctx, "ORDERS"); err != nil {
		log.Fatal(err)
	}
	if plan, err = restore.Prepare(ctx, nc, taken.Backup, restore.Options{FullCheck: true}); err != nil {
		log.Fatal(err)
	}
	fmt.Println("expected:", plan.Expected.Messages, "messages")
	res, err := restore.Run(ctx, nc, plan)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("restored:", res.State.Messages, "messages, up to sequence", res.State.LastSeq)
	// Output:
	// refused: target
	// expected: 2 messages
	// restored: 2 messages, up to sequence 3
}

// exampleServer is a server with a stream ORDERS, whose last message of three is
// deleted.
func exampleServer(dir string) (nc *nats.Conn, stop func()) {
	s, err := server.NewServer(&server.Options{DontListen: true, NoSigs: true, NoLog: true, JetStream: true, StoreDir: dir})
	if err != nil {
		log.Fatal(err)
	}
	s.Start()
	if nc, err = nats.Connect("", nats.InProcessServer(s)); err != nil {
		log.Fatal(err)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	orders, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}})
	if err != nil {
		log.Fatal(err)
	}
	for _, id := range []string{"1", "2", "3"} {
		if _, err := js.Publish(ctx, "orders."+id, []byte("order "+id)); err != nil {
			log.Fatal(err)
		}
	}
	if err := orders.DeleteMsg(ctx, 3); err != nil {
		log.Fatal(err)
	}
	return nc, func() {
		nc.Close()
		s.Shutdown()
		s.WaitForShutdown()
	}
}
