package backup

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/jetkeep/jetkeep/backup/repo"
	"github.com/jetkeep/jetkeep/format"
	"github.com/jetkeep/jetkeep/internal/jsapi"
	"github.com/jetkeep/jetkeep/internal/snapshot"
)

// attempt takes one snapshot and puts it and backup.json into w.
func (t *taker) attempt(ctx context.Context, info *jsapi.StreamInfo, w repo.Writer) (*format.Manifest, error) {
	m := &format.Manifest{
		Version: format.ManifestVersion, ID: w.ID(), Stream: t.o.Stream, Created: info.Created,
		Context: t.o.Context, JetkeepVersion: t.o.Version,
		Started: time.Now().UTC(), NoConsumers: t.o.NoConsumers, Format: "v2",
		Server: t.server(info),
	}
	t.o.Original.describe(m)
	live, err := t.listed(ctx)
	if err != nil {
		return nil, err
	}
	file, ins, err := t.transfer(ctx, info, w)
	if err != nil {
		return nil, explain(err)
	}
	if t.o.Account != nil {
		m.Account = t.o.Account()
	}
	m.Ended = time.Now().UTC()
	m.Figures = ins.Figures
	addLive(m.Figures.Consumers, live)
	m.MissingConsumers = t.missing(ctx, names(live), ins.Head.Consumers)
	m.Objects = []format.ArchiveObject{{
		Key: format.ArchiveV2Name, Bytes: ins.Bytes, RawBytes: ins.RawBytes, SHA256: ins.SHA256,
		FirstSeq: ins.Figures.FirstSeq, LastSeq: ins.Figures.LastSeq,
	}}
	m.BackupFileSHA256, err = putBackupFile(ctx, w, file)
	return m, err
}

// transfer puts the archive into w.
func (t *taker) transfer(ctx context.Context, info *jsapi.StreamInfo, w repo.Writer) (*format.BackupFile, *format.Inspection, error) {
	rc, err := snapshot.Start(ctx, t.js, snapshot.Options{
		Stream: t.o.Stream, NoConsumers: t.o.NoConsumers,
		ChunkSize: t.o.ChunkSize, WindowSize: t.o.WindowSize,
		Hold: t.o.QueueSize, Idle: t.o.IdleTimeout,
		Probe: func(ctx context.Context) error { return t.probe(ctx, info) },
	})
	if err != nil {
		return nil, nil, err
	}
	defer rc.Close()
	if err := format.CheckNotBeingRestored(rc.Config); err != nil {
		return nil, nil, err
	}
	file := &format.BackupFile{Config: rc.Config, State: rc.State}
	state, err := file.StreamState()
	if err != nil {
		return nil, nil, err
	}
	var archive io.Reader = rc
	if o := t.o.Original; o != nil {
		file.Config = o.Config
		own := o.archive(ctx, rc, rc.Close)
		defer own.close()
		archive = own
	}
	in := inspect(archive, func(ins *format.Inspection) error { return t.settle(ctx, info, file, ins) })
	defer in.stop()
	in.report(t.o.Progress, int64(state.Bytes))
	_, err = w.Put(ctx, format.ArchiveV2Name, in)
	ins, err := in.outcome(err)
	return file, ins, err
}

// look tells what has become of the stream: ErrMoved, ErrStreamGone,
// ErrStreamReplaced, nil when it's where it was, or that it can't be known.
func (t *taker) look(ctx context.Context, before *jsapi.StreamInfo) (*jsapi.StreamInfo, error) {
	now, err := t.js.StreamInfo(ctx, t.o.Stream)
	if jsapi.IsCode(err, jsapi.CodeStreamNotFound) {
		// So says a server that is about to stop, too: but not for long.
		if err := sleep(ctx, time.Second); err != nil {
			return nil, err
		}
		now, err = t.js.StreamInfo(ctx, t.o.Stream)
	}
	switch {
	case jsapi.IsCode(err, jsapi.CodeStreamNotFound):
		return nil, ErrStreamGone
	case err != nil:
		return nil, err
	case !now.Created.Equal(before.Created):
		return now, ErrStreamReplaced
	case leader(now) == "" && leader(before) != "":
		return now, fmt.Errorf("%w from %s, to none yet", ErrMoved, leader(before))
	case leader(now) != leader(before):
		return now, fmt.Errorf("%w from %s to %s", ErrMoved, leader(before), leader(now))
	}
	return now, nil
}

func leader(i *jsapi.StreamInfo) string {
	if i.Cluster == nil {
		return ""
	}
	return i.Cluster.Leader
}

// probe tells whether the stream has left the server that was sending it.
func (t *taker) probe(ctx context.Context, info *jsapi.StreamInfo) error {
	_, err := t.look(ctx, info)
	if errors.Is(err, ErrMoved) || errors.Is(err, ErrStreamGone) || errors.Is(err, ErrStreamReplaced) {
		return err
	}
	return nil // that there's no answer doesn't mean that the data won't go on
}

// settle checks an archive that arrived against what the server said about it,
// and against what has become of the stream meanwhile.
func (t *taker) settle(ctx context.Context, before *jsapi.StreamInfo, file *format.BackupFile, ins *format.Inspection) error {
	if err := format.Belongs(file, ins); err != nil {
		return err
	}
	if o := t.o.Original; o != nil && o.Check != nil {
		return o.Check(ctx, ins)
	}
	var now *jsapi.StreamInfo
	var err error
	for n := range 5 {
		now, err = t.look(ctx, before)
		if !jsapi.Temporary(err) {
			break
		}
		if err := sleep(ctx, time.Second<<n/4); err != nil {
			return err
		}
	}
	switch {
	case errors.Is(err, ErrStreamGone) && ins.Figures.Messages == ins.Head.State.Messages:
		return nil // nothing is missing, and there won't be another chance
	case err != nil && !errors.Is(err, ErrMoved):
		return err
	}
	return complete(now, ins)
}

// complete checks that the archive holds at least as many messages as the stream
// still has of those that it had when the snapshot began. A store that is
// deleted while it's read, because the stream moves, looks as if it came to its
// end, and the archive gets its end marker.
func complete(now *jsapi.StreamInfo, ins *format.Inspection) error {
	remain, added := now.State.Messages, uint64(0)
	if last := ins.Head.State.LastSeq; now.State.LastSeq > last {
		added = now.State.LastSeq - last
	}
	if remain > added && remain-added > ins.Figures.Messages {
		return fmt.Errorf("%w: it has %d, of at least %d", ErrIncomplete, ins.Figures.Messages, remain-added)
	}
	return nil
}

// server says where the stream is, as far as that can be known; the version is
// that of the server we're connected to.
func (t *taker) server(info *jsapi.StreamInfo) format.Server {
	nc := t.js.Conn()
	s := format.Server{Version: nc.ConnectedServerVersion(), Domain: info.Domain}
	switch {
	case info.Cluster != nil:
		s.Cluster, s.Name = info.Cluster.Name, info.Cluster.Leader
	case t.o.Domain == "" && t.o.APIPrefix == "":
		s.Name = nc.ConnectedServerName()
	}
	return s
}

// listed lists the consumers; for the first attempt that was begun beforehand.
func (t *taker) listed(ctx context.Context) (*jsapi.ConsumerList, error) {
	if early := t.early; early != nil {
		t.early = nil
		if l := <-early; l.err == nil {
			return l.consumers, nil
		}
	}
	return t.consumers(ctx)
}

// consumers lists the consumers that the archive should hold.
func (t *taker) consumers(ctx context.Context) (*jsapi.ConsumerList, error) {
	if t.o.NoConsumers {
		return &jsapi.ConsumerList{}, nil
	}
	list, err := t.js.Consumers(ctx, t.o.Stream)
	if err != nil {
		return nil, fmt.Errorf("listing consumers: %w", err)
	}
	return list, nil
}

// names returns all names of a list.
func names(list *jsapi.ConsumerList) []string {
	names := slices.Clone(list.Missing)
	for _, c := range list.Consumers {
		names = append(names, c.Name)
	}
	return names
}

// addLive notes what the server said of each consumer: a cluster's archive holds
// less.
func addLive(figures []format.ConsumerFigures, list *jsapi.ConsumerList) {
	live := make(map[string]*format.LiveConsumer, len(list.Consumers))
	for _, c := range list.Consumers {
		live[c.Name] = &format.LiveConsumer{
			Delivered: c.Delivered, AckFloor: c.AckFloor, AckPending: uint64(max(c.NumAckPending, 0)),
		}
	}
	for i := range figures {
		figures[i].Live = live[figures[i].Name]
	}
}

// missing returns the expected consumers that aren't among those found, sorted.
// Those that are gone meanwhile, as ephemeral ones will be, don't count.
func (t *taker) missing(ctx context.Context, expected []string, found []format.Consumer) []string {
	have := make(map[string]bool, len(found))
	for _, c := range found {
		have[c.Name] = true
	}
	out := slices.DeleteFunc(expected, func(name string) bool { return have[name] })
	if len(out) == 0 {
		return nil
	}
	if now, err := t.consumers(ctx); err == nil {
		still := names(now)
		out = slices.DeleteFunc(out, func(name string) bool { return !slices.Contains(still, name) })
	}
	slices.Sort(out)
	return out
}

// putBackupFile puts backup.json and returns its digest.
func putBackupFile(ctx context.Context, w repo.Writer, file *format.BackupFile) (string, error) {
	data, err := json.Marshal(file)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(data)
	_, err = w.Put(ctx, format.BackupFileName, bytes.NewReader(data))
	return hex.EncodeToString(sum[:]), err
}
