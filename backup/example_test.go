package backup_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetkeep/jetkeep/backup"
	"github.com/jetkeep/jetkeep/backup/repo"
)

// Example backs a stream up into a repository.
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
	res, err := backup.Take(ctx, nc, backup.To(r), backup.Options{Stream: "ORDERS"})
	if err != nil {
		log.Fatal(err)
	}
	f := res.Manifest.Figures
	fmt.Printf("%s: %d messages, sequences %d to %d\n", res.Manifest.Stream, f.Messages, f.FirstSeq, f.LastSeq)
	// Output: ORDERS: 3 messages, sequences 1 to 3
}

// exampleServer is a server with a stream ORDERS of three messages.
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
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}}); err != nil {
		log.Fatal(err)
	}
	for _, id := range []string{"1", "2", "3"} {
		if _, err := js.Publish(ctx, "orders."+id, []byte("an order")); err != nil {
			log.Fatal(err)
		}
	}
	return nc, func() {
		nc.Close()
		s.Shutdown()
		s.WaitForShutdown()
	}
}
