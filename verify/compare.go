package verify

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"slices"

	"github.com/jetkeep/jetkeep/format"
)

// compare holds an archive and backup.json against the manifest. The digest of
// backup.json has been checked when it was read.
func compare(m *format.Manifest, file *format.BackupFile, ins *format.Inspection, parts *partSums) error {
	if name := file.StreamName(); name != m.Stream {
		return mismatch("the manifest is of stream %q, %s of stream %q", m.Stream, format.BackupFileName, name)
	}
	if m.Format != "v2" {
		return mismatch("the manifest says format %q, the archive is v2", m.Format)
	}
	if err := compareObjects(m, ins, parts); err != nil {
		return err
	}
	if m.NoConsumers && len(ins.Figures.Consumers) > 0 {
		return mismatch("the manifest says that consumers were left out, the archive holds %d", len(ins.Figures.Consumers))
	}
	return compareFigures(m.Figures, ins.Figures)
}

func compareObjects(m *format.Manifest, ins *format.Inspection, parts *partSums) error {
	var size, raw int64
	for i, o := range m.Objects {
		size += o.Bytes
		raw += o.RawBytes
		got := ins.SHA256
		if len(m.Objects) > 1 {
			got = parts.sum(i)
		}
		if got != o.SHA256 {
			return mismatch("the SHA-256 of %s is %s, the manifest says %s", o.Key, got, o.SHA256)
		}
	}
	if size != ins.Bytes {
		return mismatch("the archive has %d bytes, the manifest says %d", ins.Bytes, size)
	}
	if raw != ins.RawBytes {
		return mismatch("the archive has %d bytes decompressed, the manifest says %d", ins.RawBytes, raw)
	}
	first, last := m.Objects[0].FirstSeq, m.Objects[len(m.Objects)-1].LastSeq
	if first != ins.Figures.FirstSeq || last != ins.Figures.LastSeq {
		return mismatch("the archive holds sequences %d to %d, the manifest's objects %d to %d", ins.Figures.FirstSeq, ins.Figures.LastSeq, first, last)
	}
	return nil
}

// compareFigures names the first figure that differs.
func compareFigures(said, found format.Figures) error {
	a, err := figureMap(said)
	if err != nil {
		return err
	}
	b, err := figureMap(found)
	if err != nil {
		return err
	}
	keys := slices.Sorted(func(yield func(string) bool) {
		for _, m := range []map[string]json.RawMessage{a, b} {
			for k := range m {
				if !yield(k) {
					return
				}
			}
		}
	})
	for _, k := range slices.Compact(keys) {
		if !bytes.Equal(a[k], b[k]) {
			return mismatch("%s is %s in the manifest and %s in the archive", k, brief(a[k]), brief(b[k]))
		}
	}
	return nil
}

// figureMap makes figures comparable, one by one.
func figureMap(f format.Figures) (map[string]json.RawMessage, error) {
	f.Consumers = slices.Clone(f.Consumers)
	for i := range f.Consumers {
		f.Consumers[i].Paused = false // true only until the pause ends
		f.Consumers[i].Live = nil     // no archive holds it
	}
	data, err := json.Marshal(f)
	if err != nil {
		return nil, err
	}
	var m map[string]json.RawMessage
	return m, json.Unmarshal(data, &m)
}

func brief(v json.RawMessage) string {
	switch {
	case len(v) == 0:
		return "absent"
	case len(v) > 60:
		return string(v[:60]) + "…"
	}
	return string(v)
}

func mismatch(text string, args ...any) error {
	return fmt.Errorf("%w: %s", format.ErrMismatch, fmt.Sprintf(text, args...))
}

// partSums digests each object of an archive that has several; for a single
// one the inspection's own digest does.
type partSums struct {
	sizes []int64
	sums  []hash.Hash
	at    int   // the current one
	read  int64 // of the current one
}

func newPartSums(m *format.Manifest) *partSums {
	s := &partSums{}
	if m == nil || len(m.Objects) < 2 {
		return s
	}
	for _, o := range m.Objects {
		s.sizes = append(s.sizes, o.Bytes)
		s.sums = append(s.sums, sha256.New())
	}
	return s
}

func (s *partSums) write(p []byte) {
	for len(p) > 0 && s.at < len(s.sizes) {
		n := min(int64(len(p)), s.sizes[s.at]-s.read)
		s.sums[s.at].Write(p[:n])
		s.read += n
		p = p[n:]
		if s.read == s.sizes[s.at] {
			s.at, s.read = s.at+1, 0
		}
	}
}

func (s *partSums) sum(i int) string { return hex.EncodeToString(s.sums[i].Sum(nil)) }
