package embedded

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/jetkeep/jetkeep/format"
)

// Original is what a stream's directory says of the stream, before a copy of it
// was neutralised.
type Original struct {
	Config  format.Object
	Created time.Time
	// Consumers are the consumers' configurations, by name.
	Consumers map[string]format.Object
}

// copySubject is where a neutralised stream listens: nobody publishes there, not
// even the server its own advisories.
const copySubject = "_jetkeep.copy"

// neutralStream takes out of a stream's configuration everything by which a
// server that opens it would, as time goes by or since others are missing, add,
// remove or send messages, or refuse to open it outside of its cluster. All else
// stays, sealed and the deny_ fields among it.
//
// So do max_msgs, max_bytes and max_msgs_per_subject. What they removed is gone
// for certain only once the server has stopped in an orderly way; after a crash
// the blocks still have it, and a server that starts relies on these limits to
// remove it again. Without them a copy would bring back messages that the stream
// doesn't have any more.
func neutralStream(cfg *format.Object) {
	var replicas int
	_ = cfg.Get("num_replicas", &replicas)
	if replicas > 1 {
		// A half-written batch is completed from the raft log, which isn't there.
		cfg.Delete("allow_atomic")
	}
	cfg.Delete("mirror", "mirror_direct", "sources", "republish", "subject_transform",
		"allow_msg_ttl", "subject_delete_marker_ttl", "allow_msg_schedules",
		"first_seq", "placement", "consumer_limits")
	cfg.Set("subjects", []string{copySubject})
	cfg.Set("retention", "limits")
	cfg.Set("max_age", 0)
	cfg.Set("max_consumers", -1)
	cfg.Set("num_replicas", 1)
}

// neutralTime is long enough for a consumer to outlive any backup, and near
// enough for any timer.
const neutralTime = 365 * 24 * time.Hour

// neutralConsumer keeps a consumer from delivering, from giving up on what it has
// delivered, and from going away.
func neutralConsumer(cfg *format.Object) {
	var acks string
	_ = cfg.Get("ack_policy", &acks)
	if acks == "explicit" || acks == "all" {
		cfg.Delete("backoff")
		cfg.Set("ack_wait", neutralTime)
		cfg.Set("max_deliver", -1)
	}
	cfg.Set("pause_until", time.Now().UTC().Add(neutralTime).Truncate(time.Second))
	cfg.Set("inactive_threshold", neutralTime)
	cfg.Set("num_replicas", 0)
}

// neutralise changes the files of a copied stream and returns what they said. A
// file that can't be read is left as it is, for the server to say so, and what it
// said isn't known; but a *KeyError is returned.
func neutralise(dir, account, key string) (*Original, error) {
	o := &Original{Consumers: map[string]format.Object{}}
	stream := asset{dir: dir, account: account, stream: filepath.Base(dir)}
	m, err := stream.read(key)
	switch {
	case isKeyError(err):
		return nil, err
	case err != nil:
		return o, nil
	}
	o.Config, o.Created = m.config(), m.created()
	neutralStream(&m.fields)
	if err := stream.write(m); err != nil {
		return nil, fmt.Errorf("stream %q: %w", stream.stream, err)
	}
	dirs, err := ConsumerDirs(dir)
	if err != nil {
		return nil, err
	}
	for _, cdir := range dirs {
		consumer := asset{dir: cdir, account: account, stream: stream.stream, consumer: filepath.Base(cdir)}
		m, err := consumer.read(key)
		switch {
		case isKeyError(err):
			return nil, err
		case err != nil:
			continue
		}
		o.Consumers[consumer.consumer] = m.config()
		neutralConsumer(&m.fields)
		if err := consumer.write(m); err != nil {
			return nil, fmt.Errorf("consumer %q of stream %q: %w", consumer.consumer, stream.stream, err)
		}
	}
	return o, nil
}

func isKeyError(err error) bool {
	_, ok := errors.AsType[*KeyError](err)
	return ok
}
