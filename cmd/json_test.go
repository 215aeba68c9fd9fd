package cmd

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jetkeep/jetkeep/format"
	"github.com/jetkeep/jetkeep/internal/testnats"
	"github.com/jetkeep/jetkeep/internal/ui"
)

// lineTypes are the JSON lines by the headings of docs/json.md.
var lineTypes = map[string]any{
	"status":                       ui.Status{},
	"error":                        errorLine{},
	"summary of init":              initSummary{},
	"summary of backup":            backupSummary{},
	"summary of verify":            verifySummary{},
	"summary of restore":           restoreSummary{},
	"summary of restore --dry-run": planSummary{},
	"summary of version":           versionSummary{},
}

// documented reads the fields of each table in docs/json.md.
func documented(t *testing.T) map[string][]string {
	t.Helper()
	doc, err := os.ReadFile("../docs/json.md")
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile("^\\| `([^`]+)` \\| \\S.* \\| \\S.* \\|$")
	fields := map[string][]string{}
	section := ""
	for line := range strings.Lines(string(doc)) {
		line = strings.TrimSpace(line)
		if h, ok := strings.CutPrefix(line, "## "); ok {
			section = strings.ToLower(strings.ReplaceAll(h, "`", ""))
		} else if m := row.FindStringSubmatch(line); m != nil {
			fields[section] = append(fields[section], m[1])
		}
	}
	return fields
}

// fieldsOf lists the JSON fields of a type: "figures.subjects.top[].subject".
func fieldsOf(rt reflect.Type, prefix string) []string {
	var out []string
	for f := range rt.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		ft := f.Type
		if ft.Kind() == reflect.Pointer {
			ft = ft.Elem()
		}
		switch {
		case name == "-" || !f.IsExported() && !f.Anonymous:
			continue
		case f.Anonymous && name == "":
			out = append(out, fieldsOf(ft, prefix)...)
			continue
		}
		path := prefix + name
		out = append(out, path)
		if ft.Kind() == reflect.Slice {
			ft, path = ft.Elem(), path+"[]"
		}
		if ft.Kind() == reflect.Struct && ft != reflect.TypeFor[time.Time]() && ft != reflect.TypeFor[format.Object]() {
			out = append(out, fieldsOf(ft, path+".")...)
		}
	}
	return out
}

// TestEveryJSONFieldIsDocumented compares docs/json.md with the types, both ways.
func TestEveryJSONFieldIsDocumented(t *testing.T) {
	docs := documented(t)
	for section, line := range lineTypes {
		want := fieldsOf(reflect.TypeOf(line), "")
		for _, f := range want {
			if !slices.Contains(docs[section], f) {
				t.Errorf("docs/json.md, %s: %s isn't documented", section, f)
			}
		}
		for _, f := range docs[section] {
			if !slices.Contains(want, f) {
				t.Errorf("docs/json.md, %s: %s doesn't exist", section, f)
			}
		}
	}
	for section := range docs {
		if _, ok := lineTypes[section]; !ok {
			t.Errorf("docs/json.md has a table under %q, which is no JSON line", section)
		}
	}
}

// emitted lists the fields of a JSON value as fieldsOf does.
func emitted(v any, prefix string, into map[string]bool) {
	switch v := v.(type) {
	case map[string]any:
		for k, x := range v {
			into[prefix+k] = true
			if a, ok := x.([]any); ok {
				for _, e := range a {
					emitted(e, prefix+k+"[].", into)
				}
				continue
			}
			emitted(x, prefix+k+".", into)
		}
	}
}

// TestRealRunsEmitWhatIsDocumented runs verbs and looks at what they write.
func TestRealRunsEmitWhatIsDocumented(t *testing.T) {
	srv := testnats.Single(t)
	stream := testnats.Fill(t, srv.Connect(t), testnats.FillOptions{TTL: time.Hour, Consumers: true})
	docs := documented(t)
	home := filepath.Join(t.TempDir(), "repo")
	broken := t.TempDir()
	for _, run := range []struct {
		section string
		code    int
		args    []string
	}{
		{"summary of init", 0, []string{"init", "--repo", home}},
		{"summary of backup", 0, []string{"backup", stream, "--repo", home, "-s", srv.URL()}},
		{"summary of verify", 0, []string{"verify", stream, "--repo", home}},
		{"summary of restore --dry-run", 0, []string{"restore", stream, "--repo", home, "-s", srv.URL(), "--as", testnats.Name(t), "--dry-run"}},
		{"summary of restore", 0, []string{"restore", stream, "--repo", home, "-s", srv.URL(), "--as", testnats.Name(t)}},
		{"summary of version", 0, []string{"version"}},
		{"error", exitRefused, []string{"restore", stream, "--repo", home, "-s", srv.URL()}},
		{"error", exitNotFound, []string{"backup", "NO_SUCH", "--repo", home, "-s", srv.URL()}},
		{"error", exitUsage, []string{"backup"}},
		{"error", exitNotFound, []string{"verify", broken + "/"}},
	} {
		t.Run(run.section, func(t *testing.T) {
			var out, errs bytes.Buffer
			args := append(run.args, "--json")
			code := Run(t.Context(), args, Streams{In: strings.NewReader(""), Out: &out, Err: &errs}, Build{})
			if code != run.code {
				t.Fatalf("%q: exit code %d\n%s", args, code, &errs)
			}
			lines := out.String()
			if code != 0 {
				lines += errs.String() // no summary among them
			} else if errs.Len() > 0 {
				t.Errorf("standard error: %s", &errs)
			}
			if err := checkLines(lines, run.section, docs); err != nil {
				t.Error(err)
			}
		})
	}
}

// checkLines checks that the last line is of a section, the ones before are
// status lines, and no field is unknown.
func checkLines(lines, section string, docs map[string][]string) error {
	all := strings.Split(strings.TrimSuffix(lines, "\n"), "\n")
	for i, line := range all {
		var v map[string]any
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			return fmt.Errorf("%w: %s", err, line)
		}
		where := section
		if i < len(all)-1 {
			where = "status"
		}
		kind, _, _ := strings.Cut(where, " ")
		if v["message_type"] != kind {
			return fmt.Errorf("message_type isn't %q: %s", kind, line)
		}
		delete(v, "config") // the stream's own
		found := map[string]bool{}
		emitted(v, "", found)
		var unknown []string
		for f := range maps.Keys(found) {
			if !slices.Contains(docs[where], f) {
				unknown = append(unknown, f)
			}
		}
		if len(unknown) > 0 {
			return errors.New(where + ": not documented: " + strings.Join(unknown, ", "))
		}
	}
	return nil
}
