package embedded

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"sort"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// apiTimeout bounds one call of the JetStream API, which in the process answers
// at once unless the machine is very busy.
const apiTimeout = time.Minute

// Unrecovered is a stream, or one consumer of a recovered stream, that is in the
// directory but not available.
type Unrecovered struct {
	Account, Stream string
	Consumer        string // empty: the whole stream
	Reason          string // in the server's words, where it has given any
}

func (u Unrecovered) String() string {
	if u.Consumer != "" {
		return fmt.Sprintf("consumer %s of stream %s of account %s: %s", u.Consumer, u.Stream, u.Account, u.Reason)
	}
	return fmt.Sprintf("stream %s of account %s: %s", u.Stream, u.Account, u.Reason)
}

// inventory is what is on disk: account, stream, consumers.
type inventory map[string]map[string][]string

func readInventory(storeDir string, accounts []string) (inventory, error) {
	inv := make(inventory)
	for _, account := range accounts {
		dirs, err := StreamDirs(storeDir, account)
		if err != nil {
			return nil, err
		}
		inv[account] = make(map[string][]string)
		for _, dir := range dirs {
			consumers, err := ConsumerDirs(dir)
			if err != nil {
				return nil, err
			}
			for i := range consumers {
				consumers[i] = filepath.Base(consumers[i])
			}
			inv[account][filepath.Base(dir)] = consumers
		}
	}
	return inv, nil
}

// compare sets what the server has against what was on disk.
func (s *Server) compare(ctx context.Context, disk inventory) ([]Unrecovered, error) {
	var lost []Unrecovered
	for _, account := range s.accounts {
		if len(disk[account]) == 0 {
			continue
		}
		l, err := s.compareAccount(ctx, account, disk[account])
		if err != nil {
			return nil, fmt.Errorf("account %s: %w", account, err)
		}
		lost = append(lost, l...)
	}
	return lost, nil
}

func (s *Server) compareAccount(ctx context.Context, account string, disk map[string][]string) ([]Unrecovered, error) {
	nc, err := s.Connect(account)
	if err != nil {
		return nil, err
	}
	defer nc.Close()
	live, offline, err := listStreams(ctx, nc)
	if err != nil {
		return nil, err
	}
	var lost []Unrecovered
	for _, stream := range sortedKeys(disk) {
		reason, isOffline := offline[stream]
		consumers, ok := live[stream]
		switch {
		case isOffline:
			lost = append(lost, Unrecovered{Account: account, Stream: stream, Reason: reason})
		case !ok:
			lost = append(lost, Unrecovered{Account: account, Stream: stream, Reason: s.reason(stream, "")})
		case consumers < len(disk[stream]):
			l, err := s.compareConsumers(ctx, nc, account, stream, disk[stream])
			if err != nil {
				return nil, err
			}
			lost = append(lost, l...)
		}
	}
	return lost, nil
}

// compareConsumers finds the consumers that are gone. An ephemeral consumer that
// the server has removed in its ordinary way, since its time was over, is not
// lost: its directory went with it.
func (s *Server) compareConsumers(ctx context.Context, nc *nats.Conn, account, stream string, disk []string) ([]Unrecovered, error) {
	live, err := listConsumers(ctx, nc, stream)
	if err != nil {
		return nil, err
	}
	still, err := readInventory(s.opts.StoreDir, []string{account})
	if err != nil {
		return nil, err
	}
	there := make(map[string]bool)
	for _, name := range still[account][stream] {
		there[name] = true
	}
	var lost []Unrecovered
	for _, name := range disk {
		reason, known := s.findReason(stream, name)
		if !live[name] && (there[name] || known) {
			lost = append(lost, Unrecovered{Account: account, Stream: stream, Consumer: name, Reason: reason})
		}
	}
	return lost, nil
}

// unnamed are complaints of the server that don't say which stream they are
// about.
var unnamed = []string{
	"Error decrypting our stream metafile", "Bad stream encryption key length", "Error decrypting our consumer metafile",
}

const noReason = "not recovered; the server gives no reason"

func (s *Server) reason(stream, consumer string) string {
	reason, _ := s.findReason(stream, consumer)
	return reason
}

// findReason looks for the server's complaint about a stream or consumer: a line
// that names it or its directory, or else one that names nothing. It reports
// false if none names it.
func (s *Server) findReason(stream, consumer string) (string, bool) {
	names := []string{fmt.Sprintf("%q", stream), fmt.Sprintf("> %s'", stream), dirIn(streamsDir, stream)}
	if consumer != "" {
		names = []string{fmt.Sprintf("> %s > %s'", stream, consumer), dirIn(streamsDir, stream, consumersDir, consumer)}
	}
	var general []string
	for _, line := range s.log.warnings() {
		for _, name := range names {
			// A complaint about a consumer names the stream's directory too.
			if strings.Contains(line, name) && (consumer != "" || !strings.Contains(line, dirIn(streamsDir, stream, consumersDir))) {
				return line, true
			}
		}
		for _, text := range unnamed {
			if strings.Contains(line, text) && !strings.Contains(strings.Join(general, "; "), line) {
				general = append(general, line)
			}
		}
	}
	if len(general) > 0 {
		return strings.Join(general, "; "), false
	}
	return noReason, false
}

// dirIn is a piece of a path, as the server quotes it.
func dirIn(elem ...string) string {
	sep := string(filepath.Separator)
	return strings.Trim(fmt.Sprintf("%q", sep+filepath.Join(elem...)+sep), `"`)
}

// listStreams returns the number of consumers of each available stream, and the
// reasons of those that aren't.
func listStreams(ctx context.Context, nc *nats.Conn) (live map[string]int, offline map[string]string, err error) {
	live, offline = make(map[string]int), make(map[string]string)
	for seen := 0; ; {
		var page struct {
			Total   int               `json:"total"`
			Offline map[string]string `json:"offline"`
			Streams []struct {
				Config struct {
					Name string `json:"name"`
				} `json:"config"`
				State struct {
					Consumers int `json:"consumer_count"`
				} `json:"state"`
			} `json:"streams"`
		}
		if err := call(ctx, nc, "STREAM.LIST", seen, &page); err != nil {
			return nil, nil, err
		}
		for _, st := range page.Streams {
			live[st.Config.Name] = st.State.Consumers
		}
		for name, reason := range page.Offline {
			offline[name] = reason
		}
		got := len(page.Streams) + len(page.Offline)
		seen += got
		if got == 0 || seen >= page.Total {
			return live, offline, nil
		}
	}
}

func listConsumers(ctx context.Context, nc *nats.Conn, stream string) (map[string]bool, error) {
	live := make(map[string]bool)
	for {
		var page struct {
			Total     int      `json:"total"`
			Consumers []string `json:"consumers"`
		}
		if err := call(ctx, nc, "CONSUMER.NAMES."+stream, len(live), &page); err != nil {
			return nil, err
		}
		for _, name := range page.Consumers {
			live[name] = true
		}
		if len(page.Consumers) == 0 || len(live) >= page.Total {
			return live, nil
		}
	}
}

// call makes a paged call of the JetStream API.
func call(ctx context.Context, nc *nats.Conn, api string, offset int, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	m, err := nc.RequestWithContext(ctx, "$JS.API."+api, fmt.Appendf(nil, `{"offset":%d}`, offset))
	if err != nil {
		return fmt.Errorf("%s: %w", api, err)
	}
	var failed struct {
		Error *struct {
			Code        int    `json:"err_code"`
			Description string `json:"description"`
		} `json:"error"`
	}
	if err := json.Unmarshal(m.Data, &failed); err != nil {
		return fmt.Errorf("%s: %w", api, err)
	}
	if failed.Error != nil {
		return fmt.Errorf("%s: %s (%d)", api, failed.Error.Description, failed.Error.Code)
	}
	return json.Unmarshal(m.Data, answer)
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}
