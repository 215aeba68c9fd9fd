package repo_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jetkeep/jetkeep/backup/repo"
	"pgregory.net/rapid"
)

func TestPathName(t *testing.T) {
	long := strings.Repeat("x", 201)
	for stream, want := range map[string]string{
		"ORDERS":       "ORDERS",
		"KV_my-bucket": "KV_my-bucket",
		"$MQTT_msgs":   "%24MQTT_msgs",
		"a@b,c=d+e.f":  "a@b,c=d+e.f",
		"a/b\\c":       "a%2Fb%5Cc",
		"100%":         "100%25",
		".hidden":      "%2Ehidden",
		"..":           "%2E%2E",
		"end.":         "end%2E",
		"end ":         "end%20",
		"ü":            "%C3%BC",
		"con":          "%63on",
		"LPT1.txt":     "%4CPT1.txt",
		"console":      "console",
		"jetkeep.json": "%6Aetkeep.json",
		"":             "%",
		long[:200]:     long[:200],
	} {
		if got := repo.PathName(stream); got != want {
			t.Errorf("PathName(%q) = %q, want %q", stream, got, want)
		}
	}
	if got := repo.PathName(long); len(got) > 200 || !strings.HasPrefix(got, "xxx") {
		t.Errorf("PathName of a long name: %q", got)
	}
}

var anyStream = rapid.OneOf(
	rapid.String(),
	rapid.StringN(60, 300, 400),
	rapid.StringMatching(`[a-zA-Z0-9%. @-]{0,8}`),
	rapid.StringMatching(`x{150,210}%?-?`),
)

func TestPathNameIsSafeAndInjective(t *testing.T) {
	safe := regexp.MustCompile(`^[A-Za-z0-9_.@+=,%-]{1,200}$`)
	device := regexp.MustCompile(`(?i)^(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?$`)
	rapid.Check(t, func(t *rapid.T) {
		a, b := anyStream.Draw(t, "a"), anyStream.Draw(t, "b")
		p := repo.PathName(a)
		if !safe.MatchString(p) || p[0] == '.' || strings.HasSuffix(p, ".") || device.MatchString(p) {
			t.Fatalf("PathName(%q) = %q", a, p)
		}
		if a != b && p == repo.PathName(b) {
			t.Fatalf("%q and %q share %q", a, b, p)
		}
		if q := repo.PathName(p); a != "" && p != a && p == q {
			t.Fatalf("%q and %q share %q", a, p, p)
		}
	})
}

func TestIDsSortByTime(t *testing.T) {
	if id := repo.NewID(start); !strings.HasPrefix(id, "20261130T155200.123Z-") || !repo.ValidID(id) {
		t.Error(id)
	}
	rapid.Check(t, func(t *rapid.T) {
		ms := rapid.Int64Range(0, 9999999999999)
		x, y := ms.Draw(t, "x"), ms.Draw(t, "y")
		zone := time.FixedZone("", rapid.IntRange(-12*3600, 14*3600).Draw(t, "zone"))
		a, b := repo.NewID(time.UnixMilli(x).In(zone)), repo.NewID(time.UnixMilli(y))
		if !repo.ValidID(a) || repo.PathName(a) != a || x < y && a >= b || x > y && a <= b {
			t.Fatal(a, b)
		}
	})
}

func TestValidID(t *testing.T) {
	good := "20261130T155200.123Z-1a2b3c"
	if !repo.ValidID(good) {
		t.Error(good)
	}
	for _, bad := range []string{
		"", "latest", good[1:], good + "0", "../" + good[3:], "20261130T155200.123Z-1a2b3C", "20261130T155200.123Z-1a2b3g",
		"20261330T155200.123Z-1a2b3c", "20260230T155200.123Z-1a2b3c", "20261130T155200,123Z-1a2b3c", "20261130t155200.123Z-1a2b3c",
		"20261130T155200.123Z_1a2b3c", "20261130T155200.123Z-1a2b3/",
	} {
		if repo.ValidID(bad) {
			t.Errorf("%q passes", bad)
		}
	}
}

func TestParseRef(t *testing.T) {
	id := "20261130T155200.123Z-1a2b3c"
	for arg, want := range map[string][2]string{
		"S":                  {"S", ""},
		"S@latest":           {"S", "latest"},
		"S@" + id:            {"S", id},
		"a@b":                {"a@b", ""},
		"a@b@" + id:          {"a@b", id},
		"S@Latest":           {"S@Latest", ""},
		"S@":                 {"S@", ""},
		"@latest":            {"@latest", ""},
		"S@latest@latest":    {"S@latest", "latest"},
		"S@20261130T155200Z": {"S@20261130T155200Z", ""},
		"":                   {"", ""},
	} {
		stream, got := repo.ParseRef(arg)
		if stream != want[0] || got != want[1] {
			t.Errorf("ParseRef(%q) = %q, %q", arg, stream, got)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		stream := rapid.StringN(1, -1, -1).Draw(t, "stream")
		ids := []string{repo.Latest, repo.NewID(time.UnixMilli(rapid.Int64Range(0, 9999999999999).Draw(t, "ms")))}
		for _, id := range ids {
			if s, i := repo.ParseRef(stream + "@" + id); s != stream || i != id {
				t.Fatalf("%q, %q", s, i)
			}
		}
		if s, i := repo.ParseRef(stream); i == "" && s != stream || i != "" && s+"@"+i != stream || i != "" && i != repo.Latest && !repo.ValidID(i) {
			t.Fatalf("%q, %q", s, i)
		}
	})
	if !slices.IsSorted([]string{repo.NewID(start), repo.NewID(start.Add(time.Millisecond))}) {
		t.Error("ids don't sort")
	}
}
