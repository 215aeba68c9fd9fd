package format_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log"
	"os"

	"github.com/jetkeep/jetkeep/format"
)

// archive writes a small one.
func archive() []byte {
	var buf bytes.Buffer
	w := format.NewWriter(&buf)
	w.WriteHead(&format.Head{State: format.State{Messages: 2, FirstSeq: 1, LastSeq: 3}})
	w.WriteMessage(&format.Message{Seq: 1, Subject: []byte("orders.eu"), Payload: []byte("hello")})
	w.WriteMessage(&format.Message{Seq: 3, Subject: []byte("orders.us"), Payload: []byte("world")})
	if err := w.Close(); err != nil {
		log.Fatal(err)
	}
	return buf.Bytes()
}

// An Inspector is a writer: bytes on their way to a file can be checked as they
// pass.
func ExampleInspector() {
	inspector := format.NewInspector(format.InspectOptions{
		OnMessage: func(m *format.Message) error {
			fmt.Printf("%d %s %s\n", m.Seq, m.Subject, m.Payload)
			return nil
		},
	})
	file := io.Discard
	if _, err := io.Copy(io.MultiWriter(file, inspector), bytes.NewReader(archive())); err != nil {
		fmt.Println(err)
	}
	found, err := inspector.Close()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d messages, %d deleted, %d bytes\n", found.Figures.Messages, found.Figures.Deleted, found.Figures.Bytes)
	// Output:
	// 1 orders.eu hello
	// 3 orders.us world
	// 2 messages, 1 deleted, 10 bytes
}

// What is wrong with an archive, and where, comes as a DamageError.
func ExampleDamageError() {
	data := archive()
	inspector := format.NewInspector(format.InspectOptions{})
	inspector.Write(data[:len(data)-1])
	_, err := inspector.Close()
	var damage *format.DamageError
	if errors.As(err, &damage) {
		fmt.Println(errors.Is(err, format.ErrTruncated), damage.Reason, damage.Offset)
	}
	// Output:
	// true ends inside an S2 chunk 10
}

func ExampleWriter() {
	w := format.NewWriter(io.Discard)
	err := w.WriteHead(&format.Head{State: format.State{FirstSeq: 1, LastSeq: 2}})
	if err != nil {
		log.Fatal(err)
	}
	for seq := uint64(1); seq <= 3; seq++ {
		err := w.WriteMessage(&format.Message{Seq: seq, Subject: []byte("orders")})
		if err != nil {
			fmt.Fprintln(os.Stdout, err)
		}
	}
	fmt.Println(w.Close() != nil)
	// Output:
	// corrupt archive: sequence above last_seq 2 (message sequence 3) at byte 0 (decompressed 183); last good entry: message sequence 2 of 1970-01-01T00:00:00Z
	// true
}
