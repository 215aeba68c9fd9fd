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
	old      string // the bucket's name
	bucket   string // its new one
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
		return &bucketRename{old: old, from: kind.subject + old + ".", to: kind.subject + bucket + ".", bucket: bucket, object: kind.object}, nil
	}
	return nil, nil
}

// edit returns what changes in each message, or nil. Messages have to come in
// order.
func (p *Plan) edit() func(*format.Message) error {
	if p.rename == nil && len(p.nameless) == 0 {
		return nil
	}
	nameless := p.nameless
	return func(m *format.Message) error {
		for len(nameless) > 0 && nameless[0] < m.Seq {
			nameless = nameless[1:]
		}
		if len(nameless) > 0 && nameless[0] == m.Seq {
			m.Header = dropIdentity(m.Header)
		}
		if p.rename == nil {
			return nil
		}
		return p.rename.message(m)
	}
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
	if err := r.link(&info); err != nil {
		return fmt.Errorf("metadata of an object: %w", err)
	}
	if r.newPayload, err = json.Marshal(info); err != nil {
		return err
	}
	m.Payload = r.newPayload
	return nil
}

// link moves a link to an object of the same bucket along.
func (r *bucketRename) link(info *format.Object) error {
	var options, link format.Object
	if raw := info.Raw("options"); raw == nil || info.Get("options", &options) != nil || options.Get("link", &link) != nil {
		return nil // no options, or no link in them
	}
	var bucket string
	if err := link.Get("bucket", &bucket); err != nil || bucket != r.old {
		return err
	}
	link.Set("bucket", r.bucket)
	options.Set("link", link)
	info.Set("options", options)
	return nil
}

// origins moves the destination of what a bucket sources, and the source of what
// it republishes.
func (r *bucketRename) origins(cfg *format.Object) error {
	var sources []format.Object
	if err := cfg.Get("sources", &sources); err != nil {
		return err
	}
	for i := range sources {
		var transforms []format.Object
		if err := sources[i].Get("subject_transforms", &transforms); err != nil {
			return err
		}
		for j := range transforms {
			if err := r.field(&transforms[j], "dest"); err != nil {
				return err
			}
		}
		if len(transforms) > 0 {
			sources[i].Set("subject_transforms", transforms)
		}
	}
	if len(sources) > 0 {
		cfg.Set("sources", sources)
	}
	if raw := cfg.Raw("republish"); raw == nil || string(raw) == "null" {
		return nil
	}
	var republish format.Object
	if err := cfg.Get("republish", &republish); err != nil {
		return err
	}
	if err := r.field(&republish, "src"); err != nil {
		return err
	}
	cfg.Set("republish", republish)
	return nil
}

// field moves the subject in a field, if there is one.
func (r *bucketRename) field(o *format.Object, name string) error {
	var s string
	if err := o.Get(name, &s); err != nil || s == "" {
		return err
	}
	o.Set(name, r.subject(s))
	return nil
}

// consumer moves a consumer's filters.
func (r *bucketRename) consumer(cfg *format.Object) error {
	if err := r.field(cfg, "filter_subject"); err != nil {
		return err
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
