package testnats

import (
	"fmt"
	"strings"
	"sync"
	"testing"
)

// Log is what a server has logged: lines that begin with their level, like
// "WRN Error recreating stream …".
type Log struct {
	mu    sync.Mutex
	lines []string
}

// Lines returns a copy of all lines so far.
func (l *Log) Lines() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.lines...)
}

// Find returns the lines that contain text.
func (l *Log) Find(text string) []string {
	var found []string
	for _, s := range l.Lines() {
		if strings.Contains(s, text) {
			found = append(found, s)
		}
	}
	return found
}

// Wait waits for a line that contains text.
func (l *Log) Wait(t testing.TB, text string) string {
	t.Helper()
	var line string
	Eventually(t, func() error {
		found := l.Find(text)
		if len(found) == 0 {
			return fmt.Errorf("the server hasn't logged %q", text)
		}
		line = found[0]
		return nil
	})
	return line
}

func (l *Log) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, line)
}

func (l *Log) addf(level, format string, args ...any) {
	l.add(level + " " + fmt.Sprintf(format, args...))
}

// The methods below make Log the logger of an in-process server.

func (l *Log) Noticef(format string, v ...any) { l.addf("INF", format, v...) }
func (l *Log) Warnf(format string, v ...any)   { l.addf("WRN", format, v...) }
func (l *Log) Errorf(format string, v ...any)  { l.addf("ERR", format, v...) }
func (l *Log) Fatalf(format string, v ...any)  { l.addf("FTL", format, v...) }
func (l *Log) Debugf(format string, v ...any)  { l.addf("DBG", format, v...) }
func (l *Log) Tracef(format string, v ...any)  { l.addf("TRC", format, v...) }
