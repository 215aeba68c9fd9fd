package format

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"runtime"
	"testing"
	"testing/iotest"
	"time"
)

var errCallback = errors.New("callback failed")

func TestCallbackErrorComesBackAsItIs(t *testing.T) {
	a := frame(rawArchive(smallEntries()...))
	mine := &DamageError{Err: ErrCorrupt, Reason: "of something else"}
	for _, want := range []error{errCallback, mine} {
		for name, o := range map[string]InspectOptions{
			"OnHead":    {OnHead: func(*Head) error { return want }},
			"OnMessage": {OnMessage: func(*Message) error { return want }},
			"OnBlock":   {OnBlock: func(*Block) error { return want }},
		} {
			if _, err := Inspect(context.Background(), bytes.NewReader(a), o); err != want {
				t.Errorf("%s: %v", name, err)
			}
			i := NewInspector(o)
			i.Write(a)
			if _, err := i.Close(); err != want {
				t.Errorf("%s: Close says %v", name, err)
			}
			if _, err := i.Write(a); err != want {
				t.Errorf("%s: Write says %v", name, err)
			}
		}
	}
	if mine.Offset != 0 || mine.RawOffset != 0 {
		t.Errorf("a callback's error was changed: %+v", mine)
	}
}

func TestReadErrorComesBackAsItIs(t *testing.T) {
	a := frame(rawArchive(smallEntries()...))
	damage := &DamageError{Err: ErrTruncated, Reason: "of something else"}
	for _, want := range []error{io.ErrUnexpectedEOF, fmt.Errorf("connection: %w", io.EOF), damage} {
		for _, n := range []int{0, 5, 30, len(a)} {
			r := io.MultiReader(bytes.NewReader(a[:n]), iotest.ErrReader(want))
			if _, err := Inspect(context.Background(), r, InspectOptions{}); err != want {
				t.Errorf("after %d bytes: %v, want %v", n, err, want)
			}
		}
	}
	if damage.LastGood != "" || damage.RawOffset != 0 {
		t.Errorf("the reader's error was changed: %+v", damage)
	}
}

func TestInspectionEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errCallback)
	_, err := Inspect(ctx, iotest.OneByteReader(bytes.NewReader(frame(rawArchive(smallEntries()...)))), InspectOptions{})
	if err != errCallback {
		t.Fatal(err)
	}
}

func TestWriteAfterCloseIsAnError(t *testing.T) {
	a := frame(rawArchive(smallEntries()...))
	i := NewInspector(InspectOptions{})
	if _, err := i.Write(a); err != nil {
		t.Fatal(err)
	}
	first, err := i.Close()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := i.Write([]byte(Padding)); err != io.ErrClosedPipe {
		t.Errorf("Write after Close says %v", err)
	}
	second, err := i.Close()
	if err != nil || first.SHA256 != second.SHA256 || first.Figures.Gaps != second.Figures.Gaps {
		t.Errorf("closing twice says %+v, %v", second, err)
	}
}

func TestInspectionDescribesTheStoredBytes(t *testing.T) {
	raw := rawArchive(smallEntries()...)
	a := join(frame(raw[:100], raw[100:]), []byte(Padding))
	ins, err := Inspect(context.Background(), bytes.NewReader(a), InspectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(a)
	if ins.Bytes != int64(len(a)) || ins.RawBytes != int64(len(raw)) || ins.SHA256 != hex.EncodeToString(sum[:]) {
		t.Errorf("%+v", ins)
	}
}

func TestBlocksTogetherAreTheArchive(t *testing.T) {
	raw := rawArchive(smallEntries()...)
	head := int64(len(rawArchive(smallEntries()[:2]...)))
	splits(raw, func(name string, archive []byte) {
		stored, data := []byte(StreamIdentifier), []byte(nil)
		var heads int64
		_, err := Inspect(context.Background(), bytes.NewReader(archive), InspectOptions{OnBlock: func(b *Block) error {
			if b.Offset != int64(len(stored)) || b.RawOffset != int64(len(data)) {
				t.Fatalf("%s: block at %d (%d), want %d (%d)", name, b.Offset, b.RawOffset, len(stored), len(data))
			}
			stored, data = append(stored, b.Raw...), append(data, b.Data...)
			heads += int64(b.HeadBytes)
			return nil
		}})
		if err != nil || !bytes.Equal(stored, archive) || !bytes.Equal(data, raw) || heads != head {
			t.Fatalf("%s: %v; %d head bytes, want %d", name, err, heads, head)
		}
	})
}

func TestInspectorsLeaveNoGoroutines(t *testing.T) {
	before := runtime.NumGoroutine()
	a := frame(rawArchive(smallEntries()...))
	for n := range a {
		damage(t, a[:n])
		Inspect(context.Background(), io.MultiReader(bytes.NewReader(a[:n]), iotest.ErrReader(errCallback)), InspectOptions{})
		Inspect(context.Background(), bytes.NewReader(a), InspectOptions{OnHead: func(*Head) error { return errCallback }})
	}
	for deadline := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > before; {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), before)
		}
		runtime.Gosched()
	}
}
