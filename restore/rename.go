package restore

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/jetkeep/jetkeep/format"
)

// Streams of KV buckets and object stores are named for them (NATS ADR-8,
// ADR-20).
const (
	kvStream, kvSubject   = "KV_", "$KV."
	objStream, objSubject = "OBJ_", "$O."
)

// bucketRename moves a KV bucket or object store to another name.
type bucketRename struct {
	from, to string // subject prefixes, with both dots
	bucket   string // the new name
	object   bool
	// buffers for the message being moved
	newSubject, newPayload []byte
}

// renaming returns how subjects move when a stream gets another name, or nil
// when they don't: only buckets have their name in their subjects.
func renaming(from, to string) (*bucketRename, error) {
	for _, kind := range []struct {
		stream, subject string
		object          bool
	}{{kvStream, kvSubject, false}, {objStream, objSubject, true}} {
		old, ok := strings.CutPrefix(from, kind.stream)
		if !ok {
			continue
		}
		bucket, ok := strings.CutPrefix(to, kind.stream)
		if !ok || bucket == "" {
			return nil, fmt.Errorf("stream %q is a bucket: its new name has to begin with %s, not %q", from, kind.stream, to)
		}
		return &bucketRename{from: kind.subject + old + ".", to: kind.subject + bucket + ".", bucket: bucket, object: kind.object}, nil
	}
	return nil, nil
}

// edit returns what changes in each message, or nil.
func (p *Plan) edit() func(*format.Message) error {
	if p.rename == nil {
		return nil
	}
	return p.rename.message
}

// subject moves a subject or filter; others stay as they are.
func (r *bucketRename) subject(s string) string {
	if rest, ok := strings.CutPrefix(s, r.from); ok {
		return r.to + rest
	}
	return s
}

// message moves a message's subject, and the bucket in an object's metadata.
func (r *bucketRename) message(m *format.Message) error {
	rest, ok := strings.CutPrefix(string(m.Subject), r.from)
	if !ok {
		return nil
	}
	r.newSubject = append(append(r.newSubject[:0], r.to...), rest...)
	m.Subject = r.newSubject
	if !r.object || !strings.HasPrefix(rest, "M.") || len(m.Payload) == 0 {
		return nil
	}
	info, err := format.ParseObject(m.Payload)
	if err != nil {
		return fmt.Errorf("metadata of an object: %w", err)
	}
	info.Set("bucket", r.bucket)
	if r.newPayload, err = json.Marshal(info); err != nil {
		return err
	}
	m.Payload = r.newPayload
	return nil
}

// consumer moves a consumer's filters.
func (r *bucketRename) consumer(cfg *format.Object) error {
	var one string
	if err := cfg.Get("filter_subject", &one); err != nil {
		return err
	}
	if one != "" {
		cfg.Set("filter_subject", r.subject(one))
	}
	var several []string
	if err := cfg.Get("filter_subjects", &several); err != nil {
		return err
	}
	if len(several) > 0 {
		for i := range several {
			several[i] = r.subject(several[i])
		}
		cfg.Set("filter_subjects", several)
	}
	return nil
}
